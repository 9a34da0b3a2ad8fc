"""Checks that a trace could have happened: kinds, lengths, order, causality, versions, weights.

A worker does one job at a time, and every job counts. With a_0, a_1, ... the jobs of a worker in
the order of start, delivered or cancelled, and S the start, F the finish of a job,

    F(a_k) <= S(a_k+1),      number of a_k = k,      read version <= updates made by S(a_k)

and the job that the worker still does when the trace ends starts no earlier than the last of them
ends, and no later than the trace ends.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from asyncjax.checks import instance, shown, whole
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs, Reuse

LARGEST = 2**31 - 1  # the fields are int32
_ROUNDING = 64  # digits of the last place: what it costs to add up thousands of rounds
_KINDS = {"integers": "iu", "booleans": "b", "real numbers": "iuf"}
_KIND_OF = dict.fromkeys(
    ("worker", "job", "read_version", "version", "arrival", "first", "last"), "integers"
) | {"used": "booleans", "steps": "booleans"}  # the rest are real numbers
_PARTS = {"open_jobs": OpenJobs, "cancelled": CancelledJobs, "reuse": Reuse}


def validate(trace: EventTrace) -> EventTrace:
    """Checks a trace and returns it.

    Whatever follows from the rest of a trace is checked. With E arrivals of T updates:

    - *Kinds.* Columns are arrays without further axes, of integers, booleans or real numbers; those
      of the arrivals are equally long and not empty, those of a part (`open_jobs`, `cancelled`,
      `reuse`) too. `n_workers` is an integer of 1 .. 2^31 - 1.
    - *Times* are finite, at least 0 and do not decrease.
    - *Versions.* `version` is the number of steps before; `read_version` is in 0 .. version and, if
      starts are recorded, no more than the number of updates made by the start.
    - *Steps.* Between two of them, and before the first, at least one gradient is used. A
      `step_time` lies between the arrival that the update counts with and the next one.
    - *Workers* are in 0 .. n_workers - 1. A worker does one job at a time: those that it delivered
      or that were cancelled, from start to finish, do not overlap, and the one that it still does
      begins after them.
    - *Jobs* of one worker rise from 0. If starts and cancelled jobs are recorded, none is missing;
      without starts, no more than were cancelled. (Where job = read_version = version throughout,
      jobs count rounds, in which a worker may get no work.)
    - *Weights* are finite, and 0 where a gradient is not used.
    - *Open jobs* are ordered by worker, read a version that was there when they started, and only
      the first of a worker has a start, which is not after the last arrival or update.
    - *Cancelled jobs* last from their start to a moment not after the last arrival or update (or
      finite, where an open job waits), and are listed in the order of these moments.
    - *Reuse.* Rows are ordered by arrival and first step, serve in steps of version .. T - 1, those
      of one arrival do not overlap; `used` says which arrivals have a row, `weight` is that of the
      first row, and every step is served by some row.

    Args:
        trace: A trace, made here or recorded elsewhere.

    Returns:
        The same trace. About a third of a second for a million arrivals, however many workers.

    Raises:
        TypeError: A column or part is of another kind, or traced.
        ValueError: Something of the above does not hold; names the field, the first bad place, its
            value and what is allowed.

    Note:
        What a trace does not say twice cannot be checked: a weight that is used (of rows of `reuse`
        beyond an arrival's first, too); which of two arrivals at one instant came first; an older
        version read than was; times, workers and rows that were changed so that all of the above
        still holds; jobs that a worker began after its last arrival; arrivals that made no step,
        where starts or cancelled jobs are not recorded or jobs count rounds. Rows of several
        arrivals of one worker may serve in one step, as `ringleader` has it. A server that takes
        time (`Service`, `live`) may stop jobs after its last arrival; those that begin in their
        place wait then, without a start.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=3)
        >>> traces.validate(trace) is trace
        True
        >>> traces.validate(trace._replace(weight=trace.weight * float("nan")))
        Traceback (most recent call last):
        ValueError: weight of arrival 0 is nan; weights must be finite
    """
    instance("trace", trace, EventTrace, "an EventTrace, as traces.asynchronous makes it")
    read = _read(trace)
    times = [column for column in (read.time, read.start) if column is not None]
    digits = max(np.finfo(t.dtype).eps if t.dtype.kind == "f" else 0.0 for t in times)
    slack = _ROUNDING * float(digits) * float(abs(read.time[-1]))
    _check_arrivals(read)
    if read.start is not None:
        _check_starts(read, read.start, slack)
    stated = read.n_workers or int(read.worker.max()) + 1
    if read.cancelled is not None:
        _check_cancelled(read, read.cancelled, stated)
    ranked, ended = _check_order(read, slack)
    if read.open_jobs is not None and len(read.open_jobs.worker):
        _check_open(read, read.open_jobs, stated, ranked, ended, slack)
    text = "weight of arrival {e} is {weight}; weights must be finite"
    refuse(~np.isfinite(read.weight), text, weight=read.weight)
    text = "weight of arrival {e} is {weight} but the gradient is not used: it must be 0"
    refuse(~read.used & (read.weight != 0), text, weight=read.weight)
    if read.reuse is not None:
        _check_reuse(read, read.reuse)
    return trace


def _read(trace: EventTrace) -> EventTrace:
    """The trace as NumPy arrays, integers as int64, with its `step_time`; refuses other kinds."""
    length = _column("time", trace.time).shape
    names = EventTrace._fields[: 8 if trace.start is None else 9]
    columns: dict[str, Any] = {name: _column(name, getattr(trace, name), length) for name in names}
    if length == (0,):
        raise ValueError("time is empty: a trace needs at least one arrival")
    if trace.n_workers is not None:
        columns["n_workers"] = whole("n_workers", trace.n_workers, 1, LARGEST)
    made = columns["time"][columns["steps"]]
    if trace.step_time is not None:
        made = _column("step_time", trace.step_time, made.shape, "update")
    for name, kind in _PARTS.items():
        if (part := getattr(trace, name)) is None:
            continue
        instance(name, part, kind, f"of type {kind.__name__} or None")
        read = kind(*(_column(f"{name}.{field}", part[i]) for i, field in enumerate(part._fields)))
        for field, column in read._asdict().items():
            if column.shape != read[0].shape:
                raise ValueError(
                    f"{name}.{field} must have shape {read[0].shape}, as long as"
                    f" {name}.{part._fields[0]}, got {column.shape}"
                )
        columns[name] = read
    return trace._replace(**columns, step_time=made)


def _column(
    name: str, values: Any, shape: tuple[int, ...] | None = None, entry: str = "arrival as in time"
) -> np.ndarray:
    """One column as a NumPy array; integers as int64. A shape of None: of any length."""
    if isinstance(values, Tracer):
        raise TypeError(
            f"{name} must be a concrete array, got a traced one: a trace is checked outside jit"
            " and vmap"
        )
    kind = _KIND_OF.get(name.split(".")[-1], "real numbers")
    if not isinstance(values, np.ndarray | jax.Array):
        raise TypeError(f"{name} must be an array of {kind}, got {shown(values)}")
    if shape is None and values.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {values.shape}")
    if shape is not None and values.shape != shape:
        raise ValueError(
            f"{name} must have shape {shape}, one entry an {entry}, got {values.shape}"
        )
    if values.dtype.kind not in _KINDS[kind]:
        raise ValueError(f"{name} must be {kind}, got dtype {values.dtype}")
    column = np.asarray(values)
    return column.astype(np.int64, copy=False) if kind == "integers" else column


def _was_there(version: np.ndarray, moment: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """Whether so many updates were made by each moment, bool[...], without a search a moment."""
    updates = np.concatenate([[-np.inf], updates, [np.inf]])
    made = updates[np.clip(version, 0, len(updates) - 1)]
    return (made <= moment) & (version < len(updates) - 1)


def refuse(bad: np.ndarray, message: str, **values: Any) -> None:
    """Raises a `ValueError` for the first True of `bad`; `message` names it `e`, and its values."""
    if bad.any():
        e = int(np.argmax(bad))
        at = {k: v[e] if isinstance(v, np.ndarray) else v for k, v in values.items()}
        raise ValueError(message.format(e=e, **at))


def _falls(column: np.ndarray) -> np.ndarray:
    """Which entries are less than the one before, bool[K]."""
    return np.append(False, column[1:] < column[:-1])


def _check_arrivals(arrivals: EventTrace) -> None:
    """Checks times, versions, steps and workers."""
    time, version, read = arrivals.time, arrivals.version, arrivals.read_version
    steps, used = arrivals.steps, arrivals.used
    text = "time of arrival {e} is {time}; times must be finite and at least 0"
    refuse(~np.isfinite(time) | (time < 0), text, time=time)
    text = "time of arrival {e} is {time}, before the arrival ahead of it; times must not decrease"
    refuse(_falls(time), text, time=time)
    text = "read_version of arrival {e} is {read}; versions start at 0"
    refuse(read < 0, text, read=read)
    text = "read_version of arrival {e} is {read} but the server holds version {version}: it reads"
    refuse(read > version, text + " the future", read=read, version=version)
    expected = np.cumsum(steps) - steps
    text = "version of arrival {e} is {version} but {expected} updates were made before it"
    refuse(version != expected, text, version=version, expected=expected)
    if not used.all():
        check_steps(used, steps)
    made, least = arrivals.update_time, time[steps]
    most = np.append(time[1:], np.inf)[steps]
    wrong = ~np.isfinite(made) | (made < least) | (made > most)
    text = "step_time of update {e} is {made}; allowed are times from its last arrival, {least}, to"
    refuse(wrong, text + " the next one, {most}", made=made, least=least, most=most)
    _check_workers("worker of arrival {e} is {worker}", arrivals.worker, arrivals.n_workers)


def _check_starts(arrivals: EventTrace, start: np.ndarray, slack: float) -> None:
    """Checks when jobs began, and that what they read was there."""
    time, read = arrivals.time, arrivals.read_version
    text = "start of arrival {e} is {start}; starts must be finite and at least 0"
    refuse(~np.isfinite(start) | (start < 0), text, start=start)
    text = "start of arrival {e} is {start}, after its time {time}; a job starts before it is"
    refuse(start > time, text + " delivered", start=start, time=time)
    updates = arrivals.update_time
    if not _was_there(read, start + slack, updates).all():
        made = np.searchsorted(updates, start + slack, side="right")
        text = "read_version of arrival {e} is {read} but only {made} updates were made when its"
        text += " job started, at {start}: it reads the future"
        refuse(read > made, text, read=read, made=made, start=start)


def check_steps(used: np.ndarray, steps: np.ndarray, whose: str = "") -> None:
    """Refuses a step without a newly arrived gradient: `used` bool[E], `steps` bool[E]."""
    count = np.concatenate([[0], np.cumsum(used)])
    ends = np.flatnonzero(steps)
    empty = np.zeros(len(steps), bool)
    empty[ends] = np.diff(np.concatenate([[0], count[ends + 1]])) == 0
    text = "steps{whose} of arrival {e} is True but no gradient was used since the step before it:"
    text += " every step needs a newly arrived gradient that serves, also where others serve again"
    refuse(empty, text, whose=whose)


def _check_workers(head: str, worker: np.ndarray, n_workers: int | None) -> None:
    most = LARGEST if n_workers is None else n_workers
    stated = "" if n_workers is None else f" but n_workers is {n_workers}"
    refuse(worker < 0, head + "; workers are numbered from 0", worker=worker)
    refuse(worker >= most, f"{head}{stated}; allowed are 0..{most - 1}", worker=worker)


def _check_cancelled(arrivals: EventTrace, jobs: CancelledJobs, n_workers: int) -> None:
    """Checks the cancelled jobs.

    Where an open job waits, it may have come in the place of one that was stopped after the end, by
    a server that takes time.
    """
    (worker, start, time), end = jobs, arrivals.end
    waits = arrivals.open_jobs is not None and bool(np.isnan(arrivals.open_jobs.start).any())
    _check_workers("cancelled.worker of job {e} is {worker}", worker, n_workers)
    text = "cancelled.start of job {e} is {start}; starts must be finite and at least 0"
    refuse(~np.isfinite(start) | (start < 0), text, start=start)
    text = "cancelled.time of job {e} is {time}; allowed are its start {start} to the last arrival"
    text += " at {end}, or any finite time after it where an open job waits"
    fits = (start <= time) & (time < np.inf) & ((time <= end) | waits)
    refuse(~fits, text, time=time, start=start, end=end)
    text = "cancelled.time of job {e} is {time}, before the job ahead of it; jobs are listed in the"
    refuse(_falls(time), text + " order in which they were stopped", time=time)


def by_worker(worker: np.ndarray) -> np.ndarray:
    """The order of arrivals by worker, those of one worker as they come.

    Sixteen bits at a time, which are sorted in linear time.
    """
    order = np.argsort(worker.astype(np.uint16), kind="stable")
    if worker.max(initial=0) >= 2**16:
        order = order[np.argsort((worker >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def _check_order(arrivals: EventTrace, slack: float) -> tuple[np.ndarray, np.ndarray]:
    """Checks that a worker does one job at a time, and the numbers of jobs.

    Gives worker and end of arrivals and cancelled jobs, by worker, then by start.
    """
    worker, start, time = arrivals.worker, arrivals.start, arrivals.time
    count, stopped = len(time), arrivals.cancelled
    if start is None or stopped is None or not len(stopped.worker):
        order = by_worker(worker)
    else:
        columns = zip((worker, start, time), stopped, strict=True)
        worker, start, time = (np.concatenate(pair) for pair in columns)
        narrow = worker.astype(np.uint16) if worker.max() < 2**16 else worker  # sorts faster
        order = np.lexsort((time, start, narrow))
    ranked, ended = worker[order], time[order]
    same = ranked[1:] == ranked[:-1]
    if start is not None:
        meets = same & (start[order[1:]] < ended[:-1] - slack)
        if meets.any():
            k = int(np.argmax(meets))
            name, place = "start of arrival", int(order[k + 1])
            if place >= count:
                name, place = "cancelled.start of job", place - count
            raise ValueError(
                f"{name} {place} is {start[order[k + 1]]}, but its worker {ranked[k]} is at the"
                f" job before it until {ended[k]}; a worker does one job at a time"
            )
    opens = np.arange(len(order))  # where in `order` the jobs of this worker begin
    opens[1:][same] = 0
    before = np.empty(len(order), np.int64)  # jobs of the worker that are listed and began before
    before[order] = np.arange(len(order)) - np.maximum.accumulate(opens)
    _check_numbers(arrivals, before[:count], order[order < count])
    return ranked, ended


def _check_numbers(arrivals: EventTrace, least: np.ndarray, order: np.ndarray) -> None:
    """Checks the numbers of jobs, `least` of which were before; `order` of arrivals by worker."""
    job, worker, start, stopped = arrivals.job, arrivals.worker, arrivals.start, arrivals.cancelled
    if stopped is not None and start is not None and (job == least).all():
        return
    stalls = np.zeros(len(job), bool)
    later, earlier = order[1:], order[:-1]
    stalls[later] = (worker[later] == worker[earlier]) & (job[later] <= job[earlier])
    text = "job of arrival {e} is {job}; the jobs of one worker must rise from 0, to {most} at most"
    refuse(stalls | (job < 0) | (job > LARGEST), text, job=job, most=LARGEST)
    in_rounds = np.all(job == arrivals.version) and np.all(arrivals.read_version == job)
    if stopped is None or in_rounds:  # a worker may get no work in a round
        return
    most, wrong = least, job != least
    if start is None:  # when the cancelled ones began is not known
        most = least + np.bincount(stopped.worker, minlength=int(worker.max()) + 1)[worker]
        wrong = (job < least) | (job > most)
    else:
        wrong &= start < arrivals.time  # those of no duration have no order
    text = "job of arrival {e} is {job} but its worker had {least} to {most} jobs before it,"
    text += " delivered or cancelled: one is missing, or is there twice"
    refuse(wrong, text, job=job, least=least, most=most)


def _check_open(
    arrivals: EventTrace,
    jobs: OpenJobs,
    n_workers: int,
    ranked: np.ndarray,
    ended: np.ndarray,
    slack: float,
) -> None:
    """Checks the open jobs; `ranked`, `ended`: the jobs before them, by worker, then by start."""
    (worker, read, start), end = jobs, arrivals.end
    _check_workers("open_jobs.worker of job {e} is {worker}", worker, n_workers)
    text = "open_jobs.worker of job {e} is {worker}, less than that of the job before it; open jobs"
    refuse(_falls(worker), text + " are ordered by worker", worker=worker)
    waits = np.isnan(start)
    behind = np.append(False, ~waits[1:] & (worker[1:] == worker[:-1]))
    text = "open_jobs.start of job {e} is {start}, but its worker has an open job ahead of it: it"
    refuse(behind, text + " must wait, with start NaN", start=start)
    place = np.searchsorted(ranked, worker, side="right") - 1
    last = np.where(ranked[place] == worker, ended[place], 0.0)
    text = (
        "open_jobs.start of job {e} is {start}; allowed is NaN, for a job that waits, or a finite"
    )
    text += " time from {last}, when its worker ended its last job, to the trace's end, {end}"
    began = waits | ((start >= last - slack) & (start <= end + slack))
    refuse(~began, text, start=start, last=last, end=end)
    begins, updates = np.where(waits, np.inf, start) + slack, arrivals.update_time
    late = (read < 0) | ~_was_there(read, begins, updates)
    if late.any():
        text = "open_jobs.read_version of job {e} is {read}; allowed are 0..{made}, the updates"
        text += " made when it started or, if it waits, by the end"
        refuse(late, text, read=read, made=np.searchsorted(updates, begins, side="right"))


def _check_reuse(arrivals: EventTrace, reuse: Reuse) -> None:
    arrival, first, last, weight = reuse
    n_updates, used = arrivals.n_updates, arrivals.used
    text = "reuse row {e} names arrival {arrival}; allowed are 0..{most}"
    outside = (arrival < 0) | (arrival >= len(used))
    refuse(outside, text, arrival=arrival, most=len(used) - 1)
    text = "reuse row {e} has weight {weight}; weights must be finite"
    refuse(~np.isfinite(weight), text, weight=weight)
    least, most = arrivals.version[arrival], n_updates - 1
    text = "reuse row {e} serves in steps {first}..{last}; allowed are {least}..{most}, from its"
    text += " arrival's version to the last"
    wrong = (first < least) | (last < first) | (last > most)
    refuse(wrong, text, first=first, last=last, least=least, most=most)
    again = np.zeros(len(arrival), bool)
    again[1:] = arrival[1:] == arrival[:-1]
    meets = _falls(arrival)[: len(arrival)]
    meets[1:] |= again[1:] & (first[1:] <= last[:-1])
    text = (
        "reuse row {e} is out of order or overlaps the row before it; rows are ordered by arrival"
    )
    refuse(meets, text + " and then by first step")
    serves = np.zeros(len(used), bool)
    serves[arrival] = True
    refuse(serves != used, "used of arrival {e} is {used} but reuse says otherwise", used=used)
    stated = arrivals.weight[arrival]
    text = "weight of arrival {arrival} is {stated} but its first row of reuse, row {e}, has"
    text += " {weight}; the two must be equal"
    differs = ~again & (stated != weight)
    refuse(differs, text, arrival=arrival, stated=stated, weight=weight)
    serving = np.cumsum(np.bincount(first, minlength=n_updates + 1))
    serving -= np.cumsum(np.bincount(last + 1, minlength=n_updates + 1))
    refuse(serving[:n_updates] == 0, "reuse has no row that serves in step {e}")
