"""Synchronous traces: all workers start a round together, at one model.

With the finish times f_i = t_r + duration(i, r) of round r, in which every worker reads version r,

    used = the k first by (f_i, i),     t_{r+1} = the k-th smallest f_i,     weight = 1/k

and the others are stopped. k = n is mini-batch SGD over the workers; k < n is fastest-k (k-sync).
Where a policy decides k (and the load) before every round, from what it has seen of the training,
there is no trace beforehand: the loop leaves `Rounds`, from which it is made.

In k-batch-sync (`restarted`), a worker who delivers goes on at once, until b gradients are there:

    b times:  i = first minimum of f;  f_i += the next duration of i;     t_{r+1} = the last of them
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import real, whole
from asyncjax.clocks import Clock
from asyncjax.traces.collection import Arrivals, Collection, settled
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs, StalledError
from asyncjax.traces.progress import Pace, Progress, made_until, pace_of
from asyncjax.traces.random_draws import (
    DurationBlocks,
    NextDurations,
    check_key,
    count_of_updates,
    on_host,
)

Array = jax.Array | np.ndarray


@dataclass(frozen=True)
class Synchronous:
    """Synchronous rounds: the server steps with the k fastest of n workers and stops the others.

    `trace` makes the rounds beforehand; `simulation.run_policy` trains with them, and takes a k
    that a policy decides on the way.

    Attributes:
        k: Gradients in a step, 1..n; the other n - k jobs of a round are cancelled. Or a policy of
            `stragglers`, that decides k and the load before every round.
        load: Factor on the compute part of every duration, more than 0; in `run_policy` the samples
            of each worker in a step, a whole number. With a policy it must be left at 1.0.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rounds = traces.Synchronous(k=2)
        >>> rounds.trace(clocks.constant([1.0, 2.0, 9.0]), until=5.0).update_time
        array([2., 4.])

        A policy that goes from one to two workers:

        >>> from asyncjax import stragglers
        >>> rounds = traces.Synchronous(k=stragglers.staged([1, 2], 1, [10, np.inf]))
        >>> rounds.trace(clocks.constant([1.0, 2.0, 9.0]), n_updates=20)
        Traceback (most recent call last):
        ...
        ValueError: k must be a whole number for a trace, got a policy, which decides while it \
