"""The program of a replay: a plan as padded arrays, ready for a compiled loop.

One table of columns by gradient and one by update; both ways to run read them:

    in waves           gradients [W, L], by wave and lane;   wave w makes updates f_w .. f_{w+1} - 1
    one event at a time    gradients [G], in the order of their arrival, each with its update

Sizes are rounded up to a coarse grid and the number of turns is a traced value, so plans of the
same law share one compilation; programs of equal sizes stack, so seeds with traces of their own run
under one vmap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax.checks import whole
from asyncjax.problems import Problem
from asyncjax.simulation.plan import ReplayPlan, allocate, place_rows
from asyncjax.simulation.rows import ServiceIntervals, no_intervals, read
from asyncjax.simulation.update import Extras, PerGradientInputs, Update
from asyncjax.simulation.waves import ceil_to_grid
from asyncjax.traces.event_trace import worker_count

Array = jax.Array | np.ndarray
Scalar = Array | np.integer
_LENGTH, _GROWTH = 4096, 4  # events in the shortest columns, and how much more in the next ones
_SLOTS, _SPARE = [20 * _GROWTH**power for power in range(16)], 2**24  # counts; bytes


@dataclass(frozen=True)
class Sizes:
    """Static sizes of a program, shared by all that run under one compilation."""

    waves: int  # W, capacity; the number that runs is traced
    width: int  # L, lanes of a wave; 0: one event at a time
    updates: int  # T, capacity
    slots: int  # S, versions kept
    directions: int  # Q, directions kept
    records: int  # R, models recorded
    group: int  # B, gradients in an update, at most
    single: bool  # every direction, or row of a blend, takes exactly one gradient
    runs: int  # K, times that a row of a blend serves, at most; 0: gradients serve in one update
    masked: bool  # several plans are stacked and go side by side, so an update may be padding
    workers: int = 0  # n, workers that keep a state; 0: none do, or the plan has no order of jobs
    views: bool = False  # slots hold views, so models are recorded as they are made
    # B, gradients in an update, at most, if each has a row; 0: they are summed
    entering: int = 0
    collected: int = 0  # rows that are aggregated, B or 0


class ByGradient(NamedTuple):
    """Columns of the gradients, [W, L] or [G]; row Q stands for 'nowhere'."""

    worker: Any  # int32
    job: Any  # int32
    read_slot: Any  # int32, where the model is; [G, m]: where each of its m blocks is
    weight: Any  # float, its factor; 0 for an idle lane
    # int32, where it is summed; Q for an idle lane or what is thrown away; None: one direction
    row: Any = None
    runs: ServiceIntervals | None = None  # [..., K], when its row serves
    state_row: Any = (
        None  # int32, where its worker's state is; n for an idle lane; None: it has none
    )
    # One event at a time:
    update: Any = None  # int32, the update that takes it
    steps: Any = None  # bool, that update is made right after
    begins: Any = None  # bool, it is the first in its row
    enters: Any = None  # bool, False: it was thrown away; None: all enter
    place: Any = None  # int32, its place among those of its update; None: not asked for


class ByUpdate(NamedTuple):
    """Columns of the updates, [T]; slot S and record R stand for 'nowhere'."""

    write_slot: Any  # int32, where the new version goes
    oldest_slot: Any  # int32, where the oldest model read is; None: it is that of the gradient
    extras: Extras
    row: Any = None  # int32, its direction; None: one event at a time, or a blend
    record: Any = None  # int32, the record that it makes; None: recorded after a wave


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Program:
    """A plan as arrays."""

    n_turns: Scalar  # int32, waves or events that run
    gradients: ByGradient
    updates: ByUpdate
    entering: PerGradientInputs | None  # [T, B], the gradients of each update; None: summed
    # int32[R, B], flat places in the columns of the gradients behind each record
    record_lanes: Array
    record_weights: Array  # float[R, B], their weights; 0: padding
    sizes: Sizes = field(metadata={"static": True})
    # Of waves:
    starts: Array | None = None  # bool[W, Q], directions that begin with this wave
    first_update: Array | None = None  # int32[W + 1]
    turns: Array | None = None  # int32[W], updates made after each wave
    first_record: Array | None = None  # int32[W + 1]
    copies: Array | None = None  # int32[W], versions recorded after each wave
    record_slot: Array | None = None  # int32[R], where they are
    # int32[R], the recorded model that each record is of; None: each is of its own
    record_row: Array | None = None


def sizes_of(plans: Sequence[ReplayPlan], update: Update | None = None) -> Sizes:
    """Sizes in waves that hold every one of the plans, for a server with such an update."""

    def most(values: Any) -> int:
        return ceil_to_grid(max(values))

    group = max(int(plan.gradients.group_size[plan.records - 1].max()) for plan in plans)
    tables = [plan for plan in plans if plan.blends is not None]
    runs = max([plan.blends.runs.first.shape[1] for plan in tables if plan.blends], default=0)
    lookahead = plans[0].waves.lookahead
    sizes = Sizes(
        waves=most(plan.n_waves for plan in plans),
        width=plans[0].width,
        updates=most(plan.n_updates for plan in plans),
        slots=most(plan.n_slots for plan in plans),
        directions=most(_wave_rows(plan)[2] for plan in tables) if runs else lookahead,
        records=max(len(plan.records) for plan in plans),
        group=group if group == 1 else ceil_to_grid(group),
        single=all(_largest_sum(plan) == 1 for plan in plans),
        runs=runs,
        masked=len(plans) > 1,
        workers=max(
            0 if plan.gradients.sequence is None else worker_count(plan.trace) for plan in plans
        ),
    )
    if update is None:
        return sizes
    sizes = replace(sizes, views=update.worker_params is not None)
    if not update.is_of_arrivals:
        return sizes
    entering = max(int(plan.gradients.group_size.max()) for plan in plans)
    rows = ceil_to_grid(max(_rows_of_gradients(plan)[1] for plan in plans))
    collected = 0 if update.aggregator is None else entering
    return replace(sizes, directions=rows, entering=entering, collected=collected)


def extras_of(plan: ReplayPlan) -> Extras:
    """The extras of every update of a plan, columns [T] on the host."""
    trace = plan.trace
    enders = np.flatnonzero(np.asarray(trace.steps))
    return Extras(
        delay=plan.update_delay,
        worker=np.asarray(trace.worker)[enders],
        job=np.asarray(trace.job)[enders],
        time=np.asarray(trace.update_time),
    )


def wave_program(plan: ReplayPlan, sizes: Sizes) -> Program:
    """Lays a plan out in waves, as arrays of the given sizes (NumPy, on the host)."""
    waves, gradients, enters = plan.waves, plan.gradients, plan.gradients.enters
    at = (waves.gradient_wave, waves.gradient_lane)

    def lanes(values: Any, fill: float) -> np.ndarray:
        return _scatter((sizes.waves, sizes.width), at, values, fill)

    slot, weight = _slot_of(plan, sizes.slots), plan.weight
    starts = np.zeros((sizes.waves, sizes.directions), bool)
    runs = None
    if plan.blends is None:
        update_row = np.arange(plan.n_updates) % sizes.directions
        lane_row, first_wave = update_row[gradients.update], np.full(plan.n_updates, sizes.waves)
        np.minimum.at(first_wave, gradients.update[enters], waves.gradient_wave[enters])
        starts[first_wave, update_row] = True
    else:
        row, first_wave, _ = _wave_rows(plan)
        update_row, lane_row = None, row[plan.blends.group]
        runs = _lane_runs(plan, sizes)
        weight = np.ones_like(weight)  # the blend weighs
        starts[first_wave, row] = True
    if sizes.entering:
        lane_row, weight = _rows_of_gradients(plan)[0], np.ones_like(weight)  # each in a row
    worker, state_row = np.asarray(plan.trace.worker)[gradients.arrival], None
    if gradients.sequence is not None:
        lane_row = np.where(enters, lane_row, sizes.directions)  # what is thrown away goes nowhere
        state_row = lanes(worker, sizes.workers)
    by_gradient = ByGradient(
        worker=lanes(worker, 0),
        job=lanes(np.asarray(plan.trace.job)[gradients.arrival], 0),
        read_slot=lanes(slot[gradients.read_version], slot[0]),
        row=lanes(lane_row, sizes.directions),
        weight=lanes(weight, 0.0),
        runs=runs,
        state_row=state_row,
    )
    record_wave = waves.update_wave[plan.records - 1]
    behind, record_weights = _record_gradients(plan, sizes.group)
    flat = waves.gradient_wave * sizes.width + waves.gradient_lane
    every = np.arange(sizes.waves + 1)
    first_update = np.searchsorted(waves.update_wave, every).astype(np.int32)
    first_record = np.searchsorted(record_wave, every).astype(np.int32)
    updates = _by_update(plan, slot)._replace(row=update_row)
    return Program(
        n_turns=np.int32(plan.n_waves),
        gradients=by_gradient,
        updates=_padded(updates if sizes.views else updates._replace(record=None), sizes.updates),
        entering=_entering_of(plan, sizes) if sizes.entering else None,
        record_lanes=flat[behind].astype(np.int32),
        record_weights=record_weights,
        sizes=sizes,
        starts=starts,
        first_update=first_update,
        turns=np.diff(first_update),
        first_record=first_record,
        copies=np.diff(first_record),
        record_slot=slot[plan.records].astype(np.int32),
    )


def event_program(
    plan: ReplayPlan,
    sizes: Sizes,
    problem: Problem | None = None,
    *,
    roomy: bool = False,
    is_general: bool = False,
) -> Program:
    """Lays a plan out as events, in the order of arrival (NumPy, on the host).

    So that replays of unlike traces share a compilation, columns have padding at their ends; where
    it may be `roomy`, a small model has more slots than are needed, and if it `is_general`, the
    most general form of an update. With an objective no job's loss is asked for.
    """
    trace, gradients = plan.trace, plan.gradients
    sizes = replace(sizes, waves=0, width=0, updates=0, directions=0, group=0)
    if problem is not None and roomy:
        sizes = _roomy(sizes, problem.params, is_general=is_general)
    order = np.argsort(gradients.arrival, kind="stable")
    arrival, number = gradients.arrival[order], np.arange(len(order))
    slot = _slot_of(plan, sizes.slots)
    # An update is made right after the last used arrival up to its step; thrown-away ones may lie
    # between.
    maker = np.searchsorted(arrival, np.flatnonzero(np.asarray(trace.steps)), side="right") - 1
    steps = np.zeros(len(arrival), bool)
    steps[maker] = True
    update = np.minimum(np.searchsorted(maker, number), plan.n_updates - 1)
    enters, rank = gradients.enters[order], np.argsort(order)
    more: dict[str, Any] = {}
    if plan.blends is not None:
        group = plan.blends.group[order]
        row_of, begin, n_rows = place_rows(plan, rank, maker)
        sizes = replace(sizes, directions=n_rows)
        more["row"] = np.where(enters, row_of[group], 0)
        more["begins"] = enters & (begin[group] == number)
        more["runs"] = read(plan.blends.runs, group)
    if sizes.entering:
        by_update, place = np.zeros(len(arrival), np.int64), _by_place(plan)
        by_update[place[0]] = place[1]
        more["place"] = by_update[order]
    behind, record_weights = gradients_behind(plan)
    if problem is not None and problem.objective_of is not None:
        behind, record_weights = behind[:, :1], record_weights[:, :1]
    by_gradient = ByGradient(
        worker=np.asarray(trace.worker)[arrival],
        job=np.asarray(trace.job)[arrival],
        read_slot=slot[gradients.read_version[order]],
        weight=plan.weight[order],
        update=update,
        steps=steps,
        enters=None if gradients.sequence is None else enters,
        **more,
    )
    length = _LENGTH
    while length < len(arrival):
        length *= _GROWTH
    return Program(
        n_turns=np.int32(len(arrival)),
        gradients=_padded(by_gradient, length),
        updates=_padded(_by_update(plan, slot), length),
        entering=_entering_of(plan, sizes) if sizes.entering else None,
        record_lanes=behind,
        record_weights=record_weights,
        sizes=sizes,
    )


def _roomy(sizes: Sizes, params: Any, *, is_general: bool) -> Sizes:
    """Sizes of events that most traces share, if that takes little memory."""
    slots = next(count for count in _SLOTS if count >= sizes.slots)
    leaves = jax.tree.leaves(params)
    model = sum(np.size(leaf) * jax.numpy.result_type(leaf).itemsize for leaf in leaves)
    if slots * model > _SPARE:
        return sizes
    return replace(sizes, slots=slots, single=sizes.single and not is_general)


def gradients_behind(plan: ReplayPlan) -> tuple[np.ndarray, np.ndarray]:
    """The gradients behind each record and their weights, [R, B], counted in order of arrival."""
    size = int(plan.gradients.group_size[plan.records - 1].max())
    behind, weights = _record_gradients(plan, size)
    rank = np.argsort(np.argsort(plan.gradients.arrival, kind="stable"))
    return rank[behind].astype(np.int32), weights


def _padded(columns: Any, length: int) -> Any:
    """Columns of one length, longer by repeats of their last entry; integers are int32."""

    def longer(column: np.ndarray) -> np.ndarray:
        column = np.asarray(column)
        column = column.astype(np.int32) if column.dtype.kind == "i" else column
        return column[np.minimum(np.arange(length), len(column) - 1)]

    return jax.tree.map(longer, columns)


def _slot_of(plan: ReplayPlan, nowhere: int) -> np.ndarray:
    """The slot of each version, int64[T + 1]; `nowhere` for those that nobody reads."""
    return np.where(plan.version_slot < 0, nowhere, plan.version_slot)


def _by_update(plan: ReplayPlan, slot: np.ndarray) -> ByUpdate:
    """The columns of the updates, [T]."""
    record = np.full(plan.n_updates + 1, len(plan.records), np.int32)
    record[plan.records] = np.arange(len(plan.records))
    return ByUpdate(slot[1:], slot[plan.oldest], extras_of(plan), record=record[1:])


def _record_gradients(plan: ReplayPlan, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The gradients behind each record and their weights, [R, size]; weight 0 is padding.

    Where version 0 is recorded, its row, of padding alone, is before the others: [1 + R, size].
    """
    gradients = plan.gradients
    entering = np.flatnonzero(gradients.enters)
    order = entering[np.argsort(gradients.update[entering], kind="stable")]
    ends = np.cumsum(gradients.group_size)[plan.records - 1]
    counts = gradients.group_size[plan.records - 1]
    place = np.arange(size)
    there = place < counts[:, None]
    behind = order[np.where(there, (ends - counts)[:, None] + place, 0)]
    weights = np.where(there, plan.weight[behind], 0.0)
    first = np.zeros((int(plan.start), size))
    return np.concatenate([first.astype(behind.dtype), behind]), np.concatenate([first, weights])


