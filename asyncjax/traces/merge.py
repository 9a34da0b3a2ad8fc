"""Traces without an event loop: where nobody ever waits, arrivals are merged renewal streams.

With `to_deliverer` and a rule that answers at once, worker i finishes its jobs at the cumulative
sums of its durations, so

    arrivals     = all finish times, sorted by (time, worker),
    read version = the version right after the same worker's previous arrival (0 for its first job),

both vectorised: millions of arrivals a second. Nothing here is kept a worker but a few numbers, so
that a million workers are as welcome as ten.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asyncjax.clocks import Clock
from asyncjax.traces.collection import Arrivals, Collection, settled
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.host import DurationBlocks
from asyncjax.traces.progress import Pace

_SPARE = 1.02  # more than expected is drawn


class Merged(NamedTuple):
    """The first E arrivals of pure dispatch, in order; no versions yet."""

    time: np.ndarray  # float64[E]
    worker: np.ndarray  # int32[E]
    job: np.ndarray  # int32[E]
    start: np.ndarray  # float64[E]
    source: np.ndarray  # int32[E], the arrival that its job was handed out at, -1 for time 0
    by_worker: np.ndarray  # int32[E], arrivals by worker, then by job
    counts: np.ndarray  # int64[active], arrivals of each worker


def merged(
    clock: Clock,
    blocks: DurationBlocks,
    *,
    n_updates: int,
    collect: Collection,
    concurrency: int,
    read_at_start: bool,
    pace: Pace | None = None,
) -> EventTrace:
    """The trace of pure asynchronous dispatch where every `collect.period`-th arrival steps."""
    period = collect.period or 1
    n_workers, n_arrivals = clock.n_workers, n_updates * period
    held = open_jobs_of_each(n_workers, concurrency)
    streams = Renewals(blocks, len(held))
    found = streams.first(n_arrivals, np.ones_like(held) if read_at_start else held, pace)
    place = np.arange(n_arrivals, dtype=np.int32)
    after = (place + 1) // np.int32(period)  # version right after each arrival
    read_version = np.where(found.source < 0, 0, after[found.source])
    version, used, steps = place // np.int32(period), np.ones(n_arrivals, bool), after * period
    steps = steps == place + 1
    arrivals = Arrivals(found.worker, version - read_version, found.time, used, steps, n_workers)
    if pace is not None:
        pace.end(found.time[-1])
    return EventTrace(
        time=found.time,
        worker=found.worker,
        job=found.job,
        read_version=read_version,
        version=version,
        start=found.start,
        n_workers=n_workers,
        open_jobs=open_jobs(found, held, after, read_at_start),
        cancelled=CancelledJobs(np.zeros(0, np.int32), np.zeros(0), np.zeros(0)),
        **settled(collect, arrivals),
    )


def open_jobs_of_each(n_workers: int, concurrency: int) -> np.ndarray:
    """How many open jobs every worker has throughout who has any, int64[active].

    Example:
        >>> open_jobs_of_each(3, 5).tolist(), open_jobs_of_each(3, 2).tolist()
        ([2, 2, 1], [1, 1])
    """
    active = min(n_workers, concurrency)
    return -((np.arange(active) - concurrency) // n_workers)


class Renewals:
    """Finish times of workers who begin their next job when they have done one.

    What is drawn is kept: more arrivals are found without drawing any time twice.
    """

    def __init__(self, blocks: DurationBlocks, active: int) -> None:
        mean = np.asarray(blocks.clock.mean, np.float64)[:active]
        self.mean = np.where(np.isfinite(mean) & (mean > 0), mean, 1.0)
        self.rate = float(np.sum(1.0 / self.mean))
        self.blocks, self.reach = blocks, 0.0
        self.last, self.drawn = np.zeros(active), np.zeros(active, np.int64)
        # worker int[m], first job int[m] and finish times float64[m, jobs] of what was drawn
        self.pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def first(self, n_arrivals: int, lag: np.ndarray, pace: Pace | None = None) -> Merged:
        """The first `n_arrivals`, the job of each handed out `lag` own arrivals before it is back.

        `lag` int64[active].
        """
        self._reach(n_arrivals, pace)
        finish, counts = self._finish_times()
        opens = np.cumsum(counts) - counts
        worker = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        order = np.lexsort((worker, finish))[:n_arrivals]
        place = np.full(len(finish), n_arrivals, np.int32)  # of each finish time among arrivals
        place[order] = np.arange(n_arrivals, dtype=np.int32)
        job = (np.arange(len(finish)) - np.repeat(opens, counts)).astype(np.int32)
        start = np.empty_like(finish)
        start[1:] = finish[:-1]
        start[opens[counts > 0]] = 0.0
        most = int(lag.max())
        if most == 1:
            source = np.empty_like(place)
            source[1:] = place[:-1]
        else:
            source = place[np.maximum(np.arange(len(place)) - np.repeat(lag, counts), 0)]
        source[job < (most if lag.min() == most else np.repeat(lag, counts))] = -1
        known = place < n_arrivals
        return Merged(
            time=finish[order],
            worker=worker[order],
            job=job[order],
            start=start[order],
            source=source[order],
            by_worker=place[known],
            counts=np.bincount(worker[known], minlength=len(counts)),
        )

    def _reach(self, n_arrivals: int, pace: Pace | None) -> None:
        """Draws until the first `n_arrivals` of all workers are known."""
        reach = max(self.reach, n_arrivals / self.rate)
        while True:
            short = np.flatnonzero(self.last <= reach)
            if len(short):
                told = None if pace is None else lambda share, last=reach: pace.drawn(share, last)
                self._draw(short, reach, told)
            complete = self.last.min()  # every arrival before this moment is known
            if complete > reach:
                self.reach = reach
                if sum(np.count_nonzero(times <= reach) for _, _, times in self.pieces) >= (
                    n_arrivals
                ):
                    return
                reach = max(complete, reach * 1.05)

    def _draw(self, short: np.ndarray, reach: float, told: Callable[[float], None] | None) -> None:
        """Draws on for some workers, about until `reach`."""
        left = (reach - self.last[short]) / self.mean[short] / self.blocks.size
        wanted = np.maximum(1, np.ceil(_SPARE * left).astype(np.int64))
        by_wanted = np.argsort(wanted, kind="stable")  # equally many blocks at once
        short, wanted = short[by_wanted], wanted[by_wanted]
        ends = np.cumsum(wanted)
        within = np.arange(ends[-1]) - np.repeat(ends - wanted, wanted)
        new = self.blocks.draw(
            np.repeat(short, wanted), np.repeat(self.drawn[short], wanted) + within, told
        )
        bounds = [*np.flatnonzero(np.diff(wanted, prepend=0)), len(wanted)]
        at = 0
        for begin, end in itertools.pairwise(bounds):
            own, count = short[begin:end], int(wanted[begin])
            rows = len(own) * count
            times = new[at : at + rows].reshape(len(own), -1)
            times[:, 0] += self.last[own]
            np.cumsum(times, axis=1, out=times)
            self.pieces.append((own, self.drawn[own] * self.blocks.size, times))
            self.last[own] = times[:, -1]
            self.drawn[own] += count
            at += rows

    def _finish_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Finish times up to the reach, by worker and then by job, and how many of each worker."""
        counts = np.zeros(len(self.mean), np.int64)
        within = [times <= self.reach for _, _, times in self.pieces]
        for (worker, _, _), mask in zip(self.pieces, within, strict=True):
            counts[worker] += np.count_nonzero(mask, axis=1)
        opens = np.cumsum(counts) - counts
        finish = np.empty(int(counts.sum()))
        for (worker, job, times), mask in zip(self.pieces, within, strict=True):
            own = np.count_nonzero(mask, axis=1)
            at = np.arange(own.sum()) + np.repeat(opens[worker] + job - np.cumsum(own) + own, own)
            finish[at] = times[mask]
        return finish, counts


def open_jobs(found: Merged, held: np.ndarray, after: np.ndarray, read_at_start: bool) -> OpenJobs:
    """The jobs not delivered after the last arrival; `after` int32[E], what arrivals hand out."""
    worker = np.repeat(np.arange(len(held), dtype=np.int32), held)
    turn = np.arange(len(worker)) - np.repeat(np.cumsum(held) - held, held)  # in its queue
    ends = np.cumsum(found.counts)
    count, end = found.counts[worker], ends[worker]
    # The job in turn was handed out `held - turn` own arrivals ago, the last being 1 ago.
    ago = held[worker] - turn
    if read_at_start:
        ago = np.where(turn == 0, 1, ago)
    handed = ago <= count
    from_arrival = found.by_worker[np.where(handed, end - ago, 0)]
    read = np.where(handed, after[from_arrival], 0)
    last = found.time[found.by_worker[np.maximum(end - 1, 0)]]
    start = np.where(turn > 0, np.nan, np.where(count > 0, last, 0.0))
    return OpenJobs(worker, read.astype(np.int32), start)
