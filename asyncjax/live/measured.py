"""What a live run measured beside its trace: when gradients were handled, and how fast computed.

From it: how long the server takes (`service_of`), and a table for everybody (`to_csv`).
"""

from __future__ import annotations

import csv
import io
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import file_path
from asyncjax.results.run import Run
from asyncjax.storage import write_atomically
from asyncjax.traces.server import Service

HEADER = (
    *("worker", "job", "start", "arrived", "handled", "done", "duration", "computed"),
    *("read_version", "version", "used", "steps"),
)


class Timing(NamedTuple):
    """When things were done, beside the trace; a row an arrival, E in all.

    The seconds are those of the trace, whose `time` is when a gradient reached the server.
    """

    handled: np.ndarray  # float64[E], seconds, when the server took the gradient up
    done: np.ndarray  # float64[E], seconds, when it had answered it
    computed: np.ndarray  # float64[E], seconds that the worker computed


def timing(run: Run) -> Timing:
    """Returns when the arrivals of a live run were handled, and how long workers computed.

    Args:
        run: What `train` has returned.

    Returns:
        A row an arrival of `run.trace`. On a virtual clock a gradient is answered the moment it
        arrives, while `computed` is what this machine needed.

    Example:
        >>> import optax
        >>> from asyncjax import live, problems
        >>> with live.threads(2) as workers:
        ...     problem = problems.quadratic([[1.0], [1.0]], [[0.0], [1.0]])
        ...     timing = live.timing(live.train(problem, workers, optax.sgd(0.1), n_updates=20))
        >>> bool((timing.handled < timing.done).all())
        True
    """
    if run.source.timing is None:
        raise ValueError("run must be that of live.train, got one without a timing")
    return run.source.timing


def service_of(run: Run) -> Service:
    """Returns how long the server of a live run took for a gradient, and more for a step.

    `gradient` is the median time, from taken up to answered, of the arrivals that made no step;
    `step` is that of those that made one, less `gradient`, at least 0. A run that steps at every
    arrival cannot separate the two: all is counted to the step.

    Args:
        run: What `train` has returned.

    Returns:
        Seconds, for `traces.asynchronous(..., service=)`. Sending models and receiving gradients is
        not in it: that is part of what a job takes, from start to arrival.

    Example:
        >>> import optax
        >>> from asyncjax import clocks, live, problems
        >>> problem = problems.quadratic([[1.0], [1.0]], [[0.0], [1.0]])
        >>> workers = live.virtual(clocks.constant([1.0, 2.0]))
        >>> live.service_of(live.train(problem, workers, optax.sgd(0.1), n_updates=3))
        Service(gradient=0.0, step=0.0)
    """
    measured = timing(run)
    steps, took = np.asarray(run.trace.steps), measured.done - measured.handled
    gradient = float(np.median(took[~steps])) if not steps.all() else 0.0
    return Service(gradient, max(0.0, float(np.median(took[steps])) - gradient))


def to_csv(run: Run, path: str | PathLike[str]) -> None:
    """Writes the arrivals of a live run as a table, a row each, in the order of their arrival.

    Columns: `worker`; `job`, its number at the worker; `start`, `arrived`, `handled`, `done`;
    `duration`, arrived less start; `computed`, by the worker; `read_version` and `version` of the
    model it was computed at and arrived at; `used` and `steps`, 0 or 1. Times are in seconds. Jobs
    that did not arrive are not there.

    Args:
        run: What `train` has returned.
        path: The file; written whole or not at all. `clocks.read_durations(path, step="job",
            duration="duration")` reads the times again.

    Example:
        >>> import tempfile, pathlib, optax
        >>> from asyncjax import clocks, live, problems
        >>> problem = problems.quadratic([[1.0], [1.0]], [[0.0], [1.0]])
        >>> workers = live.virtual(clocks.constant([1.0, 2.0]))
        >>> run = live.train(problem, workers, optax.sgd(0.1), n_updates=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "arrivals.csv")
        ...     live.to_csv(run, path)
        ...     clocks.read_durations(path, step="job", duration="duration")
        array([[1.],
               [2.]])
    """
    measured, trace, file = timing(run), run.trace, file_path("path", path)
    columns: dict[str, Any] = {
        **trace._asdict(),
        **measured._asdict(),
        "arrived": trace.time,
        "duration": np.asarray(trace.time) - np.asarray(trace.start),
        "used": np.asarray(trace.used).astype(int),
        "steps": np.asarray(trace.steps).astype(int),
    }
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(HEADER)
    table.writerows(zip(*(np.asarray(columns[name]).tolist() for name in HEADER), strict=True))
    write_atomically(file, text.getvalue())
