"""One event at a time: the plainest replay, for doubters, tests and comparisons.

    for each used arrival e:   D += w_e grad f_{i_e}(x_{r_e}; job_e)
                               if e steps:  x <- x + optimizer(D),  D <- 0

(where workers keep a state, for each arrival: it moves that of i_e, also if it is thrown away)

The same slots as in the loop over waves, but no batching: each gradient is computed when it
arrives. Where gradients serve in several updates, D has several rows (see `blends`). How many
events there are is no part of what is compiled, so replays of unlike traces share it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.problems import Problem
from asyncjax.simulation.cpu_rewrites import convolves, quick
from asyncjax.simulation.example_orders import LearnedVisits, VisitState
from asyncjax.simulation.loops.loop import Loop, Progress, progress_at
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
from asyncjax.simulation.plans.extras import Extras, extras_of, job_key
from asyncjax.simulation.plans.per_gradient_inputs import PerGradientInputs, entering_of, places
from asyncjax.simulation.plans.plan import ReplayPlan, record_gradients, record_of
from asyncjax.simulation.plans.program import Sizes
from asyncjax.simulation.plans.reuse import ServiceIntervals, blend, empty_runs, place_rows
from asyncjax.simulation.plans.rows import blank, read, repeat, when, write
from asyncjax.simulation.plans.update import Arrival, Update, weighted
from asyncjax.steps import block_labels

_BEHIND = ("record_events", "record_weights")
_LENGTH, _GROWTH = 4096, 4  # events in the shortest columns, and how much more in the next ones
_SLOTS, _SPARE = [20 * _GROWTH**power for power in range(16)], 2**24  # counts; bytes


class Events(NamedTuple):
    """The arrivals of a plan that are computed, G of them, in order."""

    worker: np.ndarray  # int32[G]
    job: np.ndarray  # int32[G]
    # int32[G], where the model is that it reads; [G, m]: where each of its m blocks is
    read_slot: np.ndarray
    weight: np.ndarray  # float64[G]
    steps: np.ndarray  # bool[G], the update is made right after
    write_slot: np.ndarray  # int32[G], S: nowhere
    # int32[G], where the oldest model is that entered; None: it is the one that was read
    oldest_slot: np.ndarray | None
    extras: Extras  # [G] each, of the update that takes it
    record: np.ndarray  # int32[G], R: none
    # int32[R, B], places in the columns of the gradients behind each record
    record_events: Any
    record_weights: Any  # float64[R, B], their weights; 0: padding
    row: Any = None  # int32[G], where the gradient is summed; None: one direction
    begins: Any = None  # bool[G], it is the first there
    runs: ServiceIntervals | None = None  # [G, K], when that row serves
    number: Any = None  # int32[G], the update that is made, if one is
    buffer: np.ndarray | None = None  # bool[Q], as many as there are rows
    enters: Any = None  # bool[G], False: it was thrown away; None: all enter
    place: Any = None  # int32[G], its place among those of its update; None: not asked for


def events_of(plan: ReplayPlan, *, treated: bool = False) -> Events:
    """Lays the used arrivals of a plan out as columns; `treated`: each is looked at by itself."""
    trace, order = plan.trace, np.argsort(plan.gradients.arrival, kind="stable")
    arrival, read_version = plan.gradients.arrival[order], plan.gradients.read_version[order]
    slot = np.where(plan.version_slot < 0, plan.n_slots, plan.version_slot)
    enders = np.flatnonzero(np.asarray(trace.steps))
    # An update is made right after the last used arrival up to its step; thrown-away ones may lie
    # between.
    maker = np.searchsorted(arrival, enders, side="right") - 1
    makes = np.zeros(len(arrival), bool)
    makes[maker] = True
    update = np.minimum(np.searchsorted(maker, np.arange(len(arrival))), plan.n_updates - 1)
    group = int(plan.gradients.group_size[plan.records - 1].max())
    behind, record_weights = record_gradients(plan, group)
    events = Events(
        worker=np.asarray(trace.worker)[arrival],
        job=np.asarray(trace.job)[arrival],
        read_slot=slot[read_version],
        weight=plan.weight[order],
        steps=makes,
        write_slot=slot[update + 1],
        oldest_slot=slot[plan.oldest[update]],
        extras=read(extras_of(plan), update),
        record=record_of(plan)[update + 1],
        record_events=np.argsort(order)[behind],
        record_weights=record_weights,
    )
    enters = plan.gradients.enters[order]
    if plan.gradients.sequence is not None:
        events = events._replace(enters=enters)
    if plan.blends is not None:
        group, number = plan.blends.group[order], np.arange(len(arrival))
        entering = plan.blends._replace(group=group[enters])
        row, begin, n_rows = place_rows(entering, number[enters], maker)
        events = events._replace(
            row=np.where(enters, row[group], 0),
            begins=enters & (begin[group] == number),
            runs=read(plan.blends.runs, group),
            number=update,
            buffer=np.zeros(n_rows, bool),
        )
    if treated:
        by_arrival, place = np.zeros(len(arrival), np.int64), places(plan)
        by_arrival[place[0]] = place[1]
        events = events._replace(number=update, place=by_arrival[order])
    return jax.tree.map(lambda c: c.astype(np.int32) if c.dtype.kind == "i" else c, events)


class EventState(NamedTuple):
    """What the loop over events carries."""

    params: Any  # the current model
    opt_state: Any
    versions: Any  # S + 1 rows, as in `loop.LoopState`
    direction: Any  # the sum so far; with `runs` several rows
    recorded: Any  # R + 1 rows
    runs: ServiceIntervals | None
    visits: VisitState | None  # of an order that learns from what arrives
    losses: Any  # float[G], of each gradient's job
    workers: Any = None  # n + 1 rows, what the workers keep; the last row is scratch
    arrival_state: Any = None  # of what treats each gradient as it arrives
    failed: Any = None  # int32[2], see `first_failure`


class EventInputs(NamedTuple):
    """What a replay of events is given."""

    events: Events
    key: jax.Array
    opt_state: Any = None  # the optimizer's first; None: its own
    entering: PerGradientInputs | None = None  # of gradients that are treated one by one
    count: Any = None  # int32, events that there are, the others are padding; None: all


def inputs_of(
    plan: ReplayPlan, sizes: Sizes, key: jax.Array, opt_state: Any, *, has_objective: bool = False
) -> EventInputs:
    """What a replay of a plan is given; with an objective no job's loss is asked for."""
    entering = None
    if sizes.entering:
        entering = entering_of(plan, sizes.entering, sizes.directions, sizes.slots)
    events = events_of(plan, treated=bool(sizes.entering))
    if has_objective:
        behind = {name: getattr(events, name)[:, :1] for name in _BEHIND}
        events = events._replace(**behind)
    count = np.int32(len(events.worker))
    return EventInputs(padded(events), key, opt_state, entering, count)


