r"""Least squares over shards.

.. math:: f_i(x) = \frac{1}{2 |S_i|} \sum_{r \in S_i} (a_r \cdot x - b_r)^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from asyncjax.problems import arrays
from asyncjax.problems.batches import Batch
from asyncjax.problems.finite_sum import finite_sum
from asyncjax.problems.problem import Problem
from asyncjax.problems.shards import Shards
from asyncjax.problems.transfers import explicit


@dataclass(frozen=True)
class SquaredLoss:
    """Half the squared residual of a row."""

    def of_rows(self, params: jax.Array, features: jax.Array, targets: jax.Array) -> jax.Array:
        """Returns (a_r x - b_r)^2 / 2."""
        return 0.5 * jnp.square(features @ params - targets)

    @property
    def curvature(self) -> tuple[float, float]:
        """The second derivative in the score, 1 everywhere."""
        return 1.0, 1.0

    @property
    def penalty_curvature(self) -> tuple[float, float]:
        """The range where there is no penalty."""
        return 0.0, 0.0

    def penalty(self, params: jax.Array) -> float:
        """Returns nothing to add."""
        return 0.0


@explicit
def least_squares(
    features: Any,
    targets: Any,
    *,
    n_workers: int,
    batch: Batch | None = None,
    shards: Shards | None = None,
) -> Problem:
    r"""Returns linear regression: half the mean square of the residuals.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{2 |S_i|} \sum_{r \in S_i} (a_r \cdot x - b_r)^2

    With shards of unequal size this is not the mean over the rows: every worker counts the same.

    Args:
        features: float[rows, d], finite (read once on the host, unless traced); add a column of
            ones for an intercept.
        targets: float[rows].
        n_workers: n, at least 1, at most the number of rows.
        batch: The rows of a job, such as `cyclic(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.

    Returns:
        The problem, which starts from zeros.

    Raises:
        TypeError: If entries are not real numbers, or an argument is of another kind.
        ValueError: If data are empty, not finite or of shapes that do not fit, or there are more
            workers than rows.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> problem = problems.least_squares([[1.0], [2.0]], [1.0, 4.0], n_workers=2)
        >>> loss, grads = problem.gradient(problem.params, 1, 0, jax.random.key(0))
        >>> float(loss), grads.tolist(), float(problem.objective(problem.params))
        (8.0, [-8.0], 4.25)
    """
    features = arrays.matrix("features", features, "[rows, columns]")
    arrays.same_rows("targets", targets, features.shape[0])
    targets = arrays.floating("targets", targets)
    dtype = jnp.promote_types(features.dtype, targets.dtype)
    return finite_sum(
        jnp.zeros(features.shape[1], dtype),
        features.astype(dtype),
        targets.astype(dtype),
        SquaredLoss(),
        n_workers=n_workers,
        batch=batch,
        shards=shards,
    )
