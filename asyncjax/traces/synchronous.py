"""Synchronous traces.

All workers start together, the server steps with the k fastest and stops the others.

Round r begins at t_r with every worker reading version r. With the finish times f_i = t_r +
duration(i, r),

    used = the k first by (f_i, i),     t_{r+1} = the k-th smallest f_i,     weight = 1/k.

k = n is mini-batch SGD over the workers; k < n is fastest-k (k-sync). Where a policy decides k (and
the load) before every round, from what it has seen of the training, there is no trace beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from asyncjax.checks import instance, real, whole
from asyncjax.clocks import Clock
from asyncjax.traces.event_trace import EventTrace, StalledError
from asyncjax.traces.progress import Progress, pace_of
from asyncjax.traces.random_draws import (
    DurationBlocks,
    check_key,
    count_of_updates,
    finishes,
    on_host,
)
from asyncjax.traces.rounds import compact_trace
from asyncjax.traces.until import made_until


@runtime_checkable
class _Policy(Protocol):
    """What a policy is known by here; `stragglers.Policy` is one."""

    @property
    def init(self) -> Callable[[], Any]:
        """Its first state."""
        ...

    @property
    def decide(self) -> Callable[[Any, Any], Any]:
        """Its state and its choice, from its state and what was observed."""
        ...


@dataclass(frozen=True)
class Synchronous:
    """Synchronous rounds: the server steps with the k fastest of n workers and stops the others.

    `trace` makes the rounds beforehand; `simulation.run_policy` trains with them, and takes a k
    that a policy decides on the way.

    Attributes:
        k: Gradients in a step, 1..n; the other n - k jobs of a round are cancelled. Or a policy of
            `stragglers`, that decides k and the load before every round.
        load: Factor on the compute part of every duration, more than 0; in `run_policy` the samples
            of each worker in a step, a whole number. With a policy it must be left at 1.0.

    Raises:
        TypeError: `load` is no number.
        ValueError: `load` is out of range, or not 1.0 beside a policy.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rounds = traces.Synchronous(k=2)
        >>> rounds.trace(clocks.constant([1.0, 2.0, 9.0]), until=5.0).update_time
        array([2., 4.])

        A policy that goes from one to two workers:

        >>> from asyncjax import stragglers
        >>> rounds = traces.Synchronous(k=stragglers.staged([1, 2], 1, [10, np.inf]))
        >>> rounds.trace(clocks.constant([1.0, 2.0, 9.0]), n_updates=20)
        Traceback (most recent call last):
        ...
        ValueError: k must be a whole number for a trace, got a policy, which decides while it \
