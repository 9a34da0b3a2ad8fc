"""Traces up to a time: as many updates as are made by then.

A trace of few updates is a prefix of one of many, so their number N(T) by time T is found by making
traces that grow, at most eightfold at once, until one goes beyond T:

    N <- ceil(N min(8, 1.03 T / time)) + 1      until time > T;      N(T) = #{updates at most at T}
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from asyncjax.checks import real
from asyncjax.traces.event_trace import EventTrace, StalledError

_FIRST, _SPARE, _LEAP = 64, 1.03, 8.0


def made_until(
    make: Callable[[int], EventTrace], until: float | None, n_updates: int | None
) -> EventTrace:
    """The trace of so many updates, or else of all that are made up to a time.

    Args:
        make: `(n_updates) -> trace`, a prefix of that of any larger number.
        until: Time units; None: as many as `n_updates` says.
        n_updates: Number of updates; None: as many as are made by then.

    Raises:
        TypeError: `until` is no number, or both are None.
        ValueError: `until` is not positive and finite, both are given, or no update is made by
            then.
        StalledError: The run cannot go on, and had not reached that time.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), until=4.5)
        >>> trace.update_time
        array([1., 2., 2., 3., 4., 4.])
    """
    if until is None:
        if n_updates is None:
            raise TypeError("n_updates must be an integer of at least 1 where until is None")
        return make(n_updates)
    until = real("until", until, above=0.0)
    if n_updates is not None:
        raise ValueError(f"until must be None where n_updates is given, got {until:g}")
    count = _FIRST
    while True:
        run = _made(make, count, until)
        if run.end > until:
            break
        count = math.ceil(count * min(_LEAP, _SPARE * until / run.end)) + 1
    made = int(np.searchsorted(run.update_time, until, side="right"))
    if not made:
        first = run.update_time[0]
        raise ValueError(f"until must be at least {first:g}, the first update, got {until:g}")
    return make(made)


def _made(make: Callable[[int], EventTrace], count: int, until: float) -> EventTrace:
    """A trace of so many updates, or one that stalls beyond the time that is asked for."""
    try:
        return make(count)
    except StalledError as error:
        if error.trace is None or error.trace.end <= until:
            raise
        return error.trace
