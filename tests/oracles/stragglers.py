"""Completion times, hulls and bounds in plain Python, from their definitions; slow on purpose."""

import math
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
from scipy import integrate, special, stats


def harmonic(n, power=1):
    return math.fsum(1 / i**power for i in range(1, n + 1))


def order_from_minima(n, k, minimum):
    """E T_(k) from `minimum(i)`, the sum of the expected minima of all crews of i workers."""
    return sum(
        (-1) ** (i - n + k - 1) * math.comb(i - 1, n - k) * minimum(i)
        for i in range(n - k + 1, n + 1)
    )


def two_exponentials(n, k, mean, other):
    """E T_(k) of n sums of two exponentials with unequal rational means, a Fraction."""
    lam, mu = 1 / Fraction(mean), 1 / Fraction(other)

    def least_of(i):
        terms = (
            math.comb(i, j) * mu**j * (-lam) ** (i - j) / (j * lam + (i - j) * mu)
            for j in range(i + 1)
        )
        return (mu - lam) ** -i * sum(terms)

    return order_from_minima(n, k, lambda i: math.comb(n, i) * least_of(i))


def unequal_exponentials(k, means):
    """E T_(k) of exponential workers of their own rational means, a Fraction."""
    rates = [1 / Fraction(mean) for mean in means]

    def minima(i):
        return sum(1 / sum(crew) for crew in combinations(rates, i))

    return order_from_minima(len(means), k, minima)


def moments(survival, n, k, ends):
    """Mean and variance of T_(k) of n identical workers, by SciPy, from `survival(t)`."""

    def late(t):
        return special.betainc(n - k + 1, k, survival(t))

    def over(function):
        return sum(
            integrate.quad(function, a, b, epsabs=1e-13, epsrel=1e-12, limit=400)[0]
            for a, b in pairwise(ends)
        )

    mean = ends[0] + over(late)
    return mean, ends[0] ** 2 + over(lambda t: 2 * t * late(t)) - mean**2


def sum_survival(first, second):
    """P(A + B > t) of two frozen SciPy laws, by integrating over the quantiles of A."""
    nodes, weights = np.polynomial.legendre.leggauss(400)

    def survival(t):
        top = first.cdf(t)
        levels = (nodes + 1) / 2 * top
        return float((weights / 2 * top * second.sf(t - first.ppf(levels))).sum() + 1 - top)

    return survival


def additive(communicate, compute, load):
    return sum_survival(stats.gamma(load, scale=compute), stats.expon(scale=communicate))


def best_option(error, price, floor):
    """Index of the option on which the bound falls fastest per price; first of the best."""
    return int(np.argmax([(error - a) / p for p, a in zip(price, floor, strict=True)]))


def stages(price, floor, start, target):
    """Options used from start to target, with the errors at which they begin, by comparing all.

    The best option changes only where two of them are equally fast; between such errors one
    comparison decides.
    """
    meets = {start, target}
    for (p, a), (q, b) in combinations(zip(price, floor, strict=True), 2):
        if p != q:
            meets.add((a * q - b * p) / (q - p))
    errors = sorted((e for e in meets if target <= e <= start), reverse=True)
    used = []
    for high, low in pairwise(errors):
        option = best_option((high + low) / 2, price, floor)
        if not used or used[-1][0] != option:
            used.append((option, high))
    return used


def greedy_cost(price, floor, decay, start, target, steps=20000):
    """Total price of always taking the best option, a small fall of the error at a time."""
    edges = np.geomspace(start, target, steps + 1)
    middle = np.sqrt(edges[1:] * edges[:-1])
    speed = ((middle[:, None] - np.asarray(floor)) / np.asarray(price)).max(axis=1)
    return float((-np.diff(edges) / (decay * speed)).sum())


def run_bound(ks, loads, updates, n_updates, bound):
    """Error after every whole update of the bound's recursion, stage by stage."""
    error, errors = bound["initial_error"], []
    ends = np.round(np.cumsum(updates))
    for j in range(n_updates):
        s = min(int(np.searchsorted(ends, j, side="right")), len(ks) - 1)
        scale = bound["step_size"] * bound["smoothness"] * bound["noise_variance"]
        floor = scale / (2 * bound["strong_convexity"] * ks[s] * loads[s])
        error = floor + (1 - bound["step_size"] * bound["strong_convexity"]) * (error - floor)
        errors.append(error)
    return errors


def stopped_survival(communicate, compute, deadline):
    """P(C + min(S, D) > t) of two frozen SciPy laws, by integrating over the quantiles of S."""
    nodes, weights = np.polynomial.legendre.leggauss(150)

    def survival(t):
        most = min(t, deadline)
        top = compute.cdf(most)
        levels = (nodes + 1) / 2 * top
        spent = np.minimum(compute.ppf(levels), most)
        late = communicate.sf(t - spent) @ weights / 2 * top
        return float(late + (1 - top) * communicate.sf(t - most))

    return survival
