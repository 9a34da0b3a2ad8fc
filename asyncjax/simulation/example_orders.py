"""Example orders in front of the jobs of a run: which unit of the data a job takes.

    epochs      unit o[j, t] at step t of worker j, all workers in step
    ordered     job q of worker j takes unit o_e[j, q mod n_j] in epoch e = q // n_j of that worker
    learned     the same, with an order that observes (j, i, gradient) as gradients arrive

In an asynchronous run workers turn to their next epoch each at its own time. Orders that ignore
gradients are known beforehand, so they are a table in front of any problem. One that learns turns
with the first gradient of a worker's epoch that arrives; a gradient that arrives after a later
epoch of its worker has begun moves the model but teaches nothing.

What is measured of fixed vectors (tests of this room): while workers keep step, coordinated workers
leave the sum of all that arrives half as long as independent ones. Where speeds differ by a factor
2, coordination is worth less than none: the places of a common balance are read out at different
paces. Then take `orders.independent`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from asyncjax.orders import Order
from asyncjax.problems import Problem
from asyncjax.problems.units import check_unit_counts, in_fixed_units, in_front
from asyncjax.simulation.plan import ReplayPlan
from asyncjax.simulation.waves import ceil_to_grid
from asyncjax.traces import EventTrace
from asyncjax.traces.event_trace import worker_count


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


def order_shape(order: Order) -> OrderShape:
    """Finds the sizes of an order; nothing is computed."""
    key = jax.eval_shape(jax.random.key, 0)
    shape = jax.eval_shape(lambda key: order.permutation(order.init(key)), key).shape
    single, n = len(shape) == 1, shape[-1]
    counts = (n,) * (1 if single else shape[0]) if order.counts is None else order.counts
    return OrderShape(tuple(counts), n, single)


def permutations(order: Order, shape: OrderShape, state: Any) -> jax.Array:
    """The permutation of an order's state with the axis of workers, int32[m, n]."""
    visits = jnp.asarray(order.permutation(state), jnp.int32)
    return visits[None] if shape.single else visits


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
    if all(getattr(each, "__module__", "").startswith("asyncjax.orders.") for each in functions):
        return
    with jax.ensure_compile_time_eval():
        first = order.init(jax.random.key(0))
        for state in (first, order.end_epoch(first)):
            visits = np.asarray(permutations(order, shape, state))
            bad = (visits < -1) | (visits >= np.array(shape.counts)[:, None])
            for worker, step in np.argwhere(bad):
                raise ValueError(
                    f"order must visit units of 0 .. {shape.counts[worker] - 1} of worker"
                    f" {worker}, or -1 for none, got {visits[worker, step]} at step {step}"
                )


def in_units(problem: Problem, order: Order, n_workers: int) -> tuple[Problem, OrderShape]:
    """Fits a problem and an order together."""
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


