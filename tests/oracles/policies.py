"""Policies in plain Python, one observation at a time, from their definitions; slow on purpose.

An observation is a dict with the fields it needs; each twin yields what is chosen before every
update.
"""

import math

import numpy as np


def by_time(end_times, clock):
    """Stage before each update: left at the first update that starts at its end or later."""
    stage, stages = 0, []
    for now in clock:
        while stage + 1 < len(end_times) and now >= end_times[stage]:
            stage += 1
        stages.append(stage)
    return stages


def by_error(end_errors, planned, losses, patience, minimum):
    """Stage before each update, by the loss where there is one, else by patience."""
    stage, begun, stages = 0, 0, []
    for j, loss in enumerate(losses):
        last = len(end_errors) - 1
        entered = stage
        while not math.isnan(loss) and stage < last and loss - minimum <= end_errors[stage]:
            stage += 1
        if stage == entered and stage < last and j - begun >= patience * planned[stage]:
            stage += 1
        if stage != entered:
            begun = j
        stages.append(stage)
    return stages


def by_signs(n_stages, agreements, threshold, burn_in, patience=math.inf):
    """(stage, counter) before each update."""
    stage, counter, begun, out = 0, 0, 0, []
    for j, agreement in enumerate(agreements):
        if agreement < 0:
            counter += 1
        elif agreement >= 0:
            counter -= 1
        age = j - begun
        fires = counter > threshold and age > burn_in
        if (fires or age >= patience) and stage + 1 < n_stages:
            stage, counter, begun = stage + 1, 0, j
        out.append((stage, counter))
    return out


def by_distance(n_stages, distances, burn_in, ratio, slope, patience=math.inf):
    """Stage before each update; distances must be positive, or NaN."""
    stage, begun, seen, out = 0, 0, [], []
    for j, distance in enumerate(distances):
        age = j - begun
        is_checkpoint = age == 1 if not seen else age == next_checkpoint(seen[-1][0], ratio)
        flat = False
        if is_checkpoint:
            seen.append((age, distance))
            if len(seen) > 1 and age > burn_in:
                (u, d), (v, e) = seen[-2:]
                flat = (math.log(e) - math.log(d)) / (math.log(v) - math.log(u)) < slope
        if (flat or age >= patience) and stage + 1 < n_stages:
            stage, begun, seen = stage + 1, j, []
        out.append(stage)
    return out


def next_checkpoint(last, ratio):
    return max(last + 1, math.ceil(ratio * last))


def by_loss(k, n_workers, losses, minimum=0.0, patience=math.inf):
    """(k, stalls) before each update."""
    first = last = None
    best, begun, stalls, out = math.inf, 0, 0, []
    for j, loss in enumerate(losses):
        if math.isfinite(loss):
            last = loss - minimum
            first = last if first is None else first
            if last < best:
                best, begun = last, j
        if j - begun >= patience:
            stalls, begun = stalls + 1, j
        if last is None:
            wanted = k
        elif first <= 0 or last <= 0:
            wanted = n_workers
        else:
            wanted = round(min(k * math.sqrt(first / last), n_workers))
        out.append((min(max(wanted + stalls, 1), n_workers), stalls))
    return out


def by_bounds(times, ks, confidence):
    """Crew before each update; times float[T, n], ks int[T]: the size of each crew."""
    n = times.shape[1]
    samples = [[] for _ in range(n)]
    crews = []
    for j, k in enumerate(ks):

        def promise(i, j=j):
            if not samples[i]:
                return -math.inf
            tries = len(samples[i])
            return sum(samples[i]) / tries - confidence * math.sqrt(2 * math.log(j) / tries)

        crew = sorted(range(n), key=lambda i: (promise(i), i))[:k]
        for i in crew:
            samples[i].append(times[j, i])
        crews.append(sorted(crew))
    return crews


def decoded(code, used):
    """Shard weights of the answers that come closest to the sum, in least squares."""
    rows = code[np.flatnonzero(used)]
    if not len(rows):
        return np.zeros(code.shape[1])
    answers = np.linalg.lstsq(rows.T, np.ones(code.shape[1]), rcond=1e-9)[0]
    return rows.T @ answers
