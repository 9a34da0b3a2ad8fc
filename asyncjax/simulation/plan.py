"""The plan of a replay: waves and slots, all decided on the host before anything compiles.

`plan` packs the gradients of a trace into waves and gives every live version and every unfinished
direction a slot. Since the trace holds no values, neither does the plan: one plan serves every
problem, optimizer, step size and key.

Which versions are still to be read is known from the trace. A version lives from the update that
makes it to the last update that takes a gradient read from it (so that the model it was read from
can be handed to the optimizer); then its slot is free. The peak is the number of distinct live
versions: never more than the open jobs and the current model where each gradient serves in one
update; in tables also the oldest models of rows that still serve.

Where gradients serve in several updates, those that always serve together, with equal weights, are
summed in one row (see `rows.blend`). A table of n workers needs about n rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import whole
from asyncjax.simulation.rows import ServiceIntervals, no_intervals
from asyncjax.simulation.waves import Gradients, Waves, default_width, gradients_of, pack
from asyncjax.traces import EventTrace, validate
from asyncjax.traces.collection import exact_weights
from asyncjax.traces.event_trace import Reuse

RECORDS = 25  # after updates, at most, where nothing is said
_LOOKAHEAD = 3  # waves' worth of updates; more fills no more lanes


class ReusePlan(NamedTuple):
    """Which gradients share a row, N groups of them, and when each group serves."""

    group: np.ndarray  # int64[G], the group of each gradient; -1: thrown away
    runs: ServiceIntervals  # [N, K]


@dataclass(frozen=True)
class ReplayPlan:
    """How a trace is replayed; `plan` makes it."""

    trace: EventTrace  # what is replayed
    gradients: Gradients  # the arrivals that enter an update; with `worker_order` all of them
    waves: Waves  # when each gradient is computed and each update made
    version_slot: np.ndarray  # int64[T + 1], where each version is; -1: nobody reads it
    n_slots: int  # versions kept at once, at most
    oldest: np.ndarray  # int64[T], the oldest version read by the gradients of each update
    records: np.ndarray  # int64[R], the versions that are recorded, rising, none of them 0
    blends: ReusePlan | None = None  # None: every gradient serves in one update
    start: bool = False  # version 0 is recorded too, before the first of them

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

    Example:
        >>> from asyncjax import clocks, simulation, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 1.0, 1.0, 1.0]), n_updates=40)
        >>> planned = simulation.plan(trace)
        >>> planned.n_waves, planned.width, planned.n_slots
        (10, 4, 4)
    """
    alike = plan_alike([trace], width=width, record_every=record_every, worker_order=worker_order)
    return alike[0]


def plan_alike(
    traces: Sequence[EventTrace],
    *,
    width: int | None = None,
    record_every: int | Sequence[int] | None = None,
    worker_order: bool = False,
) -> list[ReplayPlan]:
    """Plans several traces with one width, so that their replays can be stacked and vmapped.

    Args:
        traces: Valid traces; one may make more updates than another. Gradients serve in several
            updates in all of them or in none.
        width: As in `plan`; None: the smallest default of them.
        record_every: As in `plan`, one for all traces or one a trace. None: by the number of
            updates of each trace.
        worker_order: As in `plan`.

    Returns:
        One plan a trace.

    Example:
        >>> import jax
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.exponential([1.0, 2.0, 4.0])
        >>> drawn = [traces.asynchronous(clock, until=50.0, key=jax.random.key(s)) for s in (0, 1)]
        >>> first, second = plan_alike(drawn)
        >>> first.width == second.width, first.n_updates == second.n_updates
        (True, False)
    """
    width = None if width is None else whole("width", width)
    every = _one_a_trace(record_every, len(traces))
    counts = [validate(trace).n_updates for trace in traces]
    if min(counts) < 1:
        raise ValueError("trace makes no update: steps is False throughout")
    if len({trace.reuse is None for trace in traces}) > 1:
        raise ValueError(
            "traces must be of one kind: some use gradients in several steps, some do not"
        )
    gradients = [gradients_of(trace, worker_order=worker_order) for trace in traces]
    width = width or min(map(default_width, gradients))
    per_update = min(len(each.arrival) / n for each, n in zip(gradients, counts, strict=True))
    lookahead = min(max(counts), 1 + int(np.ceil(_LOOKAHEAD * width / per_update)))
    plans = [
        _with_slots(trace, each, pack(each, width, lookahead), recorded_versions(n, its))
        for trace, each, n, its in zip(traces, gradients, counts, every, strict=True)
    ]
    return [replace(each, start=record_every is None) for each in plans]


def _one_a_trace(record_every: Any, n_traces: int) -> list[int | None]:
    if record_every is None:
        return [None] * n_traces
    if np.ndim(record_every) == 0:
        return [whole("record_every", record_every)] * n_traces
    if len(record_every) != n_traces:
        raise ValueError(
            "record_every must be one number for all traces or one a trace"
            f" ({n_traces}), got {len(record_every)}"
        )
    return [whole(f"record_every[{at}]", each) for at, each in enumerate(record_every)]


