"""What must hold of every trace, read off the trace itself; nothing of it is the library's code.

`check_alone` needs no more than the trace, `check_against` compares it with what the plain server
wrote down, `check_prefix` with a longer trace of the same scenario.
"""

import math

import numpy as np

_COLUMNS = ("time", "worker", "job", "read_version", "version", "used", "steps", "weight", "start")


class Violation(AssertionError):
    """A trace or a run is not what the definitions say."""


def ensure(condition, message, *values):
    """Raises if the condition does not hold; values are put into the message."""
    if not condition:
        raise Violation(message.format(*values))


def directions_of(trace):
    """The directions of all steps: a dictionary {arrival: weight} a step, used arrivals only."""
    ends = np.flatnonzero(trace.steps)
    if trace.reuse is not None:
        rows = list(zip(*(np.asarray(column).tolist() for column in trace.reuse), strict=True))
        directions = [{} for _ in ends]
        for arrival, first, last, weight in rows:
            for u in range(first, last + 1):
                ensure(u < len(ends), "reuse: arrival {} serves in step {}", arrival, u)
                ensure(arrival not in directions[u], "reuse: {} twice in step {}", arrival, u)
                directions[u][arrival] = weight
        return directions
    directions, begin = [], 0
    for end in ends.tolist():
        arrivals = [e for e in range(begin, end + 1) if trace.used[e]]
        directions.append({e: float(trace.weight[e]) for e in arrivals})
        begin = end + 1
    return directions


def check_alone(trace, world):
    """What the trace says of itself."""
    _check_columns(trace)
    _check_directions(trace, world)
    n = world.scenario.n
    ensure(trace.n_workers == n, "n_workers is {} and not {}", trace.n_workers, n)


def _check_columns(trace):
    """Shapes, versions, times, ties."""
    length = trace.n_arrivals
    for name in _COLUMNS:
        ensure(len(getattr(trace, name)) == length, "{} has another length than time", name)
    steps = trace.steps.tolist()
    ensure(bool(steps and steps[-1]), "the trace does not end with a step")
    version = 0
    for e, step in enumerate(steps):
        ensure(trace.version[e] == version, "version of arrival {} is not {} steps", e, version)
        version += step
    read = trace.read_version
    ensure((read >= 0).all() and (read <= trace.version).all(), "a gradient reads the future")
    ensure((trace.delay == trace.version - read).all(), "delay is not version - read_version")
    gaps = np.diff(trace.time)
    ensure((gaps >= 0).all() and np.isfinite(trace.time).all(), "time goes back")
    tied = np.flatnonzero(gaps == 0)
    rises = trace.worker[tied + 1] > trace.worker[tied]
    ensure(rises.all(), "arrivals at one instant are not served by worker index: {}", tied)
    ensure(trace.n_updates == version, "n_updates is not the number of steps")


def _check_directions(trace, world):
    """Shares add up, and a gradient serves once, unless the rule reuses it."""
    directions = directions_of(trace)
    served = {}
    for u, direction in enumerate(directions):
        ensure(bool(direction), "step {} is empty", u)
        if not world.scenario.parameters.get("staleness"):
            total = math.fsum(direction.values())
            ensure(abs(total - 1) < 1e-5, "the weights of step {} add up to {}", u, total)
        for e, weight in direction.items():
            ensure(trace.version[e] <= u, "arrival {} serves before it is there", e)
            ensure(trace.reuse is not None or e not in served, "arrival {} serves twice", e)
            served.setdefault(e, weight)
    for e in range(trace.n_arrivals):
        ensure(bool(trace.used[e]) == (e in served), "used of arrival {} is wrong", e)
        same = math.isclose(float(trace.weight[e]), served.get(e, 0.0), rel_tol=1e-6)
        ensure(same, "weight of arrival {} is {}", e, trace.weight[e])


def check_against(trace, log, world, *, whole=True):
    """The trace is what the plain server wrote down, entry by entry."""
    close = (lambda a, b: a == b) if world.times.is_exact else _close
    ensure(trace.n_arrivals <= len(log.rows), "{} arrivals too many", trace.n_arrivals)
    for e, row in enumerate(log.rows[: trace.n_arrivals]):
        names = ("time", "worker", "job", "read_version", "version", "start", "steps")
        for name, expected in zip(names, row, strict=True):
            found = getattr(trace, name)[e]
            same = close(float(found), float(expected))
            ensure(same, "{} of arrival {} is {}, not {}", name, e, found, expected)
    found = directions_of(trace)
    for u, (taken, expected) in enumerate(zip(found, log.directions, strict=False)):
        ensure(taken.keys() == expected.keys(), "step {} takes {}, not {}", u, taken, expected)
        same = all(math.isclose(taken[e], expected[e], rel_tol=1e-6) for e in taken)
        ensure(same, "step {} weighs {}, not {}", u, taken, expected)
    if not whole:
        return
    ensure(trace.n_arrivals == len(log.rows), "arrivals are missing")
    stopped = [(int(i), float(a), float(b)) for i, a, b in zip(*trace.cancelled, strict=True)]
    expected = log.cancelled
    if world.scenario.k is not None:  # they are stopped at one instant
        stopped, expected = (
            sorted(jobs, key=lambda job: job[::-1]) for jobs in (stopped, expected)
        )
    _check_same("cancelled", stopped, expected, close)
    opened = [
        (int(i), int(read), None if math.isnan(start) else float(start))
        for i, read, start in zip(*trace.open_jobs, strict=True)
    ]
    _check_same("open", opened, log.open_jobs, close)


def _check_same(what, found, expected, close):
    ensure(len(found) == len(expected), "{} {} jobs, not {}", len(found), what, len(expected))
    for job, other in zip(found, expected, strict=True):
        same = all(
            a is b if a is None or b is None else close(a, b)
            for a, b in zip(job, other, strict=True)
        )
        ensure(same, "{} job {}, not {}", what, job, other)


def check_prefix(trace, longer):
    """The trace for fewer updates is the beginning of that for more."""
    length = trace.n_arrivals
    columns = _COLUMNS if trace.reuse is None else tuple(set(_COLUMNS) - {"used", "weight"})
    for name in columns:
        column, other = getattr(trace, name), getattr(longer, name)[:length]
        ensure(np.array_equal(column, other), "{} is not the beginning of a longer trace's", name)
    longer_directions = directions_of(longer)
    for u, direction in enumerate(directions_of(trace)):
        ensure(direction == longer_directions[u], "step {} differs in a longer trace", u)
    count = len(trace.cancelled.worker)
    for column, other in zip(trace.cancelled, longer.cancelled, strict=True):
        ensure(np.array_equal(column, other[:count]), "cancelled jobs differ in a longer trace")


def check_same_bits(one, other):
    """Two traces are the same, bit for bit."""
    flat = [_flat(trace) for trace in (one, other)]
    ensure(flat[0].keys() == flat[1].keys(), "traces have other fields when made again")
    for name, value in flat[0].items():
        again = flat[1][name]
        same = value.dtype == again.dtype and value.tobytes() == again.tobytes()
        ensure(same, "{} is not the same when made again", name)


def _flat(trace):
    found = {}
    for name, value in trace._asdict().items():
        parts = value._asdict() if hasattr(value, "_asdict") else {"": value}
        found.update({f"{name}.{part}": np.asarray(each) for part, each in parts.items()})
    return found


def _close(a, b):
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
