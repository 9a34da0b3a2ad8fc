"""Arrivals where jobs go down a list of workers, without a heap: many arrivals at once.

Job m, handed out in answer to arrival g(m), goes to the m-th worker of a list that does not depend
on who delivers. So with d(m) its duration, known ahead, and the worker's queue first in, first out,

    start(m) = max(time of g(m), finish of the worker's job before m),   finish(m) = start(m) + d(m)

Of all jobs that are open, let c_0 <= c_1 <= ... be the finish times. They are the next arrivals as
long as no job handed out at one of them is back before the next: c_0, ..., c_j are certain if all
jobs handed out at c_0, ..., c_{j-1} finish after c_j. With n workers these are about sqrt(n)
arrivals, for each of which everything above is a vector operation.
"""

from __future__ import annotations

import numpy as np

from asyncjax.traces.arrival_streams import Found, arrivals_before, none_cancelled
from asyncjax.traces.calendar import Calendar, certain
from asyncjax.traces.dispatch import Take, used_up
from asyncjax.traces.event_trace import CancelledJobs, OpenJobs
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks

_AHEAD = 131_072  # jobs whose workers and durations are known ahead


class Listed:
    """One run; `worker`, `number`, `start` and `finish` are those of all jobs handed out so far.

    `period`: jobs are handed out only at every so-manieth arrival, as many at once.
    """

    def __init__(
        self,
        blocks: DurationBlocks,
        take: Take,
        concurrency: int | None = None,
        *,
        period: int = 1,
        read_at_start: bool = False,
    ) -> None:
        n = self.n_workers = blocks.clock.n_workers
        self.blocks, self.take, self.period = blocks, take, period
        initial = np.arange(n) if concurrency is None else take(concurrency)
        if len(initial) < (concurrency or n):
            raise used_up(len(initial))
        self.read_at_start, self.n_initial = read_at_start, len(initial)
        self.not_listed = n if concurrency is None else 0  # of the initial jobs
        self.worker, self.number = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self.start, self.finish = np.zeros(0), np.zeros(0)  # finish: the duration, before
        self.foreseen = self.handed = self.arrived = 0
        self.ended = False
        self.given = np.zeros(n, np.int32)  # jobs foreseen of each worker
        self.block_of, self.block = np.full(n, -1, np.int32), np.empty((n, blocks.size))
        self.last = np.zeros(n)  # finish of each worker's last job
        self.order: list[np.ndarray] = []  # arrivals, by the number of their job
        self.calendar, self.now = Calendar(lambda job: self.worker[job]), 0.0
        self._foresee(initial)
        start, finish = self._run(np.arange(len(initial)), np.zeros(len(initial)))
        self._hand_out(start, finish)

    def first(self, n_arrivals: int, pace: Pace | None = None, *, exact: bool = True) -> Found:
        """The first arrivals; fewer, if the list ends and they need not be exactly so many.

        Raises:
            ValueError: They must, and it ends.
        """
        while self.arrived < n_arrivals and not self.ended:
            self._advance()
            if pace is not None:
                pace.drawn(self.arrived / n_arrivals, self.now * n_arrivals / self.arrived)
        if self.ended and self.arrived < n_arrivals and exact:
            raise used_up(self.foreseen - self.not_listed)
        job = self._arrivals(n_arrivals)
        source = self._source(job)
        if self.read_at_start:
            source = np.maximum(source, arrivals_before(self.worker[job]))
        return Found(
            time=self.finish[job],
            worker=self.worker[job],
            job=self.number[job],
            start=self.start[job],
            source=source.astype(np.int32),
        )

    def open_jobs(self, found: Found, after: np.ndarray) -> OpenJobs:
        """The jobs not delivered after some arrivals."""
        count = len(found.time)
        is_open = np.ones(self.n_initial + count // self.period * self.period, bool)
        is_open[self._arrivals(count)] = False
        job = np.flatnonzero(is_open)
        job = job[np.argsort(self.worker[job], kind="stable")]
        worker, source = self.worker[job], self._source(job)
        waits = np.append(False, worker[1:] == worker[:-1])[: len(job)]
        if self.read_at_start:
            last = np.full(self.n_workers, -1)
            last[found.worker] = np.arange(count)  # a later one replaces an earlier one
            source = np.where(waits, source, np.maximum(source, last[worker]))
        read = np.where(source < 0, 0, after[source]).astype(np.int32)
        return OpenJobs(worker, read, np.where(waits, np.nan, self.start[job]))

    def cancelled_jobs(self, n_arrivals: int) -> CancelledJobs:
        """None."""
        return none_cancelled()

    def _arrivals(self, count: int) -> np.ndarray:
        """The numbers of the jobs that arrive first, int64[count]."""
        self.order = [np.concatenate(self.order)] if self.order else []
        return self.order[0][:count] if self.order else np.zeros(0, np.int64)

    def _source(self, job: np.ndarray) -> np.ndarray:
        """The arrivals in answer to which jobs are handed out, -1 for time 0."""
        later = job - self.n_initial
        return np.where(later < 0, -1, (later // self.period + 1) * self.period - 1)

    def _foresee(self, workers: np.ndarray) -> None:
        """Notes who gets the next jobs, and how long they take."""
        begin, end = self.foreseen, self.foreseen + len(workers)
        if end > len(self.worker):
            size = max(end, len(self.worker) * 3 // 2)
            for name in ("worker", "number", "start", "finish"):
                column = getattr(self, name)
                wider = np.empty(size, column.dtype)
                wider[:begin] = column[:begin]
                setattr(self, name, wider)
        by_worker = np.argsort(workers, kind="stable")
        ranked = workers[by_worker]
        number = self.given[ranked] + _turn(ranked)
        block, size = number // self.blocks.size, self.blocks.size
        is_new = np.append(True, (np.diff(ranked) != 0) | (np.diff(block) != 0))[: len(ranked)]
        owner, own_block = ranked[is_new], block[is_new]
        drawn = self.block[owner]
        missing = np.flatnonzero(self.block_of[owner] != own_block)
        if len(missing):
            drawn[missing] = self.blocks.draw(owner[missing], own_block[missing])
        self.block[owner], self.block_of[owner] = drawn, own_block  # the last one stays
        self.given[ranked] = number + 1
        self.worker[begin:end], self.foreseen = workers, end
        self.number[begin + by_worker] = number
        self.finish[begin + by_worker] = drawn[np.cumsum(is_new) - 1, number % size]

    def _run(self, job: np.ndarray, handed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and finish of the next jobs, handed out at these times."""
        worker, duration = self.worker[job], self.finish[job]
        start = np.maximum(handed, self.last[worker])
        finish = start + duration
        by_worker = np.argsort(worker, kind="stable")
        turn = _turn(worker[by_worker])
        for again in range(1, int(turn.max(initial=0)) + 1):
            place = np.flatnonzero(turn == again)
            one, before = by_worker[place], by_worker[place - 1]
            start[one] = np.maximum(handed[one], finish[before])
            finish[one] = start[one] + duration[one]
        return start, finish

    def _hand_out(self, start: np.ndarray, finish: np.ndarray) -> None:
        """Puts the next jobs among those that are open."""
        begin, end = self.handed, self.handed + len(start)
        self.start[begin:end], self.finish[begin:end] = start, finish
        self.last[self.worker[begin:end]] = finish  # of a worker's several the last
        self.handed = end
        self.calendar.add(finish, np.arange(begin, end))

    def _advance(self) -> None:
        """Serves the next arrivals, as many as are certain, at least one."""
        tries = self.calendar.tries
        ahead = self.foreseen - self.handed
        if ahead < tries + self.period:
            self._foresee(self.take(max(_AHEAD, tries + self.period)))
            ahead = self.foreseen - self.handed
        period, arrived = self.period, self.arrived
        coming = self.calendar.next(tries)
        release = arrived // period * period  # jobs released so far
        # The last arrival that the list has jobs for.
        most = (release + ahead) // period * period + period - 1 - arrived
        if most < 1:
            self.ended = True
            return
        times = coming.finish[:most]
        count = (arrived + len(times)) // period * period - release
        job = self.handed + np.arange(count)
        at = self._source(job) - arrived
        start, finish = self._run(job, times[at])
        soonest = np.full(len(times), np.inf)
        soonest[at[::period]] = finish.reshape(-1, period).min(axis=1)
        served = certain(times, soonest)
        count = (arrived + served) // period * period - release
        self.order.append(coming.job[:served])
        self.calendar.serve(served, len(times))
        self.arrived, self.now = arrived + served, float(times[served - 1])
        self._hand_out(start[:count], finish[:count])


def _turn(ranked: np.ndarray) -> np.ndarray:
    """How many equal numbers stand before each, of numbers in order.

    Example:
        >>> _turn(np.array([3, 3, 3, 5, 7, 7])).tolist()
        [0, 1, 2, 0, 0, 1]
    """
    place = np.arange(len(ranked))
    opens = place.copy()
    opens[1:][ranked[1:] == ranked[:-1]] = 0
    return place - np.maximum.accumulate(opens)
