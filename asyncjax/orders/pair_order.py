"""Orders by pairs: PairBalance, its rules with a coin, and orders of several workers.

    z_k = g_{2k} - g_{2k+1}      sign s_k from z_k and a balance
    pair k goes to places k and n - 1 - k, its first example in front if s_k = +1

The balance (a running sum, and what else a rule needs) is carried from pair to pair and begins anew
in every epoch. The greedy rule is that of every worker in CD-GraB (Cooper et al. 2023, arXiv
2302.00845); a vector common to all gradients cancels, so that nothing stale is needed:

    s_k = +1 if <r, z_k> <= 0 else -1      r <- r + s_k z_k      r = 0 at each epoch start

The self-balancing walk has a coin that leans towards the shorter sum (Alweiss, Liu, Sawhney 2021,
arXiv 2006.14009). It is stated for vectors of norm at most 1; b brings gradients of any size there.
Where |<r, z>| > c b^2 the walk has failed: here it takes the better sign, and counts the failure.

    P(s = +1) = 1/2 - <r, z> / (2 c b^2)          b: the largest |z| so far

Kernel halving (Carrell et al. 2025, "Low-Rank Thinning") leans by a threshold a that adapts to the
differences seen in the epoch; tau begins at 0 in each:

    s_i = +1 iff <r, z_i> <= u_i a_i          u_i uniform in (-1, 1)
    a_i = b2 max(1, sqrt(tau L_i / b2))       b2 = |z_i|^2
    tau <- 2 b2  if tau L_i <= b2,  else  tau + 2 b2 (L_i + 1/2 - sqrt(tau L_i / b2))_+ / L_i
    L_i = log(4 i (e + 1) (log E + 1) (log(n/2) + 1) / delta),   i = 1, 2, ... in epoch e of E

*Several workers.* Only the sum over the workers has to be balanced, since the server steps with
their mean: CD-GraB is `pair_balanced` on one stream in which the workers' k-th pairs alternate, and
worker j puts its pair k at places k and n - 1 - k of its own next order. Examples never move
between workers. In `independent` every worker has a sum of its own, which shows what coordination
is worth. Out of step, a pair is decided when its second gradient arrives, whatever the other
workers did meanwhile; in the sequence of workers in step, this is the order in step.

A batch may begin or end in the middle of a pair, and some of its rows may be padding: the gradient
of a step that waits for its partner is kept from one batch to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import real, whole
from asyncjax.orders.kernels import (
    add_signed,
    as_signs,
    balance_signs,
    inner_product,
    reorder_shard,
)
from asyncjax.orders.order import (
    LARGEST,
    ArrivalOrder,
    Order,
    check_shards,
    gradient_order,
    random_order,
    random_orders,
    visits,
)


class PairState(NamedTuple):
    """State of an order by pairs; without the axis m for a single worker."""

    order: jax.Array  # int32[m, n], the examples in their sequence; -1 behind the last of a worker
    signs: jax.Array  # int8[m, n], by place in this sequence; 0: not seen or not paired
    waiting_gradient: jax.Array  # float[m, d], of the even step that waits for its partner, else 0
    waiting_step: jax.Array  # int32[m], that step; -1: none waits
    balance: Any  # of the rule: its running sum float[d], and more if it needs more


@dataclass(frozen=True)
class PairRule:
    """How a sign is chosen."""

    # From a key and the zero vector of a running sum to the first balance.
    init: Callable[[jax.Array, jax.Array], Any]
    # From the balance, a difference float[d] and the number of the pair to the next balance and
    # whether the sign is +1. A difference of zeros must leave the balance unchanged.
    sign: Callable[[Any, jax.Array, jax.Array], tuple[Any, jax.Array]]
    restart: Callable[[Any], Any]  # from the balance at the end of an epoch to that of the next
    # Of many differences float[K, d] at once, signs int8[K]; None: one after the other.
    signs: Callable[[Any, jax.Array], tuple[Any, jax.Array]] | None = None


GREEDY = PairRule(
    init=lambda key, zero: zero,
    sign=lambda running_sum, difference, pair: add_signed(running_sum, difference),
    restart=jnp.zeros_like,
)


@cache
def greedy_in_blocks(block: int) -> PairRule:
    """The greedy rule, decided from one Gram matrix for so many pairs."""
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
        n, dim: Number of examples, and length d of a gradient (ravelled).

    Returns:
        An `Order`; it keeps 2 vectors of length d, in float32 (float64 where JAX runs in double
        precision). The first order is random.

    Example:
        >>> order = pair_balanced(4, 1)
        >>> state = order.init(jax.random.key(0))
        >>> first = order.permutation(state)
        >>> gradients = jnp.array([[1.0], [2.0], [5.0], [3.0]])  # by step
        >>> state = order.end_epoch(order.observe(state, jnp.arange(4), gradients))
        >>> bool((order.permutation(state) == first[jnp.array([0, 2, 3, 1])]).all())
        True
    """
    return pair_order(GREEDY, n, dim)


