r"""Logistic regression over shards, with the penalties used in the papers.

.. math:: f_i(x) = \frac{1}{|S_i|} \sum_{r \in S_i} \log(1 + e^{-y_r a_r \cdot x})
          + \frac{\lambda_2}{2} \|x\|^2 + \mu \sum_j \frac{x_j^2}{1 + x_j^2}

Reference: the non-convex penalty with mu = 0.1 is the test problem of Islamov, Safaryan, Alistarh,
AsGrad (arXiv 2310.20452); l2 with l1 is that of Wu, Magnússon, Feyzmahdavian, Johansson
(arXiv 2202.08550).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import real
from asyncjax.problems import arrays
from asyncjax.problems.batches import Batch
from asyncjax.problems.finite_sum import Objective, finite_sum
from asyncjax.problems.problem import Problem
from asyncjax.problems.shards import Shards
from asyncjax.problems.transfers import explicit


@dataclass(frozen=True)
class LogisticLoss:
    """The logistic loss of a row, with a quadratic and a non-convex penalty."""

    l2: float = 0.0
    nonconvex: float = 0.0

    def of_rows(self, params: jax.Array, features: jax.Array, targets: jax.Array) -> jax.Array:
        """Returns log(1 + exp(-y_r a_r x)), without overflow."""
        return jax.nn.softplus(-targets * (features @ params))

    @property
    def curvature(self) -> tuple[float, float]:
        """The range of the second derivative s (1 - s), s the logistic function of the score."""
        return 0.0, 0.25

    @property
    def penalty_curvature(self) -> tuple[float, float]:
        """The range of l2 + nonconvex (2 - 6 x^2) / (1 + x^2)^3: from x = 1 to x = 0."""
        return self.l2 - 0.5 * self.nonconvex, self.l2 + 2.0 * self.nonconvex

    def penalty(self, params: jax.Array) -> jax.Array | float:
        """Returns l2/2 ||x||^2 + nonconvex sum x^2 / (1 + x^2)."""
        squares = jnp.square(params)
        total: jax.Array | float = 0.0
        if self.l2:
            total += 0.5 * self.l2 * jnp.sum(squares)
        if self.nonconvex:
            total += self.nonconvex * jnp.sum(squares / (1.0 + squares))
        return total


@explicit
def logistic(
    features: Any,
    labels: Any,
    *,
    n_workers: int,
    l2: float = 0.0,
    l1: float = 0.0,
    nonconvex: float = 0.0,
    batch: Batch | None = None,
    shards: Shards | None = None,
    start: Any = None,
) -> Problem:
    r"""Returns logistic regression with penalties.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{|S_i|} \sum_{r \in S_i} \log(1 + e^{-y_r a_r \cdot x})
              + \frac{\lambda_2}{2} \|x\|^2 + \mu \sum_j \frac{x_j^2}{1 + x_j^2}
              + \lambda_1 \|x\|_1

    The gradient and the loss of a job leave the last term out: it is meant for a proximal step
    (`asyncjax.steps.proximal` with soft thresholding), and only the objective counts it. With
    shards of unequal size the first term is not the mean over the rows: every worker counts the
    same.

    Args:
        features: float[rows, d], finite (read once on the host, unless traced); add a column of
            ones for an intercept (which is penalised too).
        labels: [rows], -1 and +1, or 0 and 1 (False and True) with 0 read as -1; both must be
            there. Traced labels are taken as -1 and +1.
        n_workers: n, at least 1, at most the number of rows.
        l2: lambda_2, not negative.
        l1: lambda_1, not negative; in the objective only.
        nonconvex: mu, not negative.
        batch: The rows of a job, such as `cyclic(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.
        start: float[d], the initial model; None: zeros.

    Returns:
        The problem.

    Raises:
        TypeError: If entries are not real numbers, or an argument is of another kind.
        ValueError: If data are empty, not finite or of shapes that do not fit, labels are others,
            a factor is negative, or there are more workers than rows.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> features, labels = [[1.0], [2.0], [-1.0], [0.0]], [1, 1, 0, 0]
        >>> problem = problems.logistic(features, labels, n_workers=2, l2=0.1)
        >>> loss, grads = problem.gradient(problem.params, 0, 0, jax.random.key(0))
        >>> round(float(loss), 4), grads.tolist()
        (0.6931, [-0.75])

    Reference:
        AsGrad, arXiv 2310.20452 (nonconvex=0.1); delay-adaptive step sizes, arXiv 2202.08550
        (l1 and l2).
    """
    features = arrays.matrix("features", features, "[rows, columns]")
    arrays.same_rows("labels", labels, features.shape[0])
    l1 = real("l1", l1, least=0)
    loss = LogisticLoss(real("l2", l2, least=0), real("nonconvex", nonconvex, least=0))
    problem = finite_sum(
        arrays.starting_point(start, features.shape[1:], 0.0, features.dtype),
        features,
        _signs(labels).astype(features.dtype),
        loss,
        n_workers=n_workers,
        batch=batch,
        shards=shards,
    )
    return replace(problem, objective_of=Objective(loss, l1))


def _signs(labels: Any) -> jax.Array:
    """Returns the labels as -1 and +1."""
    if arrays.is_traced(labels):
        return jnp.asarray(labels)
    values = np.asarray(labels)
    if values.dtype == object:
        raise TypeError("labels must be -1 and +1, or 0 and 1, got dtype object")
    found = np.unique(values)
    if np.array_equal(found, (-1, 1)):
        return jnp.asarray(values)
    if np.array_equal(found, (0, 1)):
        return jnp.asarray(np.where(values == 1, 1, -1))
    shown = ", ".join(str(value) for value in found[:5]) + (", ..." if found.size > 5 else "")
    only = "only " if found.size == 1 else ""
    raise ValueError(f"labels must be -1 and +1, or 0 and 1, both of them, got {only}{shown}")
