"""`Server`: the asynchronous server as a state machine that is told what happened.

It knows versions, jobs, queues and rules, and no time but what it is told; so what drives it may be
a heap over simulated finish times (`event_loop`) or real workers. At an arrival it (1) takes the
gradient and judges it, and, once the new model is there if it steps, (2) hands out jobs, perhaps
after stopping some, and (3) lets idle workers start the head of their queue. An arrival costs
O(log n): only the workers named in the reaction are looked at, and those that a gate held back when
the slowest worker has delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from asyncjax.checks import real
from asyncjax.traces.collection import Arrivals, Collection, Collector, Verdict, settled
from asyncjax.traces.dispatch import Answer, Gate
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs

IDLE, TAKEN = -1, -2  # serials of a worker without a job: it may start one; its place is not free


class Service(NamedTuple):
    """How long the server takes, time units: what arrives meanwhile waits, first in, first out.

    A job that is handed out in answer to an arrival starts when the server is done with it.
    """

    gradient: float = 0.0  # for every gradient that arrives, time units
    step: float = 0.0  # more, for one that makes it step, time units


def check_service(service: Service) -> None:
    """Refuses times of a service below 0."""
    for name, value in service._asdict().items():
        real(f"service.{name}", value, least=0.0)


class Rules(NamedTuple):
    """What a server goes by; all but `gate` are runs that were opened for it alone."""

    answer: Answer
    collect: Collection
    collector: Collector
    gate: Gate | None = None
    read_at_start: bool = False


_WIDTH, _VERSION = 7, 4  # entries that are written down at every arrival; place of the version


class Server:
    """One run of a server over n workers.

    Per worker it keeps the running job in plain lists: its `serial`, which no other job of the run
    has (`IDLE` when there is none, `TAKEN` when its place is not free), its number `job`, the
    version `read` that it is at, and its `start`; and the waiting jobs in a queue of versions. What
    it answers with are the workers whose next job starts now, in order. Where `places_stay`, a job
    that was stopped or lost leaves its place taken until `free`: a real worker goes on with it.
    """

    def __init__(self, n_workers: int, rules: Rules, *, places_stay: bool = False) -> None:
        n, self.n_workers, self.rules = n_workers, n_workers, rules
        self.vacant = TAKEN if places_stay else IDLE
        self.answer, self.collect = rules.answer, rules.collect
        self.observe = getattr(rules.answer, "observe", None)
        self.receive, self.tell_given_up = rules.collector.receive, rules.collector.given_up
        bound = None if rules.gate is None else rules.gate.bound
        self.bound = None if bound == float("inf") else bound
        self.version, self.next_serial = 0, 0
        self.serial, self.job, self.read, self.start = [IDLE] * n, [-1] * n, [0] * n, [0.0] * n
        self.queues: list[list[int]] = [[] for _ in range(n)]  # versions of the jobs that wait
        self.held: list[int] = []  # whose gradients were collected, if rules answer only then
        # (read version, worker, serial), if rules cancel
        self.stalest: list[tuple[int, int, int]] = []
        self.delivered, self.at_count, self.slowest = [0] * n, {0: n}, 0
        self.blocked: set[int] = set()
        self.cancelled: list[tuple[int, float, float]] = []
        # of every arrival: time, worker, job, read version, version, start, verdict
        self.log: list[Any] = []
        self.rung: list[tuple[int, float]] = []  # steps by the clock: last arrival before, time

    def begin(self, initial: Sequence[int], now: float) -> list[int]:
        """Hands out the first jobs."""
        started = []
        for worker in initial:
            self.queues[worker].append(0)
            started += self._started((worker,), now)
        return started

    @property
    def time(self) -> float:
        """Time of the last arrival, or step by the clock, 0 before the first."""
        last = self.log[-_WIDTH] if self.log else 0.0
        return max(last, self.rung[-1][1]) if self.rung else last

    @property
    def last(self) -> tuple[int, int]:
        """Worker and number of the job that arrived last; -1 if none has."""
        worker, job = (self.log[1 - _WIDTH], self.log[2 - _WIDTH]) if self.log else (-1, -1)
        return worker, job

    def take(self, worker: int, now: float) -> Verdict:
        """Judges the gradient of a worker's running job, which arrives now."""
        version, read = self.version, self.read[worker]
        if self.observe is not None:
            self.observe(worker, now - self.start[worker])
        verdict = self.receive(worker, version - read)
        self.log += (now, worker, self.job[worker], read, version, self.start[worker], verdict)
        self.serial[worker] = IDLE
        return verdict

    def react(self, worker: int, verdict: Verdict, now: float) -> list[int]:
        """Hands out jobs after a gradient was taken; the new model is there if it steps."""
        collect, steps = self.collect, verdict is Verdict.STEP
        touched: Iterable[int] = (worker,)
        if self.bound is not None and self._count_delivery(worker):
            touched = {worker, *self.blocked}  # the slowest has delivered: the gate opens
        answered = [worker]
        if collect.holds_back:
            self.held.append(worker)
            answered, self.held = (self.held, []) if steps else ([], self.held)
        if steps:
            self.version += 1
            if collect.cancel_from is not None:
                answered += self._cancel(collect.cancel_from, now)
        if answered:
            model = self.version if steps or not collect.keeps_model else self.read[worker]
            handed = self.answer(answered)
            for other in handed:
                self.queues[other].append(model)
            touched = {*handed, *answered, *touched}
        return self._started(touched, now)

    def ring(self, now: float, at: float) -> list[int]:
        """Steps by the clock, with what has arrived; hands out jobs, at the time `at`."""
        arrivals = len(self.log) // _WIDTH
        if not arrivals or self.log[-_WIDTH + _VERSION] != self.version:
            raise ValueError(
                f"the timer of the rule '{self.collect.name}' made a step at time {now:g} but no"
                " gradient had arrived since the step before it: every step needs one"
            )
        self.rung.append((arrivals - 1, now))
        self.version += 1
        answered, self.held = self.held, []
        if self.collect.cancel_from is not None:
            answered += self._cancel(self.collect.cancel_from, at)
        handed = self.answer(answered) if answered else []
        for worker in handed:
            self.queues[worker].append(self.version)
        return self._started({*handed, *answered}, at)

    def lose(self, worker: int, now: float) -> list[int]:
        """Gives up a worker's running job, tells the rule, and hands out a job in its place."""
        self.serial[worker] = self.vacant
        self.cancelled.append((worker, self.start[worker], now))
        if self.tell_given_up is not None:
            self.tell_given_up(worker)
        model = self.read[worker] if self.collect.keeps_model else self.version
        handed = self.answer([worker])
        for other in handed:
            self.queues[other].append(model)
        return self._started({worker, *handed}, now)

    def free(self, worker: int, now: float) -> list[int]:
        """The place of a worker whose job was stopped or lost is free again."""
        self.serial[worker] = IDLE
        return self._started((worker,), now)

    def awaited_versions(self) -> set[int]:
        """The versions that running and queued jobs read, as far as they are known."""
        running = {self.read[i] for i, serial in enumerate(self.serial) if serial >= 0}
        return running.union(*self.queues)

    def _started(self, workers: Iterable[int], now: float) -> list[int]:
        """Lets workers that are idle, if the gate lets them, start the head of their queue."""
        started = []
        for worker in workers:
            queue = self.queues[worker]
            if self.serial[worker] != IDLE or not queue:
                continue
            if self.bound is not None:
                if self.delivered[worker] - self.slowest > self.bound:
                    self.blocked.add(worker)
                    continue
                self.blocked.discard(worker)
            handed = queue.pop(0)
            self.read[worker] = self.version if self.rules.read_at_start else handed
            self.job[worker] += 1
            self.start[worker] = now
            self.serial[worker] = self.next_serial
            if self.collect.cancel_from is not None:
                heappush(self.stalest, (self.read[worker], worker, self.next_serial))
            self.next_serial += 1
            started.append(worker)
        return started

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

    def _cancel(self, limit: float | Callable[[int], float], now: float) -> list[int]:
        """Stops running jobs at least this stale; returns their workers by index."""
        threshold = limit(self.version) if callable(limit) else limit
        stopped = []
        while self.stalest and self.version - self.stalest[0][0] >= threshold:
            _, worker, serial = heappop(self.stalest)
            if self.serial[worker] == serial:
                self.serial[worker] = self.vacant
                stopped.append(worker)
        stopped.sort()
        self.cancelled += [(worker, self.start[worker], now) for worker in stopped]
        return stopped

    def trace(self) -> EventTrace:
        """The trace of all arrivals so far."""
        n, columns = self.n_workers, [self.log[at::_WIDTH] for at in range(_WIDTH)]
        time, start = (np.array(columns[at], np.float64) for at in (0, 5))
        worker, job, read, version = (np.array(columns[at], np.int32) for at in range(1, 5))
        verdict = np.frombuffer(bytes(columns[-1]), np.int8)
        used, steps, step_time = verdict != Verdict.DROP, verdict == Verdict.STEP, None
        if self.rules.collector.timer is not None:
            moments = time.copy()
            for arrival, now in self.rung:
                steps[arrival], moments[arrival] = True, now
            step_time = moments[steps]
        return EventTrace(
            time=time,
            worker=worker,
            job=job,
            read_version=read,
            version=version,
            start=start,
            n_workers=n,
            open_jobs=self._open_jobs(),
            cancelled=CancelledJobs(*_columns(self.cancelled, (np.int32, np.float64, np.float64))),
            **settled(self.collect, Arrivals(worker, version - read, time, used, steps, n)),
            step_time=step_time,
        )

    def trace_so_far(self) -> EventTrace | None:
        """The trace up to the last update, None if there was none."""
        if not self.version:
            return None
        verdicts = self.log[_WIDTH - 1 :: _WIDTH]
        steps = [e for e, verdict in enumerate(verdicts) if verdict is Verdict.STEP]
        end = 1 + max([*steps[-1:], *(arrival for arrival, _ in self.rung[-1:])])
        self.log = self.log[: end * _WIDTH]
        self.cancelled = [job for job in self.cancelled if job[2] <= self.time]
        return self.trace()

    def _open_jobs(self) -> OpenJobs:
        jobs: list[tuple[int, int, float]] = []
        for worker, queue in enumerate(self.queues):
            if self.serial[worker] >= 0:
                jobs.append((worker, self.read[worker], self.start[worker]))
            jobs += [(worker, handed, np.nan) for handed in queue]
        worker, read, start = _columns(jobs, (np.int32, np.int32, np.float64))
        # One that starts later, in answer to the last arrival, or after the last update of a run
        # that stalled, has not begun when the trace ends.
        return OpenJobs(worker, read, np.where(start > self.time, np.nan, start))


def _columns(rows: Sequence[tuple], dtypes: Sequence[DTypeLike]) -> list[np.ndarray]:
    columns = list(zip(*rows, strict=True)) or [()] * len(dtypes)
    return [np.array(column, dtype) for column, dtype in zip(columns, dtypes, strict=True)]
