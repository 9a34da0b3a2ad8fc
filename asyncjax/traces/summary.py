"""What a trace says in figures: delays, use of workers, throughput."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.traces.event_trace import EventTrace, worker_count
from asyncjax.traces.validation import validate


class Summary(NamedTuple):
    """Figures of a trace; `summarize` makes it."""

    n_workers: int  # also those never heard
    updates: int  # of the server
    used: int  # arrivals whose gradient entered a step
    thrown_away: int  # arrivals whose gradient did not
    cancelled: int  # jobs stopped before delivery
    time: float  # of the last arrival, time units
    time_per_update: float  # time units
    arrivals_by_worker: np.ndarray  # int64[n]
    used_by_worker: np.ndarray  # int64[n], those whose gradient entered a step
    delay_mean: float  # over all arrivals, updates
    delay_max: int  # largest delay of an arrival
    delay_histogram: np.ndarray  # int64[delay_max + 1], arrivals by delay
    # int64[C], updates since each open job's read version; empty if not recorded
    open_ages: np.ndarray
    concurrency: int  # open jobs at the end; 0 where every round ends with none
    utilisation: float  # busy time / (n * time); NaN if no starts, or no time


def summarize(trace: EventTrace) -> Summary:
    """Counts a trace.

    With one job handed out per arrival and immediate steps, delays obey, whatever the clock and the
    dispatch rule,

        sum(delay) + sum(open_ages) = updates * (concurrency - 1).

    Args:
        trace: A valid trace.

    Returns:
        The figures. A worker is busy from the start of a job to its arrival or cancellation, but no
        longer than to the last arrival; open jobs count until then.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=12)
        >>> summary = traces.summarize(trace)
        >>> summary.arrivals_by_worker, summary.delay_max, round(summary.utilisation, 3)
        (array([7, 3, 2]), 5, 1.0)
        >>> int(summary.delay_mean * 12 + summary.open_ages.sum())
        24
    """
    return figures(validate(trace))


def figures(trace: EventTrace) -> Summary:
    """What `summarize` gives, of a trace that is known to be valid."""
    n, end, delay = worker_count(trace), trace.end, np.asarray(trace.delay)
    updates, ages = trace.n_updates, np.zeros(0, np.int64)
    if trace.open_jobs is not None:
        ages = updates - trace.open_jobs.read_version.astype(np.int64)
    return Summary(
        n_workers=n,
        updates=updates,
        used=int(np.count_nonzero(trace.used)),
        thrown_away=int(np.count_nonzero(~np.asarray(trace.used))),
        cancelled=0 if trace.cancelled is None else len(trace.cancelled.worker),
        time=end,
        time_per_update=end / max(updates, 1),
        arrivals_by_worker=np.bincount(trace.worker, minlength=n),
        used_by_worker=np.bincount(trace.worker[trace.used], minlength=n),
        delay_mean=float(delay.mean()),
        delay_max=int(delay.max()),
        delay_histogram=np.bincount(delay),
        open_ages=ages,
        concurrency=len(ages),
        utilisation=float(busy_time(trace).sum() / (n * end)) if end > 0 else float("nan"),
    )


def busy_time(trace: EventTrace) -> np.ndarray:
    """Time each worker has spent on jobs up to the last arrival or update, float64[n], time units.

    NaN if the trace does not record starts.
    """
    n, end = worker_count(trace), trace.end
    if trace.start is None:
        return np.full(n, np.nan)
    busy = np.bincount(trace.worker, trace.time - trace.start, minlength=n)
    # What a run without an update did after its last one does not count: see `StalledError`.
    if trace.cancelled is not None and len(trace.cancelled.worker):
        worker, begin, stop = trace.cancelled
        busy += np.bincount(worker, np.minimum(stop, end) - np.minimum(begin, end), minlength=n)
    if trace.open_jobs is not None and len(trace.open_jobs.worker):
        start = trace.open_jobs.start
        running = np.where(np.isnan(start), end, np.minimum(start, end))
        busy += np.bincount(trace.open_jobs.worker, end - running, minlength=n)
    return busy
