"""Traces of k-batch-sync without an event loop: after every step all workers restart.

With `to_deliverer` and `rennala(b, cancel=True)` every running job is stopped at every step, so a
round begins with all n workers starting at once; its b arrivals are found one by one, everything
else is a vector operation:

    finish_i = t + duration_i                         all workers, at the start t of a round
    b times:  i = first minimum of finish;  finish_i += the next duration of i
    t <- time of the b-th arrival

A round costs O(n + b) in NumPy; the event loop would restart n jobs one by one.
"""

from __future__ import annotations

import numpy as np

from asyncjax.traces.collection import Arrivals, Collection, settled
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks

_MANY_WORKERS = 4_096  # from here on it pays to look for the first few


class _Durations:
    """The next duration of any worker; every worker counts its own jobs."""

    def __init__(self, blocks: DurationBlocks) -> None:
        self.blocks, n = blocks, blocks.clock.n_workers
        self.job = np.zeros(n, np.int64)  # number of the next job
        self.drawn = np.zeros(n, np.int64)  # number of the block that is held
        self.held = blocks.draw(np.arange(n), self.drawn)

    def all(self) -> np.ndarray:
        """Durations of the next job of every worker, float64[n]."""
        block = self.job // self.blocks.size
        stale = np.flatnonzero(block != self.drawn)
        if stale.size:
            self.held[stale] = self.blocks.draw(stale, block[stale])
            self.drawn[stale] = block[stale]
        taken = self.held[np.arange(len(self.job)), self.job % self.blocks.size]
        self.job += 1
        return taken

    def one(self, worker: int) -> float:
        """Duration of the next job of one worker."""
        block, place = divmod(int(self.job[worker]), self.blocks.size)
        if block != self.drawn[worker]:
            self.held[worker] = self.blocks.draw(np.array([worker]), np.array([block]))[0]
            self.drawn[worker] = block
        self.job[worker] += 1
        return float(self.held[worker, place])


def restarted(
    blocks: DurationBlocks, *, n_updates: int, collect: Collection, pace: Pace | None = None
) -> EventTrace:
    """The trace of pure dispatch where every `collect.restarts`-th arrival restarts all workers."""
    n, period, durations = blocks.clock.n_workers, collect.restarts or 1, _Durations(blocks)
    shape, others = (n_updates, period), (n_updates, n - 1)
    time, start = np.empty(shape), np.empty(shape)
    worker, job = np.empty(shape, np.int32), np.empty(shape, np.int32)
    stopped, stopped_start = np.empty(others, np.int32), np.empty(others)
    everybody, now = np.arange(n, dtype=np.int32), 0.0
    for r in range(n_updates):
        began, finish = now, now + durations.all()
        early, begin = everybody, np.full(n, now)
        if n >= _MANY_WORKERS:  # nobody else delivers in this round
            early = _first(finish, period)
            begin, finish = begin[early], finish[early]
        for place in range(period):
            k = int(np.argmin(finish))
            i, now = int(early[k]), float(finish[k])
            time[r, place], start[r, place], worker[r, place] = now, begin[k], i
            job[r, place] = durations.job[i] - 1
            if place < period - 1:
                begin[k], finish[k] = now, now + durations.one(i)
        begins = begin
        if len(early) < n:
            begins = np.full(n, began)
            begins[early] = begin
        # Whose gradient makes the step is idle then, all others are stopped.
        idle = int(worker[r, -1])
        for column, whole in ((stopped, everybody), (stopped_start, begins)):
            column[r, :idle], column[r, idle:] = whole[:idle], whole[idle + 1 :]
        if pace is not None:
            pace.at(r + 1, now)
    if pace is not None:
        pace.end(now)
    rounds = np.repeat(np.arange(n_updates, dtype=np.int32), period)
    used = np.ones(rounds.size, bool)
    steps = np.tile(np.arange(period) == period - 1, n_updates)
    arrivals = Arrivals(worker.ravel(), np.zeros_like(rounds), time.ravel(), used, steps, n)
    return EventTrace(
        time=arrivals.time,
        worker=arrivals.worker,
        job=job.ravel(),
        read_version=rounds,
        version=rounds.copy(),
        start=start.ravel(),
        n_workers=n,
        open_jobs=OpenJobs(
            np.arange(n, dtype=np.int32), np.full(n, n_updates, np.int32), np.full(n, now)
        ),
        cancelled=CancelledJobs(
            stopped.ravel(), stopped_start.ravel(), np.repeat(time[:, -1], n - 1)
        ),
        **settled(collect, arrivals),
    )


def _first(finish: np.ndarray, count: int) -> np.ndarray:
    """The workers who finish no later than the first so many, by index.

    Example:
        >>> _first(np.array([3.0, 1.0, 2.0, 2.0, 5.0, 6.0, 7.0, 8.0, 9.0]), 2).tolist()
        [1, 2, 3]
    """
    if len(finish) <= 4 * count:
        return np.arange(len(finish))
    return np.flatnonzero(finish <= np.partition(finish, count - 1)[count - 1])
