"""The losses that fastest-k SGD is tried on: constants for a plan, gaps to reach."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from asyncjax import problems, stragglers
from asyncjax.study import protocol
from asyncjax.study.protocol import Seeds

PROBLEMS = ("linear", "logistic")
L2 = 0.01  # of logistic regression


@dataclass(frozen=True, eq=False)
class Task:
    """A loss with its constants.

    Attributes:
        problem: What is trained.
        step_size: The step that the factors multiply.
        minimum: The least loss.
        smoothness: Largest eigenvalue of the Hessian (logistic: of its bound).
        strong_convexity: Smallest eigenvalue of the Hessian at the minimum.
        noise_variance: Of one row's gradient at the minimum.
    """

    problem: problems.Problem
    step_size: float
    minimum: float
    smoothness: float
    strong_convexity: float
    noise_variance: float


def task(
    name: str,
    data_seed: int,
    instance: Seeds | None,
    n_workers: int = 50,
    shard: int = 40,
    dim: int = 20,
    noise: float = 3.0,
    signal: float = 7.0,
) -> Task:
    """Makes the data of a problem of `PROBLEMS` and finds their constants in double precision.

    Args:
        name: Of the problem.
        data_seed: Draws the rows.
        instance: Draws the first model. None: zeros.
        n_workers: How many there are.
        shard: Rows of a worker.
        dim: Columns.
        noise: Standard deviation of the linear targets.
        signal: Standard deviation of the linear weights: how far off the start is.
    """
    rng, rows = np.random.default_rng(data_seed), n_workers * shard
    features, direction = rng.standard_normal((rows, dim)), rng.standard_normal(dim)
    if name == "linear":
        targets = signal * features @ direction + noise * rng.standard_normal(rows)
        best = np.linalg.lstsq(features, targets, rcond=None)[0]
        residual, hessian = features @ best - targets, features.T @ features / rows
        problem = problems.least_squares(features, targets, n_workers=n_workers)
        return Task(
            begun(problem, instance, signal / 7),
            0.02,
            float(np.mean(residual**2) / 2),
            *_extremes(hessian, hessian),
            float(np.mean((residual[:, None] * features) ** 2) * dim),
        )
    scores = 2.0 * features @ direction / np.linalg.norm(direction)
    labels = np.where(rng.random(rows) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
    problem = problems.logistic(features, labels, n_workers=n_workers, l2=L2)
    return Task(begun(problem, instance, 0.1), 0.2, *logistic_constants(features, labels, L2))


def begun(problem: problems.Problem, instance: Seeds | None, spread: float) -> problems.Problem:
    """The problem with the first model of an instance, normal numbers times `spread`."""
    if instance is None:
        return problem
    drawn = np.random.default_rng(instance.model).normal(size=np.shape(problem.params))
    return replace(problem, params=jnp.asarray(spread * drawn, jnp.float32))


def logistic_constants(
    features: np.ndarray, labels: np.ndarray, l2: float
) -> tuple[float, float, float, float]:
    """Constants of logistic regression, in double precision.

    Args:
        features: float64[rows, d].
        labels: float64[rows], -1 or 1.
        l2: Factor of half the square of the weights.

    Returns:
        The least loss, L (of the bound of the Hessian), the least eigenvalue of the Hessian at the
        minimum, and the variance of one row's gradient there.
    """
    rows, d = features.shape
    best, ridge = np.zeros(d), l2 * np.eye(d)

    def at(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share = 1 / (1 + np.exp(labels * (features @ weights)))
        curved = features.T @ ((share * (1 - share))[:, None] * features) / rows + ridge
        return -(labels * share)[:, None] * features + l2 * weights, curved

    for _ in range(30):  # Newton
        single, curved = at(best)
        best = best - np.linalg.solve(curved, single.mean(0))
    single, curved = at(best)
    minimum = np.mean(np.logaddexp(0, -labels * (features @ best))) + l2 / 2 * best @ best
    return (
        float(minimum),
        *_extremes(features.T @ features / (4 * rows) + ridge, curved),
        float((single**2).sum(1).mean()),
    )


def _extremes(largest_of: np.ndarray, smallest_of: np.ndarray) -> tuple[float, float]:
    """Largest eigenvalue of one matrix and smallest of another."""
    return float(np.linalg.eigvalsh(largest_of)[-1]), float(np.linalg.eigvalsh(smallest_of)[0])


def bound_of(task: Task, step_size: float, floor: Any = None) -> stragglers.ErrorBound:
    """The bound with the constants of a task."""
    objective = task.problem.objective
    assert objective is not None
    return stragglers.ErrorBound(
        step_size=step_size,
        smoothness=task.smoothness,
        strong_convexity=task.strong_convexity,
        noise_variance=task.noise_variance,
        initial_error=float(objective(task.problem.params)) - task.minimum,
        floor=floor,
    )


def floor_of(task: Task, samples: float) -> float:
    """The bound's floor of an update of so many samples, at the plans' step."""
    return float(stragglers.error_floor(bound_of(task, task.step_size), 1, samples))


def targets_of(task: Task, samples: float, levels: Sequence[float]) -> np.ndarray:
    """Gaps to reach, float64[levels].

    Each closes that share of the way, in the logarithm of the gap, from the first model to the
    bound's floor of an update of so many samples. (On the gap itself 95 % of the way would be made
    after two stages of twenty.)
    """
    first = bound_of(task, task.step_size).initial_error
    return np.exp(protocol.targets(np.log(first), np.log(floor_of(task, samples)), levels))
