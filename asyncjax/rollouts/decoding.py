r"""Sampling from a `TinyGPT` token by token, with keys and values of earlier places kept.

.. math:: F(v)_t = \sum_{s \le t} \mathrm{softmax}_s\left(\frac{q_t \cdot k_s}{\sqrt{d}}\right) u_s

Neither :math:`k_s` nor :math:`u_s` depends on later places, so a further token costs one place and
not the whole row again. The scores are those of the module itself, to rounding: it applies the same
layers, by the names that the module gave them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.problems.networks import TinyGPT
from asyncjax.problems.problem import PyTree


class Cache(NamedTuple):
    """What attention needs of earlier places, in every block; L places, H heads of size d."""

    keys: jax.Array  # float[depth, L, H, d]
    contents: jax.Array  # float[depth, L, H, d]


def empty_cache(model: TinyGPT, params: PyTree) -> Cache:
    """Returns the cache before the first token.

    Example:
        >>> model = TinyGPT(vocabulary=3, width=4, depth=2, heads=2, length=5)
        >>> empty_cache(model, {"positions": jnp.ones((5, 4))}).keys.shape
        (2, 5, 2, 2)
    """
    shape = model.depth, model.length, model.heads, model.width // model.heads
    zero = jnp.zeros(shape, params["positions"].dtype)
    return Cache(zero, zero)


def next_scores(
    model: TinyGPT, params: PyTree, cache: Cache, place: Any, tokens: jax.Array
) -> tuple[Cache, jax.Array]:
    """Appends n tokens at `place` and scores what follows each of them.

    Args:
        model: The module.
        params: Its parameters.
        cache: Filled below `place`.
        place: An int32 scalar, where the first of the tokens stands, at most L - n.
        tokens: int32[n].

    Returns:
        The cache, filled below place + n, and scores float[n, vocabulary].

    Example:
        >>> model = TinyGPT(vocabulary=3, width=4, depth=1, heads=2, length=5)
        >>> def follows(key):
        ...     params = model.init(key, jnp.zeros((1, 5), int))["params"]
        ...     cache = empty_cache(model, params)
        ...     cache, _ = next_scores(model, params, cache, 0, jnp.array([0, 1, 2]))
        ...     return next_scores(model, params, cache, 3, jnp.array([1]))[1]
        >>> jax.eval_shape(follows, jax.random.key(0)).shape
        (1, 3)
    """
    embedding = params["Embed_0"]["embedding"]
    places = place + jnp.arange(tokens.size)
    values = embedding[tokens] + params["positions"][places]
    keys, contents = [], []
    for block in range(model.depth):
        parts = _dense(params, 4 * block, _norm(params, 2 * block, values))
        parts = parts.reshape(tokens.size, 3, model.heads, -1)
        keys.append(_put(cache.keys[block], parts[:, 1], place))
        contents.append(_put(cache.contents[block], parts[:, 2], place))
        mixed = _attention(parts[:, 0], keys[-1], contents[-1], places)
        values = values + _dense(params, 4 * block + 1, mixed)
        inner = nn.gelu(_dense(params, 4 * block + 2, _norm(params, 2 * block + 1, values)))
        values = values + _dense(params, 4 * block + 3, inner)
    scores = _norm(params, 2 * model.depth, values) @ embedding.T
    if model.depth:
        cache = Cache(jnp.stack(keys), jnp.stack(contents))
    return cache, scores


def _put(kept: jax.Array, rows: jax.Array, place: Any) -> jax.Array:
    """Returns what is kept, float[L, H, d], with further rows from `place` on."""
    return jax.lax.dynamic_update_slice_in_dim(kept, rows, place, 0)


def _attention(
    queries: jax.Array, keys: jax.Array, contents: jax.Array, places: jax.Array
) -> jax.Array:
    """Returns float[n, width]: each of n queries attends to all places up to its own."""
    n, _, size = queries.shape
    scores = jnp.einsum("nhd,shd->hns", queries, keys) / size**0.5
    past = jnp.arange(keys.shape[0]) <= places[:, None]
    shares = nn.softmax(jnp.where(past, scores, jnp.finfo(scores.dtype).min), axis=-1)
    return jnp.einsum("hns,shd->nhd", shares, contents).reshape(n, -1)


def _norm(params: PyTree, index: int, values: jax.Array) -> jax.Array:
    """Returns the module's layer norm of that number."""
    return jnp.asarray(nn.LayerNorm().apply({"params": params[f"LayerNorm_{index}"]}, values))


def _dense(params: PyTree, index: int, values: jax.Array) -> jax.Array:
    """Returns the module's dense layer of that number."""
    layer = params[f"Dense_{index}"]
    return values @ layer["kernel"] + layer["bias"]
