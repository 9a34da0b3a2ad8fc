r"""Threefry written out: the bits of `jax.random`, in the form that a CPU takes fastest.

.. math:: (x_0, x_1) \leftarrow (x_0 + x_1, \; (x_1 \lll r) \oplus (x_0 + x_1))
          \quad \text{twenty times, a part of the key added after every fourth}

(Salmon, Moraes, Dror, Shaw 2011, "Parallel Random Numbers: As Easy as 1, 2, 3".) On a CPU JAX makes
five turns of a loop of it; a thousand small draws in a loop cost eight times as long as this, which
is one fused pass. Bit for bit the same, for keys of the kind "threefry2x32" and under JAX's default
`jax_threefry_partitionable`; everything else is left to JAX.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
Words = tuple[jax.Array, jax.Array]  # uint32[...] each


def is_known(key: jax.Array) -> bool:
    """Whether the bits that come of a key are those of this file.

    Example:
        >>> is_known(jax.random.key(0)), is_known(jax.random.key(0, impl="rbg"))
        (True, False)
    """
    kind = str(jax.random.key_impl(key))
    return kind in ("fry", "threefry2x32") and bool(
        getattr(jax.config, "jax_threefry_partitionable", False)
    )


def folded(key: jax.Array, data: jax.Array) -> jax.Array:
    """`jax.random.fold_in`, key by key.

    Example:
        >>> key = jax.random.key(7)
        >>> bool(folded(key, jnp.uint32(3)) == jax.random.fold_in(key, 3))
        True
    """
    low = data.astype(jnp.uint32)
    return _keys(key, *_threefry(_words(key), jnp.zeros_like(low), low))


def parted(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """`jax.random.split`; keys [...] give [..., *shape]."""
    return _keys(key, *_counted(key, shape))


def bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """`jax.random.bits` of 32 bits; keys [...] give uint32[..., *shape].

    Example:
        >>> key = jax.random.key(7)
        >>> bool((bits(key, (3, 2)) == jax.random.bits(key, (3, 2))).all())
        True
    """
    first, second = _counted(key, shape)
    return first ^ second


def _counted(key: jax.Array, shape: tuple[int, ...]) -> Words:
    """The two words of each place of a shape."""
    places = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint32).reshape(shape)
    wanted = (*key.shape, *shape)
    low = jnp.broadcast_to(places, wanted)
    words = (word.reshape(*key.shape, *(1,) * len(shape)) for word in _words(key))
    first, second = (jnp.broadcast_to(word, wanted) for word in words)
    return _threefry((first, second), jnp.zeros_like(low), low)


def _words(key: jax.Array) -> Words:
    data = jax.random.key_data(key)
    return data[..., 0], data[..., 1]


def _keys(like: jax.Array, *words: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(jnp.stack(words, -1), impl=jax.random.key_impl(like))


def _threefry(key: Words, first: Any, second: Any) -> Words:
    """Twenty rounds on pairs of words."""
    parts = (*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    first, second = first + parts[0], second + parts[1]
    for turn in range(5):
        for rotation in _ROTATIONS[turn % 2]:
            first = first + second
            left, right = np.uint32(rotation), np.uint32(32 - rotation)
            second = first ^ ((second << left) | (second >> right))
        first = first + parts[(turn + 1) % 3]
        second = second + parts[(turn + 2) % 3] + np.uint32(turn + 1)
    return first, second
