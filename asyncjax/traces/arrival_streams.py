"""Traces of streams: where who arrives when does not depend on what the server does with it.

Without a gate, a timeout or jobs that are stopped, a rule that answers at once changes no time. So
all arrivals can be found first, whole arrays of them (`merge`, `listed`), and judged afterwards.
With s(e) the arrival in whose answer the job of arrival e read its model, and a(e) the version that
arrival e leaves behind,

    read_version(e) = a(s(e)),    0 for the jobs of time 0

A rule that steps at every b-th arrival is a formula, a(e) = floor((e + 1) / b); others are asked
one arrival at a time, in order, with no heap and no queue in between.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple, Protocol

import numpy as np

from asyncjax.traces.collection import Arrivals, Collection, Collector, Verdict, settled
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs
from asyncjax.traces.job_checks import by_worker
from asyncjax.traces.progress import Pace

_CHUNK = 16_384  # arrivals judged between two words on the progress
_SPARE = 1.1  # more arrivals than updates are looked for at first


class NoStreamError(Exception):
    """The arrivals are not what a stream is made for: the event loop has to find them."""


class Found(NamedTuple):
    """The first E arrivals, in order; no versions yet."""

    time: np.ndarray  # float64[E]
    worker: np.ndarray  # int32[E]
    job: np.ndarray  # int32[E]
    start: np.ndarray  # float64[E]
    source: np.ndarray  # int32[E], the arrival in whose answer its model was read, -1 for time 0


class Stream(Protocol):
    """All arrivals there will be, found in order, as many as asked for."""

    n_workers: int

    def first(self, n_arrivals: int, pace: Pace | None = None, *, exact: bool = True) -> Found:
        """The first arrivals; may be asked again, for more.

        Not `exact`: where there is an end, those up to it.
        """
        ...

    def open_jobs(self, found: Found, after: np.ndarray) -> OpenJobs:
        """The jobs not delivered after them; `after` int32[E], versions that arrivals hand out."""
        ...

    def cancelled_jobs(self, n_arrivals: int) -> CancelledJobs:
        """The jobs that were given up before the last of so many arrivals."""
        ...


def streamed(
    stream: Stream,
    collect: Collection,
    run: Collector | None,
    n_updates: int,
    pace: Pace | None = None,
) -> EventTrace:
    """The trace of a stream.

    A `run` of the rule judges the arrivals; None: every `collect.period`-th makes a step.
    """
    if run is None:
        period = np.int32(collect.period or 1)
        found = stream.first(n_updates * int(period), pace)
        place = np.arange(len(found.time), dtype=np.int32)
        after = (place + 1) // period
        version, used, steps = place // period, np.ones(len(place), bool), after * period
        steps = steps == place + 1
        handed = after
    else:
        found, handed, verdict = _judged(stream, collect, run, n_updates, pace)
        used, steps = verdict != Verdict.DROP, verdict == Verdict.STEP
        version = (np.cumsum(steps) - steps).astype(np.int32)
    read = np.where(found.source < 0, np.int32(0), handed[found.source])
    arrivals = Arrivals(found.worker, version - read, found.time, used, steps, stream.n_workers)
    if pace is not None:
        pace.end(found.time[-1])
    return EventTrace(
        time=found.time,
        worker=found.worker,
        job=found.job,
        read_version=read,
        version=version,
        start=found.start,
        n_workers=stream.n_workers,
        open_jobs=stream.open_jobs(found, handed),
        cancelled=stream.cancelled_jobs(len(read)),
        **settled(collect, arrivals),
    )


def none_cancelled() -> CancelledJobs:
    """No job was given up."""
    return CancelledJobs(np.zeros(0, np.int32), np.zeros(0), np.zeros(0))


def arrivals_before(worker: np.ndarray) -> np.ndarray:
    """For every arrival that of the same worker before it, -1 for the first; int64[E].

    Example:
        >>> arrivals_before(np.array([0, 1, 0, 0])).tolist()
        [-1, -1, 0, 2]
    """
    before = np.full(len(worker), -1)
    if not len(worker):
        return before
    order = by_worker(worker)
    same = worker[order[1:]] == worker[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def _judged(
    stream: Stream, collect: Collection, run: Collector, n_updates: int, pace: Pace | None
) -> tuple[Found, np.ndarray, np.ndarray]:
    """The arrivals up to the last update, the versions they hand out, and the verdicts."""
    receive, keeps, step = run.receive, collect.keeps_model, Verdict.STEP
    handed, verdicts, version = array("i", [0]), bytearray(), 0  # one more handed: of time 0
    hand, judge = handed.append, verdicts.append
    wanted, found = int(_SPARE * n_updates) + stream.n_workers, None
    while found is None or version < n_updates:
        found = stream.first(wanted, exact=False)
        if len(found.time) == len(verdicts):
            stream.first(wanted)  # there are no more: it says why
        for at in range(len(verdicts), len(found.time), _CHUNK):
            sources = (found.source[at : at + _CHUNK] + 1).tolist()
            for worker, source in zip(
                found.worker[at : at + _CHUNK].tolist(), sources, strict=True
            ):
                read = handed[source]
                verdict = receive(worker, version - read)
                judge(verdict)
                if verdict is step:
                    version += 1
                    hand(version)
                    if version == n_updates:
                        break
                else:
                    hand(read if keeps else version)
            if version == n_updates:
                break
            if pace is not None:
                pace.at(version, float(found.time[len(verdicts) - 1]))
        if version < n_updates and run.is_stuck_without is not None and run.is_stuck_without(set()):
            raise NoStreamError("the rule says that no step can come: the event loop tells it")
        wanted *= 2
    end = len(verdicts)
    found = Found(*(column[:end].copy() for column in found))
    return found, np.array(handed[1:], np.int32), np.frombuffer(bytes(verdicts), np.int8)
