"""Traces without an event loop: where nobody ever waits, arrivals are merged renewal streams.

With `to_deliverer` and a rule that answers at once, worker i finishes its jobs at the cumulative
sums of its durations, so

    arrivals     = all finish times, sorted by (time, worker),
    read version = the version right after the same worker's previous arrival (0 for its first job),

both vectorised: millions of arrivals a second. Nothing here is kept a worker but a few numbers, so
that a million workers are as welcome as ten.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from asyncjax.traces.arrival_streams import Found, NoStreamError, none_cancelled, streamed
from asyncjax.traces.collection import Collection
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks

_SPARE = 1.02  # more than expected is drawn
# Jobs given up, for each arrival and worker and besides, from which on the event loop takes over.
_LATE, _LATE_ANYHOW = 4, 4_096


def merged(
    blocks: DurationBlocks,
    collect: Collection,
    n_updates: int,
    *,
    concurrency: int,
    read_at_start: bool,
    pace: Pace | None = None,
) -> EventTrace:
    """The trace of pure asynchronous dispatch where every `collect.period`-th arrival steps."""
    renewals = Renewals(blocks, concurrency, read_at_start=read_at_start)
    return streamed(renewals, collect, None, n_updates, pace)


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

    def __init__(
        self,
        blocks: DurationBlocks,
        concurrency: int,
        *,
        read_at_start: bool,
        timeout: np.ndarray | None = None,
    ) -> None:
        self.blocks, self.n_workers, self.timeout = blocks, blocks.clock.n_workers, timeout
        self.held = open_jobs_of_each(self.n_workers, concurrency)
        # A model is handed out so many own arrivals before its gradient is back.
        self.lag = np.ones_like(self.held) if read_at_start else self.held
        self.read_at_start, active = read_at_start, len(self.held)
        mean = np.asarray(blocks.clock.mean, np.float64)[:active]
        mean = np.where(np.isfinite(mean) & (mean > 0), mean, 1.0)
        self.mean = mean if timeout is None else np.minimum(mean, timeout[:active])
        self.rate, self.reach = float(np.sum(1.0 / self.mean)), 0.0
        self.last, self.drawn = np.zeros(active), np.zeros(active, np.int64)
        # worker int[m], first job int[m] and finish times float64[m, jobs] of what was drawn
        self.pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.late: list[np.ndarray] = []  # bool[m, jobs], given up then, where there is a timeout

    def first(self, n_arrivals: int, pace: Pace | None = None, *, exact: bool = True) -> Found:
        """The first arrivals, of which there is no end."""
        self.go_on(n_arrivals, pace)
        finish, counts, _ = self.finish_times()
        opens = np.cumsum(counts) - counts
        worker = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        order = np.lexsort((worker, finish))[:n_arrivals]
        place = np.full(len(finish), n_arrivals, np.int32)  # of each finish time among arrivals
        place[order] = np.arange(n_arrivals, dtype=np.int32)
        job = (np.arange(len(finish)) - np.repeat(opens, counts)).astype(np.int32)
        start = np.empty_like(finish)
        start[1:] = finish[:-1]
        start[opens[counts > 0]] = 0.0
        most = int(self.lag.max())
        lag = most if self.lag.min() == most else np.repeat(self.lag, counts)
        source = place[np.maximum(np.arange(len(place)) - lag, 0)]
        source[job < lag] = -1
        return Found(finish[order], worker[order], job[order], start[order], source[order])

    def go_on(self, n_arrivals: int, pace: Pace | None) -> None:
        """Draws until the first `n_arrivals` of all workers are known.

        Raises:
            NoStreamError: Hardly any job is back in time, or none returns any more.
        """
        reach = max(self.reach, n_arrivals / self.rate)
        while True:
            short = np.flatnonzero(self.last <= reach)
            if len(short):
                told = None if pace is None else lambda share, last=reach: pace.drawn(share, last)
                self._draw(short, reach, told)
            complete = self.last.min()  # every arrival before this moment is known
            if complete > reach:
                self.reach = reach
                found = self._count()
                if found >= n_arrivals:
                    return
                longer = 1.05 if self.timeout is None else self._longer(found, n_arrivals)
                reach = max(min(complete, reach * 2.0), reach * longer)

    def _count(self) -> int:
        """Arrivals up to the reach."""
        within = [times <= self.reach for _, _, times in self.pieces]
        for mask, late in zip(within, self.late, strict=False):
            mask &= ~late
        return sum(map(np.count_nonzero, within))

    def _longer(self, found: int, n_arrivals: int) -> float:
        """How much further to look, where jobs are given up: as arrivals go on, at most twice."""
        drawn = [times for _, _, times in self.pieces]
        given_up = sum(
            int(np.count_nonzero(late & (times <= self.reach)))
            for times, late in zip(drawn, self.late, strict=True)
        )
        if given_up > _LATE * (found + self.n_workers) + _LATE_ANYHOW:
            raise NoStreamError
        if not np.isfinite(self.last).any():  # everybody's last job is lost
            returned = sum(
                int(np.count_nonzero(np.isfinite(times) & ~late))
                for times, late in zip(drawn, self.late, strict=True)
            )
            if returned < n_arrivals:
                raise NoStreamError
        return min(2.0, 1.02 * n_arrivals / max(found, 1))

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
            durations = times
            if self.timeout is not None:
                times = np.minimum(durations, self.timeout[own, None])
            times[:, 0] += self.last[own]
            np.cumsum(times, axis=1, out=times)
            if self.timeout is not None:
                start = np.concatenate([self.last[own, None], times[:, :-1]], axis=1)
                if ((times <= start) & (start < np.inf)).any():
                    raise NoStreamError  # so short that it is lost in rounding: no order is known
                self.late.append(start + durations > times)
            self.pieces.append((own, self.drawn[own] * self.blocks.size, times))
            self.last[own] = times[:, -1]
            self.drawn[own] += count
            at += rows

    def finish_times(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Finish times up to the reach, by worker and then by job, and how many of each worker.

        And which of the jobs are given up then, where there is a timeout.
        """
        counts = np.zeros(len(self.mean), np.int64)
        within = [times <= self.reach for _, _, times in self.pieces]
        for (worker, _, _), mask in zip(self.pieces, within, strict=True):
            counts[worker] += np.count_nonzero(mask, axis=1)
        opens = np.cumsum(counts) - counts
        finish = np.empty(int(counts.sum()))
        late = None if self.timeout is None else np.empty(len(finish), bool)
        for k, ((worker, job, times), mask) in enumerate(zip(self.pieces, within, strict=True)):
            own = np.count_nonzero(mask, axis=1)
            at = np.arange(own.sum()) + np.repeat(opens[worker] + job - np.cumsum(own) + own, own)
            finish[at] = times[mask]
            if late is not None:
                late[at] = self.late[k][mask]
        return finish, counts, late

    def cancelled_jobs(self, n_arrivals: int) -> CancelledJobs:
        """None."""
        return none_cancelled()

    def open_jobs(self, found: Found, after: np.ndarray) -> OpenJobs:
        """The jobs not delivered after some arrivals."""
        held = self.held
        by_worker = np.argsort(found.worker, kind="stable")
        counts = np.bincount(found.worker, minlength=len(held))
        worker = np.repeat(np.arange(len(held), dtype=np.int32), held)
        turn = np.arange(len(worker)) - np.repeat(np.cumsum(held) - held, held)  # in its queue
        count, end = counts[worker], np.cumsum(counts)[worker]
        # The job in turn was handed out `ago` own arrivals ago, the last being 1 ago.
        ago = held[worker] - turn
        if self.read_at_start:
            ago[turn == 0] = 1
        read = np.where(ago <= count, after[by_worker[np.maximum(end - ago, 0)]], 0)
        last = np.where(count > 0, found.time[by_worker[np.maximum(end - 1, 0)]], 0.0)
        return OpenJobs(worker, read.astype(np.int32), np.where(turn > 0, np.nan, last))
