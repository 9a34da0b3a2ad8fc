"""The event loop: a heap over running jobs, for every dispatch rule, collection rule and gate.

At each arrival the server (1) takes the gradient, (2) hands out jobs, perhaps after stopping some,
(3) lets idle workers start the head of their queue. Arrivals at one instant are served in order of
worker index, each completely before the next; then jobs whose time is up, by worker index. An
arrival costs O(log n): only the workers named in the reaction are looked at, and those that a gate
held back when the slowest worker has delivered. After some thousand events without an update the
loop asks its `Patience` whether one may still come.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from asyncjax.traces.collection import Arrivals, Collection, Collector, Verdict, settled
from asyncjax.traces.dispatch import Answer, Gate
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs, StalledError
from asyncjax.traces.host import Finish
from asyncjax.traces.patience import Moment, Patience
from asyncjax.traces.progress import Pace

# Events (arrivals and given-up jobs) without an update before the loop looks around, and more a
# worker; how much more it waits for the next look, at most; and between two words on its progress.
_LOOK, _LOOK_A_WORKER, _NEXT_LOOK, _PIECE = 4_096, 16, 65_536, 512
_IDLE = -1


class _Columns(NamedTuple):
    """What is written down at every arrival, an entry each."""

    time: list[Any]  # float
    worker: list[Any]  # int
    job: list[Any]  # int
    read_version: list[Any]  # int
    version: list[Any]  # int
    start: list[Any]  # float
    verdict: list[Any]  # Verdict


class _Looks:
    """When the loop looks around next: the number of silent events, and what it was last time."""

    def __init__(self, n_workers: int) -> None:
        self.begin = self.threshold = _LOOK + _LOOK_A_WORKER * n_workers
        self.waited_from = self.count = self.given_up = 0

    def is_due(self, silent: int, waited_from: int) -> bool:
        """Whether so many events without an update are a reason to look around."""
        if waited_from != self.waited_from:  # there was an update
            self.waited_from, self.threshold = waited_from, self.begin
        if silent < self.threshold:
            return False
        self.threshold = silent + min(silent, _NEXT_LOOK)
        return True


class EventLoop:
    """One run of the server; `run` makes the trace.

    Per worker it keeps the running job in plain lists (`serial` is `_IDLE` when there is none) and
    the waiting jobs in a queue of read versions. An entry of the heap counts only while its serial
    is the worker's: stopped jobs stay behind. Entries are (time, code, serial), where code is the
    worker whose job arrives, or n + the worker whose job is given up; a job that never returns and
    is never given up has none.
    """

    def __init__(
        self,
        finishes: list[Finish],
        answer: Answer,
        collect: Collection,
        collector: Collector,
        gate: Gate | None,
        read_at_start: bool,
        patience: Patience,
    ) -> None:
        n = len(finishes)
        self.n_workers, self.answer, self.collect = n, answer, collect
        self.receive, self.tell_given_up = collector.receive, collector.given_up
        self.finishes, self.timeout, self.patience = finishes, patience.timeout, patience
        self.bound = None if gate is None or gate.bound == float("inf") else gate.bound
        self.read_at_start = read_at_start
        self.version, self.next_serial = 0, 0
        self.serial, self.job, self.read, self.start = [_IDLE] * n, [-1] * n, [0] * n, [0.0] * n
        self.queues: list[deque[int]] = [deque() for _ in range(n)]
        self.heap: list[tuple[float, int, int]] = []
        self.given_up = 0
        self.looks = _Looks(n)
        # (read version, worker, serial), if rules cancel
        self.stalest: list[tuple[int, int, int]] = []
        self.delivered, self.at_count, self.slowest = [0] * n, {0: n}, 0
        self.blocked: set[int] = set()
        self.cancelled: list[tuple[int, float, float]] = []
        self.columns = _Columns([], [], [], [], [], [], [])

    def run(self, initial: Sequence[int], n_updates: int, pace: Pace | None = None) -> EventTrace:
        """Serves arrivals until the server has updated `n_updates` times."""
        for worker in initial:
            self.queues[worker].append(0)
        self._start(initial, 0.0)
        heap, serials, queues, columns = self.heap, self.serial, self.queues, self.columns
        receive, answer, start, step = self.receive, self.answer, self._start, Verdict.STEP
        holds_back, cancel_from = self.collect.holds_back, self.collect.cancel_from
        keeps_model = self.collect.keeps_model
        held: list[int] = []
        count = waited_from = 0
        pause = self._look(0, 0, held, pace)
        while self.version < n_updates:
            if not heap or count + self.given_up >= pause:
                pause = self._look(count, waited_from, held, pace)
            now, worker, serial = heappop(heap)
            if worker >= self.n_workers:
                self._give_up(worker - self.n_workers, serial, now)
                continue
            if serial != serials[worker]:
                continue  # stopped by the server
            version, read = self.version, self.read[worker]
            verdict = receive(worker, version - read)
            steps = verdict is step
            row = (now, worker, self.job[worker], read, version, self.start[worker], verdict)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
            count += 1
            serials[worker] = _IDLE
            touched: Iterable[int] = (worker,)
            if self.bound is not None and self._count_delivery(worker):
                touched = {worker, *self.blocked}  # the slowest has delivered: the gate opens
            answered = [worker]
            if holds_back:
                held.append(worker)
                answered, held = (held, []) if steps else ([], held)
            if steps:
                version = self.version = version + 1
                waited_from = count + self.given_up
                if cancel_from is not None:
                    answered += self._cancel(cancel_from, now)
            if answered:
                handed, model = answer(answered), version if steps or not keeps_model else read
                for other in handed:
                    queues[other].append(model)
                touched = {*handed, *answered, *touched}
            start(touched, now)
        return self._trace()

    def _start(self, workers: Iterable[int], now: float) -> None:
        """Lets workers that are idle, if the gate lets them, start the head of their queue."""
        for worker in workers:
            if self.serial[worker] != _IDLE or not self.queues[worker]:
                continue
            if self.bound is not None:
                if self.delivered[worker] - self.slowest > self.bound:
                    self.blocked.add(worker)
                    continue
                self.blocked.discard(worker)
            handed = self.queues[worker].popleft()
            self.read[worker] = self.version if self.read_at_start else handed
            self.job[worker] += 1
            self.start[worker] = now
            serial = self.serial[worker] = self.next_serial
            self.next_serial += 1
            finish, deadline = self.finishes[worker](now), now + self.timeout[worker]
            if finish <= deadline and finish != inf:
                heappush(self.heap, (finish, worker, serial))
            elif deadline != inf:
                heappush(self.heap, (deadline, self.n_workers + worker, serial))
            if self.collect.cancel_from is not None:
                heappush(self.stalest, (self.read[worker], worker, serial))

    def _give_up(self, worker: int, serial: int, now: float) -> None:
        """Stops a job whose time is up, tells the rule, and hands out a job in its place."""
        if self.serial[worker] != serial:
            return
        self.given_up += 1
        self.serial[worker] = _IDLE
        self.cancelled.append((worker, self.start[worker], now))
        if self.tell_given_up is not None:
            self.tell_given_up(worker)
        model = self.read[worker] if self.collect.keeps_model else self.version
        handed = self.answer([worker])
        for other in handed:
            self.queues[other].append(model)
        self._start({worker, *handed}, now)

    def _count_delivery(self, worker: int) -> bool:
        """Counts a delivery; whether the slowest worker's count has risen."""
        count = self.delivered[worker]
        self.delivered[worker] = count + 1
        self.at_count[count] -= 1
        self.at_count[count + 1] = self.at_count.get(count + 1, 0) + 1
        if count == self.slowest and not self.at_count[count]:
            del self.at_count[count]
            self.slowest += 1
            return True
        return False

    def _cancel(self, threshold: float, now: float) -> list[int]:
        """Stops running jobs at least this stale; returns their workers by index."""
        stopped = []
        while self.stalest and self.version - self.stalest[0][0] >= threshold:
            _, worker, serial = heappop(self.stalest)
            if self.serial[worker] == serial:
                self.serial[worker] = _IDLE
                stopped.append(worker)
        self.cancelled += [(worker, self.start[worker], now) for worker in sorted(stopped)]
        return sorted(stopped)

    def _look(self, count: int, waited_from: int, held: list[int], pace: Pace | None) -> int:
        """Tells how far the run is, and ends it if it is stuck; the number of the next look."""
        looks, events = self.looks, count + self.given_up
        silent, is_first = events - waited_from, not events
        if not self.heap:
            raise StalledError(self._stuck(count, None), self._trace_so_far())
        if pace is not None and count:
            pace.at(self.version, self.columns.time[-1])
        if is_first or looks.is_due(silent, waited_from):
            if count != looks.count:
                looks.count, looks.given_up = count, self.given_up
            why = self.patience.why_stuck(self._moment(silent, held), looks_ahead=not is_first)
            if why is not None:
                raise StalledError(self._stuck(count, why), self._trace_so_far())
        after = waited_from + looks.threshold
        return after if pace is None else min(after, events + _PIECE)

    def _moment(self, silent: int, held: list[int]) -> Moment:
        """What the patience has to know."""
        n, coming, late = self.n_workers, set(), {}
        for _, code, serial in self.heap:
            if self.serial[code % n] == serial:
                if code < n:
                    coming.add(code)
                else:
                    late[code - n] = self.job[code - n]
        running = {worker for worker, serial in enumerate(self.serial) if serial != _IDLE}
        idle = {worker for worker in range(n) if worker not in running and not self.queues[worker]}
        return Moment(
            now=self.columns.time[-1] if self.columns.time else 0.0,
            coming=coming,
            late=late,
            lost=running - coming - late.keys(),
            jobless=idle - {*held},
            silent=silent,
            given_up=self.given_up - self.looks.given_up,
        )

    def _stuck(self, count: int, why: str | None) -> str:
        now = self.columns.time[-1] if count else 0.0
        lost = [worker for worker, serial in enumerate(self.serial) if serial != _IDLE]
        if why is not None:
            pass
        elif lost:
            shown = ", ".join(map(str, lost[:5])) + (", ..." if len(lost) > 5 else "")
            why = f"no job will return any more; jobs of {len(lost)} workers ({shown}) are lost"
            why += f", and the gate holds back {len(self.blocked)}" if self.blocked else ""
        elif self.blocked:
            why = f"no job is running; the gate holds back {len(self.blocked)} workers for ever"
        else:
            why = "no job is open"
        return (
            f"the trace cannot go on after arrival {count} at time {now:g}, update {self.version}:"
            f" {why} ({sum(map(len, self.queues))} jobs wait in queues)"
        )

    def _trace_so_far(self) -> EventTrace | None:
        """The arrivals up to the last update, None if there was none."""
        if not self.version:
            return None
        verdicts = self.columns.verdict
        end = len(verdicts) - verdicts[::-1].index(Verdict.STEP)
        self.columns = _Columns._make(column[:end] for column in self.columns)
        return self._trace()

    def _open_jobs(self) -> OpenJobs:
        jobs: list[tuple[int, int, float]] = []
        for worker, queue in enumerate(self.queues):
            if self.serial[worker] != _IDLE:
                jobs.append((worker, self.read[worker], self.start[worker]))
            jobs += [(worker, handed, np.nan) for handed in queue]
        return OpenJobs(*_columns(jobs, (np.int32, np.int32, np.float64)))

    def _trace(self) -> EventTrace:
        columns, n = self.columns, self.n_workers
        time, worker = np.array(columns.time, np.float64), np.array(columns.worker, np.int32)
        read = np.array(columns.read_version, np.int32)
        version = np.array(columns.version, np.int32)
        verdict = np.frombuffer(bytes(columns.verdict), np.int8)
        used, steps = verdict != Verdict.DROP, verdict == Verdict.STEP
        return EventTrace(
            time=time,
            worker=worker,
            job=np.array(columns.job, np.int32),
            read_version=read,
            version=version,
            start=np.array(columns.start, np.float64),
            n_workers=n,
            open_jobs=self._open_jobs(),
            cancelled=CancelledJobs(*_columns(self.cancelled, (np.int32, np.float64, np.float64))),
            **settled(self.collect, Arrivals(worker, version - read, time, used, steps, n)),
        )


def _columns(rows: Sequence[tuple], dtypes: Sequence[DTypeLike]) -> list[np.ndarray]:
    columns = list(zip(*rows, strict=True)) or [()] * len(dtypes)
    return [np.array(column, dtype) for column, dtype in zip(columns, dtypes, strict=True)]
