"""Arrivals where the server waits for b gradients and then answers those who brought them.

With `to_deliverer` and `wait_for(b)`, every b arrivals their b workers begin the next job at once:

    start = time of the arrival that makes the step,    finish = start + duration

Nobody else begins anything, so of the open jobs, in the order of their finish times, those arrive
next for certain that are done before any of the jobs that begin in the meantime (as in `listed`).
"""

from __future__ import annotations

import numpy as np

from asyncjax.traces.arrival_streams import Found, arrivals_before, none_cancelled
from asyncjax.traces.calendar import Calendar, certain
from asyncjax.traces.durations import NextDurations
from asyncjax.traces.event_trace import CancelledJobs, OpenJobs
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks


class Held:
    """One run; `active` workers have a job, each one at a time, in the calendar by his number."""

    def __init__(self, blocks: DurationBlocks, active: int, period: int) -> None:
        self.n_workers, self.active, self.period = blocks.clock.n_workers, active, period
        self.following, self.calendar = NextDurations(blocks), Calendar(lambda worker: worker)
        self.start, self.arrived, self.now = np.zeros(active), 0, 0.0
        self.waiting = np.zeros(0, np.int64)  # whose gradients the server keeps
        # worker, job, start and time of what has arrived
        self.pieces: list[tuple[np.ndarray, ...]] = []
        everybody = np.arange(active)
        self.calendar.add(self.following.take(everybody), everybody)

    def first(self, n_arrivals: int, pace: Pace | None = None, *, exact: bool = True) -> Found:
        """The first arrivals, of which there is no end."""
        while self.arrived < n_arrivals:
            self._advance()
            if pace is not None:
                pace.drawn(self.arrived / n_arrivals, self.now * n_arrivals / self.arrived)
        self.pieces = [tuple(map(np.concatenate, zip(*self.pieces, strict=True)))]
        worker, job, start, time = (column[:n_arrivals] for column in self.pieces[0])
        return Found(time, worker, job, start, self._answered(arrivals_before(worker)))

    def _answered(self, arrival: np.ndarray) -> np.ndarray:
        """The arrivals at which the workers of arrivals are answered, -1 where they are -1."""
        period = self.period
        return np.where(arrival < 0, -1, (arrival // period + 1) * period - 1).astype(np.int32)

    def open_jobs(self, found: Found, after: np.ndarray) -> OpenJobs:
        """The jobs not delivered after some whole groups of arrivals: one of each worker."""
        last = np.full(self.active, -1)
        last[found.worker] = np.arange(len(found.worker))  # a later one replaces an earlier one
        source = self._answered(last)
        begun = source >= 0
        read = np.where(begun, after[source], 0).astype(np.int32)
        start = np.where(begun, found.time[source], 0.0)
        return OpenJobs(np.arange(self.active, dtype=np.int32), read, start)

    def cancelled_jobs(self, n_arrivals: int) -> CancelledJobs:
        """None."""
        return none_cancelled()

    def _advance(self) -> None:
        """Serves the next arrivals, as many as are certain, at least one."""
        period, held = self.period, len(self.waiting)
        coming = self.calendar.next(self.calendar.tries)
        times, workers = coming.finish, np.append(self.waiting, coming.job)
        count = len(workers) // period * period  # begin a job if all of these arrive
        steps = np.arange(period, count + 1, period) - held - 1
        start = np.repeat(times[steps], period)
        finish = start + self.following.peek(workers[:count])
        soonest = np.full(len(times), np.inf)
        soonest[steps] = finish.reshape(-1, period).min(axis=1)
        served = certain(times, soonest)
        whose, count = coming.job[:served], (held + served) // period * period
        job = self.following.taken[whose] - 1
        self.pieces.append((whose.astype(np.int32), job, self.start[whose], times[:served]))
        again, self.waiting = workers[:count], workers[count : held + served]
        self.following.taken[again] += 1
        self.start[again] = start[:count]
        self.calendar.serve(served, len(times))
        self.calendar.add(finish[:count], again)
        self.arrived, self.now = self.arrived + served, float(times[served - 1])
