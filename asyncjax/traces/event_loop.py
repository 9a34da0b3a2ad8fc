"""The event loop: a heap over running jobs, for every dispatch rule, collection rule and gate.

At each arrival the server (1) takes the gradient, (2) hands out jobs, perhaps after stopping some, (3) lets idle workers
start the head of their queue. Arrivals at one instant are served in order of worker index, each completely before the
next. An arrival costs O(log n): only the workers named in the reaction, and those that a gate held back, are looked at.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np

from asyncjax.traces.collection import Collection
from asyncjax.traces.dispatch import Answer
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.gate import Gate

_PATIENCE = (
    1_000_000  # arrivals without an update, and 1,000 more per worker, before a run is called stuck
)


class _Running:
    """The job a worker is computing."""

    __slots__ = ("job", "read_version", "serial", "start")

    def __init__(self) -> None:
        self.job, self.read_version, self.start = -1, 0, 0.0
        self.serial = (
            -1
        )  # -1: idle; else a number that its entry in the heap must carry to be valid


class EventLoop:
    """One run of the server; `run` makes the trace."""

    def __init__(
        self,
        durations: list[Iterator[float]],
        answer: Answer,
        collect: Collection,
        gate: Gate | None,
        read_at_start: bool,
    ) -> None:
        n = len(durations)
        self.n_workers, self.durations, self.answer, self.collect = n, durations, answer, collect
        self.receive = collect.start(n)
        self.bound = None if gate is None or gate.bound == float("inf") else gate.bound
        self.read_at_start = read_at_start
        self.time, self.version, self.serial = 0.0, 0, 0
        self.running = [_Running() for _ in range(n)]
        self.queues: list[deque[int]] = [deque() for _ in range(n)]  # read versions of waiting jobs
        self.heap: list[tuple[float, int, int]] = []  # (time of arrival, worker, serial)
        self.stalest: list[
            tuple[int, int, int]
        ] = []  # (read version, worker, serial), only for cancelling rules
        self.held: list[int] = []  # deliverers not yet answered, for rules that hold jobs back
        self.delivered, self.at_count, self.slowest = [0] * n, {0: n}, 0
        self.blocked: set[int] = set()
        self.cancelled: list[tuple[int, float, float]] = []
        self.rows: list[tuple[float, int, int, int, int, bool, bool, float]] = []

    def run(self, initial: list[int], n_updates: int) -> EventTrace:
        """Serves arrivals until the server has updated ``n_updates`` times.

        Args:
            initial: Workers that get a job at time 0, in order.
            n_updates: Number of server updates.

        Returns:
            The trace.

        Raises:
            ValueError: The run cannot go on; says after which arrival, when, and why.
        """
        self._hand_out(initial, startable=set(initial))
        last_step, patience = 0, _PATIENCE + 1_000 * self.n_workers
        while self.version < n_updates:
            if not self.heap or len(self.rows) - last_step > patience:
                raise ValueError(self._stuck())
            at, worker, serial = heappop(self.heap)
            if serial != self.running[worker].serial:
                continue  # stopped by the server
            self.time = at
            if self._serve(worker):
                last_step = len(self.rows)
        return self._trace()

    def _serve(self, worker: int) -> bool:
        """Serves one arrival whole; returns whether the server updated."""
        job = self.running[worker]
        used, steps = self.receive(worker, self.version - job.read_version)
        self.rows.append(
            (self.time, worker, job.job, job.read_version, self.version, used, steps, job.start)
        )
        job.serial = -1
        startable = {worker}
        if self.bound is not None:
            self._count_delivery(worker)
            startable |= self.blocked
        answered = [worker]
        if self.collect.holds_back:
            self.held.append(worker)
            answered, self.held = (self.held, []) if steps else ([], self.held)
        if steps:
            self.version += 1
            if self.collect.cancel_from is not None:
                answered += self._cancel(self.collect.cancel_from)
        if answered:
            handed = self.answer(answered)
            startable.update(handed)
            startable.update(answered)
            self._hand_out(handed, startable)
        else:
            self._start(startable)
        return steps

    def _hand_out(self, workers: list[int], startable: set[int]) -> None:
        for worker in workers:
            self.queues[worker].append(self.version)
        self._start(startable)

    def _start(self, workers: set[int]) -> None:
        for worker in workers:
            queue, running = self.queues[worker], self.running[worker]
            if running.serial >= 0 or not queue:
                continue
            if self.bound is not None:
                if self.delivered[worker] - self.slowest > self.bound:
                    self.blocked.add(worker)
                    continue
                self.blocked.discard(worker)
            handed = queue.popleft()
            running.read_version = self.version if self.read_at_start else handed
            running.job += 1
            running.start = self.time
            running.serial = self.serial
            heappush(self.heap, (self.time + next(self.durations[worker]), worker, self.serial))
            if self.collect.cancel_from is not None:
                heappush(self.stalest, (running.read_version, worker, self.serial))
            self.serial += 1

    def _count_delivery(self, worker: int) -> None:
        count = self.delivered[worker]
        self.delivered[worker] = count + 1
        self.at_count[count] -= 1
        self.at_count[count + 1] = self.at_count.get(count + 1, 0) + 1
        if count == self.slowest and not self.at_count[count]:
            del self.at_count[count]
            self.slowest += 1

    def _cancel(self, threshold: float) -> list[int]:
        """Stops running jobs at least this stale; returns their workers by index."""
        stopped = []
        while self.stalest and self.version - self.stalest[0][0] >= threshold:
            _, worker, serial = heappop(self.stalest)
            running = self.running[worker]
            if running.serial == serial:
                self.cancelled.append((worker, running.start, self.time))
                running.serial = -1
                stopped.append(worker)
        return sorted(stopped)

    def _stuck(self) -> str:
        waiting = sum(len(queue) for queue in self.queues)
        if self.heap:
            why = (
                f"the rule '{self.collect.name}' has not let the server update for a very long time"
            )
        elif self.blocked:
            why = f"no job is running; the gate holds back {len(self.blocked)} workers for ever"
        else:
            why = "no job is open"
        return (
            f"the trace cannot go on after arrival {len(self.rows)} at time {self.time:g}, update {self.version}:"
            f" {why} ({waiting} jobs wait in queues)"
        )

    def _open_jobs(self) -> OpenJobs:
        jobs = []
        for worker, (running, queue) in enumerate(zip(self.running, self.queues, strict=True)):
            if running.serial >= 0:
                jobs.append((worker, running.read_version, running.start))
            for handed in queue:
                jobs.append((worker, self.version if self.read_at_start else handed, np.nan))
        columns = list(zip(*jobs, strict=True)) or [(), (), ()]
        return OpenJobs(
            np.array(columns[0], np.int32),
            np.array(columns[1], np.int32),
            np.array(columns[2], np.float64),
        )

    def _trace(self) -> EventTrace:
        time, worker, job, read_version, version, used, steps, start = zip(*self.rows, strict=True)
        workers = np.array(worker, np.int32)
        is_used, is_step = np.array(used, bool), np.array(steps, bool)
        stopped = list(zip(*self.cancelled, strict=True)) or [(), (), ()]
        return EventTrace(
            time=np.array(time, np.float64),
            worker=workers,
            job=np.array(job, np.int32),
            read_version=np.array(read_version, np.int32),
            version=np.array(version, np.int32),
            used=is_used,
            steps=is_step,
            weight=self.collect.weigh(workers, is_used, is_step, self.n_workers),
            start=np.array(start, np.float64),
            n_workers=self.n_workers,
            open_jobs=self._open_jobs(),
            cancelled=CancelledJobs(
                np.array(stopped[0], np.int32),
                np.array(stopped[1], np.float64),
                np.array(stopped[2], np.float64),
            ),
        )
