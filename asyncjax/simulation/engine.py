"""The engine: a replay, in waves or one event at a time.

In waves, for those that like their device busy:

    gradients   G_l = grad f_{i_l}(x_{r_l}; job_l)     all lanes of a wave in one vmapped call
    directions  D_u += w_l G_l                         a row per unfinished update (or a blend)
    workers     s_i <- what worker i keeps             where they keep a state; one row per worker
    updates     x_{v+1} = x_v + optimizer(D_v)         one by one, in the order of the trace

One event at a time, the plainest replay, for doubters and where batching over models loses:

    for each used arrival e:   D += w_e grad f_{i_e}(x_{r_e}; job_e)
                               if e steps:  x <- x + optimizer(D),  D <- 0

(where workers keep a state, for each arrival: it moves that of i_e, also if it is thrown away.)
Both read one program, carry one state and make updates in one way. Models and gradients lie in
buffers, a row each; the optimizer sees the caller's pytree. How many turns there are is no part of
what is compiled.
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
from asyncjax.simulation.cpu_rewrites import convolves, quick
from asyncjax.simulation.example_orders import LearnedVisits, VisitState
from asyncjax.simulation.placement import Shards
from asyncjax.simulation.program import ByGradient, ByUpdate, Program, Sizes
from asyncjax.simulation.rows import (
    ServiceIntervals,
    along,
    blank,
    blend,
    no_intervals,
    read,
    read_lanes,
    repeat,
    when,
    write,
)
from asyncjax.simulation.update import Arrival, Update, job_key, server_step, weighted
from asyncjax.steps import block_labels

SMALL_IN_SWEEPS, SMALL_ALONE = 8192, 1024  # parameters
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


class ReplayInputs(NamedTuple):
    """What a replay is given."""

    program: Program
    key: jax.Array
    opt_state: Any = None  # the optimizer's first; None: `optimizer.init`


class ReplayState(NamedTuple):
    """What a replay carries from turn to turn."""

    params: Any  # the current model
    opt_state: Any
    versions: Any  # S + 1 rows: models still to be read; the last row is scratch
    # Q + 1 rows: unfinished directions, the last is scratch; one event at a time the sum so far, or
    # the rows of a blend or of an aggregator
    directions: Any
    recorded: Any  # R + 1 rows: models to be evaluated; the last row is scratch
    losses: jax.Array  # float, of each gradient's job, in the form of the program's columns
    runs: ServiceIntervals | None  # [rows, K], when each row serves; None: each is one update's
    workers: Any  # n + 1 rows, what the workers keep; the last row is scratch
    arrival_state: Any  # of what treats each gradient as it arrives
    visits: VisitState | None  # of an order that learns from what arrives
    failed: jax.Array  # int32[2], see `first_failure`


@dataclass(frozen=True)
class Replay:
    """A replay, whose turns are the waves or the events of its program."""

    update: Update
    shards: Shards | None = None  # None: one device
    learner: LearnedVisits | None = None  # one event at a time

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The optimizer."""
        return self.update.optimizer

    def init(self, problem: Problem, given: ReplayInputs) -> ReplayState:
        """Every row of the versions holds version 0."""
        program, sizes = given.program, given.program.sizes
        params = jax.tree.map(jnp.asarray, problem.params)
        opt_state = first_state(self.optimizer, params, given.opt_state)
        rows = sizes.directions + 1 if sizes.width else sizes.collected or sizes.directions
        runs, columns = None, program.gradients
        if columns.runs is not None:
            dtype = jnp.result_type(columns.runs.weight)
            runs = no_intervals((rows, sizes.runs), jnp, dtype)
        state = ReplayState(
            params,
            opt_state,
            repeat(self.update.handed(params, opt_state), sizes.slots + 1),
            blank(params, rows) if rows else jax.tree.map(jnp.zeros_like, params),
            blank(params, sizes.records + 1),
            jnp.zeros(np.shape(columns.worker), _loss_type(problem, params)),
            runs,
            _first_workers(problem, sizes),
            self.update.init(params),
            None if self.learner is None else self.learner.begin(given.key),
            jnp.full(2, -1, jnp.int32),
        )
        return self._placed(state)

    def step(
        self, problem: Problem, given: ReplayInputs, state: ReplayState, first: Any, last: Any
    ) -> ReplayState:
        """Runs turns; waves at once and on one device with a small model as a flat vector."""
        if not given.program.sizes.width:
            return self._run(self._event, problem, given, state, first, last)
        is_at_once = last is None and self.shards is None
        small = SMALL_ALONE if is_at_once else 0
        flat, update, restored = flattened(problem, self.update, small)
        if flat is problem:
            return self._run(self._wave, problem, given, state, first, last)
        before = _on_models(lambda model: ravel_pytree(model)[0], state)
        kind = replace(self, update=update)
        return _on_models(restored, kind._run(kind._wave, flat, given, before, first, last))

    def _run(
        self,
        turn: Callable[..., ReplayState],
        problem: Problem,
        given: ReplayInputs,
        state: ReplayState,
        first: Any,
        last: Any,
    ) -> ReplayState:
        """Runs turns `first .. last - 1`, to the end where `last` is None."""
        gradient = problem.gradient
        if given.program.sizes.width:
            gradient = quick(jax.vmap(partial(_lane_gradient, problem, given.key)))
        elif convolves(problem):
            gradient = quick(gradient, random=False)
        last = given.program.n_turns if last is None else last
        return jax.lax.fori_loop(first, last, partial(turn, gradient, given), state)

    def _placed(self, state: ReplayState) -> ReplayState:
        """The state, placed as the shards say."""
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

    # A turn of each kind, and the update of both.

    def _wave(
        self,
        gradient: Callable[..., Any],
        given: ReplayInputs,
        number: jax.Array,
        state: ReplayState,
    ) -> ReplayState:
        """The gradients of all lanes, then the updates that are complete."""
        program, workers, shards = given.program, state.workers, self.shards
        lanes = read(program.gradients._replace(runs=None), number)
        models = read_lanes(state.versions, lanes.read_slot)
        if shards is not None:
            models = shards.lane_models(models)
        if workers is None:
            loss, grads = gradient(models, lanes.worker, lanes.job, None)
        else:  # a wave has one job of a worker, at most
            states = read_lanes(workers, lanes.state_row)
            loss, grads, states = gradient(models, lanes.worker, lanes.job, states)
            workers = write(workers, lanes.state_row, states)
        if shards is not None:
            grads = shards.rows(grads)
        has_row = program.sizes.single or program.sizes.entering
        directions = (_lanes_in_rows if has_row else _lanes_in_groups)(
            program, number, lanes, state.directions, grads
        )
        runs, failed = state.runs, state.failed
        if runs is not None:
            intervals = read(program.gradients.runs, number)
            runs = jax.tree.map(
                lambda old, new: old.at[lanes.row].set(new.astype(old.dtype)), runs, intervals
            )
        if shards is None:  # there it would be sent from device to device in every wave
            # What was computed at a model that is not finite is in a later wave than what made it.
            fails = ~jax.vmap(is_finite)(loss, grads) & (lanes.row < program.sizes.directions)
            lane = jnp.argmax(fails)
            failed = first_failure(failed, fails[lane], lanes.worker[lane], lanes.job[lane])
        losses = write(state.losses, number, loss)
        state = state._replace(directions=directions, runs=runs, losses=losses, workers=workers)
        state = self._updates(given, number, state._replace(failed=failed))
        if not program.sizes.views:
            state = state._replace(recorded=_copied(program, number, state))
        return self._placed(state)

    def _updates(self, given: ReplayInputs, wave: jax.Array, state: ReplayState) -> ReplayState:
        """Makes a wave's updates one by one; with views, what is recorded is a part of it."""
        program, sizes = given.program, given.program.sizes
        first = read(program.first_update, wave)

        def update(turn: jax.Array, moving: tuple[Any, ...]) -> tuple[Any, ...]:
            server, versions, recorded, arrival_state = moving
            number, there = first + turn, None
            if sizes.masked:
                there = number < read(program.first_update, wave + 1)
            now = state._replace(params=server[0], versions=versions, arrival_state=arrival_state)
            direction, arrival_state = self._direction(given, number, there, now)
            row = read(program.updates, number)
            server, versions = self._step(given, row, there, server, versions, direction)
            if sizes.views:
                record = (
                    row.record if there is None else jnp.where(there, row.record, sizes.records)
                )
                recorded = write(recorded, record, server[0])
            return server, versions, recorded, arrival_state

        recorded = state.recorded if sizes.views else None
        moving = ((state.params, state.opt_state), state.versions, recorded, state.arrival_state)
        moving = jax.lax.fori_loop(0, read(program.turns, wave), update, moving)
        (params, opt_state), versions, recorded, arrival_state = moving
        return state._replace(
            params=params,
            opt_state=opt_state,
            versions=versions,
            recorded=recorded if sizes.views else state.recorded,
            arrival_state=arrival_state,
        )

    def _step(
        self,
        given: ReplayInputs,
        updates: ByUpdate,
        there: Any,
        server: tuple[Any, Any],
        versions: Any,
        direction: Any,
        read_params: Any = None,
    ) -> tuple[Any, Any]:
        """One update of (params, optimizer state) and the versions; not `there`: it is padding."""
        if updates.oldest_slot is not None:
            read_params = read(versions, updates.oldest_slot)
        moved = server_step(
            self.optimizer, given.key, server, direction, read_params, updates.extras
        )
        slot = updates.write_slot
        if there is not None:
            moved = jax.tree.map(partial(jnp.where, there), moved, server)
            slot = jnp.where(there, slot, given.program.sizes.slots)
        return moved, write(versions, slot, self.update.handed(*moved))

    def _direction(
        self, given: ReplayInputs, number: Any, there: Any, state: ReplayState
    ) -> tuple[Any, Any]:
        """The direction of an update in a wave, and the state of what treats arrivals."""
        program, entering, runs = given.program, given.program.entering, state.runs
        if entering is None and runs is None:
            row = read(program.updates.row, number)
            return read(state.directions, row), state.arrival_state
        if entering is None:
            assert runs is not None
            blended = jax.tree.map(lambda leaf: blend(leaf, runs, number), state.directions)
            return blended, state.arrival_state

        def arriving(place: jax.Array) -> Arrival:
            at = (number, place)
            return Arrival(
                read(state.directions, read(entering.row, at)),
                read(state.versions, read(entering.slot, at)),
                state.losses.reshape(-1)[read(entering.lane, at)],
                place,
                read(entering.extras, at),
                given.key,
            )

        count = read(entering.count, number)
        count = count if there is None else jnp.where(there, count, 0)
        treated = (state.params, state.arrival_state)
        return self.update.taken(entering, number, count, arriving, *treated)

    def _event(
        self,
        gradient: Callable[..., Any],
        given: ReplayInputs,
        number: jax.Array,
        state: ReplayState,
    ) -> ReplayState:
        """One arrival, and the update if it makes one."""
        program, sizes, learner = given.program, given.program.sizes, self.learner
        e = read(program.gradients, number)
        u = read(program.updates, e.update)
        workers, visits, unit, runs = state.workers, state.visits, e.job, state.runs
        model = _model(state.versions, e.read_slot, state.params)
        key = job_key(given.key, e.worker, e.job)
        if workers is not None:
            loss, grads, carried = gradient(model, e.worker, unit, key, read(workers, e.worker))
            workers = write(workers, e.worker, carried)
        elif learner is None or visits is None:
            loss, grads = gradient(model, e.worker, unit, key)
        else:
            visits, unit, visit = learner.take(visits, e.worker, e.job)
            loss, grads = gradient(model, e.worker, unit, key)
            visits = learner.learn(visits, e.worker, visit, grads)
        fails = ~is_finite(loss, grads)
        fails = fails if e.enters is None else fails & e.enters
        arriving = Arrival(grads, model, loss, e.place, None, given.key)
        grads, arrival_state = self._treated(given, state, e, arriving)
        directions, runs, direction = self._summed(given, state, e, grads)

        def step(before: tuple[Any, Any]) -> tuple[Any, Any]:
            return self._step(given, u, None, *before, direction, model)

        single, server = sizes.single and e.enters is None, (state.params, state.opt_state)
        if single and runs is None:
            server, versions = step((server, state.versions))
        else:
            server, versions = when(e.steps, step, (server, state.versions))
            if runs is None and not sizes.collected:
                directions = jax.tree.map(lambda leaf: jnp.where(e.steps, 0, leaf), direction)
        recorded = when(
            e.steps & (u.record < sizes.records),
            lambda recorded: write(recorded, u.record, server[0]),
            state.recorded,
        )
        return ReplayState(
            server[0],
            server[1],
            versions,
            directions,
            recorded,
            write(state.losses, number, loss),
            runs,
            workers,
            arrival_state,
            visits,
            first_failure(state.failed, fails, e.worker, e.job),
        )

    def _treated(
        self, given: ReplayInputs, state: ReplayState, e: ByGradient, arriving: Arrival
    ) -> tuple[Any, Any]:
        """What the gradient of an event becomes, and the state of what treats it."""
        before, entering = (arriving.gradient, state.arrival_state), given.program.entering
        if entering is None:
            return before
        arriving = arriving._replace(extras=read(entering.extras, (e.update, e.place)))

        def treat(before: tuple[Any, Any]) -> tuple[Any, Any]:
            now = arriving._replace(gradient=before[0])
            return self.update.arrived(now, state.params, before[1])

        return treat(before) if e.enters is None else when(e.enters, treat, before)

    def _summed(
        self, given: ReplayInputs, state: ReplayState, e: ByGradient, grads: Any
    ) -> tuple[Any, ServiceIntervals | None, Any]:
        """The rows with the gradient of an event, when they serve, and the direction so far."""
        rows, runs, entering = state.directions, state.runs, given.program.entering
        if entering is not None and given.program.sizes.collected:
            rows = _put(rows, e, e.place, weighted(grads, e.weight))
            return rows, runs, self.update.together(rows, entering, e.update)
        if runs is None:
            direction = weighted(grads, e.weight)
            if e.enters is not None:  # 0 times NaN is NaN
                direction = jax.tree.map(lambda leaf: jnp.where(e.enters, leaf, 0), direction)
            if not given.program.sizes.single or e.enters is not None:
                direction = jax.tree.map(jnp.add, rows, direction)
            return rows, runs, direction
        added = jax.tree.map(
            lambda row, grad: jnp.where(e.begins, grad, row[e.row] + grad), rows, grads
        )
        rows, runs = _put(rows, e, e.row, added), _put(runs, e, e.row, e.runs)
        assert runs is not None
        return rows, runs, jax.tree.map(lambda leaf: blend(leaf, runs, e.update), rows)

    def finalize(self, problem: Problem, given: ReplayInputs, state: ReplayState) -> ReplayResult:
        """Evaluates the recorded models."""
        program = given.program
        behind = (program.record_lanes, program.record_weights)
        measured = measure(problem, *behind, state.recorded, state.losses)
        if program.record_row is not None:  # version 0 may be before them
            start = len(measured.finite) - program.sizes.records
            rows = jnp.append(jnp.arange(start), start + program.record_row)
            measured = read(measured, rows)
        order_state = None if state.visits is None else state.visits.order_state
        left = (order_state, state.arrival_state, state.workers, state.failed)
        return ReplayResult(state.params, state.opt_state, measured, *left)

    def row(
        self, problem: Problem, given: ReplayInputs, state: ReplayState, number: Any
    ) -> Metrics:
        """Evaluates one recorded model, of a program of one plan."""
        behind = (given.program.record_lanes, given.program.record_weights)
        return read(measure(problem, *behind, state.recorded, state.losses, number), 0)


