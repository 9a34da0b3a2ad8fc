"""The program of a replay: a plan as padded arrays, ready for a compiled loop.

Sizes are rounded up to a coarse grid and the number of waves is a traced value, so plans of the
same law share one compilation; programs of equal sizes stack, so seeds with traces of their own run
under one vmap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax
import numpy as np

from asyncjax.checks import whole
from asyncjax.simulation.plans.extras import Extras, extras_of
from asyncjax.simulation.plans.per_gradient_inputs import (
    PerGradientInputs,
    entering_of,
    most_entering,
    rows_of,
)
from asyncjax.simulation.plans.plan import ReplayPlan, record_gradients, record_of
from asyncjax.simulation.plans.reuse import ServiceIntervals, place_rows
from asyncjax.simulation.plans.update import Update
from asyncjax.simulation.plans.waves import ceil_to_grid
from asyncjax.traces.event_trace import worker_count

Array = jax.Array | np.ndarray
Scalar = Array | np.integer


@dataclass(frozen=True)
class Sizes:
    """Static sizes of a program, shared by all that run under one compilation.

    Attributes:
        waves: W, capacity; the number that runs is traced.
        width: L, lanes of a wave.
        updates: M, updates after a wave.
        slots: S, versions kept.
        directions: Q, directions kept.
        copies: C, records copied after a wave.
        records: R, models recorded.
        group: B, gradients in an update, at most.
        single: Every direction, or row of a blend, takes exactly one gradient.
        runs: K, times that a row of a blend serves, at most; 0: gradients serve in one update.
        masked: Several plans are stacked and go side by side, so an update may be padding.
        workers: n, workers that keep a state; 0: none do, or the plan has no order of jobs.
        views: Slots hold views, so models are recorded as they are made.
        entering: B, gradients in an update, at most, if each has a row of its own; 0: they are
            summed.
        collected: Rows that are aggregated, B or 0.
    """

    waves: int  # W, capacity; the number that runs is traced
    width: int  # L, lanes of a wave
    updates: int  # M, updates after a wave
    slots: int  # S, versions kept
    directions: int  # Q, directions kept
    copies: int  # C, records copied after a wave
    records: int  # R
    group: int  # B, gradients in an update, at most
    single: bool  # every direction, or row of a blend, takes exactly one gradient
    runs: int  # K, times that a row of a blend serves, at most; 0: gradients serve in one update
    masked: bool  # several plans go side by side, so an update may be padding
    workers: int = 0  # n, workers that keep a state; 0: none do, or the plan has no order of jobs
    views: bool = False  # slots hold views, so models are recorded as they are made
    # B, gradients in an update, at most, if each has a row of its own; 0: they are summed
    entering: int = 0
    collected: int = 0  # rows that are aggregated, B or 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Program:
    """A plan as arrays; index S, Q or R stands for 'nowhere'."""

    n_waves: Scalar  # int32, waves that run
    worker: Array  # int32[W, L]
    job: Array  # int32[W, L]
    read_slot: Array  # int32[W, L], where the lane's model is
    direction: Array  # int32[W, L], where its gradient goes; Q for an idle lane
    weight: Array  # float[W, L], factor of its gradient; 0 for an idle lane
    starts: Array  # bool[W, Q], directions that begin with this wave
    turns: Array  # int32[W], updates made after each wave
    update_direction: Array  # int32[W, M]
    made: Array  # bool[W, M], False: padding
    write_slot: Array  # int32[W, M], where the new version goes; S if nobody reads it
    oldest_slot: Array  # int32[W, M], where the oldest model read is
    extras: Extras  # [W, M] each, of the update
    copies: Array  # int32[W], versions recorded after each wave
    copy_slot: Array  # int32[W, C], versions to be recorded
    copy_record: Array  # int32[W, C], record they become; R: none
    # int32[R, B], flat lanes (wave * L + lane) of the gradients behind each record
    record_lanes: Array
    record_weights: Array  # float[R, B], their weights; 0: padding
    first_slot: Scalar  # int32, where version 0 is kept
    # int32[W, M], which update is made; None where nothing goes by it
    update_number: Array | None
    lane_runs: ServiceIntervals | None  # [W, L, K], when the row of each lane serves
    # int32[W, L], where the state of the lane's worker is; n for an idle lane; None: it has none
    state_row: Array | None
    # int32[T], the record that each update makes, R: none; None without views
    update_record: Array | None
    # [T, B], the gradients of each update; None where they are summed
    entering: PerGradientInputs | None
    # int32[R], the recorded model that each record is of; None: each is of its own
    record_row: Array | None
    sizes: Sizes = field(metadata={"static": True})


def sizes_of(plans: Sequence[ReplayPlan]) -> Sizes:
    """Sizes that hold every one of the plans."""

    def most(values: Sequence[int]) -> int:
        return ceil_to_grid(max(values))

    copies = [np.bincount(plan.waves.update_wave[plan.records - 1]).max() for plan in plans]
    group = max(int(plan.gradients.group_size[plan.records - 1].max()) for plan in plans)
    blends = [plan.blends for plan in plans if plan.blends is not None]
    runs = max([each.runs.first.shape[1] for each in blends], default=0)
    rows = [_rows_of(plan)[2] for plan in plans if plan.blends is not None]
    return Sizes(
        waves=most([plan.n_waves for plan in plans]),
        width=plans[0].width,
        updates=most([int(np.bincount(plan.waves.update_wave).max()) for plan in plans]),
        slots=most([plan.n_slots for plan in plans]),
        directions=plans[0].waves.lookahead if runs == 0 else most(rows),
        copies=most([int(count) for count in copies]),
        records=max(len(plan.records) for plan in plans),
        group=group if group == 1 else ceil_to_grid(group),
        single=all(_largest_sum(plan) == 1 for plan in plans),
        runs=runs,
        masked=len(plans) > 1,
        workers=max(
            0 if plan.gradients.sequence is None else worker_count(plan.trace) for plan in plans
        ),
    )


def with_update(sizes: Sizes, plans: Sequence[ReplayPlan], update: Update) -> Sizes:
    """The sizes of a replay whose server treats models and gradients in a way of its own."""
    sizes = replace(sizes, views=update.worker_params is not None)
    if not update.is_of_arrivals:
        return sizes
    most = max(most_entering(plan) for plan in plans)
    return replace(
        sizes,
        directions=ceil_to_grid(max(rows_of(plan)[1] for plan in plans)),
        entering=most,
        collected=0 if update.aggregator is None else most,
    )


def assemble(plan: ReplayPlan, sizes: Sizes) -> Program:
    """Lays a plan out as arrays of the given sizes (NumPy, on the host)."""
    waves, gradients, trace, enters = plan.waves, plan.gradients, plan.trace, plan.gradients.enters
    lanes = (sizes.waves, sizes.width)
    at = (waves.gradient_wave, waves.gradient_lane)
    weights = plan.weight
    slot = np.where(plan.version_slot < 0, sizes.slots, plan.version_slot)

    updates = (sizes.waves, sizes.updates)
    first = np.searchsorted(waves.update_wave, np.arange(plan.n_waves))
    turn = (waves.update_wave, np.arange(plan.n_updates) - first[waves.update_wave])

    starts = np.zeros((sizes.waves, sizes.directions), bool)
    if plan.blends is None:
        row = np.arange(plan.n_updates) % sizes.directions
        first_wave = np.full(plan.n_updates, sizes.waves)
        np.minimum.at(first_wave, gradients.update[enters], waves.gradient_wave[enters])
        update_row, lane_row, lane_runs = row, row[gradients.update], None
        starts[first_wave, row] = True
    else:
        row, first_wave, _ = _rows_of(plan)
        update_row, lane_row = np.full(plan.n_updates, sizes.directions), row[plan.blends.group]
        lane_runs = _lane_runs(plan, lanes, sizes.runs)
        weights = np.ones_like(weights)  # the blend weighs
        starts[first_wave, row] = True
    if sizes.entering:
        lane_row, weights = rows_of(plan)[0], np.ones_like(weights)  # each in a row of its own
    state_row, worker = None, np.asarray(trace.worker)[gradients.arrival]
    if gradients.sequence is not None:
        lane_row = np.where(enters, lane_row, sizes.directions)  # what is thrown away goes nowhere
        state_row = _scatter(lanes, at, worker, sizes.workers)
    record_wave = waves.update_wave[plan.records - 1]
    place = np.arange(len(plan.records)) - np.searchsorted(record_wave, record_wave)
    copies = (record_wave, place), (sizes.waves, sizes.copies)
    behind, record_weights = record_gradients(plan, sizes.group)
    flat = waves.gradient_wave * sizes.width + waves.gradient_lane
    return Program(
        n_waves=np.int32(plan.n_waves),
        worker=_scatter(lanes, at, worker, 0),
        job=_scatter(lanes, at, np.asarray(trace.job)[gradients.arrival], 0),
        read_slot=_scatter(lanes, at, slot[gradients.read_version], slot[0]),
        direction=_scatter(lanes, at, lane_row, sizes.directions),
        weight=_scatter(lanes, at, weights, 0.0),
        starts=starts,
        turns=np.bincount(waves.update_wave, minlength=sizes.waves).astype(np.int32),
        update_direction=_scatter(updates, turn, update_row, sizes.directions),
        made=_scatter(updates, turn, np.ones(plan.n_updates, bool), False),
        write_slot=_scatter(updates, turn, slot[1:], sizes.slots),
        oldest_slot=_scatter(updates, turn, slot[plan.oldest], sizes.slots),
        extras=jax.tree.map(lambda column: _scatter(updates, turn, column, 0), extras_of(plan)),
        copies=np.bincount(record_wave, minlength=sizes.waves).astype(np.int32),
        copy_slot=_scatter(copies[1], copies[0], slot[plan.records], sizes.slots),
        copy_record=_scatter(copies[1], copies[0], np.arange(len(plan.records)), sizes.records),
        record_lanes=flat[behind].astype(np.int32),
        record_weights=record_weights,
        first_slot=np.int32(slot[0]),
        lane_runs=lane_runs,
        state_row=state_row,
        **_by_update(plan, sizes, turn),
        sizes=sizes,
    )


def _by_update(plan: ReplayPlan, sizes: Sizes, turn: tuple[np.ndarray, np.ndarray]) -> Any:
    """The columns that go by the number of an update, where they are asked for."""
    number, record, entering = None, None, None
    if sizes.runs or sizes.views or sizes.entering:
        shape = (sizes.waves, sizes.updates)
        number = _scatter(shape, turn, np.arange(plan.n_updates), 0)
    if sizes.views:
        record = record_of(plan)[1:]
        record = np.where(record < len(plan.records), record, np.int32(sizes.records))
    if sizes.entering:
        entering = entering_of(plan, sizes.entering, sizes.directions, sizes.slots)
    columns = {"update_number": number, "update_record": record, "entering": entering}
    return {**columns, "record_row": None}  # `stack` says it


def _largest_sum(plan: ReplayPlan) -> int:
    """Gradients summed in one direction or row, at most."""
    if plan.blends is None:
        return int(plan.gradients.group_size.max())
    return int(np.bincount(plan.blends.group[plan.gradients.enters]).max())


def _rows_of(plan: ReplayPlan) -> tuple[np.ndarray, np.ndarray, int]:
    assert plan.blends is not None
    enters, waves = plan.gradients.enters, plan.waves
    blends = plan.blends._replace(group=plan.blends.group[enters])
    return place_rows(blends, waves.gradient_wave[enters], waves.update_wave)


def _lane_runs(plan: ReplayPlan, lanes: tuple[int, int], count: int) -> ServiceIntervals:
    """Runs of every lane's row, [W, L, K]; idle lanes serve nowhere."""
    assert plan.blends is not None
    enters = plan.gradients.enters
    at = (plan.waves.gradient_wave[enters], plan.waves.gradient_lane[enters])
    runs = ServiceIntervals(*(column[plan.blends.group[enters]] for column in plan.blends.runs))
    shape = (*lanes, count)
    out = ServiceIntervals(np.zeros(shape, np.int32), np.full(shape, -1, np.int32), np.zeros(shape))
    for target, column in zip(out, runs, strict=True):
        target[(*at, slice(column.shape[1]))] = column
    return out


