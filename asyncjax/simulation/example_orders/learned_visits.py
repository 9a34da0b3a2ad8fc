"""Learned visits: an asynchronous run whose late gradients decide what each worker visits next.

    job q of worker j is visit i = q mod n_j of its epoch e = q // n_j
    epoch e begins with the first gradient of it that arrives:      o_j <- next order of worker j
    unit of the job: o_j[i];      the order observes (j, i, gradient), as old as the gradient is

Workers turn to their next epoch each at its own time. A gradient that arrives after a later epoch
of its worker has begun belongs to the order before; it moves the model but teaches nothing.

What is measured of fixed vectors (tests of this room): while workers keep step, coordinated workers
leave the sum of all that arrives half as long as independent ones. Where speeds differ by a factor
2, coordination is worth less than none: the places of a common balance are read out at different
paces. Then take `orders.independent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from asyncjax.orders import Order
from asyncjax.problems import Problem
from asyncjax.simulation.example_orders.ordered import fitted
from asyncjax.traces import EventTrace


class VisitState(NamedTuple):
    """What a run carries of a learning order."""

    order_state: Any
    # int32[2, m, n], the units of each worker by visit: epoch before, present epoch
    orders: jax.Array
    epoch: jax.Array  # int32[m], the present epoch of each worker


@dataclass(frozen=True)
class LearnedVisits:
    """A learning order in front of the jobs of an asynchronous run; static."""

    order: Order
    counts: tuple[int, ...]  # units of each of the m workers

    def begin(self, key: jax.Array) -> VisitState:
        """The state before the first arrival."""
        state = self.order.init(key)
        visits = self._visits(state)
        return VisitState(
            state, jnp.stack([visits, visits]), jnp.zeros(len(self.counts), jnp.int32)
        )

    def take(
        self, state: VisitState, worker: Any, job: Any
    ) -> tuple[VisitState, jax.Array, jax.Array]:
        """Says which unit a job has, if its gradient is the next that arrives.

        `worker` int32[]; `job` int32[].
        """
        count = jnp.asarray(self.counts, jnp.int32)[worker]
        epoch, visit = job // count, job % count
        turned = jax.lax.cond(
            epoch > state.epoch[worker],
            lambda state: self._turn(state, worker, epoch),
            lambda state: state,
            state,
        )
        is_late = epoch < turned.epoch[worker]
        unit = turned.orders[jnp.where(is_late, 0, 1), worker, visit]
        return turned, unit, jnp.where(is_late, -1, visit)

    def learn(self, state: VisitState, worker: Any, visit: jax.Array, grads: Any) -> VisitState:
        """Shows the order the gradient of a visit."""
        gradient, _ = ravel_pytree(grads)
        on_arrival = self.order.on_arrival
        assert on_arrival is not None
        return state._replace(
            order_state=on_arrival.observe(state.order_state, worker, visit, gradient)
        )

    def _turn(self, state: VisitState, worker: jax.Array, epoch: jax.Array) -> VisitState:
        on_arrival = self.order.on_arrival
        assert on_arrival is not None
        epochs = state.epoch.at[worker].set(epoch)
        is_last = jnp.min(epochs) > jnp.min(state.epoch)
        order_state = on_arrival.end_epoch(state.order_state, worker, is_last)
        own = self._visits(order_state)[worker]
        present = state.orders[1]
        before = state.orders[0].at[worker].set(present[worker])
        orders = jnp.stack([before, present.at[worker].set(own)])
        return VisitState(order_state, orders, epochs)

    def _visits(self, order_state: Any) -> jax.Array:
        on_arrival = self.order.on_arrival
        assert on_arrival is not None
        return jnp.asarray(on_arrival.visits(order_state), jnp.int32)


def learned(
    problem: Problem, order: Order, trace: EventTrace, arrivals: Any
) -> tuple[Problem, LearnedVisits]:
    """Puts a learning order in front of the jobs of a trace.

    `arrivals` int[G].

    Example:
        >>> from asyncjax import clocks, orders, problems, traces
        >>> problem = problems.least_squares(np.ones((4, 2)), np.ones(4), n_workers=2)
        >>> trace = traces.asynchronous(clocks.constant([1.0, 3.0]), n_updates=9)
        >>> learned(problem, orders.coordinated(2, 2, 2), trace, np.arange(9))[1].counts
        (2, 2)
    """
    problem, shape = fitted(problem, order, trace)
    if order.on_arrival is None:
        raise ValueError(
            "order must learn from workers that are not in step (on_arrival) or ignore gradients in"
            " an asynchronous run:"
            " coordinated, independent, reshuffled, shuffled_once, flip_flop; others are for"
            " run_epochs"
        )
    worker, job = np.asarray(trace.worker)[arrivals], np.asarray(trace.job)[arrivals]
    check_sequence(worker, job, shape.counts)
    return problem, LearnedVisits(order, shape.counts)


def check_sequence(worker: np.ndarray, job: np.ndarray, counts: tuple[int, ...]) -> None:
    """Refuses a run in which a gradient comes more than an epoch of its worker too late.

    `worker` int[G]; `job` int[G].

    Example:
        >>> check_sequence(np.array([0, 0, 0]), np.array([0, 2, 1]), (2,))
        >>> check_sequence(np.array([0, 0, 0]), np.array([0, 4, 1]), (2,))
        Traceback (most recent call last):
        ...
        ValueError: trace must bring a gradient at most one epoch late to a learning order, but
        job 1 of worker 0 (epoch 0) arrives in its epoch 2
    """
    for name in np.unique(worker):
        own = job[worker == name]
        epochs = own // counts[name]
        present = np.maximum.accumulate(epochs)
        late = np.flatnonzero(present - epochs > 1)
        if len(late):
            first = late[0]
            raise ValueError(
                "trace must bring a gradient at most one epoch late to a learning order, but job"
                f" {own[first]} of worker"
                f" {name} (epoch {epochs[first]}) arrives in its epoch {present[first]}"
            )