def flattened(
    problem: Problem, update: Update, small: int = SMALL_IN_SWEEPS
) -> tuple[Problem, Update, Callable[[Any], Any]]:
    """Rewrites a problem of fewer than `small` parameters, and its update, to a flat vector.

    Also returns what makes a model of a vector. A small model takes less time to move as one row
    than as many, since every leaf is a call of its own for the CPU; but putting the leaves together
    costs 1.5 ns a number. One run in waves of 54-8-2 (458 numbers) took 0.94, 0.85 and 0.65 of the
    time of leaves with waves of 64, 13 and 3, one of 64-32-10 (2410 numbers) 1.4 of it; so a single
    run is flat below 1024. In a sweep every row that is moved has an index of its own for each run,
    and the main job, a sweep of a small network, took less time with one vector: there the limit is
    8192. The values are the same.
    """
    leaves = jax.tree.leaves(problem.params)
    is_flat = len(leaves) == 1 and leaves[0].ndim == 1 and leaves[0] is problem.params
    if is_flat or len({leaf.dtype for leaf in leaves}) != 1 or sum(map(np.size, leaves)) >= small:
        return problem, update, lambda params: params
    flat, unravel = ravel_pytree(problem.params)

    def gradient(data: Any, params: Any, *job: Any) -> tuple[Any, ...]:
        loss, grads, *carried = problem.gradient_of(data, unravel(params), *job)
        return loss, ravel_pytree(grads)[0], *carried

    def on_flat(function: Callable[[Any, Any], Any] | None) -> Any:
        if function is None:
            return None
        return lambda data, params: function(data, unravel(params))

    flat_problem = replace(
        problem,
        params=flat,
        gradient_of=gradient,
        worker_state_of=on_flat(problem.worker_state_of),  # it stays the tree that it is
        objective_of=on_flat(problem.objective_of),
        metrics_of=tuple((name, on_flat(metric)) for name, metric in problem.metrics_of),
    )
    return flat_problem, update.flat(unravel), unravel


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
    """The optimizer's state before the first update: the given one, or `optimizer.init`."""
    return jax.tree.map(jnp.asarray, optimizer.init(params) if given is None else given)


