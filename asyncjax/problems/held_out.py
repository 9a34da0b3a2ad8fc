r"""Test rows: how a model does on rows that no worker holds.

.. math:: \frac{1}{m} \sum_{r=1}^{m} v(x; a_r, b_r)

The means are taken a chunk of rows at a time, so that the activations of a large test set are never
held at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from asyncjax.problems.finite_sum import Loss, Samples, weighted_sum
from asyncjax.problems.problem import Problem, PyTree

CHUNK = 2048  # rows whose activations are held at once when a whole data set is judged


@dataclass(frozen=True)
class HeldOutLoss:
    """The mean loss over the test rows, without penalty."""

    loss: Loss
    chunk: int = CHUNK

    def __call__(self, data: Samples, params: PyTree) -> jax.Array:
        """Returns the scalar mean."""

        def losses(features: jax.Array, targets: jax.Array) -> jax.Array:
            return self.loss.of_rows(params, features, targets)

        return held_out_mean(losses, data, self.chunk)


def held_out_mean(
    values: Callable[[jax.Array, jax.Array], jax.Array], data: Samples, chunk: int = CHUNK
) -> jax.Array:
    """Returns the mean over the test rows of a value a row."""
    features, targets = data.test_features, data.test_targets
    if features is None or targets is None:
        raise ValueError("test must be given to the problem for a test metric, got None")
    n_rows = features.shape[0]
    weight = jnp.full(n_rows, 1.0 / n_rows, data.weight.dtype)
    return weighted_sum(values, features, targets, weight, chunk)


def held_out_pair(test: Any, names: tuple[str, str]) -> tuple[Any, Any]:
    """Returns the two parts of `test`."""
    if not (isinstance(test, tuple) and len(test) == 2):
        raise TypeError(f"test must be a pair ({', '.join(names)}), got {type(test).__name__}")
    return test


def judged_by(
    problem: Problem,
    pair: tuple[jax.Array, jax.Array],
    metrics: tuple[tuple[str, Callable[..., jax.Array]], ...],
    names: tuple[str, str],
) -> Problem:
    """Returns the problem with test rows, shaped like its own, and metrics."""
    own = problem.data.features, problem.data.targets
    for name, test, like in zip(names, pair, own, strict=True):
        if test.shape[1:] != like.shape[1:]:
            raise ValueError(
                f"test {name} must have rows of shape {like.shape[1:]} like {name}, "
                f"got {test.shape[1:]}"
            )
    features, targets = (test.astype(like.dtype) for test, like in zip(pair, own, strict=True))
    data = problem.data._replace(test_features=features, test_targets=targets)
    return replace(problem, data=data, metrics_of=metrics)
