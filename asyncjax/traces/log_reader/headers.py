"""Names of columns: which role a column plays, and in which unit its numbers are.

A name is read as words: "BatchTime (ms)", "batch_time_ms" and "batch time [ms]" are "batch time" in
milliseconds. A role takes the first of its names that is there, so that "arrived" comes before
"done" and "worker" before "gpu".
"""

from __future__ import annotations

import re
from typing import NamedTuple

ROLES = ("worker", "step", "time", "start", "end", "duration")

# By role, those that are preferred first; each is what `words_of` makes of a name.
KNOWN: dict[str, tuple[str, ...]] = {
    "worker": (
        *("worker", "worker id", "worker name", "worker index", "worker no", "worker number"),
        *("workerid", "rank", "global rank", "rank id", "replica", "replica id", "node", "node id"),
        *("node name", "client", "client id", "actor", "actor id", "learner", "agent", "agent id"),
        *("peer", "executor", "instance", "instance id", "pod", "host", "hostname", "machine"),
        *("machine id", "process", "process id", "pid", "thread", "thread id", "device"),
        *("device id", "gpu", "gpu id", "name", "who"),
    ),
    "step": (
        *("step", "global step", "step id", "step index", "step number", "iteration"),
        *("iter", "it", "job", "job id", "batch", "batch id", "batch index", "batch idx"),
        *("minibatch", "mini batch", "update", "round", "number", "count", "counter", "index"),
        *("idx", "seq", "sequence", "no", "n", "k", "epoch"),
    ),
    "time": (
        *("timestamp", "time stamp", "datetime", "date time", "date", "time", "ts", "t", "when"),
        *("wall time", "walltime", "clock"),
    ),
    "start": (
        *("start", "started", "start time", "start timestamp", "start ts", "start at", "t start"),
        *("started at", "time start", "begin", "began", "begin time", "t begin", "begun", "t0"),
        *("dispatched", "dispatch time", "assigned", "issued", "sent", "from"),
    ),
    "end": (
        *("arrived", "arrival", "arrival time", "end", "ended", "end time", "end timestamp"),
        *("end ts", "end at", "ended at", "t end", "time end", "finish", "finished"),
        *("finish time", "finished at", "t finish", "stop", "stopped", "stop time", "completed"),
        *("complete", "completion", "completion time", "completed at", "done", "received", "t1"),
        *("to", "until"),
    ),
    "duration": (
        *("duration", "durations", "step duration", "job duration", "elapsed", "elapsed time"),
        *("took", "seconds", "step time", "iteration time", "iter time", "batch time"),
        *("batch time norm", "job time", "time per step", "time per iteration", "time taken"),
        *("minibatch time", "mini batch time", "compute time", "computation time", "train time"),
        *("run time", "runtime", "latency", "time delta", "delta", "dt", "length", "computed"),
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


class Heading(NamedTuple):
    """What the name of a column says."""

    words: str  # in lower case, without the unit
    seconds: float | None  # that a unit of its numbers is; None: not said


def read_heading(name: str) -> Heading:
    """Reads the name of a column.

    Example:
        >>> read_heading("StepTime (ms)")
        Heading(words='step time', seconds=0.001)
        >>> read_heading("worker_id").words, read_heading("seconds").words
        ('worker id', 'seconds')
    """
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", " ", name)
    words = [word for word in re.split(r"[\W_]+", apart.lower()) if word]
    seconds = None
    if words and words[-1] in UNITS:
        seconds = UNITS[words[-1]]
        words = words[:-1]
        if words and words[-1] == "in":  # duration in ms
            words = words[:-1]
        if not words:
            words = ["seconds"]  # a column that has only a unit for its name
    return Heading(" ".join(words), seconds)


def roles_of(names: list[str]) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Which column plays which role, and which others could have.

    Example:
        >>> roles_of(["gpu", "rank", "iter", "took_ms", "loss"])
        ({'worker': 1, 'step': 2, 'duration': 3}, {'worker': ['gpu'], 'step': [], 'duration': []})
    """
    words = [read_heading(name).words for name in names]
    roles: dict[str, int] = {}
    others: dict[str, list[str]] = {}
    for role, known in KNOWN.items():
        places = [words.index(word) for word in known if word in words]
        if places:
            roles[role] = places[0]
            others[role] = [names[place] for place in places[1:]]
    return roles, others
