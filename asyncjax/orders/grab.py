"""GraB: balance each gradient, centred by the mean of the epoch before; once, or in a tree.

    z_t = g_t - mu      s_t = +1 if <r, z_t> <= 0 else -1      r <- r + s_t z_t
    r = 0 at each epoch start
    mu <- mean of the raw g_t of this epoch, from the next epoch on (0 in the first)

(Lu, Guo, De Sa 2022, arXiv 2205.10733.) The mean is stale by one epoch, which is what makes the
rule run with three vectors instead of all gradients. A binary tree of such balancers does in one
epoch the work of several:

    at a node with sum r:   s = +1 if <r, z> <= 0 else -1,   r <- r + s z,   +1: left, -1: right
    order(node) = order(left), then order(right) reversed       at the last level: its sequence

`grab` is the tree of depth 0. What goes left is again a sequence with short signed sums, and is
ordered by the same rule; the reversal makes every node the rule of `reorder`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import whole
from asyncjax.orders.kernels import add_signed, as_signs, reorder
from asyncjax.orders.order import LARGEST, Order, gradient_order, random_order


class GrabState(NamedTuple):
    """State of `grab`."""

    order: jax.Array  # int32[n], the example of each step of this epoch
    signs: jax.Array  # int8[n], by step; 0: not seen
    running_sum: jax.Array  # float[d], the signed sum r of this epoch
    mean_gradient: jax.Array  # float[d], mu, of the epoch before
    gradient_sum: jax.Array  # float[d], of the raw gradients of this epoch


def grab(n: int, dim: int) -> Order:
    """Orders the next epoch by balancing the centred gradients of this one.

    Args:
        n, dim: Number of examples, and length d of a gradient (ravelled).

    Returns:
        An `Order`; it keeps 3 vectors of length d, in float32 (float64 where JAX runs in double
        precision). The first order is random. If an epoch ends early, the new mean is that of the
        gradients seen, or the old one if there were none.

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
    """
    n, dim = whole("n", n, most=LARGEST), whole("dim", dim)

    def init(key: jax.Array) -> GrabState:
        zeros = (jnp.zeros(dim, float) for _ in range(3))
        return GrabState(random_order(key, n), jnp.zeros(n, jnp.int8), *zeros)

    return gradient_order(init, _observe, _end_epoch, n=n, dim=dim)


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
    n_seen = jnp.sum(state.signs != 0, dtype=jnp.int32)
    return jax.tree.map(jnp.zeros_like, state)._replace(
        order=reorder(state.order, state.signs),
        mean_gradient=mean_seen(state.gradient_sum, n_seen, state.mean_gradient),
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
    """
    return jnp.where(n_seen > 0, gradient_sum / jnp.maximum(n_seen, 1), old_mean)


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
        n, dim: Number of examples, and length d of a gradient (ravelled).
        depth: Levels below the root, 0 to 20; 3 to 5 are useful.

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
            order=random_order(key, n),
            lists=jnp.full(n, -1, jnp.int32),
            running_sums=jnp.zeros((2 ** (depth + 1) - 1, dim), float),
            mean_gradient=jnp.zeros(dim, float),
            gradient_sum=jnp.zeros(dim, float),
        )

    observe, end_epoch = partial(_observe_tree, depth=depth), partial(_end_tree, depth=depth)
    return gradient_order(init, observe, end_epoch, n=n, dim=dim)


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


@partial(jax.jit, static_argnames="depth")
def _observe_tree(
    state: RecursiveState, positions: jax.Array, gradients: jax.Array, depth: int
) -> RecursiveState:
    running_sums, gradient_sum, lists, places = decide_centred(
        partial(_descend, depth=depth), state.running_sums, state, positions, gradients
    )
    return state._replace(
        lists=state.lists.at[places].set(lists, mode="drop"),
        running_sums=running_sums,
        gradient_sum=gradient_sum,
    )


@partial(jax.jit, static_argnames="depth")
def _end_tree(state: RecursiveState, depth: int) -> RecursiveState:
    lists, half = state.lists, 2**depth
    step = jnp.arange(lists.shape[0], dtype=jnp.int32)
    is_seen = lists >= 0
    # Of the 2^(depth+1) lists the first half comes before the examples not seen.
    part = jnp.where(is_seen, lists + (lists >= half), half)
    inside = jnp.where(is_seen & (lists % 2 == 1), -step, step)
    n_seen = jnp.sum(is_seen, dtype=jnp.int32)
    return jax.tree.map(jnp.zeros_like, state)._replace(
        order=state.order[jnp.lexsort((inside, part))],
        lists=jnp.full_like(lists, -1),
        mean_gradient=mean_seen(state.gradient_sum, n_seen, state.mean_gradient),
    )
