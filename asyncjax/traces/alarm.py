"""Alarms: a server that steps by the clock, not only when a gradient arrives.

A rule with a `Timer` is asked after every arrival, and after every step, when the server should
look again if nothing else happens. At that moment it may step with the gradients that are there.
Arrivals of the same instant come first.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple


class Timer(NamedTuple):
    """When one run of a rule rings, in time units; inf: not. An earlier answer is forgotten."""

    begin: Callable[[float], float]  # (now): told at time 0 and after every step
    heard: Callable[[int, float], float]  # (worker, now): told of every arrival, once it is judged
    # (): at that moment, whether the server steps; a gradient must have arrived since the last step
    rings: Callable[[], bool]


class Alarm:
    """When the timer of a run rings next.

    Example:
        >>> alarm = Alarm(Timer(lambda now: inf, lambda worker, now: now + 2.0, lambda: True))
        >>> alarm.hear(0, 5.0, steps=False)
        >>> alarm.at, alarm.ring(), alarm.at
        (7.0, True, inf)
    """

    def __init__(self, timer: Timer | None) -> None:
        self.timer = timer
        self.at = inf if timer is None else max(0.0, timer.begin(0.0))

    def hear(self, worker: int, now: float, *, steps: bool) -> None:
        """Tells of an arrival, and of the step that it made if it did."""
        if self.timer is not None:
            at = self.timer.heard(worker, now)
            self.at = max(now, self.timer.begin(now) if steps else at)

    def ring(self) -> bool:
        """Whether the server steps now, at the time of the alarm."""
        now, self.at = self.at, inf
        if self.timer is None or not self.timer.rings():
            return False
        self.at = max(now, self.timer.begin(now))
        return True
