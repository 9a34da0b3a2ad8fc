"""Orders by pairs: PairBalance, and what the others have in common with it.

    z_k = g_{2k} - g_{2k+1}      sign s_k from z_k and a balance
    pair k goes to places k and n - 1 - k, its first example in front if s_k = +1

The balance (a running sum, and what else a rule needs) is carried from pair to pair and begins anew
in every epoch. With several workers and one balance, time is the outer loop and the workers the
inner one: a pair is decided at the step of its second example. The greedy rule,

    s_k = +1 if <r, z_k> <= 0 else -1      r <- r + s_k z_k      r = 0 at each epoch start

is that of every worker in CD-GraB (Cooper et al. 2023, arXiv 2302.00845). A vector common to all
gradients cancels, so that nothing stale is needed, and the first epoch balances already.

A batch may begin or end in the middle of a pair, and some of its rows may be padding: the gradient
of a step that waits for its partner is kept from one batch to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import whole
from asyncjax.orders.gradient_order import gradient_order
from asyncjax.orders.kernels import add_signed, as_signs, balance_signs, reorder_shard
from asyncjax.orders.order import Order
from asyncjax.orders.shards import LARGEST, random_order


class PairState(NamedTuple):
    """State of an order by pairs; without the axis m for a single worker."""

    order: jax.Array  # int32[m, n], the examples in their sequence; -1 behind the last of a worker
    signs: jax.Array  # int8[m, n], by place in this sequence; 0: not seen or not paired
    waiting_gradient: jax.Array  # float[m, d], of the even step that waits for its partner, else 0
    waiting_step: jax.Array  # int32[m], that step; -1: none waits
    balance: Any  # of the rule: its running sum float[d], and more if it needs more


@dataclass(frozen=True)
class PairRule:
    """How a sign is chosen.

    Attributes:
        init: From a key and the zero vector of a running sum to the first balance.
        sign: From the balance, a difference float[d] and the number of the pair to the balance
            after it and whether the sign is +1. A difference of zeros must leave the balance
            unchanged.
        restart: From the balance at the end of an epoch to that of the next.
        signs: The same for many differences float[K, d] at once: to the balance after them and
            signs int8[K]; None: one after the other.
    """

    init: Callable[[jax.Array, jax.Array], Any]
    sign: Callable[[Any, jax.Array, jax.Array], tuple[Any, jax.Array]]
    restart: Callable[[Any], Any]
    signs: Callable[[Any, jax.Array], tuple[Any, jax.Array]] | None = None


def _greedy_sign(
    running_sum: jax.Array, difference: jax.Array, pair: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return add_signed(running_sum, difference)


GREEDY = PairRule(init=lambda key, zero: zero, sign=_greedy_sign, restart=jnp.zeros_like)


@cache
def greedy_in_blocks(block: int) -> PairRule:
    """The greedy rule, decided from one Gram matrix for so many pairs.

    Example:
        >>> balance, signs = greedy_in_blocks(2).signs(jnp.zeros(1), jnp.array([[3.0], [1.0]]))
        >>> balance.tolist(), signs.tolist()
        ([2.0], [1, -1])
    """
    if block == 1:
        return GREEDY

    def signs(running_sum: jax.Array, differences: jax.Array) -> tuple[jax.Array, jax.Array]:
        signs, running_sum = balance_signs(differences, running_sum, block)
        return running_sum, signs

    return replace(GREEDY, signs=signs)


def pair_balanced(n: int, dim: int) -> Order:
    """Orders the next epoch by balancing the pair differences of this one.

    s_k = +1 if <r, z_k> <= 0 else -1: then the first of pair k goes to place k and the second to
    place n - 1 - k, otherwise the other way round. With odd n the last example takes the middle
    place.

    Args:
        n: Number of examples.
        dim: Length d of a gradient (ravelled).

    Returns:
        An `Order`; it keeps 2 vectors of length d, in float32 (float64 where JAX runs in double
        precision). The first order is random.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is below 1.

    Note:
        A traced gradient with NaN or infinity makes the running sum in `state.balance` so, and all
        pairs that follow it in the epoch get -1 for their first example. The order stays a
        permutation, and the next epoch begins with a running sum of 0.

    Example:
        >>> order = pair_balanced(4, 1)
        >>> state = order.init(jax.random.key(0))
        >>> first = order.permutation(state)
        >>> gradients = jnp.array([[1.0], [2.0], [5.0], [3.0]])  # by step
        >>> state = order.end_epoch(order.observe(state, jnp.arange(4), gradients))
        >>> bool((order.permutation(state) == first[jnp.array([0, 2, 3, 1])]).all())
        True

    Reference:
        Cooper et al. 2023, "Coordinating Distributed Example Orders for Provably Accelerated
        Training", arXiv 2302.00845.
    """
    return pair_order(GREEDY, n, dim)


def pair_order(rule: PairRule, n: int, dim: int) -> Order:
    """Makes the order of one worker from a rule.

    Example:
        >>> order = pair_order(GREEDY, 5, 2)
        >>> order.permutation(order.init(jax.random.key(0))).shape
        (5,)
    """
    n, dim = whole("n", n, most=LARGEST), whole("dim", dim)

    def init(key: jax.Array) -> PairState:
        order_key, rule_key = jax.random.split(key)
        balance = rule.init(rule_key, jnp.zeros(dim, float))
        return start(random_order(order_key, n), balance, dim)

    observe, end_epoch = partial(_observe_one, rule), partial(_end_one, rule)
    return gradient_order(PairState, init, observe, end_epoch, n=n, dim=dim)


def start(order: jax.Array, balance: Any, dim: int) -> PairState:
    """Makes the state before the first epoch.

    `order` int32[n].

    Example:
        >>> start(jnp.arange(3), jnp.zeros(2), 2).signs.tolist()
        [0, 0, 0]
    """
    return PairState(
        order=order,
        signs=jnp.zeros(order.shape, jnp.int8),
        waiting_gradient=jnp.zeros((*order.shape[:-1], dim), float),
        waiting_step=jnp.full(order.shape[:-1], -1, jnp.int32),
        balance=balance,
    )


def observe_pairs(
    rule: PairRule, state: PairState, visits: jax.Array, gradients: jax.Array
) -> PairState:
    """Chooses the signs of all pairs that a batch completes, with one balance for all workers.

    `visits` int32[m, B]; `gradients` float[m, B, d].

    Example:
        >>> state = start(jnp.array([[0, 1]]), jnp.zeros(1), 1)
        >>> gradients = jnp.array([[[1.0], [3.0]]])
        >>> observe_pairs(GREEDY, state, jnp.array([[0, 1]]), gradients).signs.tolist()
        [[1, -1]]
    """
    n_workers, n = state.order.shape
    pairs = jax.vmap(find_pairs, (0, 0, None))(visits, state.waiting_step, n)
    balance, signs = _scan_pairs(rule, state, pairs, gradients)
    workers = jnp.arange(n_workers, dtype=jnp.int32)
    columns = jnp.concatenate([pairs.step, pairs.step + 1], axis=1)
    signs = jnp.concatenate([signs, -signs], axis=1)
    waits, none_seen = pairs.last_step % 2 == 0, pairs.last_step < 0
    last = gradients[workers, pairs.last].astype(state.waiting_gradient.dtype)
    waiting_gradient = jnp.where(waits[:, None], last, 0)
    waiting_step = jnp.where(waits, pairs.last_step, jnp.int32(-1))
    return PairState(
        order=state.order,
        signs=state.signs.at[workers[:, None], columns].set(signs, mode="drop"),
        waiting_gradient=jnp.where(none_seen[:, None], state.waiting_gradient, waiting_gradient),
        waiting_step=jnp.where(none_seen, state.waiting_step, waiting_step),
        balance=balance,
    )


def end_pairs(rule: PairRule, state: PairState, counts: jax.Array) -> PairState:
    """Turns to the next epoch.

    `counts` int32[m].

    Example:
        >>> state = start(jnp.array([[0, 1]]), jnp.ones(1), 1)
        >>> state = state._replace(signs=jnp.array([[-1, 1]], jnp.int8))
        >>> state = end_pairs(GREEDY, state, jnp.array([2]))
        >>> state.order.tolist(), state.balance.tolist()
        ([[1, 0]], [0.0])
    """
    return PairState(
        order=jax.vmap(reorder_shard)(state.order, state.signs, counts),
        signs=jnp.zeros_like(state.signs),
        waiting_gradient=jnp.zeros_like(state.waiting_gradient),
        waiting_step=jnp.full_like(state.waiting_step, -1),
        balance=rule.restart(state.balance),
    )


class Pairs(NamedTuple):
    """The pairs that a batch completes, at most P = ceil(B / 2), and what is left over."""

    first: jax.Array  # int32[P], row of the even step; -1: the gradient that waited
    second: jax.Array  # int32[P], row of the odd step
    step: jax.Array  # int32[P], the even step; n where there is no pair
    last: jax.Array  # int32[], row of the last step of the batch
    last_step: jax.Array  # int32[], the last step; -1 if all rows are padding


def find_pairs(positions: jax.Array, waiting_step: jax.Array, n: int) -> Pairs:
    """Matches the rows of a batch in pairs.

    `positions` int32[B]; `waiting_step` int32[].

    Example:
        Step 2 waited; step 5 will:

        >>> pairs = find_pairs(jnp.array([3, 4, 5, 6, 99]), jnp.int32(2), 8)
        >>> pairs.first.tolist(), pairs.second.tolist(), pairs.step.tolist()
        ([-1, 1, 3], [0, 2, 0], [2, 4, 8])
        >>> int(pairs.last), int(pairs.last_step)
        (3, 6)
    """
    n_rows = positions.shape[0]
    number = jnp.arange(n_rows, dtype=jnp.int32)
    is_step = (positions >= 0) & (positions < n)
    rank = jnp.cumsum(is_step, dtype=jnp.int32) - 1
    n_seen = rank[-1] + 1
    # Rows that are steps move to the front, padding away.
    rows = jnp.zeros_like(number).at[jnp.where(is_step, rank, n_rows)].set(number, mode="drop")
    steps = jnp.where(number < n_seen, positions[rows], n)

    begins_odd = steps[0] % 2
    second = 2 * jnp.arange((n_rows + 1) // 2, dtype=jnp.int32) + 1 - begins_odd
    first = second - 1
    in_batch = jnp.minimum(second, n_rows - 1)
    first_step = jnp.where(first < 0, waiting_step, steps[jnp.maximum(first, 0)])
    is_pair = (second < n_seen) & (first_step >= 0) & (first_step + 1 == steps[in_batch])
    last = jnp.maximum(n_seen - 1, 0)
    return Pairs(
        first=jnp.where(first < 0, -1, rows[jnp.maximum(first, 0)]),
        second=jnp.where(second < n_seen, rows[in_batch], 0),
        step=jnp.where(is_pair, first_step, n),
        last=rows[last],
        last_step=jnp.where(n_seen > 0, steps[last], -1),
    )


def _scan_pairs(
    rule: PairRule, state: PairState, pairs: Pairs, gradients: jax.Array
) -> tuple[Any, jax.Array]:
    """Decides pair after pair, worker after worker; returns the balance and signs int8[m, P]."""
    n_workers, n = state.order.shape
    dtype = state.waiting_gradient.dtype
    workers = jnp.broadcast_to(jnp.arange(n_workers, dtype=jnp.int32)[:, None], pairs.step.shape)
    in_turn = (workers.T.ravel(), *(x.T.ravel() for x in pairs[:3]))
    turn = None
    if n_workers > 1:  # in the sequence in which pairs are completed, at equal steps by worker
        turn = jnp.argsort(in_turn[2] * n_workers + in_turn[0], stable=True)
        in_turn = tuple(x[turn] for x in in_turn)

    def difference(x: tuple[jax.Array, ...]) -> jax.Array:
        worker, first, second, step = x
        a = gradients[worker, jnp.maximum(first, 0)].astype(dtype)
        a = jnp.where(first < 0, state.waiting_gradient[worker], a)
        b = gradients[worker, second].astype(dtype)
        return jnp.where(step < n, a - b, 0)

    def decide(balance: Any, x: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
        balance, is_plus = rule.sign(balance, difference(x), x[3] // 2)
        return balance, jnp.where(x[3] < n, as_signs(is_plus), jnp.int8(0))

    if rule.signs is None:
        balance, signs = jax.lax.scan(decide, state.balance, in_turn)
    else:
        balance, signs = rule.signs(state.balance, jax.vmap(difference)(in_turn))
        signs = jnp.where(in_turn[3] < n, signs, jnp.int8(0))
    if turn is not None:
        signs = jnp.zeros_like(signs).at[turn].set(signs, unique_indices=True)
    return balance, signs.reshape(-1, n_workers).T


def lifted(state: PairState) -> PairState:
    """Gives the state of one worker the leading axis.

    Example:
        >>> lifted(start(jnp.arange(3), jnp.zeros(2), 2)).order.shape
        (1, 3)
    """
    return PairState(*(x[None] for x in state[:4]), balance=state.balance)


def lowered(state: PairState) -> PairState:
    """Takes the leading axis away again; see `lifted`.

    Example:
        >>> lowered(lifted(start(jnp.arange(3), jnp.zeros(2), 2))).order.shape
        (3,)
    """
    return PairState(*(x[0] for x in state[:4]), balance=state.balance)


@partial(jax.jit, static_argnums=0)
def _observe_one(
    rule: PairRule, state: PairState, positions: jax.Array, gradients: jax.Array
) -> PairState:
    return lowered(observe_pairs(rule, lifted(state), positions[None], gradients[None]))


@partial(jax.jit, static_argnums=0)
def _end_one(rule: PairRule, state: PairState) -> PairState:
    counts = jnp.full(1, state.order.shape[0], jnp.int32)
    return lowered(end_pairs(rule, lifted(state), counts))
