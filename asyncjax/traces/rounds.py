"""Rounds: in every update all workers begin together, and the server takes the fastest answers.

Update r begins at t_r; with the response times sorted, T_(1) <= ... <= T_(n), and k_r answers
awaited,

    arrival i of update r at t_r + T_(i), i <= k_r,     t_{r+1} = t_r + T_(k_r)

What a loop leaves behind of such a run is a `Rounds`; the trace is made from it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs

Array = jax.Array | np.ndarray


class Rounds(NamedTuple):
    """Every update's answers in the order of their response times; T updates, n workers."""

    worker: Array  # int32[T, n], by response time, ties by index
    response: Array  # float[T, n], not decreasing, time units; inf for a worker that got no work
    k: Array  # int32[T], answers that the server waited for, 1 .. n
    weight: Array  # float[T, n], factor of an answer in the step's direction; 0 from the k-th on


def trace_of_rounds(rounds: Rounds) -> EventTrace:
    """Makes the trace of rounds.

    Args:
        rounds: The answers. Concrete ones give a compact trace on the host, with the times added up
            in double precision; traced ones a trace of JAX arrays with the static capacity of T n
            arrivals, of which those never awaited have `used` and `steps` False.

    Returns:
        The trace: delay 0, and job = read_version = version = update. Traced: of no open or
        cancelled jobs.

    Raises:
        ValueError: `rounds` holds several runs.

    Example:
        >>> import numpy as np
        >>> from asyncjax import traces
        >>> rounds = Rounds(
        ...     worker=np.array([[1, 0], [0, 1]]), response=np.array([[1.0, 3.0], [2.0, 2.5]]),
        ...     k=np.array([1, 2]), weight=np.array([[1.0, 0.0], [0.5, 0.5]]))
        >>> trace = traces.validate(trace_of_rounds(rounds))
        >>> trace.time, trace.worker, trace.cancelled.worker
        (array([1. , 3. , 3.5]), array([1, 0, 1], dtype=int32), array([0], dtype=int32))
    """
    if np.ndim(rounds.k) != 1:
        raise ValueError(
            f"rounds must be those of one run, got several of shape {np.shape(rounds.k)[:-1]};"
            " take one with jax.tree.map(lambda leaf: leaf[0], ...)"
        )
    if any(isinstance(leaf, Tracer) for leaf in rounds):
        return _padded(rounds)
    worker, response, k, weight = map(np.asarray, rounds)
    spans = np.take_along_axis(response, k[:, None] - 1, axis=1)[:, 0].astype(np.float64)
    begins = np.concatenate([[0.0], np.cumsum(spans)[:-1]])
    return compact_trace(
        begins, worker, begins[:, None] + response, k, weight, np.isfinite(response)
    )


def compact_trace(
    begins: np.ndarray,
    worker: np.ndarray,
    finish: np.ndarray,
    k: Any,
    weight: np.ndarray,
    began: np.ndarray | bool = True,
) -> EventTrace:
    """The trace of rounds whose times are known.

    `begins` float64[T]; `worker` int[T, n]; `finish` float64[T, n]; `k` int[T]; `weight` float[T,
    n]; `began` bool[T, n].
    """
    (n_updates, n), place = worker.shape, np.arange(worker.shape[1])
    counts = np.broadcast_to(np.asarray(k), (n_updates,))
    used = place < counts[:, None]
    stopped = ~used & began
    ends = np.take_along_axis(finish, counts[:, None] - 1, axis=1)
    rounds = np.repeat(np.arange(n_updates, dtype=np.int32), counts)
    row, column = np.nonzero(stopped)
    by_worker = np.lexsort((worker[row, column], row))
    row, column = row[by_worker], column[by_worker]
    return EventTrace(
        time=finish[used],
        worker=worker[used].astype(np.int32),
        job=rounds,
        read_version=rounds.copy(),
        version=rounds.copy(),
        used=np.ones(rounds.size, bool),
        steps=(place == counts[:, None] - 1)[used],
        weight=np.broadcast_to(weight, worker.shape)[used].astype(np.float32),
        start=np.repeat(begins, counts),
        n_workers=n,
        open_jobs=OpenJobs(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)),
        cancelled=CancelledJobs(
            worker[row, column].astype(np.int32), begins[row], ends[row, 0].astype(np.float64)
        ),
    )


def _padded(rounds: Rounds) -> EventTrace:
    """The trace inside compiled code.

    Fill comes after an update's last answer, at the same time.
    """
    worker, response, k, weight = (jnp.asarray(leaf) for leaf in rounds)
    n_updates, n = worker.shape
    place, last = jnp.arange(n), k[:, None] - 1
    used, steps = place <= last, place == last
    spans = jnp.take_along_axis(response, last, axis=1)
    begins = jnp.cumsum(spans, axis=0) - spans
    update = jnp.broadcast_to(jnp.arange(n_updates, dtype=jnp.int32)[:, None], (n_updates, n))
    columns = {
        "time": begins + jnp.where(used, response, spans),
        "worker": worker,
        "job": update,
        "read_version": update,
        "version": jnp.where(used, update, update + 1),
        "used": used,
        "steps": steps,
        "weight": jnp.where(used, weight, 0),
        "start": jnp.broadcast_to(begins, (n_updates, n)),
    }
    flat: dict[str, Any] = {name: column.reshape(-1) for name, column in columns.items()}
    return EventTrace(**flat, n_workers=n)
