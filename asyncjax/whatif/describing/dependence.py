"""What durations remember: of the job before, and of the other workers at the same moment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from asyncjax.traces import Log
from asyncjax.whatif.describing.alignment import Aligned

_SHIFTS = 199
_LEAST = 4  # jobs of a worker, or moments, before a correlation is taken
_MOST_LAGS = 1000


class Dependence(NamedTuple):
    """Correlations of log durations."""

    lag_one: np.ndarray  # float64[n], of a job with the one before it of its worker; NaN: too few
    error: np.ndarray  # float64[n], standard error of `lag_one` where there is none, 1 / sqrt(J)
    mean_lag_one: float  # over workers, by number of jobs
    p_lag_one: float  # that there is none in any worker
    memory: float  # jobs that one job is alike to: 1 + 2 sum of correlations, mean over workers
    common: float  # mean correlation of two workers at the same moment; NaN: one worker
    p_common: float  # that there is none: from workers shifted against each other in time


def dependence_of(log: Log, side: Aligned, rng: np.random.Generator) -> Dependence:
    """Correlations within and across workers.

    The moments of each worker are shifted as a whole, round and round, by a random number: what it
    remembers stays, what it shares with others goes.

    Example:
        >>> from asyncjax import traces
        >>> from asyncjax.whatif.describing.alignment import aligned
        >>> rng = np.random.default_rng(1)
        >>> shocks = rng.exponential(1.0, 300)
        >>> log = traces.read_log(1.0 + shocks + 0.1 * rng.exponential(1.0, (4, 300)))
        >>> found = dependence_of(log, aligned(log), rng)
        >>> found.common > 0.9, found.p_common, found.p_lag_one > 0.01
        (True, 0.005, True)
    """
    rows = [np.log(row) for row in log.durations]
    lags = [_autocorrelations(row) for row in rows]
    lag_one = np.array([row[0] if len(row) else np.nan for row in lags])
    jobs = np.array([len(row) for row in rows], float)
    known = np.isfinite(lag_one)
    mean, p_value, memory = 0.0, np.nan, 1.0
    if known.any():
        centred = lag_one[known] + 1.0 / jobs[known]  # without any it is -1/J on average
        mean = float(np.average(centred, weights=jobs[known]))
        size = abs(mean) * np.sqrt(jobs[known].sum())
        p_value = float(2.0 * special.ndtr(-size))
        memory = float(np.mean([_memory(row) for row in lags if len(row)]))
    common, p_common = _common(side.values, rng)
    return Dependence(lag_one, 1.0 / np.sqrt(jobs), mean, p_value, memory, common, p_common)


def _autocorrelations(row: np.ndarray) -> np.ndarray:
    """Correlations at lags 1, 2, ...; none for a row that is short or does not vary."""
    apart = row - row.mean()
    length = len(row)
    if length < _LEAST or (apart**2).mean() < 1e-20:
        return np.zeros(0)
    spectrum = np.fft.rfft(apart, 2 * length)
    sums = np.fft.irfft(np.abs(spectrum) ** 2)[: min(length, _MOST_LAGS)]
    return sums[1:] / sums[0]


def _memory(correlations: np.ndarray) -> float:
    """1 + 2 times the correlations up to the first that is lost in the noise."""
    small = np.flatnonzero(correlations < 2.0 / np.sqrt(len(correlations) + 1))
    end = small[0] if small.size else len(correlations)
    return 1.0 + 2.0 * float(correlations[:end].sum())


def _common(table: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Mean correlation of pairs of rows, and p that it is chance."""
    apart = table - table.mean(axis=1, keepdims=True)
    deviation = apart.std(axis=1, keepdims=True)
    scaled = (apart / np.maximum(deviation, 1e-300))[deviation[:, 0] > 1e-10]
    n, moments = scaled.shape
    if n < 2 or moments < _LEAST:
        return (float("nan"), float("nan"))
    seen = _pairs(scaled)
    place = np.arange(moments)
    as_large = 0
    for _ in range(_SHIFTS):
        shifts = rng.integers(moments, size=(n, 1))
        shifted = np.take_along_axis(scaled, (place + shifts) % moments, axis=1)
        as_large += abs(_pairs(shifted)) >= abs(seen)
    return seen, (1 + as_large) / (1 + _SHIFTS)


def _pairs(scaled: np.ndarray) -> float:
    """Mean correlation of pairs of rows of mean 0 and variance 1."""
    n = len(scaled)
    return float((scaled.sum(axis=0) ** 2).mean() - n) / (n * (n - 1))
