r"""Finite sums: problems made of a loss a row, rows being divided among the workers.

.. math:: f(x) = \frac{1}{n} \sum_{i=1}^{n} f_i(x), \qquad
          f_i(x) = \frac{1}{|S_i|} \sum_{r \in S_i} \ell(x; a_r, b_r) + P(x)

With shards of unequal size f is not the mean over the rows: every worker counts the same, so a
row of a small shard counts more. A job's gradient is the mean over its batch of rows, plus that
of the penalty P.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import whole
from asyncjax.problems.batches import Batch, Whole, check_batch
from asyncjax.problems.problem import Problem, PyTree
from asyncjax.problems.shards import Shards, check_shards, contiguous


class Samples(NamedTuple):
    """The rows, whose they are, and how much each counts in the objective."""

    features: jax.Array  # float[rows, ...], or int32 where rows are tokens
    targets: jax.Array  # float or int32[rows, ...]
    rows: jax.Array  # int32[n, m_max], row numbers of each worker, padded
    size: jax.Array  # int32[n], rows of each worker
    weight: jax.Array  # float[rows], sum over the holders i of 1 / (n size_i); sums to 1
    test_features: jax.Array | None = None  # [test rows, ...], like features
    test_targets: jax.Array | None = None  # [test rows, ...], like targets
    judged: jax.Array | None = None  # int32[k], rows that the objective looks at; None: all
    judged_weight: jax.Array | None = None  # float[k], how much each counts there; sums to 1


class Loss(Protocol):
    """A loss a row and a penalty of the model; hashable, so equal losses share a compilation."""

    def of_rows(self, params: PyTree, features: jax.Array, targets: jax.Array) -> jax.Array:
        """Returns float[rows], the loss of each row."""
        ...

    def penalty(self, params: PyTree) -> jax.Array | float:
        """Returns the scalar penalty of the model."""
        ...


@runtime_checkable
class CurvedLoss(Loss, Protocol):
    r"""A loss of one linear score a row, which says how curved it is; `smoothness` asks for it.

    .. math:: \ell(x; a, b) = \varphi_b(a \cdot x), \qquad P(x) = \sum_j p(x_j)
    """

    @property
    def curvature(self) -> tuple[float, float]:
        """The least and the largest value that the second derivative of phi_b can take."""
        ...

    @property
    def penalty_curvature(self) -> tuple[float, float]:
        """The least and the largest value that the second derivative of p can take."""
        ...


@dataclass(frozen=True)
class BatchGradient:
    """The loss and gradient of the mean over a job's batch."""

    loss: Loss
    batch: Batch

    def __call__(
        self, data: Samples, params: PyTree, worker: Any, job: Any, key: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        """Returns the loss of the job's rows and its gradient; only those rows are gathered."""
        return jax.value_and_grad(self.loss_of_job, argnums=1)(data, params, worker, job, key)

    def loss_of_job(
        self, data: Samples, params: PyTree, worker: Any, job: Any, key: jax.Array
    ) -> jax.Array:
        """Returns the mean loss of the job's rows, penalty included.

        What the gradient is that of.
        """
        positions, valid = self.batch(data.size[worker], data.rows.shape[1], job, key)
        rows = data.rows[worker, positions]
        features, targets = data.features[rows], data.targets[rows]
        weight = valid.astype(data.weight.dtype)
        weight /= jnp.sum(weight)
        losses = self.loss.of_rows(params, features, targets)
        return jnp.sum(weight * losses) + self.loss.penalty(params)


@dataclass(frozen=True)
class Objective:
    """The objective f, with `l1` times the sum of absolute values added."""

    loss: Loss
    l1: float = 0.0
    chunk: int | None = None

    def __call__(self, data: Samples, params: PyTree) -> jax.Array:
        """Returns f(params)."""

        def losses(features: jax.Array, targets: jax.Array) -> jax.Array:
            return self.loss.of_rows(params, features, targets)

        features, targets, weight = data.features, data.targets, data.weight
        if data.judged is not None and data.judged_weight is not None:
            features, targets = features[data.judged], targets[data.judged]
            weight = data.judged_weight
        total = weighted_sum(losses, features, targets, weight, self.chunk)
        total += self.loss.penalty(params)
        if self.l1:
            total += self.l1 * sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(params))
        return total


