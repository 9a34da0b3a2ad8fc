"""Units in an order: how many an order visits, and whether it fits a problem.

What a unit of a problem is, `problems.units` knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.orders import Order, ProjectedOrder
from asyncjax.problems import Problem
from asyncjax.problems.units import check_unit_counts, in_fixed_units


@dataclass(frozen=True)
class OrderShape:
    """How many units an order visits."""

    counts: tuple[int, ...]  # of each of m workers
    n: int  # steps of an epoch, one unit each: n units of the worker that has most
    single: bool  # permutations are [n], not [m, n]

    @property
    def n_workers(self) -> int:
        """Number of workers m."""
        return len(self.counts)


def plain_order(order: Order | ProjectedOrder) -> Order:
    """The four functions of an order.

    Example:
        >>> from asyncjax import orders
        >>> projected = orders.pair_balanced_by_projection(4, np.zeros(2))
        >>> plain_order(projected) is projected.order
        True
    """
    return order.order if isinstance(order, ProjectedOrder) else order


def order_shape(order: Order) -> OrderShape:
    """Finds the sizes of an order; nothing is computed.

    Example:
        >>> from asyncjax import orders
        >>> order_shape(orders.reshuffled([3, 4], n_workers=2))
        OrderShape(counts=(3, 4), n=4, single=False)
    """
    if not isinstance(order, Order):
        hint = (
            " (one by projections is for run_epochs)" if isinstance(order, ProjectedOrder) else ""
        )
        kind = type(order).__name__ if hint else repr(order)
        raise TypeError(f"order must be an Order, as its factories make it{hint}, got {kind}")
    key = jax.eval_shape(jax.random.key, 0)
    shape = jax.eval_shape(lambda key: order.permutation(order.init(key)), key).shape
    if len(shape) not in (1, 2) or 0 in shape:
        raise ValueError(f"order must have a permutation of shape [n] or [m, n], got {shape}")
    single, n = len(shape) == 1, shape[-1]
    n_workers = 1 if single else shape[0]
    counts = (n,) * n_workers if order.counts is None else tuple(order.counts)
    if len(counts) != n_workers or max(counts) != n:
        raise ValueError(
            f"order must have counts of {n_workers} workers, at most {n}, as its permutation has,"
            f" got {counts}"
        )
    return OrderShape(counts, n, single)


def check_visits(order: Order, shape: OrderShape) -> None:
    """Refuses an order of one's own that visits units that are not there, in its first two epochs.

    Example:
        >>> from dataclasses import replace
        >>> from asyncjax import orders
        >>> order = replace(orders.reshuffled(3), permutation=lambda state: np.array([0, 3, 1]))
        >>> check_visits(order, order_shape(order))
        Traceback (most recent call last):
        ...
        ValueError: order must visit units of 0 .. 2 of worker 0, or -1 for none, got 3 at step 1
    """
    functions = (order.init, order.permutation, order.end_epoch)
    if all(getattr(one, "__module__", "").startswith("asyncjax.orders.") for one in functions):
        return
    with jax.ensure_compile_time_eval():
        first = order.init(jax.random.key(0))
        for state in (first, order.end_epoch(first)):
            visits = np.asarray(permutations(order, shape, state))
            bad = np.argwhere((visits < -1) | (visits >= np.array(shape.counts)[:, None]))
            if len(bad):
                worker, step = bad[0]
                raise ValueError(
                    f"order must visit units of 0 .. {shape.counts[worker] - 1} of worker"
                    f" {worker}, or -1 for none, got {visits[worker, step]} at step {step}"
                )


def in_units(problem: Problem, order: Order, n_workers: int) -> tuple[Problem, OrderShape]:
    """Fits a problem and an order together.

    Example:
        >>> import numpy as np
        >>> from asyncjax import orders, problems
        >>> problem = problems.least_squares(np.ones((6, 2)), np.ones(6), n_workers=1)
        >>> in_units(problem, orders.reshuffled(7), 1)
        Traceback (most recent call last):
        ValueError: order visits 7 units of worker 0, but its shard has 6 rows: 6 units of 1 row
    """
    shape = order_shape(order)
    if shape.n_workers != n_workers:
        raise ValueError(
            f"n_workers must be {shape.n_workers}, the workers of the order, got {n_workers}"
        )
    if problem.n_workers not in (None, n_workers):
        raise ValueError(
            f"n_workers must be {problem.n_workers}, the shards of the problem, got {n_workers}"
        )
    check_visits(order, shape)
    dim = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(problem.params))
    if order.dim not in (None, dim):
        raise ValueError(
            f"order must be made for dim={dim}, the parameters of the problem, got {order.dim}"
        )
    problem = in_fixed_units(problem)
    check_unit_counts(problem, shape.counts)
    return problem, shape


def permutations(order: Order, shape: OrderShape, state: Any) -> jax.Array:
    """The permutation of an order's state with the axis of workers, int32[m, n]."""
    visits = jnp.asarray(order.permutation(state), jnp.int32)
    return visits[None] if shape.single else visits


def busy_steps(order: Order, shape: OrderShape, batch: int) -> int:
    """Counts the steps of an epoch in which a worker has a unit, over all workers.

    Example:
        >>> from asyncjax import orders
        >>> order = orders.reshuffled([4, 1], n_workers=2)
        >>> busy_steps(order, order_shape(order), 1), busy_steps(order, order_shape(order), 2)
        (5, 3)
    """
    if batch == 1:
        return sum(shape.counts)
    starts = np.arange(0, shape.n, batch)
    if min(shape.counts) == shape.n:
        return shape.n_workers * len(starts)
    with jax.ensure_compile_time_eval():
        visits = np.asarray(permutations(order, shape, order.init(jax.random.key(0))))
    return int(np.sum(np.logical_or.reduceat(visits >= 0, starts, axis=1)))
