"""Workers side by side: a row a worker, a column a moment that all of them share.

Columns are steps where the log counts them, stretches of time where starts are known, and the
number of the job otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.traces import Log

_JOBS = 2.0  # of the slowest worker, that a stretch of time holds on average
_LEAST = 8  # columns, before another way of making them is tried
_MOST = 2000  # columns; of more, neighbours are averaged


class Aligned(NamedTuple):
    """Logarithms of durations, side by side."""

    values: np.ndarray  # float64[n, T], mean log duration of a worker at a moment
    by: str  # what a column is: "step", "time" or "job"


def aligned(log: Log) -> Aligned:
    """Puts the workers of a log side by side.

    Example:
        >>> from asyncjax import traces
        >>> side = aligned(traces.read_log({"a": [1.0, 1.0, 1.0], "b": [1.0, 1.0]}))
        >>> side.values.tolist(), side.by
        ([[0.0, 0.0], [0.0, 0.0]], 'job')
    """
    logs = [np.log(row) for row in log.durations]
    for by, made in (("step", _by_step(log, logs)), ("time", _by_time(log, logs))):
        if made is not None:
            return Aligned(_narrowed(made), by)
    length = min(map(len, logs))
    return Aligned(_narrowed(np.stack([row[:length] for row in logs])), "job")


def _by_step(log: Log, logs: list[np.ndarray]) -> np.ndarray | None:
    """Columns of steps that every worker has once; None: they are too few."""
    if log.step is None:
        return None
    common = log.step[0]
    for row in log.step:
        if len(np.unique(row)) < len(row):
            return None
        common = np.intersect1d(common, row)
    if 2 * len(common) < min(map(len, logs)):
        return None
    return np.stack(
        [values[np.isin(row, common)] for row, values in zip(log.step, logs, strict=True)]
    )


def _by_time(log: Log, logs: list[np.ndarray]) -> np.ndarray | None:
    """Columns of stretches of time in which every worker had a job; None: they are too few."""
    if log.start is None or log.end is None:
        return None
    span = max(float(row[-1]) for row in log.end)
    width = _JOBS * max(span / len(row) for row in logs)
    count = int(span / width)
    if count < _LEAST:
        return None
    columns = []
    for start, end, values in zip(log.start, log.end, logs, strict=True):
        place = np.minimum(((start + end) / 2 / width).astype(int), count - 1)
        jobs = np.bincount(place, minlength=count)
        total = np.bincount(place, values, minlength=count)
        columns.append(np.where(jobs > 0, total / np.maximum(jobs, 1), np.nan))
    table = np.stack(columns)
    table = table[:, ~np.isnan(table).any(axis=0)]
    return table if table.shape[1] >= max(_LEAST, count // 2) else None


def _narrowed(table: np.ndarray) -> np.ndarray:
    """At most so many columns, neighbours averaged."""
    unit = -(-table.shape[1] // _MOST)
    length = table.shape[1] // unit * unit
    return table[:, :length].reshape(len(table), -1, unit).mean(axis=2)
