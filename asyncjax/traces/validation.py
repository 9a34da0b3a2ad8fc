"""Checks that a trace could have happened: kinds, lengths, order, causality, versions, weights."""

from __future__ import annotations

import numpy as np

from asyncjax.checks import shown
from asyncjax.traces.event_trace import EventTrace, Reuse
from asyncjax.traces.job_checks import check_jobs
from asyncjax.traces.trace_columns import Columns, arrival_columns, read_part, refuse


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
        TypeError: `trace` is no EventTrace, a part of it none, a column no array (or traced), or
            `n_workers` no integer.
        ValueError: Something of the above does not hold; names the field, the first bad place, its
            value and what is allowed.

    Note:
        What a trace does not say twice cannot be checked: a weight that is used (of rows of `reuse`
        beyond an arrival's first, too), since a rule may weigh as it likes, and codes of gradients
        have factors below 0; which of two arrivals at one instant came first; an older version read
        than was; times, workers and rows that were changed so that all of the above still holds.
        Nor can it be seen that jobs of a worker are missing which it began after its last arrival
        that is there; that any arrival is missing that made no step, where starts or cancelled jobs
        are not recorded or jobs count rounds. Rows of several arrivals of one worker may serve in
        one step, as `ringleader` has it. A server that takes time (`Service`, `live`) may stop jobs
        after its last arrival; those that begin in their place wait then, without a start.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=3)
        >>> traces.validate(trace) is trace
        True
        >>> traces.validate(trace._replace(weight=trace.weight * float("nan")))
        Traceback (most recent call last):
        ValueError: weight of arrival 0 is nan; weights must be finite
    """
    check_kind(trace)
    arrivals = arrival_columns(trace)
    _check_times(arrivals.time)
    _check_versions(arrivals)
    if trace.step_time is not None:
        _check_step_times(arrivals)
    check_jobs(trace, arrivals)
    _check_weights(arrivals)
    if trace.reuse is not None:
        _check_reuse(trace.reuse, arrivals)
    return trace


def check_kind(trace: object) -> None:
    """Refuses what is no trace."""
    if not isinstance(trace, EventTrace):
        raise TypeError(
            f"trace must be an EventTrace, as traces.asynchronous makes it, got {shown(trace)}"
        )


def _check_times(time: np.ndarray) -> None:
    if time[0] >= 0 and time[-1] < np.inf and (time[1:] >= time[:-1]).all():
        return
    refuse(
        ~np.isfinite(time) | (time < 0),
        "time of arrival {e} is {time}; times must be finite and at least 0",
        time=time,
    )
    refuse(
        np.append(False, time[1:] < time[:-1]),
        "time of arrival {e} is {time}, before the arrival ahead of it; times must not decrease",
        time=time,
    )


def _check_step_times(arrivals: Columns) -> None:
    made, least = arrivals.step_time, arrivals.time[arrivals.steps]
    most = np.append(arrivals.time[1:], np.inf)[arrivals.steps]
    refuse(
        ~np.isfinite(made) | (made < least) | (made > most),
        "step_time of update {e} is {made}; allowed are times from its last arrival, {least}, to"
        " the next one, {most}",
        made=made,
        least=least,
        most=most,
    )


def _check_versions(arrivals: Columns) -> None:
    read, version, steps = arrivals.read_version, arrivals.version, arrivals.steps
    expected = np.cumsum(steps) - steps
    if not ((read >= 0) & (read <= version) & (version == expected)).all():
        refuse(read < 0, "read_version of arrival {e} is {read}; versions start at 0", read=read)
        refuse(
            read > version,
            "read_version of arrival {e} is {read} but the server holds version {version}: it reads"
            " the future",
            read=read,
            version=version,
        )
        refuse(
            version != expected,
            "version of arrival {e} is {version} but {expected} updates were made before it",
            version=version,
            expected=expected,
        )
    if not arrivals.used.all():
        check_steps(arrivals.used, steps)


def check_steps(used: np.ndarray, steps: np.ndarray, whose: str = "") -> None:
    """Refuses a step without a newly arrived gradient: `used` bool[E], `steps` bool[E]."""
    count = np.concatenate([[0], np.cumsum(used)])
    ends = np.flatnonzero(steps)
    empty = np.zeros(len(steps), bool)
    empty[ends] = np.diff(np.concatenate([[0], count[ends + 1]])) == 0
    refuse(
        empty,
        f"steps{whose} of arrival {{e}} is True but no gradient was used since the step before it:"
        " every step needs a newly arrived gradient that serves, also where others serve again",
    )


def _check_weights(arrivals: Columns) -> None:
    weight = arrivals.weight
    refuse(
        ~np.isfinite(weight),
        "weight of arrival {e} is {weight}; weights must be finite",
        weight=weight,
    )
    if arrivals.used.all():
        return
    refuse(
        ~arrivals.used & (weight != 0),
        "weight of arrival {e} is {weight} but the gradient is not used: it must be 0",
        weight=weight,
    )


def _check_reuse(reuse: Reuse, arrivals: Columns) -> None:
    kinds = ("integers", "integers", "integers", "real numbers")
    arrival, first, last, weight = read_part("reuse", reuse, Reuse, kinds)
    n_updates, used = int(np.count_nonzero(arrivals.steps)), arrivals.used
    outside = (arrival < 0) | (arrival >= len(used))
    text = f"reuse row {{e}} names arrival {{arrival}}; allowed are 0..{len(used) - 1}"
    refuse(outside, text, arrival=arrival)
    refuse(
        ~np.isfinite(weight),
        "reuse row {e} has weight {weight}; weights must be finite",
        weight=weight,
    )
    wrong = (first < arrivals.version[arrival]) | (last < first) | (last >= n_updates)
    text = "reuse row {e} serves in steps {first}..{last}; allowed are {least}..{most}, from its"
    text += " arrival's version to the last"
    ends = {"least": arrivals.version[arrival], "most": np.full(len(first), n_updates - 1)}
    refuse(wrong, text, first=first, last=last, **ends)
    again = np.append(False, arrival[1:] == arrival[:-1])[: len(arrival)]
    meets = np.zeros(len(arrival), bool)
    meets[1:] = (arrival[1:] < arrival[:-1]) | (again[1:] & (first[1:] <= last[:-1]))
    refuse(
        meets,
        "reuse row {e} is out of order or overlaps the row before it; rows are ordered by arrival"
        " and then by first step",
    )
    serves = np.zeros(len(used), bool)
    serves[arrival] = True
    refuse(serves != used, "used of arrival {e} is {used} but reuse says otherwise", used=used)
    stated = arrivals.weight[arrival]
    refuse(
        ~again & (stated != weight),
        "weight of arrival {arrival} is {stated} but its first row of reuse, row {e}, has {weight};"
        " the two must be equal",
        arrival=arrival,
        stated=stated,
        weight=weight,
    )
    serving = np.cumsum(np.bincount(first, minlength=n_updates + 1))
    serving -= np.cumsum(np.bincount(last + 1, minlength=n_updates + 1))
    refuse(serving[:n_updates] == 0, "reuse has no row that serves in step {e}")