def _first_workers(problem: Problem, sizes: Sizes) -> Any:
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


def _loss_type(problem: Problem, params: Any) -> Any:
    """The dtype of a job's loss."""
    key, state = jax.eval_shape(jax.random.key, 0), jax.eval_shape(problem.worker_state)
    return jax.eval_shape(problem.gradient, params, 0, 0, key, state)[0].dtype


def _lane_gradient(
    problem: Problem, key: jax.Array, model: Any, worker: jax.Array, job: jax.Array, state: Any
) -> Any:
    return problem.gradient(model, worker, job, job_key(key, worker, job), state)


def _on_models(change: Callable[[Any], Any], state: ReplayState) -> ReplayState:
    """The state, every model in it changed."""
    rows = jax.vmap(change)
    return state._replace(
        params=change(state.params),
        versions=rows(state.versions),
        directions=rows(state.directions),
        recorded=rows(state.recorded),
    )


def _copied(program: Program, wave: jax.Array, state: ReplayState) -> Any:
    """The recorded models with those that a wave has made."""
    first, sizes = read(program.first_record, wave), program.sizes

    def copy(turn: jax.Array, recorded: Any) -> Any:
        row = first + turn
        model = read(state.versions, read(program.record_slot, row))
        if sizes.masked:
            row = jnp.where(row < read(program.first_record, wave + 1), row, sizes.records)
        return write(recorded, row, model)

    return jax.lax.fori_loop(0, read(program.copies, wave), copy, state.recorded)


