"""Names of columns: which role a column plays, and in which unit its numbers are.

"BatchTime (ms)", "batch_time_ms" and "batch time [ms]" are "batch time" in milliseconds. A role
takes the first of its names that is there: "worker" before "gpu".
"""

from __future__ import annotations

import re

# By role, those that are preferred first; each is what `read_heading` makes of a name.
KNOWN = {
    "worker": (
        "worker, worker id, worker name, worker index, worker no, worker number, workerid, rank,"
        " global rank, rank id, replica, replica id, node, node id, node name, node list, nodelist,"
        " client, client id, actor, actor id, learner, agent, agent id, peer, executor, instance,"
        " instance id, pod, host, hostname, machine, machine id, process, process id, pid, thread,"
        " thread id, device, device id, gpu, gpu id, name, who"
    ),
    "step": (
        "step, global step, step id, step index, step number, iteration, iter, it, job, job id,"
        " batch, batch id, batch index, batch idx, minibatch, mini batch, update, round, number,"
        " count, counter, index, idx, seq, sequence, no, n, k, epoch"
    ),
    "time": (
        "timestamp, time stamp, datetime, date time, date, time, ts, t, when, wall time, walltime,"
        " clock"
    ),
    "start": (
        "start, started, start time, start timestamp, start ts, start at, t start, started at,"
        " time start, begin, began, begin time, t begin, begun, t0, dispatched, dispatch time,"
        " assigned, issued, sent, from"
    ),
    "end": (
        "arrived, arrival, arrival time, end, ended, end time, end timestamp, end ts, end at,"
        " ended at, t end, time end, finish, finished, finish time, finished at, t finish, stop,"
        " stopped, stop time, completed, complete, completion, completion time, completed at, done,"
        " received, t1, to, until"
    ),
    "duration": (
        "duration, durations, step duration, job duration, elapsed, elapsed time, elapsed raw,"
        " elapsed time per iteration, train step timing, took, seconds, step time,"
        " iteration time, iter time, batch time, batch time norm, job time,"
        " time per step, time per iteration, time taken, minibatch time, mini batch time,"
        " compute time, computation time, train time, run time, runtime, latency, time delta,"
        " delta, dt, length, computed"
    ),
}

# Seconds that one unit is.
UNITS: dict[str, float] = {
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds", "nanos"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microsecond", "microseconds", "micros"), 1e-6),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds", "millis"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
}
_UNIT = "|".join(map(re.escape, sorted(UNITS, key=len, reverse=True)))
_IN_BRACKETS = re.compile(rf"(.*\S)\s*[(\[]\s*(?:in\s+)?(?i:({_UNIT}))\s*[)\]]\s*")
_AT_END = re.compile(rf"(.*?[^\W_])(?:[\W_]+(?:in[\W_]+)?|(?<=[a-z0-9])(?=[A-Z]))(?i:({_UNIT}))")


def read_heading(name: str) -> tuple[str, float | None]:
    """Words of the name of a column without its unit, and the seconds that the unit is, if any.

    Example:
        >>> read_heading("StepTime (ms)"), read_heading("worker_id"), read_heading("seconds")
        (('step time', 0.001), ('worker id', None), ('seconds', 1.0))
    """
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", " ", name)
    words = [word for word in re.split(r"[\W_]+", apart.lower()) if word]
    if not words or words[-1] not in UNITS:
        return " ".join(words), None
    seconds = UNITS[words.pop()]
    if words and words[-1] == "in":  # duration in ms
        words.pop()
    return " ".join(words) or "seconds", seconds  # a column may have only a unit for its name


def roles_of(names: list[str]) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Which column plays which role, and which others could have.

    Example:
        >>> roles_of(["gpu", "rank", "iter", "took_ms", "loss"])
        ({'worker': 1, 'step': 2, 'duration': 3}, {'worker': ['gpu'], 'step': [], 'duration': []})
    """
    words = [read_heading(name)[0] for name in names]
    roles: dict[str, int] = {}
    others: dict[str, list[str]] = {}
    for role, known in KNOWN.items():
        places = [words.index(word) for word in known.split(", ") if word in words]
        if places:
            roles[role], *rest = places
            others[role] = [names[place] for place in rest]
    return roles, others


def workers_of(names: list[str]) -> tuple[list[str], list[float | None]]:
    """Workers that columns are named after, and the seconds that a unit of each column is.

    A unit at the end without brackets is one if all names end so: "rack_h" is not in hours.

    Example:
        >>> workers_of(["a (ms)", "b (ms)"]), workers_of(["gpu0_s", "gpu1_s"])
        ((['a', 'b'], [0.001, 0.001]), (['gpu0', 'gpu1'], [1.0, 1.0]))
        >>> workers_of(["rack_g", "rack_h"])
        (['rack_g', 'rack_h'], [None, None])
    """
    matches = [_IN_BRACKETS.fullmatch(name) for name in names]
    if not any(matches):
        matches = [_AT_END.fullmatch(name) for name in names]
        if not all(matches):
            return names, [None] * len(names)
    pairs = list(zip(names, matches, strict=True))
    bare = [match[1] if match else name for name, match in pairs]
    units = [UNITS[match[2].lower()] if match else None for match in matches]
    return (bare if len(set(bare)) == len(bare) else names), units
