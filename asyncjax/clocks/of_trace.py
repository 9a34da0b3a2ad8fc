"""Clocks of a trace: how long jobs took, recorded from real workers, as a clock to ask "what if".

    recorded, unevenly often   T_ij = durations_i[j mod k_i]
    resampled                  T_ij = durations_i[K + j mod b],  K uniform in 0 .. k_i - 1 for each
                               block of b jobs
    fitted                     T_ij lognormal with the mean and variance of durations_i

A worker that is fast, or that a rule asks often, is heard more often than others, so rows are as
long as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.checks import whole, within
from asyncjax.clocks import memory
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.compositions import communicating
from asyncjax.clocks.independent_laws import lognormal, recorded
from asyncjax.clocks.law import Law, Parameter, Parameters, Row, namespace
from asyncjax.clocks.rng import job_indices, open_uniform

Rows = list[np.ndarray]  # one row per worker, float64[k_i], time units
_MOST_LEFT_OUT = 0.05  # of the jobs that were started, before a warning
_SHORTEST = 1e-9  # of a job: what a part of it lasts at least


def _draw_cycled(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    return row["durations"][job_indices(first, count) % row["count"].astype(jnp.int32)]


def _draw_resampled(row: Row, worker_key: Any, first: Array, count: int) -> Array:
    durations, known = row["durations"], row["count"].astype(jnp.int32)
    jobs, block = job_indices(first, count), row["block"].astype(jnp.int32)
    keys = jax.vmap(lambda number: jax.random.fold_in(worker_key, number))(jobs // block)
    places = jax.vmap(lambda key: open_uniform(key, (), durations.dtype))(keys) * known
    begins = jnp.minimum(places.astype(jnp.int32), known - 1)
    return durations[(begins + jobs % block) % known]


def _mean(parameters: Parameters) -> Parameter:
    durations, count = parameters["durations"], parameters["count"]
    numpy = namespace(durations, count)
    is_known = numpy.arange(durations.shape[1]) < count[:, None]
    return numpy.where(is_known, durations, 0.0).sum(axis=1) / count


def _variance(parameters: Parameters) -> Parameter:
    apart = parameters["durations"] - _mean(parameters)[:, None]
    return _mean({**parameters, "durations": apart**2})


def _least(parameters: Parameters) -> Parameter:
    return parameters["durations"].min(axis=1)


CYCLED = Law("cycled", _draw_cycled, _mean, _variance, is_random=False, least=_least)
RESAMPLED = Law("resampled", _draw_resampled, _mean, _variance, least=_least)


def cycled(rows: Rows) -> Clock:
    """Recorded times in their order, each worker's from the beginning when they end."""
    is_even = len({len(row) for row in rows}) == 1
    return recorded(np.stack(rows)) if is_even else Clock(_padded(rows), CYCLED)


def resampled(durations: Any, *, block: int | None = None, common: bool | None = None) -> Clock:
    """Returns a clock that draws blocks of the recorded times, with replacement.

    Formula: jobs `b m .. b m + b - 1` of a worker take the times of `b` of its recorded jobs in a
    row, which begin anywhere; the first recorded job follows the last. So times depend on those
    before as they did, within a block. With common blocks all workers begin at the same moment of
    the log and go on side by side, so that phases in which they are slow together stay so between
    jobs of the same number. Side by side are jobs of the same number, or, where rows differ in
    length, each job of the shortest and the next one of the others then, none of them waiting: the
    longer rows leave jobs out.

    Args:
        durations: Times, positive, time units: `[n, k]`, or one row per worker of any length.
        block: Jobs of a block, at least 1; 1 draws every job for itself. None: by the
            autocorrelation of the log times (Politis and White 2004), of each worker, or the
            longest if common, in jobs of the shortest row; 1 where no memory is seen.
        common: Whether the blocks of all workers begin together. None: if the workers' times are
            correlated by more than chance, in jobs enough to tell.

    Example:
        >>> import jax
        >>> from asyncjax import clocks
        >>> clock = clocks.resampled([[1.0, 3.0], [5.0]])
        >>> clock.mean.tolist(), clock.durations(jax.random.key(0), 4)[1].tolist()
        ([2.0, 5.0], [5.0, 5.0, 5.0, 5.0])
        >>> in_order = clocks.resampled([[1.0, 2.0, 3.0]], block=3).durations(jax.random.key(0), 6)
        >>> (in_order[0, 1:3] - in_order[0, :2]).astype(int) % 3  # the next, or the first again
        Array([1, 1], dtype=int32)
    """
    rows = rows_of(durations)
    together = memory.moves_together(rows) if common is None else common
    if together:
        rows = [row[jobs] for row, jobs in zip(rows, memory.aligned(rows), strict=True)]
    if block is None:
        blocks = [memory.block_length(row) for row in rows]
        blocks = [max(blocks)] * len(rows) if together else blocks
    else:
        blocks = [whole("block", block)] * len(rows)
    parameters = {**_padded(rows), "block": np.array(blocks, np.float64)}
    return Clock(parameters, replace(RESAMPLED, is_common=together))


