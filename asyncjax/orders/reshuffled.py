"""Random orders, whatever the gradients: a new one in every epoch, one for all, or there and back.

    reshuffled       o = permutation(fold_in(key, epoch), n)
    shuffled_once    o = permutation(key, n)
    flip_flop        o = permutation(fold_in(key, k), n) in epoch 2k, o reversed in epoch 2k + 1

Worker j of m folds j into the key once more. Random reshuffling is the baseline of every claim
about orders; with m workers it is distributed random reshuffling. FlipFlop is of Rajput, Lee,
Papailiopoulos 2021 (arXiv 2102.09718): an example visited early in one epoch is visited late in the
next, and part of what the order does to the parameters cancels.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import one_key, shown, whole
from asyncjax.orders.kernels.arguments import LARGEST, check_order_shape
from asyncjax.orders.kernels.first_orders import random_order, random_orders
from asyncjax.orders.kernels.shards import check_shards, spread
from asyncjax.orders.order import Order


class ReshuffledState(NamedTuple):
    """State of `reshuffled` and `flip_flop`: they draw from a key that `end_epoch` is not given."""

    key: jax.Array  # key[], the one of init
    epoch: jax.Array  # int32[], epochs ended


def reshuffled(n: int | Sequence[int], n_workers: int | None = None) -> Order:
    """Visits the examples of every epoch in a new random order.

    Args:
        n: Number of examples; with workers, of each one, or m numbers, one a worker.
        n_workers: Number of workers m; None for one worker without the leading axis.

    Returns:
        An `Order` that ignores gradients of any size.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is below 1, or `n` has another length than m.

    Example:
        >>> order = reshuffled(8)
        >>> state = order.init(jax.random.key(0))
        >>> sorted(order.permutation(order.end_epoch(state)).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7]
    """
    draw, blind, _ = _drawn(n, n_workers)

    def permutation(state: ReshuffledState) -> jax.Array:
        _check_drawn(state)
        return draw(jax.random.fold_in(state.key, state.epoch))

    return blind(init=_first_epoch, permutation=permutation, end_epoch=_next_epoch)


def shuffled_once(n: int | Sequence[int], n_workers: int | None = None) -> Order:
    """Visits the examples of all epochs in one random order.

    Args:
        n: Number of examples; with workers, of each one, or m numbers, one a worker.
        n_workers: Number of workers m; None for one worker without the leading axis.

    Returns:
        An `Order` that ignores gradients of any size; its state is the order itself.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is below 1, or `n` has another length than m.

    Example:
        >>> order = shuffled_once(8)
        >>> state = order.init(jax.random.key(0))
        >>> bool((order.permutation(order.end_epoch(state)) == order.permutation(state)).all())
        True
    """
    draw, blind, shape = _drawn(n, n_workers)

    def same(state: Any) -> jax.Array:
        check_order_shape(state, shape)
        return state

    return blind(init=lambda key: draw(one_key("key", key)), permutation=same, end_epoch=same)


def flip_flop(n: int | Sequence[int], n_workers: int | None = None) -> Order:
    """Visits the examples in a random order and in the next epoch in its reverse.

    Args:
        n: Number of examples; with workers, of each one, or m numbers, one a worker.
        n_workers: Number of workers m; None for one worker without the leading axis.

    Returns:
        An `Order` that ignores gradients of any size.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is below 1, or `n` has another length than m.

    Example:
        >>> order = flip_flop(8)
        >>> state = order.init(jax.random.key(0))
        >>> there = order.permutation(state)
        >>> bool((order.permutation(order.end_epoch(state)) == there[::-1]).all())
        True

    Reference:
        Rajput, Lee, Papailiopoulos 2021, "Permutation-Based SGD: Is Random Optimal?", arXiv
        2102.09718.
    """
    draw, blind, _ = _drawn(n, n_workers)

    def permutation(state: ReshuffledState) -> jax.Array:
        _check_drawn(state)
        order = draw(jax.random.fold_in(state.key, state.epoch // 2))
        return jnp.where(state.epoch % 2 == 1, _reversed(order), order)

    return blind(init=_first_epoch, permutation=permutation, end_epoch=_next_epoch)


def _first_epoch(key: jax.Array) -> ReshuffledState:
    return ReshuffledState(jax.random.clone(one_key("key", key)), jnp.zeros((), jnp.int32))


def _check_drawn(state: Any) -> None:
    if not isinstance(state, ReshuffledState):
        raise TypeError(
            f"state must be a ReshuffledState, as init of this order makes it, got {shown(state)}"
        )


def _next_epoch(state: ReshuffledState) -> ReshuffledState:
    _check_drawn(state)
    return state._replace(epoch=state.epoch + 1)


def _drawn(
    n: Any, n_workers: int | None
) -> tuple[Callable[[jax.Array], jax.Array], Callable[..., Order], tuple[int, ...]]:
    """Makes what draws an order from a key, `Order` but for its use, and the shape of an order."""
    counts = None if n_workers is None else check_shards(n, n_workers)
    size = whole("n", n, most=LARGEST) if counts is None else max(counts)

    def draw(key: jax.Array) -> jax.Array:
        if counts is None:
            return random_order(key, size)
        return spread(random_orders(key, counts), counts)

    blind = partial(
        Order,
        observe=lambda state, positions, gradients: state,
        n=size,
        n_workers=n_workers,
        counts=counts,
        needs_gradients=False,
    )
    return draw, blind, (size,) if counts is None else (len(counts), size)


def _reversed(order: jax.Array) -> jax.Array:
    """Reverses each row; where a worker is idle, -1 stays."""
    busy = order >= 0
    visit = jnp.cumsum(busy, axis=-1, dtype=jnp.int32) - 1
    in_sequence = jnp.argsort(~busy, axis=-1, stable=True)
    from_visit = jnp.sum(busy, axis=-1, keepdims=True, dtype=jnp.int32) - 1 - visit
    from_step = jnp.take_along_axis(in_sequence, jnp.where(busy, from_visit, 0), axis=-1)
    return jnp.where(busy, jnp.take_along_axis(order, from_step, axis=-1), -1)
