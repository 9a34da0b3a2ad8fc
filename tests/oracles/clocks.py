"""Laws of durations in plain NumPy, written from their definitions; slow on purpose."""

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy import stats


def two_speeds(uniforms, fast, slow, to_slow, to_fast, start=0.0):
    """Times of one worker, job by job; uniforms[j] < P(slow | state before) makes job j slow."""
    is_slow = False
    times = []
    for job, uniform in enumerate(uniforms):
        chance = start if job == 0 else 1 - to_fast if is_slow else to_slow
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


def in_blocks(rows, uniforms, block, count):
    """Times of every worker, job by job; uniforms[i][b] says where block b of row i begins."""
    times = []
    for row, numbers in zip(rows, uniforms, strict=True):
        begins = [min(int(number * len(row)), len(row) - 1) for number in numbers]
        times.append([row[(begins[j // block] + j % block) % len(row)] for j in range(count)])
    return np.array(times)


def side_by_side(rows):
    """Of each worker the first job that begins no earlier than each job of the shortest row.

    Times are shares of all that the worker did.
    """
    begins = [[sum(row[:job]) / sum(row) for job in range(len(row))] for row in rows]
    moments = min(begins, key=len)
    return [
        [
            row[next((j for j, at in enumerate(begin) if at >= moment - 1e-12), -1)]
            for moment in moments
        ]
        for row, begin in zip(rows, begins, strict=True)
    ]


def in_phases(rng, n_workers, n_jobs, *, share, slowdown, lengths, sigma):
    """Times float64[n, k]: a share of the workers slow together for so many jobs, then fast."""
    touched = np.arange(n_workers) < share * n_workers
    times, is_slow, left = [], False, 0
    while len(times) < n_jobs:
        if left == 0:
            is_slow, left = not is_slow, int(rng.integers(lengths[0], lengths[1] + 1))
        left -= 1
        noise = np.exp(sigma * rng.standard_normal(n_workers) - sigma**2 / 2)
        times.append(np.where(touched & is_slow, slowdown, 1.0) * noise)
    return np.array(times).T


def two_state_likelihood(gains, begins, ends):
    """Log likelihood of a chain over always being in state 0, summed over all paths of states."""
    total = []
    for path in itertools.product((0, 1), repeat=len(gains)):
        share = begins / (begins + ends)
        logs = math.log(share if path[0] else 1 - share)
        for before, after in itertools.pairwise(path):
            chance = ends if before else begins
            logs += math.log(chance if before != after else 1 - chance)
        total.append(logs + sum(gain for gain, state in zip(gains, path, strict=True) if state))
    return float(np.logaddexp.reduce(total))


def walked(powers, start, work):
    """As `finish` in floats; a power is (lengths, rates), and its last piece lasts for ever."""
    now = start
    while True:
        rate, end = 1.0, math.inf
        for lengths, rates in powers:
            ends = np.cumsum(lengths)
            piece = int(np.sum(ends <= now))
            rate *= rates[piece]
            end = min(end, ends[piece] if piece < len(ends) else math.inf)
        if work <= rate * (end - now):
            return now + work / rate
        if math.isinf(end):
            return math.inf
        work -= rate * (end - now)
        now = end


def arrival(powers, start, parts):
    """When a job that starts then is back; parts = (download, compute, upload)."""
    download, compute, upload = parts
    return walked(powers, start + download, compute) + upload


def pure(powers, parts, count):
    """Times and workers of the first arrivals, everybody beginning anew when he has delivered.

    powers[i]: those of worker i; parts[i][j]: the parts of his job j.
    """
    ends = [arrival(powers[i], 0.0, parts[i][0]) for i in range(len(powers))]
    jobs, arrivals = [1] * len(powers), []
    while len(arrivals) < count:
        worker = ends.index(min(ends))
        now = ends[worker]
        arrivals.append((now, worker))
        ends[worker] = arrival(powers[worker], now, parts[worker][jobs[worker]])
        jobs[worker] += 1
    return arrivals


def rounds(powers, parts, k, count):
    """Times and workers of the arrivals in rounds that end with the k-th fastest."""
    now, arrivals = 0.0, []
    for number in range(count):
        ends = sorted(
            (arrival(power, now, jobs[number]), worker)
            for worker, (power, jobs) in enumerate(zip(powers, parts, strict=True))
        )
        arrivals += ends[:k]
        now = ends[k - 1][0]
    return arrivals
