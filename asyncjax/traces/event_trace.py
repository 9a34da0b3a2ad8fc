"""`EventTrace`: who delivered what, when, and how stale it was.

It is made without a model, because the time a gradient takes does not depend on its value, and then
replayed against any problem and any optimizer.

One entry is one *arrival*: a gradient of worker `worker[e]`, taken at model version
`read_version[e]`, reaches the server at `time[e]` while the server holds version `version[e]`.
Versions count server updates, and

    delay[e] = version[e] - read_version[e],      version[e] = number of True in steps[:e].

The direction of a step is the sum of `weight * gradient` over the used arrivals since the step
before it; rules that keep a table, where a gradient serves in several steps, say so in `reuse`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asyncjax.checks import extra

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


class OpenJobs(NamedTuple):
    """Jobs not delivered when the trace ends, ordered by worker, then by place in its queue."""

    worker: Int32  # int32[C]
    read_version: Int32  # int32[C]; with read="start" and still queued: when it was handed out
    # float64[C], time units; NaN: not begun by the end of the trace, as in its worker's queue
    start: Float64


class CancelledJobs(NamedTuple):
    """Jobs that the server stopped before they were delivered, in the order in which it did."""

    worker: Int32  # int32[K]
    start: Float64  # float64[K], time units
    time: Float64  # float64[K], time units: the moment of the cancellation


class Reuse(NamedTuple):
    """Gradients that serve in several steps.

    The direction of step u = 0, 1, ... is the sum of `weight * gradient` over all rows with `first
    <= u <= last`. Rows are ordered by arrival, then by `first`. An arrival without a row is not
    used. Every step needs a newly arrived gradient: of the arrivals since the step before it, at
    least one has a row. So a rule whose newest gradient is of no use to it must not step then.
    """

    arrival: Int32  # int32[K], index of the arrival that brought the gradient
    first: Int32  # int32[K], at least the arrival's version
    last: Int32  # int32[K], at least first
    weight: NDArray[np.float32]  # float32[K]


PARTS: dict[str, Any] = {"open_jobs": OpenJobs, "cancelled": CancelledJobs, "reuse": Reuse}


class EventTrace(NamedTuple):
    """Arrivals at the server in the order in which it served them.

    The fields from `start` to `cancelled` describe the making of the trace (timeline, utilisation,
    open and cancelled jobs); a trace that was recorded elsewhere may leave them out. `reuse` is
    there only where a gradient serves in several steps; `weight` is then the factor in the first of
    them. `step_time` is there only where the server also steps by the clock (`timed`): such an
    update counts as made after the last arrival before it.

    Example:
        >>> import numpy as np
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=5)
        >>> trace.time
        array([1., 2., 2., 3., 4.])
        >>> trace.delay
        array([0, 0, 2, 1, 0], dtype=int32)
    """

    time: Float64  # float64[E], time units since the start, not decreasing
    worker: Int32  # int32[E], 0..n-1
    job: Int32  # int32[E], how many jobs this worker had started before this one
    read_version: Int32  # int32[E], version at which the gradient is taken
    version: Int32  # int32[E], server version just before this arrival is handled
    used: NDArray[np.bool_]  # bool[E], False: thrown away
    steps: NDArray[np.bool_]  # bool[E], the server updates right after this arrival
    weight: NDArray[np.float32]  # float32[E], factor in the step's direction; 0 where unused
    start: Float64 | None = None  # float64[E], when the worker began this job; None: not recorded
    n_workers: int | None = None  # also those never heard; None: as many as are named
    open_jobs: OpenJobs | None = None  # handed out and not back at the end; None: not recorded
    cancelled: CancelledJobs | None = None  # stopped; None: not recorded
    reuse: Reuse | None = None  # None: each gradient serves once
    # float64[T], time units, when each update was made; None: with the arrival that makes it
    step_time: Float64 | None = None

    @property
    def delay(self) -> Int32:
        """Staleness of each gradient in server updates, int32[E]."""
        return self.version - self.read_version

    @property
    def update_time(self) -> Float64:
        """When each update was made, float64[T], time units."""
        if self.step_time is not None:
            return self.step_time
        return np.asarray(self.time, np.float64)[np.asarray(self.steps)]

    @property
    def end(self) -> float:
        """When the last update was made, or the last arrival came, time units."""
        last = float(self.time[-1]) if len(self.time) else 0.0
        return last if self.step_time is None else max(last, *self.step_time[-1:].tolist(), 0.0)

    def to_frame(self) -> Any:
        """The arrivals as a pandas table, a row each, with their delay.

        Needs the extra `study`, which installs pandas.

        Example:
            >>> from asyncjax import clocks, traces
            >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=3)
            >>> trace.to_frame()[["time", "worker", "delay"]].values.tolist()
            [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [2.0, 1.0, 2.0]]
        """
        named = self._asdict()
        names = ("time", "worker", "job", "read_version", "version", "used", "steps", "weight")
        names += ("start",) if self.start is not None else ()
        columns = {name: np.asarray(named[name]) for name in names}
        return extra("pandas", "study").DataFrame({**columns, "delay": np.asarray(self.delay)})

    @property
    def n_arrivals(self) -> int:
        """Number of arrivals E."""
        return len(self.time)

    @property
    def n_updates(self) -> int:
        """Number of server updates."""
        return int(np.count_nonzero(self.steps))


class StalledError(ValueError):
    """A trace cannot go on: no open job will return, or the rule lets the server update no more.

    The message says after which arrival, when, and why.

    Attributes:
        trace: The trace up to the last update that was made; None if there was none. Its open jobs
            are those of the moment when the run ended; one that began after the update has no start
            (NaN).

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.available(clocks.constant([1.0, 2.0]), leave=[6.5, 4.5])
        >>> try:
        ...     traces.asynchronous(clock, n_updates=100)
        ... except traces.StalledError as error:
        ...     print(str(error).split(":")[0], error.trace.n_updates)
        the trace cannot go on after arrival 8 at time 6, update 8 8
    """

    def __init__(self, message: str, trace: EventTrace | None) -> None:
        super().__init__(message)
        self.trace = trace


def worker_count(trace: EventTrace) -> int:
    """Number of workers of a trace: as stated, or else one more than the largest worker index."""
    if trace.n_workers is not None:
        return trace.n_workers
    return int(np.max(trace.worker)) + 1 if len(trace.worker) else 0


def by_worker(worker: np.ndarray) -> np.ndarray:
    """The order of arrivals by worker, those of one worker as they come.

    Sixteen bits at a time, which are sorted in linear time.
    """
    order = np.argsort(worker.astype(np.uint16), kind="stable")
    if worker.max(initial=0) >= 2**16:
        order = order[np.argsort((worker >> 16).astype(np.uint16)[order], kind="stable")]
    return order
