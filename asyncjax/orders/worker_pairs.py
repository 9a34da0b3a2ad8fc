"""Orders by pairs of m workers, in step with each other or not.

In step the workers' k-th pairs are decided one worker after the other (`observe_pairs`). Out of
step gradients arrive one by one, from whoever is ready.

    worker j, own visit i = 0 .. n_j - 1:      i even: keep g
    i odd: z = kept g - g      s = +1 if <r, z> <= 0 else -1      r <- r + s z

A pair is then decided when its second gradient arrives, whatever the other workers did meanwhile.
`coordinated` workers balance one sum, `independent` ones a sum each. If gradients arrive in the
sequence in which workers in step would deliver them, this is the order in step (Cooper et al. 2023,
arXiv 2302.00845).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from asyncjax.checks import one_key, whole
from asyncjax.orders.kernels.arguments import check_state
from asyncjax.orders.kernels.balancing import as_signs
from asyncjax.orders.kernels.first_orders import random_orders
from asyncjax.orders.kernels.reordering import reorder_shard
from asyncjax.orders.kernels.shards import check_shards, spread, visits
from asyncjax.orders.kernels.vectors import check_observation
from asyncjax.orders.order import ArrivalOrder, Order
from asyncjax.orders.pair_order import (
    PairRule,
    PairState,
    end_pairs,
    lifted,
    lowered,
    observe_pairs,
    start,
)


def worker_pairs(
    rule: PairRule, n_workers: int, n: int | Sequence[int], dim: int, *, own_balance: bool
) -> Order:
    """Makes the order of m workers whose balance is a running sum, common to all or one each.

    Example:
        >>> from asyncjax.orders.pair_order import GREEDY
        >>> order = worker_pairs(GREEDY, 2, (4, 3), 1, own_balance=True)
        >>> order.init(jax.random.key(0)).balance.shape
        (2, 1)
    """
    counts, dim = check_shards(n, n_workers), whole("dim", dim)
    shape, n = (len(counts), dim) if own_balance else (dim,), max(counts)

    def init(key: jax.Array) -> PairState:
        return start(random_orders(one_key("key", key), counts), jnp.zeros(shape, float), dim)

    def permutation(state: PairState) -> jax.Array:
        check_state(state, PairState, (len(counts), n))
        return spread(state.order, counts)

    def observe(state: PairState, positions: Any, gradients: Any) -> PairState:
        check_state(state, PairState, (len(counts), n))
        positions, gradients = check_observation(positions, gradients, dim=dim, n=n, counts=counts)
        return _observe(rule, state, positions, gradients, counts, own_balance)

    def end_epoch(state: PairState) -> PairState:
        check_state(state, PairState, (len(counts), n))
        return _end_epoch(rule, state, counts)

    return Order(
        init,
        permutation,
        observe,
        end_epoch,
        n=n,
        n_workers=len(counts),
        counts=counts,
        dim=dim,
        on_arrival=arrival_pairs(rule, counts, own_balance=own_balance),
    )


@partial(jax.jit, static_argnums=(0, 4, 5))
def _observe(
    rule: PairRule,
    state: PairState,
    positions: jax.Array,
    gradients: jax.Array,
    counts: tuple[int, ...],
    own_balance: bool,
) -> PairState:
    visited = visits(positions, counts)
    if not own_balance:
        return observe_pairs(rule, state, visited, gradients)

    def one(state: PairState, own: jax.Array, gradients: jax.Array) -> PairState:
        return lowered(observe_pairs(rule, lifted(state), own[None], gradients[None]))

    return jax.vmap(one)(state, visited, gradients)


@partial(jax.jit, static_argnums=(0, 2))
def _end_epoch(rule: PairRule, state: PairState, counts: tuple[int, ...]) -> PairState:
    return end_pairs(rule, state, jnp.asarray(counts, jnp.int32))


def arrival_pairs(rule: PairRule, counts: tuple[int, ...], *, own_balance: bool) -> ArrivalOrder:
    """Makes the side of an order by pairs that learns from workers out of step.

    Example:
        >>> from asyncjax.orders.pair_order import GREEDY, start
        >>> on_arrival = arrival_pairs(GREEDY, (2,), own_balance=False)
        >>> state = start(jnp.array([[0, 1]]), jnp.ones(1), 1)
        >>> state = on_arrival.observe(state, 0, 0, jnp.array([3.0]))
        >>> state = on_arrival.observe(state, 0, 1, jnp.array([1.0]))
        >>> state.signs.tolist(), state.balance.tolist()
        ([[-1, 1]], [-1.0])
        >>> on_arrival.end_epoch(state, 0, True).order.tolist()
        [[1, 0]]
    """

    def balance_of(state: PairState, worker: Any) -> Any:
        if not own_balance:
            return state.balance
        return jax.tree.map(lambda leaf: leaf[worker], state.balance)

    def with_balance(state: PairState, worker: Any, balance: Any) -> Any:
        if not own_balance:
            return balance
        return jax.tree.map(lambda leaf, own: leaf.at[worker].set(own), state.balance, balance)

    def observe(state: PairState, worker: Any, visit: Any, gradient: Any) -> PairState:
        visit = jnp.asarray(visit, jnp.int32)
        count = jnp.asarray(counts, jnp.int32)[worker]
        seen = (visit >= 0) & (visit < count)
        gradient = jnp.asarray(gradient).astype(state.waiting_gradient.dtype)
        is_pair = seen & (visit % 2 == 1) & (state.waiting_step[worker] == visit - 1)
        difference = jnp.where(is_pair, state.waiting_gradient[worker] - gradient, 0)
        balance, is_plus = rule.sign(balance_of(state, worker), difference, visit // 2)
        sign = as_signs(is_plus)
        place = jnp.where(is_pair, visit, state.signs.shape[1])
        signs = state.signs.at[worker, place].set(-sign, mode="drop")
        signs = signs.at[worker, jnp.where(is_pair, visit - 1, place)].set(sign, mode="drop")
        waits = visit % 2 == 0
        kept = jnp.where(seen, jnp.where(waits, gradient, 0), state.waiting_gradient[worker])
        step = jnp.where(seen, jnp.where(waits, visit, -1), state.waiting_step[worker])
        return PairState(
            order=state.order,
            signs=signs,
            waiting_gradient=state.waiting_gradient.at[worker].set(kept),
            waiting_step=state.waiting_step.at[worker].set(step),
            balance=with_balance(state, worker, balance),
        )

    def end_epoch(state: PairState, worker: Any, is_last: Any) -> PairState:
        count = jnp.asarray(counts, jnp.int32)[worker]
        following = reorder_shard(state.order[worker], state.signs[worker], count)
        old = balance_of(state, worker)
        restarts = jnp.asarray(is_last) | own_balance
        balance = jax.tree.map(
            lambda new, kept: jnp.where(restarts, new, kept), rule.restart(old), old
        )
        return PairState(
            order=state.order.at[worker].set(following),
            signs=state.signs.at[worker].set(0),
            waiting_gradient=state.waiting_gradient.at[worker].set(0),
            waiting_step=state.waiting_step.at[worker].set(-1),
            balance=with_balance(state, worker, balance),
        )

    return ArrivalOrder(lambda state: state.order, observe, end_epoch)
