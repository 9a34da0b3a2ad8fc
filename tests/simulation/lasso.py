"""An l1-logistic problem, its twins in NumPy, and clocks, for tests of PIAG and block descent."""

import functools

import numpy as np

from asyncjax import clocks, problems, traces
from tests.oracles.block_descent import smallest

WORKERS, ROWS, DIM, L1, L2 = 4, 15, 23, 1e-2, 1e-2


@functools.cache
def data():
    """Features [n, rows, d] and labels [n, rows]."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(WORKERS, ROWS, DIM))
    truth = np.where(np.arange(DIM) % 4 == 0, 2.0, 0.0)
    return features, np.sign(features @ truth + rng.normal(size=(WORKERS, ROWS)))


def problem(start=None):
    """The problem in JAX, a shard a worker."""
    features, labels = data()
    start = np.zeros(DIM) if start is None else start
    flat = features.reshape(-1, DIM)
    return problems.logistic(flat, labels.ravel(), n_workers=WORKERS, l2=L2, l1=L1, start=start)


def gradient(worker, x):
    """Gradient of one worker's smooth part."""
    features, labels = data()
    rows, signs = features[worker], labels[worker]
    return -(signs / (1 + np.exp(signs * (rows @ x)))) @ rows / ROWS + L2 * x


def objective(x):
    """The whole objective."""
    return smooth(x) + L1 * np.abs(x).sum()


def smooth(x):
    """The objective without the l1 term."""
    features, labels = data()
    return np.logaddexp(0, -labels * (features @ x)).mean() + L2 / 2 * (x @ x)


def full_gradient(x):
    """Gradient of the smooth part."""
    return np.mean([gradient(worker, x) for worker in range(WORKERS)], axis=0)


@functools.cache
def optimum():
    """The smallest value of the objective, by an independent solver."""
    return smallest(smooth, full_gradient, DIM, L1)


def lipschitz():
    """Root mean square of the workers' Lipschitz constants."""
    constants = [np.linalg.norm(rows, 2) ** 2 / (4 * ROWS) + L2 for rows in data()[0]]
    return np.sqrt(np.mean(np.square(constants)))


def durations(n_workers=WORKERS, *, grid=None):
    """Times of jobs, [n, 97]; with a grid, multiples of it, so that many jobs end at one moment."""
    slowness = np.linspace(1.0, 4.0, n_workers)[:, None]
    times = slowness * np.random.default_rng(0).exponential(size=(n_workers, 97))
    return times if grid is None else grid * np.ceil(times / grid)


def trace(times, n_updates):
    """The asynchronous trace of recorded times."""
    return traces.asynchronous(clocks.recorded(times), n_updates=n_updates)
