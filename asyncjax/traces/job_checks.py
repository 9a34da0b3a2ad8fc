"""Checks of the jobs of a trace: a worker does one at a time, and every job counts.

With a_0, a_1, ... the jobs of a worker in the order of start, delivered or cancelled, and S the
start, F the finish of a job,

    F(a_k) <= S(a_k+1),      number of a_k = k,      read version <= updates made by S(a_k)

and the job that the worker still does when the trace ends starts no earlier than the last of them
ends, and no later than the trace ends.
"""

from __future__ import annotations

import numpy as np

from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.trace_columns import LARGEST, Columns, read_part, refuse

_OPEN = ("integers", "integers", "real numbers")
_CANCELLED = ("integers", "real numbers", "real numbers")


def check_jobs(trace: EventTrace, arrivals: Columns) -> None:
    """Checks workers, job numbers, starts, open and cancelled jobs."""
    _check_workers("worker of arrival {e} is {worker}", arrivals.worker, arrivals.n_workers)
    stated = arrivals.n_workers or int(arrivals.worker.max()) + 1
    if arrivals.start is not None:
        _check_starts(arrivals, arrivals.start)
    waiting = stopped = None
    if trace.open_jobs is not None:
        waiting = read_part("open_jobs", trace.open_jobs, OpenJobs, _OPEN)
    if trace.cancelled is not None:
        stopped = read_part("cancelled", trace.cancelled, CancelledJobs, _CANCELLED)
        if len(stopped[0]):
            waits = waiting is not None and bool(np.isnan(waiting[2]).any())
            _check_cancelled(stopped, stated, arrivals.end, waits=waits)
    worker, start, time, order = _in_order_of_start(arrivals, stopped)
    if start is not None:
        _check_one_at_a_time(worker, start, time, order, arrivals)
    _check_numbers(arrivals, worker, order, stopped)
    if waiting is not None and len(waiting[0]):
        _check_open(waiting, arrivals, stated, worker[order], time[order])


def _check_workers(head: str, worker: np.ndarray, n_workers: int | None) -> None:
    most = LARGEST if n_workers is None else n_workers
    if worker.min() >= 0 and worker.max() < most:
        return
    refuse(worker < 0, head + "; workers are numbered from 0", worker=worker)
    stated = "" if n_workers is None else f" but n_workers is {n_workers}"
    refuse(worker >= most, f"{head}{stated}; allowed are 0..{most - 1}", worker=worker)


def _check_starts(arrivals: Columns, start: np.ndarray) -> None:
    if not ((start >= 0) & (start <= arrivals.time)).all():
        refuse(
            ~(np.isfinite(start) & (start >= 0)),
            "start of arrival {e} is {start}; starts must be finite and at least 0",
            start=start,
        )
        refuse(
            start > arrivals.time,
            "start of arrival {e} is {start}, after its time {time}; a job starts before it is"
            " delivered",
            start=start,
            time=arrivals.time,
        )
    read = arrivals.read_version
    if arrivals.was_there(read, start).all():
        return
    made = arrivals.updates_by(start)
    refuse(
        read > made,
        "read_version of arrival {e} is {read} but only {made} updates were made when its job"
        " started, at {start}: it reads the future",
        read=arrivals.read_version,
        made=made,
        start=start,
    )


def _check_cancelled(columns: list[np.ndarray], n_workers: int, end: float, *, waits: bool) -> None:
    """Checks the cancelled jobs.

    Where an open job waits, it may have come in the place of one that was stopped after the end, by
    a server that takes time.
    """
    worker, start, time = columns
    _check_workers("cancelled.worker of job {e} is {worker}", worker, n_workers)
    refuse(
        ~(np.isfinite(start) & (start >= 0)),
        "cancelled.start of job {e} is {start}; starts must be finite and at least 0",
        start=start,
    )
    refuse(
        ~((start <= time) & (time < np.inf) & ((time <= end) | waits)),
        "cancelled.time of job {e} is {time}; allowed are its start {start} to the last arrival at"
        f" {end}, or any finite time after it where an open job waits",
        time=time,
        start=start,
    )
    refuse(
        np.append(False, time[1:] < time[:-1]),
        "cancelled.time of job {e} is {time}, before the job ahead of it; jobs are listed in the"
        " order in which they were stopped",
        time=time,
    )


