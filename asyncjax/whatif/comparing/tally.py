"""What a trace comes to within a span of time: how fast, how stale, how fair, how idle.

Of the n workers' time within the span, each moment is one of three:

    useful    a job whose gradient enters an update, or that is still open at the end
    wasted    a job that is stopped, or whose gradient is thrown away
    idle      no job

and with w_i the weight that worker i's gradients have in all updates, p_i = w_i / sum w,

    heard_i = n p_i,      misplaced = 1/2 sum_i |p_i - 1/n|
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.traces import EventTrace

ROUNDING = 1e-7  # of the span: durations are float32, a sum of them is up to 6e-8 of it off


class Figures(NamedTuple):
    """What a rule did within the span."""

    gradients_per_time: float  # gradients that entered an update, local steps counted, a time unit
    updates_per_time: float  # a time unit
    idle: float  # share of the workers' time
    wasted: float  # share of the workers' time
    staleness_mean: float  # updates, over the uses of gradients
    staleness_late: float  # updates; one use in a hundred is staler
    staleness_longest: int  # updates
    heard: np.ndarray  # float64[n], weight of each worker in all updates over a fair share
    misplaced: float  # share of the weight that would have to move to be fair
    passes: float  # how often the record of the worker who needed most jobs was gone through
    under_way: float  # jobs that were not over when the count ended, to a job that was counted

    @property
    def useful(self) -> float:
        """Share of the workers' time that went into updates."""
        return 1.0 - self.idle - self.wasted


def figures_of(
    trace: EventTrace, span: float, recorded: np.ndarray, local_steps: int = 1
) -> Figures:
    """Counts a trace from its beginning to the last update within a span, or to the first.

    To an update, since what is under way at another moment would count for some rules only.

    Args:
        trace: A trace with starts that lasts at least `span * (1 + ROUNDING)`.
        span: Time units.
        recorded: int[n], how many durations each worker has in the log.
        local_steps: Gradients of a job.

    Returns:
        The figures.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 4.0]), n_updates=10)
        >>> found = figures_of(trace, 8.0, np.array([8, 2]))
        >>> found.gradients_per_time, found.heard.tolist(), found.idle
        (1.25, [1.6, 0.4], 0.0)
    """
    assert trace.start is not None  # as the makers of traces do
    assert trace.n_workers is not None
    n, made = trace.n_workers, trace.update_time
    updates = max(1, int(np.count_nonzero(made <= span * (1 + ROUNDING))))
    span = float(made[updates - 1])
    is_in = trace.time <= span
    worker, age, weight = _uses(trace, is_in, updates)
    total = np.bincount(worker, weight, minlength=n)
    shares = total / total.sum() if total.sum() > 0 else np.full(n, 1 / n)
    jobs = np.bincount(trace.worker[trace.start < span], minlength=n)
    busy, wasted = _spent(trace, span, is_in)
    counted = int(np.count_nonzero(trace.used & is_in))
    return Figures(
        gradients_per_time=counted * local_steps / span,
        updates_per_time=updates / span,
        idle=max(0.0, 1.0 - busy / (n * span)),
        wasted=wasted / (n * span),
        staleness_mean=float(age.mean()) if len(age) else 0.0,
        staleness_late=float(np.quantile(age, 0.99, method="higher")) if len(age) else 0.0,
        staleness_longest=int(age.max(initial=0)),
        heard=n * shares,
        misplaced=float(np.abs(shares - 1 / n).sum() / 2),
        passes=float(np.max(jobs * local_steps / recorded)),
        under_way=_under_way(trace, span) / counted,
    )


def _uses(
    trace: EventTrace, is_in: np.ndarray, updates: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Worker, age and weight of every use of a gradient in the first `updates` updates."""
    if trace.reuse is None:
        taken = trace.used & is_in
        return trace.worker[taken], trace.delay[taken], trace.weight[taken].astype(np.float64)
    arrival, first, last, weight = trace.reuse
    count = np.maximum(np.minimum(last, updates - 1) - first + 1, 0)
    row = np.repeat(np.arange(len(arrival)), count)
    step = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    age = step - trace.read_version[arrival[row]]
    return trace.worker[arrival[row]], age, weight[row].astype(np.float64)


def _under_way(trace: EventTrace, span: float) -> int:
    """Jobs that began before a moment and were not over then."""
    assert trace.start is not None
    count = np.count_nonzero((trace.start < span) & (trace.time > span))
    if trace.cancelled is not None:
        _, start, stop = trace.cancelled
        count += np.count_nonzero((start < span) & (stop > span))
    if trace.open_jobs is not None:
        count += np.count_nonzero(trace.open_jobs.start < span)  # NaN: it never began
    return int(count)


def _spent(trace: EventTrace, span: float, is_in: np.ndarray) -> tuple[float, float]:
    """Time that the workers spent on jobs, and on those that came to nothing, within the span."""
    assert trace.start is not None
    begin = np.minimum(trace.start, span)
    took = np.minimum(trace.time, span) - begin
    busy, wasted = float(took.sum()), float(took[is_in & ~trace.used].sum())
    if trace.cancelled is not None:
        _, start, stop = trace.cancelled
        lost = float((np.minimum(stop, span) - np.minimum(start, span)).sum())
        busy, wasted = busy + lost, wasted + lost
    if trace.open_jobs is not None:
        start = trace.open_jobs.start
        start = np.where(np.isnan(start), span, np.minimum(start, span))
        busy += float((span - start).sum())
    return busy, wasted
