"""Pairs decided by a coin: the self-balancing walk and kernel halving.

The walk's coin leans towards the shorter sum (Alweiss, Liu, Sawhney 2021, arXiv 2006.14009):

    P(s = +1) = 1/2 - <r, z> / (2 c b^2)          b: the largest |z| so far          r <- r + s z

It is stated for vectors of norm at most 1; b brings gradients of any size there. Where |<r, z>| > c
b^2 the chance is no probability: the walk has failed. Here it then takes the better sign for
certain, and counts the failure. Kernel halving (Carrell et al. 2025, "Low-Rank Thinning") leans by
a threshold a that adapts to the differences seen in the epoch; r and tau begin at 0 in each:

    s_i = +1 iff <r, z_i> <= u_i a_i          u_i uniform in (-1, 1)          r <- r + s_i z_i
    a_i = b2 max(1, sqrt(tau L_i / b2))       b2 = |z_i|^2
    tau <- 2 b2  if tau L_i <= b2,  else  tau + 2 b2 (L_i + 1/2 - sqrt(tau L_i / b2))_+ / L_i
    L_i = log(4 i (e + 1) (log E + 1) (log(n/2) + 1) / delta),   i = 1, 2, ... in epoch e of E
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import real, whole
from asyncjax.orders.kernels import inner_product
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
        ValueError: If one is below 1, or `c` is negative.

    Note:
        The bound b is the largest norm seen so far, not one known beforehand as in the paper. After
        a traced gradient that is not finite every pair of the epoch counts as a failure.

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
    return pair_order(PairRule(_walk_init, partial(_walk_sign, c), _walk_restart), n, dim)


def _walk_init(key: jax.Array, zero: jax.Array) -> WalkBalance:
    failures, epoch = (jnp.zeros((), jnp.int32) for _ in range(2))  # apart: a state may be donated
    return WalkBalance(zero, jnp.zeros((), zero.dtype), failures, key, epoch)


def _walk_sign(
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


def _walk_restart(balance: WalkBalance) -> WalkBalance:
    return balance._replace(
        running_sum=jnp.zeros_like(balance.running_sum), epoch=balance.epoch + 1
    )


class HalvingBalance(NamedTuple):
    """Balance of `kernel_halving`, in the field `balance` of its state."""

    running_sum: jax.Array  # float[d], r of this epoch
    variance: jax.Array  # float[], tau of this epoch: twice the squared sub-Gaussian constant
    key: jax.Array  # key[]
    epoch: jax.Array  # int32[], epochs ended


def kernel_halving(n: int, dim: int, epochs: int, delta: float = 0.5) -> Order:
    """Orders the next epoch by kernel halving of the pair differences of this one.

    Args:
        n: Number of examples.
        dim: Length d of a gradient (ravelled).
        epochs: Epochs E of the whole run; more may follow.
        delta: Probability of failure that the thresholds are made for, in (0, 1].

    Returns:
        An `Order`; it keeps 2 vectors of length d.

    Raises:
        TypeError: If an integer is not a static one.
        ValueError: If a number is out of range.

    Note:
        The authors' code adds log(1 + 1/e) to L at the start of epoch e >= 1; the sum of these
        terms is the log(e + 1) above. The threshold is made for differences of low rank: on 1024
        Gaussian vectors of length 128 orders are hardly better than random (largest prefix norm 170
        to 180, against 190).

    Example:
        >>> order = kernel_halving(4, 1, epochs=10)
        >>> state = order.init(jax.random.key(0))
        >>> state = order.observe(state, jnp.arange(2), jnp.array([[1.0], [2.0]]))
        >>> float(state.balance.variance)
        2.0

    Reference:
        Carrell et al. 2025, "Low-Rank Thinning", with the code github.com/microsoft/khsgd.
    """
    n, epochs = whole("n", n), whole("epochs", epochs)
    delta = real("delta", delta, above=0, most=1)
    factor = 4 * (math.log(epochs) + 1) * (math.log(max(n // 2, 1)) + 1) / delta
    return pair_order(
        PairRule(_halving_init, partial(_halving_sign, factor), _halving_restart), n, dim
    )


def _halving_init(key: jax.Array, zero: jax.Array) -> HalvingBalance:
    return HalvingBalance(zero, jnp.zeros((), zero.dtype), key, jnp.zeros((), jnp.int32))


def _halving_sign(
    factor: float, balance: HalvingBalance, difference: jax.Array, pair: jax.Array
) -> tuple[HalvingBalance, jax.Array]:
    r, tau = balance.running_sum, balance.variance
    square = inner_product(difference, difference)
    repeats = (pair + 1).astype(tau.dtype) * (balance.epoch + 1).astype(tau.dtype)
    penalty = jnp.log(factor * repeats)
    # b2 sqrt(tau L / b2), defined for b2 = 0 too.
    spread = jnp.sqrt(tau * penalty * square)
    threshold = jnp.maximum(square, spread)
    growth = 2 * jnp.maximum(square * (penalty + 0.5) - spread, 0) / penalty

    key = jax.random.fold_in(jax.random.fold_in(balance.key, balance.epoch), pair)
    uniform = jax.random.uniform(key, (), tau.dtype, minval=-1.0, maxval=1.0)
    is_plus = inner_product(r, difference) <= uniform * threshold
    return balance._replace(
        running_sum=jnp.where(is_plus, r + difference, r - difference),
        variance=jnp.where(tau * penalty <= square, 2 * square, tau + growth),
    ), is_plus


def _halving_restart(balance: HalvingBalance) -> HalvingBalance:
    return balance._replace(
        running_sum=jnp.zeros_like(balance.running_sum),
        variance=jnp.zeros_like(balance.variance),
        epoch=balance.epoch + 1,
    )
