"""Self-balancing walk: pairs balanced by a coin that leans towards the shorter sum.

    P(s = +1) = 1/2 - <r, z> / (2 c b^2)          b: the largest |z| so far          r <- r + s z

(Alweiss, Liu, Sawhney 2021, arXiv 2006.14009.) The walk is stated for vectors of norm at most 1; b
brings gradients of any size there. Where |<r, z>| > c b^2 the chance is no probability: the walk
has failed. Here it then takes the better sign for certain, and counts the failure.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import real
from asyncjax.orders.kernels.balancing import inner_product
from asyncjax.orders.order import Order
from asyncjax.orders.pair_order import PairRule, pair_order


class WalkBalance(NamedTuple):
    """Balance of `probabilistic`, in the field `balance` of its state."""

    running_sum: jax.Array  # float[d], r of this epoch
    norm_bound: jax.Array  # float[], the largest |z| of all epochs so far
    failures: jax.Array  # int32[], pairs with |<r, z>| > c b^2 or NaN, in all epochs so far
    key: jax.Array  # key[]
    epoch: jax.Array  # int32[], epochs ended


def probabilistic(n: int, dim: int, c: float = 0.5) -> Order:
    """Orders the next epoch by a self-balancing walk on the pair differences of this one.

    Args:
        n: Number of examples.
        dim: Length d of a gradient (ravelled).
        c: How undecided the walk is. 0 is `pair_balanced`; theory takes 30 log(n d / delta), with
            which orders are no better than random ones. On 1024 Gaussian vectors of length 128 the
            largest prefix norm after 20 epochs is about 72, 81, 103, 130, 160 and 200 for c = 0,
            0.5, 1, 2, 4 and 30 log(n d); random orders have 190.

    Returns:
        An `Order`; it keeps 2 vectors of length d. `state.balance.failures` counts the failures.

    Raises:
        TypeError: If `n` or `dim` is not a static integer.
        ValueError: If one is below 1, or `c` is negative; in `observe` if shapes do not fit, or a
            gradient is not finite (traced, it makes the running sum so, and every pair that follows
            it in the epoch counts as a failure).

    Note:
        The bound b is the largest norm seen so far, not one known beforehand as in the paper.

    Example:
        >>> order = probabilistic(4, 1)
        >>> state = order.init(jax.random.key(0))
        >>> state = order.observe(state, jnp.arange(4), jnp.array([[1.0], [2.0], [5.0], [3.0]]))
        >>> float(state.balance.norm_bound)
        2.0

    Reference:
        Alweiss, Liu, Sawhney 2021, "Discrepancy Minimization via a Self-Balancing Walk", arXiv
        2006.14009.
    """
    c = real("c", c, least=0)
    return pair_order(PairRule(_init, partial(_sign, c), _restart), n, dim)


def _init(key: jax.Array, zero: jax.Array) -> WalkBalance:
    failures, epoch = (jnp.zeros((), jnp.int32) for _ in range(2))  # apart: a state may be donated
    return WalkBalance(zero, jnp.zeros((), zero.dtype), failures, key, epoch)


def _sign(
    c: float, balance: WalkBalance, difference: jax.Array, pair: jax.Array
) -> tuple[WalkBalance, jax.Array]:
    norm = jnp.sqrt(inner_product(difference, difference))
    known = jnp.where(jnp.isfinite(norm), norm, 0)  # one NaN or infinity does not stay for ever
    bound = jnp.maximum(balance.norm_bound, known)
    inner = inner_product(balance.running_sum, difference)
    limit = c * bound**2
    key = jax.random.fold_in(jax.random.fold_in(balance.key, balance.epoch), pair)
    # A uniform number u in (-1, 1) has P(inner <= u limit) = 1/2 - inner / (2 limit).
    uniform = jax.random.uniform(key, (), bound.dtype, minval=-1.0, maxval=1.0)
    is_plus = inner <= uniform * limit
    fits = (jnp.abs(inner) <= limit) | (norm == 0)  # else NaN too has failed
    failed = jnp.where(fits, jnp.int32(0), jnp.int32(1))
    r = balance.running_sum
    return balance._replace(
        running_sum=jnp.where(is_plus, r + difference, r - difference),
        norm_bound=bound,
        failures=balance.failures + failed,
    ), is_plus


def _restart(balance: WalkBalance) -> WalkBalance:
    return balance._replace(
        running_sum=jnp.zeros_like(balance.running_sum), epoch=balance.epoch + 1
    )
