"""The compiled loop over waves.

    gradients   G_l = grad f_{i_l}(x_{r_l}; job_l)     all lanes of a wave in one vmapped call
    directions  D_u += w_l G_l                         a row per unfinished update (or see `blends`)
    workers     s_i <- what worker i keeps             where they keep a state; a row a worker
    updates     x_{v+1} = x_v + optimizer(D_v)         one by one, in the order of the trace

Models and gradients lie in buffers, a row each; the optimizer sees the caller's own pytree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from asyncjax.problems import Problem
from asyncjax.simulation.cpu_rewrites import quick
from asyncjax.simulation.loops.flat import SMALL_ALONE, flattened
from asyncjax.simulation.loops.loop import Loop, Placed, Progress, progress_at
from asyncjax.simulation.loops.placement import everywhere_on
from asyncjax.simulation.loops.server import (
    Metrics,
    ReplayResult,
    first_failure,
    first_state,
    first_workers,
    is_finite,
    loss_type,
    measure,
    server_step,
)
from asyncjax.simulation.loops.shards import Shards
from asyncjax.simulation.plans.extras import job_key
from asyncjax.simulation.plans.plan import ReplayPlan
from asyncjax.simulation.plans.program import Program, Sizes, assemble
from asyncjax.simulation.plans.reuse import ServiceIntervals, blend, empty_runs
from asyncjax.simulation.plans.rows import blank, read, read_lanes, repeat, write
from asyncjax.simulation.plans.update import Arrival, Update


class WaveState(NamedTuple):
    """What the loop over waves carries."""

    params: Any  # the current model
    opt_state: Any
    versions: Any  # S + 1 rows: models still to be read; the last row is scratch
    directions: Any  # Q + 1 rows: unfinished directions; the last row is scratch
    recorded: Any  # R + 1 rows: models to be judged; the last row is scratch
    losses: jax.Array  # float[W, L], loss of each gradient's job
    # [Q + 1, K], when each row of directions serves; None where each is one update's
    runs: ServiceIntervals | None
    workers: Any = None  # n + 1 rows, what the workers keep; the last row is scratch
    arrival_state: Any = None  # of what treats each gradient as it arrives
    failed: Any = None  # int32[2], see `first_failure`


class _Moving(NamedTuple):
    """What of it an update changes."""

    params: Any
    opt_state: Any
    versions: Any
    recorded: Any  # None: not by updates
    arrival_state: Any


class WaveInputs(NamedTuple):
    """What a replay in waves is given."""

    program: Program
    key: jax.Array
    opt_state: Any  # the optimizer's first; None: its own


def wave_loop(
    plan: ReplayPlan,
    sizes: Sizes,
    update: Update,
    key: jax.Array,
    opt_state: Any,
    shards: Shards | None = None,
) -> Loop:
    """The replay of a plan in waves, on one device or split."""

    def progress(wave: int, _: WaveState) -> Progress:
        return progress_at(plan, int(np.searchsorted(plan.waves.update_wave, wave)))

    given, placed = WaveInputs(assemble(plan, sizes), key, opt_state), None
    if shards is not None:
        split = given._replace(program=assemble(plan, shards.widened(sizes)))
        split = everywhere_on(shards.mesh)(split)
        placed = Placed(ByWave(update, shards), split, shards.placed)
    return Loop(ByWave(update), given, plan.n_waves, progress, placed)


@dataclass(frozen=True)
class ByWave:
    """A replay whose turns are waves."""

    update: Update
    shards: Shards | None = None  # None: one device

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The optimizer."""
        return self.update.optimizer

    def init(self, problem: Problem, given: WaveInputs) -> WaveState:
        """Every row holds version 0."""
        program, sizes = given.program, given.program.sizes
        params = jax.tree.map(jnp.asarray, problem.params)
        workers = first_workers(problem, sizes)
        runs = None
        if program.lane_runs is not None:
            dtype = jnp.result_type(program.lane_runs.weight)
            runs = empty_runs(sizes.directions + 1, sizes.runs, dtype)
        opt_state = first_state(self.optimizer, params, given.opt_state)
        state = WaveState(
            params,
            opt_state,
            repeat(self.update.handed(params, opt_state), sizes.slots + 1),
            blank(params, sizes.directions + 1),
            blank(params, sizes.records + 1),
            jnp.zeros((sizes.waves, sizes.width), loss_type(problem, params)),
            runs,
            workers,
            self.update.init(params),
            jnp.full(2, -1, jnp.int32),
        )
        return self._split(state)

    def step(
        self, problem: Problem, given: WaveInputs, state: WaveState, first: Any, last: Any
    ) -> WaveState:
        """Runs waves; at once and on one device, a small model is a flat vector meanwhile."""
        flat, optimizer, restored = flattened(problem, self.optimizer, SMALL_ALONE)
        if last is not None or self.shards is not None or flat is problem:
            return self._run(problem, given, state, first, last)
        one = partial(_on_models, lambda model: ravel_pytree(model)[0])
        kind = replace(self, update=self.update.flat(optimizer, restored))
        done = kind._run(flat, given, one(state), first, last)
        return _on_models(restored, done)

    def _run(
        self, problem: Problem, given: WaveInputs, state: WaveState, first: Any, last: Any
    ) -> WaveState:
        """Runs waves on models as they are."""
        program, key = given.program, given.key
        has_row = program.sizes.single or program.sizes.entering
        gather = _gather_single if has_row else _gather_groups

        def wave(number: jax.Array, state: WaveState) -> WaveState:
            loss, grads, workers = _gradients(problem, program, key, number, state, self.shards)
            directions = gather(program, number, state.directions, grads)
            runs = _runs(program, number, state.runs)
            losses = write(state.losses, number, loss)
            failed = state.failed
            if self.shards is None:  # there it would be sent from device to device in every wave
                failed = _failed(program, number, failed, loss, grads)
            state = state._replace(directions=directions, runs=runs, losses=losses, workers=workers)
            state = state._replace(failed=failed)
            state = self._updates(program, key, number, state)

            def copy(turn: jax.Array, recorded: Any) -> Any:
                model = read(state.versions, read(program.copy_slot, (number, turn)))
                return write(recorded, read(program.copy_record, (number, turn)), model)

            if not program.sizes.views:
                copies = read(program.copies, number)
                recorded = jax.lax.fori_loop(0, copies, copy, state.recorded)
                state = state._replace(recorded=recorded)
            return self._split(state)

        return jax.lax.fori_loop(first, program.n_waves if last is None else last, wave, state)

    def _split(self, state: WaveState) -> WaveState:
        """The state, split as the shards say."""
        shards = self.shards
        if shards is None:
            return state
        return state._replace(
            params=shards.models(state.params),
            opt_state=shards.opt_state(self.optimizer, state.opt_state, state.params),
            versions=shards.rows(state.versions),
            directions=shards.rows(state.directions),
            recorded=shards.rows(state.recorded),
            losses=shards.losses(state.losses),
        )

    def _updates(
        self, program: Program, key: jax.Array, wave: jax.Array, state: WaveState
    ) -> WaveState:
        """Makes a wave's updates one by one; with views, what is recorded is a part of it."""
        views = program.sizes.views

        def update(turn: jax.Array, moving: _Moving) -> _Moving:
            at, server = (wave, turn), moving[:2]
            versions, recorded = moving.versions, moving.recorded
            direction, arrival_state = self._direction(program, key, at, state, moving)
            read_params = read(versions, read(program.oldest_slot, at))
            extras = read(program.extras, at)
            moved = server_step(self.optimizer, key, server, direction, read_params, extras)
            if program.sizes.masked:
                made = read(program.made, at)
                moved = jax.tree.map(partial(jnp.where, made), moved, server)
            handed = self.update.handed(moved[0], moved[1])
            versions = write(versions, read(program.write_slot, at), handed)
            if program.update_record is not None:
                row = read(program.update_record, read(program.update_number, at))
                if program.sizes.masked:
                    row = jnp.where(read(program.made, at), row, program.sizes.records)
                recorded = write(recorded, row, moved[0])
            return _Moving(moved[0], moved[1], versions, recorded, arrival_state)

        recorded = state.recorded if views else None
        first = (state.params, state.opt_state, state.versions, recorded, state.arrival_state)
        turns = read(program.turns, wave)
        done = jax.lax.fori_loop(0, turns, update, _Moving(*first))._asdict()
        return state._replace(**done if views else {**done, "recorded": state.recorded})

    def _direction(
        self,
        program: Program,
        key: jax.Array,
        at: tuple[jax.Array, jax.Array],
        state: WaveState,
        moving: _Moving,
    ) -> tuple[Any, Any]:
        """The direction of an update, and the state of what treats arrivals."""
        entering, runs, kept = program.entering, state.runs, moving.arrival_state
        if entering is None and runs is None:
            return read(state.directions, read(program.update_direction, at)), kept
        number = read(program.update_number, at)
        if entering is None:
            assert runs is not None
            return jax.tree.map(lambda leaf: blend(leaf, runs, number), state.directions), kept

        def arriving(place: jax.Array) -> Arrival:
            own = (number, place)
            return Arrival(
                read(state.directions, read(entering.row, own)),
                read(moving.versions, read(entering.slot, own)),
                state.losses.reshape(-1)[read(entering.lane, own)],
                place,
                read(entering.extras, own),
                key,
            )

        count = read(entering.count, number)
        if program.sizes.masked:
            count = jnp.where(read(program.made, at), count, 0)
        return self.update.taken(entering, number, count, arriving, moving.params, kept)

    def finalize(self, problem: Problem, given: WaveInputs, state: WaveState) -> ReplayResult:
        """Judges the recorded models."""
        program = given.program
        behind = (program.record_lanes, program.record_weights)
        measured = measure(problem, *behind, state.recorded, state.losses)
        if program.record_row is not None:  # version 0 may be before them
            start = len(measured.finite) - program.sizes.records
            rows = jnp.append(jnp.arange(start), start + program.record_row)
            measured = read(measured, rows)
        left = {"arrival_state": state.arrival_state, "workers": state.workers}
        left["failed"] = state.failed
        return ReplayResult(state.params, state.opt_state, measured, **left)

    def row(self, problem: Problem, given: WaveInputs, state: WaveState, number: Any) -> Metrics:
        """Judges one recorded model, of a program of one plan."""
        behind = (given.program.record_lanes, given.program.record_weights)
        return read(measure(problem, *behind, state.recorded, state.losses, number), 0)


