"""The compiled loop over waves.

    for each wave:   gradients   G_l = grad f_{i_l}(x_{r_l}; job_l)       all lanes in one vmapped call
                     directions  D_u += w_l G_l                           a slot per unfinished update
                     updates     x_{v+1} = x_v + optimizer(D_v)           a scan, in the order of the trace

Models and gradients lie in flat buffers, one row a slot; the optimizer sees the caller's own pytree.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from asyncjax.problems import Problem
from asyncjax.simulation.program import Program


class LoopState(NamedTuple):
    """What the loop over waves carries; P parameters in all."""

    params: Any  # the current model
    opt_state: Any
    versions: jax.Array  # float[S + 1, P], models still to be read; the last row is scratch
    directions: jax.Array  # float[Q + 1, P], unfinished directions; the last row is scratch
    recorded: jax.Array  # float[R + 1, P], models to be judged; the last row is scratch
    losses: jax.Array  # float[W, L], loss of each gradient's job


class Measured(NamedTuple):
    """What is recorded of a model."""

    loss: (
        jax.Array
    )  # float[R], the objective; without one, the weighted mean loss of the step's jobs
    metrics: dict[str, jax.Array]  # float[R] each
    finite: jax.Array  # bool[R], every parameter is finite


def run_waves(
    problem: Problem, program: Program, optimizer: optax.GradientTransformation, key: jax.Array
) -> tuple[Any, Any, Measured]:
    """Replays a program; pure and traceable.

    Args:
        problem: What is optimised.
        program: The plan as arrays.
        optimizer: Any optax optimizer; it is handed ``delay``, ``worker``, ``time`` and ``read_params``.
        key: Typed key; job j of worker i gets fold_in(fold_in(key, i), j).

    Returns:
        Final params, final optimizer state, and what was recorded.
    """
    state = begin(problem, program, optimizer)
    state = advance(problem, program, optimizer, key, state, 0, program.n_waves)
    return (
        state.params,
        state.opt_state,
        measure(
            problem, program.record_lanes, program.record_weights, state.recorded, state.losses
        ),
    )


def begin(problem: Problem, program: Program, optimizer: optax.GradientTransformation) -> LoopState:
    """The state before the first wave: every slot holds version 0."""
    sizes = program.sizes
    flat, _ = ravel_pytree(problem.params)
    params = jax.tree.map(jnp.asarray, problem.params)
    loss, _ = jax.eval_shape(problem.gradient, params, 0, 0, jax.random.key(0))
    return LoopState(
        params,
        jax.tree.map(jnp.asarray, optimizer.init(params)),
        jnp.broadcast_to(flat, (sizes.slots + 1, flat.size)),
        jnp.zeros((sizes.directions + 1, flat.size), flat.dtype),
        jnp.zeros((sizes.records + 1, flat.size), flat.dtype),
        jnp.zeros((sizes.waves, sizes.width), loss.dtype),
    )


def advance(
    problem: Problem,
    program: Program,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    state: LoopState,
    first: int | jax.Array,
    last: int | jax.Array,
) -> LoopState:
    """Runs waves ``first`` .. ``last - 1``; a long run may be cut anywhere without changing a bit."""
    _, unravel = ravel_pytree(problem.params)
    body = _wave(problem, program, optax.with_extra_args_support(optimizer), unravel, key)
    return jax.lax.fori_loop(first, last, body, state)


def _wave(
    problem: Problem,
    program: Program,
    optimizer: optax.GradientTransformationExtraArgs,
    unravel: Callable[[jax.Array], Any],
    key: jax.Array,
) -> Callable[[jax.Array, LoopState], LoopState]:
    gather = _gather_single if program.sizes.single else _gather_groups

    def gradient(flat: jax.Array, worker: jax.Array, job: jax.Array) -> tuple[jax.Array, jax.Array]:
        job_key = jax.random.fold_in(jax.random.fold_in(key, worker), job)
        loss, grads = problem.gradient(unravel(flat), worker, job, job_key)
        return loss, ravel_pytree(grads)[0].astype(flat.dtype)

    def body(wave: jax.Array, state: LoopState) -> LoopState:
        lanes = state.versions[program.read_slot[wave]]
        loss, grads = jax.vmap(gradient)(lanes, program.worker[wave], program.job[wave])
        directions = gather(program, wave, state.directions, grads)

        def update(
            turn: jax.Array, carry: tuple[Any, Any, jax.Array]
        ) -> tuple[Any, Any, jax.Array]:
            at = (wave, turn)
            row, write, oldest = (
                program.update_direction[at],
                program.write_slot[at],
                program.oldest_slot[at],
            )
            delay, worker, time = program.delay[at], program.last_worker[at], program.time[at]
            made = program.made[at] if program.sizes.masked else None
            one = (row, made, write, oldest, delay, worker, time)
            return update_once(optimizer, unravel, directions, carry, one)

        carry = (state.params, state.opt_state, state.versions)
        params, opt_state, versions = jax.lax.fori_loop(0, program.turns[wave], update, carry)
        copied = versions[program.copy_slot[wave]]
        return LoopState(
            params,
            opt_state,
            versions,
            directions,
            state.recorded.at[program.copy_record[wave]].set(copied),
            state.losses.at[wave].set(loss),
        )

    return body


def _gather_single(
    program: Program, wave: jax.Array, directions: jax.Array, grads: jax.Array
) -> jax.Array:
    """Each lane's gradient is a direction of its own."""
    weighted = grads * program.weight[wave].astype(grads.dtype)[:, None]
    return directions.at[program.direction[wave]].set(weighted)


