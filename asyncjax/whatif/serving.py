"""A server that takes time: it handles gradients one after another, in the order of arrival.

With t_e the arrivals and s the time of a gradient, gradient e is handled, and the step that it
makes is there, at

    h_e = max(t_e, h_{e-1}) + s

A worker's next job starts when the server is done with the gradient that it answers to. The times
of a trace made here are h: a job lasts until its gradient is handled.
"""

from __future__ import annotations

from itertools import accumulate, islice
from typing import Any

import jax
import numpy as np

from asyncjax import traces
from asyncjax.clocks import Clock
from asyncjax.traces import EventTrace


def handled(time: Any, server: float) -> np.ndarray:
    """When each of the arrivals float64[..., E] is handled, to the bit as in the event loop."""
    arrivals = np.moveaxis(np.asarray(time), -1, 0)
    taken = accumulate(arrivals, lambda free, now: np.maximum(now, free) + server, initial=-np.inf)
    return np.stack([*islice(taken, 1, None)], axis=-1)


def asynchronous(clock: Clock, *, server: float, **arguments: Any) -> EventTrace:
    """`traces.asynchronous` with a server that takes so long for every gradient."""
    if not server:
        return traces.asynchronous(clock, **arguments)
    trace = traces.asynchronous(clock, service=traces.Service(server), **arguments)
    time, rung = handled(trace.time, server), trace.step_time
    if rung is not None:  # a step by the clock waits until the server is free
        rung = np.maximum(rung, time[np.asarray(trace.steps)])
    return trace._replace(time=time, step_time=rung)


def synchronous(
    clock: Clock, *, k: int, n_updates: int, server: float, key: jax.Array | None = None
) -> EventTrace:
    """`traces.synchronous` with the same server, of a clock without powers.

    A round ends when the k-th gradient is handled; those that come after it are stopped.
    """
    trace = traces.synchronous(clock, k=k, n_updates=n_updates, key=key)
    if not server:
        return trace
    start, stopped = np.asarray(trace.start), trace.cancelled
    time = handled((trace.time - start).reshape(n_updates, k), server)
    ends = np.cumsum(time[:, -1])
    begin = np.concatenate([[0.0], ends[:-1]])
    if stopped is not None:
        begun, ended = (np.repeat(each, clock.n_workers - k) for each in (begin, ends))
        stopped = stopped._replace(start=begun, time=ended)
    time = (begin[:, None] + time).ravel()
    return trace._replace(time=time, start=np.repeat(begin, k), cancelled=stopped)
