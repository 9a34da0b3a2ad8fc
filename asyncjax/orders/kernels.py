"""Signs that keep a sum of vectors short, the order that they make, and how good an order is.

    s = +1 if <r, z> <= 0 else -1          r <- r + s z

Each vector is added or subtracted, whichever makes the running sum shorter: |r + z| <= |r - z|
gives +1. A tie, <r, z> exactly 0, gives +1. The greedy rule of Lu, Guo, De Sa 2022 (GraB, arXiv
2205.10733).

    +1 examples to the front, in sequence;  0 in the middle, in sequence;  -1 at the back, reversed

The rule of herding by balancing: if all signed and all plain prefix sums of the old order are
small, those of the new order are small too, max |new| <= (max |old| + max |signed|) / 2 for centred
vectors. The herding objective,

    max_t | sum_{k <= t} (v_{o(k)} - mean) |      m workers: the sums over all workers at each time

is small where every part of an epoch looks like the whole; random orders give about the square root
of n times the size of a vector.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import whole, within


def balance_signs(
    vectors: jax.typing.ArrayLike, running_sum: jax.typing.ArrayLike, block: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Chooses a sign for every vector, in sequence.

    Args:
        vectors: float[K, d], the vectors z_k.
        running_sum: float[d], the sum r so far.
        block: Vectors decided from one Gram matrix; 1 is a scan of dots. Every block size makes the
            same decisions (up to rounding where <r, z> nearly vanishes); which is fastest depends
            on the machine.

    Returns:
        Signs int8[K], and the running sum float[d] after all of them. Computed in float32, or in
        float64 if one argument is.

    Example:
        >>> vectors = jnp.array([[3.0], [1.0], [-2.0], [2.0], [0.0]])
        >>> signs, running_sum = balance_signs(vectors, jnp.zeros(1))
        >>> signs.tolist(), running_sum.tolist()
        ([1, -1, 1, 1, 1], [2.0])
    """
    return _balance(vectors, running_sum, block, "vectors")


