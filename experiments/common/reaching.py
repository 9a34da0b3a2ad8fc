"""How good models are and when they are good enough: accuracies, times to one, what is tuned."""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from asyncjax import problems, results
from asyncjax.study import protocol


@jax.jit
def accuracies(problem: problems.Problem, models: jax.Array) -> jax.Array:
    """Test accuracies of models float[R, d]."""
    restored = ravel_pytree(problem.params)[1]
    metric = dict(problem.metrics_of)["test_accuracy"]
    return jax.vmap(lambda model: metric(problem.data, restored(model)))(models)


@jax.jit
def losses(problem: problems.Problem, models: jax.Array) -> jax.Array:
    """Training losses of models float[R, d]."""
    restored, objective = ravel_pytree(problem.params)[1], problem.objective
    assert objective is not None
    return jax.lax.map(lambda model: objective(restored(model)), models)


def slim(problem: problems.Problem) -> problems.Problem:
    """The problem without its shards, whose shapes differ and which no judge reads."""
    data = problem.data
    return replace(problem, data=data._replace(rows=data.rows[:, :1], size=data.size[:1]))


def times_to_stay(
    target: float, horizon: float, time: np.ndarray, accuracy: np.ndarray, axis: Any = None
) -> np.ndarray:
    """Where an accuracy is reached and not left again by the horizon, infinity where never.

    Args:
        target: The accuracy.
        horizon: Records after it are not read.
        time: float[K, R] of the records.
        accuracy: float[K, R]; NaN is not at the target.
        axis: float[K, R], what is read off instead of the time.

    Returns:
        float64[K].

    Example:
        >>> time = np.array([[1.0, 2.0, 3.0, 4.0]])
        >>> times_to_stay(0.5, 3.0, time, np.array([[0.6, 0.4, 0.7, 0.1]]))
        array([3.])
    """
    points = np.where(time <= horizon, time if axis is None else axis, np.nan)
    return results.time_to_target(points, accuracy, target=target, above=True, stays=True)


def last_within(horizon: float, axis: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The last value of each run within the horizon, float[S]; NaN where it had diverged.

    Example:
        >>> last_within(2.0, np.array([[1.0, 2.0, 3.0]]), np.array([[5.0, 6.0, 7.0]]))
        array([6.])
    """
    last = np.sum(axis <= horizon, axis=1) - 1
    return values[np.arange(len(values)), last]


def score(target: float, horizon: float, axis: np.ndarray, accuracy: np.ndarray) -> float:
    """What is tuned and what is shown: the mean logarithm of the time to stay at the target, cut.

    Where no run reaches the target, the last accuracy decides: a hundredth of what is missing is
    added. Infinity where every run diverged. The time is that of `times_to_stay`.
    """
    times = times_to_stay(target, horizon, axis, accuracy)
    last = last_within(horizon, axis, accuracy)
    if not np.isfinite(last).any() and not np.isfinite(times).any():
        return math.inf
    missing = 1.0 - np.nan_to_num(last).mean()
    return float(np.log(protocol.restricted(times, horizon)).mean() + 0.01 * missing)


def wasted(summary: Any) -> float:
    """Share of delivered or cancelled gradients that entered no step."""
    lost = summary.thrown_away + summary.cancelled
    return lost / (summary.used + lost)
