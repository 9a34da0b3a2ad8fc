r"""Regression by a flax linen network, over shards.

.. math:: f_i(x) = \frac{1}{|S_i|} \sum_{r \in S_i}
          \frac{1}{2 o} \| z(a_r; x) - b_r \|^2 + \frac{\lambda_2}{2} \|x\|^2

with o numbers to predict in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.problems import arrays
from asyncjax.problems.batches import Batch
from asyncjax.problems.finite_sum import square_penalty
from asyncjax.problems.held_out import HeldOutLoss
from asyncjax.problems.losses.network import Metrics, NetworkTask, network_problem
from asyncjax.problems.problem import Problem, PyTree
from asyncjax.problems.shards import Shards
from asyncjax.problems.transfers import explicit


@dataclass(frozen=True)
class MeanSquare:
    """Half the mean square of a row's errors, with a quadratic penalty on all parameters."""

    model: nn.Module
    l2: float = 0.0

    def of_rows(self, params: PyTree, features: jax.Array, targets: jax.Array) -> jax.Array:
        """Returns the half mean square of prediction minus target, float[rows]."""
        predictions = jnp.asarray(self.model.apply({"params": params}, features))
        errors = (predictions - targets).reshape(targets.shape[0], -1)
        return 0.5 * jnp.mean(jnp.square(errors), -1)

    def penalty(self, params: PyTree) -> jax.Array | float:
        """Returns l2/2 times the sum of squares of all parameters."""
        return square_penalty(params, self.l2)


@explicit
def regression(
    model: nn.Module,
    features: Any,
    targets: Any,
    *,
    n_workers: int,
    key: jax.Array,
    batch: Batch | None = None,
    shards: Shards | None = None,
    test: tuple[Any, Any] | None = None,
    l2: float = 0.0,
) -> Problem:
    r"""Returns the training of a network by half the mean square of its errors.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{|S_i|} \sum_{r \in S_i}
              \frac{1}{2 o} \| z(a_r; x) - b_r \|^2 + \frac{\lambda_2}{2} \|x\|^2

    With shards of unequal size the first term is not the mean over the rows: every worker counts
    the same. Whole data sets are judged 2048 rows at a time.

    Args:
        model: A flax linen module that maps float[rows, ...] to predictions of the shape of
            `targets` and has parameters only, such as `ForecastMLP`.
        features: float[rows, ...], of the shape the model takes, finite (read once on the host,
            unless traced).
        targets: float[rows], or float[rows, o] for a model of o outputs.
        n_workers: n, at least 1, at most the number of rows.
        key: A typed key for the initial parameters.
        batch: The rows of a job, such as `uniform(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.
        test: Further (features, targets), for the metric `test_loss`, in the unit of the loss
            and without the penalty.
        l2: lambda_2, not negative, on all parameters.

    Returns:
        The problem; its `params` are those of `model.init(key)`.

    Raises:
        TypeError: If the model is no linen module or not hashable, entries are not real numbers,
            or an argument is of another kind.
        ValueError: If data are empty, not finite or of shapes that do not fit, the model's
            predictions are not of the shape of the targets, or there are more workers than rows.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> features, targets = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0]
        >>> problem = problems.regression(
        ...     problems.ForecastMLP(widths=(4,)), features, targets, n_workers=2,
        ...     test=(features, targets), key=jax.random.key(0))
        >>> loss, grads = problem.gradient(problem.params, 0, 0, jax.random.key(1))
        >>> grads["Dense_0"]["kernel"].shape, sorted(problem.metrics(problem.params))
        ((1, 4), ['test_loss'])
    """
    sharing = {"n_workers": n_workers, "batch": batch, "shards": shards}
    return network_problem(_TASK, model, (features, targets), test, key=key, l2=l2, **sharing)


def _read(what: str, features: Any, targets: Any) -> tuple[jax.Array, jax.Array]:
    features = arrays.rows(f"{what}features", features)
    targets = arrays.floating(f"{what}targets", targets)
    if targets.ndim not in (1, 2) or targets.shape[0] != features.shape[0]:
        raise ValueError(
            f"{what}targets must have shape ({features.shape[0]},) or "
            f"({features.shape[0]}, outputs), a row for each row of features, got {targets.shape}"
        )
    dtype = jnp.promote_types(features.dtype, targets.dtype)
    return features.astype(dtype), targets.astype(dtype)


def _check(what: str, answer: tuple[int, ...], features: jax.Array, targets: jax.Array) -> None:
    if answer != (1, *targets.shape[1:]):
        raise ValueError(
            f"model must return predictions {('rows', *targets.shape[1:])} like targets, "
            f"got {answer} for one row"
        )


def _metrics(loss: MeanSquare, chunk: int) -> Metrics:
    return (("test_loss", HeldOutLoss(loss, chunk)),)


_TASK = NetworkTask(("features", "targets"), _read, _check, MeanSquare, _metrics)
