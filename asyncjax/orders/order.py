"""An example order: which example is visited at which step of an epoch.

    state = init(key)                                 before the first epoch
    o = permutation(state)                            of this epoch
    state = observe(state, steps, gradients)          as often as there are batches
    state = end_epoch(state)

Four pure functions. An order may look at the gradients of an epoch and choose the next one.

`gradient_order` is the door of orders that learn: what they are handed is checked there, once. Of
a traced array only the shape is known. NumPy arrays are copied, so that a buffer may be used again.

Random orders, of one worker or of shards of unequal size, and when a worker visits an example:

    o = permutation(key, n)          worker j: the key is fold_in(key, j)

    worker j visits its example number i = 0 .. n_j - 1 at step floor((2 i + 1) n / (2 n_j))
    n = max_j n_j

A random order is the first of every method, and every one of random reshuffling. Workers with fewer
examples than others have -1 behind their own last example.

An epoch has as many steps as the largest shard has examples. Smaller shards are spread evenly over
it, and their worker is idle at the other steps. So every part of an epoch holds the same share of
each shard, which is what lets one sum balance all of them: were the idle steps at the end of the
epoch, coordinated workers would order no better than independent ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import one_key, whole, within
from asyncjax.orders.kernels import copied


@dataclass(frozen=True)
class ArrivalOrder:
    """How m workers learn an order when they are not in step: every worker has epochs of its own.

    Attributes:
        visits: State -> int32[m, n], the examples of each worker in its present sequence; the first
            counts[j] entries of row j are its examples.
        observe: (state, worker int[], visit int[], gradient float[d]) -> state. The gradient of the
            worker's visit number 0 .. counts[j]-1 of its present epoch; each worker's visits come
            in increasing sequence, with gaps where a gradient was lost; a visit of -1 changes
            nothing.
        end_epoch: (state, worker int[], is_last bool[]) -> state. This worker turns to its next
            epoch; `is_last` says that all others have left the epoch before.
    """

    visits: Callable[[Any], jax.Array]
    observe: Callable[[Any, Any, Any, Any], Any]
    end_epoch: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Order:
    """Pure functions of an example order, and what is known of it before it runs.

    An epoch has n steps; a unit of data (an example or a microbatch) is visited at each.

    All leaves of a state are jax arrays with fixed shapes and dtypes, so that it goes through
    `jit`, `scan`, `vmap` over keys and donation, and can be saved and restored at any step.

    The orders of this room copy NumPy arrays before they look at them, so that a buffer may be used
    again at once. In a `jit` of one's own the program may read the buffer until it has finished.

    The first four fields make an order of one's own; the rest has defaults. `testing.check_order`
    says whether it keeps the contract.

    Attributes:
        init: `(key) -> state`, before the first epoch; the key is typed (`jax.random.key`).
        permutation: `(state) -> int32[n]`: entry t is the example of step t. With m workers
            int32[m, n], each row in local indices of its worker. It stays as it is within an epoch.
        observe: `(state, positions, gradients) -> state`, tells the order the gradients
            float[B, d] (m workers: [m, B, d]) of the steps int32[B] of this epoch. Steps come in
            increasing sequence without gaps, in batches of any size; where the epoch is cut changes
            nothing. A row whose step lies outside 0 .. n-1 is padding: it is ignored, even if it is
            NaN. The orders of this room refuse NaN and infinity in other rows, and steps out of
            sequence, unless they are traced: traced, signs are what comparisons with NaN make of
            them, and the order stays a permutation.
        end_epoch: `(state) -> state`, turns to the next epoch.
        n: Steps of an epoch: examples (of the worker that has most); None if not known.
        n_workers: Number of workers m; None for an order of one worker without the leading axis.
        counts: With m workers, the examples of each. A worker with fewer than n is idle at n -
            counts[j] steps of the epoch: there `permutation` is -1, and its gradients are ignored.
        dim: Length d of the gradients that `observe` takes; None if it ignores them.
        needs_gradients: False if `observe` may be left out, or be given None for the gradients; a
            training loop then has no need of one gradient per example.
        on_arrival: How it learns in an asynchronous run; None if only from workers in step.

    Example:
        Always backwards:

        >>> import jax.numpy as jnp
        >>> backwards = Order(
        ...     init=lambda key: jnp.arange(4, dtype=jnp.int32)[::-1],
        ...     permutation=lambda state: state,
        ...     observe=lambda state, positions, gradients: state,
        ...     end_epoch=lambda state: state,
        ... )
        >>> backwards.permutation(backwards.init(jax.random.key(0))).tolist()
        [3, 2, 1, 0]
    """

    init: Callable[[jax.Array], Any]
    permutation: Callable[[Any], jax.Array]
    observe: Callable[[Any, Any, Any], Any]
    end_epoch: Callable[[Any], Any]
    n: int | None = None
    n_workers: int | None = None
    counts: tuple[int, ...] | None = None
    dim: int | None = None
    needs_gradients: bool = True
    on_arrival: ArrivalOrder | None = None

    def __post_init__(self) -> None:
        for name in ("n", "n_workers", "dim"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        if self.counts is None:
            return
        if len(self.counts) != self.n_workers or self.n not in (None, max(self.counts)):
            raise ValueError(
                f"counts must be of n_workers = {self.n_workers} workers, with n = {self.n} as the"
                f" largest, got {self.counts}"
            )


def gradient_order(
    init: Callable[[jax.Array], Any],
    observe: Callable[[Any, jax.Array, jax.Array], Any],
    end_epoch: Callable[[Any], Any],
    *,
    n: int,
    dim: int,
    counts: tuple[int, ...] | None = None,
    needs_gradients: bool = True,
    on_arrival: ArrivalOrder | None = None,
) -> Order:
    """Makes the order of a state in whose field `order` are the examples of a worker."""

    def begin(key: jax.Array) -> Any:
        return init(one_key("key", key))

    def permutation(state: Any) -> jax.Array:
        return state.order if counts is None else spread(state.order, counts)

    def learn(state: Any, positions: Any, gradients: Any) -> Any:
        if gradients is None and not needs_gradients:
            return state
        steps = read_positions(positions, n)
        return observe(state, steps, _read_gradients(gradients, steps, n, dim, counts))

    def turn(state: Any) -> Any:
        return end_epoch(state)

    return Order(
        begin,
        permutation,
        learn,
        turn,
        n=n,
        n_workers=None if counts is None else len(counts),
        counts=counts,
        dim=dim,
        needs_gradients=needs_gradients,
        on_arrival=on_arrival,
    )


def read_positions(positions: Any, n: int) -> jax.Array:
    """Reads the steps int32[B] that are observed; those outside 0 .. n-1 are padding."""
    given = within("positions", positions, integer=True)
    if np.ndim(given) != 1 or not np.size(given):
        raise ValueError(f"positions must be a vector of B >= 1 steps, got shape {np.shape(given)}")
    if not isinstance(given, Tracer):
        given = np.asarray(given)
        given = np.where((given >= 0) & (given < n), given, -1).astype(np.int32)
        steps = given[given >= 0]
        if (torn := np.diff(steps) != 1).any():
            at = int(np.argmax(torn))
            raise ValueError(
                "positions must be steps of the epoch one after the other, got"
                f" {steps[at + 1]} after {steps[at]}"
            )
    return copied(given).astype(jnp.int32)


def _read_gradients(
    gradients: Any, steps: jax.Array, n: int, dim: int, counts: tuple[int, ...] | None
) -> jax.Array:
    """Reads real[B, dim], or [n_workers, B, dim]; rows of padding and of idle workers may be NaN.

    A gradient that is NaN or infinite would decide all signs that follow it in its epoch.
    """
    rows = copied(gradients)
    wanted, words = (steps.shape[0], dim), "[B, dim]"
    if counts is not None:
        wanted, words = (len(counts), *wanted), "[n_workers, B, dim]"
    if rows.shape != wanted:
        raise ValueError(f"gradients must have shape {words} = {wanted}, got {rows.shape}")
    if isinstance(steps, Tracer) or isinstance(rows, Tracer):
        return rows
    there = np.asarray(steps)
    counted = (there >= 0) & (there < n)
    if counts is not None:
        counted = counted & (visit_numbers(counts)[:, there % n] >= 0)
    within("gradients", np.where(counted[..., None], np.asarray(rows), 0))
    return rows


LARGEST = 2**31 - 1  # of int32, in which examples and steps are counted


@partial(jax.jit, static_argnames="n")
def random_order(key: jax.Array, n: int) -> jax.Array:
    """Draws an order int32[n] uniformly: `jax.random.permutation(key, n)`."""
    return jax.random.permutation(key, jnp.arange(n, dtype=jnp.int32))


@partial(jax.jit, static_argnames="counts")
def random_orders(key: jax.Array, counts: tuple[int, ...]) -> jax.Array:
    """Draws an order for each worker, independently.

    Returns int32[m, n] with n the largest count; -1 from entry `counts[j]` on.
    """
    n = max(counts)
    workers = jnp.arange(len(counts), dtype=jnp.int32)

    def draw(worker: jax.Array, count: jax.Array) -> jax.Array:
        order = random_order(jax.random.fold_in(key, worker), n)
        valid = order < count
        own_first = jnp.argsort(~valid, stable=True)
        return jnp.where(valid, order, -1)[own_first]

    return jax.vmap(draw)(workers, jnp.asarray(counts, jnp.int32))


def check_shards(n: Any, n_workers: Any) -> tuple[int, ...]:
    """Returns the number of examples of every worker, from one number for all or one for each."""
    n_workers = whole("n_workers", n_workers, most=LARGEST)
    most = LARGEST // n_workers  # pairs are sorted by step and worker
    if np.ndim(n) == 0:
        return (whole("n", n, most=most),) * n_workers
    if len(n) != n_workers:
        raise ValueError(
            f"n must be one integer or one for each of {n_workers} workers, got {len(n)}"
        )
    return tuple(whole(f"n[{j}]", count, most=most) for j, count in enumerate(n))


def visit_numbers(counts: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Numbers the visits of each worker.

    Returns int32[m, n]: how many examples the worker visited before this step; -1 where it is idle.
    """
    n = max(counts)
    numbers = np.full((len(counts), n), -1, np.int32)
    for worker, count in enumerate(counts):
        visit = np.arange(count)
        numbers[worker, (2 * visit + 1) * n // (2 * count)] = visit
    return numbers


def spread(orders: jax.Array, counts: tuple[int, ...]) -> jax.Array:
    """Spreads the order of each worker over the steps of an epoch.

    `orders` int32[m, n]; returns int32[m, n], by step; -1 where the worker is idle.
    """
    if min(counts) == max(counts):
        return orders
    numbers = visit_numbers(counts)
    return jnp.where(numbers < 0, -1, jnp.take_along_axis(orders, jnp.maximum(numbers, 0), axis=1))


def visits(positions: jax.Array, counts: tuple[int, ...]) -> jax.Array:
    """Turns steps of the epoch to visits of each worker.

    `positions` int32[B]; returns int32[m, B], outside 0 .. n-1 where a worker is idle
    and at padding.
    """
    n = max(counts)
    if min(counts) == n:
        return jnp.broadcast_to(positions, (len(counts), *positions.shape))
    is_step = (positions >= 0) & (positions < n)
    return jnp.where(is_step, jnp.asarray(visit_numbers(counts))[:, positions % n], -1)