trains: use simulation.run_policy

    Reference:
        Dutta et al., Slow and stale gradients can win the race, 2018, k-sync SGD.
    """

    k: int | _Policy
    load: float = 1.0

    def __post_init__(self) -> None:
        load = real("load", self.load, above=0.0)
        if isinstance(self.k, _Policy) and load != 1.0:
            raise ValueError(
                f"load must be 1.0 where k is a policy, which decides the load too, got {load:g}"
            )

    def trace(
        self,
        clock: Clock,
        *,
        n_updates: int | None = None,
        until: float | None = None,
        key: jax.Array | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> EventTrace:
        """Makes the trace.

        Args:
            clock: How long each of the n workers takes.
            n_updates: Number of rounds; each makes one update. Either this or `until`.
            until: Time up to which rounds end, time units, as in `Rule.trace`.
            key: Typed key, needed where the clock is random.
            progress: Called on the host a few times a second with how far the run is, and at its
                end.

        Returns:
            The trace with E = k * n_updates arrivals, delay 0 throughout, and job = read_version =
            version = round.

        Raises:
            ValueError: An argument is out of range, a duration is not positive and finite, the key
                is missing, or a policy decides k.
            StalledError: A round ends never, since fewer than k jobs of it return; a ValueError
                that holds the trace so far.
            TypeError: An argument is of the wrong kind.
        """
        if isinstance(self.k, _Policy):
            raise ValueError(
                "k must be a whole number for a trace, got a policy, which decides while it trains:"
                " use simulation.run_policy"
            )
        asked = clock, self.k, self.load, key, progress
        return made_until(lambda count: _made(*asked, n_updates=count), until, n_updates)


def synchronous(
    clock: Clock,
    *,
    k: int,
    n_updates: int | None = None,
    until: float | None = None,
    load: float = 1.0,
    key: jax.Array | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> EventTrace:
    """Makes the trace of synchronous rounds: `Synchronous(k, load).trace(clock, ...)` in one call.

    Args:
        clock: As in `Synchronous.trace`.
        k: As in `Synchronous`.
        n_updates: As in `Synchronous.trace`.
        until: As in `Synchronous.trace`.
        load: As in `Synchronous`.
        key: As in `Synchronous.trace`.
        progress: As in `Synchronous.trace`.

    Returns:
        The trace, as `Synchronous.trace` makes it.

    Raises:
        ValueError: As in `Synchronous.trace`.
        StalledError: As in `Synchronous.trace`.
        TypeError: An argument is of the wrong kind.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.synchronous(clocks.constant([1.0, 2.0, 9.0]), k=2, n_updates=3)
        >>> trace.time
        array([1., 2., 3., 4., 5., 6.])
    """
    rounds = Synchronous(k, load)
    return rounds.trace(clock, n_updates=n_updates, until=until, key=key, progress=progress)


def _made(
    clock: Clock,
    k: int,
    load: float,
    key: jax.Array | None,
    progress: Callable[[Progress], None] | None,
    *,
    n_updates: int,
) -> EventTrace:
    """The trace of so many rounds."""
    n = instance("clock", clock, Clock, "a Clock, as its factories make it").n_workers
    n_updates, k = count_of_updates(n_updates), whole("k", k, 1, n)
    load = real("load", load, above=0.0)
    check_key(key, "clock" if clock.is_random else None)
    pace = pace_of(progress, n_updates)
    with on_host(key) as host_key:
        duration_key, _ = jax.random.split(host_key)  # the same stream as `asynchronous`
    blocks = DurationBlocks(clock, duration_key, load)

    now = 0.0
    begins, served = np.empty(n_updates), np.empty((n_updates, n), np.int32)
    finished, share = np.empty((n_updates, n)), np.full((n_updates, 1), 1.0 / np.float32(k))
    for r, finish_from in zip(range(n_updates), _rounds(blocks), strict=False):
        finish = finish_from(now)
        order = np.argsort(finish, kind="stable")
        begins[r], served[r], finished[r] = now, order, finish[order]
        if np.isinf(finished[r, k - 1]):
            returned = int(np.isfinite(finish).sum())
            so_far = (
                compact_trace(begins[:r], served[:r], finished[:r], k, share[:r]) if r else None
            )
            raise StalledError(
                f"the trace cannot go on after update {r} at time {now:g}: only {returned} of {n}"
                f" jobs of the next round return, and the server waits for k = {k}",
                so_far,
            )
        now = finished[r, k - 1]
        if pace is not None:
            pace.at(r + 1, now)
    if pace is not None:
        pace.end(now)
    return compact_trace(begins, served, finished, k, share)


def _rounds(blocks: DurationBlocks) -> Iterator[Callable[[float], np.ndarray]]:
    """Per round, the finish times float64[n] as a function of its start."""
    n = blocks.clock.n_workers
    if not blocks.clock.is_plain:
        done, _ = finishes(blocks, 0)
        while True:
            yield lambda now: np.array([finish(now) for finish in done])
    for block in count():
        durations = blocks.draw(np.arange(n), np.full(n, block))
        for r in range(blocks.size):
            yield lambda now, r=r, durations=durations: now + durations[:, r]
