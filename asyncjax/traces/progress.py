"""How far a trace goes: up to a time, at least to a horizon; and how far its making is.

A trace is made by its number of updates N, and that of few is a prefix of that of many. So where a
time T is asked for, traces are made that grow, at most eightfold at once, until they reach it:

    N <- ceil(N min(8, 1.03 T / time)) + 1
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import real, shown, whole, within
from asyncjax.terminal import display
from asyncjax.traces.event_trace import EventTrace, StalledError, worker_count

_SECONDS = 0.25
_ALL_DRAWN = 0.95  # of the work; the rest is sorting
_FIRST, _SPARE, _LEAP = 64, 1.03, 8.0


class Progress(NamedTuple):
    """How far a run is."""

    updates: int  # made so far
    n_updates: int  # in all
    time: float  # simulated, time units; epochs where there is no clock
    lost: int = 0  # times that a worker of a live run was lost so far
    returned: int = 0  # times that a lost worker was there again
    waited: int = 0  # times that a worker waited for a place, and this was said


def teller(progress: Callable[[Progress], None] | bool | None) -> Callable[[Progress], None] | None:
    """What is told how far a run is: a function, for True the display of `terminal`, or nothing."""
    if progress is None or progress is False:
        return None
    if callable(progress):
        return progress
    if progress is not True:
        raise TypeError(
            "progress must be True, None or a function that takes a traces.Progress, got"
            f" {shown(progress)}"
        )
    show = display()

    def tell(now: Progress) -> None:
        lost = f", {now.lost} lost and {now.returned} back" if now.lost else ""
        text = f"{now.updates:,} of {now.n_updates:,} updates, time {now.time:.4g}{lost}"
        show(text, now.updates / max(now.n_updates, 1))

    return tell


class Pace:
    """Tells `progress` how far a run is, when it is time to."""

    def __init__(self, progress: Callable[[Progress], None], n_updates: int) -> None:
        self._tell, self._n_updates = progress, n_updates
        self._due = time.monotonic() + _SECONDS
        self._share = 0.0
        self._events: tuple[int, ...] = ()

    def at(self, updates: int, now: float, *events: int) -> None:
        """Tells, unless it did so less than a quarter of a second ago and no event has come since.

        `events` are the counts of what happened to workers.
        """
        if time.monotonic() >= self._due or (any(events) and events != self._events):
            self._events = events
            self._say(updates, now, events)
            self._due = time.monotonic() + _SECONDS

    def drawn(self, share: float, last: float) -> None:
        """Tells about how far a run is that is made in one piece, by the share drawn of it.

        It will end about at `last`. What is drawn twice as a precaution does not go back.
        """
        self._share = max(self._share, min(share, _ALL_DRAWN))
        self.at(int(self._share * self._n_updates), self._share * last)

    def end(self, now: float, *events: int) -> None:
        """Tells that all updates are made."""
        self._say(self._n_updates, now, events)

    def _say(self, updates: int, now: float, events: tuple[int, ...]) -> None:
        self._tell(Progress(updates, self._n_updates, float(now), *events))


def pace_of(progress: Callable[[Progress], None] | bool | None, n_updates: int) -> Pace | None:
    """The pace of a run, None where nobody wants to know."""
    tell = teller(progress)
    return None if tell is None else Pace(tell, n_updates)


def made_until(
    make: Callable[[int], EventTrace], until: float | None, n_updates: int | None
) -> EventTrace:
    """The trace of so many updates, or of all that are made up to a time.

    `make(n_updates)` is a prefix of that of any larger number.
    """
    if until is None:
        if n_updates is None:
            raise TypeError("n_updates must be an integer of at least 1 where until is None")
        return make(n_updates)
    until = real("until", until, above=0.0)
    if n_updates is not None:
        raise ValueError(f"until must be None where n_updates is given, got {until:g}")
    count, run = _FIRST, None
    while run is None or run.end <= until:
        try:
            run = make(count)
        except StalledError as error:
            if error.trace is None or error.trace.end <= until:
                raise
            run = error.trace
        count = math.ceil(count * min(_LEAP, _SPARE * until / run.end)) + 1
    updates = int(np.searchsorted(run.update_time, until, side="right"))
    if not updates:
        first = run.update_time[0]
        raise ValueError(f"until must be at least {first:g}, the first update, got {until:g}")
    return make(updates)


def lasting(
    make: Callable[[int], Sequence[EventTrace]],
    horizon: ArrayLike,
    *,
    n_updates: int = 8,
    multiple_of: int = 1,
) -> list[EventTrace]:
    """Makes traces of equally many updates that all last at least to their horizon.

    Args:
        make: `(n_updates) -> traces`, each with that many updates: say, one a seed. It is called
            until they last.
        horizon: Time units, one number, or one a trace; more than 0.
        n_updates: Number of updates to begin with.
        multiple_of: The number of updates is a multiple of this; the beginning is rounded up to it,
            too. Equal numbers share compilations.

    Returns:
        What `make` gave last; a trace's last arrival is at its horizon or later.

    Example:
        >>> import jax
        >>> from asyncjax import clocks, traces
        >>> clock, keys = clocks.exponential([1.0, 2.0]), jax.random.split(jax.random.key(0), 3)
        >>> runs = traces.lasting(
        ...     lambda n: [traces.asynchronous(clock, n_updates=n, key=key) for key in keys], 50.0)
        >>> [bool(run.time[-1] >= 50.0) for run in runs], len({run.n_updates for run in runs})
        ([True, True, True], 1)
    """
    horizons = np.asarray(within("horizon", horizon, above=0.0), np.float64)
    unit = whole("multiple_of", multiple_of)
    count = -(-whole("n_updates", n_updates) // unit) * unit
    before, added = None, 0
    while True:
        runs = make(count)
        if horizons.shape not in ((), (len(runs),)):
            raise ValueError(
                f"horizon must be one number or one a trace, {len(runs)}, got shape"
                f" {horizons.shape}"
            )
        ends = np.array([run.end for run in runs], np.float64)
        if np.all(ends >= horizons):
            return list(runs)
        # At one instant a worker delivers no more than once.
        stands = [] if before is None else np.flatnonzero(ends <= before).tolist()
        for place in stands:
            if added > worker_count(runs[place]):
                raise ValueError(
                    f"make must give traces that last longer with more updates, but trace {place}"
                    f" ends at time {runs[place].end:g} with {count - added} updates and with"
                    f" {count}"
                )
        wanted = math.ceil(count * min(_LEAP, float(np.max(_SPARE * horizons / ends))))
        # Rounding up to a larger unit leaves room, too.
        wanted = -(-wanted // unit) * unit if unit > 1 else wanted + 1
        before, added, count = ends, wanted - count, wanted
