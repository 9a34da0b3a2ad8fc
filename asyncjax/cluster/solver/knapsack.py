"""A fractional knapsack without a sort: bisection over the bits of the keys.

    take amounts in ascending order of their keys until they sum to W; of equal keys, the first

A float of at least 0 orders like its bits read as an integer. So the largest key that is taken is
found by halving an interval of integers, 31 times in single and 63 times in double precision:
exact, without a sort or a gather.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

_EXACT = jax.lax.Precision.HIGHEST  # accelerators otherwise drop digits of single precision


def take_cheapest(keys: Array, amounts: Array, total: Array) -> Array:
    """Takes amounts in ascending order of their keys until they sum to `total`.

    Formula: all amounts with a key below the threshold, and of those at the threshold the first by
    index; the threshold is the smallest `b` with `sum of amounts where key <= b` at least `total`.

    `keys` float[P]; `amounts` float[P]; returns float[P], what is taken of each amount.

    Example:
        >>> import jax.numpy as jnp
        >>> keys, amounts = jnp.array([3.0, 1.0, 3.0, 1e-30]), jnp.array([2.0, 2.0, 2.0, 1.0])
        >>> take_cheapest(keys, amounts, 4.5)
        Array([1.5, 2. , 0. , 1. ], dtype=float32)
    """
    double = keys.dtype == jnp.float64
    integer = jnp.int64 if double else jnp.int32
    bits = jax.lax.bitcast_convert_type(jnp.abs(keys), integer)  # abs turns -0 into 0
    largest = jax.lax.bitcast_convert_type(jnp.asarray(jnp.inf, keys.dtype), integer)

    one, ones = jnp.ones((), integer), jnp.ones_like(amounts)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = low + jax.lax.shift_right_logical(high - low, one)
        counted = jnp.where(bits <= middle, amounts, 0)
        enough = jnp.dot(counted, ones, precision=_EXACT) >= total  # of many at once, one product
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    ends = jnp.zeros((), integer), largest
    threshold, _ = jax.lax.fori_loop(0, 63 if double else 31, halve, ends)
    below = jnp.where(bits < threshold, amounts, 0)
    equal = jnp.where(bits == threshold, amounts, 0)
    rest = jnp.maximum(total - below.sum(), 0)
    return below + jnp.clip(rest - _sum_before(equal), 0, equal)


def _sum_before(values: Array) -> Array:
    """Sums all entries before each.

    Within rows of a square, and over the rows, as matrix products.
    """
    side = math.isqrt(max(len(values) - 1, 0)) + 1
    rows = jnp.pad(values, (0, side * side - len(values))).reshape(side, side)
    earlier = jnp.triu(jnp.ones((side, side), values.dtype), 1)
    within = jnp.matmul(rows, earlier, precision=_EXACT)
    above = jnp.matmul(rows.sum(-1), earlier, precision=_EXACT)
    return (within + above[:, None]).ravel()[: len(values)]