# Rows in which gradients wait for their update.


def _largest_sum(plan: ReplayPlan) -> int:
    """Gradients summed in one direction or row, at most."""
    if plan.blends is None:
        return int(plan.gradients.group_size.max())
    return int(np.bincount(plan.blends.group[plan.gradients.enters]).max())


def _wave_rows(plan: ReplayPlan) -> tuple[np.ndarray, np.ndarray, int]:
    """The row of each group of a table, the wave in which it begins, and the number of rows."""
    return place_rows(plan, plan.waves.gradient_wave, plan.waves.update_wave)


def _lane_runs(plan: ReplayPlan, sizes: Sizes) -> ServiceIntervals:
    """When every lane's row serves, [W, L, K]; idle lanes serve nowhere."""
    assert plan.blends is not None
    enters = plan.gradients.enters
    at = (plan.waves.gradient_wave[enters], plan.waves.gradient_lane[enters])
    runs = no_intervals((sizes.waves, sizes.width, sizes.runs), np)
    for target, column in zip(runs, plan.blends.runs, strict=True):
        target[(*at, slice(column.shape[1]))] = column[plan.blends.group[enters]]
    return runs


def _by_place(plan: ReplayPlan) -> tuple[np.ndarray, np.ndarray]:
    """The gradients that enter, by update and then by arrival, and the place of each in its update.

    Both int64[N]; the first are places in the columns of the gradients.
    """
    arrival, update = plan.gradients.arrival, plan.gradients.update
    order = np.lexsort((arrival, update))
    order = order[plan.gradients.enters[order]]
    return order, np.arange(len(order)) - np.searchsorted(update[order], update[order])