def plan_of(
    trace: Any, width: Any = None, record_every: Any = None, *, worker_order: bool = False
) -> ReplayPlan:
    """The plan of a trace, or the one that was given.

    Example:
        >>> from asyncjax import clocks, traces
        >>> planned = plan(traces.asynchronous(clocks.constant([1.0]), n_updates=9))
        >>> plan_of(planned, width=2)
        Traceback (most recent call last):
        ...
        ValueError: width must be None where trace is a plan, which has its own (1), got 2
    """
    if not isinstance(trace, ReplayPlan):
        return plan(trace, width=width, record_every=record_every, worker_order=worker_order)
    for name, value, its in (
        ("width", width, f" ({trace.width})"),
        ("record_every", record_every, ""),
    ):
        if value is not None:
            raise ValueError(
                f"{name} must be None where trace is a plan, which has its own{its}, got {value!r}"
            )
    return trace


def trace_of(trace: Any) -> EventTrace:
    """The trace, also of a plan."""
    return trace.trace if isinstance(trace, ReplayPlan) else trace


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
    return np.unique(np.append(np.arange(record_every, n_updates + 1, record_every), n_updates))


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
        oldest = _oldest_read(reuse, trace.read_version, n_updates)
        np.maximum.at(last_read, oldest, np.arange(n_updates))  # handed to the optimizer
        blends = _blends_of(reuse, gradients.arrival[enters])
        group = np.full(len(enters), -1, np.int64)
        group[enters] = blends.group
        blends = blends._replace(group=group)
    # A recorded version stays until its wave's last update has written the version it makes.
    wave_end = np.searchsorted(waves.update_wave, waves.update_wave[records - 1], side="right")
    last_read[records] = np.maximum(last_read[records], wave_end)
    begin = np.where(last_read >= 0, np.arange(n_updates + 1), -1)
    version_slot, n_slots = allocate(begin, last_read)
    return ReplayPlan(trace, gradients, waves, version_slot, n_slots, oldest, records, blends)


# Gradients that serve in several updates.


def _blends_of(reuse: Reuse, arrival: np.ndarray) -> ReusePlan:
    """Groups the gradients of a trace; `arrival` int64[G]."""
    number_of = np.full(int(reuse.arrival.max()) + 1, -1)
    number_of[arrival] = np.arange(len(arrival))
    gradient = number_of[reuse.arrival]
    turn = np.arange(len(gradient)) - np.searchsorted(reuse.arrival, reuse.arrival)
    runs = no_intervals((len(arrival), int(turn.max()) + 1), np)
    runs.first[gradient, turn] = reuse.first
    runs.last[gradient, turn] = reuse.last
    runs.weight[gradient, turn] = exact_weights(reuse.weight)
    keys = np.concatenate([runs.first, runs.last, runs.weight], axis=1)
    _, member, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return ReusePlan(group.reshape(-1), ServiceIntervals(*(column[member] for column in runs)))


def place_rows(
    plan: ReplayPlan, computed: np.ndarray, updated: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """The row of every group, int64[N], the turn in which it begins, and how many rows there are.

    `computed` int64[G], the turn of every gradient; `updated` int64[T], that of every update.
    """
    assert plan.blends is not None
    group, runs = plan.blends
    begin = np.full(len(runs.first), np.iinfo(np.int64).max)
    enters = plan.gradients.enters
    np.minimum.at(begin, group[enters], computed[enters])
    order = np.argsort(begin, kind="stable")
    rows = np.empty(len(begin), np.int64)
    rows[order], n_rows = allocate(begin[order], updated[runs.last.max(axis=1)][order])
    return rows, begin, n_rows


def _oldest_read(reuse: Reuse, read_version: np.ndarray, n_updates: int) -> np.ndarray:
    """The oldest version read by the gradients of each update, int64[T]; `read_version` int[E]."""
    read = np.asarray(read_version, np.int64)[reuse.arrival]
    oldest = np.full(n_updates + 1, n_updates, np.int64)
    # Leads to the first update from here on that is not decided yet.
    pending = np.arange(n_updates + 1)

    def free(update: int) -> int:
        root = update
        while pending[root] != root:
            root = pending[root]
        while pending[update] != root:
            pending[update], update = root, pending[update]
        return root

    for k in np.argsort(read, kind="stable").tolist():
        update = free(int(reuse.first[k]))
        while update <= reuse.last[k]:
            oldest[update] = read[k]
            pending[update] = update + 1
            update = free(update)
    return oldest[:-1]


# Slots, allocated like registers.


def allocate(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, int]:
    """Gives each interval the lowest slot that is free, and how many slots there are.

    `first` int[K], not falling but for those below 0, which get no slot; `last` int[K], at least
    `first`.

    Example:
        >>> allocate(np.array([0, 0, 1, 3]), np.array([2, 0, 4, 3]))
        (array([0, 1, 1, 0]), 2)
    """
    slots, count, released = np.full(len(first), -1, np.int64), 0, 0
    lives = np.flatnonzero(first >= 0)
    by_end = lives[np.argsort(last[lives], kind="stable")]
    # How many of them have ended before each begins: the first so many of `by_end`.
    ended = np.searchsorted(last[by_end], first[lives], side="left")
    free: list[int] = []
    for k, until in zip(lives.tolist(), ended.tolist(), strict=True):
        while released < until:
            heappush(free, int(slots[by_end[released]]))
            released += 1
        if free:
            slots[k] = heappop(free)
        else:
            slots[k], count = count, count + 1
    return slots, count
