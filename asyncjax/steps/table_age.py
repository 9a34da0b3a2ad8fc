"""The age of the oldest row of a table of gradients.

    s[w_k] <- k - delay_k;     tau_k = max_i (k - s[i])      over all workers, all s[i] = 0 at first

A step made from a table uses information as old as the table's oldest row, about twice as old as
the gradient that has just arrived. A chain cannot change an extra for the transformations behind
it, so this is a wrapper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.rows import put_rows
from asyncjax.checks import whole, within
from asyncjax.steps.arguments import number, optimizer
from asyncjax.steps.transformation import transformation


class OldestDelayState(NamedTuple):
    """State of `oldest_delay`."""

    row_ages: jax.Array  # int32[n_workers], updates since each row's parameters, at the next update
    last_table_delay: jax.Array  # int32[], tau_k of the last update
    table_state: optax.OptState  # of the inner transformation
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def oldest_delay(
    inner: optax.GradientTransformation, n_workers: int
) -> optax.GradientTransformationExtraArgs:
    """Gives `inner` the age of the oldest row of a table as `delay`, instead of the arrival's own.

    Every `update` needs the extras `delay` and `worker` of the gradients that arrived (scalars, or
    vectors of m distinct workers; one delay may serve several workers). All other extras, and
    `worker`, reach `inner` unchanged. If a worker dies, its row ages without bound: watch
    `last_table_delay`.

    Args:
        inner: Transformation that takes a `delay`, such as a chain of `average_workers` and
            `scale_by_adaptive_1`.
        n_workers: Number of rows, at least 1.

    Returns:
        A transformation whose state has the fields `row_ages` and `last_table_delay`.

    Raises:
        TypeError: If `inner` is no transformation or `n_workers` not an integer; in `update`, if
            `delay` or `worker` is not.
        ValueError: If `n_workers` is below 1; in `update`, if `delay` is negative, `worker` out of
            range (in a vector, -1 is padding), or their shapes differ. A traced value out of range
            is counted in `invalid_extras`.

    Example:
        >>> rule = oldest_delay(optax.sgd(1.0), n_workers=2)
        >>> params = jnp.float32(0.0)
        >>> state = rule.init(params)
        >>> for worker, delay in ((0, 0), (1, 1), (0, 1), (0, 0)):
        ...     _, state = rule.update(params, state, params, delay=delay, worker=worker)
        ...     print(int(state.last_table_delay))
        0
        1
        2
        3

    Reference:
        Wu et al. 2022, "Delay-adaptive step-sizes for asynchronous learning", arXiv 2202.08550.
    """
    number("n_workers", n_workers, least=1, integer=True)
    wrapped = optax.with_extra_args_support(optimizer("inner", inner))

    def init(params: optax.Params) -> OldestDelayState:
        return OldestDelayState(
            row_ages=jnp.zeros((whole("n_workers", n_workers),), jnp.int32),
            last_table_delay=jnp.zeros((), jnp.int32),
            table_state=wrapped.init(params),
        )

    def update(
        updates: optax.Updates,
        state: OldestDelayState,
        *,
        params: optax.Params | None = None,
        delay: ArrayLike,
        worker: ArrayLike,
        **extra: Any,
    ) -> tuple[optax.Updates, OldestDelayState]:
        worker = jnp.asarray(worker)
        age = jnp.maximum(0, jnp.asarray(delay).astype(jnp.int32))
        if age.shape not in ((), worker.shape):
            raise ValueError(
                f"delay must be one, or one for each worker of shape {worker.shape}, got shape"
                f" {age.shape}"
            )
        ages = put_rows(state.row_ages, worker, age)
        oldest = jnp.max(ages)
        updates, table_state = wrapped.update(
            updates, state.table_state, params, delay=oldest, worker=worker, **extra
        )
        return updates, OldestDelayState(
            row_ages=jnp.minimum(ages, jnp.iinfo(jnp.int32).max - 1) + 1,
            last_table_delay=oldest,
            table_state=table_state,
        )

    return transformation(init, update, n_workers=lambda state: state.row_ages.shape[0])


def table_delays(worker: Any, delay: Any, n_workers: int) -> np.ndarray:
    """Returns the ages of the oldest row for a whole run, on the host.

    tau_k = max_i (k - s[i]), one arrival an update. As long as each worker's gradients arrive in
    the order in which they were started, tau_{k+1} <= tau_k + 1.

    Args:
        worker: int[K], the worker that delivered update k.
        delay: int[K], that gradient's own delay, in updates; clipped to at most k.
        n_workers: Number of rows, at least 1.

    Returns:
        NumPy int64[K], what the rule inside `piag` gets as `delay`.

    Raises:
        TypeError: If `n_workers` is not an integer, or the arrays are not made of integers.
        ValueError: If the arrays are not two vectors of one length, a worker is out of range or a
            delay is negative.

    Example:
        >>> table_delays([0, 1, 0, 0], [0, 1, 1, 0], n_workers=2).tolist()
        [0, 1, 2, 3]

    Reference:
        Wu et al. 2022, "Delay-adaptive step-sizes for asynchronous learning", arXiv 2202.08550.
    """
    count = whole("n_workers", n_workers)
    worker, delay = np.asarray(worker), np.asarray(delay)
    if worker.ndim != 1 or worker.shape != delay.shape:
        raise ValueError(
            f"worker and delay must be vectors of one length, got shapes {worker.shape} and "
            f"{delay.shape}"
        )
    if worker.size:
        within("worker", worker, least=0, most=count - 1, integer=True)
        within("delay", delay, least=0, integer=True)
    update = np.arange(worker.size)
    stamp = np.maximum(0, update - delay.astype(np.int64))
    oldest = update.copy()
    for row in range(count):
        last_arrival = np.maximum.accumulate(np.where(worker == row, update, -1))
        row_stamp = np.where(last_arrival >= 0, stamp[last_arrival], 0)
        oldest = np.minimum(oldest, row_stamp)
    return update - oldest
