"""Collections: what a server does with a gradient that arrives.

A rule is a frozen `Collection`. `Collection.start` opens one run of it, whose `receive(worker,
delay)` says at every arrival, from the worker and the staleness alone, whether the gradient is
thrown away, kept, or kept and followed by a step. What the steps are made of is known when the
arrivals are: `weigh` gives every gradient its weight in the step that takes it, and `reuse`, where
gradients serve in several steps, says in which. Both are told all arrivals at once; a server that
trains asks at every step, by a `Serving`.

A rule with a `Timer` also steps by the clock: it is asked after every arrival, and after every
step, when the server should look again if nothing else happens. At that moment it may step with the
gradients that are there. Arrivals of the same instant come first.

The rules are in `collection_rules`, `gradient_tables` and `timed`.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asyncjax.checks import flag, real, shown, whole, within
from asyncjax.traces.event_trace import Float64, Int32, Reuse
from asyncjax.traces.validation import check_rows, check_steps, read_part, refuse_first

__all__ = ["Arrivals", "Collection", "Collector", "Timer", "Verdict"]


class Verdict(IntEnum):
    """What becomes of a gradient that arrives."""

    DROP = 0  # thrown away
    KEEP = 1  # kept for a step to come
    STEP = 2  # kept, and the server steps at once


class Timer(NamedTuple):
    """When one run of a rule rings, in time units; inf: not. An earlier answer is forgotten."""

    begin: Callable[[float], float]  # (now): told at time 0 and after every step
    heard: Callable[[int, float], float]  # (worker, now): told of every arrival, once it is judged
    # (): at that moment, whether the server steps; a gradient must have arrived since the last step
    rings: Callable[[], bool]


class Collector(NamedTuple):
    """One run of a rule.

    A rule that says what it `is_stuck_without` is never called stuck as long as a step may come; of
    one that does not, a run ends with a `StalledError` after 250,000 arrivals and given-up jobs
    without a step, and 100 more a worker.
    """

    # (worker, delay) -> what becomes of the gradient, asked once an arrival, in order
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
    n_workers: int  # n, of the clock

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


def collector(rule: Collection, n_workers: int) -> Collector:
    """Opens a run of a rule; where it is not this library's, every verdict is looked at."""
    run, whose = rule.start(n_workers), f"of the rule '{rule.name}'"
    if str(getattr(rule.start, "__module__", "")).startswith("asyncjax."):
        return run
    if run.timer is not None and rule.reuse is not None:
        raise ValueError(f"timer {whose} must be None, since its gradients serve in several steps")

    def receive(worker: int, delay: int) -> Verdict:
        verdict = run.receive(worker, delay)
        if verdict.__class__ is not Verdict:
            raise TypeError(
                f"receive {whose} must answer with a Verdict, got {shown(verdict)} for worker"
                f" {worker}"
            )
        return verdict

    return run._replace(receive=receive)


def settled(rule: Collection, arrivals: Arrivals) -> dict[str, Any]:
    """The columns of a trace that a rule settles: `used`, `steps`, `weight` and `reuse`."""
    used, steps = arrivals.used, arrivals.steps
    if rule.reuse is not None:
        reuse = rule.reuse(arrivals)
        rows = read_part("reuse", reuse)
        check_rows(rows, arrivals.version, int(np.count_nonzero(steps)))
        served, place = np.unique(rows.arrival, return_index=True)
        weight, serves = np.zeros(len(steps), np.float32), np.zeros(len(steps), bool)
        weight[served], serves[served] = rows.weight[place], True
        check_steps(serves, steps)
        return {"used": serves, "steps": steps, "weight": weight, "reuse": reuse}
    assert rule.weigh is not None
    name = f"weigh of the rule '{rule.name}'"
    weight = np.asarray(within(name, rule.weigh(arrivals), least=0.0))
    if weight.shape != used.shape:
        raise ValueError(
            f"{name} must give a factor for each of {len(used)} arrivals, got shape {weight.shape}"
        )
    text = "{} must give 0 to gradients that are not used, got {} for arrival {e}"
    refuse_first(~used & (weight != 0), text, name, weight)
    weight = weight.astype(np.float32, copy=False)
    return {"used": used, "steps": steps, "weight": weight, "reuse": None}


class Alarm:
    """When the timer of a run rings next."""

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


class Serving:
    """Which gradients of one run enter a step, and with which weight, told as the arrivals come.

    The weights of a step depend on its own group of gradients alone; rows of `reuse` depend on the
    arrivals up to the step alone, so the rows that serve in the step just made are those that
    `reuse` of these arrivals lets serve last. A rule that `serves` says so itself, which costs less
    than asking again for all arrivals.
    """

    def __init__(self, rule: Collection, n_workers: int) -> None:
        self._rule, self._n_workers = rule, n_workers
        self._rows: list[tuple[int, int, float, Verdict]] = []
        self._first = 0  # number of the arrival of the first row
        self._serves = None if rule.serves is None else rule.serves(n_workers)

    def hear(self, worker: int, delay: int, time: float, verdict: Verdict) -> Entries:
        """What enters the step that this arrival makes, by arrival; empty if it makes none."""
        if self._serves is not None:
            return self._serves(worker, delay, verdict)
        self._rows.append((worker, delay, time, verdict))
        return self.step() if verdict is Verdict.STEP else []

    def step(self) -> Entries:
        """What enters the step that is made now, with the last arrival or by the clock."""
        worker, delay, time, verdict = map(np.array, zip(*self._rows, strict=True))
        worker, delay = worker.astype(np.int32), delay.astype(np.int32)
        steps = verdict == Verdict.STEP
        steps[-1] = True
        arrivals = Arrivals(worker, delay, time, verdict != Verdict.DROP, steps, self._n_workers)
        columns = settled(self._rule, arrivals)
        if self._rule.reuse is None:
            arrival = np.flatnonzero(arrivals.used)
            weight = columns["weight"][arrival]
            arrival += self._first
            self._first += len(self._rows)
            self._rows.clear()
        else:
            rows, last = columns["reuse"], int(np.count_nonzero(steps)) - 1
            arrival, weight = rows.arrival[rows.last == last], rows.weight[rows.last == last]
        return list(zip(arrival.tolist(), exact_weights(weight).tolist(), strict=True))


def exact_weights(weight: np.ndarray) -> np.ndarray:
    """Weights in float64; a float32 that is the nearest to 1/m for a whole m is taken as 1/m.

    Without this a mean of three gradients would be off by 1e-8 in a float64 run.
    """
    precise = weight.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 1.0 / np.round(1.0 / precise)
    is_share = (precise != 0) & (share.astype(np.float32) == weight.astype(np.float32))
    return np.where(is_share, share, precise)
