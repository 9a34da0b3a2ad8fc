"""Traces from logs of real runs, of the delay of every gradient in the order of their use.

    read_version_k = version_k - delay_k,     version_k = k where every gradient makes an update

When jobs began follows, where it is known who delivered and when. With p the arrival of the same
worker before k, and U(v) the time of update v,

    start_k = max(time_p, U(read_version_k - 1))

since a job begins when its worker is free and the model is there that it reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncjax.traces.event_trace import EventTrace, by_worker
from asyncjax.traces.validation import read_column, refuse_first, validate


def from_delays(
    delay: Any,
    *,
    worker: Any = None,
    time: Any = None,
    n_workers: int | None = None,
    version: Any = None,
) -> EventTrace:
    """Makes the trace of a run from the delays of its gradients.

    This is how a log of one's own run enters: let the server keep a counter of its updates, and
    write down, for every gradient, (worker, read_version, version): the counter when the worker
    read the model and when its gradient was applied, before the update that it is part of. In the
    order in which they were applied, `delay = version - read_version`.

    Of a server that collects several gradients for an update (FedBuff, Rennala), give `version`
    too. Then the gradients with one version make one update, each with an equal share of it, right
    after the last of them; leave out those that no update has taken when the log ends.

    Args:
        delay: int[K], delay of gradient k = 0, 1, ..., in updates: 0 to k, or to `version[k]`.
        worker: int[K], who computed it, from 0; None: worker 0 all.
        time: float[K], when it was applied, at least 0, not decreasing, time units; None: k + 1.
        n_workers: Number of workers; None: one more than the largest index.
        version: int[K], number of updates before the one that takes gradient k: begins with 0 and
            goes on by 0 or 1. None: k.

    Returns:
        A valid trace; jobs are numbered by worker, in the order of arrival. `start` is there where
        `worker` and `time` are given and starts follow from them: None where several gradients make
        an update and workers are given jobs neither as they deliver nor at updates.

    Note:
        For PIAG give the true workers, since its table has a row for each. Starts suppose that a
        worker did no job beside those of the log: where jobs were thrown away or stopped they are
        the earliest that can be. Jobs that are not back when the log ends count as idle time in
        `summarize`.

    Example:
        >>> import numpy as np
        >>> from asyncjax import traces
        >>> worker, read_version, version = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 2], [0, 2, 3]]).T
        >>> trace = traces.from_delays(version - read_version, worker=worker)
        >>> trace.delay, trace.job
        (array([0, 0, 2, 1], dtype=int32), array([0, 1, 0, 2], dtype=int32))
        >>> traces.from_delays([0, 3])
        Traceback (most recent call last):
        ValueError: delay of update 1 is 3; allowed are 0..1: none is older than version 0

        With the times, starts follow: worker 1 began his second job at update 1, which he read.

        >>> trace = traces.from_delays([0, 1, 0], worker=[0, 1, 1], time=[1.0, 2.0, 4.5])
        >>> trace.start, round(traces.summarize(trace).utilisation, 2)
        (array([0., 0., 2.]), 0.61)

        A server that takes two gradients for an update:

        >>> trace = traces.from_delays([0, 0, 1, 0], version=[0, 0, 1, 1])
        >>> trace.steps, trace.weight
        (array([False,  True, False,  True]), array([0.5, 0.5, 0.5, 0.5], dtype=float32))
    """
    delays = read_column("delay", delay)
    shape, entry = delays.shape, "one entry an update as in delay"
    workers = np.zeros(shape, np.int64)
    if worker is not None:
        workers = read_column("worker", worker, shape, entry)
    times = np.arange(1.0, len(delays) + 1)
    if time is not None:
        times = read_column("time", time, shape, entry)
    if version is None:
        versions, of = np.arange(len(delays)), "update"
    else:
        versions, of = read_column("version", version, shape, entry), "gradient"
        _check_versions(versions)
    text = f"delay of {of} {{e}} is {{}}; allowed are 0..{{}}: none is older than version 0"
    refuse_first((delays < 0) | (delays > versions), text, delays, versions)
    columns: dict[str, Any] = {"worker": workers, "read_version": versions - delays}
    columns |= {"version": versions, "time": times}
    trace = EventTrace(
        **columns,
        job=_jobs(workers),
        used=np.ones(shape, bool),
        steps=np.append(versions[1:] > versions[:-1], True),
        weight=(1.0 / np.bincount(versions)[versions]).astype(np.float32),
    )
    validate(trace._replace(n_workers=n_workers))
    columns = {name: column.astype(np.int32) for name, column in columns.items()}
    trace = trace._replace(**{**columns, "time": times.astype(np.float64)})
    if worker is not None and time is not None:
        trace = trace._replace(start=_starts(trace))
    return trace._replace(n_workers=int(workers.max()) + 1 if n_workers is None else n_workers)


def _starts(trace: EventTrace) -> np.ndarray | None:
    """When each job began, float64[K]; None where it does not follow."""
    order, updates = by_worker(trace.worker), np.cumsum(trace.steps)
    earlier, later = order[:-1], order[1:]
    again = trace.worker[earlier] == trace.worker[later]
    earlier, later = earlier[again], later[again]
    free = np.zeros(len(order))
    seen, follows = np.zeros((2, len(order)), np.int64)  # updates made when he was free; with his
    free[later], seen[later] = trace.time[earlier], updates[earlier]
    follows[later] = trace.version[earlier] + 1
    waited = trace.read_version > seen
    if not trace.steps.all() and waited.any() and (trace.read_version != follows).any():
        return None
    return np.maximum(free, np.append(0.0, trace.update_time)[trace.read_version])


def _check_versions(version: np.ndarray) -> None:
    """Refuses versions that do not begin with 0, fall, leave one out, or end within an update."""
    goes = np.diff(version, prepend=0)
    wrong = (goes < 0) | (goes > 1)
    wrong[0] = version[0] != 0
    text = "version of gradient {e} is {}; allowed {}: versions begin with 0 and go on by 0 or 1,"
    text += " since every update takes a gradient"
    refuse_first(
        wrong,
        text,
        version,
        lambda k: f"are {version[k - 1]} and {version[k - 1] + 1}" if k else "is 0",
    )
    *taken, last = np.bincount(version).tolist()
    if len(taken) > 1 and min(taken) == max(taken) > last:
        raise ValueError(
            f"version {version[-1]} has fewer gradients, {last}, than each before it, {taken[0]}:"
            " leave out those that no update has taken when the log ends"
        )


def _jobs(worker: np.ndarray) -> np.ndarray:
    """How many arrivals each worker had before, int32[K]."""
    order = np.argsort(worker, kind="stable")
    ranked = worker[order]
    job = np.empty(len(worker), np.int32)
    job[order] = np.arange(len(worker)) - np.searchsorted(ranked, ranked)
    return job
