"""Checks that a trace could have happened: lengths, order, causality, versions, weights.

A worker does one job at a time, and every job counts. With a_0, a_1, ... the jobs of a worker in
the order of start, delivered or cancelled, and S the start, F the finish of a job,

    F(a_k) <= S(a_k+1),      number of a_k = k,      read version <= updates made by S(a_k)

and the job that the worker still does when the trace ends starts no earlier than the last of them
ends, and no later than the trace ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncjax.checks import whole
from asyncjax.traces.event_trace import (
    PARTS,
    CancelledJobs,
    EventTrace,
    OpenJobs,
    Reuse,
    by_worker,
)

LARGEST = 2**31 - 1  # the fields are int32
_ROUNDING = 64  # digits of the last place: what it costs to add up thousands of rounds
_KINDS = {"integers": "iu", "booleans": "b", "real numbers": "iuf"}
_KIND_OF = dict.fromkeys(
    ("worker", "job", "read_version", "version", "delay", "arrival", "first", "last"), "integers"
) | {"used": "booleans", "steps": "booleans"}  # the rest are real numbers


def validate(trace: EventTrace) -> EventTrace:
    """Checks a trace and returns it.

    Whatever follows from the rest of a trace is checked. With E arrivals of T updates:

    - *Columns* have one axis, of integers, booleans or real numbers; those of the arrivals are
      equally long and not empty, those of a part (`open_jobs`, `cancelled`, `reuse`) too.
      `n_workers` is an integer of 1 .. 2^31 - 1.
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
    weight = read.weight
    refuse(~np.isfinite(weight), "weight", weight, "; weights must be finite")
    text = " but the gradient is not used: it must be 0"
    refuse(~read.used & (weight != 0), "weight", weight, text)
    if read.reuse is not None:
        _check_reuse(read, read.reuse)
    return trace


def _read(trace: EventTrace) -> EventTrace:
    """The trace as NumPy arrays, integers as int64, with its `step_time`."""
    time = read_column("time", trace.time)
    if not len(time):
        raise ValueError("time is empty: a trace needs at least one arrival")
    names = EventTrace._fields[: 8 if trace.start is None else 9]
    entry = "one entry an arrival as in time"
    columns: dict[str, Any] = {
        name: read_column(name, getattr(trace, name), time.shape, entry) for name in names
    }
    if trace.n_workers is not None:
        columns["n_workers"] = whole("n_workers", trace.n_workers, 1, LARGEST)
    moments = time[columns["steps"]]
    if trace.step_time is not None:
        moments = read_column("step_time", trace.step_time, moments.shape, "one entry an update")
    parts = {name: getattr(trace, name) for name in PARTS}
    columns |= {name: read_part(name, part) for name, part in parts.items() if part is not None}
    return trace._replace(**columns, step_time=moments)


def read_part(name: str, part: Any) -> Any:
    """A part of a trace as NumPy arrays of one length, integers as int64."""
    first, *rest = PARTS[name]._fields
    columns = [read_column(f"{name}.{first}", getattr(part, first))]
    shape, entry = columns[0].shape, f"as long as {name}.{first}"
    columns += [
        read_column(f"{name}.{field}", getattr(part, field), shape, entry) for field in rest
    ]
    return PARTS[name](*columns)


def read_column(
    name: str, values: Any, shape: tuple[int, ...] | None = None, entry: str = ""
) -> np.ndarray:
    """One column as a NumPy array; integers as int64. A shape of None: of any length."""
    column, kind = np.asarray(values), _KIND_OF.get(name.split(".")[-1], "real numbers")
    if shape is None and column.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {column.shape}")
    if shape not in (None, column.shape):
        raise ValueError(f"{name} must have shape {shape}, {entry}, got {column.shape}")
    if column.dtype.kind not in _KINDS[kind]:
        raise ValueError(f"{name} must be {kind}, got dtype {column.dtype}")
    return column.astype(np.int64, copy=False) if kind == "integers" else column


