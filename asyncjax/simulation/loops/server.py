"""The server: its first state, its update, and how a model is judged; the same in every loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from asyncjax.problems import Problem
from asyncjax.simulation.plans.extras import Extras, handed
from asyncjax.simulation.plans.program import Sizes
from asyncjax.simulation.plans.rows import read, repeat

_LOOKED_AT = 2**14  # entries of a leaf of a gradient, at most


class Metrics(NamedTuple):
    """What is recorded of a model."""

    # float[R], objective, or weighted mean loss of the step's jobs where there is none
    loss: jax.Array
    metrics: dict[str, jax.Array]  # float[R] each
    finite: jax.Array  # bool[R], every parameter is finite


class ReplayResult(NamedTuple):
    """What is left of a replay."""

    params: Any
    opt_state: Any
    measured: Metrics
    order_state: Any = None
    arrival_state: Any = None
    workers: Any = None  # n + 1 rows, what the workers keep; the last row is scratch
    failed: Any = None  # int32[2], see `first_failure`


def is_finite(loss: jax.Array, grads: Any) -> jax.Array:
    """Whether a job's loss and its gradient are finite; of large leaves only the loss tells.

    A pass over all of a large gradient would cost as much as what a late one moves. The products
    with zeros are NaN where anything is not finite; a compiler of a CPU makes them faster than it
    asks every number, but only if it cannot know the zeros beforehand.
    """
    zero = loss - loss
    small = [leaf.ravel() for leaf in jax.tree.leaves(grads) if leaf.size <= _LOOKED_AT]
    total = sum((jnp.dot(leaf, jnp.full_like(leaf, zero)) for leaf in small), zero)
    return total == 0


def first_failure(failed: jax.Array, fails: jax.Array, worker: Any, job: Any) -> jax.Array:
    """Worker and job of the first gradient that is not finite, int32[2]; -1 before there is one.

    Example:
        >>> none = jnp.full(2, -1)
        >>> first_failure(none, True, 3, 7).tolist(), first_failure(none, False, 3, 7).tolist()
        ([3, 7], [-1, -1])
    """
    return jnp.where(fails & (failed < 0), jnp.stack([worker, job]), failed)


def first_state(optimizer: optax.GradientTransformation, params: Any, given: Any) -> Any:
    """The optimizer's state before the first update: the one that is given, or its own."""
    return jax.tree.map(jnp.asarray, optimizer.init(params) if given is None else given)


def first_workers(problem: Problem, sizes: Sizes) -> Any:
    """What the workers keep before their first jobs, n + 1 rows, the last is scratch; or None."""
    if problem.worker_state_of is None:
        return None
    if not sizes.workers:
        raise ValueError(
            "problem keeps a state at every worker (keep_state=True), so all its jobs are computed"
            " in their order: simulation.plan(trace, worker_order=True) makes such a plan, replay"
            " and sweep do so of a trace, and of all other runs only live ones carry the states"
        )
    return repeat(jax.tree.map(jnp.asarray, problem.worker_state()), sizes.workers + 1)


def loss_type(problem: Problem, params: Any) -> Any:
    """The dtype of a job's loss."""
    key, state = jax.eval_shape(jax.random.key, 0), jax.eval_shape(problem.worker_state)
    return jax.eval_shape(problem.gradient, params, 0, 0, key, state)[0].dtype


def server_step(
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    server: tuple[Any, Any],
    direction: Any,
    read_params: Any,
    extras: Extras,
) -> tuple[Any, Any]:
    """One update of (params, optimizer state)."""
    params, opt_state = server
    updates, opt_state = optax.with_extra_args_support(optimizer).update(
        direction, opt_state, params, read_params=read_params, **handed(extras, key)
    )
    return optax.apply_updates(params, updates), opt_state


def measure(
    problem: Problem,
    record_lanes: Any,
    record_weights: Any,
    recorded: Any,
    losses: jax.Array,
    number: Any = None,
) -> Metrics:
    """Judges recorded models, one after the other; with a `number` that record alone.

    `recorded` has R + 1 rows; `record_lanes` int32[R, B]; `record_weights` float[R, B]; `losses`
    float[...]. With one row of lanes and weights more, [1 + R, B], version 0 is judged too, before
    the others; but not where there is no objective, since no job's loss belongs to it.
    """
    unknown = jnp.zeros((), losses.dtype)
    count = len(jax.tree.leaves(recorded)[0]) - 1
    start = len(record_lanes) > count
    if start and problem.objective is None:
        start, record_lanes, record_weights = False, record_lanes[1:], record_weights[1:]

    def model(row: jax.Array) -> Any:
        if not start:
            return read(recorded, row)
        kept = read(recorded, jnp.maximum(row, 0))
        return jax.tree.map(lambda *of: jnp.where(row < 0, *of), problem.params, kept)

    rows = jnp.arange(-int(start), count)
    if number is not None:
        rows = rows[number][None]
    # By number: the rows without the last would be all records once more.
    loss, metrics, finite = jax.lax.map(lambda row: judge(problem, model(row), unknown), rows)
    if problem.objective is None:
        if number is not None:
            record_lanes, record_weights = record_lanes[rows], record_weights[rows]
        behind = losses.reshape(-1)[record_lanes]
        weights = record_weights.astype(behind.dtype)
        total = jnp.sum(jnp.where(weights != 0, behind * weights, 0), axis=1)
        loss = total / jnp.sum(weights, axis=1)
    return Metrics(loss, metrics, finite)


def judge(problem: Problem, params: Any, loss: jax.Array) -> Metrics:
    """Judges one model; `loss` stands in where there is no objective."""
    objective = problem.objective
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]
    return Metrics(
        loss if objective is None else objective(params),
        problem.metrics(params),
        jnp.all(jnp.array(finite)),
    )
