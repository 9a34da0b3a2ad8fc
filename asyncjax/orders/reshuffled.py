"""Random orders, whatever the gradients: a new one in every epoch, one for all, or there and back.

    reshuffled        o = permutation(fold_in(key, epoch), n)
    shuffled_once     o = permutation(key, n)
    flip_flop         o = permutation(fold_in(key, k), n) in epoch 2k, o reversed in epoch 2k + 1
    block_reshuffled  blocks of examples in a random order, each shuffled; perhaps there and back
    length_balanced   every batch has one example of each stratum of lengths

Worker j of m folds j into the key once more. Random reshuffling is the baseline of every claim
about orders; with m workers it is distributed random reshuffling. FlipFlop is of Rajput, Lee,
Papailiopoulos 2021 (arXiv 2102.09718): an example visited early in one epoch is visited late in the
next, and part of what the order does to the parameters cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import flag, one_key, shown, whole, within
from asyncjax.orders.kernels.arguments import LARGEST, check_order_shape
from asyncjax.orders.kernels.first_orders import random_order, random_orders
from asyncjax.orders.kernels.shards import check_shards, spread
from asyncjax.orders.order import Order

Draw = Callable[[jax.Array], jax.Array]
Arrange = Callable[[jax.Array, jax.Array], jax.Array]


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
    return blind(init=_first_epoch, permutation=_anew(draw), end_epoch=_next_epoch)


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
    return blind(init=_first_epoch, permutation=_there_and_back(draw), end_epoch=_next_epoch)


def block_reshuffled(
    n: int | Sequence[int], block: int, n_workers: int | None = None, *, paired: bool = False
) -> Order:
    """Visits blocks of neighbouring examples one after the other, each epoch in a random order.

    Block b has the examples b * block .. (b + 1) * block - 1, the last one those that are left. An
    epoch draws an order of the blocks and one inside each. Where every block is like the whole, all
    beginnings of an epoch are, too, more than those of a random order.

    Args:
        n: Number of examples; with workers, of each one, or m numbers, one a worker.
        block: Examples in a block, at least 1; 1, or n and more, is random reshuffling.
        n_workers: Number of workers m; None for one worker without the leading axis.
        paired: Whether every second epoch is the one before it in reverse.

    Returns:
        An `Order` that ignores gradients of any size.

    Raises:
        TypeError: If a number is not a static integer, or `paired` neither True nor False.
        ValueError: If a number is below 1, or `n` has another length than m.

    Note:
        Of the paper only the abstract was to be had, which names block reshuffling and paired
        reversal; that a block is fixed and shuffled inside is this library's reading.

    Example:
        >>> order = block_reshuffled(6, 2, paired=True)
        >>> state = order.init(jax.random.key(0))
        >>> there = order.permutation(state)
        >>> (there // 2).tolist()
        [1, 1, 0, 0, 2, 2]
        >>> bool((order.permutation(order.end_epoch(state)) == there[::-1]).all())
        True

    Reference:
        Nguyen, Phan, Kalagnanam 2026, "Learning to shuffle", arXiv 2604.00260.
    """
    block, paired = whole("block", block, most=LARGEST), flag("paired", paired)
    draw, blind, _ = _drawn(n, n_workers, partial(_blocks, block=block))
    return blind(
        init=_first_epoch,
        permutation=_there_and_back(draw) if paired else _anew(draw),
        end_epoch=_next_epoch,
    )


def length_balanced(lengths: Sequence[float], batch: int) -> Order:
    """Visits examples so that the batches of an epoch have nearly the same total length.

    Sorted by length, the examples are cut into `batch` strata of neighbours; each batch, a run of
    `batch` visits, takes a random one of every stratum, in random sequence. So the total lengths of
    two batches differ by at most that of the longest and the shortest example. Ties are broken
    anew in every epoch: with equal lengths it is random reshuffling.

    Args:
        lengths: Of each example, such as tokens, float[n], positive.
        batch: Examples in a batch, 1 .. n. What n leaves over, drawn at random, comes last.

    Returns:
        An `Order` for one worker that ignores gradients of any size.

    Raises:
        TypeError: If `lengths` is not made of numbers, or `batch` not a static integer.
        ValueError: If a length is not positive and finite, `lengths` is empty or has more than one
            axis, or `batch` is out of range.

    Example:
        >>> order = length_balanced([1, 1, 1, 5, 5, 5], 2)
        >>> visits = order.permutation(order.init(jax.random.key(0)))
        >>> (visits.reshape(3, 2) // 3).sum(axis=1).tolist()  # a long one in each
        [1, 1, 1]
    """
    size = np.asarray(within("lengths", lengths, above=0), np.float64)
    if size.ndim != 1 or not size.size:
        raise ValueError(f"lengths must be one number an example, got shape {size.shape}")
    n = len(size)
    batch = whole("batch", batch, most=n)
    rank = jnp.asarray(np.unique(size, return_inverse=True)[1], jnp.int32)

    def draw(key: jax.Array) -> jax.Array:
        drawn, strata, inside = jax.random.split(key, 3)
        order = random_order(drawn, n)
        over, rest = order[: n % batch], order[n % batch :]
        rest = rest[jnp.argsort(rank[rest], stable=True)].reshape(batch, -1)
        rest = jax.random.permutation(strata, rest, axis=1, independent=True)
        rest = jax.random.permutation(inside, rest, axis=0, independent=True)
        return jnp.concatenate([rest.T.ravel(), over])

    return Order(
        init=_first_epoch,
        permutation=_anew(draw),
        observe=lambda state, positions, gradients: state,
        end_epoch=_next_epoch,
        n=n,
        needs_gradients=False,
    )


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


def _anew(draw: Draw) -> Callable[[ReshuffledState], jax.Array]:
    """An order for every epoch."""

    def permutation(state: ReshuffledState) -> jax.Array:
        _check_drawn(state)
        return draw(jax.random.fold_in(state.key, state.epoch))

    return permutation


def _there_and_back(draw: Draw) -> Callable[[ReshuffledState], jax.Array]:
    """An order for every two epochs, in the second of them reversed."""

    def permutation(state: ReshuffledState) -> jax.Array:
        _check_drawn(state)
        order = draw(jax.random.fold_in(state.key, state.epoch // 2))
        return jnp.where(state.epoch % 2 == 1, _reversed(order), order)

    return permutation


def _blocks(order: jax.Array, key: jax.Array, block: int) -> jax.Array:
    """Brings the examples of a random order together by blocks, these in a random order.

    Example:
        >>> (_blocks(jnp.array([3, 0, -1]), jax.random.key(0), 2) // 2).tolist()
        [0, 1, -1]
    """
    n = len(order)
    rank = jax.random.permutation(key, -(-n // block)).astype(jnp.int32)
    place = jnp.where(order < 0, n, rank[jnp.maximum(order, 0) // block])
    return order[jnp.argsort(place, stable=True)]


def _drawn(
    n: Any, n_workers: int | None, arrange: Arrange | None = None
) -> tuple[Callable[[jax.Array], jax.Array], Callable[..., Order], tuple[int, ...]]:
    """Makes what draws an order from a key, `Order` but for its use, and the shape of an order.

    Every order is then arranged, with the key fold_in(key, m + worker).
    """
    counts = None if n_workers is None else check_shards(n, n_workers)
    size = whole("n", n, most=LARGEST) if counts is None else max(counts)

    def draw(key: jax.Array) -> jax.Array:
        if counts is None:
            order = random_order(key, size)
            return order if arrange is None else arrange(order, jax.random.fold_in(key, 1))
        orders = random_orders(key, counts)
        if arrange is not None:
            workers = len(counts) + jnp.arange(len(counts))
            keys = jax.vmap(lambda worker: jax.random.fold_in(key, worker))(workers)
            orders = jax.vmap(arrange)(orders, keys)
        return spread(orders, counts)

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
