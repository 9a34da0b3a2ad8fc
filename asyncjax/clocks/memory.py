"""Memory of recorded times: how long it lasts, and whether workers are slow together.

With `r_i(k)` the autocorrelation of the log times of worker `i`:

    block    (2 G^2 / D)^(1/3) N^(1/3),  G = sum_k w(k) |k| R(k),  D = 4/3 (sum_k w(k) R(k))^2
    together sum of the correlations of all pairs of workers, over its standard deviation if workers
             are independent,  sqrt(sum of pairs 1/N sum_k r_i(k) r_j(k))    (Bartlett 1935)

The block is that of Politis and White (2004), "Automatic block-length selection for the dependent
bootstrap", Econometric Reviews 23 (corrected 2009), with a flat-top window `w` that ends at twice
the last lag whose correlation is notable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_RUN = 5  # lags in a row without a notable correlation end the memory, at least
_LEAST = 20  # jobs of every worker, before memory is looked for
_SURE = 4.0  # standard deviations by which workers move together


def autocorrelation(table: np.ndarray) -> np.ndarray:
    """Autocorrelation of rows float64[n, T] at lags 0 .. T // 4; 0 where a row does not vary."""
    apart = table - table.mean(axis=1, keepdims=True)
    length = table.shape[1]
    power = np.abs(np.fft.rfft(apart, 2 * length, axis=1)) ** 2
    products = np.fft.irfft(power, axis=1)[:, : length // 4 + 1]
    scale = products[:, :1]
    return np.divide(products, scale, out=np.zeros_like(products), where=scale > 1e-12 * length)


def block_length(row: np.ndarray) -> int:
    """Jobs of a moving block that keeps the memory of a worker's times; 1: no memory is seen."""
    size = len(row)
    if size < _LEAST:
        return 1
    r = autocorrelation(np.log(row)[None])[0]
    run = max(_RUN, math.ceil(math.sqrt(math.log10(size))))
    is_notable = np.abs(r[1:]) > 2 * math.sqrt(math.log10(size) / size)
    quiet = np.convolve(is_notable, np.ones(run), "valid") == 0
    last = int(np.argmax(quiet)) if quiet.any() else len(r) - 1
    if last == 0:
        return 1
    lags = np.arange(1, min(2 * last, len(r) - 1) + 1)
    window = np.clip(2 * (1 - lags / lags[-1]), 0, 1) * r[lags]
    moment, density = 2 * (window * lags).sum(), 1 + 2 * window.sum()
    length = (1.5 * moment**2 / max(density, 1e-3) ** 2 * size) ** (1 / 3)
    return int(np.clip(math.ceil(length), 1, size // 3))


def aligned(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Jobs that workers do side by side, int64[n, T]: those of the same number where rows are even.

    Else the next ones after each job of the shortest row begins, none of the workers waiting.
    """
    shortest = min(rows, key=len)
    if all(len(row) == len(shortest) for row in rows):
        return np.tile(np.arange(len(shortest)), (len(rows), 1))
    begins = [np.cumsum(row / row.sum()) - row / row.sum() for row in rows]
    moments = np.cumsum(shortest / shortest.sum()) - shortest / shortest.sum()
    places = (np.searchsorted(begin, moments - 1e-12) for begin in begins)
    return np.stack([np.minimum(p, len(row) - 1) for p, row in zip(places, rows, strict=True)])


def togetherness(table: np.ndarray) -> float:
    """How surely workers, logs of times float64[n, T], move together, in standard deviations."""
    length = table.shape[1]
    varies = table.std(axis=1) > 1e-9
    if length < _LEAST or varies.sum() < 2:
        return 0.0
    table = table[varies]
    apart = table - table.mean(axis=1, keepdims=True)
    apart /= np.sqrt((apart**2).mean(axis=1, keepdims=True))
    pairs = (apart.sum(axis=0) ** 2).mean() - len(table)  # twice the sum of all correlations
    r = autocorrelation(table)
    lags = r.sum(axis=0) ** 2 - (r**2).sum(axis=0)  # over pairs, twice
    variance = (lags[0] + 2 * lags[1:].sum()) / length
    return float(pairs / math.sqrt(2 * max(variance, lags[0] / length)))


def moves_together(rows: Sequence[np.ndarray]) -> bool:
    """Whether recorded workers are slow at the same time more often than by chance."""
    pairs = zip(rows, aligned(rows), strict=True)
    return togetherness(np.stack([np.log(row[jobs]) for row, jobs in pairs])) > _SURE
