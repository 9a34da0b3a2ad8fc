r"""Tables by worker: the last gradient of each, how old it is, and how long each one takes.

    average_workers        g[worker] <- gradient;   update = (1/n) sum_i g[i]
    oldest_delay           s[worker] <- k - delay_k;   tau_k = max_i (k - s[i])   all s[i] = 0 first
    ca2fl                  c = h_bar + g - h[worker],   h[worker] <- g,
                           h_bar = (1/n) sum_i h[i] when the step began
    scale_by_worker_time   update -> t_w / mean_i(t_i) * update,   t_i = time of one job of worker i

The mean of the last gradients is the aggregation of proximal incremental aggregated gradient (Wu et
al. 2022, arXiv 2202.08550). A step made from a table is as old as its oldest row, about twice as
old as the gradient that has just arrived. A chain cannot change an extra for the transformations
behind it, so `oldest_delay` is a wrapper.

What a buffer holds comes from the fast; in CA2FL h_bar stands for all. Worker i delivers at rate
1 / t_i, so with steps in proportion to t_i a small constant step solves min (1/n) sum_i f_i instead
of the speed-weighted problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import like, number
from asyncjax.buffers import rows as tables
from asyncjax.checks import whole, within
from asyncjax.steps import trees
from asyncjax.steps.transformation import Transformation, Updated, stateless, transformation


class AverageWorkersState(NamedTuple):
    """State of `average_workers`."""

    worker_gradients: tables.GradientTableState  # rows: tree of [n_workers, ...], parameters' dtype
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def average_workers(n_workers: int, initial: optax.Updates | None = None) -> Transformation:
    """Puts updates into their worker's row of a table and returns the mean of all rows.

    Every `update` needs the extra `worker`: an integer scalar, or a vector of m distinct workers
    with updates that have a leading axis m, where a worker of -1 is padding. A row never delivered
    counts as zero. A traced worker out of range is not written, and is counted in `invalid_extras`.
    Rows have the dtypes of the parameters and are averaged in float32 or wider.

    Args:
        n_workers: Number of workers n, at least 1.
        initial: First rows, a tree like the parameters with a leading axis n; zeros by default. The
            paper starts from the gradients at the first parameters.

    Note:
        A rule behind it that needs `delay` must get the age of the oldest row: wrap the chain in
        `oldest_delay`, or use `piag`.

    Example:
        >>> mean = average_workers(2)
        >>> state = mean.init(jnp.float32(0.0))
        >>> for worker, grad in ((0, 2.0), (1, 4.0)):
        ...     update, state = mean.update(jnp.float32(grad), state, worker=worker)
        ...     print(float(update))
        1.0
        3.0
    """
    number("n_workers", n_workers, least=1, integer=True)

    def init(params: optax.Params) -> AverageWorkersState:
        state = tables.gradient_table(whole("n_workers", n_workers)).init(params)
        # optax.tree.map_params calls init with a placeholder that has no leaves.
        if initial is not None and jax.tree.leaves(params):
            rows = state.gradient_rows
            like("initial", initial, rows, "the table")
            rows = trees.map_unmasked(lambda row, leaf: jnp.array(leaf, row.dtype), rows, initial)
            state = tables.GradientTableState(rows)
        return AverageWorkersState(state)

    def update(updates: optax.Updates, state: AverageWorkersState, *, worker: ArrayLike) -> Updated:
        tables.fitting(state.worker_gradients, jnp.asarray(worker), updates, "updates")
        table = tables.put_gradient(state.worker_gradients, worker, updates)
        mean = jax.tree.map(
            lambda row, leaf: row.astype(jnp.result_type(leaf)), tables.mean_row(table), updates
        )
        return mean, AverageWorkersState(table)

    def length(state: AverageWorkersState) -> int | None:
        rows = jax.tree.leaves(state.worker_gradients)
        return rows[0].shape[0] if rows else None

    return transformation(init, update, n_workers=length)


class OldestDelayState(NamedTuple):
    """State of `oldest_delay`."""

    row_ages: jax.Array  # int32[n_workers], updates since each row's parameters, at the next update
    last_table_delay: jax.Array  # int32[], tau_k of the last update
    table_state: optax.OptState  # of the inner transformation
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def oldest_delay(inner: optax.GradientTransformation, n_workers: int) -> Transformation:
    """Gives `inner` the age of the oldest row of a table as `delay`, instead of the arrival's own.

    Every `update` needs the extras `delay` and `worker` (scalars, or vectors of m distinct workers;
    one delay may serve several workers). All other extras, and `worker`, reach `inner` unchanged.
    If a worker dies, its row ages without bound: watch `last_table_delay`.

    Args:
        inner: Transformation that takes a `delay`, such as a chain of `average_workers` and
            `scale_by_adaptive_1`.
        n_workers: Number of rows, at least 1.

    Example:
        >>> rule = oldest_delay(optax.sgd(1.0), n_workers=2)
        >>> params = jnp.float32(0.0)
        >>> state = rule.init(params)
        >>> for worker, delay in ((0, 0), (1, 1), (0, 1)):
        ...     _, state = rule.update(params, state, params, delay=delay, worker=worker)
        >>> print(int(state.last_table_delay))
        2
    """
    number("n_workers", n_workers, least=1, integer=True)
    wrapped = optax.with_extra_args_support(inner)

    def init(params: optax.Params) -> OldestDelayState:
        ages = jnp.zeros((whole("n_workers", n_workers),), jnp.int32)
        return OldestDelayState(ages, jnp.zeros((), jnp.int32), wrapped.init(params))

    def update(
        updates: Any, state: Any, *, params: Any = None, delay: Any, worker: Any, **extra: Any
    ) -> Updated:
        worker = jnp.asarray(worker)
        age = jnp.maximum(0, jnp.asarray(delay).astype(jnp.int32))
        ages = tables.put_rows(state.row_ages, worker, age)
        oldest = jnp.max(ages)
        updates, table_state = wrapped.update(
            updates, state.table_state, params, delay=oldest, worker=worker, **extra
        )
        ages = jnp.minimum(ages, jnp.iinfo(jnp.int32).max - 1) + 1
        return updates, OldestDelayState(ages, oldest, table_state)

    return transformation(init, update, n_workers=lambda state: state.row_ages.shape[0])


def table_delays(worker: Any, delay: Any, n_workers: int) -> np.ndarray:
    """Returns the ages of the oldest row for a whole run, on the host.

    One arrival an update. They are what the rule inside `piag` gets as `delay`.

    Args:
        worker: int[K], the worker that delivered update k.
        delay: int[K], that gradient's own delay, in updates; clipped to at most k.
        n_workers: Number of rows, at least 1.

    Returns:
        NumPy int64[K].

    Example:
        >>> table_delays([0, 1, 0, 0], [0, 1, 1, 0], n_workers=2).tolist()
        [0, 1, 2, 3]
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
        oldest = np.minimum(oldest, np.where(last_arrival >= 0, stamp[last_arrival], 0))
    return update - oldest