def pair_order(rule: PairRule, n: int, dim: int) -> Order:
    """Makes the order of one worker from a rule."""
    n, dim = whole("n", n, most=LARGEST), whole("dim", dim)

    def init(key: jax.Array) -> PairState:
        order_key, rule_key = jax.random.split(key)
        balance = rule.init(rule_key, jnp.zeros(dim, float))
        return start(random_order(order_key, n), balance, dim)

    observe, end_epoch = partial(_observe_one, rule), partial(_end_one, rule)
    return gradient_order(init, observe, end_epoch, n=n, dim=dim)


def start(order: jax.Array, balance: Any, dim: int) -> PairState:
    """Makes the state before the first epoch.

    `order` int32[n].
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
    """Gives the state of one worker the leading axis."""
    return PairState(*(x[None] for x in state[:4]), balance=state.balance)


def lowered(state: PairState) -> PairState:
    """Takes the leading axis away again; see `lifted`."""
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
        n, dim: Number of examples, and length d of a gradient (ravelled).
        c: How undecided the walk is. 0 is `pair_balanced`; theory takes 30 log(n d / delta), with
            which orders are no better than random ones. On 1024 Gaussian vectors of length 128 the
            largest prefix norm after 20 epochs is about 72, 81, 103, 130, 160 and 200 for c = 0,
            0.5, 1, 2, 4 and 30 log(n d); random orders have 190.

    Returns:
        An `Order`; it keeps 2 vectors of length d. `state.balance.failures` counts the failures.

    Note:
        The bound b is the largest norm seen so far, not one known beforehand as in the paper. After
        a traced gradient that is not finite every pair of the epoch counts as a failure.

    Example:
        >>> order = probabilistic(4, 1)
        >>> state = order.init(jax.random.key(0))
        >>> state = order.observe(state, jnp.arange(4), jnp.array([[1.0], [2.0], [5.0], [3.0]]))
        >>> float(state.balance.norm_bound)
        2.0
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
        n, dim: Number of examples, and length d of a gradient (ravelled).
        epochs: Epochs E of the whole run; more may follow.
        delta: Probability of failure that the thresholds are made for, in (0, 1].

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

    Example:
        >>> order = independent(2, 4, 1)
        >>> state = order.init(jax.random.key(0))
        >>> state = order.observe(state, jnp.arange(4), jnp.ones((2, 4, 1)))
        >>> order.permutation(order.end_epoch(state)).shape
        (2, 4)
    """
    return worker_pairs(GREEDY, n_workers, n, dim, own_balance=True)


def worker_pairs(
    rule: PairRule, n_workers: int, n: int | Sequence[int], dim: int, *, own_balance: bool
) -> Order:
    """Makes the order of m workers whose balance is a running sum, common to all or one each."""
    counts, dim = check_shards(n, n_workers), whole("dim", dim)
    shape, n = (len(counts), dim) if own_balance else (dim,), max(counts)

    def init(key: jax.Array) -> PairState:
        return start(random_orders(key, counts), jnp.zeros(shape, float), dim)

    return gradient_order(
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

    def one(state: PairState, visit: jax.Array, gradients: jax.Array) -> PairState:
        return lowered(observe_pairs(rule, lifted(state), visit[None], gradients[None]))

    return jax.vmap(one)(state, visited, gradients)


@partial(jax.jit, static_argnums=(0, 1))
def _end_epoch(rule: PairRule, counts: tuple[int, ...], state: PairState) -> PairState:
    return end_pairs(rule, state, jnp.asarray(counts, jnp.int32))


def arrival_pairs(rule: PairRule, counts: tuple[int, ...], *, own_balance: bool) -> ArrivalOrder:
    """Makes the side of an order by pairs that learns from workers out of step."""

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
        waiting = jnp.where(seen, jnp.where(waits, gradient, 0), state.waiting_gradient[worker])
        step = jnp.where(seen, jnp.where(waits, visit, -1), state.waiting_step[worker])
        return PairState(
            order=state.order,
            signs=signs,
            waiting_gradient=state.waiting_gradient.at[worker].set(waiting),
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
