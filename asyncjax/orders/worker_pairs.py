"""Orders by pairs of m workers: CD-GraB, whose workers balance one common sum, and ID-GraB.

    for k = 0 .. n/2 - 1:  for j = 0 .. m-1:
        z = g^j_{2k} - g^j_{2k+1}      s = +1 if <r, z> <= 0 else -1      r <- r + s z
        worker j: its pair k goes to places k and n - 1 - k of its own next order

Only the sum over the workers has to be balanced, since the server steps with their mean (Cooper et
al. 2023, arXiv 2302.00845). It is `pair_balanced` on one stream in which the workers' k-th pairs
alternate. Examples never move between workers. In `independent` worker j has a sum r_j of its own:
each order is good by itself, their sum is not, which shows what coordination is worth.

In step the workers' k-th pairs are decided one worker after the other (`observe_pairs`). Out of
step gradients arrive one by one, from whoever is ready.

    worker j, own visit i = 0 .. n_j - 1:      i even: keep g
    i odd: z = kept g - g      s = +1 if <r, z> <= 0 else -1      r <- r + s z

A pair is then decided when its second gradient arrives, whatever the other workers did meanwhile.
If gradients arrive in the sequence in which workers in step would deliver them, this is the order
in step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from asyncjax.checks import whole
from asyncjax.orders.gradient_order import gradient_order
from asyncjax.orders.kernels import as_signs, reorder_shard
from asyncjax.orders.order import ArrivalOrder, Order
from asyncjax.orders.pair_order import (
    GREEDY,
    PairRule,
    PairState,
    end_pairs,
    greedy_in_blocks,
    lifted,
    lowered,
    observe_pairs,
    start,
)
from asyncjax.orders.shards import check_shards, random_orders, visits


def coordinated(n_workers: int, n: int | Sequence[int], dim: int, *, block: int = 1) -> Order:
    """Orders the examples of m workers by balancing one sum common to all.

    Args:
        n_workers: Number of workers m.
        n: Examples of each worker; or m numbers, one a worker.
        dim: Length d of a gradient (ravelled).
        block: Pairs decided from one Gram matrix, such as m: the same signs up to rounding. 1
            decides one pair after the other.

    Returns:
        An `Order` with `permutation` int32[m, n] in local indices and gradients float[m, B, d] at
        steps common to all workers; it keeps m + 1 vectors of length d. The first orders are random
        and differ between workers.

        Workers with unequal numbers of examples: an epoch has as many steps as the largest shard,
        and smaller ones are spread evenly over it: worker j visits its i-th example at step
        floor((2 i + 1) n / (2 n_j)). At the other steps it is idle: its entry of `permutation` is
        -1 and its gradient is ignored, whatever it is. No example is dropped; an odd last example
        takes the middle of its own worker's order. A pair is decided at the step of its second
        example.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is below 1, or `n` has another length than m.

    Note:
        On several devices: place the gradients split along d, and in the state `balance` and
        `waiting_gradient` too; they stay so. No device then holds more than d / devices of any
        vector, and what travels are inner products: those of a block of pairs at once, or one
        number for each pair.

    Example:
        >>> order = coordinated(2, (4, 3), 1)
        >>> state = order.init(jax.random.key(0))
        >>> state = order.observe(state, jnp.arange(4), jnp.ones((2, 4, 1)))
        >>> order.permutation(order.end_epoch(state)).shape
        (2, 4)

    Reference:
        Cooper et al. 2023, "Coordinating Distributed Example Orders for Provably Accelerated
        Training", arXiv 2302.00845.
    """
    rule = greedy_in_blocks(whole("block", block))
    return worker_pairs(rule, n_workers, n, dim, own_balance=False)


def independent(n_workers: int, n: int | Sequence[int], dim: int) -> Order:
    """Orders the examples of m workers, each by `pair_balanced` on its own.

    Args:
        n_workers: Number of workers m.
        n: Examples of each worker; or m numbers, one a worker, as in `coordinated`.
        dim: Length d of a gradient (ravelled).

    Returns:
        An `Order` with the shapes of `coordinated`; it keeps 2 m vectors of length d.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is below 1, or `n` has another length than m.

    Example:
        >>> order = independent(2, 4, 1)
        >>> state = order.init(jax.random.key(0))
        >>> state = order.observe(state, jnp.arange(4), jnp.ones((2, 4, 1)))
        >>> order.permutation(order.end_epoch(state)).shape
        (2, 4)

    Reference:
        Cooper et al. 2023, "Coordinating Distributed Example Orders for Provably Accelerated
        Training", arXiv 2302.00845.
    """
    return worker_pairs(GREEDY, n_workers, n, dim, own_balance=True)


def worker_pairs(
    rule: PairRule, n_workers: int, n: int | Sequence[int], dim: int, *, own_balance: bool
) -> Order:
    """Makes the order of m workers whose balance is a running sum, common to all or one each.

    Example:
        >>> order = worker_pairs(GREEDY, 2, (4, 3), 1, own_balance=True)
        >>> order.init(jax.random.key(0)).balance.shape
        (2, 1)
    """
    counts, dim = check_shards(n, n_workers), whole("dim", dim)
    shape, n = (len(counts), dim) if own_balance else (dim,), max(counts)

    def init(key: jax.Array) -> PairState:
        return start(random_orders(key, counts), jnp.zeros(shape, float), dim)

    return gradient_order(
        PairState,
        init,
        partial(_observe, rule, counts, own_balance),
        partial(_end_epoch, rule, counts),
        n=n,
        dim=dim,
        counts=counts,
        on_arrival=arrival_pairs(rule, counts, own_balance=own_balance),
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _observe(
    rule: PairRule,
    counts: tuple[int, ...],
    own_balance: bool,
    state: PairState,
    positions: jax.Array,
    gradients: jax.Array,
) -> PairState:
    visited = visits(positions, counts)
    if not own_balance:
        return observe_pairs(rule, state, visited, gradients)

    def one(state: PairState, own: jax.Array, gradients: jax.Array) -> PairState:
        return lowered(observe_pairs(rule, lifted(state), own[None], gradients[None]))

    return jax.vmap(one)(state, visited, gradients)


@partial(jax.jit, static_argnums=(0, 1))
def _end_epoch(rule: PairRule, counts: tuple[int, ...], state: PairState) -> PairState:
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

    def balance_of(state: PairState, worker: Any) -> jax.Array:
        return state.balance[worker] if own_balance else state.balance

    def with_balance(state: PairState, worker: Any, balance: jax.Array) -> jax.Array:
        return state.balance.at[worker].set(balance) if own_balance else balance

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
        balance = jnp.where(jnp.asarray(is_last) | own_balance, rule.restart(old), old)
        return PairState(
            order=state.order.at[worker].set(following),
            signs=state.signs.at[worker].set(0),
            waiting_gradient=state.waiting_gradient.at[worker].set(0),
            waiting_step=state.waiting_step.at[worker].set(-1),
            balance=with_balance(state, worker, balance),
        )

    return ArrivalOrder(lambda state: state.order, observe, end_epoch)
