"""Laws of durations in plain NumPy, written from their definitions; slow on purpose."""

import math

import numpy as np
from scipy import stats


def two_speeds(uniforms, fast, slow, to_slow, to_fast):
    """Times of one worker, job by job; uniforms[j] < P(slow | state before) makes job j slow."""
    is_slow = False
    times = []
    for job, uniform in enumerate(uniforms):
        if job > 0:
            chance = 1 - to_fast if is_slow else to_slow
            is_slow = bool(uniform < chance)
        times.append(slow if is_slow else fast)
    return np.array(times)


def long_run_share(to_slow, to_fast, n_jobs=5000):
    """Share of slow jobs, averaged over the exact distributions of the first jobs."""
    slow, total = 0.0, 0.0
    for _ in range(n_jobs):
        total += slow
        slow = (1 - slow) * to_slow + slow * (1 - to_fast)
    return total / n_jobs


def cycled(durations, first, count):
    """Times of jobs first .. first + count - 1 of every worker."""
    rows = [[row[(first + j) % len(row)] for j in range(count)] for row in durations]
    return np.array(rows, dtype=np.float64)


def exponential(mean):
    return stats.expon(scale=mean)


def shifted_exponential(shift, mean):
    return stats.expon(loc=shift, scale=mean)


def gamma(shape, mean):
    return stats.gamma(shape, scale=mean / shape)


def lognormal(mean, sigma):
    return stats.lognorm(sigma, scale=math.exp(math.log(mean) - sigma**2 / 2))


def pareto(mean, tail):
    return stats.pareto(tail, scale=mean * (tail - 1) / tail)
