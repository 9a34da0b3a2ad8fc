"""The plan of a replay: waves and slots, all decided on the host before anything compiles.

`plan` packs the gradients of a trace into waves and gives every live version and every unfinished
direction a slot. Since the trace holds no values, neither does the plan: one plan serves every
problem, optimizer, step size and key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asyncjax.checks import flag, instance, shown, whole
from asyncjax.simulation.plans.reuse import ReusePlan, blends_of, oldest_read
from asyncjax.simulation.plans.slots import allocate
from asyncjax.simulation.plans.waves import (
    Gradients,
    Waves,
    all_gradients,
    default_width,
    pack,
    used_gradients,
)
from asyncjax.traces import EventTrace, validate
from asyncjax.traces.collection import exact_weights

RECORDS = 25  # after updates, at most, where nothing is said
_LOOKAHEAD = 3  # waves' worth of updates; more fills no more lanes


@dataclass(frozen=True)
class ReplayPlan:
    """How a trace is replayed; `plan` makes it.

    Attributes:
        trace: The trace.
        gradients: The arrivals that enter an update; with `worker_order` all of them.
        waves: When each gradient is computed and each update made.
        version_slot: int64[T + 1], where each version is kept; -1 for versions that nobody reads.
        n_slots: Versions kept at once, at most.
        oldest: int64[T], the oldest version read by the gradients of each update.
        records: int64[R], the versions that are recorded, rising, none of them 0.
        blends: Which gradients share a row and when rows serve, group -1 for what was thrown away;
            None where every gradient serves in one update.
        start: Version 0 is recorded too, before the first of them.
    """

    trace: EventTrace
    gradients: Gradients
    waves: Waves
    version_slot: np.ndarray
    n_slots: int
    oldest: np.ndarray
    records: np.ndarray
    blends: ReusePlan | None = None
    start: bool = False

    @property
    def n_waves(self) -> int:
        """Number of waves."""
        return self.waves.n_waves

    @property
    def width(self) -> int:
        """Lanes of a wave."""
        return self.waves.width

    @property
    def n_updates(self) -> int:
        """Number of server updates T."""
        return len(self.oldest)

    @property
    def fill(self) -> float:
        """Share of lanes that compute a gradient."""
        return len(self.gradients.arrival) / (self.n_waves * self.width)

    @property
    def weight(self) -> np.ndarray:
        """Factor of each gradient in its step's direction, float64[G]; 0 if it was thrown away."""
        weight = exact_weights(np.asarray(self.trace.weight))[self.gradients.arrival]
        return weight if self.gradients.sequence is None else weight * self.gradients.enters

    @property
    def update_delay(self) -> np.ndarray:
        """Delay of each update, the largest of its gradients, int64[T].

        (`EventTrace.delay` is that of each arrival.)
        """
        return np.arange(self.n_updates) - self.oldest


def plan(
    trace: EventTrace,
    *,
    width: int | None = None,
    record_every: int | None = None,
    worker_order: bool = False,
) -> ReplayPlan:
    """Plans the replay of a trace.

    Args:
        trace: A valid trace.
        width: Gradients computed together, at least 1. None: as many as keep the lanes nearly
            always full.
        record_every: Record every so many versions, and the last; None: version 0 (where the
            problem has an objective) and at most 25 further, evenly, the last among them.
        worker_order: Computes every arrival, also what the server throws away, and the jobs of a
            worker one after the other: for problems whose workers keep a state
            (`problems.local_steps(..., keep_state=True)`). It costs what is thrown away, and
            narrower waves where a worker arrives often.

    Returns:
        The plan. Cost O(E log E) on the host, about two seconds for a million arrivals.

    Raises:
        TypeError: `width` or `record_every` is no integer, or `worker_order` neither True nor
            False.
        ValueError: One of them is below 1, or the trace is not valid or makes no update.

    Example:
        >>> from asyncjax import clocks, simulation, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 1.0, 1.0, 1.0]), n_updates=40)
        >>> planned = simulation.plan(trace)
        >>> planned.n_waves, planned.width, planned.n_slots
        (10, 4, 4)
    """
    instance("trace", trace, EventTrace, "an EventTrace")
    alike = plan_alike([trace], width=width, record_every=record_every, worker_order=worker_order)
    return alike[0]


