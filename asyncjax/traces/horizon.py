"""Traces that last to a horizon: as many updates as it takes, equally many in all of them.

Methods are compared at equal time, but a trace is made by its number of updates T. Beginning with
a few, it grows by what the shortest trace lacks, a little more, and at most eightfold at once:

    T <- ceil(T min(8, 1.03 max_i horizon_i / time_i)) + 1      until time_i >= horizon_i for all i
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import function, shown, whole, within
from asyncjax.traces.event_trace import EventTrace, worker_count
from asyncjax.traces.progress import Progress

_SPARE, _LEAP = 1.03, 8.0


def lasting(
    make: Callable[[int], Sequence[EventTrace]],
    horizon: ArrayLike,
    *,
    n_updates: int = 8,
    multiple_of: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> list[EventTrace]:
    """Makes traces of equally many updates that all last at least to their horizon.

    Args:
        make: `(n_updates) -> traces`, each with that many updates: say, one a seed. It is called
            until they last.
        horizon: Time units, one number, or one a trace; more than 0.
        n_updates: Number of updates to begin with.
        multiple_of: The number of updates is a multiple of this; the beginning is rounded up to it,
            too. Equal numbers share compilations.
        progress: Called after every `make` with the updates made, those that will be asked for next
            (at the end: the same), and the time that all traces reach.

    Returns:
        What `make` gave last; a trace's last arrival is at its horizon or later.

    Raises:
        TypeError: `make` is no function, or gives no list of traces; an argument is of the wrong
            kind.
        ValueError: `horizon` is not positive and finite, or of another length than the traces;
            `make` gives no trace, or one of another number of updates; a trace does not grow.

    Example:
        >>> import jax
        >>> from asyncjax import clocks, traces
        >>> clock, keys = clocks.exponential([1.0, 2.0]), jax.random.split(jax.random.key(0), 3)
        >>> runs = traces.lasting(
        ...     lambda n: [traces.asynchronous(clock, n_updates=n, key=key) for key in keys], 50.0)
        >>> [bool(run.time[-1] >= 50.0) for run in runs], len({run.n_updates for run in runs})
        ([True, True, True], 1)
    """
    function("make", make, "a function n_updates -> traces")
    if progress is not None:
        function("progress", progress, "a function of a Progress, or None")
    within("horizon", horizon, above=0.0)
    horizons = np.asarray(horizon, np.float64)
    unit = whole("multiple_of", multiple_of)
    count = _rounded_up(whole("n_updates", n_updates), unit)
    before, added = None, 0
    while True:
        runs = _made(make, count)
        _check(runs, count, horizons)
        time = np.array([run.end for run in runs], np.float64)
        if np.all(time >= horizons):
            if progress is not None:
                progress(Progress(count, count, float(time.min())))
            return runs
        if before is not None:
            _check_growth(runs, time > before, added, count)
        lacking = float(np.max(_SPARE * horizons / time))
        wanted = math.ceil(count * min(_LEAP, lacking))
        wanted = _rounded_up(wanted, unit) if unit > 1 else wanted + 1  # rounding leaves room, too
        if progress is not None:
            progress(Progress(count, wanted, float(time.min())))
        before, added, count = time, wanted - count, wanted


def _made(make: Callable[[int], Sequence[EventTrace]], count: int) -> list[EventTrace]:
    """What `make` gives, refused if it is no list of traces."""
    runs = make(count)
    if isinstance(runs, EventTrace) or not isinstance(runs, list | tuple):
        what = "one trace" if isinstance(runs, EventTrace) else shown(runs)
        raise TypeError(f"make must give a list of traces, got {what}; return [trace] for one")
    for place, run in enumerate(runs):
        if not isinstance(run, EventTrace):
            raise TypeError(f"make must give a list of traces, got {shown(run)} at place {place}")
    return list(runs)


def _rounded_up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _check(runs: list[EventTrace], count: int, horizons: np.ndarray) -> None:
    """Refuses what is not one trace of `count` updates a horizon."""
    if not runs:
        raise ValueError(f"make must give at least one trace, got none for {count} updates")
    if horizons.shape not in ((), (len(runs),)):
        raise ValueError(
            f"horizon must be one number or one a trace, {len(runs)}, got shape {horizons.shape}"
        )
    for place, run in enumerate(runs):
        if run.n_updates != count:
            raise ValueError(
                f"make must give traces of {count} updates, as asked, but trace {place} has"
                f" {run.n_updates}"
            )


def _check_growth(runs: list[EventTrace], grew: np.ndarray, added: int, count: int) -> None:
    """Refuses a trace that stands still: at one instant a worker delivers no more than once."""
    for place, run in enumerate(runs):
        if not grew[place] and added > worker_count(run):
            raise ValueError(
                f"make must give traces that last longer with more updates, but trace {place} ends"
                f" at time {run.end:g} with {count - added} updates and with {count}"
            )
