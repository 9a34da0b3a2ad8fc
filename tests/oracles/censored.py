"""Likelihood of the fastest k of n response times, in plain NumPy and SciPy; slow on purpose."""

import math

import numpy as np
from scipy import integrate, optimize


def density(t, communicate, compute):
    """Density of a sum of two exponential times, by integrating over the first."""
    value, _ = integrate.quad(
        lambda y: math.exp(-y / communicate - (t - y) / compute) / (communicate * compute),
        0,
        t,
        epsabs=0,
        epsrel=1e-12,
    )
    return value


def survival(t, communicate, compute):
    """P(T > t) of a sum of two exponential times of unequal means."""
    late = communicate * math.exp(-t / communicate) - compute * math.exp(-t / compute)
    return late / (communicate - compute)


def log_likelihood(observed, loads, n, communicate, compute):
    """Of rounds of times seen, n - k of each round being later than the last."""
    total = 0.0
    for row, load in zip(observed, loads, strict=True):
        total += sum(math.log(density(t, communicate, compute * load)) for t in row)
        if n > len(row):
            late = survival(max(row), communicate, compute * load)
            total += (n - len(row)) * math.log(late)
    return total


def greatest(observed, loads, n, start):
    """Means of greatest likelihood, by SciPy, from a start."""

    def loss(logs):
        means = np.exp(logs)
        t = np.asarray(observed)
        first, second = means[0], means[1] * np.asarray(loads)[:, None]
        ahead = np.exp(-t / first) - np.exp(-t / second)
        seen = np.log(ahead / (first - second)).sum()
        last = t.max(1, keepdims=True)
        late = (first * np.exp(-last / first) - second * np.exp(-last / second)) / (first - second)
        return -(seen + (n - t.shape[1]) * np.log(late).sum())

    options = {"xatol": 1e-10, "fatol": 1e-10, "maxiter": 4000}
    found = optimize.minimize(loss, np.log(start), method="Nelder-Mead", options=options)
    return np.exp(found.x), -found.fun
