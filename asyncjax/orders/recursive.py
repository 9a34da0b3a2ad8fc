"""Recursive balance: a binary tree of balancers, so that one epoch does the work of several.

    at a node with sum r:   s = +1 if <r, z> <= 0 else -1,   r <- r + s z,   +1: left, -1: right
    order(node) = order(left), then order(right) reversed       at the last level: its sequence

z = g - mu with the stale mean mu of `grab`, whose tree has depth 0. What goes left is again a
sequence with short signed sums, and is ordered by the same rule; the reversal makes every node the
rule of `reorder`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import one_key, whole
from asyncjax.orders.grab import decide_centred, mean_seen
from asyncjax.orders.kernels.arguments import LARGEST, check_state
from asyncjax.orders.kernels.balancing import add_signed
from asyncjax.orders.kernels.first_orders import random_order
from asyncjax.orders.kernels.vectors import check_observation
from asyncjax.orders.order import Order


class RecursiveState(NamedTuple):
    """State of `recursive`; K = 2^(depth+1) - 1 nodes, 2^(depth+1) lists below them."""

    order: jax.Array  # int32[n], the example of each step of this epoch
    # int32[n], by step: lists in their final sequence, the odd ones reversed; -1: not seen
    lists: jax.Array
    running_sums: jax.Array  # float[K, d], of the nodes, level after level
    mean_gradient: jax.Array  # float[d], of the epoch before
    gradient_sum: jax.Array  # float[d], of the raw gradients of this epoch


def recursive(n: int, dim: int, depth: int = 3) -> Order:
    """Orders the next epoch by a tree of balancers with the stale mean of `grab`.

    An example makes depth + 1 decisions, one a level. Depth 0 is `grab`; a deeper tree gives in the
    first epochs what `grab` gives after several, and no better orders in the end.

    Args:
        n: Number of examples.
        dim: Length d of a gradient (ravelled).
        depth: Levels below the root, 0 to 20; 3 to 5 are useful.

    Returns:
        An `Order`; it keeps 2^(depth+1) + 1 vectors of length d. The first order is random.
        Examples that were not seen stay in the middle.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is out of range; in `observe` if shapes do not fit, or a gradient is
            not finite.

    Note:
        A traced gradient with NaN or infinity does here what it does in `grab`, in `running_sums`.

    Example:
        >>> order = recursive(16, 2, depth=1)
        >>> state = order.init(jax.random.key(0))
        >>> gradients = jax.random.normal(jax.random.key(1), (16, 2))
        >>> state = order.end_epoch(order.observe(state, jnp.arange(16), gradients))
        >>> sorted(order.permutation(state).tolist()) == list(range(16))
        True
    """
    n, dim = whole("n", n, most=LARGEST), whole("dim", dim)
    depth = whole("depth", depth, 0, most=20)

    def init(key: jax.Array) -> RecursiveState:
        return RecursiveState(
            order=random_order(one_key("key", key), n),
            lists=jnp.full(n, -1, jnp.int32),
            running_sums=jnp.zeros((2 ** (depth + 1) - 1, dim), float),
            mean_gradient=jnp.zeros(dim, float),
            gradient_sum=jnp.zeros(dim, float),
        )

    def permutation(state: RecursiveState) -> jax.Array:
        check_state(state, RecursiveState, (n,))
        return state.order

    def observe(state: RecursiveState, positions: Any, gradients: Any) -> RecursiveState:
        check_state(state, RecursiveState, (n,))
        positions, gradients = check_observation(positions, gradients, dim=dim, n=n)
        return _observe(state, positions, gradients, depth)

    def end_epoch(state: RecursiveState) -> RecursiveState:
        check_state(state, RecursiveState, (n,))
        return _end_epoch(state, depth)

    return Order(init, permutation, observe, end_epoch, n=n, dim=dim)


def _descend(running_sums: jax.Array, vector: jax.Array, depth: int) -> tuple[jax.Array, jax.Array]:
    """Sends a vector down the tree; returns the sums and the list it ends in."""
    # Below an odd number of right turns everything is reversed, so left and right change places:
    # the place of a list is read from the parities of the turns, as a Gray code is.
    node, place, turned = (jnp.zeros((), jnp.int32) for _ in range(3))
    for _ in range(depth + 1):
        running_sum, is_left = add_signed(running_sums[node], vector)
        running_sums = running_sums.at[node].set(running_sum)
        right = jnp.where(is_left, jnp.int32(0), jnp.int32(1))
        node = 2 * node + 1 + right
        turned = turned ^ right
        place = 2 * place + turned
    return running_sums, place


@partial(jax.jit, static_argnums=3)
def _observe(
    state: RecursiveState, positions: jax.Array, gradients: jax.Array, depth: int
) -> RecursiveState:
    def decide(running_sums: jax.Array, vector: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _descend(running_sums, vector, depth)

    running_sums, gradient_sum, lists, places = decide_centred(
        decide, state.running_sums, state, positions, gradients
    )
    return state._replace(
        lists=state.lists.at[places].set(lists, mode="drop"),
        running_sums=running_sums,
        gradient_sum=gradient_sum,
    )


@partial(jax.jit, static_argnums=1)
def _end_epoch(state: RecursiveState, depth: int) -> RecursiveState:
    lists, half = state.lists, 2**depth
    step = jnp.arange(lists.shape[0], dtype=jnp.int32)
    is_seen = lists >= 0
    # Of the 2^(depth+1) lists the first half comes before the examples not seen.
    part = jnp.where(is_seen, lists + (lists >= half), half)
    inside = jnp.where(is_seen & (lists % 2 == 1), -step, step)
    n_seen = jnp.sum(is_seen, dtype=jnp.int32)
    return RecursiveState(
        order=state.order[jnp.lexsort((inside, part))],
        lists=jnp.full_like(lists, -1),
        running_sums=jnp.zeros_like(state.running_sums),
        mean_gradient=mean_seen(state.gradient_sum, n_seen, state.mean_gradient),
        gradient_sum=jnp.zeros_like(state.gradient_sum),
    )
