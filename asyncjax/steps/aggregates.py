r"""Aggregates: what an update makes of its gradients when some of them may be anything.

    mean           sum_i g_i / m                                    a bad one moves it anywhere
    median         of every coordinate
    trimmed_mean   of every coordinate, without k at each end,  k = floor(share m)
    krum           the g_i with the smallest sum of squared distances to its m - f - 2 nearest
    bucketed       one of these over means of buckets, worker i in bucket i mod B

Krum is of Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine learning with adversaries:
Byzantine tolerant gradient descent";
median and trimmed mean of Yin, Chen, Ramchandran, Bartlett 2018, arXiv 1803.01498; the buckets are
those of BASGD, Yang, Li 2021, arXiv 2003.00937. Each is `(rows, present, extras) -> direction` for
`simulation.Update(optimizer, aggregator=...)`: rows a tree of [B, ...], of which those that are not
present count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from asyncjax.array_checks import number
from asyncjax.checks import whole
from asyncjax.steps.trees import wide, wide_dtype

_FEW = 16  # rows that are sorted by exchanges

Aggregate = Callable[[Any, jax.Array, Any], Any]


def mean() -> Aggregate:
    """Returns the mean of the gradients that are present.

    Example:
        >>> float(mean()(jnp.array([1.0, 4.0, 7.0]), jnp.array([True, True, False]), None))
        2.5
    """

    def together(rows: Any, present: jax.Array, extras: Any) -> Any:
        return jax.tree.map(lambda leaf: _mean(leaf, present, jnp.sum(present)), rows)

    return together


def median() -> Aggregate:
    """Returns the median of every coordinate, over the gradients that are present.

    With an even number of them it is the mean of the two in the middle. What is not a number counts
    as infinitely large.

    Example:
        >>> rows, present = jnp.array([1.0, 100.0, 2.0, 9.0]), jnp.array([True, True, True, False])
        >>> float(median()(rows, present, None))
        2.0
    """

    def together(rows: Any, present: jax.Array, extras: Any) -> Any:
        count = jnp.sum(present)

        def of_leaf(leaf: jax.Array) -> jax.Array:
            low, high = _sorted(leaf, present)[jnp.array([(count - 1) // 2, count // 2])]
            return jnp.where(low == high, low, low / 2 + high / 2).astype(leaf.dtype)

        return jax.tree.map(of_leaf, rows)

    return together


def trimmed_mean(share: ArrayLike) -> Aggregate:
    """Returns the mean of every coordinate without its smallest and largest values.

    Args:
        share: Of the m gradients, floor(share m) are left out at each end; at least 0, below 0.5. 0
            is the mean.

    Example:
        >>> rows = jnp.array([1.0, -50.0, 2.0, 3.0, 900.0])
        >>> float(trimmed_mean(0.2)(rows, jnp.ones(5, bool), None))
        2.0
    """
    number("share", share, least=0, below=0.5)

    def together(rows: Any, present: jax.Array, extras: Any) -> Any:
        count = jnp.sum(present)
        # 0.2 times 5 may fall short of 1.
        cut = jnp.floor(jnp.asarray(share) * count + 1e-4).astype(jnp.int32)
        cut = jnp.minimum(cut, (count - 1) // 2)

        def of_leaf(leaf: jax.Array) -> jax.Array:
            dtype, rank = wide(leaf), jnp.arange(leaf.shape[0])
            inner = _along((rank >= cut) & (rank < count - cut), leaf)
            total = jnp.sum(jnp.where(inner, _sorted(leaf, present).astype(dtype), 0), axis=0)
            return (total / (count - 2 * cut).astype(dtype)).astype(leaf.dtype)

        return jax.tree.map(of_leaf, rows)

    return together


def krum(n_adversaries: int) -> Aggregate:
    """Returns the gradient that lies closest to most of the others.

    Args:
        n_adversaries: f, gradients of an update that may be anything, at least 0. The sum is over
            the m - f - 2 nearest of the others, at least one; the paper asks for 2 f + 2 < m.

    Example:
        >>> rows = jnp.array([[1.0, 1.0], [1.1, 1.0], [0.9, 1.0], [-9.0, 3.0], [1.0, 1.2]])
        >>> krum(1)(rows, jnp.ones(5, bool), None).tolist()
        [1.0, 1.0]

    Note:
        Cost: m^2 distances. Among equal sums the first arrival wins.
    """
    f = whole("n_adversaries", n_adversaries, least=0)

    def together(rows: Any, present: jax.Array, extras: Any) -> Any:
        dtype, size = wide_dtype(rows), present.shape[0]

        def squares(leaf: jax.Array) -> jax.Array:
            flat = leaf.reshape(size, -1).astype(dtype)
            return jax.lax.map(lambda row: jnp.sum((flat - row) ** 2, axis=1), flat)

        far = sum(map(squares, jax.tree.leaves(rows)), start=jnp.zeros((size, size), dtype))
        others = present[:, None] & present & ~jnp.eye(size, dtype=bool)
        far = jnp.where(others & ~jnp.isnan(far), far, jnp.inf)
        nearest = jnp.maximum(1, jnp.sum(present) - f - 2)
        counted = jnp.arange(size) < jnp.minimum(nearest, jnp.maximum(1, jnp.sum(present) - 1))
        score = jnp.sum(jnp.where(counted, jnp.sort(far, axis=1), 0), axis=1)
        best = jnp.argmin(jnp.where(present, score, jnp.inf))
        return jax.tree.map(lambda leaf: leaf[best], rows)

    return together


def bucketed(n_buckets: int, inner: Aggregate) -> Aggregate:
    """Returns an aggregate of the means of buckets; worker i is in bucket i mod n_buckets.

    A bad worker spoils one bucket however often it delivers. A bucket that has nothing is not
    present. (BASGD steps when every bucket has something; here the trace says when.)

    Args:
        n_buckets: B, at least 1. 1 is the mean; as many as workers, the means of each.
        inner: What is made of the buckets' means, such as `median()`. It is handed extras None.

    Example:
        >>> from types import SimpleNamespace
        >>> arrived = SimpleNamespace(worker=jnp.array([0, 2, 2, 1]))
        >>> rows = jnp.array([1.0, 7.0, 9.0, 2.0])
        >>> float(bucketed(3, median())(rows, jnp.ones(4, bool), arrived))
        2.0
    """
    count = whole("n_buckets", n_buckets)

    def together(rows: Any, present: jax.Array, extras: Any) -> Any:
        members = ((extras.worker % count) == jnp.arange(count)[:, None]) & present
        sizes = jnp.sum(members, axis=1)

        def means(leaf: jax.Array) -> jax.Array:
            return jax.vmap(partial(_mean, leaf))(members, jnp.maximum(1, sizes))

        # Those that have something come first.
        order = jnp.argsort(sizes == 0, stable=True)
        filled = jax.tree.map(lambda leaf: means(leaf)[order], rows)
        return inner(filled, (sizes > 0)[order], None)

    return together


def _mean(leaf: jax.Array, members: jax.Array, size: jax.Array) -> jax.Array:
    """The mean of the rows that are members, so many, in the leaf's dtype."""
    dtype = wide(leaf)
    total = jnp.sum(jnp.where(_along(members, leaf), leaf, 0).astype(dtype), axis=0)
    return (total / size.astype(dtype)).astype(leaf.dtype)


def _along(flags: jax.Array, leaf: jax.Array) -> jax.Array:
    """Flags of rows in the shape of a leaf."""
    return flags.reshape(-1, *[1] * (leaf.ndim - 1))


def _sorted(leaf: jax.Array, present: jax.Array) -> jax.Array:
    """Every coordinate sorted over the rows; what is not present comes last.

    XLA sorts along rows of one coordinate each, which on a CPU costs far more than the exchanges of
    neighbours that sort a few rows.
    """
    last = ~_along(present, leaf) | jnp.isnan(leaf)
    filled, size = jnp.where(last, jnp.inf, leaf), leaf.shape[0]
    if size > _FEW:
        return jnp.sort(filled, axis=0)
    rows = list(filled)
    for turn in range(size):
        for i in range(turn % 2, size - 1, 2):
            low, high = rows[i : i + 2]
            rows[i : i + 2] = jnp.minimum(low, high), jnp.maximum(low, high)
    return jnp.stack(rows)
