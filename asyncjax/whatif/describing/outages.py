"""Times at which a worker was away, and jobs that took far longer than all others.

A gap between two jobs is an outage if it is longer than five typical jobs and ten typical gaps of
its worker: workers that wait for others in every round are not away. A job of a worker with J jobs
is a stall if it took three times the median, and

    d > median + s log(J / 0.02),   s = (ninth decile - median) / log 5,

which, were the upper half of durations exponential, one log in a hundred would have.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.clocks import Clock, exponential, on_off
from asyncjax.traces import Log

_JOBS, _GAPS = 5.0, 10.0  # typical jobs, and typical gaps, that an outage is longer than
_TIMES = 3.0  # times the median that a stall takes at least
_EXPECTED = 0.01  # jobs of an exponential tail that are called stalls
_LEAST = 4  # jobs of a worker, before any is called a stall


class Outages(NamedTuple):
    """Outages and stalls, each in the order of workers and then of time."""

    worker: np.ndarray  # int64[A], who was away
    begin: np.ndarray  # float64[A], when, in the unit of the log since its first job
    length: np.ndarray  # float64[A], for how long
    stalled: np.ndarray  # int64[B], who took so long
    stall: np.ndarray  # float64[B], how long the job took
    stall_factor: np.ndarray  # float64[B], over the median of its worker
    stall_job: np.ndarray  # int64[B], number of the job at its worker
    share: np.ndarray  # float64[n], of its time that each worker was away; NaN without starts
    is_known: bool  # whether starts are known, and gaps so seen

    def clock(self, clock: Clock, span: float) -> Clock:
        """The clock with these outages: exponential times of work and of standstill.

        Args:
            clock: How long jobs take, of all workers.
            span: How long the log lasts.

        Returns:
            A clock whose workers are away as often and as long as these were, each its own share;
            `clock` itself if nobody was.
        """
        away = np.bincount(self.worker, self.length, minlength=clock.n_workers)
        times = np.bincount(self.worker, minlength=clock.n_workers)
        if not times.any():
            return clock
        usual = self.length.mean()
        down = np.where(times > 0, away / np.maximum(times, 1), usual)
        up = (span - away) / np.maximum(times, 1e-6)  # who never was away never is
        return on_off(clock, up=exponential(up), down=exponential(down))


def outages_of(log: Log) -> Outages:
    """Finds the outages and stalls of a log.

    Example:
        >>> from asyncjax import traces
        >>> rows = [{"start": t, "seconds": 1.0} for t in (0, 1, 2, 3, 40, 41)]
        >>> outages = outages_of(traces.read_log(rows))
        >>> outages.begin, outages.length
        (array([4.]), array([36.]))
        >>> outages_of(traces.read_log([("a", t) for t in [1.0] * 19 + [30.0]])).stall_factor
        array([30.])
    """
    away: list[tuple[int, float, float]] = []
    for worker in range(log.n_workers if log.start is not None else 0):
        assert log.start is not None
        assert log.end is not None
        gap = np.maximum(log.start[worker][1:] - log.end[worker][:-1], 0.0)
        if gap.size:
            usual = _JOBS * np.median(log.durations[worker]) + _GAPS * np.median(gap)
            places = np.flatnonzero(gap > usual)
            away += [(worker, float(log.end[worker][i]), float(gap[i])) for i in places]
    stalls: list[tuple[int, float, float, int]] = []
    for worker, row in enumerate(log.durations):
        if len(row) < _LEAST:
            continue
        median, decile = np.quantile(row, (0.5, 0.9))
        tail = (decile - median) / np.log(5.0) * np.log(len(row) / (2 * _EXPECTED))
        limit = max(median + tail, _TIMES * median)
        places = np.flatnonzero(row > limit)
        stalls += [(worker, float(row[i]), float(row[i] / median), int(i)) for i in places]
    worker, begin, length = (
        (np.array(column) for column in zip(*away, strict=True))
        if away
        else (np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    )
    stalled, stall, factor, job = (
        np.array([one[place] for one in stalls], kind)
        for place, kind in enumerate((np.int64, float, float, np.int64))
    )
    share = np.full(log.n_workers, np.nan)
    if log.start is not None:
        share = np.bincount(worker, length, minlength=log.n_workers) / log.span
    return Outages(worker, begin, length, stalled, stall, factor, job, share, log.start is not None)