def _lanes_in_rows(
    program: Program, wave: jax.Array, lanes: ByGradient, directions: Any, grads: Any
) -> Any:
    """Each lane's gradient is a direction of its own."""

    def weigh(grad: jax.Array) -> jax.Array:
        return grad * along(lanes.weight.astype(grad.dtype), grad)

    return write(directions, lanes.row, jax.tree.map(weigh, grads))


def _lanes_in_groups(
    program: Program, wave: jax.Array, lanes: ByGradient, directions: Any, grads: Any
) -> Any:
    """Adds each lane's gradient to its direction.

    A product, since scattered sums have no order on a GPU.
    """
    rows = jnp.arange(program.sizes.directions + 1)
    is_lane = lanes.row < program.sizes.directions
    share = jnp.where(rows[:, None] == lanes.row[None], lanes.weight[None], 0.0)
    begins = jnp.append(read(program.starts, wave), True)

    def add(direction: jax.Array, grad: jax.Array) -> jax.Array:
        precise = jnp.promote_types(grad.dtype, jnp.float32)
        there = jnp.where(along(is_lane, grad), grad, 0).astype(precise)
        added = jnp.tensordot(
            share.astype(precise), there, axes=1, precision=jax.lax.Precision.HIGHEST
        )
        return (jnp.where(along(begins, grad), 0, direction) + added).astype(direction.dtype)

    return jax.tree.map(add, directions, grads)