def padded(events: Events) -> Events:
    """The columns with padding at their ends, so that most traces have one of few lengths.

    Example:
        >>> rows = np.zeros(5000, np.int32)
        >>> len(padded(Events(*[rows] * 7, Extras(*[rows] * 4), *[rows] * 3)).worker)
        16384
    """
    count, length = len(events.worker), _LENGTH
    while length < count:
        length *= _GROWTH

    def longer(column: np.ndarray) -> np.ndarray:
        rest = np.zeros((length - count, *column.shape[1:]), column.dtype)
        return np.concatenate([column, rest])

    whole = {name: getattr(events, name) for name in (*_BEHIND, "buffer")}
    columns = events._replace(**dict.fromkeys(whole))
    return jax.tree.map(longer, columns)._replace(**whole)


def event_sizes(sizes: Sizes, problem: Problem, *, exact: bool) -> Sizes:
    """The sizes without those of waves, which say nothing of a loop over events.

    Not `exact`, for a small model: slots more than are needed, and if its gradient convolves, the
    most general form of an update, which then costs next to nothing. So replays of unlike traces
    share a compilation.

    Example:
        >>> from asyncjax import problems
        >>> problem = problems.quadratic([[1.0], [3.0]], [[1.0], [1.0]])
        >>> own = Sizes(10, 4, 1, 3, 8, 1, 5, 2, False, 0, False)
        >>> [event_sizes(own, problem, exact=exact).slots for exact in (False, True)]
        [20, 3]
    """
    directions, slots = sizes.directions if sizes.entering else 0, sizes.slots
    single, leaves = sizes.single, jax.tree.leaves(problem.params)
    common = next(count for count in _SLOTS if count >= slots)
    model = sum(np.size(leaf) * jnp.result_type(leaf).itemsize for leaf in leaves)
    if not exact and common * model <= _SPARE:
        slots, single = common, single and not convolves(problem)
    of_waves = {"waves": 0, "width": 0, "updates": 0, "copies": 0, "group": 0}
    return replace(sizes, directions=directions, slots=slots, single=single, **of_waves)