def weighted_sum(
    values: Callable[[jax.Array, jax.Array], jax.Array],
    features: jax.Array,
    targets: jax.Array,
    weight: jax.Array,
    chunk: int | None = None,
) -> jax.Array:
    """Returns the weighted sum of a value a row, `chunk` rows at a time.

    `weight` float[rows].
    """
    n_rows = features.shape[0]
    if chunk is None or n_rows <= chunk:
        return jnp.sum(weight * values(features, targets))
    n_chunks = n_rows // chunk
    cut = n_chunks * chunk

    def add(total: jax.Array, number: jax.Array) -> tuple[jax.Array, None]:
        part = [
            jax.lax.dynamic_slice_in_dim(array, number * chunk, chunk)
            for array in (features, targets, weight)
        ]
        return total + jnp.sum(part[2] * values(part[0], part[1])), None

    rest = jnp.sum(weight[cut:] * values(features[cut:], targets[cut:])) if cut < n_rows else 0.0
    shape = jax.eval_shape(lambda: jnp.sum(weight[:1] * values(features[:1], targets[:1])))
    total, _ = jax.lax.scan(add, jnp.zeros((), shape.dtype), jnp.arange(n_chunks))
    return total + rest


def finite_sum(
    params: PyTree,
    features: jax.Array,
    targets: jax.Array,
    loss: Loss,
    *,
    n_workers: int,
    batch: Batch | None,
    shards: Shards | None,
    chunk: int | None = None,
) -> Problem:
    """Returns the problem of a loss a row over checked data."""
    n_workers = whole("n_workers", n_workers)
    n_rows = features.shape[0]
    if shards is None:
        shards = contiguous(n_rows, n_workers)
    shards = check_shards(shards, n_rows, n_workers)
    batch = Whole() if batch is None else batch
    check_batch(batch, shards)
    return Problem(
        params=params,
        data=Samples(
            features=features,
            targets=targets,
            rows=jnp.asarray(shards.rows),
            size=jnp.asarray(shards.size),
            weight=jnp.asarray(row_weights(shards, n_rows)).astype(_weight_type(features, params)),
        ),
        gradient_of=BatchGradient(loss, batch),
        objective_of=Objective(loss, chunk=chunk),
        n_workers=n_workers,
    )


def row_weights(shards: Shards, n_rows: int) -> np.ndarray:
    """Returns what each row counts in f, so that no padded copy of the data is needed."""
    weight = np.zeros(n_rows)
    for rows, size in zip(shards.rows, shards.size, strict=True):
        np.add.at(weight, rows[:size], 1.0 / (len(shards.size) * size))
    return weight


def judged_rows(eval_rows: Any, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The `eval_rows` of the rows that count, int32[k], spread evenly, and their weights, float[k].

    Example:
        >>> rows, weight = judged_rows(2, np.array([0.25, 0.25, 0.0, 0.25, 0.25]))
        >>> rows.tolist(), weight.tolist()
        ([0, 3], [0.5, 0.5])
    """
    held, count = np.flatnonzero(weight), whole("eval_rows", eval_rows)
    if count > len(held):
        raise ValueError(f"eval_rows must be at most {len(held)}, the rows of workers, got {count}")
    rows = held[np.arange(count) * len(held) // count]
    return rows.astype(np.int32), weight[rows] / weight[rows].sum()


def judged_on(problem: Problem, eval_rows: Any) -> Problem:
    """Returns the problem with an objective that looks at `eval_rows` of its rows; None: at all."""
    if eval_rows is None:
        return problem
    data: Samples = problem.data
    rows, weight = judged_rows(eval_rows, np.asarray(data.weight, np.float64))
    weight = jnp.asarray(weight, data.weight.dtype)
    return replace(problem, data=data._replace(judged=jnp.asarray(rows), judged_weight=weight))


def square_penalty(params: PyTree, l2: float) -> jax.Array | float:
    """Returns l2/2 times the sum of squares of all parameters."""
    if not l2:
        return 0.0
    return 0.5 * l2 * sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params))


def _weight_type(features: jax.Array, params: PyTree) -> Any:
    """Returns the type of floating-point features; of the model where rows hold integers."""
    if jnp.issubdtype(features.dtype, jnp.floating):
        return features.dtype
    return jnp.result_type(*jax.tree.leaves(params))