def plan_alike(
    traces: Sequence[EventTrace],
    *,
    width: int | None = None,
    record_every: int | None = None,
    worker_order: bool = False,
) -> list[ReplayPlan]:
    """Plans several traces with one width, so that their replays can be stacked and vmapped.

    Args:
        traces: Valid traces; one may make more updates than another.
        width: As in `plan`; None: the smallest default of them.
        record_every: As in `plan`, which None leaves to the number of updates of each trace.
        worker_order: As in `plan`.

    Returns:
        One plan a trace.

    Raises:
        TypeError: As in `plan`.
        ValueError: As in `plan`, or gradients serve in several updates in some of the traces only.

    Example:
        >>> import jax
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.exponential([1.0, 2.0, 4.0])
        >>> made = [traces.asynchronous(clock, until=50.0, key=jax.random.key(s)) for s in (0, 1)]
        >>> one, other = plan_alike(made)
        >>> one.width == other.width, one.n_updates == other.n_updates
        (True, False)
    """
    width = None if width is None else whole("width", width)
    record_every = None if record_every is None else whole("record_every", record_every)
    counts = [validate(trace).n_updates for trace in several("traces", traces)]
    if min(counts) < 1:
        raise ValueError("trace makes no update: steps is False throughout")
    if len({trace.reuse is None for trace in traces}) > 1:
        raise ValueError(
            "traces must be of one kind: some use gradients in several steps, some do not"
        )
    picked = all_gradients if flag("worker_order", worker_order) else used_gradients
    gradients = [picked(trace) for trace in traces]
    width = width or min(map(default_width, gradients))
    per_update = min(len(own.arrival) / n for own, n in zip(gradients, counts, strict=True))
    lookahead = min(max(counts), 1 + int(np.ceil(_LOOKAHEAD * width / per_update)))
    plans = [
        _with_slots(trace, own, pack(own, width, lookahead), recorded_versions(n, record_every))
        for trace, own, n in zip(traces, gradients, counts, strict=True)
    ]
    return [replace(each, start=record_every is None) for each in plans]


def several(name: str, value: Any) -> list[EventTrace]:
    """Some traces, at least one."""
    if not isinstance(value, list | tuple) or isinstance(value, EventTrace):
        raise TypeError(f"{name} must be a list of EventTraces, got {shown(value)}")
    if not value:
        raise ValueError(f"{name} must hold at least one EventTrace, got none")
    return [instance(name, trace, EventTrace, "made of EventTraces") for trace in value]


def recorded_versions(n_updates: int, record_every: int | None) -> np.ndarray:
    """The versions after updates that are recorded, every so many and the last, int64[R].

    Where nothing is said, as many for nearly all numbers of updates, so that records of unlike runs
    are alike.

    Example:
        >>> recorded_versions(60, None).tolist()[:4], recorded_versions(5, 2).tolist()
        ([3, 5, 8, 10], [2, 4, 5])
    """
    if record_every is None:
        return np.unique(-(-np.arange(1, RECORDS + 1) * n_updates // RECORDS))
    every = record_every
    return np.unique(np.append(np.arange(every, n_updates + 1, every), n_updates))


def _with_slots(
    trace: EventTrace, gradients: Gradients, waves: Waves, records: np.ndarray
) -> ReplayPlan:
    n_updates, enters = len(gradients.group_size), gradients.enters
    last_read = np.full(n_updates + 1, -1, np.int64)
    np.maximum.at(last_read, gradients.read_version, gradients.update)
    blends, reuse = None, trace.reuse
    if reuse is None:
        oldest = np.full(n_updates, n_updates, np.int64)
        np.minimum.at(oldest, gradients.update[enters], gradients.read_version[enters])
    else:
        oldest = oldest_read(reuse, trace.read_version, n_updates)
        np.maximum.at(last_read, oldest, np.arange(n_updates))  # handed to the optimizer
        blends = blends_of(reuse, gradients.arrival[enters], exact_weights(reuse.weight))
        group = np.full(len(enters), -1, np.int64)
        group[enters] = blends.group
        blends = blends._replace(group=group)
    # A recorded version stays until its wave's last update has written the version it makes.
    wave_end = np.searchsorted(waves.update_wave, waves.update_wave[records - 1], side="right")
    last_read[records] = np.maximum(last_read[records], wave_end)
    begin = np.where(last_read >= 0, np.arange(n_updates + 1), -1)
    version_slot, n_slots = allocate(begin, last_read)
    return ReplayPlan(trace, gradients, waves, version_slot, n_slots, oldest, records, blends)


def record_of(plan: ReplayPlan) -> np.ndarray:
    """The record that each version becomes, int32[T + 1]; R for those that are none."""
    record = np.full(plan.n_updates + 1, len(plan.records), np.int32)
    record[plan.records] = np.arange(len(plan.records))
    return record


def record_gradients(plan: ReplayPlan, size: int) -> tuple[np.ndarray, np.ndarray]:
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
