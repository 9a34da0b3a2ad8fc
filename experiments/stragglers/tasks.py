"""The losses that fastest-k SGD is tried on: settings, constants for a plan, target."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from asyncjax import problems, stragglers
from asyncjax.study import protocol
from asyncjax.study.protocol import LEVELS, Seeds

PROBLEMS = ("linear", "logistic")
L2 = 0.01  # of logistic regression


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/straggler_training")
    commit: bool = False  # also write the numbers that are committed
    seed: int = 0
    n_workers: int = 50
    shard: int = 40  # rows of a worker
    dim: int = 20
    noise: float = 3.0  # standard deviation of the linear targets
    signal: float = 7.0  # standard deviation of the linear weights: how far off the start is
    instances: int = 40  # of each of the two reported sets
    tuning_instances: int = 3
    trials: int = 10  # settings that a method tries in a round of tuning
    rounds: tuple[int, int] = (3, 5)
    lengths: tuple[int, ...] = (250, 1000, 4000)  # updates: the next where one is too short
    horizon: float = 1000.0  # time units that a run is watched
    levels: tuple[float, ...] = LEVELS  # the last is that of tuning, and of all costs but time
    loads: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40)
    least_samples: int = 10  # of an update, in plans
    cases: tuple[str, ...] = (  # problem and law
        "linear, scale",
        "logistic, scale",
        "linear, additive",
        "linear, lognormal",
    )
    family_cases: tuple[str, ...] = ("linear, scale",)  # in which the wider family runs too


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


def task(settings: Settings, name: str, instance: Seeds | None = None) -> Task:
    """Makes the data of a problem of `PROBLEMS` and finds their constants in double precision.

    Args:
        settings: Sizes.
        name: Of the problem.
        instance: Draws the rows and the first model. None: rows of the settings' seed, and zeros.
    """
    rng = np.random.default_rng(settings.seed if instance is None else instance.data)
    rows, d = settings.n_workers * settings.shard, settings.dim
    features, direction = rng.standard_normal((rows, d)), rng.standard_normal(d)
    if name == "linear":
        targets = settings.signal * features @ direction + settings.noise * rng.standard_normal(
            rows
        )
        best = np.linalg.lstsq(features, targets, rcond=None)[0]
        residual = features @ best - targets
        hessian = features.T @ features / rows
        problem = problems.least_squares(features, targets, n_workers=settings.n_workers)
        return Task(
            begun(problem, instance, settings.signal / 7),
            0.02,
            float(np.mean(residual**2) / 2),
            *_extremes(hessian, hessian),
            float(np.mean((residual[:, None] * features) ** 2) * d),
        )
    scores = 2.0 * features @ direction / np.linalg.norm(direction)
    labels = np.where(rng.random(rows) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
    problem = problems.logistic(features, labels, n_workers=settings.n_workers, l2=L2)
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


def bound_of(made: Task, step_size: float, floor: Any = None) -> stragglers.ErrorBound:
    """The bound with the constants of a task."""
    objective = made.problem.objective
    assert objective is not None
    return stragglers.ErrorBound(
        step_size=step_size,
        smoothness=made.smoothness,
        strong_convexity=made.strong_convexity,
        noise_variance=made.noise_variance,
        initial_error=float(objective(made.problem.params)) - made.minimum,
        floor=floor,
    )


def target_of(settings: Settings, made: Task) -> float:
    """The bound's floor of 30 of 50 workers at full load."""
    return floor_of(made, max(1, round(0.6 * settings.n_workers)) * settings.shard)


def floor_of(made: Task, samples: float) -> float:
    """The bound's floor of an update of so many samples, at the plans' step."""
    return float(stragglers.error_floor(bound_of(made, made.step_size), 1, samples))


def targets_of(made: Task, samples: float, levels: Sequence[float]) -> np.ndarray:
    """Gaps to reach, float64[levels].

    Each closes that share of the way, in the logarithm of the gap, from the first model to the
    bound's floor of an update of so many samples. (On the gap itself 95 % of the way would be made
    after two stages of twenty.)
    """
    first = bound_of(made, made.step_size).initial_error
    return np.exp(protocol.targets(np.log(first), np.log(floor_of(made, samples)), levels))
