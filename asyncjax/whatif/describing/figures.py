"""What each worker takes: mean, median, spread and quantiles of its durations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.traces import Log

QUANTILES = (0.05, 0.25, 0.75, 0.95, 0.99)


class Figures(NamedTuple):
    """Figures of n workers, in the unit of the log."""

    jobs: np.ndarray  # int64[n]
    mean: np.ndarray  # float64[n]
    median: np.ndarray  # float64[n]
    cv: np.ndarray  # float64[n], standard deviation over mean
    quantiles: np.ndarray  # float64[n, 5], of `QUANTILES`
    longest: np.ndarray  # float64[n]
    relative: np.ndarray  # float64[n], mean over the median of the workers' means
    busy: np.ndarray  # float64[n], share of the span of the log spent on jobs; NaN without starts


def figures_of(log: Log) -> Figures:
    """Figures of every worker of a log.

    Example:
        >>> from asyncjax import traces
        >>> figures = figures_of(traces.read_log({"a": [1.0, 1.0], "b": [2.0], "c": [4.0, 8.0]}))
        >>> figures.mean, figures.relative
        (array([1., 2., 6.]), array([0.5, 1. , 3. ]))
    """
    rows = log.durations
    mean = np.array([row.mean() for row in rows])
    return Figures(
        jobs=np.array([len(row) for row in rows]),
        mean=mean,
        median=np.array([np.median(row) for row in rows]),
        cv=np.array([row.std() for row in rows]) / mean,
        quantiles=np.stack([np.quantile(row, QUANTILES) for row in rows]),
        longest=np.array([row.max() for row in rows]),
        relative=mean / np.median(mean),
        busy=log.utilisation,
    )