def fitted(durations: Any) -> Clock:
    """Returns a lognormal clock that has each worker's recorded mean and variance.

    Formula: `mean_i` the mean of row i, `sigma_i^2 = log(1 + variance_i / mean_i^2)`. Several
    modes, rare stalls, and times that depend on those before are lost.

    Args:
        durations: Times, positive, time units: `[n, k]`, or one row per worker of any length.

    Example:
        >>> from asyncjax import clocks
        >>> clock = clocks.fitted([[1.0, 3.0], [5.0]])
        >>> clock.mean.tolist(), clock.variance.round(9).tolist()
        ([2.0, 5.0], [1.0, 0.0])
    """
    mean, variance = np.array([[row.mean(), row.var()] for row in rows_of(durations)]).T
    return lognormal(mean=mean, sigma=np.sqrt(np.log1p(variance / mean**2)))


def of_trace(
    trace: Any,
    *,
    law: Callable[[Rows], Clock] | None = None,
    n_workers: int | None = None,
    computed: Any = None,
) -> Clock:
    """Makes the clock of a trace: how long the jobs of each worker took, from start to arrival.

    Args:
        trace: A trace that records starts, such as that of a live run; its times may be in seconds.
        law: `(rows) -> Clock`, what is made of the recorded times, a row float64[k_i] a worker.
            None: they come again in their order, so that the same rule makes the same trace again.
            Or `resampled`, or `fitted`.
        n_workers: Number of workers of the clock; more than were recorded are like those, over
            again (recorded times then begin at another place). None: as many as were recorded.
        computed: float64[E], time units, how long each arrival's worker computed, such as
            `live.timing(run).computed`; the rest of a job is then upload, with a law of its own.
            None: all is compute time.

    Returns:
        The clock. Jobs that did not arrive (stopped, lost, still open) are left out, which makes it
        too fast where they were the long ones; a warning says so if they are more than 5 %. Best
        measured under `traces.immediately()`, which stops no job.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.5]), n_updates=70)
        >>> clock = clocks.of_trace(trace)
        >>> clock.mean.tolist(), clocks.of_trace(trace, law=clocks.fitted, n_workers=3).n_workers
        ([1.0, 2.5], 3)
    """
    worker, duration, known = recorded_jobs(trace)
    wanted = known if n_workers is None else whole("n_workers", n_workers)

    def clock_of(times: np.ndarray) -> Clock:
        rows = [times[worker == i % known] for i in range(wanted)]
        copies = max(wanted / known, 1.0)  # of a worker; each begins at another of its times
        rows = [np.roll(row, -int(i // known * len(row) / copies)) for i, row in enumerate(rows)]
        return (law or cycled)(rows)

    if computed is None:
        return clock_of(duration)
    compute, link = _parts(computed, duration)
    return communicating(clock_of(compute), upload=clock_of(link))


def recorded_jobs(trace: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Worker and duration of every arrival, and the number of workers."""
    if trace.start is None:
        raise ValueError("trace must record when jobs started (start), got None")
    worker = np.asarray(trace.worker)
    duration = np.asarray(trace.time, np.float64) - np.asarray(trace.start, np.float64)
    if not (duration > 0).all():
        first = int(np.argmin(duration > 0))
        raise ValueError(
            f"trace must have jobs that take time, got {duration[first]:g} for arrival {first}"
        )
    known = int(trace.n_workers or np.max(worker, initial=-1) + 1)
    heard = np.bincount(worker, minlength=known)
    if not known or not heard.all():
        silent = int(np.argmin(heard)) if known else 0
        raise ValueError(
            f"trace must have an arrival of every worker, got none of worker {silent}: a longer run"
            " may have one"
        )
    parts = (getattr(trace, name, None) for name in ("cancelled", "open_jobs"))
    stopped, opened = (0 if jobs is None else int(np.isfinite(jobs.start).sum()) for jobs in parts)
    started = len(worker) + stopped + opened
    if stopped + opened > _MOST_LEFT_OUT * started:
        warnings.warn(
            f"of {started} jobs that were started {stopped} were stopped or lost"
            f" and {opened} are still open: they are left out, so the clock may be too fast",
            stacklevel=3,
        )
    return worker, duration, known


def _parts(computed: Any, duration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute and link times, both positive."""
    compute = np.asarray(within("computed", computed, least=0.0), np.float64)
    if compute.shape != duration.shape:
        raise ValueError(
            f"computed must be one time an arrival, shape {duration.shape}, got {compute.shape}"
        )
    if not (compute <= duration).all():
        first = int(np.argmin(compute <= duration))
        raise ValueError(
            f"computed must be no longer than the job, {duration[first]:g}, got"
            f" {compute[first]:g} at index {first}"
        )
    least = _SHORTEST * duration
    return np.maximum(compute, least), np.maximum(duration - compute, least)


def rows_of(durations: Any, name: str = "durations") -> Rows:
    """Rows of times, checked."""
    rows: Rows = []
    for place, row in enumerate(durations):
        times = np.asarray(within(f"{name}[{place}]", row, above=0.0), np.float64)
        if times.ndim != 1 or not times.size:
            raise ValueError(
                f"{name} must hold a row of at least one time a worker, got shape {times.shape}"
                f" for worker {place}"
            )
        rows.append(times)
    if not rows:
        raise ValueError(f"{name} must hold a row of at least one time a worker, got no row")
    return rows


def _padded(rows: Sequence[np.ndarray]) -> dict[str, Parameter]:
    """Rows as parameters, each filled up with its own times from the beginning."""
    longest = max(map(len, rows))
    return {
        "durations": np.stack([np.resize(row, longest) for row in rows]),
        "count": np.array([float(len(row)) for row in rows]),
    }
