"""Orders that ignore gradients: random ones, and a fixed one for vectors known beforehand.

    reshuffled        o = permutation(fold_in(key, epoch), n)
    shuffled_once     o = permutation(key, n)
    flip_flop         o = permutation(fold_in(key, k), n) in epoch 2k, o reversed in epoch 2k + 1
    block_reshuffled  blocks of examples in a random order, each shuffled; perhaps there and back
    length_balanced   every batch has one example of each stratum of lengths
    herded            next = argmin over the unused i of | sum so far + (v_i - mean) |

Worker j of m folds j into the key once more. Random reshuffling is the baseline of every claim
about orders; with m workers it is distributed random reshuffling. FlipFlop is of Rajput, Lee,
Papailiopoulos 2021 (arXiv 2102.09718): an example visited early in one epoch is visited late in the
next, and part of what the order does to the parameters cancels. Greedy herding (Welling 2009; the
offline method that GraB, arXiv 2205.10733, replaces) is O(n^2 d) work, once, with all n vectors in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import one_key, whole, within
from asyncjax.orders.kernels import copied
from asyncjax.orders.order import LARGEST, Order, check_shards, random_order, random_orders, spread

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

    Example:
        >>> order = reshuffled(8)
        >>> state = order.init(jax.random.key(0))
        >>> sorted(order.permutation(order.end_epoch(state)).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7]
    """
    draw, sizes = _drawn(n, n_workers)
    return _redrawn(draw, **sizes)


def shuffled_once(n: int | Sequence[int], n_workers: int | None = None) -> Order:
    """Visits the examples of all epochs in one random order.

    Args:
        n, n_workers: As in `reshuffled`.

    Returns:
        An `Order` that ignores gradients of any size; its state is the order itself.

    Example:
        >>> order = shuffled_once(8)
        >>> state = order.init(jax.random.key(0))
        >>> bool((order.permutation(order.end_epoch(state)) == order.permutation(state)).all())
        True
    """
    draw, sizes = _drawn(n, n_workers)
    return _same(lambda key: draw(one_key("key", key)), **sizes)


def flip_flop(n: int | Sequence[int], n_workers: int | None = None) -> Order:
    """Visits the examples in a random order and in the next epoch in its reverse.

    Args:
        n, n_workers: As in `reshuffled`.

    Returns:
        An `Order` that ignores gradients of any size.

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
    draw, sizes = _drawn(n, n_workers)
    return _redrawn(draw, there_and_back=True, **sizes)


def block_reshuffled(
    n: int | Sequence[int], block: int, n_workers: int | None = None, *, paired: bool = False
) -> Order:
    """Visits blocks of neighbouring examples one after the other, each epoch in a random order.

    Block b has the examples b * block .. (b + 1) * block - 1, the last one those that are left. An
    epoch draws an order of the blocks and one inside each. Where every block is like the whole, all
    beginnings of an epoch are, too, more than those of a random order.

    Args:
        n, n_workers: As in `reshuffled`.
        block: Examples in a block, at least 1; 1, or n and more, is random reshuffling.
        paired: Whether every second epoch is the one before it in reverse.

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
    block = whole("block", block, most=LARGEST)
    draw, sizes = _drawn(n, n_workers, partial(_blocks, block=block))
    return _redrawn(draw, there_and_back=paired, **sizes)


