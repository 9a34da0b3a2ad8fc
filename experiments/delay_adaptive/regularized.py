"""Regularised logistic regression on real data: the problems, their constants and their optima.

    P(x) = (1/n) sum_i mean log(1 + exp(-y a x)) + (l2/2) ||x||^2 + l1 ||x||_1
    f    = all but the last term

Consecutive shards of equal size; trailing rows are left out. The optimum comes from an independent
solver (L-BFGS-B of SciPy on x = u - v with u, v >= 0, in float64), so that a gap P(x_k) - P* does
not depend on the methods compared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from asyncjax import problems

SAFETY = 0.99  # h of gamma' = h / L
N_BLOCKS = 20


@dataclass(frozen=True, eq=False)
class Regularized:
    """One data set.

    Attributes:
        name: Of the data.
        shards: The problem with a shard a worker; l1 in the objective only.
        whole: The same with one worker that holds all rows.
        l1: Weight of the sum of absolute values, for the proximal step.
        smoothness: Lipschitz constants of the shards and of f.
        blocks: The same by blocks of coordinates.
        start: P(x_0), x_0 = 0.
        optimum: P*.
        nonzero: Share of the coordinates of the optimum that are not 0.
    """

    name: str
    shards: problems.Problem
    whole: problems.Problem
    l1: float
    smoothness: problems.Smoothness
    blocks: problems.BlockSmoothness
    start: float
    optimum: float
    nonzero: float


@dataclass(frozen=True)
class Source:
    """Where rows come from, and what is added to the loss."""

    l1: float
    l2: float
    n_workers: int = 8
    most: int = 5000  # rows


SOURCES = {
    "breast cancer": Source(1e-3, 1e-2),
    "digits": Source(1e-3, 1e-2),
    "MNIST": Source(1e-3, 1e-2, n_workers=10),
    "Shakespeare": Source(3e-4, 1e-3, most=4000),
}


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels 0 or 1 of a data set's training rows.

    Args:
        name: One of `SOURCES`. Digits and MNIST: even against odd.

    Returns:
        float32[rows, d] and int[rows]; MNIST's rows, sorted by label at the source, in a drawn
        order.

    Raises:
        ValueError: The name is not known.
        ImportError: The package that brings the data is missing; it says which.
    """
    if name == "breast cancer":
        data = problems.breast_cancer()
        return data.train_features, data.train_labels
    if name == "digits":
        data = problems.digits()
        return data.train_features, data.train_labels % 2
    if name == "MNIST":
        data = problems.mnist_subset()
        order = np.random.default_rng(0).permutation(len(data.train_labels))
        return data.train_features[order], data.train_labels[order] % 2
    if name == "Shakespeare":
        data = problems.shakespeare_genres(n_features=1000)
        order = np.random.default_rng(0).permutation(len(data.train_labels))
        return data.train_features[order], data.train_labels[order]
    raise ValueError(f"data must be among {', '.join(SOURCES)}, got {name!r}")


@cache
def regularized(name: str, seed: int | None = None) -> Regularized:
    """Makes the problem of a data set; the optimum of the largest takes some seconds.

    Args:
        name: One of `SOURCES`.
        seed: Of an instance, which has four fifths of the rows, in an order of its own. None: all
            rows, as they come.
    """
    features, labels = rows_of(name)
    source = SOURCES[name]
    most = min(len(features), source.most)
    if seed is not None:
        rows = np.random.default_rng(seed).permutation(most)[: 4 * most // 5]
        features, labels = features[rows], labels[rows]
    count = min(len(features), most) // source.n_workers * source.n_workers
    features, labels = features[:count], labels[:count]
    made = {
        n: problems.logistic(features, labels, n_workers=n, l1=source.l1, l2=source.l2)
        for n in (source.n_workers, 1)
    }
    shards, whole = made[source.n_workers], made[1]
    signs = np.where(labels == 1, 1.0, -1.0)
    best, optimum = minimum(features.astype(np.float64), signs, source.l1, source.l2)
    return Regularized(
        name=name,
        shards=shards,
        whole=whole,
        l1=source.l1,
        smoothness=problems.smoothness(shards),
        blocks=problems.block_smoothness(whole, N_BLOCKS),
        start=float(np.log(2.0)),
        optimum=optimum,
        nonzero=float(np.mean(best != 0)),
    )


def minimum(
    features: np.ndarray, signs: np.ndarray, l1: float, l2: float
) -> tuple[np.ndarray, float]:
    """The minimum of P by a general solver, in float64.

    Args:
        features: float64[rows, d].
        signs: float64[rows], -1 or 1.
        l1: Weight of the sum of absolute values.
        l2: Weight of half the sum of squares.

    Returns:
        The minimiser float64[d] and P*.

    Raises:
        RuntimeError: The solver stopped far from a stationary point.
    """

    def smooth(x: np.ndarray) -> tuple[float, np.ndarray]:
        margin = signs * (features @ x)
        value = np.logaddexp(0, -margin).mean() + l2 / 2 * (x @ x)
        chance = 0.5 * (1 - np.tanh(margin / 2))
        return value, -features.T @ (signs * chance) / len(signs) + l2 * x

    return sparse_minimum(smooth, features.shape[1], l1)


def sparse_minimum(
    smooth: Callable[[np.ndarray], tuple[float, np.ndarray]], dimension: int, l1: float
) -> tuple[np.ndarray, float]:
    """The minimum of a smooth convex function plus l1 times the sum of absolute values, in float64.

    Args:
        smooth: `float64[d] -> (value, gradient)`.
        dimension: d.
        l1: Weight of the sum of absolute values.

    Returns:
        The minimiser float64[d] and the smallest value.

    Raises:
        RuntimeError: The solver stopped far from a stationary point.
    """
    from scipy.optimize import minimize

    def objective(split: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = smooth(split[:dimension] - split[dimension:])
        return value + l1 * split.sum(), np.concatenate([gradient + l1, l1 - gradient])

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-7, "maxcor": 30}
    bounds = [(0.0, None)] * (2 * dimension)
    found = minimize(
        objective,
        np.zeros(2 * dimension),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options=options,
    )
    slope = objective(found.x)[1]
    stationary = np.where(found.x > 0, np.abs(slope), np.maximum(-slope, 0)).max()
    if stationary > 1e-5:
        raise RuntimeError(f"the optimum was not found: a slope of {stationary:.2g} is left")
    return found.x[:dimension] - found.x[dimension:], float(found.fun)
