r"""Signs of pairs from what dense layers know of each example: their inputs and deltas.

.. math:: \langle g_i, g_j \rangle = \sum_{\text{layers}}
          (a_i^\top a_j + 1)(\delta_i^\top \delta_j),
          \qquad \langle r, g_i \rangle = \sum_{\text{layers}} (a_i^\top R + \rho)\, \delta_i

in the letters of `dense_signs`. A block of pairs is decided from its Gram matrix, one pair after
another, then the running sum is brought up to date: the signs are those of the pair rule, whatever
the block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import shown
from asyncjax.orders.kernels.balancing import as_pairs, gram_signs

PyTree = Any
Recursion = Callable[[jax.Array, jax.Array], jax.Array]  # Gram matrix, inner products -> int8[K]
PAIRS = 64  # decided from one Gram matrix
_HIGHEST = jax.lax.Precision.HIGHEST
_STRIP = 32  # pairs whose inner products with all pairs before them are computed at once


class DenseUse(NamedTuple):
    """One use of a dense layer, as the forward pass met it."""

    name: str  # of the layer, for messages
    kernel: int  # which leaf of the parameters
    bias: int | None  # which leaf, None without a bias


class Rows(NamedTuple):
    """What one layer knows of all examples."""

    inputs: jax.Array  # float[B, in]
    deltas: jax.Array  # float[B, out], gradient of the sum of the losses at the pre-activation


def decided(
    uses: Sequence[DenseUse],
    rows: Sequence[Rows],
    params: PyTree,
    running_sum: PyTree,
    block: int = PAIRS,
    recursion: Recursion = gram_signs,
) -> tuple[jax.Array, PyTree, PyTree]:
    """Signs int8[2K], mean gradient, running sum of a batch, `block` pairs at a time.

    Example:
        >>> uses = [DenseUse("0", 0, None)]
        >>> rows = [Rows(jnp.array([[3.0], [0.0], [1.0], [0.0]]), jnp.ones((4, 1)))]
        >>> signs, mean, total = decided(uses, rows, jnp.ones((1, 1)), jnp.ones((1, 1)))
        >>> signs.tolist(), mean.tolist(), total.tolist()
        ([-1, 1, 1, -1], [[1.0]], [[-1.0]])
    """
    leaves, tree = jax.tree.flatten(running_sum)
    wide, count = jnp.result_type(*leaves), rows[0].deltas.shape[0]
    rows = [Rows(row.inputs.astype(wide), row.deltas.astype(wide)) for row in rows]
    signs, total, leaves = _decide(uses, rows, leaves, min(block, count // 2), recursion)
    mean = jax.tree.map(
        lambda leaf, like: (leaf / count).astype(like.dtype), tree.unflatten(total), params
    )
    return signs, mean, tree.unflatten(leaves)


def _decide(
    uses: Sequence[DenseUse],
    rows: Sequence[Rows],
    leaves: list[jax.Array],
    block: int,
    recursion: Recursion,
) -> tuple[jax.Array, list[jax.Array], list[jax.Array]]:
    """Signs, sum of the gradients and running sum; block after block, the last padded by zeros."""
    count, size = rows[0].deltas.shape[0], 2 * block
    if size == count:
        signs = _block_signs(uses, rows, leaves, recursion)
        total, change = _halves(uses, rows, leaves, signs)
        return as_pairs(signs), total, jax.tree.map(jnp.add, leaves, change)
    n_blocks = -(-count // size)

    def cut(array: jax.Array) -> jax.Array:
        padded = jnp.pad(array, ((0, n_blocks * size - count), (0, 0)))
        return padded.reshape(n_blocks, size, -1)

    def step(
        carry: tuple[list[jax.Array], list[jax.Array]], rows: Sequence[Rows]
    ) -> tuple[tuple[list[jax.Array], list[jax.Array]], jax.Array]:
        leaves, total = carry
        signs = _block_signs(uses, rows, leaves, recursion)
        gradient, change = _halves(uses, rows, leaves, signs)
        return (
            jax.tree.map(jnp.add, leaves, change),
            jax.tree.map(jnp.add, total, gradient),
        ), as_pairs(signs)

    first = (leaves, [jnp.zeros_like(leaf) for leaf in leaves])
    (leaves, total), signs = jax.lax.scan(step, first, jax.tree.map(cut, list(rows)))
    return signs.reshape(-1)[:count], total, leaves


def _block_signs(
    uses: Sequence[DenseUse],
    rows: Sequence[Rows],
    leaves: Sequence[jax.Array],
    recursion: Recursion,
) -> jax.Array:
    """Signs int8[K] of a block from its Gram matrix, strip by strip of the lower triangle."""
    projections = jnp.zeros(())
    for use, (inputs, deltas) in zip(uses, rows, strict=True):
        slopes = jnp.matmul(inputs, leaves[use.kernel], precision=_HIGHEST)
        if use.bias is not None:
            slopes = slopes + leaves[use.bias]
        projections = projections + jnp.sum(slopes * deltas, axis=1)
    inner = projections[0::2] - projections[1::2]
    n_pairs = inner.shape[0]
    signs = jnp.zeros(0, jnp.int8)
    for start in range(0, n_pairs, _STRIP):
        stop = min(start + _STRIP, n_pairs)
        strip = _strip(uses, rows, start, stop)  # inner products with pairs before it and within
        known = strip[:, :start] @ signs.astype(strip.dtype)
        own = recursion(strip[:, start:], inner[start:stop] + known)
        if getattr(own, "shape", None) != (stop - start,):
            raise TypeError(f"recursion must return signs int8[{stop - start}], got {shown(own)}")
        signs = jnp.concatenate([signs, own])
    return signs


def _strip(uses: Sequence[DenseUse], rows: Sequence[Rows], start: int, stop: int) -> jax.Array:
    """Inner products of the differences of pairs start..stop with those of pairs 0..stop."""
    gram = jnp.zeros(())
    for use, (inputs, deltas) in zip(uses, rows, strict=True):
        own, all_before = slice(2 * start, 2 * stop), slice(0, 2 * stop)
        likeness = jnp.matmul(inputs[own], inputs[all_before].T, precision=_HIGHEST)
        if use.bias is not None:
            likeness = likeness + 1
        gram = gram + likeness * jnp.matmul(deltas[own], deltas[all_before].T, precision=_HIGHEST)
    apart = gram[0::2] - gram[1::2]
    return apart[:, 0::2] - apart[:, 1::2]


def _halves(
    uses: Sequence[DenseUse],
    rows: Sequence[Rows],
    leaves: Sequence[jax.Array],
    signs: jax.Array,
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Sum of the gradients, and sum with signs, from the sums over +1 and over -1 examples."""
    # Each half has one example of a pair, so both sums together are as much work as one gradient.
    total, change = list(leaves), list(leaves)
    first_is_plus = (signs > 0)[:, None]

    def apart(array: jax.Array) -> tuple[jax.Array, jax.Array]:
        pair = array[0::2], array[1::2]
        return jnp.where(first_is_plus, *pair), jnp.where(first_is_plus, *pair[::-1])

    for use, (inputs, deltas) in zip(uses, rows, strict=True):
        plus_inputs, minus_inputs = apart(inputs)
        plus_deltas, minus_deltas = apart(deltas)
        plus, minus = plus_inputs.T @ plus_deltas, minus_inputs.T @ minus_deltas
        total[use.kernel], change[use.kernel] = plus + minus, plus - minus
        if use.bias is not None:
            plus, minus = jnp.sum(plus_deltas, axis=0), jnp.sum(minus_deltas, axis=0)
            total[use.bias], change[use.bias] = plus + minus, plus - minus
    return total, change