def _rows_of_gradients(plan: ReplayPlan) -> tuple[np.ndarray, int]:
    """The row of every gradient that enters, int64[G], and how many rows there are.

    Where every gradient is treated by itself before it is summed, each needs a row from the wave
    that computes it to the update that takes it.
    """
    wave, gradients = plan.waves.gradient_wave, plan.gradients
    order = np.argsort(wave, kind="stable")
    order = order[gradients.enters[order]]
    row = np.zeros(len(wave), np.int64)
    row[order], count = allocate(wave[order], plan.waves.update_wave[gradients.update[order]])
    return row, count


def _entering_of(plan: ReplayPlan, sizes: Sizes) -> PerGradientInputs:
    """The gradients of each update; in waves also where they are."""
    gradients, trace, (order, place) = plan.gradients, plan.trace, _by_place(plan)
    at = (gradients.update[order], place)
    arrival = gradients.arrival[order]

    def column(values: np.ndarray, fill: int = 0) -> np.ndarray:
        return _scatter((plan.n_updates, sizes.entering), at, values, fill)

    extras = Extras(
        delay=gradients.update[order] - gradients.read_version[order],
        worker=np.asarray(trace.worker)[arrival],
        job=np.asarray(trace.job)[arrival],
        time=np.asarray(trace.time)[arrival],
    )
    count, weight = gradients.group_size.astype(np.int32), column(plan.weight[order])
    entering = PerGradientInputs(count, weight, jax.tree.map(column, extras))
    if not sizes.width:
        return entering
    slot = _slot_of(plan, sizes.slots)[gradients.read_version[order]]
    lane = plan.waves.gradient_wave * plan.width + plan.waves.gradient_lane
    return entering._replace(
        row=column(_rows_of_gradients(plan)[0][order], sizes.directions),
        slot=column(slot, sizes.slots),
        lane=column(lane[order]),
    )


