"""The mean of the last gradients of all workers.

    g[worker] <- gradient;   update = (1/n) sum_i g[i]

The aggregation of proximal incremental aggregated gradient (Wu et al. 2022, arXiv 2202.08550), as
an optax transformation over `buffers.gradient_table`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.buffers.rows import (
    GradientTableState,
    fitting,
    gradient_table,
    mean_row,
    put_gradient,
)
from asyncjax.checks import whole
from asyncjax.steps.arguments import number, table_rows
from asyncjax.steps.scaling import map_unmasked
from asyncjax.steps.transformation import transformation


class AverageWorkersState(NamedTuple):
    """State of `average_workers`."""

    worker_gradients: GradientTableState  # rows: tree of [n_workers, ...], parameters' dtype
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def average_workers(
    n_workers: int, initial: optax.Updates | None = None
) -> optax.GradientTransformationExtraArgs:
    """Puts updates into their worker's row of a table and returns the mean of all rows.

    Every `update` needs the extra `worker`: an integer scalar, or a vector of m distinct workers
    with updates that have a leading axis m, where a worker of -1 is padding. The divisor is always
    `n_workers`; a row never delivered counts as zero.

    Args:
        n_workers: Number of workers n, at least 1.
        initial: First rows of the table, a tree like the parameters with a leading axis n: the
            paper starts from the gradients at the first parameters. By default all rows are zero.

    Returns:
        A transformation; rows in the dtypes of the parameters, averaged in float32 or wider.

    Raises:
        TypeError: If `n_workers` is not an integer; in `update`, if `worker` is not.
        ValueError: If `n_workers` is below 1, or a leaf of `initial` has another leading axis; in
            `update`, if `worker` is out of range or the updates do not fit the table. A traced
            worker out of range is not written, and is counted in `invalid_extras`.

    Note:
        A rule behind it in a chain that needs `delay` must get the age of the oldest row, not the
        delay of the gradient that arrived: wrap the chain in `oldest_delay`, or use `piag`.

    Example:
        >>> mean = average_workers(2)
        >>> state = mean.init(jnp.float32(0.0))
        >>> for worker, grad in ((0, 2.0), (1, 4.0), (0, 6.0)):
        ...     update, state = mean.update(jnp.float32(grad), state, worker=worker)
        ...     print(float(update))
        1.0
        3.0
        5.0

    Reference:
        Wu et al. 2022, "Delay-adaptive step-sizes for asynchronous learning", arXiv 2202.08550.
    """
    number("n_workers", n_workers, least=1, integer=True)
    table_rows("initial", initial, n_workers)

    def init(params: optax.Params) -> AverageWorkersState:
        state = gradient_table(whole("n_workers", n_workers)).init(params)
        # optax.tree.map_params calls init with a placeholder that has no leaves.
        if initial is not None and jax.tree.leaves(params):
            like("initial", initial, state.gradient_rows, "the table")
            rows = map_unmasked(_initial_rows, state.gradient_rows, initial)
            state = GradientTableState(gradient_rows=rows)
        return AverageWorkersState(worker_gradients=state)

    def update(
        updates: optax.Updates, state: AverageWorkersState, *, worker: ArrayLike
    ) -> tuple[optax.Updates, AverageWorkersState]:
        fitting(state.worker_gradients, jnp.asarray(worker), updates, "updates")
        table = put_gradient(state.worker_gradients, worker, updates)
        mean = jax.tree.map(
            lambda row, leaf: row.astype(jnp.result_type(leaf)), mean_row(table), updates
        )
        return mean, AverageWorkersState(worker_gradients=table)

    return transformation(init, update, n_workers=_table_length)


def _table_length(state: AverageWorkersState) -> int | None:
    rows = jax.tree.leaves(state.worker_gradients)
    return rows[0].shape[0] if rows else None


def _initial_rows(rows: jax.Array, given: Any) -> jax.Array:
    return jnp.array(given, rows.dtype)
