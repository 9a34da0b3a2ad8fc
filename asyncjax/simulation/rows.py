"""Buffers of models: every leaf has a leading axis of rows, and a row is a model.

Leaf by leaf; the one leaf of a small model is a flat vector, where that is faster (see
`engine.flattened`). Where gradients serve in several updates, a direction is a blend of rows,

    D_u = sum over rows r of coefficient_r(u) * row_r,
    coefficient_r(u) = weight of the interval of r that holds u, else 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

_LARGE = 2**16  # numbers in a row


class ServiceIntervals(NamedTuple):
    """When rows serve, and with which coefficient; the last axis counts the intervals of a row."""

    first: jax.Array | np.ndarray  # int32[..., K], update
    last: jax.Array | np.ndarray  # int32[..., K], update; below first: none
    weight: jax.Array | np.ndarray  # float[..., K]


def no_intervals(shape: tuple[int, ...], xp: Any = jnp, dtype: Any = float) -> ServiceIntervals:
    """Intervals of rows that serve nowhere, of a shape [..., K]; `xp` is numpy or jax.numpy."""
    last = xp.full(shape, -1, np.int32)
    return ServiceIntervals(xp.zeros(shape, np.int32), last, xp.zeros(shape, dtype))


def repeat(row: Any, count: int) -> Any:
    """A buffer of `count` equal rows."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), row)


def blank(row: Any, count: int) -> Any:
    """A buffer of `count` rows of zeros."""
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), row)


def read(buffer: Any, index: Any) -> Any:
    """The row at an index, or the rows at several; at a tuple of indices, what is there.

    An index must lie in the buffer, as those of a plan do: to see to that took longer than to copy
    the row.
    """
    if not isinstance(index, tuple) and np.ndim(index):
        return jax.tree.map(lambda leaf: leaf[index], buffer)
    at = [
        jnp.asarray(each, jnp.int32) for each in (index if isinstance(index, tuple) else (index,))
    ]

    def row(leaf: Any) -> jax.Array:
        rest = np.shape(leaf)[len(at) :]
        starts, sizes = (*at, *(np.int32(0),) * len(rest)), (*(1,) * len(at), *rest)
        part = jax.lax.dynamic_slice(leaf, starts, sizes, allow_negative_indices=False)
        return jax.lax.reshape(part, rest)

    return jax.tree.map(row, buffer)


def read_lanes(buffer: Any, index: jax.Array) -> Any:
    """The rows at several indices int32[L], for the lanes of a wave.

    On a TPU large rows are cut out one by one: a gather there first turns the whole buffer to the
    type of the products that follow.
    """

    def gathered(leaf: jax.Array, index: jax.Array) -> jax.Array:
        return leaf.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def cut(leaf: jax.Array, index: jax.Array) -> jax.Array:
        rows = [jax.lax.dynamic_index_in_dim(leaf, each, keepdims=False) for each in index]
        return jnp.stack(rows)

    def rows_of(leaf: jax.Array) -> jax.Array:
        if leaf.size < _LARGE * leaf.shape[0]:
            return gathered(leaf, index)
        return jax.lax.platform_dependent(leaf, index, tpu=cut, default=gathered)

    return jax.tree.map(rows_of, buffer)


def write(buffer: Any, index: Any, row: Any) -> Any:
    """The buffer with a row put at an index, or several at several; dtypes are the buffer's.

    An index must lie in the buffer, as in `read`.
    """

    def put(leaf: jax.Array, new: jax.Array) -> jax.Array:
        new = new.astype(leaf.dtype)
        if jnp.ndim(index):
            return leaf.at[index].set(new, mode="promise_in_bounds", wrap_negative_indices=False)
        starts = (jnp.asarray(index, jnp.int32), *(np.int32(0),) * (leaf.ndim - 1))
        return jax.lax.dynamic_update_slice(leaf, new[None], starts, allow_negative_indices=False)

    return jax.tree.map(put, buffer, row)


def when(flag: ArrayLike, change: Callable[[Any], Any], before: Any) -> Any:
    """`change(before)` where the flag is true, else `before`, in place.

    A loop of one turn or none: a choice of branches would copy all that it may change, on a GPU in
    every turn of the loop around it. What follows from values that `change` leaves as they are a
    compiler takes out of this loop, and so does it always: where that is more than a few numbers,
    tie the values to those that change, by an optimization barrier.

    Example:
        >>> [int(when(jnp.bool_(flag), lambda x: x + 1, jnp.int32(3))) for flag in (True, False)]
        [4, 3]
    """
    turns = jnp.asarray(flag, jnp.int32)
    return jax.lax.fori_loop(0, turns, lambda _, state: change(state), before)


def blend(rows: jax.Array, intervals: ServiceIntervals, update: jax.Array) -> jax.Array:
    """One leaf of the direction of an update, of `rows` float[rows, ...].

    Summed in float32 or wider; in the dtype of the leaf.
    """
    serves = (intervals.first <= update) & (update <= intervals.last)
    coefficient = jnp.sum(jnp.where(serves, intervals.weight, 0), axis=-1)
    precise = jnp.promote_types(rows.dtype, jnp.float32)
    along = (coefficient != 0).reshape(-1, *[1] * (rows.ndim - 1))
    serving = jnp.where(along, rows, 0).astype(precise)
    direction = jnp.tensordot(
        coefficient.astype(precise), serving, axes=1, precision=jax.lax.Precision.HIGHEST
    )
    return direction.astype(rows.dtype)


def along(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    """A mask or factors of rows, with the axes of a leaf of rows."""
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))
