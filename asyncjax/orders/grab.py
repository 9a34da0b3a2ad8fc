"""GraB: balance each gradient, centred by the mean of the epoch before.

    z_t = g_t - mu      s_t = +1 if <r, z_t> <= 0 else -1      r <- r + s_t z_t
    r = 0 at each epoch start
    mu <- mean of the raw g_t of this epoch, from the next epoch on (0 in the first)

(Lu, Guo, De Sa 2022, arXiv 2205.10733.) The mean is stale by one epoch, which is what makes the
rule run with three vectors instead of all gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import one_key, whole
from asyncjax.orders.kernels.arguments import LARGEST, check_state
from asyncjax.orders.kernels.balancing import add_signed, as_signs
from asyncjax.orders.kernels.first_orders import random_order
from asyncjax.orders.kernels.reordering import reorder
from asyncjax.orders.kernels.vectors import check_observation
from asyncjax.orders.order import Order


class GrabState(NamedTuple):
    """State of `grab`."""

    order: jax.Array  # int32[n], the example of each step of this epoch
    signs: jax.Array  # int8[n], by step; 0: not seen
    running_sum: jax.Array  # float[d], the signed sum r of this epoch
    mean_gradient: jax.Array  # float[d], mu, of the epoch before
    gradient_sum: jax.Array  # float[d], of the raw gradients of this epoch


def grab(n: int, dim: int) -> Order:
    """Orders the next epoch by balancing the centred gradients of this one.

    s_t = +1 if <r, g_t - mu> <= 0 else -1; `reorder` places the examples by their signs.

    Args:
        n: Number of examples.
        dim: Length d of a gradient (ravelled).

    Returns:
        An `Order`; it keeps 3 vectors of length d, in float32 (float64 where JAX runs in double
        precision). The first order is random. If an epoch ends early, the new mean is that of the
        gradients seen, or the old one if there were none.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is below 1; in `observe` if shapes do not fit, or a gradient is not
            finite.

    Note:
        A traced gradient with NaN or infinity makes `running_sum` so, and what is left of the epoch
        gets the sign -1; `mean_gradient` is then not finite in the next epoch, which gets nothing
        but -1, and finite again in the one after. Orders stay permutations.

    Example:
        >>> order = grab(4, 1)
        >>> state = order.init(jax.random.key(0))
        >>> first = order.permutation(state)
        >>> gradients = jnp.array([[1.0], [2.0], [-3.0], [-1.0]])  # by step
        >>> state = order.end_epoch(order.observe(state, jnp.arange(4), gradients))
        >>> bool((order.permutation(state) == first[jnp.array([0, 3, 2, 1])]).all())
        True
        >>> state.mean_gradient.tolist()
        [-0.25]

    Reference:
        Lu, Guo, De Sa 2022, "GraB: Finding Provably Better Data Permutations than Random
        Reshuffling", arXiv 2205.10733.
    """
    n, dim = whole("n", n, most=LARGEST), whole("dim", dim)

    def init(key: jax.Array) -> GrabState:
        zeros = (jnp.zeros(dim, float) for _ in range(3))
        return GrabState(random_order(one_key("key", key), n), jnp.zeros(n, jnp.int8), *zeros)

    def permutation(state: GrabState) -> jax.Array:
        check_state(state, GrabState, (n,))
        return state.order

    def observe(state: GrabState, positions: Any, gradients: Any) -> GrabState:
        check_state(state, GrabState, (n,))
        return _observe(state, *check_observation(positions, gradients, dim=dim, n=n))

    def end_epoch(state: GrabState) -> GrabState:
        check_state(state, GrabState, (n,))
        return _end_epoch(state)

    return Order(init, permutation, observe, end_epoch, n=n, dim=dim)


@jax.jit
def _observe(state: GrabState, positions: jax.Array, gradients: jax.Array) -> GrabState:
    running_sum, gradient_sum, is_plus, places = decide_centred(
        add_signed, state.running_sum, state, positions, gradients
    )
    return state._replace(
        signs=state.signs.at[places].set(as_signs(is_plus), mode="drop"),
        running_sum=running_sum,
        gradient_sum=gradient_sum,
    )


@jax.jit
def _end_epoch(state: GrabState) -> GrabState:
    return GrabState(
        order=reorder(state.order, state.signs),
        signs=jnp.zeros_like(state.signs),
        running_sum=jnp.zeros_like(state.running_sum),
        mean_gradient=mean_seen(
            state.gradient_sum, jnp.sum(state.signs != 0, dtype=jnp.int32), state.mean_gradient
        ),
        gradient_sum=jnp.zeros_like(state.gradient_sum),
    )


def decide_centred(
    decide: Callable[[Any, jax.Array], tuple[Any, jax.Array]],
    balance: Any,
    state: Any,
    positions: jax.Array,
    gradients: jax.Array,
) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
    """Hands the centred gradients of a batch to `decide(balance, vector) -> (balance, choice)`.

    Returns the balance, the sum of the raw gradients float[d], the choices [B] and their places in
    the epoch int32[B]; padding has place n.

    Example:
        >>> state = grab(2, 1).init(jax.random.key(0))._replace(mean_gradient=jnp.array([2.0]))
        >>> rows = jnp.array([[3.0], [jnp.nan]])
        >>> _, total, _, places = decide_centred(
        ...     add_signed, state.running_sum, state, jnp.array([1, -1]), rows)
        >>> total.tolist(), places.tolist()
        ([3.0], [1, 2])
    """
    n, dtype = state.order.shape[0], state.gradient_sum.dtype
    is_step = (positions >= 0) & (positions < n)

    def step(
        sums: tuple[Any, jax.Array], row: tuple[jax.Array, jax.Array]
    ) -> tuple[Any, jax.Array]:
        (balance, gradient_sum), (gradient, is_step) = sums, row
        gradient = jnp.where(is_step, gradient.astype(dtype), 0)
        centred = jnp.where(is_step, gradient - state.mean_gradient, 0)
        balance, choice = decide(balance, centred)
        return (balance, gradient_sum + gradient), choice

    sums, choices = jax.lax.scan(step, (balance, state.gradient_sum), (gradients, is_step))
    return *sums, choices, jnp.where(is_step, positions, n)


def mean_seen(gradient_sum: jax.Array, n_seen: jax.Array, old_mean: jax.Array) -> jax.Array:
    """Takes the mean of the gradients of an epoch, or the old one if there were none.

    `gradient_sum` float[d]; `n_seen` int32[]; `old_mean` float[d]; returns float[d].

    Example:
        >>> mean_seen(jnp.array([6.0]), jnp.int32(3), jnp.array([9.0])).tolist()
        [2.0]
        >>> mean_seen(jnp.array([0.0]), jnp.int32(0), jnp.array([9.0])).tolist()
        [9.0]
    """
    return jnp.where(n_seen > 0, gradient_sum / jnp.maximum(n_seen, 1), old_mean)