class CalibrateWorkersState(NamedTuple):
    """State of `ca2fl`."""

    cached: optax.Updates  # h, tree of [n_workers, ...]
    cached_mean: optax.Updates  # (1/n) sum of h, tree like the parameters
    step_mean: optax.Updates  # the same when the step began
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def ca2fl(n_workers: int) -> Transformation:
    """CA2FL: adds to each arrival what the mean of all workers' last ones is above its worker's.

    For `simulation.Update(..., gradient_transform=...)`, on a trace of `traces.buffered`. Every
    `update` needs the extras `worker` and `place`, how many arrivals entered the same step before.
    Source: Wang, Cao, Wu, Chen, Chen 2024, "Tackling the data heterogeneity in asynchronous
    federated learning with cached update calibration" (CA2FL).

    Args:
        n_workers: Number of workers n, at least 1.

    Note:
        Agrees with a public program (of the flgo package, not the authors'). A worker that delivers
        twice in a step is corrected the second time by his first. Workers that have not delivered
        count as 0 in the mean. Memory: n + 2 models.

    Example:
        >>> rule = ca2fl(2)
        >>> state = rule.init(jnp.float32(0.0))
        >>> for worker, grad in ((0, 4.0), (1, 2.0)):
        ...     sent, state = rule.update(jnp.float32(grad), state, worker=worker, place=0)
        ...     print(float(sent))
        4.0
        4.0
    """
    count = whole("n_workers", n_workers)

    def init(params: optax.Params) -> CalibrateWorkersState:
        zero = optax.tree.zeros_like(params)
        return CalibrateWorkersState(tables.empty_rows(params, count), zero, zero)

    def update(
        updates: optax.Updates, state: CalibrateWorkersState, *, worker: ArrayLike, place: ArrayLike
    ) -> Updated:
        like("updates", updates, state.cached_mean, "the parameters that init got")
        dtype, worker = trees.wide_dtype(updates), trees.scalar("worker", worker)
        begins = trees.scalar("place", place) == 0

        def corrected(mean: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
            return mean + (new - old)

        def moved(mean: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
            return mean + (new - old) / count

        old = trees.row_of(state.cached, worker)
        step_mean = jax.tree.map(
            lambda now, then: jnp.where(begins, now, then), state.cached_mean, state.step_mean
        )
        middle, mean, *change = trees.in_dtype(dtype, step_mean, state.cached_mean, updates, old)
        sent = trees.cast(jax.tree.map(corrected, middle, *change), updates)
        cached_mean = trees.cast(jax.tree.map(moved, mean, *change), state.cached_mean)
        rows = trees.with_row(state.cached, worker, updates)
        return sent, CalibrateWorkersState(rows, cached_mean, step_mean)

    return transformation(init, update, n_workers=lambda state: count)


def scale_by_worker_time(times: ArrayLike | Sequence[float]) -> Transformation:
    """Multiplies updates by their worker's time over the mean time of all workers.

    For pure dispatch (whoever delivers gets the next job). Every `update` needs the extra `worker`.
    The largest factor is max(times) / mean(times): the largest stable step shrinks by it. Source:
    Rescaled ASGD, 2026, arXiv 2605.13434, as its abstract has it.

    Args:
        times: [n], mean time of one job of each worker, in any unit; positive and finite.

    Example:
        >>> rule = scale_by_worker_time([1.0, 3.0])
        >>> state = rule.init(jnp.float32(0.0))
        >>> [float(rule.update(jnp.float32(1.0), state, worker=i)[0]) for i in (0, 1)]
        [0.5, 1.5]
    """
    within("times", times, above=0)
    known = times if isinstance(times, jax.Array) else np.asarray(times, np.float64)
    if known.ndim != 1 or not known.size:
        raise ValueError(f"times must be one number a worker, got shape {known.shape}")

    def scaled(updates: optax.Updates, *, worker: ArrayLike) -> optax.Updates:
        every = jnp.asarray(known, trees.wide_dtype(updates))
        return trees.scale_tree(
            updates, trees.row_of(every, trees.scalar("worker", worker)) / jnp.mean(every)
        )

    return stateless(scaled, n_workers=lambda state: known.shape[0])


class MeasuredTimeState(NamedTuple):
    """State of `scale_by_measured_time`."""

    last_delivery: jax.Array  # float[n], time of each worker's last one, time units; 0: none yet
    deliveries: jax.Array  # int32[n], how many each worker has made
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def scale_by_measured_time(n_workers: int) -> Transformation:
    """As `scale_by_worker_time`, with the times measured while training.

    Every `update` needs the extras `worker` and `time`. A worker has taken, on average, (time of
    its last delivery) / (number of its deliveries) a job; one that has not delivered, until now.

    Args:
        n_workers: Number of workers n, at least 1.

    Note:
        Only for pure dispatch, with time counted from the start. In float32, times above 2^24 units
        lose their fraction. The estimate is this library's.

    Example:
        >>> rule = scale_by_measured_time(2)
        >>> state = rule.init(jnp.float32(0.0))
        >>> for worker, time in ((0, 1.0), (0, 2.0), (0, 3.0), (1, 3.0)):
        ...     update, state = rule.update(jnp.float32(1.0), state, worker=worker, time=time)
        >>> print(float(update))
        1.5
    """
    number("n_workers", n_workers, least=1, integer=True)

    def init(params: optax.Params) -> MeasuredTimeState:
        count = whole("n_workers", n_workers)
        return MeasuredTimeState(
            jnp.zeros(count, trees.wide_dtype(params)), jnp.zeros(count, jnp.int32)
        )

    def update(
        updates: optax.Updates, state: MeasuredTimeState, *, worker: ArrayLike, time: ArrayLike
    ) -> Updated:
        worker = trees.scalar("worker", worker)
        now = jnp.asarray(time).astype(state.last_delivery.dtype)
        last = state.last_delivery.at[worker].set(now, wrap_negative_indices=False)
        count = state.deliveries.at[worker].add(1, wrap_negative_indices=False)
        every = jnp.where(count > 0, last / jnp.maximum(1, count), now)
        mean = jnp.mean(every)
        factor = jnp.where(mean > 0, trees.row_of(every, worker) / jnp.where(mean > 0, mean, 1), 1)
        return trees.scale_tree(updates, factor), MeasuredTimeState(last, count)

    return transformation(init, update, n_workers=lambda state: state.deliveries.shape[0])