def _scatter(
    shape: tuple[int, int], at: tuple[np.ndarray, np.ndarray], values: np.ndarray, fill: float
) -> np.ndarray:
    kinds = {"i": np.int32, "b": np.bool_, "f": np.float64}
    out = np.full(shape, fill, kinds[np.asarray(values).dtype.kind])
    out[at] = values
    return out


# Several plans in one program.


def check_sizes(sizes: Sizes, needed: Sizes) -> Sizes:
    """Refuses sizes that do not hold what is needed.

    Example:
        >>> needed = Sizes(10, 1, 9, 3, 4, 5, 1, True, 0, False)
        >>> check_sizes(replace(needed, waves=20, single=False), needed).waves
        20
        >>> check_sizes(replace(needed, slots=2), needed)
        Traceback (most recent call last):
        ...
        ValueError: sizes must hold the traces, which need slots=3, got slots=2
    """
    for name in (each.name for each in fields(Sizes)):
        given, least = getattr(sizes, name), getattr(needed, name)
        if name in ("width", "records", "masked", "views"):
            holds = given == least
        elif name in ("entering", "collected"):
            holds = given >= least if least else not given
        elif name == "single":
            holds = least or not given
        else:
            holds = whole(name, given, least=0) >= least
        if not holds:
            raise ValueError(
                f"sizes must hold the traces, which need {name}={least}, got {name}={given}"
            )
    return sizes


