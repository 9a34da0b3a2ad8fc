"""Why durations differ: workers for good, moments for all workers, or neither.

Of the logarithm of the duration of worker i at moment t,

    log d_it = m + a_i + b_t + e_it,

the variance is split into that of a (between workers), of b (in time: all are slow at once) and the
rest. Standard errors are those of the means of blocks of moments, each far longer than what jobs
remember of those before, so that runs of slow jobs are no more than they are.

Whether workers differ at all is asked by exchanging them: within a block any worker could have had
any other's mean if none differs, so

    p = (1 + number of exchanges with means of workers as far apart) / (1 + number of exchanges).

Whether one worker is slow for good is a t test on its blocks, with Holm's correction for n of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from asyncjax.traces import Log
from asyncjax.whatif.describing.alignment import Aligned

_BLOCKS = ((64, 16), (16, 8), (4, 4))  # so many blocks, from so many moments on
_EXCHANGES = 999
SURE = 0.01  # p below which a difference counts
NOTABLE = 1.1  # times the usual duration, from which a worker counts as slow
_SLOW_BLOCK = 1.25  # times the usual duration, from which a block of a worker counts as slow
_CHANCE = 4.0  # typical deviations of a block that it must also be away


class Spread(NamedTuple):
    """Why durations differ."""

    between: float  # share of the variance of log durations, 0 .. 1: workers differ for good
    in_time: float  # share: moments at which all are slow, or fast
    rest: float  # share: what is neither
    p_value: float  # that workers only differ by chance; NaN: the log is too short to tell
    factor: np.ndarray  # float64[n], geometric mean duration, over that of the median worker
    error: np.ndarray  # float64[n], standard error of log(factor); NaN: too short
    p_values: np.ndarray  # float64[n], Holm: that the worker is like the median one
    for_good: np.ndarray  # int8[n], 1: slow for good, -1: fast for good, 0: neither
    at_times: np.ndarray  # float64[n], share of blocks in which it was 1.25 times as slow as usual
    blocks: int  # that the moments were put into


def spread_of(log: Log, side: Aligned, rng: np.random.Generator) -> Spread:
    """Splits the variance of a log, and says who is slow for good.

    Example:
        >>> from asyncjax import traces
        >>> from asyncjax.whatif.describing.alignment import aligned
        >>> rng = np.random.default_rng(0)
        >>> log = traces.read_log(rng.gamma(50.0, [[0.02]] * 4 + [[0.06]], (5, 400)))
        >>> spread = spread_of(log, aligned(log), rng)
        >>> spread.for_good.tolist(), spread.between > 0.9, spread.p_value
        ([0, 0, 0, 0, 1], True, 0.001)
    """
    n, moments = side.values.shape
    count = next((blocks for least, blocks in _BLOCKS if moments >= least), 0)
    usual = np.median(side.values, axis=0)
    apart = side.values - usual
    centre = apart.mean(axis=1)
    within = float(np.mean([np.log(row).var() for row in log.durations]))
    if not count or n < 2:
        unknown = np.full(n, np.nan)
        total = within + float(centre.var())
        shares = (float(centre.var()) / total, 0.0, within / total) if total else (0.0, 0.0, 0.0)
        nobody = np.zeros(n, np.int8)
        factor = np.exp(centre - np.median(centre))
        return Spread(*shares, np.nan, factor, unknown, unknown, nobody, np.zeros(n), count)
    length = moments // count * count
    means = apart[:, :length].reshape(n, count, -1).mean(axis=2)
    error = means.std(axis=1, ddof=1) / np.sqrt(count)
    between = max(0.0, float(centre.var(ddof=1) - np.mean(error**2)))
    in_time = min(_in_time(side.values), within)
    total = between + within
    shares = (between / total, in_time / total, (within - in_time) / total) if total else (0, 0, 0)
    effect = means.mean(axis=1) - np.median(means.mean(axis=1))
    p_values = _holm(_t_test(effect, error, count - 1))
    notable = (p_values < SURE) & (np.abs(effect) > np.log(NOTABLE))
    return Spread(
        *map(float, shares),
        p_value=_exchanged(means, rng),
        factor=np.exp(effect),
        error=error,
        p_values=p_values,
        for_good=np.where(notable, np.sign(effect), 0).astype(np.int8),
        at_times=_slow_blocks(means).mean(axis=1),
        blocks=count,
    )


def _slow_blocks(means: np.ndarray) -> np.ndarray:
    """Which blocks are slower than the worker's usual one, and by more than blocks vary."""
    apart = means - np.median(means, axis=1, keepdims=True)
    typical = 1.4826 * float(np.median(np.abs(apart)))
    return apart > max(np.log(_SLOW_BLOCK), _CHANCE * typical)


def _in_time(table: np.ndarray) -> float:
    """Variance of what all workers share at a moment, from the mean squares of two ways."""
    n, moments = table.shape
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    mean_square = (rest**2).sum() / ((n - 1) * (moments - 1))
    columns = n * table.mean(axis=0).var(ddof=1)
    return max(0.0, float(columns - mean_square) / n)


def _t_test(effect: np.ndarray, error: np.ndarray, freedom: int) -> np.ndarray:
    """Two-sided probability that an effect is 0; without any error it is 0 or certainly not."""
    sizes = np.abs(effect) / np.maximum(error, 1e-12)
    return 2.0 * special.stdtr(freedom, -sizes)


def _holm(p_values: np.ndarray) -> np.ndarray:
    """Corrected for as many tests as there are.

    Example:
        >>> _holm(np.array([0.01, 0.9, 0.02]))
        array([0.03, 0.9 , 0.04])
    """
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return corrected


def _exchanged(means: np.ndarray, rng: np.random.Generator) -> float:
    """Probability that means of workers, float64[n, blocks], are as far apart by chance."""
    seen = means.mean(axis=1).var()
    as_far = sum(
        bool(rng.permuted(means, axis=0).mean(axis=1).var() >= seen * (1 - 1e-12))
        for _ in range(_EXCHANGES)
    )
    return (1 + as_far) / (1 + _EXCHANGES)
