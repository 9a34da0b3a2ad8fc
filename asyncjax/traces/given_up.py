"""Arrivals where jobs are given up, or lost, without a heap.

With `to_deliverer` a worker begins his next job when the one before is done or given up, so that
both are found as in `merge`, with a job's duration cut at the timeout. At one instant arrivals come
first, then jobs that are given up, each by worker. The model of a job that begins in place of one
given up is that of the last arrival before: where a rule's workers keep their model, it is that of
the job that was given up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.traces.arrival_streams import Found
from asyncjax.traces.event_trace import CancelledJobs, OpenJobs
from asyncjax.traces.merge import Renewals
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks


class _Events(NamedTuple):
    """Arrivals and jobs given up, in order."""

    worker: np.ndarray  # int32[V]
    start: np.ndarray  # float64[V]
    time: np.ndarray  # float64[V]
    late: np.ndarray  # bool[V], given up
    source: np.ndarray  # int32[V], the arrival whose model the worker's next job gets, or -1
    place: np.ndarray  # int64[E], of the arrivals


class GivenUp:
    """One run; `timeout` float64[n], time units, inf where the server waits for ever."""

    def __init__(self, blocks: DurationBlocks, timeout: np.ndarray, *, keeps_model: bool) -> None:
        self.n_workers = n = blocks.clock.n_workers
        self.renewals = Renewals(blocks, n, read_at_start=False, timeout=timeout)
        self.keeps_model, self.events = keeps_model, _Events(*(np.zeros(0) for _ in range(6)))

    def first(self, n_arrivals: int, pace: Pace | None = None, *, exact: bool = True) -> Found:
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