def _gather_groups(
    program: Program, wave: jax.Array, directions: jax.Array, grads: jax.Array
) -> jax.Array:
    """Adds each lane's gradient to its direction; a product, since scattered sums have no order on a GPU."""
    rows = jnp.arange(program.sizes.directions + 1)
    is_lane = program.direction[wave] < program.sizes.directions
    share = jnp.where(rows[:, None] == program.direction[wave], program.weight[wave], 0.0)
    added = jnp.dot(
        share.astype(grads.dtype),
        jnp.where(is_lane[:, None], grads, 0.0),
        precision=jax.lax.Precision.HIGHEST,
    )
    begins = jnp.append(program.starts[wave], True)
    return jnp.where(begins[:, None], 0.0, directions) + added


def update_once(
    optimizer: optax.GradientTransformationExtraArgs,
    unravel: Callable[[jax.Array], Any],
    directions: jax.Array,
    carry: tuple[Any, Any, jax.Array],
    turn: tuple[Any, ...],
) -> tuple[Any, Any, jax.Array]:
    """One server update; where ``made`` is given and False, everything stays as it was."""
    params, opt_state, versions = carry
    row, made, write_slot, oldest_slot, delay, worker, time = turn
    updates, new_state = optimizer.update(
        unravel(directions[row]),
        opt_state,
        params,
        delay=delay,
        worker=worker,
        time=time,
        read_params=unravel(versions[oldest_slot]),
    )
    moved = optax.apply_updates(params, updates)
    if made is not None:
        keep = partial(jax.tree.map, lambda new, old: jnp.where(made, new, old))
        moved, new_state = keep(moved, params), keep(new_state, opt_state)
    return moved, new_state, versions.at[write_slot].set(ravel_pytree(moved)[0])


def measure(
    problem: Problem,
    record_lanes: jax.Array,
    record_weights: jax.Array,
    recorded: jax.Array,
    losses: jax.Array,
) -> Measured:
    """Judges recorded models, one after the other.

    Args:
        problem: Objective and metrics.
        record_lanes: int32[R, B], places in ``losses`` (flattened) of the jobs behind each record.
        record_weights: float[R, B], their weights; 0: padding.
        recorded: float[R + 1, P], flat models; the last row is scratch.
        losses: float[...], losses of jobs.

    Returns:
        The records' values.
    """
    objective = problem.objective
    _, unravel = ravel_pytree(problem.params)

    def judge(flat: jax.Array) -> tuple[jax.Array, dict[str, jax.Array], jax.Array]:
        params = unravel(flat)
        loss = jnp.zeros((), losses.dtype) if objective is None else objective(params)
        return loss, problem.metrics(params), jnp.all(jnp.isfinite(flat))

    loss, metrics, finite = jax.lax.map(judge, recorded[:-1])
    if objective is None:
        behind = losses.reshape(-1)[record_lanes]
        weights = record_weights.astype(behind.dtype)
        total = jnp.sum(jnp.where(weights != 0, behind * weights, 0), axis=1)
        loss = total / jnp.sum(weights, axis=1)
    return Measured(loss, metrics, finite)
