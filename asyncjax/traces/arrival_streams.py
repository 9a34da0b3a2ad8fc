"""Traces of streams: where who arrives when does not depend on what the server does with it.

A rule that answers the deliverer at once (`to_deliverer`), and stops no job, changes no time. So
all arrivals can be found first, in whole arrays, and judged afterwards, millions a second. With
s(e) the arrival in whose answer the job of arrival e read its model, and a(e) the version that
arrival e leaves behind,

    read_version(e) = a(s(e)),    0 for the jobs of time 0

A rule that steps at every b-th arrival is a formula, a(e) = floor((e + 1) / b); others are asked
one arrival at a time, in order, with no heap and no queue in between.

`Renewals`: a worker begins its next job when the one before is done or given up, so it ends jobs at
the cumulative sums of its durations, cut at the timeout. Where none is given up, s(e) is the same
worker's previous arrival. At one instant arrivals come first, then jobs that are given up, each by
worker. The model of a job that begins in place of one given up is that of the last arrival before:
where a rule's workers keep their model, it is that of the job that was given up.

`Gated`: behind a gate `lead_at_most(s)` (stale synchronous parallel), let F(i, k) be when worker i
delivers its k-th job, k = 1, 2, ..., and S(m) when all have delivered m jobs, S = 0 for m <= 0. The
job after the k-th begins

    start(i, k) = max(F(i, k), S(k - s)),    F(i, k + 1) = start(i, k) + duration,
    S(m) = max over i of F(i, m)

so the k-th jobs of all workers are found at once. Nobody delivers his k-th job before all have
delivered k - s - 1: of E arrivals none is beyond job E / n + s + 1 of its worker. That pays from
some dozen workers on, and as long as s is not much more than E / n.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from asyncjax.clocks import Clock
from asyncjax.traces.collection import Arrivals, Verdict, settled
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs, by_worker
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks
from asyncjax.traces.server import Rules

GATED_FROM = 64  # workers, from which on a gated stream is faster than the event loop
# Events without an update, and more a worker, that the event loop lets pass without a question.
_SILENT, _SILENT_A_WORKER = 4_096, 16
# Jobs given up, for each arrival and worker and besides, from which on the event loop takes over.
_LATE, _LATE_ANYHOW = 4, 4_096
_TOGETHER = 128  # workers with powers, from which on a job of each is found in whole arrays
_CHUNK = 16_384  # arrivals judged between two words on the progress
_AT_FIRST = 1.1  # more arrivals than updates are looked for
_SPARE = 1.02  # more than expected is drawn and looked for
_SLACK = 1e-9  # of shortest times, which are rounded like any
# Jobs of lead up to which a gated stream is worth it; or so many times the jobs of a worker.
_LEAD, _WASTE = 64, 8


class NoStreamError(Exception):
    """The arrivals are not what a stream is made for: the event loop has to find them."""


class _Found(NamedTuple):
    """The first E arrivals, in order; no versions yet."""

    time: np.ndarray  # float64[E]
    worker: np.ndarray  # int32[E]
    job: np.ndarray  # int32[E]
    start: np.ndarray  # float64[E]
    source: np.ndarray  # int32[E], the arrival in whose answer its model was read, -1 for time 0


def trace_of_stream(
    stream: Renewals | Gated, rules: Rules, n_updates: int, pace: Pace | None = None
) -> EventTrace:
    """The trace of a stream; a `NoStreamError` says too late that none makes it."""
    rule = rules.collect
    if rule.period is not None and not rule.keeps_model:
        period = np.int32(rule.period)
        found = stream.first(n_updates * int(period), pace)
        place = np.arange(len(found.time), dtype=np.int32)
        version, handed, used = place // period, (place + 1) // period, np.ones(len(place), bool)
        steps = handed * period == place + 1
    else:
        found, handed, verdict = _judged(stream, rules, n_updates, pace)
        used, steps = verdict != Verdict.DROP, verdict == Verdict.STEP
        version = (np.cumsum(steps) - steps).astype(np.int32)
    if stream.longest_silence(steps) >= _SILENT + _SILENT_A_WORKER * stream.n_workers:
        raise NoStreamError
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
        **settled(rule, arrivals),
    )


def stream_of(
    blocks: DurationBlocks,
    rules: Rules,
    n_updates: int,
    concurrency: int | None,
    timeout: list[float],
    least: np.ndarray,
) -> Renewals | Gated | None:
    """The stream of all arrivals of `to_deliverer`, if there is one; `least`: the shortest jobs.

    The server takes no time. A rule that does not say what it is stuck without
    is left to the event loop, which calls it stuck after so many arrivals.
    """
    rule, run, read_at_start = rules.collect, rules.collector, rules.read_at_start
    gate = None if rules.gate is not None and rules.gate.bound == np.inf else rules.gate
    n, needs, loses = blocks.clock.n_workers, run.is_stuck_without, not blocks.clock.returns
    is_limited, open_jobs = loses or min(timeout) < np.inf, concurrency or n
    if rule.holds_back or (blocks.clock.powers and min(timeout) < np.inf):
        return None
    if rule.period is not None and not is_limited and gate is None:
        return Renewals(blocks, open_jobs, read_at_start=read_at_start)
    if needs is None or rule.cancel_from is not None:
        return None
    if open_jobs < n and needs(set(range(open_jobs, n))):
        return None
    if is_limited:
        is_heard = run.given_up is not None or (np.asarray(timeout) < least * (1.0 - _SLACK)).any()
        may_be_stuck = loses and max(timeout) == np.inf and needs(set(range(1, n)))
        if gate is not None or open_jobs != n or is_heard or may_be_stuck:
            return None
        return Renewals(blocks, n, timeout=np.asarray(timeout), keeps_model=rule.keeps_model)
    if gate is None:
        return Renewals(blocks, open_jobs, read_at_start=read_at_start)
    if open_jobs != n or n < GATED_FROM or gate.bound > max(_LEAD, _WASTE * n_updates // n):
        return None
    return Gated(blocks, int(gate.bound), read_at_start=read_at_start)


def _judged(
    stream: Renewals | Gated, rules: Rules, n_updates: int, pace: Pace | None
) -> tuple[_Found, np.ndarray, np.ndarray]:
    """The arrivals up to the last update, the versions they hand out, and the verdicts."""
    run, keeps, step = rules.collector, rules.collect.keeps_model, Verdict.STEP
    handed, verdicts, version = array("i", [0]), bytearray(), 0  # one more handed: of time 0
    hand, judge = handed.append, verdicts.append
    wanted, found = int(_AT_FIRST * n_updates) + stream.n_workers, None
    while found is None or version < n_updates:
        found = stream.first(wanted)
        for at in range(len(verdicts), len(found.time), _CHUNK):
            workers = found.worker[at : at + _CHUNK].tolist()
            sources = (found.source[at : at + _CHUNK] + 1).tolist()
            for worker, source in zip(workers, sources, strict=True):
                read = handed[source]
                verdict = run.receive(worker, version - read)
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
    found = _Found(*(column[: len(verdicts)].copy() for column in found))
    return found, np.array(handed[1:], np.int32), np.frombuffer(bytes(verdicts), np.int8)


def _means(clock: Clock) -> np.ndarray:
    """Mean durations as far as they are known, about, float64[n]."""
    mean = np.asarray(clock.mean, np.float64)
    return np.where(np.isfinite(mean) & (mean > 0), mean, 1.0)


class _Piece(NamedTuple):
    """Consecutive jobs of some workers, as they were drawn; each begins when another ends."""

    worker: np.ndarray  # int[m]
    job: np.ndarray  # int[m], number of the first
    start: np.ndarray  # float64[m], of the first
    end: np.ndarray  # float64[m, jobs]
    late: np.ndarray | None  # bool[m, jobs], given up then; None: no job is


class _Events(NamedTuple):
    """Arrivals and jobs given up, in order."""

    worker: np.ndarray  # int32[V]
    start: np.ndarray  # float64[V]
    time: np.ndarray  # float64[V]
    late: np.ndarray  # bool[V], given up
    handed: np.ndarray  # int32[V], the arrival whose model the worker's next job gets, or -1
    place: np.ndarray  # int64[E], of the arrivals


def _check_order(start: np.ndarray, end: np.ndarray) -> None:
    """Gives jobs up that are so short that they are lost in rounding: their order is not known."""
    if ((end <= start) & (start < np.inf)).any():
        raise NoStreamError


class Renewals:
    """Arrivals of workers who begin their next job when one is done, or given up at the `timeout`.

    What is drawn is kept: more arrivals are found without drawing any time twice. With a `timeout`,
    float64[n], inf for never, every worker has one open job.
    """

    def __init__(
        self,
        blocks: DurationBlocks,
        concurrency: int,
        *,
        read_at_start: bool = False,
        timeout: np.ndarray | None = None,
        keeps_model: bool = False,
    ) -> None:
        n = self.n_workers = blocks.clock.n_workers
        self.blocks, self.timeout, self.keeps_model = blocks, timeout, keeps_model
        active = min(n, concurrency)
        # how many open jobs every worker has throughout who has any
        self.held = -((np.arange(active) - concurrency) // n)
        # A model is handed out so many own arrivals before its gradient is back.
        self.lag = np.ones_like(self.held) if read_at_start else self.held
        self.read_at_start, self.mean = read_at_start, _means(blocks.clock)[:active]
        if timeout is not None:
            self.mean = np.minimum(self.mean, timeout)
        self.rate, self.reach = float(np.sum(1.0 / self.mean)), 0.0
        self.last, self.drawn = np.zeros(active), np.zeros(active, np.int64)
        self.pieces: list[_Piece] = []
        # With powers: what is drawn, and ends; of each worker in which, its next job, its last.
        self.drawn_jobs: list[tuple[np.ndarray, np.ndarray]] = []
        self.drawn_in, self.next, self.stop = np.zeros((3, active), np.int64)
        self.events = _Events(*(np.zeros(0) for _ in _Events._fields))

    def first(self, n_arrivals: int, pace: Pace | None = None) -> _Found:
        """The first arrivals; may be asked again, for more."""
        self.reach = self._reach_of(n_arrivals, pace)
        worker, job, start, time, late = map(np.concatenate, zip(*self._ended(), strict=True))
        place = np.zeros(0, np.int64)  # of the arrivals, among those given up
        if self.timeout is None:
            order = np.lexsort((worker, time))[:n_arrivals]
        else:
            order = np.lexsort((worker, late, time))
            place = np.flatnonzero(~late[order])[:n_arrivals]
            order = order[: place[-1] + 1]
        worker, job, start, time = worker[order], job[order], start[order], time[order]
        ranked, count = by_worker(worker), np.arange(len(order), dtype=np.int32)
        lag, number = self.lag[worker[ranked]], job[ranked]
        before = ranked[np.maximum(count - lag, 0)]
        source = np.empty(len(order), np.int32)
        if self.timeout is None:
            source[ranked] = np.where(number >= lag, before, -1)
            return _Found(time, worker, job, start, source)
        late = late[order]
        handed = np.cumsum(~late, dtype=np.int32) - np.int32(1)
        if self.keeps_model:
            came = np.maximum.accumulate(np.where(late[ranked], -1, count))
            opens = np.maximum.accumulate(np.where(number == 0, count, 0))
            handed[ranked] = np.where(came >= opens, handed[ranked[came]], np.int32(-1))
        source[ranked] = np.where(number > 0, handed[before], -1)
        self.events = _Events(worker, start, time, late, handed, place)
        return _Found(time[place], worker[place], job[place], start[place], source[place])

    def _ended(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Worker, number, start and end of the jobs that end up to the reach, and if given up."""
        for worker, first, start, ends, late in self.pieces:
            within = ends <= self.reach
            count = np.count_nonzero(within, axis=1)
            opens, end = np.cumsum(count) - count, ends[within]
            begin = np.empty_like(end)
            begin[1:] = end[:-1]
            begin[opens[count > 0]] = start[count > 0]
            job = np.arange(len(end)) - np.repeat(opens - first, count)
            who = np.repeat(worker.astype(np.int32), count)
            is_late = np.zeros(0, bool) if late is None else late[within]
            yield who, job.astype(np.int32), begin, end, is_late

    def _reach_of(self, n_arrivals: int, pace: Pace | None) -> float:
        """A time by which the first `n_arrivals` of all workers have come, and are drawn."""
        reach = max(self.reach, n_arrivals / self.rate)
        if self.blocks.clock.powers and not self.reach:
            everybody = np.arange(len(self.last))
            expected = np.sum(self.blocks.work(everybody, self.last, reach) / self.mean)
            reach *= min(2.0, n_arrivals / max(float(expected), 1.0))
        while True:
            short = np.flatnonzero(self.last <= reach)
            if self.drawn_jobs:
                self._find(short, reach)
                short = short[self.last[short] <= reach]
            if len(short):
                self._draw(short, reach, pace)
            complete = self.last.min()  # every arrival before this moment is known
            if complete <= reach:
                continue
            given_up = arrived = returned = 0
            for piece in self.pieces:
                within = piece.end <= reach
                arrived += int(np.count_nonzero(within))
                if piece.late is not None:
                    given_up += int(np.count_nonzero(within & piece.late))
                    returned += int(np.count_nonzero(np.isfinite(piece.end) & ~piece.late))
            arrived -= given_up
            if arrived >= n_arrivals:
                return reach
            all_lost = not np.isfinite(self.last).any() and returned < n_arrivals
            if all_lost or given_up > _LATE * (arrived + self.n_workers) + _LATE_ANYHOW:
                raise NoStreamError  # hardly any job is back in time, or none returns any more
            longer = min(2.0, _SPARE * n_arrivals / max(arrived, 1))
            reach = max(min(complete, reach * 2.0), reach * longer)

    def _draw(self, short: np.ndarray, reach: float, pace: Pace | None) -> None:
        """Draws on for some workers, about until `reach`."""
        told = None if pace is None else lambda share: pace.drawn(share, reach)
        left = self.blocks.work(short, self.last[short], reach) / self.mean[short]
        left /= self.blocks.size
        wanted = np.maximum(1, np.ceil(_SPARE * left).astype(np.int64))
        by_wanted = np.argsort(wanted, kind="stable")  # equally many blocks at once
        short, wanted = short[by_wanted], wanted[by_wanted]
        opens = np.cumsum(wanted) - wanted
        numbers = np.repeat(self.drawn[short] - opens, wanted) + np.arange(wanted.sum())
        drawn = self.blocks.draw(np.repeat(short, wanted), numbers, told)
        if self.blocks.clock.powers:
            self.drawn_in[short], self.next[short] = len(self.drawn_jobs), opens * self.blocks.size
            self.stop[short] = (opens + wanted) * self.blocks.size
            drawn = drawn.reshape(-1, *drawn.shape[2:])
            self.drawn_jobs.append((drawn, np.full(len(drawn), np.inf)))
            drawn = self.drawn_jobs[-1][1].reshape(-1, self.blocks.size)  # until they are found
        for rows in np.split(np.arange(len(short)), np.flatnonzero(np.diff(wanted)) + 1):
            worker, count, at = short[rows], int(wanted[rows[0]]), opens[rows[0]]
            shape = len(rows), count * self.blocks.size
            durations = drawn[at : at + len(rows) * count].reshape(shape)
            begin, ends, late = self.last[worker], durations, None
            job = self.drawn[worker] * self.blocks.size
            self.drawn[worker] += count
            if self.blocks.clock.powers:
                late = None if self.timeout is None else np.zeros(shape, bool)
                self.pieces.append(_Piece(worker, job, begin, ends, late))
                continue
            if self.timeout is not None:
                ends = np.minimum(durations, self.timeout[worker, None])
            ends[:, 0] += begin
            np.cumsum(ends, axis=1, out=ends)
            if self.timeout is not None:
                start = np.concatenate([begin[:, None], ends[:, :-1]], axis=1)
                _check_order(start, ends)
                late = start + durations > ends
            self.pieces.append(_Piece(worker, job, begin, ends, late))
            self.last[worker] = ends[:, -1]

    def _find(self, workers: np.ndarray, reach: float) -> None:
        """Ends of jobs that were drawn of workers with powers, up to the first after the reach."""
        for batch in np.unique(self.drawn_in[workers]):
            drawn, ends = self.drawn_jobs[batch]
            active = workers[self.drawn_in[workers] == batch]
            active = active[self.next[active] < self.stop[active]]
            while len(active) > _TOGETHER:  # a job of each
                now, at = self.last[active], self.next[active]
                ends[at] = self.last[active] = now = self.blocks.ends(now, drawn[at], active)
                self.next[active] = at + 1
                active = active[(now <= reach) & (at + 1 < self.stop[active])]
            for worker in active.tolist():
                at, jobs = self.next[worker], drawn[self.next[worker] : self.stop[worker]].tolist()
                ended = self.blocks.in_turn(worker, float(self.last[worker]), jobs, reach)
                ends[at : at + len(ended)], self.last[worker] = ended, ended[-1]
                self.next[worker] = at + len(ended)

    def open_jobs(self, found: _Found, after: np.ndarray) -> OpenJobs:
        """The jobs not delivered after them; `after` int32[E], versions that arrivals hand out."""
        ended, time, handed = found.worker, found.time, None
        if self.timeout is not None:
            end = int(self.events.place[len(time) - 1]) + 1
            ended, _, time, _, handed, _ = (column[:end] for column in self.events)
        held, ranked = self.held, by_worker(ended)
        counts = np.bincount(ended, minlength=len(held))
        worker = np.repeat(np.arange(len(held), dtype=np.int32), held)
        turn = np.arange(len(worker)) - np.repeat(np.cumsum(held) - held, held)  # in its queue
        count, end = counts[worker], np.cumsum(counts)[worker]
        # The job in turn was handed out `ago` own arrivals ago, the last being 1 ago.
        ago = held[worker] - turn
        if self.read_at_start:
            ago[turn == 0] = 1
        source = ranked[np.maximum(end - ago, 0)]
        source = source if handed is None else handed[source]
        read = np.where((ago <= count) & (source >= 0), after[source], 0)
        last = np.where(count > 0, time[ranked[np.maximum(end - 1, 0)]], 0.0)
        return OpenJobs(worker, read.astype(np.int32), np.where(turn > 0, np.nan, last))

    def cancelled_jobs(self, n_arrivals: int) -> CancelledJobs:
        """The jobs that were given up before the last of so many arrivals."""
        if self.timeout is None:
            return _NONE_CANCELLED
        late = np.flatnonzero(self.events.late[: self.events.place[n_arrivals - 1] + 1])
        return CancelledJobs(*(column[late] for column in self.events[:3]))

    def longest_silence(self, steps: np.ndarray) -> int:
        """Most arrivals and jobs given up until an update; `steps` bool[E]. 0: none is given up."""
        if self.timeout is None:
            return 0
        updates = self.events.place[: len(steps)][steps]
        return int(np.diff(updates, prepend=-1).max())


