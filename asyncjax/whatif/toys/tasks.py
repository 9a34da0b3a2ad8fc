"""The stand-in problems: small, convex, noisy, with even and with skewed data.

    even        f_i(x) = 1/2 sum_j (sqrt(a_j) x_j - 1)^2, the same for all; gradients with noise
    skewed      f_i(x) = 1/2 sum_j (sqrt(a_j) x_j - 1 - z_ij)^2, an optimum for each worker; the z_i
                sum to zero, so that the true optimum is the same
    labels      logistic regression, the rows sorted by label: half of the workers hold each

Curvatures a_j fall from 1 to 1/20, and every coordinate has the same share of the loss at the
start, x = 0. The noise of a synchronous round is the same for any number of workers. On skewed data
a rule that hears some workers more often than others ends somewhere else: the larger their z_i, the
farther.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from asyncjax import problems
from asyncjax.problems import Problem

SIZE = 12
CONDITION = 20.0
NOISE = 0.2  # of each coordinate of the mean of a gradient of every worker
SKEW = 2.5  # standard deviation of z_ij
_BATCH, _BATCHES = 128, 6  # rows of a gradient of every worker, shards in gradients


@dataclass(frozen=True, eq=False)
class Task:
    """A stand-in problem.

    Attributes:
        name: What tables call it.
        text: What it is, a sentence without a full stop.
        is_skewed: Whether the workers' data differ.
        make: `(n_workers, key) -> problem`.
    """

    name: str
    text: str
    is_skewed: bool
    make: Callable[[int, jax.Array], Problem]


def _curvature(n: int) -> np.ndarray:
    return np.tile(np.geomspace(1.0, 1.0 / CONDITION, SIZE), (n, 1)).astype(np.float32)


def _quadratic(skew: float) -> Callable[[int, jax.Array], Problem]:
    def make(n: int, key: jax.Array) -> Problem:
        own = skew * np.asarray(jax.random.normal(key, (n, SIZE)))
        optima = 1.0 + own - own.mean(axis=0)
        curvature = _curvature(n)
        linear = (np.sqrt(curvature) * optima).astype(np.float32)
        return problems.quadratic(
            curvature, linear, start=np.zeros(SIZE, np.float32), noise=NOISE * n**0.5
        )

    return make


def _labels(n: int, key: jax.Array) -> Problem:
    """Two clouds of points, the workers' shards cut from rows sorted by label."""
    batch = max(4, round(_BATCH / n))
    rows = n * _BATCHES * batch
    labels = np.arange(rows) * 2 // rows
    scale = 4.0 * np.geomspace(1.0, 0.5 / np.sqrt(CONDITION), SIZE - 1)
    apart = np.linspace(
        0.0, 0.8, SIZE - 1
    )  # what tells the labels apart is small, so slow to learn
    points = np.asarray(jax.random.normal(key, (rows, SIZE - 1)))
    points = (points + (2 * labels - 1)[:, None] * apart) * scale
    features = np.column_stack([points, np.ones(rows)]).astype(np.float32)
    return problems.logistic(features, labels, n_workers=n, l2=0.001, batch=problems.uniform(batch))


TASKS = (
    Task("even data", "quadratic, all workers draw from the same data", False, _quadratic(0.0)),
    Task(
        "skewed data", "quadratic, every worker has an optimum of its own", True, _quadratic(SKEW)
    ),
    Task(
        "skewed labels", "logistic regression, every worker holds one of two labels", True, _labels
    ),
)
