"""Random orders, of one worker or of shards of unequal size, and when a worker visits an example.

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

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import whole

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
        own = order < count
        own_first = jnp.argsort(~own, stable=True)
        return jnp.where(own, order, -1)[own_first]

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
