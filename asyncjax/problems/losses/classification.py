r"""Classification by a flax linen network, over shards.

.. math:: f_i(x) = \frac{1}{|S_i|} \sum_{r \in S_i}
          \left( \log \sum_c e^{z_c(a_r; x)} - z_{y_r}(a_r; x) \right)
          + \frac{\lambda_2}{2} \|x\|^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.checks import within
from asyncjax.problems import arrays
from asyncjax.problems.batches import Batch
from asyncjax.problems.finite_sum import Samples, square_penalty
from asyncjax.problems.held_out import HeldOutLoss, held_out_mean
from asyncjax.problems.losses.network import Metrics, NetworkTask, cross_entropy, network_problem
from asyncjax.problems.problem import Problem, PyTree
from asyncjax.problems.shards import Shards
from asyncjax.problems.transfers import explicit


@dataclass(frozen=True)
class CrossEntropy:
    """The cross-entropy of a row under a network, with a quadratic penalty on all parameters."""

    model: nn.Module
    l2: float = 0.0

    def scores(self, params: PyTree, features: jax.Array) -> jax.Array:
        """Returns float[rows, classes]."""
        return jnp.asarray(self.model.apply({"params": params}, features))

    def of_rows(self, params: PyTree, features: jax.Array, targets: jax.Array) -> jax.Array:
        """Returns log sum_c exp(z_c) - z_y, float[rows]."""
        return cross_entropy(self.scores(params, features), targets)

    def penalty(self, params: PyTree) -> jax.Array | float:
        """Returns l2/2 times the sum of squares of all parameters."""
        return square_penalty(params, self.l2)


@dataclass(frozen=True)
class HeldOutAccuracy:
    """The share of test rows whose highest score is that of their label."""

    loss: CrossEntropy

    def __call__(self, data: Samples, params: PyTree) -> jax.Array:
        """Returns the scalar share, 0 to 1."""

        def hits(features: jax.Array, targets: jax.Array) -> jax.Array:
            return jnp.argmax(self.loss.scores(params, features), -1) == targets

        return held_out_mean(hits, data)


@explicit
def classification(
    model: nn.Module,
    features: Any,
    labels: Any,
    *,
    n_workers: int,
    key: jax.Array,
    batch: Batch | None = None,
    shards: Shards | None = None,
    test: tuple[Any, Any] | None = None,
    l2: float = 0.0,
    eval_rows: int | None = None,
) -> Problem:
    r"""Returns the training of a network by cross-entropy.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{|S_i|} \sum_{r \in S_i}
              \left( \log \sum_c e^{z_c(a_r; x)} - z_{y_r}(a_r; x) \right)
              + \frac{\lambda_2}{2} \|x\|^2

    With shards of unequal size the first term is not the mean over the rows: every worker counts
    the same. Whole data sets are judged 2048 rows at a time.

    Args:
        model: A flax linen module that maps float[rows, ...] to scores [rows, classes] and has
            parameters only (no batch statistics, no dropout), such as `MLP` or `SmallCNN`.
        features: float[rows, ...], of the shape the model takes, finite (read once on the host,
            unless traced).
        labels: int[rows], 0..classes-1.
        n_workers: n, at least 1, at most the number of rows.
        key: A typed key for the initial parameters.
        batch: The rows of a job, such as `uniform(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.
        test: Further (features, labels), for the metrics `test_accuracy` and `test_loss`.
        l2: lambda_2, not negative, on all parameters.
        eval_rows: Rows that the objective looks at, at most all, spread evenly over them, each
            weighted as in f; the loss of a record is then an estimate of f, always on the same
            rows. None: all, so it is f; with many rows most of the time of a run may go there,
            since a record costs as much as the gradients of about a third of them.

    Returns:
        The problem; its `params` are those of `model.init(key)`.

    Raises:
        TypeError: If the model is no linen module or not hashable, labels are no integers, or an
            argument is of another kind.
        ValueError: If data are empty, not finite or of shapes that do not fit, a label is outside
            the model's classes, or there are more workers than rows.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> features, labels = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
        >>> problem = problems.classification(
        ...     problems.MLP(hidden=(4,), classes=2), features, labels, n_workers=2,
        ...     batch=problems.uniform(1), test=(features, labels), key=jax.random.key(0))
        >>> loss, grads = problem.gradient(problem.params, 0, 0, jax.random.key(1))
        >>> grads["Dense_0"]["kernel"].shape, sorted(problem.metrics(problem.params))
        ((1, 4), ['test_accuracy', 'test_loss'])
    """
    sharing = {"n_workers": n_workers, "batch": batch, "shards": shards, "eval_rows": eval_rows}
    return network_problem(_TASK, model, (features, labels), test, key=key, l2=l2, **sharing)


def _read(what: str, features: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
    features = arrays.rows(f"{what}features", features)
    arrays.same_rows(f"{what}labels", labels, features.shape[0])
    return features, arrays.integers(f"{what}labels", labels)


def _check(what: str, answer: tuple[int, ...], features: jax.Array, labels: jax.Array) -> None:
    if len(answer) != 2 or answer[0] != 1:
        raise ValueError(f"model must return scores [rows, classes], got {answer} for one row")
    within(f"{what}labels", labels, least=0, most=answer[1] - 1, integer=True)


def _metrics(loss: CrossEntropy, chunk: int) -> Metrics:
    return ("test_accuracy", HeldOutAccuracy(loss)), ("test_loss", HeldOutLoss(loss, chunk))


_TASK = NetworkTask(("features", "labels"), _read, _check, CrossEntropy, _metrics)
