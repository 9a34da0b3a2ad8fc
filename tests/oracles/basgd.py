"""Buffered asynchronous SGD (BASGD) as its algorithm is written: buffers, one arrival at a time."""

import numpy as np


def train(times, n_buckets, n_updates, gradient, aggregate, x, rate):
    """Models float64[T + 1, d] and the columns (time, worker, step) of the arrivals.

    times[i, j]: how long worker i's j-th job takes, cycled; gradient(x, i); aggregate(h[B, d]).
    """
    n, models = len(times), [np.array(x, float)]
    holds, jobs = [models[0]] * n, [0] * n
    due = [times[i, 0] for i in range(n)]
    h, count = np.zeros((n_buckets, len(x))), np.zeros(n_buckets, int)
    rows = []
    while len(models) <= n_updates:
        i = int(np.argmin(due))  # of equals the first
        now, b = due[i], i % n_buckets
        count[b] += 1
        h[b] = (count[b] - 1) / count[b] * h[b] + gradient(holds[i], i) / count[b]
        steps = bool(np.all(count > 0))
        rows.append((now, i, steps))
        if steps:
            models.append(models[-1] - rate * aggregate(h))
            h, count = np.zeros_like(h), np.zeros_like(count)
        holds[i] = models[-1]
        jobs[i] += 1
        due[i] = now + times[i, jobs[i] % times.shape[1]]
    return np.array(models), rows
