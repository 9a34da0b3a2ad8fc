"""Stall detection: when a run that makes no update is called stuck, and when it is only slow.

Let L be the workers who never deliver again: a job of theirs is lost without a timeout; or they
have left; or they have no job, and only deliverers get any; or their timeout is shorter than any of
their jobs. What is known is told as soon as somebody looks:

    the rule can make no step without somebody of L      (`Collector.is_stuck_without`)
    whoever has a job is in L, and gets his next one himself

Where a job that runs will be given up, but not every job of its worker must be, the next jobs are
looked up: they depend on nothing but their number, unless the clock has powers. A run that goes on
after this is slow, and never called stuck; where it cannot be known (a rule of one's own that does
not say what it needs, powers), it is called stuck after so many events.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

import numpy as np

from asyncjax.traces.dispatch import Dispatch

EVENTS, EVENTS_A_WORKER = 250_000, 100  # without an update, where nothing is known
GIVEN_UP, GIVEN_UP_A_WORKER = 100_000, 20  # in a row, not one arrival among them
JOBS = 100_000  # looked up of one worker
_FIRST_LOOK = 1_024
_DRAWS = 4_000_000  # in one look
_SLACK = 1e-9  # of shortest times, which are rounded like any


class Moment(NamedTuple):
    """What a run looks like, at a time when it has made no update for a while."""

    now: float  # of the next event
    coming: set[int]  # workers whose running job will arrive
    late: dict[int, int]  # workers whose running job will be given up: its number
    lost: set[int]  # workers whose running job is neither delivered nor given up
    jobless: set[int]  # workers without a job, also in their queue, who wait for no step
    silent: int  # arrivals and given-up jobs since the last update
    given_up: int  # jobs given up since the last arrival


class StallDetector:
    """What is known of the rules, clock and timeouts of a run.

    `look_up(worker, job, count) -> int | None` finds the first of `count` jobs from number `job` on
    that is back within the worker's timeout; None for clocks whose times are not known ahead.
    `has_left(worker, now) -> bool` says whether he has no power from now on.
    """

    def __init__(
        self,
        name: str,
        is_stuck_without: Callable[[Set[int]], bool] | None,
        dispatch: Dispatch,
        timeout: list[float],
        least: np.ndarray,
        look_up: Callable[[int, int, int], int | None] | None,
        has_left: Callable[[int, float], bool],
    ) -> None:
        self.name, self.needs, self.timeout, self.least = name, is_stuck_without, timeout, least
        self.answers, self.asks_all = dispatch.answers_deliverer, dispatch.asks_all
        self.never = set(np.flatnonzero(np.asarray(timeout) < least * (1 - _SLACK)).tolist())
        self.look_up = look_up
        self.n_workers = len(timeout)
        self.back: dict[int, int] = {}  # a job that is back in time, by worker
        self.has_left = has_left

    def why_stuck(self, moment: Moment, *, looks_ahead: bool = True) -> str | None:
        """Why no update will ever come, in words; None where one may come."""
        unheard = set(range(self.n_workers)) - moment.coming
        left = {worker for worker in unheard if self.has_left(worker, moment.now)}
        gone = moment.lost | left | (moment.late.keys() & self.never)
        gone |= moment.jobless if self.answers else set()
        open_to = moment.late.keys() - gone
        why = self._known(moment, gone, open_to)
        if why is None and looks_ahead and self._matters(moment, gone, open_to):
            why = self._ahead(moment, gone, open_to)
        if why is not None:
            return why
        if moment.given_up > GIVEN_UP + GIVEN_UP_A_WORKER * self.n_workers:
            return f"{moment.given_up} jobs in a row were given up, and none came back in time"
        is_slow = self.needs is not None and (self.answers or self.asks_all)
        if is_slow and not self._matters(moment, gone, open_to):
            return None
        if moment.silent > EVENTS + EVENTS_A_WORKER * self.n_workers:
            return (
                f"the rule '{self.name}' has not let the server update for {moment.silent} arrivals"
                " and given-up jobs"
            )
        return None

    def _matters(self, moment: Moment, gone: Set[int], open_to: Set[int]) -> bool:
        """Whether the run would be stuck if those who are in doubt were gone."""
        if not open_to:
            return False
        rule = self.needs is not None and self.needs(gone | open_to)
        return rule or (self.answers and not moment.coming)

    def _known(self, moment: Moment, gone: Set[int], open_to: Set[int]) -> str | None:
        """What follows if the workers `gone` never deliver again."""
        never = f"the rule '{self.name}' has not let the server update and never will:"
        if self.needs is not None and self.needs(gone):
            if not gone:
                return f"{never} it says so of itself, whoever delivers"
            alone = [worker for worker in sorted(gone) if self.needs({worker})]
            return f"{never} it waits for {self._reason(alone or sorted(gone), moment)}"
        if self.answers and gone and not moment.coming and not open_to:
            who = self._reason(sorted(gone), moment)
            return f"{never} no job will be back in time, it waits for {who}"
        return None

    def _ahead(self, moment: Moment, gone: set[int], open_to: set[int]) -> str | None:
        """Looks up the next jobs of those in doubt, and moves those who are back or gone."""
        if self.look_up is None:
            return None
        left = _DRAWS
        for count in (_FIRST_LOOK, JOBS):
            for worker in sorted(open_to):
                if left < count:
                    return None
                job = moment.late[worker] + 1
                if self.back.get(worker, -1) < job:
                    back, left = self.look_up(worker, job, count), left - count
                    self.back[worker] = -1 if back is None else back
                if self.back[worker] >= job:
                    open_to.discard(worker)
                elif count == JOBS:
                    open_to.discard(worker)
                    gone.add(worker)
                    why = self._known(moment, gone, open_to)
                    if why is not None:
                        return why
        return None

    def _reason(self, workers: list[int], moment: Moment) -> str:
        """Workers in words, and why the first of them does not deliver."""
        first = workers[0]
        if self.has_left(first, moment.now):
            why = "has no power any more"
        elif first in moment.lost:
            why = "has a job that is lost"
        elif first in moment.jobless:
            why = "has no job and gets none"
        elif first in self.never:
            why = f"takes {self.least[first]:g} at least, its timeout is {self.timeout[first]:g}"
        else:
            why = f"keeps none of its next {JOBS} jobs within its timeout, {self.timeout[first]:g}"
        return f"worker{'s' if len(workers) > 1 else ''} {listed(workers)}; worker {first} {why}"


def listed(workers: list[int]) -> str:
    """The first five of some workers, in words."""
    return ", ".join(map(str, workers[:5])) + (", ..." if len(workers) > 5 else "")