def check_sizes(sizes: Sizes, own: Sizes) -> Sizes:
    """Refuses sizes that do not hold what has sizes of its own.

    Example:
        >>> own = Sizes(10, 1, 1, 3, 4, 1, 5, 1, True, 0, False)
        >>> check_sizes(replace(own, waves=20, single=False), own).waves
        20
        >>> check_sizes(replace(own, slots=2), own)
        Traceback (most recent call last):
        ...
        ValueError: sizes must hold the traces, which need slots=3, got slots=2
    """
    if not isinstance(sizes, Sizes):
        raise TypeError(f"sizes must return Sizes, got {sizes!r}")
    for name in (each.name for each in fields(Sizes)):
        given, needed = getattr(sizes, name), getattr(own, name)
        if name in ("width", "records", "masked", "views"):
            holds = given == needed
        elif name in ("entering", "collected"):
            holds = given >= needed if needed else not given
        elif name == "single":
            holds = needed or not given
        else:
            holds = whole(name, given, least=0) >= needed
        if not holds:
            raise ValueError(
                f"sizes must hold the traces, which need {name}={needed}, got {name}={given}"
            )
    return sizes


def stack(plans: Sequence[ReplayPlan], sizes: Sizes | None = None) -> Program:
    """One program for several plans.

    Every array has a leading axis over plans, but for the bounds of the loops.

    The bounds, `n_waves`, `turns` and `copies`, are the largest of the plans, so that under vmap a
    loop stays one loop; what is padding for a plan is masked. Columns by update or record are
    padded by their last entry: no update that is made reads those, and a plan with fewer records
    than another repeats its last one. With sizes that are not `masked` the plans go one after the
    other, and each has bounds of its own. `stacked_axes` gives the axes for vmap.

    Args:
        plans: Plans of one width, as `plan_alike` makes them.
        sizes: Sizes that hold every one of them; None: those of `sizes_of`.

    Returns:
        The program.
    """
    sizes = sizes_of(plans) if sizes is None else sizes
    programs = [assemble(plan, sizes) for plan in plans]
    joined = jax.tree.map(lambda *leaves: np.stack(levelled(leaves)), *programs)
    counts, rows = np.array([len(plan.records) for plan in plans]), np.arange(sizes.records)
    if counts.min() < sizes.records:
        row = np.minimum(rows, counts[:, None] - 1).astype(np.int32)
        joined = replace(joined, record_row=row)
    if not sizes.masked:
        return joined
    return replace(
        joined,
        n_waves=joined.n_waves.max(),
        turns=joined.turns.max(axis=0),
        copies=joined.copies.max(axis=0),
    )


def stacked_axes(program: Program) -> Program:
    """The `in_axes` of a stacked program: 0 everywhere, None for common bounds."""
    axes = jax.tree.map(lambda _: 0, program)
    return replace(axes, n_waves=None, turns=None, copies=None) if program.sizes.masked else axes


def levelled(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The arrays, all as long as the longest: the others repeat their last entry.

    Example:
        >>> [array.tolist() for array in levelled([np.array([1, 2]), np.array([1, 2, 3])])]
        [[1, 2, 2], [1, 2, 3]]
    """
    lengths = {len(array) if np.ndim(array) else 0 for array in arrays}
    if len(lengths) == 1:
        return arrays
    places = np.arange(max(lengths))
    return [array[np.minimum(places, len(array) - 1)] for array in arrays]


def _scatter(
    shape: tuple[int, int], at: tuple[np.ndarray, np.ndarray], values: np.ndarray, fill: float
) -> np.ndarray:
    kinds = {"i": np.int32, "b": np.bool_, "f": np.float64}
    out = np.full(shape, fill, kinds[np.asarray(values).dtype.kind])
    out[at] = values
    return out
