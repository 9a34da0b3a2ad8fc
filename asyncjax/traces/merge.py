"""Traces without an event loop: where nobody ever waits, arrivals are merged renewal streams.

With `to_deliverer` and a rule that answers at once, worker i finishes its jobs at the cumulative
sums of its durations, so

    arrivals     = all finish times, sorted by (time, worker),
    read version = the version right after the same worker's previous arrival (0 for its first job),

both vectorised: millions of arrivals a second.
"""

import numpy as np

from asyncjax.clocks import Clock
from asyncjax.traces.collection import Arrivals, Collection, settled
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.host import DurationBlocks
from asyncjax.traces.progress import Pace

_BLOCK = 64


def merged(
    clock: Clock,
    blocks: DurationBlocks,
    *,
    n_updates: int,
    collect: Collection,
    concurrency: int,
    read_at_start: bool,
    pace: Pace | None = None,
) -> EventTrace:
    """The trace of pure asynchronous dispatch where every `collect.period`-th arrival steps."""
    period = collect.period or 1
    n_workers, n_arrivals = clock.n_workers, n_updates * period
    active = min(n_workers, concurrency)
    mean = np.asarray(clock.mean, np.float64)[:active]
    finish = _finish_times(mean, blocks, n_arrivals, pace)
    jobs_drawn = [len(times) for times in finish]
    time, worker = np.concatenate(finish), np.repeat(np.arange(active), jobs_drawn)
    job = np.concatenate([np.arange(count) for count in jobs_drawn])
    start = np.concatenate([np.concatenate([[0.0], times[:-1]]) for times in finish])
    order = np.lexsort((worker, time))[:n_arrivals]
    time, worker, job, start = time[order], worker[order], job[order], start[order]

    place = np.arange(n_arrivals)
    after = (place + 1) // period  # version right after each arrival
    held = -((np.arange(active) - concurrency) // n_workers)  # open jobs of each worker
    lag = np.ones_like(held) if read_at_start else held
    by_worker = np.argsort(worker, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(worker, minlength=active))])
    read_version = np.zeros(n_arrivals, np.int32)
    for i in range(active):
        own = by_worker[first[i] : first[i + 1]]
        read_version[own[lag[i] :]] = after[own[: -lag[i]]]
    worker, version = worker.astype(np.int32), (place // period).astype(np.int32)
    used, steps = np.ones(n_arrivals, bool), after * period == place + 1
    arrivals = Arrivals(worker, version - read_version, time, used, steps, n_workers)
    if pace is not None:
        pace.end(time[-1])
    return EventTrace(
        time=time,
        worker=worker,
        job=job.astype(np.int32),
        read_version=read_version,
        version=version,
        start=start,
        n_workers=n_workers,
        open_jobs=_open_jobs(by_worker, first, held, after, time, read_at_start),
        cancelled=CancelledJobs(np.zeros(0, np.int32), np.zeros(0), np.zeros(0)),
        **settled(collect, arrivals),
    )


def _finish_times(
    mean: np.ndarray, blocks: DurationBlocks, n_arrivals: int, pace: Pace | None
) -> list[np.ndarray]:
    """Finish times per worker, enough of each that the first `n_arrivals` of all are among them."""
    mean = np.where(np.isfinite(mean) & (mean > 0), mean, 1.0)
    reach = n_arrivals / np.sum(1.0 / mean)
    durations: list[list[np.ndarray]] = [[] for _ in mean]
    finish = [np.zeros(0) for _ in mean]
    while True:
        last = np.array([times[-1] if len(times) else 0.0 for times in finish])
        short = np.flatnonzero(last <= reach)
        drawn = np.array([len(durations[i]) for i in short], int)
        wanted = np.maximum(
            1, np.ceil(1.02 * (reach - last[short]) / mean[short] / _BLOCK).astype(int)
        )
        lanes = np.repeat(short, wanted)
        numbers = np.concatenate(
            [at + np.arange(count) for at, count in zip(drawn, wanted, strict=True)]
        )
        at = 0
        told = None if pace is None else lambda share, last=reach: pace.drawn(share, last)
        new = blocks.draw(lanes, numbers, told)
        for i, count in zip(short, wanted, strict=True):
            durations[i].extend(new[at : at + count])
            finish[i] = np.cumsum(np.concatenate(durations[i]))
            at += count
        last = np.array([times[-1] for times in finish])
        complete = last.min()  # every arrival before this moment is known
        if complete > reach:
            if (
                sum(int(np.searchsorted(times, reach, side="right")) for times in finish)
                >= n_arrivals
            ):
                return [
                    times[: np.searchsorted(times, reach, side="right") + 1] for times in finish
                ]
            reach = max(complete, reach * 1.05)


def _open_jobs(
    by_worker: np.ndarray,
    first: np.ndarray,
    held: np.ndarray,
    after: np.ndarray,
    time: np.ndarray,
    read_at_start: bool,
) -> OpenJobs:
    worker, read_version, start = [], [], []
    for i, count in enumerate(held):
        own = by_worker[first[i] : first[i + 1]]
        handed = np.concatenate([np.zeros(count, int), after[own]])[-count:]
        if read_at_start:
            handed[0] = after[own[-1]] if len(own) else 0
        worker += [i] * int(count)
        read_version += handed.tolist()
        start += [time[own[-1]] if len(own) else 0.0] + [np.nan] * (int(count) - 1)
    return OpenJobs(
        np.array(worker, np.int32), np.array(read_version, np.int32), np.array(start, np.float64)
    )
