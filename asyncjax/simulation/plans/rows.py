"""Buffers of models: every leaf has a leading axis of rows, and a row is a model.

Leaf by leaf, since single asynchronous runs took longer with one flat vector at the sizes tried;
for sweeps of small models see `flat`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_LARGE = 2**16  # numbers in a row


def repeat(row: Any, count: int) -> Any:
    """A buffer of `count` equal rows."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), row)


def blank(row: Any, count: int) -> Any:
    """A buffer of `count` rows of zeros."""
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), row)


def read(buffer: Any, index: Any) -> Any:
    """The row at an index, or the rows at several."""
    return jax.tree.map(lambda leaf: leaf[index], buffer)


def read_lanes(buffer: Any, index: jax.Array) -> Any:
    """The rows at several indices int32[L], for the lanes of a wave.

    On a TPU large rows are cut out one by one: a gather there first turns the whole buffer to the
    type of the products that follow.
    """

    def gathered(leaf: jax.Array, index: jax.Array) -> jax.Array:
        return leaf[index]

    def cut(leaf: jax.Array, index: jax.Array) -> jax.Array:
        rows = [jax.lax.dynamic_index_in_dim(leaf, one, keepdims=False) for one in index]
        return jnp.stack(rows)

    def rows_of(leaf: jax.Array) -> jax.Array:
        if leaf.size < _LARGE * leaf.shape[0]:
            return gathered(leaf, index)
        return jax.lax.platform_dependent(leaf, index, tpu=cut, default=gathered)

    return jax.tree.map(rows_of, buffer)


def write(buffer: Any, index: Any, row: Any) -> Any:
    """The buffer with a row put at an index, or several at several; dtypes are the buffer's."""
    return jax.tree.map(lambda leaf, new: leaf.at[index].set(new.astype(leaf.dtype)), buffer, row)


def when(flag: jax.Array, change: Callable[[Any], Any], before: Any) -> Any:
    """`change(before)` where the flag is true, else `before`, in place.

    A loop of one turn or none: a choice of branches would copy all that it may change, on a GPU in
    every turn of the loop around it.

    Example:
        >>> [int(when(jnp.bool_(flag), lambda x: x + 1, jnp.int32(3))) for flag in (True, False)]
        [4, 3]
    """
    turns = jnp.asarray(flag, jnp.int32)
    return jax.lax.fori_loop(0, turns, lambda _, kept: change(kept), before)