def _on_models(change: Callable[[Any], Any], state: WaveState) -> WaveState:
    """The state, every model in it changed."""
    rows = jax.vmap(change)
    return state._replace(
        params=change(state.params),
        versions=rows(state.versions),
        directions=rows(state.directions),
        recorded=rows(state.recorded),
    )


def _gradients(
    problem: Problem,
    program: Program,
    key: jax.Array,
    wave: jax.Array,
    state: WaveState,
    shards: Shards | None,
) -> tuple[jax.Array, Any, Any]:
    """Losses [L] and gradients (L rows) of a wave's lanes; and what the workers keep after it."""

    def gradient(model: Any, worker: jax.Array, job: jax.Array, kept: Any) -> Any:
        return problem.gradient(model, worker, job, job_key(key, worker, job), kept)

    slots, *jobs = read((program.read_slot, program.worker, program.job), wave)
    models, workers = read_lanes(state.versions, slots), state.workers
    if shards is not None:
        models = shards.lane_models(models)
    if workers is None:
        losses, grads = quick(jax.vmap(gradient))(models, *jobs, None)
    else:  # a wave has one job of a worker, at most
        rows = read(program.state_row, wave)
        kept = read_lanes(workers, rows)
        losses, grads, kept = quick(jax.vmap(gradient))(models, *jobs, kept)
        workers = write(workers, rows, kept)
    return losses, grads if shards is None else shards.rows(grads), workers


