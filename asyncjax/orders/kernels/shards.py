"""Shards of unequal size: when each worker visits an example.

    worker j visits its example number i = 0 .. n_j - 1 at step floor((2 i + 1) n / (2 n_j))
    n = max_j n_j

An epoch has as many steps as the largest shard has examples. Smaller shards are spread evenly over
it, and their worker is idle at the other steps. So every part of an epoch holds the same share of
each shard, which is what lets one sum balance all of them: were the idle steps at the end of the
epoch, coordinated workers would order no better than independent ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import shown, whole
from asyncjax.orders.kernels.arguments import LARGEST


def check_shards(n: Any, n_workers: Any) -> tuple[int, ...]:
    """Returns the number of examples of every worker, from one number for all or one for each.

    Example:
        >>> check_shards(4, 3), check_shards([4, 2, 5], 3)
        ((4, 4, 4), (4, 2, 5))
    """
    n_workers = whole("n_workers", n_workers, most=LARGEST)
    if np.ndim(n) == 0 or isinstance(n, Mapping | str):  # pairs are sorted by step and worker
        return (whole("n", n, most=LARGEST // n_workers),) * n_workers
    if np.ndim(n) != 1:
        raise TypeError(
            f"n must be one integer or one for each of {n_workers} workers, got {shown(n)}"
        )
    counts = tuple(whole(f"n[{j}]", count, most=LARGEST // n_workers) for j, count in enumerate(n))
    if len(counts) != n_workers:
        raise ValueError(
            f"n must be one integer or one for each of {n_workers} workers, got {len(counts)}"
        )
    return counts


def visit_numbers(counts: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Numbers the visits of each worker.

    Returns int32[m, n]: how many examples the worker visited before this step; -1 where it is idle.

    Example:
        >>> visit_numbers((4, 2)).tolist()
        [[0, 1, 2, 3], [-1, 0, -1, 1]]
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

    Example:
        >>> spread(jnp.array([[3, 2, 1, 0], [1, 0, -1, -1]]), (4, 2)).tolist()
        [[3, 2, 1, 0], [-1, 1, -1, 0]]
    """
    if min(counts) == max(counts):
        return orders
    numbers = visit_numbers(counts)
    return jnp.where(numbers < 0, -1, jnp.take_along_axis(orders, jnp.maximum(numbers, 0), axis=1))


def visits(positions: jax.Array, counts: tuple[int, ...]) -> jax.Array:
    """Turns steps of the epoch to visits of each worker.

    `positions` int32[B]; returns int32[m, B], outside 0 .. n-1 where a worker is idle
    and at padding.

    Example:
        >>> visits(jnp.array([2, 3, 4]), (4, 2)).tolist()
        [[2, 3, -1], [-1, 1, -1]]
    """
    n = max(counts)
    if min(counts) == n:
        return jnp.broadcast_to(positions, (len(counts), *positions.shape))
    is_step = (positions >= 0) & (positions < n)
    return jnp.where(is_step, jnp.asarray(visit_numbers(counts))[:, positions % n], -1)