def stack(plans: Sequence[ReplayPlan], sizes: Sizes | None = None) -> Program:
    """One program in waves for several plans of one width, as `plan_alike` makes them.

    Every array has a leading axis over plans, but for the bounds of the loops.

    The bounds, `n_turns`, `turns` and `copies`, are the largest of the plans, so that under vmap a
    loop stays one loop; what is padding for a plan is masked. Columns end with repeats of their
    last entry: no update that is made reads those, and a plan with fewer records than another
    repeats its last one. With sizes that are not `masked` the plans go one after the other, and
    each has bounds of its own. `stacked_axes` gives the axes for vmap.
    """
    sizes = sizes_of(plans) if sizes is None else sizes
    programs = [wave_program(plan, sizes) for plan in plans]
    joined = jax.tree.map(lambda *leaves: np.stack(levelled(leaves)), *programs)
    counts, rows = np.array([len(plan.records) for plan in plans]), np.arange(sizes.records)
    if counts.min() < sizes.records:
        row = np.minimum(rows, counts[:, None] - 1).astype(np.int32)
        joined = replace(joined, record_row=row)
    if not sizes.masked:
        return joined
    return replace(
        joined,
        n_turns=joined.n_turns.max(),
        turns=joined.turns.max(axis=0),
        copies=joined.copies.max(axis=0),
    )


def stacked_axes(program: Program) -> Program:
    """The `in_axes` of a stacked program: 0 everywhere, None for common bounds."""
    axes = jax.tree.map(lambda _: 0, program)
    return replace(axes, n_turns=None, turns=None, copies=None) if program.sizes.masked else axes


def levelled(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The arrays, all as long as the longest: the others repeat their last entry.

    Example:
        >>> [array.tolist() for array in levelled([np.array([1, 2]), np.array([1, 2, 3])])]
        [[1, 2, 2], [1, 2, 3]]
    """
    lengths = {len(array) if np.ndim(array) else 0 for array in arrays}
    if len(lengths) == 1:
        return arrays
    at = np.arange(max(lengths))
    return [array[np.minimum(at, len(array) - 1)] for array in arrays]
