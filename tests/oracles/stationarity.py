"""Slow twins of `whatif.stationarity`, written from its formulas: loops over steps and windows."""

from itertools import pairwise

import numpy as np
from scipy import stats


def time_of_gradient(table, k=None):
    """Time of a gradient: rounds of the fastest k, or without waiting."""
    if k is None:
        return 1 / sum(1 / (sum(row) / len(row)) for row in table)
    rounds = [sorted(row[t] for row in table)[k - 1] for t in range(len(table[0]))]
    return sum(rounds) / len(rounds) / k


def windows(table, m):
    """The columns of m windows."""
    ends = [round(table.shape[1] * i / m) for i in range(m + 1)]
    return [table[:, a:b] for a, b in pairwise(ends)]


def half_width(table, ks, ahead, scales):
    """Half of the width of the interval of the log time, by rule; the pure rule last."""
    variances = {}
    for m in scales:
        logs = [[np.log(time_of_gradient(w, k)) for k in (*ks, None)] for w in windows(table, m)]
        variances[m] = np.var(logs, axis=0, ddof=1)
    x = np.log([1 / m for m in scales])
    fits = [
        stats.linregress(x, np.log([variances[m][r] for m in scales])).slope
        for r in range(len(ks) + 1)
    ]
    b = min(0.0, max(-1.0, float(np.mean(fits))))
    largest = np.max([variances[m] * m**b for m in scales], axis=0)
    return stats.t.ppf(0.95, scales[0] - 1) * np.sqrt(largest * (ahead**b + 1))


def size_of_shape(row, shape):
    """Squared coefficient of a shape over the mean square of the partial sums of the rest."""
    y, h = row - np.mean(row), shape - np.mean(shape)
    h = h / np.sqrt(np.sum(h * h))
    c, sums, total = float(np.sum(y * h)), [], 0.0
    for value in y - c * h:
        total += value
        sums.append(total * total)
    return c * c / np.mean(sums)


def sizes(row):
    """Of the largest step, where that is, and of a line."""
    m = len(row)
    end = int(np.ceil(m / 6))
    steps = {k: size_of_shape(row, (np.arange(m) >= k) * 1.0) for k in range(end, m - end + 1)}
    at = max(steps, key=steps.__getitem__)
    return steps[at], at, size_of_shape(row, np.arange(m) * 1.0)