_NONE_CANCELLED = CancelledJobs(np.zeros(0, np.int32), np.zeros(0), np.zeros(0))


class Gated:
    """Arrivals behind a gate; no worker leads by more than `lead` jobs."""

    def __init__(self, blocks: DurationBlocks, lead: int, *, read_at_start: bool) -> None:
        self.n_workers, self.lead = blocks.clock.n_workers, lead
        self.read_at_start, self.durations = read_at_start, blocks.by_job()
        self.start = [np.zeros(self.n_workers)]  # of the first, second, ... job of every worker
        self.ends = blocks.ends
        self.finish = [self.ends(0.0, next(self.durations))]

    def first(self, n_arrivals: int, pace: Pace | None = None) -> _Found:
        """The first arrivals; may be asked again, for more."""
        jobs, n = n_arrivals // self.n_workers + self.lead + 2, self.n_workers
        for k in range(len(self.finish), jobs):
            start = self.finish[-1]
            if k > self.lead:  # all have delivered k - lead jobs
                start = np.maximum(start, self.finish[k - self.lead - 1].max())
            finish = self.ends(start, next(self.durations))
            _check_order(start, finish)
            self.start.append(start)
            self.finish.append(finish)
            if pace is not None:
                pace.drawn(k / jobs, float(finish.max()))
        time, start = np.concatenate(self.finish), np.concatenate(self.start)
        worker = np.tile(np.arange(n, dtype=np.int32), len(self.finish))
        order = np.lexsort((worker, time))[:n_arrivals]
        worker, job = worker[order], (order // n).astype(np.int32)
        ranked, source = by_worker(worker), np.full(len(order), -1)
        later = ranked[job[ranked] > 0]
        source[later] = ranked[:-1][job[ranked[1:]] > 0]
        if self.read_at_start:
            need = job - self.lead  # the job began when all had delivered so many
            waited = need > 0
            source[waited] = np.maximum(source[waited], self._opening(job)[need[waited] - 1])
        return _Found(time[order], worker, job, start[order], source.astype(np.int32))

    def _opening(self, job: np.ndarray) -> np.ndarray:
        """The last arrival with each number of a job, int64[jobs]."""
        last = np.zeros(int(job.max(initial=0)) + 1, np.int64)
        last[job] = np.arange(len(job))  # a later one replaces an earlier one
        return last

    def open_jobs(self, found: _Found, after: np.ndarray) -> OpenJobs:
        """The jobs not delivered after some arrivals: one of each worker."""
        worker = np.arange(self.n_workers, dtype=np.int32)
        delivered = np.bincount(found.worker, minlength=self.n_workers)
        last = np.full(self.n_workers, -1)
        last[found.worker] = np.arange(len(found.worker))
        need, opening = delivered - self.lead, self._opening(found.job)
        waits = need > delivered.min()
        opened = np.where((need > 0) & ~waits, opening[np.clip(need - 1, 0, len(opening) - 1)], -1)
        began = np.maximum(last, opened)
        source = began if self.read_at_start else last
        read = np.where(source < 0, 0, after[source]).astype(np.int32)
        start = np.where(began < 0, 0.0, found.time[began])
        return OpenJobs(worker, read, np.where(waits, np.nan, start))

    def cancelled_jobs(self, n_arrivals: int) -> CancelledJobs:
        """None."""
        return _NONE_CANCELLED

    def longest_silence(self, steps: np.ndarray) -> int:
        """0: no job is given up."""
        return 0
