"""What a person is told of the workers of a live run: who is lost, who is back, who waits.

Each is one line, a warning of the logger `asyncjax.live`: Python shows those on stderr where a
script sets up no logging, and a program that does has them where it wants them. They are no
`warnings.warn`: that shows the same line once only, and may be set to end the run.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

logger = logging.getLogger("asyncjax.live")


class WorkerEvents(NamedTuple):
    """What happened to the workers of a live run, counted, the time while they are set up included.

    Attributes:
        lost: Times that a worker was lost.
        returned: Times that a lost worker was there again.
        waited: Times that a worker was told of that waited for a place.
    """

    lost: int = 0  # times that a worker was lost
    returned: int = 0  # times that a lost worker was there again
    waited: int = 0  # times that a worker was told of that waited for a place


class News:
    """Tells what happens to workers, and counts it.

    Example:
        >>> news = News("processes", 3)
        >>> news.lost(1, "it was killed", "it is opened again")
        >>> news.back(1)
        >>> news.events
        WorkerEvents(lost=1, returned=1, waited=0)
    """

    def __init__(self, name: str, n_workers: int) -> None:
        self.name, self.n_workers, self.events = name, n_workers, WorkerEvents()
        self.missing: set[int] = set()  # lost, and not back
        self.waiting: set[int] = set()  # for a place, and told of

    def lost(self, worker: int, why: str, then: str, *, for_good: bool = False) -> None:
        """A worker is lost; nothing if it was already, unless it is now for good."""
        is_new = worker not in self.missing
        if not is_new and not for_good:
            return
        self.missing.add(worker)
        self.events = self.events._replace(lost=self.events.lost + is_new)
        left = self._there()
        are = _plural(left, "is", "are")
        logger.warning(
            f"worker {worker} of {self.name} is lost ({why}): {left} of {self.n_workers} workers"
            f" {are} left, {then}"
        )

    def back(self, worker: int) -> None:
        """A worker answers; nothing if it was not lost."""
        if worker not in self.missing:
            return
        self.missing.discard(worker)
        self.events = self.events._replace(returned=self.events.returned + 1)
        left = self._there()
        are = _plural(left, "is", "are")
        logger.warning(
            f"worker {worker} of {self.name} is back: {left} of {self.n_workers} workers {are}"
            " there"
        )

    def wait(self, workers: set[int], why: str) -> None:
        """These workers wait for a place; nothing if all of them were told of already."""
        more = workers - self.waiting
        self.waiting = workers
        if not more:
            return
        self.events = self.events._replace(waited=self.events.waited + len(more))
        wait = _plural(len(workers), "waits", "wait")
        logger.warning(f"{len(workers)} of {self.n_workers} workers of {self.name} {wait}: {why}")

    def go_on(self, events: WorkerEvents) -> None:
        """Counts on from a run that was killed: all its workers were opened again."""
        lost, _, waited = events
        own = self.events
        self.events = WorkerEvents(lost + own.lost, lost + own.returned, waited + own.waited)

    def _there(self) -> int:
        return self.n_workers - len(self.missing)


def free(number: float, total: float, what: str) -> str:
    """How much of something is free, in words.

    Example:
        >>> free(2.0, 4.0, "CPUs"), free(1.0, 4.0, "GPUs")
        ('2 of 4 CPUs are free', '1 of 4 GPUs is free')
    """
    return f"{number:g} of {total:g} {what} {_plural(number, 'is', 'are')} free"


def _plural(number: float, one: str, more: str) -> str:
    return one if number == 1 else more
