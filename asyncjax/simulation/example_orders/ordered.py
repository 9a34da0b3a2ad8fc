"""Ordered jobs: an asynchronous run in which every worker goes through its own units in an order.

    job q of worker j takes unit o_e[j, q mod n_j] in epoch e = q // n_j of that worker

(idle steps left out)

Workers turn to their next epoch each at its own time; orders that ignore gradients are known
beforehand, so this is a table that stands in front of any problem. For orders that learn see
`learned_visits`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.orders import Order
from asyncjax.problems import Problem
from asyncjax.problems.units import in_front
from asyncjax.simulation.example_orders.units import OrderShape, in_units, order_shape, permutations
from asyncjax.simulation.waves import ceil_to_grid
from asyncjax.traces import EventTrace
from asyncjax.traces.event_trace import worker_count


@dataclass(frozen=True)
class _OfUnit:
    """The gradient of the unit that a job takes."""

    gradient_of: Callable[..., Any]

    def __call__(
        self, data: Any, params: Any, worker: Any, job: Any, key: jax.Array, *state: Any
    ) -> Any:
        inner, units = data
        return self.gradient_of(inner, params, worker, units[worker, job], key, *state)


def ordered(problem: Problem, order: Order, trace: EventTrace, key: jax.Array) -> Problem:
    """Returns the problem whose jobs take the units of each worker in its own order.

    Args:
        problem: What is optimised; its job u is unit u, as in `run_epochs`.
        order: An order that ignores gradients; its state is `order.init(key)`.
        trace: Says how many jobs each worker starts.
        key: Typed key.

    Returns:
        A problem for this trace, with the same model, objective and metrics; it holds an integer
        for every job.

    Note:
        A job that the trace throws away or cancels has used up its unit.

    Raises:
        ValueError: The order looks at gradients, or does not fit the trace or the problem (as in
            `run_epochs`).

    Example:
        >>> import numpy as np
        >>> from asyncjax import clocks, orders, problems, traces
        >>> problem = problems.least_squares(np.ones((4, 2)), np.arange(4.0), n_workers=2)
        >>> trace = traces.asynchronous(clocks.constant([1.0, 3.0]), n_updates=9)
        >>> order = orders.reshuffled(2, n_workers=2)
        >>> sorted(ordered(problem, order, trace, jax.random.key(0)).data[1][0, :2].tolist())
        [0, 1]
    """
    problem, shape = fitted(problem, order, trace)
    if order.needs_gradients:
        raise ValueError("order must ignore gradients here; `replay` takes one that learns")
    n_jobs = ceil_to_grid(int(np.max(trace.job)) + 1)
    units = _units(order, shape, n_jobs, key)
    return in_front(problem, units, _OfUnit(problem.gradient_of))


def fitted(problem: Problem, order: Order, trace: EventTrace) -> tuple[Problem, OrderShape]:
    """Fits a problem, an order and a trace together.

    Example:
        >>> import numpy as np
        >>> from asyncjax import clocks, orders, problems, traces
        >>> problem = problems.least_squares(np.ones((2, 2)), np.ones(2), n_workers=1)
        >>> trace = traces.asynchronous(clocks.constant([1.0, 3.0]), n_updates=9)
        >>> fitted(problem, orders.reshuffled(2), trace)
        Traceback (most recent call last):
        ValueError: order must have at least 2 workers, those of the trace, got 1
    """
    shape, workers = order_shape(order), worker_count(trace)
    if workers > shape.n_workers:
        raise ValueError(
            f"order must have at least {workers} workers, those of the trace, got {shape.n_workers}"
        )
    return in_units(problem, order, shape.n_workers)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _units(order: Order, shape: OrderShape, n_jobs: int, key: jax.Array) -> jax.Array:
    """The unit of every job, int32[m, n_jobs]."""

    def epoch(state: Any, _: None) -> tuple[Any, jax.Array]:
        visits = permutations(order, shape, state)
        own_first = jnp.argsort(visits < 0, axis=1, stable=True)  # idle steps mean nothing here
        return order.end_epoch(state), jnp.take_along_axis(visits, own_first, axis=1)

    n_epochs = -(-n_jobs // min(shape.counts))
    _, visits = jax.lax.scan(epoch, order.init(key), length=n_epochs)
    counts = jnp.asarray(shape.counts, jnp.int32)[:, None]
    job = jnp.arange(n_jobs, dtype=jnp.int32)
    return visits[job // counts, jnp.arange(shape.n_workers)[:, None], job % counts]
