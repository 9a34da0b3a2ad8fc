"""Arrivals behind a gate: stale synchronous parallel, without a heap.

With `to_deliverer` and `lead_at_most(s)`, let F(i, k) be when worker i delivers its k-th job, k =
1, 2, ..., and S(m) when all have delivered m jobs, S = 0 for m <= 0. The job after the k-th begins

    start(i, k) = max(F(i, k), S(k - s)),    F(i, k + 1) = start(i, k) + duration,
    S(m) = max over i of F(i, m)

which depends on no order of computing: all jobs that are done before a moment are found in turns,
one job of every worker in a turn.
"""

from __future__ import annotations

import numpy as np

from asyncjax.traces.arrival_streams import Found, NoStreamError, arrivals_before, none_cancelled
from asyncjax.traces.durations import NextDurations
from asyncjax.traces.event_trace import CancelledJobs, OpenJobs
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks

_SPARE = 1.02  # more than expected is looked for
_MOST = 2**30  # jobs of lead: none has more


class Gated:
    """One run; `lead` is the bound in whole jobs."""

    def __init__(self, blocks: DurationBlocks, bound: float, *, read_at_start: bool) -> None:
        n = self.n_workers = blocks.clock.n_workers
        self.lead, self.read_at_start = int(min(bound, _MOST)), read_at_start
        self.following = NextDurations(blocks)
        mean = np.asarray(blocks.clock.mean, np.float64)
        mean = np.where(np.isfinite(mean) & (mean > 0), mean, 1.0)
        self.rate, self.reach, self.arrived = float(np.sum(1.0 / mean)), 0.0, 0
        self.delivered, self.start = np.zeros(n, np.int32), np.zeros(n)
        self.finish = self.following.take(np.arange(n))  # of the running job, inf for none
        # By m: how many workers have delivered m jobs, and when the last of them did, so far.
        self.count, self.last = np.zeros(16, np.int64), np.zeros(16)
        self.slowest = 0  # S is known up to here
        self.blocked: dict[int, list[np.ndarray]] = {}  # workers, by the m whose S they wait for
        # worker, job, start and time of what has arrived
        self.pieces: list[tuple[np.ndarray, ...]] = []

    def first(self, n_arrivals: int, pace: Pace | None = None, *, exact: bool = True) -> Found:
        """The first arrivals, of which there is no end."""
        while self.arrived < n_arrivals:
            self._go_on(n_arrivals)
            if pace is not None:
                pace.drawn(self.arrived / n_arrivals, self.reach)
        worker, job, start, time = map(np.concatenate, zip(*self.pieces, strict=True))
        self.pieces = [(worker, job, start, time)]
        order = np.lexsort((worker, time))[:n_arrivals]
        worker, job, start, time = worker[order], job[order], start[order], time[order]
        source = arrivals_before(worker)
        if self.read_at_start:
            need = job - self.lead  # the job began when all had delivered so many
            waited = need > 0
            source[waited] = np.maximum(source[waited], self._opening(job)[need[waited] - 1])
        return Found(time, worker, job, start, source.astype(np.int32))

    def _opening(self, job: np.ndarray) -> np.ndarray:
        """The last arrival with each number of a job, int64[jobs]."""
        last = np.zeros(int(job.max(initial=0)) + 1, np.int64)
        last[job] = np.arange(len(job))  # a later one replaces an earlier one
        return last

    def open_jobs(self, found: Found, after: np.ndarray) -> OpenJobs:
        """The jobs not delivered after some arrivals: one of each worker."""
        worker = np.arange(self.n_workers, dtype=np.int32)
        delivered = np.bincount(found.worker, minlength=self.n_workers)
        own = np.full(self.n_workers, -1)
        own[found.worker] = np.arange(len(found.worker))
        need, opening = delivered - self.lead, self._opening(found.job)
        waits = need > delivered.min()
        opened = np.where((need > 0) & ~waits, opening[np.clip(need - 1, 0, len(opening) - 1)], -1)
        began = np.maximum(own, opened)
        source = began if self.read_at_start else own
        read = np.where(source < 0, 0, after[source]).astype(np.int32)
        start = np.where(began < 0, 0.0, found.time[began])
        return OpenJobs(worker, read, np.where(waits, np.nan, start))

    def cancelled_jobs(self, n_arrivals: int) -> CancelledJobs:
        """None."""
        return none_cancelled()

    def _go_on(self, n_arrivals: int) -> None:
        """Finds all arrivals up to a later moment, when about enough will be there."""
        missing = _SPARE * (n_arrivals - self.arrived)
        if self.arrived:  # as fast as until now, but at most twice as far
            self.reach += min(missing * self.reach / self.arrived, self.reach)
        else:
            self.reach = max(2.0 * self.reach, missing / self.rate)
        done = np.flatnonzero(self.finish <= self.reach)
        while len(done):
            done = self._turn(done)

    def _turn(self, done: np.ndarray) -> np.ndarray:
        """Lets these workers deliver; returns those whose next job is done in time, too."""
        time, job = self.finish[done], self.delivered[done]
        self.pieces.append((done.astype(np.int32), job, self.start[done], time))
        self.arrived += len(done)
        self.delivered[done], self.start[done] = job + 1, time
        before = self.slowest
        self._count(job + 1, time)
        waits = job + 1 - self.lead > self.slowest
        free = done
        if waits.any():
            held, free = done[waits], done[~waits]
            self.finish[held] = np.inf
            need = job[waits] + 1 - self.lead
            for m in np.unique(need).tolist():
                self.blocked.setdefault(m, []).append(held[need == m])
        opened = [w for m in range(before + 1, self.slowest + 1) for w in self.blocked.pop(m, [])]
        free = np.concatenate([free, *opened]) if opened else free
        need = np.maximum(self.delivered[free] - self.lead, 0)
        start = np.maximum(self.start[free], self.last[need])
        finish = start + self.following.take(free)
        if not (finish > start).all():
            raise NoStreamError  # so short that it is lost in rounding: its place is not known
        self.start[free], self.finish[free] = start, finish
        return free[finish <= self.reach]

    def _count(self, level: np.ndarray, time: np.ndarray) -> None:
        """Counts deliveries, the `level`-th ones of their workers."""
        most = int(level.max())
        if most >= len(self.count):
            wider = np.zeros(2 * most - len(self.count), np.int64)
            self.count = np.append(self.count, wider)
            self.last = np.append(self.last, wider.astype(np.float64))
        least = int(level.min())
        self.count[least : most + 1] += np.bincount(level - least)
        np.maximum.at(self.last, level, time)
        while self.slowest + 1 < len(self.count) and self.count[self.slowest + 1] == self.n_workers:
            self.slowest += 1
