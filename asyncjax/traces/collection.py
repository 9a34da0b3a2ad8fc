"""Collections: what a server does with a gradient that arrives.

A rule is a frozen `Collection`. `Collection.start` opens one run of it, whose `receive(worker,
delay)` says at every arrival, from the worker and the staleness alone, whether the gradient is
thrown away, kept, or kept and followed by a step. What the steps are made of is known when the
arrivals are: `weigh` gives every gradient its weight in the step that takes it, and `reuse`, where
gradients serve in several steps, says in which. Both are told all arrivals at once.

The rules are in `averages` (each gradient serves once), `timed` (the same, and the server also
steps by the clock) and `tables` (it serves until it is replaced).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asyncjax.checks import flag, function, instance, real, shown, whole, within
from asyncjax.traces.alarm import Timer
from asyncjax.traces.event_trace import Float64, Int32, Reuse
from asyncjax.traces.trace_columns import refuse
from asyncjax.traces.validation import check_steps


class Verdict(IntEnum):
    """What becomes of a gradient that arrives."""

    DROP = 0  # thrown away
    KEEP = 1  # kept for a step to come
    STEP = 2  # kept, and the server steps at once


class Collector(NamedTuple):
    """One run of a rule.

    A rule that says what it `is_stuck_without` is never called stuck as long as a step may come; of
    one that does not, a run ends with a `StalledError` after 250,000 arrivals and given-up jobs
    without a step, and 100 more a worker.

    Attributes:
        receive: `(worker, delay) -> Verdict`, what becomes of the gradient, asked once an arrival,
            in order.
        given_up: `(worker) -> None`, told when a job is given up (`asynchronous(..., timeout=)`);
            None: no matter.
        is_stuck_without: `(workers) -> bool`, whether no step can come any more, at this moment of
            the run, if these are never heard again; None: not known. A set of all workers makes it
            True.
        timer: When the server steps though nothing arrives; None: never. Not for rules whose
            gradients serve again.
    """

    # (worker, delay) -> what becomes of the gradient, once an arrival, in order
    receive: Callable[[int, int], Verdict]
    # (worker) -> None: told when a job is given up (`asynchronous(..., timeout=)`); None: no matter
    given_up: Callable[[int], None] | None = None
    # (workers) -> bool: whether no step can come any more, at this moment of the run, if these are
    # never heard again; None: not known. A set of all workers makes it True.
    is_stuck_without: Callable[[Set[int]], bool] | None = None
    # when the server steps though nothing arrives; None: never. Not for rules that serve again.
    timer: Timer | None = None


class Arrivals(NamedTuple):
    """What a rule may know of the E arrivals of a trace: who, how stale, when; never a value.

    Attributes:
        worker: int32[E].
        delay: int32[E], staleness on arrival, in server updates.
        time: float64[E], time units.
        used: bool[E], not thrown away by `receive`.
        steps: bool[E], the server steps right after it.
        n_workers: Number of workers.

    Example:
        >>> from asyncjax import clocks, traces
        >>> seen = []
        >>> def weigh(arrivals):
        ...     seen.append(arrivals.version)
        ...     return 1.0 / (1.0 + arrivals.delay)
        >>> rule = Collection("by age", traces.immediately().start, weigh)
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=4, collect=rule)
        >>> trace.weight.round(2), bool((seen[0] == trace.version).all())
        (array([1.  , 1.  , 0.33, 0.5 ], dtype=float32), True)
    """

    worker: Int32  # int32[E]
    delay: Int32  # int32[E], staleness on arrival, in server updates
    time: Float64  # float64[E], time units
    used: NDArray[np.bool_]  # bool[E], not thrown away by `receive`
    steps: NDArray[np.bool_]  # bool[E], the server steps right after it
    n_workers: int

    @property
    def version(self) -> Int32:
        """Server version just before each arrival is handled, int32[E]."""
        return (np.cumsum(self.steps) - self.steps).astype(np.int32)


Entries = list[tuple[int, float]]  # numbers of arrivals that enter a step, and their weights


@dataclass(frozen=True)
class Collection:
    """A collection rule.

    Attributes:
        name: The rule in words, for messages and tables.
        start: `(n_workers) -> Collector`, one run.
        weigh: `(Arrivals) -> float[E]`, the factor of each gradient in the direction of the step
            that takes it; or `reuse`.
        period: Set where every gradient is used and every `period`-th steps.
        holds_back: Jobs are handed out only with the step, to as many workers as gradients were
            collected.
        cancel_from: Set where, after a step, every other running job of at least this staleness is
            cancelled and its worker answered; or `(version) -> staleness`, asked after each step.
        restarts: Set where every step stops all running jobs, and every `restarts`-th gradient
            steps.
        keeps_model: A gradient that makes no step is answered with a job at the model it was itself
            taken at; the worker gets a new model only after a step of its own.
        reuse: Set where gradients serve in several steps: `(Arrivals) -> Reuse`; then `used` and
            `weight` of the trace follow from it. Every step needs a newly arrived gradient, so
            `receive` must not say `STEP` before one that has a row has come since the last step.
        serves: `(n_workers) -> ((worker, delay, verdict) -> [(arrival, weight), ...])`, where
            gradients serve in several steps: one run that is told every arrival and answers, where
            it steps, with the numbers of the arrivals that enter and their weights: what `reuse`
            would say. None: a server that trains asks `reuse` anew at every step.
        quorum: Set where workers are held back until the step (`holds_back`), which takes at least
            so many gradients: a run with fewer open jobs is refused.
        most: The same, of the gradients with which the server steps at once.
    """

    name: str
    start: Callable[[int], Collector]
    weigh: Callable[[Arrivals], NDArray[np.floating[Any]]] | None = None
    period: int | None = None
    holds_back: bool = False
    cancel_from: float | Callable[[int], float] | None = None
    restarts: int | None = None
    keeps_model: bool = False
    reuse: Callable[[Arrivals], Reuse] | None = None
    serves: Callable[[int], Callable[[int, int, Verdict], Entries]] | None = None
    quorum: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        instance("name", self.name, str, "the name of the rule")
        function("start", self.start, "a function (n_workers) -> Collector")
        for name in ("weigh", "reuse", "serves"):
            if getattr(self, name) is not None:
                function(name, getattr(self, name), "a function of the Arrivals, or None")
        if self.weigh is None and self.reuse is None:
            raise ValueError(
                f"weigh of the rule '{self.name}' must be given, or reuse: got neither"
            )
        for name in ("period", "restarts", "quorum", "most"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        for name in ("holds_back", "keeps_model"):
            flag(name, getattr(self, name))
        if self.cancel_from is not None and not callable(self.cancel_from):
            real("cancel_from", self.cancel_from, least=0.0, finite=False)


def settled(rule: Collection, arrivals: Arrivals) -> dict[str, Any]:
    """The columns of a trace that a rule settles: `used`, `steps`, `weight` and `reuse`.

    Raises:
        TypeError: What `weigh` or `reuse` of `rule` gives is of the wrong kind.
        ValueError: It is of the wrong shape or out of range; or `rule` reuses gradients, and a step
            has none that is new.
    """
    steps = arrivals.steps
    if rule.reuse is None:
        weight = _weights(rule, arrivals).astype(np.float32, copy=False)
        return {"used": arrivals.used, "steps": steps, "weight": weight, "reuse": None}
    reuse = _rows(rule, arrivals)
    served, place = np.unique(reuse.arrival, return_index=True)
    weight, serves = np.zeros(len(steps), np.float32), np.zeros(len(steps), bool)
    weight[served], serves[served] = reuse.weight[place], True
    check_steps(serves, steps, _quoted(f" of the rule '{rule.name}'"))
    _check_steps_of(rule, reuse, arrivals)
    return {"used": serves, "steps": steps, "weight": weight, "reuse": reuse}


def _weights(rule: Collection, arrivals: Arrivals) -> np.ndarray:
    """The factors that a rule gives, one an arrival."""
    assert rule.weigh is not None  # or it reuses
    weight, name = rule.weigh(arrivals), f"weigh of the rule '{rule.name}'"
    quoted = _quoted(name)
    shape = np.shape(within(name, weight, least=0.0))
    if shape != arrivals.used.shape:
        raise ValueError(
            f"{name} must give a factor for each of {len(arrivals.used)} arrivals, got shape"
            f" {shape}"
        )
    weight = np.asarray(weight)
    refuse(
        ~arrivals.used & (weight != 0),
        f"{quoted} must give 0 to gradients that are not used, got {{weight}} for arrival {{e}}",
        weight=weight,
    )
    return weight


def _quoted(text: str) -> str:
    """Text as it stands in a template of `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")


def _rows(rule: Collection, arrivals: Arrivals) -> Reuse:
    """The rows that a rule gives."""
    assert rule.reuse is not None
    rows, name = rule.reuse(arrivals), f"reuse of the rule '{rule.name}'"
    quoted = _quoted(name)
    if not isinstance(rows, Reuse):
        raise TypeError(f"{name} must give a Reuse, got {shown(rows)}")
    columns = [np.asarray(column) for column in rows]
    for field, column in zip(rows._fields, columns, strict=True):
        if column.shape != (len(columns[0]) if columns[0].ndim else 0,):
            raise ValueError(
                f"{name} must give columns of one length, got {field} of shape {column.shape}"
            )
        within(f"{field} of the {name}", column, integer=field != "weight")
    arrival, count = columns[0], len(arrivals.used)
    refuse(
        (arrival < 0) | (arrival >= count),
        f"{quoted} must name arrivals of 0 .. {count - 1}, got {{arrival}} in row {{e}}",
        arrival=arrival,
    )
    return rows


def _check_steps_of(rule: Collection, rows: Reuse, arrivals: Arrivals) -> None:
    """Refuses rows that serve before their gradient is there, or after the last step."""
    first, last, quoted = rows.first, rows.last, _quoted(f"reuse of the rule '{rule.name}'")
    version, n_updates = arrivals.version[rows.arrival], int(np.count_nonzero(arrivals.steps))
    refuse(
        (first < version) | (last < first) | (last >= n_updates),
        f"{quoted} must let a gradient serve in steps of {{version}} .. {n_updates - 1}, got"
        " {first} .. {last} in row {e}",
        first=first,
        last=last,
        version=version,
    )