def length_balanced(lengths: Sequence[float], batch: int) -> Order:
    """Visits examples so that the batches of an epoch have nearly the same total length.

    Sorted by length, the examples are cut into `batch` strata of neighbours; each batch, a run of
    `batch` visits, takes a random one of every stratum, in random sequence. So the total lengths of
    two batches differ by at most that of the longest and the shortest example. Ties are broken
    anew in every epoch: with equal lengths it is random reshuffling.

    Args:
        lengths: Of each example, such as tokens, float[n], positive.
        batch: Examples in a batch, 1 .. n. What n leaves over, drawn at random, comes last.

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

    return _redrawn(draw, n=n)


def herded(vectors: jax.typing.ArrayLike) -> Order:
    """Visits the examples in the greedy order of known vectors, in every epoch.

    At each step the unused example that makes the centred prefix sum shortest; ties: the lowest
    index.

    Args:
        vectors: float[n, d], a vector for each example, such as its gradient at one point.

    Returns:
        An `Order` that ignores the key and the gradients; its state is the order itself.

    Example:
        >>> order = herded(jnp.array([[1.0], [2.0], [-2.0], [-1.0]]))
        >>> order.permutation(order.init(jax.random.key(0))).tolist()
        [0, 3, 1, 2]
    """
    vectors = copied(within("vectors", vectors))
    if vectors.ndim != 2 or not len(vectors):
        raise ValueError(
            f"vectors must have shape [n, d] and at least one row, got {vectors.shape}"
        )
    vectors = vectors.astype(jnp.promote_types(vectors.dtype, jnp.float32))
    if not isinstance(vectors, Tracer):
        length = np.linalg.norm(np.asarray(vectors, np.float64), axis=1).max()
        most = np.sqrt(np.finfo(vectors.dtype).max) / 4
        if length > most:
            raise ValueError(
                f"vectors must have rows of length at most {most:.3g}, whose squares"
                f" {vectors.dtype} holds once they are centred, got {length:.3g}"
            )
    order = _herd(vectors)
    return _same(lambda key: jnp.array(order, copy=True), n=len(order))  # it may be donated


@jax.jit
def _herd(vectors: jax.Array) -> jax.Array:
    n = vectors.shape[0]
    highest = jax.lax.Precision.HIGHEST
    mean = jnp.matmul(jnp.full(n, 1 / n, vectors.dtype), vectors, precision=highest)
    centred = vectors - mean
    squares = jnp.sum(centred**2, axis=1)
    largest = jnp.finfo(vectors.dtype).max

    def choose(
        carry: tuple[jax.Array, jax.Array], _: None
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        prefix, used = carry
        # |p + v|^2 - |p|^2
        growth = 2 * jnp.matmul(centred, prefix, precision=highest) + squares
        growth = jnp.minimum(growth, largest)  # an infinite one is still before those used
        chosen = jnp.argmin(jnp.where(used, jnp.inf, growth)).astype(jnp.int32)
        return (prefix + centred[chosen], used.at[chosen].set(True)), chosen

    start = (jnp.zeros_like(mean), jnp.zeros(n, bool))
    return jax.lax.scan(choose, start, None, length=n)[1]


def _redrawn(draw: Draw, *, there_and_back: bool = False, **sizes: Any) -> Order:
    """An order for every epoch; or one for every two, in the second of them reversed."""

    def init(key: jax.Array) -> ReshuffledState:
        return ReshuffledState(jax.random.clone(one_key("key", key)), jnp.zeros((), jnp.int32))

    def permutation(state: ReshuffledState) -> jax.Array:
        if not there_and_back:
            return draw(jax.random.fold_in(state.key, state.epoch))
        order = draw(jax.random.fold_in(state.key, state.epoch // 2))
        return jnp.where(state.epoch % 2 == 1, _reversed(order), order)

    def observe(state: Any, positions: Any, gradients: Any) -> Any:
        return state

    def end_epoch(state: ReshuffledState) -> ReshuffledState:
        return state._replace(epoch=state.epoch + 1)

    return Order(init, permutation, observe, end_epoch, needs_gradients=False, **sizes)


def _same(init: Draw, **sizes: Any) -> Order:
    """One order for all epochs, which is the state."""

    def same(state: jax.Array) -> jax.Array:
        return state

    def observe(state: jax.Array, positions: Any, gradients: Any) -> jax.Array:
        return state

    return Order(init, same, observe, same, needs_gradients=False, **sizes)


def _blocks(order: jax.Array, key: jax.Array, block: int) -> jax.Array:
    """Brings the examples of a random order together by blocks, these in a random order."""
    n = len(order)
    rank = jax.random.permutation(key, -(-n // block)).astype(jnp.int32)
    place = jnp.where(order < 0, n, rank[jnp.maximum(order, 0) // block])
    return order[jnp.argsort(place, stable=True)]


def _drawn(
    n: Any, n_workers: int | None, arrange: Arrange | None = None
) -> tuple[Draw, dict[str, Any]]:
    """Makes what draws an order from a key, and the sizes of an `Order`.

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

    return draw, {"n": size, "n_workers": n_workers, "counts": counts}


def _reversed(order: jax.Array) -> jax.Array:
    """Reverses each row; where a worker is idle, -1 stays."""
    busy = order >= 0
    visit = jnp.cumsum(busy, axis=-1, dtype=jnp.int32) - 1
    in_sequence = jnp.argsort(~busy, axis=-1, stable=True)
    from_visit = jnp.sum(busy, axis=-1, keepdims=True, dtype=jnp.int32) - 1 - visit
    from_step = jnp.take_along_axis(in_sequence, jnp.where(busy, from_visit, 0), axis=-1)
    return jnp.where(busy, jnp.take_along_axis(order, from_step, axis=-1), -1)
