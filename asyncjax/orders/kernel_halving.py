"""KH-SGD: pairs balanced by kernel halving.

    s_i = +1 iff <r, z_i> <= u_i a_i          u_i uniform in (-1, 1)          r <- r + s_i z_i
    a_i = b2 max(1, sqrt(tau L_i / b2))       b2 = |z_i|^2
    tau <- 2 b2  if tau L_i <= b2,  else  tau + 2 b2 (L_i + 1/2 - sqrt(tau L_i / b2))_+ / L_i
    L_i = log(4 i (e + 1) (log E + 1) (log(n/2) + 1) / delta),   i = 1, 2, ... in epoch e of E

(Carrell et al. 2025, "Low-Rank Thinning".) The coin leans by a threshold a that adapts to the
differences seen in the epoch; r and tau begin at 0 in each.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import real, whole
from asyncjax.orders.kernels.balancing import inner_product
from asyncjax.orders.order import Order
from asyncjax.orders.pair_order import PairRule, pair_order


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
        ValueError: If a number is out of range; in `observe` if shapes do not fit, or a gradient is
            not finite (traced, it does what it does in `pair_balanced`).

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
    return pair_order(PairRule(_init, partial(_sign, factor), _restart), n, dim)


def _init(key: jax.Array, zero: jax.Array) -> HalvingBalance:
    return HalvingBalance(zero, jnp.zeros((), zero.dtype), key, jnp.zeros((), jnp.int32))


def _sign(
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


def _restart(balance: HalvingBalance) -> HalvingBalance:
    return balance._replace(
        running_sum=jnp.zeros_like(balance.running_sum),
        variance=jnp.zeros_like(balance.variance),
        epoch=balance.epoch + 1,
    )