def _model(versions: Any, slot: Any, like: Any) -> Any:
    """The model at a slot; from slots int32[m] every entry is of the row of its block."""
    if not slot.ndim:
        return read(versions, slot)

    def gathered(rows: jax.Array, label: jax.Array) -> jax.Array:
        return jnp.take_along_axis(rows, slot[label][None], axis=0)[0]

    return jax.tree.map(gathered, versions, block_labels(like, slot.size))


def _put(rows: Any, e: ByGradient, index: Any, new: Any) -> Any:
    """The rows with one written, unless the gradient of the event is thrown away."""

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        new = new.astype(old.dtype)
        there = new if e.enters is None else jnp.where(e.enters, new, old[index])
        return old.at[index].set(there)

    return jax.tree.map(put, rows, new)


# How models are evaluated.


def measure(
    problem: Problem,
    record_lanes: Any,
    record_weights: Any,
    recorded: Any,
    losses: jax.Array,
    number: Any = None,
) -> Metrics:
    """Evaluates recorded models, one after the other; with a `number` that record alone.

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
        later = read(recorded, jnp.maximum(row, 0))
        return jax.tree.map(lambda *of: jnp.where(row < 0, *of), problem.params, later)

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
    """Evaluates one model; `loss` stands in where there is no objective."""
    objective = problem.objective
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]
    return Metrics(
        loss if objective is None else objective(params),
        problem.metrics(params),
        jnp.all(jnp.array(finite)),
    )