def pair_signs(
    differences: jax.typing.ArrayLike, running_sum: jax.typing.ArrayLike, block: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Chooses opposite signs for the two examples of every pair.

    The rule of `balance_signs` on the differences z_k = v_{2k} - v_{2k+1}: example 2k gets s_k and
    example 2k+1 gets -s_k. `reorder` then puts pair k at places k and n - 1 - k.

    Args:
        differences: float[K, d].
        running_sum: float[d], the sum r so far.
        block: As in `balance_signs`.

    Returns:
        Signs int8[2K], one an example, and the running sum float[d]. For an odd last example append
        0.

    Example:
        >>> signs, _ = pair_signs(jnp.array([[3.0], [1.0]]), jnp.zeros(1))
        >>> signs.tolist()
        [1, -1, -1, 1]

    Reference:
        Cooper et al. 2023, "Coordinating Distributed Example Orders for Provably Accelerated
        Training", arXiv 2302.00845.
    """
    signs, running_sum = _balance(differences, running_sum, block, "differences")
    return as_pairs(signs), running_sum


def copied(value: Any) -> jax.Array:
    """An array of JAX, which shares no memory with one of NumPy."""
    return value if isinstance(value, jax.Array) else jnp.array(value)


def add_signed(running_sum: jax.Array, vector: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Adds or subtracts one vector: the sign rule itself.

    `running_sum` float[d]; `vector` float[d].
    """
    is_plus = inner_product(running_sum, vector) <= 0
    return jnp.where(is_plus, running_sum + vector, running_sum - vector), is_plus


def inner_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """The inner product of two vectors at the highest precision that the device offers.

    Lower precisions, which matrix units use by default, may turn a sign that is nearly a tie.

    `a` float[d]; `b` float[d]; returns float[].
    """
    return jnp.dot(a, b, precision=jax.lax.Precision.HIGHEST)


def as_signs(is_plus: jax.Array) -> jax.Array:
    """Turns truth values into signs."""
    return jnp.where(is_plus, jnp.int8(1), jnp.int8(-1))


def as_pairs(signs: jax.Array) -> jax.Array:
    """Interleaves the sign of every pair with its opposite."""
    return jnp.stack([signs, -signs], axis=-1).reshape(*signs.shape[:-1], -1)


def gram_signs(gram: jax.Array, inner: jax.Array, *, unroll: int = 8) -> jax.Array:
    r"""Decides K vectors from their Gram matrix, as a scan; returns int8[K].

    .. math:: s_k = +1 \text{ iff } p_k \le 0, \qquad p \leftarrow p + s_k G_k, \qquad
              G_{kl} = \langle z_k, z_l \rangle, \quad p_k = \langle r, z_k \rangle

    `gram` float[K, K]; `inner` float[K], with r of the start.
    """
    if not inner.shape[0]:
        return jnp.zeros(0, jnp.int8)

    def decide(inner: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        k, products = row
        is_plus = inner[k] <= 0
        return jnp.where(is_plus, inner + products, inner - products), is_plus

    steps = jnp.arange(inner.shape[0], dtype=jnp.int32)
    unroll = min(unroll, inner.shape[0])
    _, is_plus = jax.lax.scan(decide, inner, (steps, gram), unroll=unroll)
    return as_signs(is_plus)


def _balance(
    vectors: jax.typing.ArrayLike, running_sum: jax.typing.ArrayLike, block: int, name: str
) -> tuple[jax.Array, jax.Array]:
    block = whole("block", block)
    vectors = copied(within(name, vectors))
    running_sum = copied(within("running_sum", running_sum))
    if vectors.ndim != 2 or running_sum.shape != vectors.shape[1:]:
        raise ValueError(
            f"{name} must have shape [K, d] and running_sum [d], got {vectors.shape} and"
            f" {running_sum.shape}"
        )
    dtype = jnp.promote_types(vectors.dtype, jnp.promote_types(running_sum.dtype, jnp.float32))
    vectors, running_sum = vectors.astype(dtype), running_sum.astype(dtype)
    if block == 1:
        return _one_by_one(vectors, running_sum)
    return _in_blocks(vectors, running_sum, min(block, max(vectors.shape[0], 1)))


@jax.jit
def _one_by_one(vectors: jax.Array, running_sum: jax.Array) -> tuple[jax.Array, jax.Array]:
    running_sum, is_plus = jax.lax.scan(add_signed, running_sum, vectors)
    return as_signs(is_plus), running_sum


@partial(jax.jit, static_argnames="block")
def _in_blocks(
    vectors: jax.Array, running_sum: jax.Array, block: int
) -> tuple[jax.Array, jax.Array]:
    """Makes the same decisions from the Gram matrix of each block, the last padded by zeros."""
    n_vectors, dim = vectors.shape
    n_blocks = -(-n_vectors // block)
    padded = jnp.pad(vectors, ((0, n_blocks * block - n_vectors), (0, 0)))
    highest = jax.lax.Precision.HIGHEST

    def step(running_sum: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        gram = jnp.matmul(rows, rows.T, precision=highest)
        inner = jnp.matmul(rows, running_sum, precision=highest)
        signs = gram_signs(gram, inner, unroll=1)  # within another scan this is faster
        change = jnp.matmul(signs.astype(rows.dtype), rows, precision=highest)
        return running_sum + change, signs

    blocks = padded.reshape(n_blocks, block, dim)
    running_sum, signs = jax.lax.scan(step, running_sum, blocks)
    return signs.reshape(-1)[:n_vectors], running_sum


def reorder(order: jax.typing.ArrayLike, signs: jax.typing.ArrayLike) -> jax.Array:
    """Places the examples of an order by their signs.

    The k-th +1 goes to place k, the k-th -1 to place n - 1 - k, and those with sign 0 (not seen)
    between them in their sequence.

    Args:
        order: int32[n], the example of each step, each of 0 .. n-1 once.
        signs: int8[n], the sign of the example of each step: -1, 0 or +1.

    Returns:
        int32[n], the next order.

    Example:
        >>> reorder(jnp.array([4, 3, 2, 1, 0]), jnp.array([-1, 1, 0, -1, 1])).tolist()
        [3, 0, 2, 1, 4]
    """
    if np.ndim(order) != 1 or np.shape(signs) != np.shape(order):
        raise ValueError(
            "order and signs must be vectors of one length, got"
            f" {np.shape(order)} and {np.shape(signs)}"
        )
    if not isinstance(order, Tracer):
        _check_distinct(np.asarray(order), np.size(order))
    check_signs(signs)
    count = jnp.asarray(np.size(order), jnp.int32)
    return reorder_shard(copied(order), copied(signs), count)


@jax.jit
def reorder_shard(order: jax.Array, signs: jax.Array, count: jax.Array) -> jax.Array:
    """Places the first `count` examples by their signs and leaves the rest where it is.

    `order` int32[n]; `signs` int8[n]; `count` int32[]; returns int32[n].
    """
    front, back = signs > 0, signs < 0
    step = jnp.arange(order.shape[0], dtype=jnp.int32)
    at_front = jnp.cumsum(front, dtype=jnp.int32) - 1
    at_back = count - jnp.cumsum(back, dtype=jnp.int32)
    between = jnp.sum(front, dtype=jnp.int32) + jnp.cumsum(signs == 0, dtype=jnp.int32) - 1
    place = jnp.where(front, at_front, jnp.where(back, at_back, between))
    place = jnp.where(step < count, place, step)
    return jnp.zeros_like(order).at[place].set(order, unique_indices=True)


class PrefixNorms(NamedTuple):
    """Largest norms of the centred prefix sums of an order."""

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

    Example:
        >>> vectors = jnp.array([[1.0], [1.0], [-1.0], [-1.0]])
        >>> float(prefix_norms(vectors, jnp.arange(4)).l2)
        2.0
        >>> float(prefix_norms(vectors, jnp.array([0, 2, 1, 3])).l2)
        1.0
    """
    vectors = copied(vectors)
    if vectors.ndim not in (2, 3) or np.shape(order) != vectors.shape[:-1]:
        raise ValueError(
            "vectors and order must have shapes [n, d] and [n], or [m, n, d] and [m, n], got "
            f"{vectors.shape} and {np.shape(order)}"
        )
    if not isinstance(order, Tracer):
        for row in np.atleast_2d(order):
            _check_distinct(row[row >= 0], len(row))
    order = copied(order)
    if order.ndim == 1:
        vectors, order = vectors[None], order[None]
    return _norms(vectors.astype(jnp.promote_types(vectors.dtype, jnp.float32)), order)


def check_signs(signs: Any) -> None:
    """Refuses signs that are known and none."""
    if not isinstance(signs, Tracer) and (wrong := ~np.isin(signs, (-1, 0, 1))).any():
        raise ValueError(f"signs must be -1, 0 or +1, got {np.asarray(signs)[wrong][0]}")


def _check_distinct(visited: np.ndarray, n: int) -> None:
    """Refuses visits int[k] that are none of n examples, or that come twice."""
    for got in visited[(visited < 0) | (visited >= n)]:
        raise ValueError(f"order must have each of 0 .. {n - 1} once, got {got}")
    for got in np.flatnonzero(np.bincount(visited, minlength=n) > 1):
        raise ValueError(f"order must have each of 0 .. {n - 1} once, got {got} twice")


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
