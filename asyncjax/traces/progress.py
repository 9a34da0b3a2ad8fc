"""How far the making of a trace is, told on the host a few times a second."""

import time
from collections.abc import Callable
from typing import NamedTuple

_SECONDS = 0.25


class Progress(NamedTuple):
    """How far a run is."""

    updates: int  # made so far
    n_updates: int  # in all
    time: float  # simulated, time units; epochs where there is no clock


class Pace:
    """Tells `progress` how far a run is, when it is time to."""

    def __init__(self, progress: Callable[[Progress], None], n_updates: int) -> None:
        self._tell, self._n_updates = progress, n_updates
        self._due = time.monotonic() + _SECONDS

    def at(self, updates: int, now: float) -> None:
        """Tells, unless it did so less than a quarter of a second ago."""
        if time.monotonic() >= self._due:
            self._tell(Progress(updates, self._n_updates, float(now)))
            self._due = time.monotonic() + _SECONDS

    def drawn(self, share: float, last: float) -> None:
        """Tells how far a run is that is made in one piece: the share of its draws, of `last`."""
        share = min(share, 1.0)
        self.at(min(int(share * self._n_updates), self._n_updates - 1), share * last)

    def end(self, now: float) -> None:
        """Tells that all updates are made."""
        self._tell(Progress(self._n_updates, self._n_updates, float(now)))


def pace_of(progress: Callable[[Progress], None] | None, n_updates: int) -> Pace | None:
    """The pace of a run, None where nobody wants to know.

    Example:
        >>> seen = []
        >>> pace = pace_of(seen.append, 3)
        >>> pace.end(2.0)
        >>> seen
        [Progress(updates=3, n_updates=3, time=2.0)]
    """
    return None if progress is None else Pace(progress, n_updates)
