"""Waves: which gradients are computed together.

A gradient may be computed at any moment between the creation of the version it reads and the update
that takes it. So the used arrivals of a trace are packed, earliest deadline first, into waves of at
most `width` lanes; after each wave the server makes every update whose gradients are all there,
which creates the versions that later waves may read. The result is the asynchronous algorithm
itself: only the moment of computing changes.

Where workers keep a state from job to job, every gradient moves it, also one that is thrown away.
Then all arrivals are computed, in the wave of the update that is formed when they arrive or before,
and a job of a worker in a later wave than its job before.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import jax
import numpy as np

from asyncjax.traces import EventTrace

_FULL = 0.85  # share of lanes that are busy in waves that are rounded up


class WorkerOrder(NamedTuple):
    """What is known of gradients of which each moves its worker; they are sorted by arrival."""

    enters: np.ndarray  # bool[G], it enters some update; False: thrown away
    due: np.ndarray  # int64[G], the update that is formed when it arrives, not falling
    before: np.ndarray  # int64[G], the gradient before of the same worker; -1: it is the first


class Gradients(NamedTuple):
    """The gradients that enter some update, by the first that they enter, then by arrival."""

    arrival: np.ndarray  # int64[G], index in the trace
    read_version: np.ndarray  # int64[G]
    update: np.ndarray  # int64[G], the first update that takes it: 0..T-1; else as `due`
    group_size: np.ndarray  # int64[T], gradients that enter with each update
    sequence: WorkerOrder | None = None  # None: in any order, thrown-away gradients are left out

    @property
    def enters(self) -> np.ndarray:
        """Which gradients enter some update, bool[G]."""
        every = np.ones(len(self.arrival), bool)
        return every if self.sequence is None else self.sequence.enters


class Waves(NamedTuple):
    """A packing of gradients into waves."""

    gradient_wave: np.ndarray  # int64[G], the wave that computes it
    gradient_lane: np.ndarray  # int64[G], its place there
    update_wave: np.ndarray  # int64[T], the wave after which the update is made
    n_waves: int
    width: int
    lookahead: int  # only gradients of the next so many updates are computed


def gradients_of(trace: EventTrace, *, worker_order: bool = False) -> Gradients:
    """The arrivals that enter an update; thrown-away ones need not be computed.

    With `worker_order` all arrivals, for workers that keep a state from job to job. A worker's jobs
    arrive in the order in which it started them (`validate` sees to it).
    """
    n_updates, version = trace.n_updates, np.asarray(trace.version, np.int64)
    read_version = np.asarray(trace.read_version, np.int64)
    if trace.reuse is None:
        arrival = np.flatnonzero(np.asarray(trace.used) & (version < n_updates))
        update = version[arrival]
    else:
        arrival, row = np.unique(trace.reuse.arrival, return_index=True)
        update = trace.reuse.first[row].astype(np.int64)
        order = np.lexsort((arrival, update))
        arrival, update = arrival[order].astype(np.int64), update[order]
    group_size = np.bincount(update, minlength=n_updates)
    if not worker_order:
        return Gradients(arrival, read_version[arrival], update, group_size)
    enters, first = np.zeros(trace.n_arrivals, bool), version.copy()
    enters[arrival], first[arrival] = True, update
    arrival = np.flatnonzero(version < n_updates)
    before = _before(np.asarray(trace.worker)[arrival])
    sequence = WorkerOrder(enters[arrival], version[arrival], before)
    return Gradients(arrival, read_version[arrival], first[arrival], group_size, sequence)


def _before(worker: np.ndarray) -> np.ndarray:
    """The arrival before each one of the same worker, int64[G]; -1: there is none.

    Example:
        >>> _before(np.array([0, 1, 0, 0])).tolist()
        [-1, -1, 0, 2]
    """
    before, by_worker = np.full(len(worker), -1, np.int64), np.argsort(worker, kind="stable")
    early, late = by_worker[:-1], by_worker[1:]
    same = worker[early] == worker[late]
    before[late[same]] = early[same]
    return before


def unbounded_waves(gradients: Gradients) -> np.ndarray:
    """Sizes of the waves that arise without a bound on lanes; these are the fewest waves.

    A wave opens with the server at version v and takes, in order, all gradients up to the first
    that reads a version later than v, or whose worker has another in the wave, if that matters.

    Returns int64[waves].
    """
    sizes: list[int] = []
    latest = np.maximum.accumulate(gradients.read_version)
    at, total, sequence = 0, len(latest), gradients.sequence
    update = gradients.update if sequence is None else sequence.due
    before = None if sequence is None else np.maximum.accumulate(sequence.before)
    while at < total:
        version = int(update[at])
        end = int(np.searchsorted(latest, version, side="right"))
        if before is not None:
            end = min(end, int(np.searchsorted(before, at, side="left")))
        sizes.append(end - at)
        at = end
    return np.array(sizes, np.int64)


def ceil_to_grid(value: float) -> int:
    """Smallest of 1, 2, 3, 5, 10, 20, 40, ... that is at least `value`.

    Sizes on a coarse grid let plans of one law share a compilation; powers of two lie inside its
    steps, not at their ends, because counts of versions crowd just above the number of workers.
    """
    grid = [1, 2, 3, *(5 * 2**power for power in range(29))]
    return next(size for size in grid if size >= value)


def default_width(gradients: Gradients) -> int:
    """Lanes that are nearly always full, equal for traces drawn from the same law.

    The common size where unbounded waves all have it (equal speeds, synchronous rounds), else their
    mean rounded down to 1, 2, 3, 5, 8, 13, ...: a coarse grid lets plans of one law share a
    compilation, and narrow waves are full. On an accelerator, where a wave takes as long filled or
    not, rounded up where that leaves few lanes idle (whose models are moved all the same).
    """
    sizes = unbounded_waves(gradients)
    typical = int(np.median(sizes))
    if len(sizes) == 1 or np.mean(sizes[:-1] == typical) > 0.95:
        return typical
    width, wider, mean = 1, 2, np.mean(sizes)
    while wider <= mean:
        width, wider = wider, width + wider
    rounds_up = jax.default_backend() != "cpu" and mean >= _FULL * wider
    return wider if rounds_up else width


def pack(gradients: Gradients, width: int, lookahead: int) -> Waves:
    """Packs gradients into waves, earliest deadline first: a heap of those that may be computed.

    Where workers keep a state, a gradient also waits for the wave of the one before of its worker.
    """
    n_updates, total = len(gradients.group_size), len(gradients.arrival)
    by_version: list[list[int]] = [[] for _ in range(n_updates + 1)]
    for g, version in enumerate(gradients.read_version.tolist()):
        by_version[version].append(g)
    due, follower, awaited = gradients.update, None, None
    if (sequence := gradients.sequence) is not None:
        is_later, after = sequence.before >= 0, np.full(total, -1, np.int64)
        after[sequence.before[is_later]] = np.flatnonzero(is_later)
        due, follower, awaited = sequence.due, after.tolist(), (1 + is_later).tolist()
    missing, due = np.bincount(due, minlength=n_updates).tolist(), due.tolist()
    ready: list[int] = []

    def come(arrived: list[int]) -> None:
        for g in arrived:
            if awaited is not None:  # a version, and a job before
                awaited[g] -= 1
                if awaited[g]:
                    continue
            heappush(ready, g)

    come(by_version[0])
    gradient_wave, gradient_lane = np.empty(total, np.int64), np.empty(total, np.int64)
    update_wave = np.empty(n_updates, np.int64)
    served = wave = 0
    while served < n_updates:
        lanes, limit = [], served + lookahead
        while ready and len(lanes) < width and due[ready[0]] < limit:
            lanes.append(heappop(ready))
        gradient_wave[lanes], gradient_lane[lanes] = wave, np.arange(len(lanes))
        for g in lanes:
            missing[due[g]] -= 1
        if follower is not None:
            come([follower[g] for g in lanes if follower[g] >= 0])
        while served < n_updates and not missing[served]:
            update_wave[served] = wave
            served += 1
            come(by_version[served])
        wave += 1
    return Waves(gradient_wave, gradient_lane, update_wave, wave, width, lookahead)
