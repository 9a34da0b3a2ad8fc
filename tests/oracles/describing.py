"""Figures of a log by their definitions, one number at a time."""

import math

import numpy as np


def kolmogorov(row, cdf):
    """Largest distance of the share of `row` up to a point from `cdf(point)`, on both sides."""
    points = sorted(row)
    far = 0.0
    for point in points:
        up_to = sum(one <= point for one in points) / len(points)
        below = sum(one < point for one in points) / len(points)
        far = max(far, abs(up_to - cdf(point)), abs(below - cdf(point)))
    return far


def autocorrelation(row, lag):
    """Of logarithms, as sums over all pairs that are `lag` apart."""
    logs = [math.log(one) for one in row]
    mean = sum(logs) / len(logs)
    total = sum((one - mean) ** 2 for one in logs)
    return sum((logs[j] - mean) * (logs[j - lag] - mean) for j in range(lag, len(logs))) / total


def mean_pair_correlation(table):
    """Mean of the correlations of all pairs of rows of logarithms."""
    pairs = [(i, j) for i in range(len(table)) for j in range(i)]
    logs = np.log(table)
    return sum(float(np.corrcoef(logs[i], logs[j])[0, 1]) for i, j in pairs) / len(pairs)


def components(table):
    """Variance of log durations float64[n, T] in time: expected mean squares, solved by hand."""
    n, moments = table.shape
    x = np.log(table)
    grand = sum(x[i, t] for i in range(n) for t in range(moments)) / (n * moments)
    row = [sum(x[i]) / moments for i in range(n)]
    column = [sum(x[:, t]) / n for t in range(moments)]
    rest = sum(
        (x[i, t] - row[i] - column[t] + grand) ** 2 for i in range(n) for t in range(moments)
    ) / ((n - 1) * (moments - 1))
    between_columns = n * sum((one - grand) ** 2 for one in column) / (moments - 1)
    return max(0.0, (between_columns - rest) / n)


def holm(p_values):
    """Step-down: the smallest times n, the next times n - 1, never less than the one before."""
    corrected, worst = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        worst = max(worst, min(1.0, p_values[place] * (len(p_values) - rank)))
        corrected[place] = worst
    return corrected
