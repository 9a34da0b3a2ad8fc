"""Traces of k-batch-sync without an event loop: after every step all workers restart.

With `to_deliverer` and `fresh(b, cancel=True)` every running job is stopped at every step, so a
round begins with all n workers starting at once; its b arrivals are found one by one, everything
else is a vector operation:

    finish_i = t + duration_i                         all workers, at the start t of a round
    b times:  i = first minimum of finish;  finish_i += the next duration of i
    t <- time of the b-th arrival

A round costs O(b n) in NumPy; the event loop would restart n jobs one by one.
"""

import numpy as np

from asyncjax.traces.collection import Arrivals, Collection, settled
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.host import DurationBlocks
from asyncjax.traces.progress import Pace


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
    shape = (n_updates, period)
    time, start = np.empty(shape), np.empty(shape)
    worker, job = np.empty(shape, np.int32), np.empty(shape, np.int32)
    stopped_start, now = np.empty((n_updates, n)), 0.0
    for r in range(n_updates):
        begin = np.full(n, now)
        finish = now + durations.all()
        for place in range(period):
            i = int(np.argmin(finish))
            now = float(finish[i])
            time[r, place], start[r, place], worker[r, place] = now, begin[i], i
            job[r, place] = durations.job[i] - 1
            if place < period - 1:
                begin[i], finish[i] = now, now + durations.one(i)
        stopped_start[r] = begin
        if pace is not None:
            pace.at(r + 1, now)
    if pace is not None:
        pace.end(now)
    others = np.arange(n) != worker[:, -1:]  # the worker whose gradient makes the step is idle then
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
            np.broadcast_to(np.arange(n, dtype=np.int32), others.shape)[others],
            stopped_start[others],
            np.repeat(time[:, -1], n - 1),
        ),
        **settled(collect, arrivals),
    )
