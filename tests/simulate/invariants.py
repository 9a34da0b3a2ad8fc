"""What must hold of every trace, read off the trace itself; nothing of it is the library's code.

`check_alone` needs no more than the trace and the clock, `check_against` compares it with what the
plain server wrote down, `check_prefix` with a longer trace of the same scenario.
"""

import math
from itertools import pairwise

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
        own = [e for e in range(begin, end + 1) if trace.used[e]]
        directions.append({e: float(trace.weight[e]) for e in own})
        begin = end + 1
    return directions


def check_alone(trace, world, *, whole=True):
    """What the trace says of itself; `whole`: it is not one that was cut short."""
    _check_columns(trace)
    _check_jobs(trace, world, whole)
    _check_conservation(trace, world, whole)
    _check_directions(trace, world)
    keeps = world.scenario.parameters.get("refresh") is False  # old models are handed out again
    if world.scenario.read == "assignment" and world.scenario.k is None and not keeps:
        for i in range(world.scenario.n):
            read = trace.read_version[trace.worker == i]
            ensure((np.diff(read) >= 0).all(), "worker {} delivers an older model later", i)


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


def _check_jobs(trace, world, whole):
    """Numbers of jobs, one at a time, durations, timeouts, models at the start."""
    n, end = world.scenario.n, float(trace.time[-1])
    ensure(((trace.worker >= 0) & (trace.worker < n)).all(), "a worker is not there")
    ensure(trace.n_workers == n, "n_workers is {} and not {}", trace.n_workers, n)
    jobs = [[] for _ in range(n)]  # (start, end, job or None, kind)
    for e in range(trace.n_arrivals):
        place = (float(trace.start[e]), float(trace.time[e]), int(trace.job[e]), "arrived")
        jobs[trace.worker[e]].append(place)
    for worker, start, time in zip(*trace.cancelled, strict=True):
        jobs[worker].append((float(start), float(time), None, "cancelled"))
    for worker, _, start in zip(*trace.open_jobs, strict=True):
        if not math.isnan(start):
            jobs[worker].append((float(start), math.inf, None, "open"))
    for worker, own in enumerate(jobs):
        own.sort(key=lambda job: job[:2])
        for earlier, later in pairwise(own):
            ensure(earlier[1] <= later[0], "worker {} has two jobs at once", worker)
        if whole:
            _check_numbers(world, worker, own, end)
    _check_reads(trace, world)


def _check_numbers(world, worker, own, end):
    """Jobs 0, 1, 2, ... of a worker, by their start, and how long each takes."""
    patience = world.scenario.timeout
    limit = math.inf if patience is None else np.broadcast_to(patience, world.scenario.n)[worker]
    limit = math.inf if world.scenario.k is not None else limit
    for number, (start, until, job, kind) in enumerate(own):
        ensure(job in (None, number), "job {} of worker {} is its {}th", job, worker, number)
        due = world.times.finish(worker, number, start)
        deadline = start + limit
        if kind == "arrived":
            ensure(until <= deadline, "job {} of {} came after its timeout", number, worker)
            same = until == due if world.times.is_exact else math.isclose(until, due, rel_tol=1e-9)
            ensure(same, "job {} of {} arrives at {}, not at {}", number, worker, until, due)
        elif kind == "cancelled":
            late = until > min(due, deadline) * (1 + 1e-9)
            ensure(not late, "job {} of {} is stopped after its end", number, worker)
        else:
            ensure(
                min(due, deadline) >= end * (1 - 1e-9), "job {} of {} is overdue", number, worker
            )


def _check_reads(trace, world):
    """No model is read before it is there, nor, at the start, one that is not the newest."""
    updates = trace.time[trace.steps]
    newest = np.searchsorted(updates, trace.start, side="right")
    ensure((trace.read_version <= newest).all(), "a job starts with a model that is not there yet")
    if world.scenario.read == "start" and world.scenario.k is None:
        before = np.searchsorted(updates, trace.start, side="left")
        ensure((trace.read_version >= before).all(), "a job starts with an old model")


def _check_conservation(trace, world, whole):
    """Handed out = arrived + cancelled + open."""
    own, n_open = world.scenario, len(trace.open_jobs.worker)
    if own.k is not None:
        ensure(n_open == 0, "a synchronous round leaves jobs open")
        stopped = trace.n_updates * (own.n - own.k)
        ensure(len(trace.cancelled.worker) == stopped, "not {} jobs are stopped", stopped)
        return
    first = own.n if own.concurrency is None else own.concurrency
    if whole:
        ensure(n_open == first, "{} jobs are open, {} were handed out at first", n_open, first)
    if own.collect == "immediately" and own.timeout is None and whole:
        ages = trace.n_updates - trace.open_jobs.read_version.astype(int)
        total, expected = trace.delay.sum() + ages.sum(), trace.n_updates * (first - 1)
        if own.read == "assignment":
            ensure(total == expected, "delays and ages add up to {}, not {}", total, expected)


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
    for u, (own, expected) in enumerate(zip(found, log.directions, strict=False)):
        ensure(own.keys() == expected.keys(), "step {} takes {}, not {}", u, own, expected)
        same = all(math.isclose(own[e], expected[e], rel_tol=1e-6) for e in own)
        ensure(same, "step {} weighs {}, not {}", u, own, expected)
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
    for own, other in zip(found, expected, strict=True):
        same = all(
            a is b if a is None or b is None else close(a, b)
            for a, b in zip(own, other, strict=True)
        )
        ensure(same, "{} job {}, not {}", what, own, other)


def check_prefix(trace, longer):
    """The trace for fewer updates is the beginning of that for more."""
    length = trace.n_arrivals
    columns = _COLUMNS if trace.reuse is None else tuple(set(_COLUMNS) - {"used", "weight"})
    for name in columns:
        own, other = getattr(trace, name), getattr(longer, name)[:length]
        ensure(np.array_equal(own, other), "{} is not the beginning of a longer trace's", name)
    longer_directions = directions_of(longer)
    for u, direction in enumerate(directions_of(trace)):
        ensure(direction == longer_directions[u], "step {} differs in a longer trace", u)
    count = len(trace.cancelled.worker)
    for own, other in zip(trace.cancelled, longer.cancelled, strict=True):
        ensure(np.array_equal(own, other[:count]), "cancelled jobs differ in a longer trace")


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