def busy_steps(order: Order, shape: OrderShape, batch: int) -> int:
    """Counts the steps of an epoch in which a worker has a unit, over all workers.

    Example:
        >>> from asyncjax import orders
        >>> order = orders.reshuffled([4, 1], n_workers=2)
        >>> busy_steps(order, order_shape(order), 1), busy_steps(order, order_shape(order), 2)
        (5, 3)
    """
    if batch == 1 or min(shape.counts) == shape.n:
        return sum(-(-count // batch) for count in shape.counts)
    with jax.ensure_compile_time_eval():
        visits = np.asarray(permutations(order, shape, order.init(jax.random.key(0))))
    starts = np.arange(0, shape.n, batch)
    return int(np.sum(np.logical_or.reduceat(visits >= 0, starts, axis=1)))


def _of_trace(problem: Problem, order: Order, trace: EventTrace) -> tuple[Problem, OrderShape]:
    """Fits a problem, an order and a trace together."""
    shape, workers = order_shape(order), worker_count(trace)
    if workers > shape.n_workers:
        raise ValueError(
            f"order must have at least {workers} workers, those of the trace, got {shape.n_workers}"
        )
    return in_units(problem, order, shape.n_workers)


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
    """The problem whose jobs take the units of each worker in an order that ignores gradients.

    It holds an integer for every job of the trace. A job that the trace throws away or cancels has
    used up its unit.
    """
    problem, shape = _of_trace(problem, order, trace)
    n_jobs = ceil_to_grid(int(np.max(trace.job)) + 1)
    units = _units(order, shape, n_jobs, key)
    return in_front(problem, units, _OfUnit(problem.gradient_of))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _units(order: Order, shape: OrderShape, n_jobs: int, key: jax.Array) -> jax.Array:
    """The unit of every job, int32[m, n_jobs]."""

    def epoch(state: Any, _: None) -> tuple[Any, jax.Array]:
        visits = permutations(order, shape, state)
        busy_first = jnp.argsort(visits < 0, axis=1, stable=True)  # idle steps mean nothing here
        return order.end_epoch(state), jnp.take_along_axis(visits, busy_first, axis=1)

    n_epochs = -(-n_jobs // min(shape.counts))
    _, visits = jax.lax.scan(epoch, order.init(key), length=n_epochs)
    counts = jnp.asarray(shape.counts, jnp.int32)[:, None]
    job = jnp.arange(n_jobs, dtype=jnp.int32)
    return visits[job // counts, jnp.arange(shape.n_workers)[:, None], job % counts]


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
    on_arrival: Any  # that of the order
    counts: tuple[int, ...]  # units of each of the m workers

    def begin(self, key: jax.Array) -> VisitState:
        """The state before the first arrival."""
        state = self.order.init(key)
        visits = self._visits(state)
        epoch = jnp.zeros(len(self.counts), jnp.int32)
        return VisitState(state, jnp.stack([visits, visits]), epoch)

    def take(
        self, state: VisitState, worker: Any, job: Any
    ) -> tuple[VisitState, jax.Array, jax.Array]:
        """The unit and the visit (-1 if late) of the next gradient; `worker`, `job` int32[]."""
        count = jnp.asarray(self.counts, jnp.int32)[worker]
        epoch, visit = job // count, job % count
        turn = partial(self._turn, worker=worker, epoch=epoch)
        state = jax.lax.cond(epoch > state.epoch[worker], turn, lambda state: state, state)
        is_late = epoch < state.epoch[worker]
        unit = state.orders[jnp.where(is_late, 0, 1), worker, visit]
        return state, unit, jnp.where(is_late, -1, visit)

    def learn(self, state: VisitState, worker: Any, visit: jax.Array, grads: Any) -> VisitState:
        """Shows the order the gradient of a visit."""
        gradient, _ = ravel_pytree(grads)
        order_state = self.on_arrival.observe(state.order_state, worker, visit, gradient)
        return state._replace(order_state=order_state)

    def _turn(self, state: VisitState, worker: jax.Array, epoch: jax.Array) -> VisitState:
        """Begins a worker's next epoch."""
        epochs = state.epoch.at[worker].set(epoch)
        is_last = jnp.min(epochs) > jnp.min(state.epoch)
        order_state = self.on_arrival.end_epoch(state.order_state, worker, is_last)
        following = self._visits(order_state)[worker]
        before, present = state.orders
        before = before.at[worker].set(present[worker])
        orders = jnp.stack([before, present.at[worker].set(following)])
        return VisitState(order_state, orders, epochs)

    def _visits(self, order_state: Any) -> jax.Array:
        return jnp.asarray(self.on_arrival.visits(order_state), jnp.int32)


def learned(
    problem: Problem, order: Order, trace: EventTrace, arrivals: Any
) -> tuple[Problem, LearnedVisits]:
    """Puts a learning order in front of the jobs of a trace; `arrivals` int[G]."""
    problem, shape = _of_trace(problem, order, trace)
    if order.on_arrival is None:
        raise ValueError(
            "order must learn from workers that are not in step (on_arrival) or ignore gradients in"
            " an asynchronous run: coordinated, independent, reshuffled, shuffled_once, flip_flop;"
            " others are for run_epochs"
        )
    worker, job = np.asarray(trace.worker)[arrivals], np.asarray(trace.job)[arrivals]
    check_sequence(worker, job, shape.counts)
    return problem, LearnedVisits(order, order.on_arrival, shape.counts)


def in_order(
    problem: Problem, order: Order, plan: ReplayPlan, key: jax.Array
) -> tuple[Problem, LearnedVisits | None]:
    """A problem whose jobs take units in an order, and what an order learns by, if it does."""
    if getattr(order, "needs_gradients", False):
        return learned(problem, order, plan.trace, np.sort(plan.gradients.arrival))
    return ordered(problem, order, plan.trace, key), None


def check_sequence(worker: np.ndarray, job: np.ndarray, counts: tuple[int, ...]) -> None:
    """Refuses a run in which a gradient comes more than an epoch of its worker too late.

    Example:
        >>> check_sequence(np.array([0, 0, 0]), np.array([0, 2, 1]), (2,))
        >>> check_sequence(np.array([0, 0, 0]), np.array([0, 4, 1]), (2,))
        Traceback (most recent call last):
        ...
        ValueError: trace must bring a gradient at most one epoch late to a learning order, but
        job 1 of worker 0 (epoch 0) arrives in its epoch 2
    """
    for name in np.unique(worker):
        jobs = job[worker == name]
        epochs = jobs // counts[name]
        present = np.maximum.accumulate(epochs)
        for late in np.flatnonzero(present - epochs > 1):
            raise ValueError(
                "trace must bring a gradient at most one epoch late to a learning order, but job"
                f" {jobs[late]} of worker {name} (epoch {epochs[late]}) arrives in its epoch"
                f" {present[late]}"
            )