def event_loop(plan: ReplayPlan, kind: ByEvent, given: EventInputs) -> Loop:
    """The replay of a plan, one event at a time."""
    makes = np.cumsum(given.events.steps[: given.count])

    def progress(event: int, _: EventState) -> Progress:
        return progress_at(plan, int(makes[event - 1]) if event else 0)

    return Loop(kind, given, len(makes), progress)


@dataclass(frozen=True)
class ByEvent:
    """A replay whose turns are used arrivals."""

    update: Update
    sizes: Sizes
    learner: LearnedVisits | None = None

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The optimizer."""
        return self.update.optimizer

    def init(self, problem: Problem, given: EventInputs) -> EventState:
        """Every row holds version 0."""
        events, sizes = given.events, self.sizes
        params = jax.tree.map(jnp.asarray, problem.params)
        runs, workers = None, first_workers(problem, sizes)
        rows = sizes.collected if events.buffer is None else len(events.buffer)
        if events.runs is not None:
            runs = empty_runs(rows, sizes.runs, jnp.result_type(events.runs.weight))
        opt_state = first_state(self.optimizer, params, given.opt_state)
        return EventState(
            params,
            opt_state,
            repeat(self.update.handed(params, opt_state), sizes.slots + 1),
            blank(params, rows) if rows else jax.tree.map(jnp.zeros_like, params),
            blank(params, sizes.records + 1),
            runs,
            None if self.learner is None else self.learner.begin(given.key),
            jnp.zeros(len(events.worker), loss_type(problem, params)),
            workers,
            self.update.init(params),
            jnp.full(2, -1, jnp.int32),
        )

    def step(
        self, problem: Problem, given: EventInputs, state: EventState, first: Any, last: Any
    ) -> EventState:
        """Replays events."""
        columns = given.events._replace(record_events=None, record_weights=None, buffer=None)
        if last is None:
            last = len(columns.worker) if given.count is None else given.count

        def numbered(number: jax.Array, state: EventState) -> EventState:
            own = jax.tree.map(lambda column: read(column, number), columns)
            moved, loss = self._event(problem, given, state, own)
            return moved._replace(losses=write(moved.losses, number, loss))

        return jax.lax.fori_loop(first, last, numbered, state)

    def _event(
        self, problem: Problem, given: EventInputs, state: EventState, e: Events
    ) -> tuple[EventState, jax.Array]:
        """One arrival, and the update if it makes one; also returns the loss of its job."""
        learner, workers, key = self.learner, state.workers, given.key
        single = self.sizes.single and e.enters is None
        direction, runs, visits, unit = state.direction, state.runs, state.visits, e.job
        model = _model(state.versions, e.read_slot, state.params)
        own_key = job_key(key, e.worker, e.job)
        gradient = problem.gradient
        if convolves(problem):
            gradient = quick(gradient, random=False)
        if workers is not None:
            kept = read(workers, e.worker)
            loss, grads, kept = gradient(model, e.worker, unit, own_key, kept)
            workers = write(workers, e.worker, kept)
        elif learner is None or visits is None:
            loss, grads = gradient(model, e.worker, unit, own_key)
        else:
            visits, unit, visit = learner.take(visits, e.worker, e.job)
            loss, grads = gradient(model, e.worker, unit, own_key)
            visits = learner.learn(visits, e.worker, visit, grads)
        failed = _failed(state.failed, e, loss, grads)
        treated = self._treated(given, state, e, Arrival(grads, model, loss, e.place, None, key))
        grads, arrival_state = treated
        if given.entering is not None and self.sizes.collected:
            direction = _put(direction, e, e.place, weighted(grads, e.weight))
            whole = self.update.together(direction, given.entering, e.number)
        elif runs is None:
            whole = weighted(grads, e.weight)
            if e.enters is not None:  # 0 times NaN is NaN
                whole = jax.tree.map(lambda leaf: jnp.where(e.enters, leaf, 0), whole)
            if not single:
                whole = jax.tree.map(jnp.add, direction, whole)
        else:
            direction, runs = _summed(direction, runs, grads, e)
            whole = jax.tree.map(lambda leaf: blend(leaf, runs, e.number), direction)

        def step(before: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            server, versions = before[:2], before[2]
            read_params = model if e.oldest_slot is None else read(versions, e.oldest_slot)
            moved = server_step(self.optimizer, key, server, whole, read_params, e.extras)
            return *moved, write(versions, e.write_slot, self.update.handed(*moved))

        before = (state.params, state.opt_state, state.versions)
        if single and runs is None:
            params, opt_state, versions = step(before)
        else:
            params, opt_state, versions = when(e.steps, step, before)
            if runs is None and not self.sizes.collected:
                direction = jax.tree.map(lambda leaf: jnp.where(e.steps, 0, leaf), whole)
        recorded = when(
            e.steps & (e.record < self.sizes.records),
            lambda kept: write(kept, e.record, params),
            state.recorded,
        )
        moved = (params, opt_state, versions, direction, recorded, runs, visits)
        kept = {"workers": workers, "arrival_state": arrival_state, "failed": failed}
        return EventState(*moved, losses=state.losses, **kept), loss

    def _treated(
        self, given: EventInputs, state: EventState, e: Events, arriving: Arrival
    ) -> tuple[Any, Any]:
        """What the gradient of an arrival becomes, and the state of what treats it."""
        before, entering = (arriving.gradient, state.arrival_state), given.entering
        if entering is None:
            return before
        own = arriving._replace(extras=read(entering.extras, (e.number, e.place)))

        def treat(before: tuple[Any, Any]) -> tuple[Any, Any]:
            now = own._replace(gradient=before[0])
            return self.update.arrived(now, state.params, before[1])

        return treat(before) if e.enters is None else when(e.enters, treat, before)

    def finalize(self, problem: Problem, given: EventInputs, state: EventState) -> ReplayResult:
        """Judges the recorded models."""
        behind = (given.events.record_events, given.events.record_weights)
        measured = measure(problem, *behind, state.recorded, state.losses)
        order_state = None if state.visits is None else state.visits.order_state
        left = (order_state, state.arrival_state, state.workers, state.failed)
        return ReplayResult(state.params, state.opt_state, measured, *left)

    def row(self, problem: Problem, given: EventInputs, state: EventState, number: Any) -> Metrics:
        """Judges one recorded model."""
        behind = (given.events.record_events, given.events.record_weights)
        return read(measure(problem, *behind, state.recorded, state.losses, number), 0)


def _model(versions: Any, slot: Any, like: Any) -> Any:
    """The model at a slot; from slots int32[m] every entry is of the row of its block."""
    if not slot.ndim:
        return read(versions, slot)

    def gathered(rows: jax.Array, label: jax.Array) -> jax.Array:
        return jnp.take_along_axis(rows, slot[label][None], axis=0)[0]

    return jax.tree.map(gathered, versions, block_labels(like, slot.size))


def _failed(failed: jax.Array, e: Events, loss: jax.Array, grads: Any) -> jax.Array:
    """The first failure; a gradient that is thrown away is none."""
    fails = ~is_finite(loss, grads)
    fails = fails if e.enters is None else fails & e.enters
    return first_failure(failed, fails, e.worker, e.job)


def _summed(
    direction: Any, runs: ServiceIntervals, grads: Any, e: Events
) -> tuple[Any, ServiceIntervals]:
    """The rows with one gradient more, and when they serve."""
    assert e.runs is not None

    def add(rows: jax.Array, grad: jax.Array) -> jax.Array:
        return jnp.where(e.begins, grad, rows[e.row] + grad)

    added = jax.tree.map(add, direction, grads)
    return _put(direction, e, e.row, added), _put(runs, e, e.row, e.runs)


def _put(rows: Any, e: Events, index: Any, new: Any) -> Any:
    """The rows with one written, unless the gradient of the arrival is thrown away."""

    def put(kept: jax.Array, new: jax.Array) -> jax.Array:
        new = new.astype(kept.dtype)
        return kept.at[index].set(
            new if e.enters is None else jnp.where(e.enters, new, kept[index])
        )

    return jax.tree.map(put, rows, new)
