"""How good an order is: the herding objective.

    max_t | sum_{k <= t} (v_{o(k)} - mean) |      m workers: the sums over all workers at each time

Small prefix sums mean that every part of an epoch looks like the whole; random orders give about
the square root of n times the size of a vector.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.orders.kernels.arguments import array
from asyncjax.orders.kernels.reordering import check_distinct


class PrefixNorms(NamedTuple):
    """Largest norms of the centred prefix sums of an order.

    Attributes:
        l2: float[], the largest Euclidean norm.
        linf: float[], the largest absolute entry.
    """

    l2: jax.Array  # float[], the largest Euclidean norm
    linf: jax.Array  # float[], the largest absolute entry


def prefix_norms(vectors: jax.typing.ArrayLike, order: jax.typing.ArrayLike) -> PrefixNorms:
    """Measures the prefix sums of known vectors in an order.

    max_t |sum_{k<=t} (v_{o(k)} - mean)| for one worker. For m workers the prefix sums are those of
    the sum over workers at each step, and the centre of a step is the mean of all vectors times the
    number of workers that visit an example there (m, if all have equally many).

    Args:
        vectors: float[n, d], or float[m, n, d].
        order: int32[n], or int32[m, n] in local indices, each example at most once; a negative
            entry is no visit.

    Returns:
        `PrefixNorms(l2, linf)`, computed in float32, or in float64 if given; NaN if a vector that
        is visited is not finite.

    Raises:
        TypeError: If the vectors are not real, or `order` is not made of integers.
        ValueError: If the shapes do not fit, or an example is visited twice or does not exist.
            Traced, an example may be visited twice, and the last stands for those that do not
            exist.

    Example:
        >>> vectors = jnp.array([[1.0], [1.0], [-1.0], [-1.0]])
        >>> float(prefix_norms(vectors, jnp.arange(4)).l2)
        2.0
        >>> float(prefix_norms(vectors, jnp.array([0, 2, 1, 3])).l2)
        1.0
    """
    vectors, order = array("vectors", vectors), array("order", order, integers=True)
    if vectors.ndim not in (2, 3) or order.shape != vectors.shape[:-1]:
        raise ValueError(
            "vectors and order must have shapes [n, d] and [n], or [m, n, d] and [m, n], got "
            f"{vectors.shape} and {order.shape}"
        )
    if 0 in vectors.shape:
        raise ValueError(f"vectors must have at least one entry, got shape {vectors.shape}")
    vectors = vectors.astype(jnp.promote_types(vectors.dtype, jnp.float32))
    if order.ndim == 1:
        vectors, order = vectors[None], order[None]
    if not isinstance(order, Tracer):
        for row in np.asarray(order):
            check_distinct("order", row[row >= 0], len(row))
    return _norms(vectors, order)


@jax.jit
def _norms(vectors: jax.Array, order: jax.Array) -> PrefixNorms:
    workers = jnp.arange(order.shape[0])
    ones = jnp.ones(order.shape[0], vectors.dtype)
    highest = jax.lax.Precision.HIGHEST

    def visit(examples: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The sum over workers of the vectors of one step, and how many there are."""
        there = examples >= 0
        rows = jnp.where(there[:, None], vectors[workers, jnp.maximum(examples, 0)], 0)
        return jnp.matmul(ones, rows, precision=highest), jnp.sum(there).astype(vectors.dtype)

    def add(carry: tuple[jax.Array, jax.Array], examples: jax.Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, carry, visit(examples)), None

    zero = jnp.zeros(vectors.shape[-1], vectors.dtype)
    (total, visits), _ = jax.lax.scan(add, (zero, jnp.zeros((), vectors.dtype)), order.T)
    mean = total / jnp.maximum(visits, 1)

    def measure(prefix: jax.Array, examples: jax.Array) -> tuple[jax.Array, PrefixNorms]:
        vector, count = visit(examples)
        prefix = prefix + (vector - count * mean)
        return prefix, PrefixNorms(jnp.linalg.norm(prefix), jnp.max(jnp.abs(prefix)))

    _, norms = jax.lax.scan(measure, zero, order.T)
    return jax.tree.map(jnp.max, norms)
