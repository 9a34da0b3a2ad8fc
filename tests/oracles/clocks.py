"""Laws of durations in plain NumPy, written from their definitions; slow on purpose."""

import math
from fractions import Fraction

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


def weibull(shape, mean):
    return stats.weibull_min(shape, scale=mean / math.gamma(1 + 1 / shape))


def uniform(low, high):
    return stats.uniform(low, high - low)


def folded_normal(location, scale, shift):
    return stats.foldnorm(abs(location) / scale, loc=shift, scale=scale)


def clipped_poisson_moments(rate, least, n_terms=400):
    """Mean and variance of max(least, Poisson(rate)), summed count by count in exact fractions."""
    weights, times, weight = [], [], Fraction(1)
    for count in range(n_terms):
        if count:
            weight *= Fraction(rate) / count
        weights.append(weight)
        times.append(max(Fraction(least), Fraction(count)))
    total = sum(weights)
    mean = sum(w * t for w, t in zip(weights, times, strict=True)) / total
    square = sum(w * (t - mean) ** 2 for w, t in zip(weights, times, strict=True)) / total
    return float(mean), float(square)


def piece_at(power, time):
    """Rate of one power at `time`, and when that piece ends; power = (lengths, rates, repeats)."""
    lengths, rates, repeats = power
    lengths = [Fraction(length) for length in lengths]
    period = sum(lengths)
    begin = (time // period) * period if repeats else Fraction(0)
    for number, rate in enumerate(rates):
        if not repeats and number == len(rates) - 1:
            return Fraction(rate), None
        end = begin + lengths[number]
        if time < end:
            return Fraction(rate), end
        begin = end
    raise AssertionError("a period has no end")


def finish(powers, start, work):
    """First time at which the integral of the product of powers since `start` is `work`, exact."""
    now, left = Fraction(start), Fraction(work)
    while True:
        pieces = [piece_at(power, now) for power in powers]
        rate = math.prod((rate for rate, _ in pieces), start=Fraction(1))
        ends = [end for _, end in pieces if end is not None]
        has_left = any(rate == 0 and end is None for rate, end in pieces)
        if has_left or (rate == 0 and not ends):
            return math.inf
        if rate > 0 and (not ends or left <= rate * (min(ends) - now)):
            return float(now + left / rate)
        left -= rate * (min(ends) - now)
        now = min(ends)
