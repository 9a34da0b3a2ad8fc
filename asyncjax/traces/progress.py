"""How far the making of a trace is, told on the host a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from asyncjax.checks import function

_SECONDS = 0.25
_ALL_DRAWN = 0.95  # of the work; the rest is sorting


class Progress(NamedTuple):
    """How far a run is.

    Attributes:
        updates: Updates made so far.
        n_updates: Updates in all.
        time: Simulated, time units; epochs where there is no clock.
        lost: Times that a worker of a live run was lost so far.
        returned: Times that a lost worker was there again.
        waited: Times that a worker waited for a place, and this was said.
    """

    updates: int
    n_updates: int
    time: float
    lost: int = 0
    returned: int = 0
    waited: int = 0


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
        """Tells how far a run is, about, that is made in one piece: by what is drawn of it.

        `last` is when it will end, about. What is drawn twice as a precaution does not go back.
        """
        self._share = max(self._share, min(share, _ALL_DRAWN))
        self.at(int(self._share * self._n_updates), self._share * last)

    def end(self, now: float, *events: int) -> None:
        """Tells that all updates are made."""
        self._say(self._n_updates, now, events)

    def _say(self, updates: int, now: float, events: tuple[int, ...]) -> None:
        self._tell(Progress(updates, self._n_updates, float(now), *events))


def pace_of(progress: Callable[[Progress], None] | None, n_updates: int) -> Pace | None:
    """The pace of a run, None where nobody wants to know.

    Raises:
        TypeError: `progress` is no function.

    Example:
        >>> seen = []
        >>> pace = pace_of(seen.append, 3)
        >>> pace.end(2.0)
        >>> seen
        [Progress(updates=3, n_updates=3, time=2.0, lost=0, returned=0, waited=0)]
    """
    if progress is None:
        return None
    return Pace(function("progress", progress, "a function of a Progress, or None"), n_updates)