def _was_there(version: np.ndarray, moment: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """Whether so many updates were made by each moment, bool[...], without a search a moment."""
    updates = np.concatenate([[-np.inf], updates, [np.inf]])
    time = updates[np.clip(version, 0, len(updates) - 1)]
    return (time <= moment) & (version < len(updates) - 1)


def refuse_first(bad: np.ndarray, text: str, *values: Any) -> None:
    """Raises a `ValueError` for the first True of `bad`, with its number `e` and its values."""
    if bad.any():
        e = int(np.argmax(bad))
        at = [v[e] if isinstance(v, np.ndarray) else v(e) if callable(v) else v for v in values]
        raise ValueError(text.format(*at, e=e))


def refuse(bad: np.ndarray, name: str, column: np.ndarray, text: str, *values: Any) -> None:
    """As `refuse_first`, of a column; `text` goes on after its entry."""
    of = "job" if "." in name else "update" if name == "step_time" else "arrival"
    refuse_first(bad, "{} of {} {e} is {}" + text, name, of, column, *values)


def _falls(column: np.ndarray) -> np.ndarray:
    """Which entries are less than the one before, bool[K]."""
    return np.append(False, column[1:] < column[:-1])


def _check_moments(name: str, column: np.ndarray) -> None:
    wrong, what = ~np.isfinite(column) | (column < 0), name.split(".")[-1]
    refuse(wrong, name, column, f"; {what}s must be finite and at least 0")


def _check_workers(name: str, worker: np.ndarray, n_workers: int | None) -> None:
    most = LARGEST if n_workers is None else n_workers
    stated = "" if n_workers is None else f" but n_workers is {n_workers}"
    refuse(worker < 0, name, worker, "; workers are numbered from 0")
    refuse(worker >= most, name, worker, f"{stated}; allowed are 0..{most - 1}")


def _check_arrivals(arrivals: EventTrace) -> None:
    """Checks times, versions, steps and workers."""
    time, version, read = arrivals.time, arrivals.version, arrivals.read_version
    _check_moments("time", time)
    refuse(_falls(time), "time", time, ", before the arrival ahead of it; times must not decrease")
    refuse(read < 0, "read_version", read, "; versions start at 0")
    text = " but the server holds version {}: it reads the future"
    refuse(read > version, "read_version", read, text, version)
    updates = np.cumsum(arrivals.steps) - arrivals.steps
    refuse(version != updates, "version", version, " but {} updates were made before it", updates)
    check_steps(arrivals.used, arrivals.steps)
    moments, least = arrivals.update_time, time[arrivals.steps]
    most = np.append(time[1:], np.inf)[arrivals.steps]
    wrong = ~np.isfinite(moments) | (moments < least) | (moments > most)
    text = "; allowed are times from its last arrival, {}, to the next one, {}"
    refuse(wrong, "step_time", moments, text, least, most)
    _check_workers("worker", arrivals.worker, arrivals.n_workers)


def check_steps(used: np.ndarray, steps: np.ndarray) -> None:
    """Refuses a step without a newly arrived gradient: `used` bool[E], `steps` bool[E]."""
    count, empty = np.cumsum(used), np.zeros(len(steps), bool)
    empty[steps] = np.diff(count[steps], prepend=0) == 0
    text = " but no gradient was used since the step before it: every step needs a newly arrived"
    text += " gradient that serves, also where others serve again"
    refuse(empty, "steps", steps, text)


def _check_starts(arrivals: EventTrace, start: np.ndarray, slack: float) -> None:
    """Checks when jobs began, and that what they read was there."""
    time, read, updates = arrivals.time, arrivals.read_version, arrivals.update_time
    _check_moments("start", start)
    text = ", after its time {}; a job starts before it is delivered"
    refuse(start > time, "start", start, text, time)
    text = " but only {} updates were made when its job started, at {}: it reads the future"
    early = ~_was_there(read, start + slack, updates)
    refuse(early, "read_version", read, text, _count_by(updates, start + slack), start)


def _count_by(updates: np.ndarray, moment: np.ndarray) -> Callable[[int], int]:
    """How many updates were made by each moment, when asked."""
    return lambda e: int(np.searchsorted(updates, moment[e], side="right"))


def _check_cancelled(arrivals: EventTrace, jobs: CancelledJobs, n_workers: int) -> None:
    """Checks the cancelled jobs.

    Where an open job waits, it may have come in the place of one that was stopped after the end, by
    a server that takes time.
    """
    (worker, start, time), end = jobs, arrivals.end
    waits = arrivals.open_jobs is not None and bool(np.isnan(arrivals.open_jobs.start).any())
    _check_workers("cancelled.worker", worker, n_workers)
    _check_moments("cancelled.start", start)
    text = "; allowed are its start {} to the last arrival at {}, or any finite time after it where"
    fits = (start <= time) & (time < np.inf) & ((time <= end) | waits)
    refuse(~fits, "cancelled.time", time, text + " an open job waits", start, end)
    text = ", before the job ahead of it; jobs are listed in the order in which they were stopped"
    refuse(_falls(time), "cancelled.time", time, text)


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
    ranked, ended, place = worker[order], time[order], np.arange(len(order))
    is_first = np.append(True, ranked[1:] != ranked[:-1])
    before = np.empty(len(order), np.int64)  # jobs of the worker that are listed and began before
    before[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    if start is not None:
        until = np.empty(len(order))  # when the job before it ended
        until[order] = np.append(0.0, ended[:-1])
        meets = (before > 0) & (start < until - slack)
        text = ", but its worker {} is at the job before it until {}; a worker does one job at a"
        for name, part in (("start", slice(count)), ("cancelled.start", slice(count, None))):
            values = worker[part], until[part]
            refuse(meets[part], name, start[part], text + " time", *values)
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
    text = f"; the jobs of one worker must rise from 0, to {LARGEST} at most"
    refuse(stalls | (job < 0) | (job > LARGEST), "job", job, text)
    in_rounds = np.all(job == arrivals.version) and np.all(arrivals.read_version == job)
    if stopped is None or in_rounds:  # a worker may get no work in a round
        return
    most, wrong = least, job != least
    if start is None:  # when the cancelled ones began is not known
        most = least + np.bincount(stopped.worker, minlength=int(worker.max()) + 1)[worker]
        wrong = (job < least) | (job > most)
    else:
        wrong &= start < arrivals.time  # those of no duration have no order
    text = " but its worker had {} to {} jobs before it, delivered or cancelled: one is missing, or"
    refuse(wrong, "job", job, text + " is there twice", least, most)


def _check_open(
    arrivals: EventTrace,
    jobs: OpenJobs,
    n_workers: int,
    ranked: np.ndarray,
    ended: np.ndarray,
    slack: float,
) -> None:
    """Checks the open jobs; `ranked`, `ended`: the jobs before them, by worker, then by start."""
    (worker, read, start), end, updates = jobs, arrivals.end, arrivals.update_time
    _check_workers("open_jobs.worker", worker, n_workers)
    text = ", less than that of the job before it; open jobs are ordered by worker"
    refuse(_falls(worker), "open_jobs.worker", worker, text)
    waits = np.isnan(start)
    behind = np.append(False, ~waits[1:] & (worker[1:] == worker[:-1]))
    text = ", but its worker has an open job ahead of it: it must wait, with start NaN"
    refuse(behind, "open_jobs.start", start, text)
    place = np.searchsorted(ranked, worker, side="right") - 1
    last = np.where(ranked[place] == worker, ended[place], 0.0)
    began = waits | ((start >= last - slack) & (start <= end + slack))
    text = "; allowed is NaN, for a job that waits, or a finite time from {}, when its worker ended"
    refuse(
        ~began, "open_jobs.start", start, text + " its last job, to the trace's end, {}", last, end
    )
    begins = np.where(waits, np.inf, start) + slack
    late = (read < 0) | ~_was_there(read, begins, updates)
    text = "; allowed are 0..{}, the updates made when it started or, if it waits, by the end"
    refuse(late, "open_jobs.read_version", read, text, _count_by(updates, begins))


def check_rows(rows: Reuse, version: np.ndarray, n_updates: int) -> None:
    """Checks rows of `reuse`; `version` int[E], of the arrivals."""
    arrival, first, last, weight = rows
    text = f"reuse row {{e}} names arrival {{}}; allowed are 0..{len(version) - 1}"
    refuse_first((arrival < 0) | (arrival >= len(version)), text, arrival)
    text = "reuse row {e} has weight {}; weights must be finite"
    refuse_first(~np.isfinite(weight), text, weight)
    wrong = (first < version[arrival]) | (last < first) | (last >= n_updates)
    text = "reuse row {e} serves in steps {}..{}; allowed are {}..{}, from its arrival's version to"
    refuse_first(wrong, text + " the last", first, last, version[arrival], n_updates - 1)
    again = np.append(False, arrival[1:] == arrival[:-1])[: len(arrival)]
    meets = _falls(arrival)[: len(arrival)]
    meets[1:] |= again[1:] & (first[1:] <= last[:-1])
    text = "reuse row {e} is out of order or overlaps the row before it; rows are ordered by"
    refuse_first(meets, text + " arrival and then by first step")


def _check_reuse(arrivals: EventTrace, reuse: Reuse) -> None:
    (arrival, first, last, weight), used = reuse, arrivals.used
    n_updates = arrivals.n_updates
    check_rows(reuse, arrivals.version, n_updates)
    serves = np.zeros(len(used), bool)
    serves[arrival] = True
    refuse(serves != used, "used", used, " but reuse says otherwise")
    stated = arrivals.weight[arrival]
    text = "weight of arrival {} is {} but its first row of reuse, row {e}, has {}; the two must be"
    is_first = np.append(True, arrival[1:] != arrival[:-1])[: len(arrival)]
    refuse_first(is_first & (stated != weight), text + " equal", arrival, stated, weight)
    serving = np.cumsum(np.bincount(first, minlength=n_updates + 1))
    serving -= np.cumsum(np.bincount(last + 1, minlength=n_updates + 1))
    refuse_first(serving[:n_updates] == 0, "reuse has no row that serves in step {e}")
