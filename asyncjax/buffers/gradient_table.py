"""The last gradient of every worker, and their mean.

    put:  g[w] <- gradient of worker w        mean = (1/n) sum_i g[i]

The table behind proximal incremental aggregated gradient, SAG and other incremental methods. The
mean is taken afresh: in a running sum, the rounding error of one large old row would stay for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like, numbers, of_kind, rows_of
from asyncjax.buffers.rows import empty_rows, one_row, put_rows
from asyncjax.checks import whole


class GradientTableState(NamedTuple):
    """Rows of a gradient table; `gradient_rows` has the tree of the parameters."""

    gradient_rows: optax.Updates  # tree of [n_workers, ...], dtype of the parameters


@dataclass(frozen=True)
class GradientTable:
    """Pure functions of a gradient table; see `gradient_table`."""

    init: Callable[[optax.Params], GradientTableState]
    put: Callable[[GradientTableState, ArrayLike, optax.Updates], GradientTableState]
    mean: Callable[[GradientTableState], optax.Updates]


def gradient_table(n_workers: int) -> GradientTable:
    """Keeps one gradient per worker and averages all rows.

    `init(params)` is a table of zeros in the dtypes of `params`. `put(state, worker, grads)`
    overwrites one row, or m rows for a vector `worker[m]` and gradients with a leading axis m; a
    worker of -1 is no write (padding). `mean(state)` divides by `n_workers` whatever was delivered:
    a row never delivered counts as zero.

    Args:
        n_workers: Number of rows n, at least 1.

    Returns:
        A `GradientTable` of pure functions.

    Raises:
        TypeError: If `n_workers` is not a static integer; from the functions, if an argument is of
            the wrong kind.
        ValueError: If `n_workers` is below 1; in `put`, if `grads` do not fit the rows, or a
            concrete `worker` is outside -1 .. n - 1 or comes twice. A traced worker outside the
            range is no write.

    Example:
        >>> table = gradient_table(4)
        >>> state = table.init({"w": jnp.zeros(2)})
        >>> state = table.put(state, 1, {"w": jnp.array([4.0, 8.0])})
        >>> table.mean(state)["w"].tolist()
        [1.0, 2.0]
    """
    n_workers = whole("n_workers", n_workers)
    return GradientTable(
        init=lambda params: GradientTableState(empty_rows(numbers("params", params), n_workers)),
        put=_put_checked,
        mean=lambda state: mean_row(of_kind("state", state, GradientTableState)),
    )


def fitting(
    table: GradientTableState, worker: jax.Array, grads: optax.Updates, name: str
) -> optax.Updates:
    """Reads the gradients of one worker, or of m with a leading axis m; see `gradient_table`.

    Example:
        >>> table = gradient_table(2).init(jnp.zeros(3))
        >>> fitting(table, jnp.array([0, 1]), jnp.zeros((2, 3)), "grads").shape
        (2, 3)
    """
    row = one_row(table.gradient_rows)
    of = f"the rows of the table for worker of shape {worker.shape}"
    return like(name, grads, row, of, worker.shape)


def _put_checked(
    state: GradientTableState, worker: ArrayLike, grads: optax.Updates
) -> GradientTableState:
    rows = jax.tree.leaves(of_kind("state", state, GradientTableState))
    if not rows:
        return state
    index = rows_of("worker", worker, rows[0].shape[0], padding=True)
    return put_gradient(state, index, fitting(state, index, grads, "grads"))


def put_gradient(
    state: GradientTableState, worker: ArrayLike, grads: optax.Updates
) -> GradientTableState:
    """Overwrites the row of one worker, or of m distinct ones; see `gradient_table`."""
    return GradientTableState(put_rows(state.gradient_rows, worker, grads))


def mean_row(state: GradientTableState) -> optax.Updates:
    """Averages all rows, in float32 or wider, and returns a tree in the dtypes of the rows."""

    def mean(rows: jax.Array) -> jax.Array:
        wide = jnp.promote_types(rows.dtype, jnp.float32)
        total = _sum_rows(rows.astype(wide))
        return (total / rows.shape[0]).astype(rows.dtype)

    return jax.tree.map(mean, state.gradient_rows)


def _sum_rows(rows: jax.Array) -> jax.Array:
    """Sums over the leading axis in halves: XLA's own sum is far slower on a CPU for long rows."""
    rest = None
    while rows.shape[0] > 1:
        half = rows.shape[0] // 2
        if rows.shape[0] % 2:
            rest = rows[-1] if rest is None else rest + rows[-1]
        rows = rows[:half] + rows[half : 2 * half]
    return rows[0] if rest is None else rows[0] + rest
