"""Asynchronous block-coordinate descent in plain float64 NumPy, written from the definition.

Every model is kept.
"""

import numpy as np
from scipy.optimize import minimize

from tests.oracles.steps import soft_threshold


def block_descent(
    duration, n_workers, n_updates, start, gradient, block_of, rule, *, n_blocks, l1=0.0, torn=0.0
):
    """Workers that read, think and write, each for itself; returns all models and a log.

    duration(i, j): time of worker i's j-th job. gradient(i, j, x). block_of(i, j): the block that
    the job writes. rule(delays so far) -> all steps so far. A job that begins at s and ends at t
    reads block b at s + torn (b / m) (t - s) and finds what was written up to then.
    """
    pieces = np.array_split(np.arange(len(start)), n_blocks)
    models, moments = [np.array(start, np.float64)], []
    jobs = [(duration(i, 0), i, 0, 0, 0.0) for i in range(n_workers)]  # end, i, j, counter, begin
    log = {name: [] for name in ("worker", "job", "time", "delay", "block", "step")}
    for k in range(n_updates):
        end, i, j, counter, begin = job = min(jobs)
        jobs.remove(job)
        seen = np.full(len(start), np.nan)
        for b, piece in enumerate(pieces):
            moment = begin + torn * (b / n_blocks) * (end - begin)
            written = sum(other <= moment for other in moments) if torn else counter
            seen[piece] = models[min(max(written, counter), k)][piece]
        block = block_of(i, j)
        log["delay"].append(k - counter)
        step = rule(log["delay"])[-1]
        x, part = models[-1].copy(), pieces[block]
        x[part] = soft_threshold(x[part] - step * gradient(i, j, seen)[part], step * l1)
        models.append(x)
        moments.append(end)
        for name, value in zip(
            ("worker", "job", "time", "block", "step"), (i, j, end, block, step), strict=True
        ):
            log[name].append(value)
        jobs.append((end + duration(i, j + 1), i, j + 1, k + 1, end))
    return np.array(models), {name: np.array(column) for name, column in log.items()}


def smallest(objective, gradient, dim, l1):
    """min f(x) + l1 |x|_1 by bounded quasi-Newton on x = u - v with u, v >= 0."""

    def split(z):
        x = z[:dim] - z[dim:]
        slope = gradient(x)
        return objective(x) + l1 * z.sum(), np.concatenate([slope, -slope]) + l1

    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-12}
    bounds = [(0, None)] * (2 * dim)
    return float(minimize(split, np.zeros(2 * dim), jac=True, bounds=bounds, options=options).fun)