trains: use simulation.run_policy

    Reference:
        Dutta et al., Slow and stale gradients can win the race, 2018, k-sync SGD.
    """

    k: Any
    load: float = 1.0

    def __post_init__(self) -> None:
        load = real("load", self.load, above=0.0)
        if hasattr(self.k, "decide") and load != 1.0:
            raise ValueError(
                f"load must be 1.0 where k is a policy, which decides the load too, got {load:g}"
            )

    def trace(
        self,
        clock: Clock,
        *,
        n_updates: int | None = None,
        until: float | None = None,
        key: jax.Array | None = None,
        progress: Callable[[Progress], None] | bool | None = None,
    ) -> EventTrace:
        """Makes the trace.

        Args:
            clock: How long each of the n workers takes.
            n_updates: Number of rounds; each makes one update. Either this or `until`.
            until: Time up to which rounds end, time units, as in `Rule.trace`.
            key: Typed key, needed where the clock is random.
            progress: True shows on standard error how far the run is. Or a function that is called
                a few times a second with a `Progress`, and at the end.

        Returns:
            The trace with E = k * n_updates arrivals, delay 0 throughout, and job = read_version =
            version = round. Where a round never ends, since fewer than k jobs of it return, a
            `StalledError` holds the trace so far.
        """
        if hasattr(self.k, "decide"):
            raise ValueError(
                "k must be a whole number for a trace, got a policy, which decides while it trains:"
                " use simulation.run_policy"
            )

        n = clock.n_workers
        k = whole("k", self.k, 1, n)
        check_key(key, "clock" if clock.is_random else None)

        def make(count: int) -> EventTrace:
            n_updates, now = count_of_updates(count), 0.0
            pace = pace_of(progress, n_updates)
            with on_host(key) as host_key:
                duration_key, _ = jax.random.split(host_key)  # the same stream as `asynchronous`
            blocks = DurationBlocks(clock, duration_key, float(self.load))
            begins, served = np.empty(n_updates), np.empty((n_updates, n), np.int32)
            finished, share = np.empty((n_updates, n)), np.full((n_updates, 1), 1 / np.float32(k))
            for r, drawn in zip(range(n_updates), blocks.by_job(), strict=False):
                finish = blocks.ends(now, drawn)
                order = np.argsort(finish, kind="stable")
                begins[r], served[r], finished[r] = now, order, finish[order]
                if np.isinf(finished[r, k - 1]):
                    returned = int(np.isfinite(finish).sum())
                    columns = begins[:r], served[:r], finished[:r], k, share[:r]
                    raise StalledError(
                        f"the trace cannot go on after update {r} at time {now:g}: only"
                        f" {returned} of {n} jobs of the next round return, and the server waits"
                        f" for k = {k}",
                        _compact(*columns) if r else None,
                    )
                now = finished[r, k - 1]
                if pace is not None:
                    pace.at(r + 1, now)
            if pace is not None:
                pace.end(now)
            return _compact(begins, served, finished, k, share)

        return made_until(make, until, n_updates)


def synchronous(
    clock: Clock,
    *,
    k: int,
    n_updates: int | None = None,
    until: float | None = None,
    load: float = 1.0,
    key: jax.Array | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
) -> EventTrace:
    """Makes the trace of synchronous rounds: `Synchronous(k, load).trace(clock, ...)` in one call.

    Args:
        clock: As in `Synchronous.trace`, like all that follow but two.
        k: As in `Synchronous`.
        n_updates: Number of rounds.
        until: Time up to which rounds end.
        load: As in `Synchronous`.
        key: Where the clock is random.
        progress: True shows how far the run is; or a function that is called with it.

    Returns:
        The trace, as `Synchronous.trace` makes it.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.synchronous(clocks.constant([1.0, 2.0, 9.0]), k=2, n_updates=3)
        >>> trace.time
        array([1., 2., 3., 4., 5., 6.])
    """
    rounds = Synchronous(k, load)
    return rounds.trace(clock, n_updates=n_updates, until=until, key=key, progress=progress)


def restarted(
    blocks: DurationBlocks, n_updates: int, collect: Collection, pace: Pace | None = None
) -> EventTrace:
    """The trace of pure dispatch where every `collect.restarts`-th arrival restarts all workers.

    A round costs O(n + b) in NumPy; the event loop would restart n jobs one by one.
    """
    n, period, following = blocks.clock.n_workers, collect.restarts or 1, NextDurations(blocks)
    shape, everybody, now = (n_updates, period), np.arange(n, dtype=np.int32), 0.0
    time, start, begun = np.empty(shape), np.empty(shape), np.empty((n_updates, n))
    worker, job = np.empty(shape, np.int32), np.empty(shape, np.int32)
    for r in range(n_updates):
        begin, finish = begun[r], blocks.ends(now, following.all())
        begin[:] = now
        for place in range(period):
            i = int(np.argmin(finish))
            now = float(finish[i])
            time[r, place], start[r, place], worker[r, place] = now, begin[i], i
            job[r, place] = following.taken[i] - 1
            if place < period - 1:
                begin[i], finish[i] = now, blocks.end_of(i)(now, following.one(i))
        if pace is not None:
            pace.at(r + 1, now)
    if pace is not None:
        pace.end(now)
    rounds = np.repeat(np.arange(n_updates, dtype=np.int32), period)
    used = np.ones(rounds.size, bool)
    steps = np.tile(np.arange(period) == period - 1, n_updates)
    arrivals = Arrivals(worker.ravel(), np.zeros_like(rounds), time.ravel(), used, steps, n)
    # Whose gradient makes the step is idle then, all others are stopped.
    stopped = everybody != worker[:, -1:]
    return EventTrace(
        time=arrivals.time,
        worker=arrivals.worker,
        job=job.ravel(),
        read_version=rounds,
        version=rounds.copy(),
        start=start.ravel(),
        n_workers=n,
        open_jobs=OpenJobs(everybody, np.full(n, n_updates, np.int32), np.full(n, now)),
        cancelled=CancelledJobs(
            np.broadcast_to(everybody, stopped.shape)[stopped],
            begun[stopped],
            np.repeat(time[:, -1], n - 1),
        ),
        **settled(collect, arrivals),
    )


class Rounds(NamedTuple):
    """Every update's answers in the order of their response times; T updates, n workers.

    Update r begins at t_r; with the response times sorted, T_(1) <= ... <= T_(n), and k_r answers
    awaited, arrival i <= k_r of update r is at t_r + T_(i), and t_{r+1} = t_r + T_(k_r).
    """

    worker: Array  # int32[T, n], by response time, ties by index
    response: Array  # float[T, n], not decreasing, time units; inf for a worker that got no work
    k: Array  # int32[T], answers that the server waited for, 1 .. n
    weight: Array  # float[T, n], factor of an answer in the step's direction; 0 from the k-th on


def trace_of_rounds(rounds: Rounds) -> EventTrace:
    """The trace of rounds: delay 0, and job = read_version = version = update.

    Concrete ones give a compact trace on the host, with the times added up in double precision;
    traced ones a trace of JAX arrays with the static capacity of T n arrivals, of which those never
    awaited have `used` and `steps` False, and of no open or cancelled jobs.
    """
    if np.ndim(rounds.k) != 1:
        raise ValueError(
            f"rounds must be those of one run, got several of shape {np.shape(rounds.k)[:-1]};"
            " take one with jax.tree.map(lambda leaf: leaf[0], ...)"
        )
    if any(isinstance(leaf, Tracer) for leaf in rounds):
        return _padded(rounds)
    worker, response, k, weight = map(np.asarray, rounds)
    spans = np.take_along_axis(response, k[:, None] - 1, axis=1)[:, 0].astype(np.float64)
    begins = np.concatenate([[0.0], np.cumsum(spans)[:-1]])
    return _compact(begins, worker, begins[:, None] + response, k, weight, np.isfinite(response))


def _compact(
    begins: np.ndarray,
    worker: np.ndarray,
    finish: np.ndarray,
    k: Any,
    weight: np.ndarray,
    began: np.ndarray | bool = True,
) -> EventTrace:
    """The trace of rounds whose times are known.

    `begins` float64[T]; `worker` int[T, n]; `finish` float64[T, n]; `k` int[T]; `weight` float[T,
    n]; `began` bool[T, n].
    """
    (n_updates, n), place = worker.shape, np.arange(worker.shape[1])
    counts = np.broadcast_to(np.asarray(k), (n_updates,))
    used = place < counts[:, None]
    ends = np.take_along_axis(finish, counts[:, None] - 1, axis=1)
    rounds = np.repeat(np.arange(n_updates, dtype=np.int32), counts)
    row, column = np.nonzero(~used & began)
    by_worker = np.lexsort((worker[row, column], row))
    row, column = row[by_worker], column[by_worker]
    stopped = worker[row, column].astype(np.int32)
    return EventTrace(
        time=finish[used],
        worker=worker[used].astype(np.int32),
        job=rounds,
        read_version=rounds.copy(),
        version=rounds.copy(),
        used=np.ones(rounds.size, bool),
        steps=(place == counts[:, None] - 1)[used],
        weight=np.broadcast_to(weight, worker.shape)[used].astype(np.float32),
        start=np.repeat(begins, counts),
        n_workers=n,
        open_jobs=OpenJobs(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)),
        cancelled=CancelledJobs(stopped, begins[row], ends[row, 0].astype(np.float64)),
    )


def _padded(rounds: Rounds) -> EventTrace:
    """The trace inside compiled code.

    Fill comes after an update's last answer, at the same time.
    """
    worker, response, k, weight = (jnp.asarray(leaf) for leaf in rounds)
    n_updates, n = worker.shape
    place, last = jnp.arange(n), k[:, None] - 1
    used, steps = place <= last, place == last
    spans = jnp.take_along_axis(response, last, axis=1)
    begins = jnp.cumsum(spans, axis=0) - spans
    update = jnp.broadcast_to(jnp.arange(n_updates, dtype=jnp.int32)[:, None], (n_updates, n))
    columns: dict[str, Any] = {
        "time": begins + jnp.where(used, response, spans),
        "worker": worker,
        "job": update,
        "read_version": update,
        "version": jnp.where(used, update, update + 1),
        "used": used,
        "steps": steps,
        "weight": jnp.where(used, weight, 0),
        "start": jnp.broadcast_to(begins, (n_updates, n)),
    }
    return EventTrace(**jax.tree.map(jnp.ravel, columns), n_workers=n)
