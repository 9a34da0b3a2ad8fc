"""Sound traces of every kind, and ways to damage them."""

import numpy as np

from asyncjax import clocks, traces

CLOCK = clocks.constant([1.0, 2.0, 3.0, 5.0])
FRESH = traces.asynchronous(CLOCK, n_updates=12, collect=traces.rennala(2))
SPANS = clocks.recorded(np.random.default_rng(0).integers(1, 6, (4, 40)) / 1.0)
STOPPED = traces.asynchronous(SPANS, n_updates=12, collect=traces.ringmaster(2, cancel=True))
# nine jobs on four workers: most of the open ones wait
QUEUED = traces.asynchronous(
    CLOCK,
    n_updates=12,
    dispatch=traces.given(np.arange(200) % 4),
    collect=traces.buffered(2),
    concurrency=9,
)
TABLE = traces.asynchronous(CLOCK, n_updates=12, collect=traces.table(max_age=4))
RING = traces.asynchronous(CLOCK, n_updates=12, collect=traces.ringleader())
ROUNDS = traces.synchronous(CLOCK, k=3, n_updates=6)
CLOCKED = traces.asynchronous(CLOCK, n_updates=9, collect=traces.grace_period(0.5))
LOG = traces.from_delays([0, 1, 0, 2, 1, 3], worker=[0, 1, 0, 1, 2, 0])


def changed(trace, field, change):
    """The trace with `change` applied to a column, or to one of a part (`"part.column"`)."""
    name, _, column = field.partition(".")
    if not column:
        return trace._replace(**{name: change(getattr(trace, name))})
    part = getattr(trace, name)
    return trace._replace(**{name: part._replace(**{column: change(getattr(part, column))})})


def put(trace, field, place, value):
    def write(column):
        column = column.copy()
        column[place] = value
        return column

    return changed(trace, field, write)


def rows(trace, part, order):
    """The rows of a part (None: the arrivals) in another order, of another number."""
    if part is not None:
        return trace._replace(
            **{part: type(getattr(trace, part))(*(c[order] for c in getattr(trace, part)))}
        )
    names = [*trace._fields[:8], *(["start"] if trace.start is not None else [])]
    return trace._replace(**{name: getattr(trace, name)[order] for name in names})


def without(trace, place, part=None):
    """The trace without one row; versions are what they must be then."""
    length = len(trace.time if part is None else getattr(trace, part)[0])
    cut = rows(trace, part, np.delete(np.arange(length), place))
    return cut._replace(version=(np.cumsum(cut.steps) - cut.steps).astype(np.int32))


def swapped(trace, one, other, part=None):
    order = np.arange(len(trace.time if part is None else getattr(trace, part)[0]))
    order[[one, other]] = order[[other, one]]
    return rows(trace, part, order)


def twice(trace, place, part=None):
    length = len(trace.time if part is None else getattr(trace, part)[0])
    return rows(trace, part, np.sort(np.append(np.arange(length), place)))


LAST = len(FRESH.time) - 1
UNUSED = int(np.flatnonzero(~FRESH.used)[0])
KEPT = int(np.flatnonzero(FRESH.used & ~FRESH.steps)[2])  # used, makes no step
OWN = np.flatnonzero(FRESH.worker == 0)  # arrivals of one worker
WAITS = int(np.flatnonzero(np.isnan(QUEUED.open_jobs.start))[0])
SECOND = int(np.flatnonzero(np.diff(TABLE.reuse.arrival) == 0)[0]) + 1  # an arrival's second row


def of_one_instant(trace):
    """Two arrivals at one instant, neither of which makes a step."""
    ties = (np.diff(trace.time) == 0) & ~trace.steps[1:] & ~trace.steps[:-1]
    place = int(np.flatnonzero(ties)[0])
    return place, place + 1
