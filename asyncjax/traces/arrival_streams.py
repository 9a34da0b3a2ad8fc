"""Traces of streams: where who arrives when does not depend on what the server does with it.

A rule that answers the deliverer at once, and stops no job, changes no time. So all arrivals can be
found first, in whole arrays, and judged afterwards. With s(e) the arrival in whose answer the job
of arrival e read its model, and a(e) the version that arrival e leaves behind,

    read_version(e) = a(s(e)),    0 for the jobs of time 0

A rule that steps at every b-th arrival is a formula, a(e) = floor((e + 1) / b); others are asked
one arrival at a time, in order, with no heap and no queue in between.

With `to_deliverer`, where no job is held back or given up, a worker begins its next job when it has
done one: it finishes jobs at the cumulative sums of its durations, so

    arrivals     = all finish times, sorted by (time, worker),
    s(e)         = the same worker's previous arrival (none for its first job),

millions of arrivals a second. Nothing here is kept a worker but a few numbers, so that a million
workers are as welcome as ten. `vectorized` has the streams of jobs that are held back or given up.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from asyncjax.traces.collection import Arrivals, Collection, Collector, Verdict, settled
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.job_checks import by_worker
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks

_CHUNK = 16_384  # arrivals judged between two words on the progress
_AT_FIRST = 1.1  # more arrivals than updates are looked for
_SPARE = 1.02  # more durations than expected are drawn
# Jobs given up, for each arrival and worker and besides, from which on the event loop takes over.
_LATE, _LATE_ANYHOW = 4, 4_096


class NoStreamError(Exception):
    """The arrivals are not what a stream is made for: the event loop has to find them."""


class Found(NamedTuple):
    """The first E arrivals, in order; no versions yet."""

    time: np.ndarray  # float64[E]
    worker: np.ndarray  # int32[E]
    job: np.ndarray  # int32[E]
    start: np.ndarray  # float64[E]
    source: np.ndarray  # int32[E], the arrival in whose answer its model was read, -1 for time 0


class Stream(Protocol):
    """All arrivals there will be, found in order, as many as asked for; there is no end."""

    n_workers: int

    def first(self, n_arrivals: int, pace: Pace | None = None) -> Found:
        """The first arrivals; may be asked again, for more."""
        ...

    def open_jobs(self, found: Found, after: np.ndarray) -> OpenJobs:
        """The jobs not delivered after them; `after` int32[E], versions that arrivals hand out."""
        ...

    def cancelled_jobs(self, n_arrivals: int) -> CancelledJobs:
        """The jobs that were given up before the last of so many arrivals."""
        ...


def streamed(
    stream: Stream,
    collect: Collection,
    run: Collector | None,
    n_updates: int,
    pace: Pace | None = None,
) -> EventTrace:
    """The trace of a stream.

    A `run` of the rule judges the arrivals; None: every `collect.period`-th makes a step.
    """
    if run is None:
        period = np.int32(collect.period or 1)
        found = stream.first(n_updates * int(period), pace)
        place = np.arange(len(found.time), dtype=np.int32)
        after = (place + 1) // period
        version, used, steps = place // period, np.ones(len(place), bool), after * period
        steps = steps == place + 1
        handed = after
    else:
        found, handed, verdict = _judged(stream, collect, run, n_updates, pace)
        used, steps = verdict != Verdict.DROP, verdict == Verdict.STEP
        version = (np.cumsum(steps) - steps).astype(np.int32)
    read = np.where(found.source < 0, np.int32(0), handed[found.source])
    arrivals = Arrivals(found.worker, version - read, found.time, used, steps, stream.n_workers)
    if pace is not None:
        pace.end(found.time[-1])
    return EventTrace(
        time=found.time,
        worker=found.worker,
        job=found.job,
        read_version=read,
        version=version,
        start=found.start,
        n_workers=stream.n_workers,
        open_jobs=stream.open_jobs(found, handed),
        cancelled=stream.cancelled_jobs(len(read)),
        **settled(collect, arrivals),
    )


def none_cancelled() -> CancelledJobs:
    """No job was given up."""
    return CancelledJobs(np.zeros(0, np.int32), np.zeros(0), np.zeros(0))


def arrivals_before(worker: np.ndarray) -> np.ndarray:
    """For every arrival that of the same worker before it, -1 for the first; int64[E].

    Example:
        >>> arrivals_before(np.array([0, 1, 0, 0])).tolist()
        [-1, -1, 0, 2]
    """
    before = np.full(len(worker), -1)
    if not len(worker):
        return before
    order = by_worker(worker)
    same = worker[order[1:]] == worker[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def _judged(
    stream: Stream, collect: Collection, run: Collector, n_updates: int, pace: Pace | None
) -> tuple[Found, np.ndarray, np.ndarray]:
    """The arrivals up to the last update, the versions they hand out, and the verdicts."""
    receive, keeps, step = run.receive, collect.keeps_model, Verdict.STEP
    handed, verdicts, version = array("i", [0]), bytearray(), 0  # one more handed: of time 0
    hand, judge = handed.append, verdicts.append
    wanted, found = int(_AT_FIRST * n_updates) + stream.n_workers, None
    while found is None or version < n_updates:
        found = stream.first(wanted)
        for at in range(len(verdicts), len(found.time), _CHUNK):
            sources = (found.source[at : at + _CHUNK] + 1).tolist()
            for worker, source in zip(
                found.worker[at : at + _CHUNK].tolist(), sources, strict=True
            ):
                read = handed[source]
                verdict = receive(worker, version - read)
                judge(verdict)
                if verdict is step:
                    version += 1
                    hand(version)
                    if version == n_updates:
                        break
                else:
                    hand(read if keeps else version)
            if version == n_updates:
                break
            if pace is not None:
                pace.at(version, float(found.time[len(verdicts) - 1]))
        if version < n_updates and run.is_stuck_without is not None and run.is_stuck_without(set()):
            raise NoStreamError("the rule says that no step can come: the event loop tells it")
        wanted *= 2
    end = len(verdicts)
    found = Found(*(column[:end].copy() for column in found))
    return found, np.array(handed[1:], np.int32), np.frombuffer(bytes(verdicts), np.int8)


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

    def first(self, n_arrivals: int, pace: Pace | None = None) -> Found:
        """The first arrivals."""
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