def _failed(
    program: Program, wave: jax.Array, failed: jax.Array, loss: jax.Array, grads: Any
) -> jax.Array:
    """The first failure, lanes that take part in no update left out.

    What was computed at a model that is not finite is in a later wave than what made it so.
    """
    rows, worker, job = read((program.direction, program.worker, program.job), wave)
    fails = ~jax.vmap(is_finite)(loss, grads) & (rows < program.sizes.directions)
    lane = jnp.argmax(fails)
    return first_failure(failed, fails[lane], worker[lane], job[lane])


def _runs(
    program: Program, wave: jax.Array, runs: ServiceIntervals | None
) -> ServiceIntervals | None:
    """Writes down when the rows that this wave begins will serve."""
    if runs is None or program.lane_runs is None:
        return None
    row = read(program.direction, wave)
    lanes = read(program.lane_runs, wave)
    return jax.tree.map(lambda kept, new: kept.at[row].set(new.astype(kept.dtype)), runs, lanes)


def _gather_single(program: Program, wave: jax.Array, directions: Any, grads: Any) -> Any:
    """Each lane's gradient is a direction of its own."""
    rows, weight = read((program.direction, program.weight), wave)

    def weighted(grad: jax.Array) -> jax.Array:
        return grad * weight.astype(grad.dtype).reshape(-1, *[1] * (grad.ndim - 1))

    return write(directions, rows, jax.tree.map(weighted, grads))


def _gather_groups(program: Program, wave: jax.Array, directions: Any, grads: Any) -> Any:
    """Adds each lane's gradient to its direction.

    A product, since scattered sums have no order on a GPU.
    """
    rows = jnp.arange(program.sizes.directions + 1)
    is_lane = program.direction[wave] < program.sizes.directions
    is_of = rows[:, None] == program.direction[wave][None]
    share = jnp.where(is_of, program.weight[wave][None], 0.0)
    begins = jnp.append(program.starts[wave], True)

    def add(direction: jax.Array, grad: jax.Array) -> jax.Array:
        def along(mask: jax.Array) -> jax.Array:
            return mask.reshape(-1, *[1] * (grad.ndim - 1))

        precise = jnp.promote_types(grad.dtype, jnp.float32)
        lanes = jnp.where(along(is_lane), grad, 0).astype(precise)
        added = jnp.tensordot(
            share.astype(precise), lanes, axes=1, precision=jax.lax.Precision.HIGHEST
        )
        return (jnp.where(along(begins), 0, direction) + added).astype(direction.dtype)

    return jax.tree.map(add, directions, grads)
