"""Arrivals in whole arrays, without an event loop, where jobs are held back, given up or lost.

With `to_deliverer`, what the server does changes no time, and the trace is made of a stream
(`arrival_streams`) also in two cases in which the jobs of a worker do not simply follow each other.

Behind a gate `lead_at_most(s)` (stale synchronous parallel), let F(i, k) be when worker i delivers
its k-th job, k = 1, 2, ..., and S(m) when all have delivered m jobs, S = 0 for m <= 0. The job
after the k-th begins

    start(i, k) = max(F(i, k), S(k - s)),    F(i, k + 1) = start(i, k) + duration,
    S(m) = max over i of F(i, m)

which depends on no order of computing: all jobs that are done before a moment are found in turns,
one job of every worker in a turn. That pays from some dozen workers on.

Where jobs are given up or lost, a worker begins its next job when the one before is done or given
up, so that both are found as in `arrival_streams`, with a job's duration cut at the timeout. At one
instant arrivals come first, then jobs that are given up, each by worker. The model of a job that
begins in place of one given up is that of the last arrival before: where a rule's workers keep
their model, it is that of the job that was given up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.traces.arrival_streams import (
    Found,
    NoStreamError,
    Renewals,
    Stream,
    arrivals_before,
    none_cancelled,
    streamed,
)
from asyncjax.traces.collection import Collection, Collector
from asyncjax.traces.dispatch import Gate
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks

GATED_FROM = 64  # workers, from which on a gated stream is faster than the event loop
# Events without an update, and more a worker, that the event loop lets pass without a question.
_SILENT, _SILENT_A_WORKER = 4_096, 16
_SLACK = 1e-9  # of shortest times, which are rounded like any
_SPARE = 1.02  # more than expected is looked for
_MOST = 2**30  # jobs of lead: none has more


class Limits(NamedTuple):
    """What may hold a job back, or end it."""

    gate: Gate | None
    timeout: list[float]  # a worker, time units, inf for never
    least: np.ndarray  # float64[n], time units, the shortest jobs


def trace_of_stream(
    blocks: DurationBlocks,
    collect: tuple[Collection, Collector],
    n_updates: int,
    limits: Limits,
    concurrency: int | None,
    *,
    read_at_start: bool,
    pace: Pace | None = None,
) -> EventTrace | None:
    """The trace of `to_deliverer`, if it can be made of a stream.

    `collect` with a run of it; nobody is stopped, the server takes no time and no power changes. A
    rule that does not say what it is stuck without is left to the event loop, which calls it stuck
    after so many arrivals.

    Raises:
        NoStreamError: It cannot, as was seen too late: the run of the rule is used up.
    """
    rule, run = collect
    stream = _stream(blocks, rule, run, limits, concurrency, read_at_start)
    if stream is None:
        return None
    is_counted = rule.period is not None and not rule.keeps_model
    trace = streamed(stream, rule, None if is_counted else run, n_updates, pace)
    most = _SILENT + _SILENT_A_WORKER * stream.n_workers
    if isinstance(stream, GivenUp) and stream.longest_silence(trace.steps) >= most:
        raise NoStreamError
    return trace


def _stream(
    blocks: DurationBlocks,
    rule: Collection,
    run: Collector,
    limits: Limits,
    concurrency: int | None,
    read_at_start: bool,
) -> Stream | None:
    """The stream of all arrivals, if there is one."""
    n, stuck_without = blocks.clock.n_workers, run.is_stuck_without
    if stuck_without is None or rule.cancel_from is not None or rule.holds_back:
        return None
    if concurrency is not None and concurrency < n and stuck_without(set(range(concurrency, n))):
        return None
    is_full, timeout = concurrency in (None, n), np.asarray(limits.timeout)
    if blocks.clock.loss is not None or timeout.min() < np.inf:  # a job may be lost or given up
        is_heard = run.given_up is not None or (timeout < limits.least * (1.0 - _SLACK)).any()
        if limits.gate is not None or not is_full or is_heard:
            return None
        may_be_lost = timeout.max() == np.inf and blocks.clock.loss is not None
        if may_be_lost and stuck_without(set(range(1, n))):
            return None
        return GivenUp(blocks, timeout, keeps_model=rule.keeps_model)
    if limits.gate is None:
        return Renewals(blocks, concurrency or n, read_at_start=read_at_start)
    if not is_full or n < GATED_FROM:
        return None
    return Gated(blocks, limits.gate.bound, read_at_start=read_at_start)


class Gated:
    """One run behind a gate; `lead` is the bound in whole jobs."""

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

    def first(self, n_arrivals: int, pace: Pace | None = None) -> Found:
        """The first arrivals."""
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


class NextDurations:
    """The next durations of any workers, in whole arrays; every worker counts its own jobs.

    Who has used up a block draws along with all who soon will; two blocks of each are held.

    Attributes:
        taken: int32[n], jobs that have begun.

    Example:
        >>> from asyncjax import clocks
        >>> following = NextDurations(DurationBlocks(clocks.constant([1.0, 2.0]), None))
        >>> following.take(np.array([1, 0])), following.taken
        (array([2., 1.]), array([1, 1], dtype=int32))
    """

    def __init__(self, blocks: DurationBlocks) -> None:
        self._blocks, n, self._size = blocks, blocks.clock.n_workers, blocks.size
        self.taken, self._end = np.zeros(n, np.int32), np.zeros(n, np.int32)  # end of what is held
        self._held = np.empty((n, 2, self._size))
        self._refill(np.arange(n))

    def take(self, workers: np.ndarray) -> np.ndarray:
        """Durations of the next job of each of some workers, float64[m]; nobody is named twice."""
        job = self.taken[workers]
        if (job == self._end[workers]).any():
            self._refill(np.flatnonzero(self.taken > self._end - self._size // 2))
        block, place = np.divmod(job, self._size)
        self.taken[workers] += 1
        return self._held[workers, block % 2, place]

    def _refill(self, workers: np.ndarray) -> None:
        """Draws the next block of some workers, of each of whom one at most is not used up."""
        block = self._end[workers] // self._size
        self._held[workers, block % 2] = self._blocks.draw(workers, block)
        self._end[workers] += self._size


class _Events(NamedTuple):
    """Arrivals and jobs given up, in order."""

    worker: np.ndarray  # int32[V]
    start: np.ndarray  # float64[V]
    time: np.ndarray  # float64[V]
    late: np.ndarray  # bool[V], given up
    source: np.ndarray  # int32[V], the arrival whose model the worker's next job gets, or -1
    place: np.ndarray  # int64[E], of the arrivals


class GivenUp:
    """One run whose jobs are given up; `timeout` float64[n], time units, inf for never."""

    def __init__(self, blocks: DurationBlocks, timeout: np.ndarray, *, keeps_model: bool) -> None:
        self.n_workers = n = blocks.clock.n_workers
        self.renewals = Renewals(blocks, n, read_at_start=False, timeout=timeout)
        self.keeps_model, self.events = keeps_model, _Events(*(np.zeros(0) for _ in range(6)))

    def first(self, n_arrivals: int, pace: Pace | None = None) -> Found:
        """The first arrivals.

        Raises:
            NoStreamError: There are too few of them.
        """
        self.renewals.go_on(n_arrivals, pace)
        finish, counts, late = self.renewals.finish_times()
        assert late is not None  # there is a timeout
        opens = np.cumsum(counts) - counts
        worker = np.repeat(np.arange(self.n_workers, dtype=np.int32), counts)
        order = np.lexsort((worker, late, finish))
        place = np.flatnonzero(~late[order])[:n_arrivals]
        order = order[: place[-1] + 1]
        start = np.empty_like(finish)
        start[1:] = finish[:-1]
        start[opens[counts > 0]] = 0.0
        handed = np.full(len(finish), -1, np.int32)  # the arrival whose model comes next
        handed[order] = np.cumsum(~late[order], dtype=np.int32) - 1
        number = np.arange(len(finish)) - np.repeat(opens, counts)
        if self.keeps_model:
            own = np.maximum.accumulate(np.where(late, -1, np.arange(len(late))))
            handed = np.where(own >= np.repeat(opens, counts), handed[own], np.int32(-1))
        source = np.empty_like(handed)
        source[1:] = handed[:-1]
        source[opens[counts > 0]] = -1
        self.events = _Events(
            worker[order], start[order], finish[order], late[order], handed[order], place
        )
        job = order[place]
        return Found(
            finish[job], worker[job], number[job].astype(np.int32), start[job], source[job]
        )

    def open_jobs(self, found: Found, after: np.ndarray) -> OpenJobs:
        """The jobs not delivered after some arrivals: one of each worker, lost or not."""
        end = int(self.events.place[len(found.time) - 1]) + 1
        last = np.full(self.n_workers, -1)
        last[self.events.worker[:end]] = np.arange(end)  # a later one replaces an earlier one
        source = np.where(last < 0, -1, self.events.source[last])
        read = np.where(source < 0, 0, after[source]).astype(np.int32)
        start = np.where(last < 0, 0.0, self.events.time[last])
        return OpenJobs(np.arange(self.n_workers, dtype=np.int32), read, start)

    def cancelled_jobs(self, n_arrivals: int) -> CancelledJobs:
        """The jobs that were given up before the last of so many arrivals."""
        end = int(self.events.place[n_arrivals - 1]) + 1
        late = np.flatnonzero(self.events.late[:end])
        return CancelledJobs(*(column[late] for column in self.events[:3]))

    def longest_silence(self, steps: np.ndarray) -> int:
        """Most arrivals and jobs given up until an update; `steps` bool[E]."""
        updates = self.events.place[: len(steps)][steps]
        return int(np.diff(updates, prepend=-1).max())