def _in_order_of_start(
    arrivals: Columns, stopped: list[np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray]:
    """Worker, start and end of arrivals and then cancelled jobs, and their order in a worker."""
    worker, start, time = arrivals.worker, arrivals.start, arrivals.time
    if start is None or stopped is None or not len(stopped[0]):
        return worker, start, time, by_worker(worker)
    columns = zip((worker, start, time), stopped, strict=True)
    worker, start, time = (np.concatenate(pair) for pair in columns)
    return worker, start, time, np.lexsort((time, start, _narrow(worker)))


def by_worker(worker: np.ndarray) -> np.ndarray:
    """The order of arrivals by worker, those of one worker as they come.

    Sixteen bits at a time, which are sorted in linear time: a million workers in two turns.

    Example:
        >>> by_worker(np.array([70_000, 3, 70_000, 4])).tolist()
        [1, 3, 0, 2]
    """
    order = np.argsort(worker.astype(np.uint16), kind="stable")
    if worker.max() >= 2**16:
        order = order[np.argsort((worker >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def _narrow(worker: np.ndarray) -> np.ndarray:
    """The same numbers, in 16 bits where they fit: those are sorted in linear time."""
    return worker.astype(np.uint16) if worker.max() < 2**16 else worker


def _check_one_at_a_time(
    worker: np.ndarray, start: np.ndarray, time: np.ndarray, order: np.ndarray, arrivals: Columns
) -> None:
    one, other = order[:-1], order[1:]
    meets = (worker[one] == worker[other]) & (start[other] < time[one] - arrivals.slack)
    if not meets.any():
        return
    k = int(np.argmax(meets))
    count = len(arrivals.time)
    name, place = ("start of arrival", int(other[k]))
    if place >= count:
        name, place = "cancelled.start of job", place - count
    raise ValueError(
        f"{name} {place} is {start[other[k]]}, but its worker {worker[other[k]]} is at the job"
        f" before it until {time[one[k]]}; a worker does one job at a time"
    )


def _check_numbers(
    arrivals: Columns, worker: np.ndarray, order: np.ndarray, stopped: list[np.ndarray] | None
) -> None:
    job, count = arrivals.job, len(arrivals.time)
    ranked, place = worker[order], np.arange(len(order))
    opens = place.copy()  # where in `order` the jobs of this worker begin
    opens[1:][ranked[1:] == ranked[:-1]] = 0
    least = np.empty(len(order), np.int64)  # jobs of the worker that are listed and began before
    least[order] = place - np.maximum.accumulate(opens)
    least = least[:count]
    complete = stopped is not None and arrivals.start is not None
    if complete and (job == least).all():
        return
    own = order if len(order) == count else order[order < count]
    stalls = np.zeros(count, bool)
    stalls[own[1:]] = (worker[own[1:]] == worker[own[:-1]]) & (job[own[1:]] <= job[own[:-1]])
    refuse(
        stalls | (job < 0) | (job > LARGEST),
        f"job of arrival {{e}} is {{job}}; the jobs of one worker must rise from 0, to {LARGEST} at"
        " most",
        job=job,
    )
    if stopped is None or _in_rounds(arrivals):
        return
    most, wrong = least, job != least
    if arrivals.start is None:  # when the cancelled ones began is not known
        most = least + np.bincount(stopped[0], minlength=int(worker.max()) + 1)[worker]
        wrong = (job < least) | (job > most)
    else:
        wrong &= arrivals.start < arrivals.time  # those of no duration have no order
    refuse(
        wrong,
        "job of arrival {e} is {job} but its worker had {least} to {most} jobs before it, delivered"
        " or cancelled: one is missing, or is there twice",
        job=job,
        least=least,
        most=most,
    )


def _in_rounds(arrivals: Columns) -> bool:
    """Whether jobs count rounds: a worker that gets no work in a round has no job of its number."""
    version = arrivals.version
    return bool(np.all(arrivals.job == version) and np.all(arrivals.read_version == version))


def _check_open(
    columns: list[np.ndarray],
    arrivals: Columns,
    n_workers: int,
    ranked: np.ndarray,
    ended: np.ndarray,
) -> None:
    """Checks the open jobs; `ranked`, `ended`: the jobs before them, by worker, then by start."""
    worker, read, start = columns
    _check_workers("open_jobs.worker of job {e} is {worker}", worker, n_workers)
    place = np.searchsorted(ranked, worker, side="right") - 1
    last = np.where(ranked[place] == worker, ended[place], 0.0)
    waits, least = np.isnan(start), last - arrivals.slack
    begins = np.where(waits, np.inf, start)
    late = (read < 0) | ~arrivals.was_there(read, begins)
    began = waits | ((start >= least) & (start <= arrivals.end + arrivals.slack))
    falls, behind = worker[1:] < worker[:-1], ~waits[1:] & (worker[1:] == worker[:-1])
    if not (late | ~began).any() and not (falls | behind).any():
        return
    refuse(
        np.append(False, falls),
        "open_jobs.worker of job {e} is {worker}, less than that of the job before it; open jobs"
        " are ordered by worker",
        worker=worker,
    )
    refuse(
        np.append(False, behind),
        "open_jobs.start of job {e} is {start}, but its worker has an open job ahead of it: it must"
        " wait, with start NaN",
        start=start,
    )
    refuse(
        ~began,
        "open_jobs.start of job {e} is {start}; allowed is NaN, for a job that waits, or a finite"
        f" time from {{last}}, when its worker ended its last job, to the trace's end,"
        f" {arrivals.end}",
        start=start,
        last=last,
    )
    refuse(
        late,
        "open_jobs.read_version of job {e} is {read}; allowed are 0..{made}, the updates made when"
        " it started or, if it waits, by the end",
        read=read,
        made=arrivals.updates_by(begins),
    )
