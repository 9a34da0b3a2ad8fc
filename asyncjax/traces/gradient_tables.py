"""Collection rules with a table: steps average over workers; a gradient serves in several steps.

    table        x <- x - (1/n) sum_i g_i        at every arrival; g_i the last gradient of worker i
    table(a)     x <- x - (1/|A|) sum_A g_i      A the workers whose g_i is at most a updates old
    ringleader   x <- x - (1/n) sum_i G_i / c_i  n steps a round; G_i, c_i sum and number of those
                                                 of worker i

A trace holds no values: `Reuse` says which gradient enters which steps with which weight, and a
replay sums accordingly. The delay of a step is the age of the oldest gradient in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from functools import partial

import jax
import numpy as np

from asyncjax.checks import flag, real
from asyncjax.traces.collection import Arrivals, Collection, Collector, Entries, Verdict
from asyncjax.traces.event_trace import Reuse


def table(*, max_age: float = math.inf) -> Collection:
    """The server keeps the last gradient of every worker, and steps along their mean.

    It steps at every arrival, but not before every worker has delivered; a gradient that its own
    worker replaces before that is thrown away. All workers count the same however often they
    deliver.

    With a `max_age` it forgets. At the update from version t to t + 1, with r_i the version that
    the last gradient g_i of worker i was taken at,

        A_t = {i : t - r_i <= max_age},    x_{t+1} = x_t - (1 / |A_t|) sum over A_t of g_i.

    Args:
        max_age: Oldest gradient that enters a step, in server updates since its model was handed
            out, at least 0; `float("inf")` for all. The delay of a step is never more. A gradient
            that is older on arrival is thrown away, and makes no step.

    Returns:
        The rule. Without a `max_age` a worker that never delivers again stays in the table with its
        last gradient: the delay of the steps then grows without bound.

    Note:
        n workers of one speed deliver gradients that are n - 1 updates old, so a `max_age` of 2 n -
        2 keeps all of them, and one below n - 1 leaves only few who step at all; 0 is `rennala(1)`
        after the first step. ACE is the table without a `max_age`, ACED the one with it; their
        pseudo-code was not available. Means over |A_t|, and no step where A_t is empty, follow a
        public program by others; that age counts from the model handed out is derived from the
        abstract. Two deviations: an arrival that is itself too old makes no step here, where ACED
        would step along the others again; and here workers that are early go on at x_0 until the
        last has delivered, where ACED begins with one round.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.constant([1.0, 2.0])
        >>> trace = traces.asynchronous(clock, n_updates=3, collect=traces.table())
        >>> trace.time[trace.steps], trace.used
        (array([2., 3., 4.]), array([False,  True,  True,  True,  True]))

        The slow worker is missing in step 6, where its last gradient is 5 updates old:

        >>> clock, rule = clocks.constant([1.0, 2.5]), traces.table(max_age=4)
        >>> trace = traces.asynchronous(clock, n_updates=8, collect=rule)
        >>> slow = trace.worker[trace.reuse.arrival] == 1
        >>> trace.reuse.first[slow], trace.reuse.last[slow]
        (array([0, 4, 7], dtype=int32), array([3, 5, 7], dtype=int32))
        >>> trace.reuse.weight
        array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1. , 0.5, 0.5], dtype=float32)

    Reference:
        Incremental aggregated gradient (IAG; Blatt, Hero, Gauchman, 2007), its proximal form PIAG
        (Wu et al., 2022, arXiv 2202.08550), DuDe-ASGD (arXiv 2405.16966); ACE and ACED (Chang et
        al., 2025, arXiv 2511.19066).
    """
    max_age = real("max_age", max_age, least=0.0, finite=False)

    def start(n_workers: int) -> Collector:
        unheard = set(range(n_workers))

        def receive(worker: int, delay: int) -> Verdict:
            if delay > max_age:
                return Verdict.DROP
            unheard.discard(worker)
            return Verdict.KEEP if unheard else Verdict.STEP

        def is_stuck_without(lost: Set[int]) -> bool:
            return not unheard.isdisjoint(lost) or len(lost) == n_workers

        return Collector(receive, is_stuck_without=is_stuck_without)

    name = "table" + (f", at most {max_age:g} old" if max_age < math.inf else "")
    reuse = partial(_last_gradients, max_age=max_age)
    return Collection(name, start, reuse=reuse, serves=partial(_serving_table, max_age=max_age))


def ringleader(*, refresh: bool = False) -> Collection:
    """Ringleader: rounds of n steps, one a worker, each along the mean of the workers' means.

    A round first collects, without a step, until every worker has delivered. Then the server steps
    n times: at once, and whenever a worker that has not stepped in this round delivers (its
    gradient joins the table first). Gradients of workers that have stepped already wait for the
    next round, whose table they begin. Nothing is thrown away, nobody idles, and no gradient is
    older than 2n - 2 steps.

    Args:
        refresh: How a gradient that makes no step is answered. False: the worker goes on at the
            model it has, and gets a new one only after its own step. True: it gets the current
            model.

    Note:
        The paper was not available; this follows public summaries of it, whose formula takes all of
        a worker's gradients in one table at one model (`refresh=False`).

    Example:
        >>> import numpy as np
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.constant([1.0, 2.0, 3.0])
        >>> trace = traces.asynchronous(clock, n_updates=6, collect=traces.ringleader())
        >>> trace.worker[trace.steps], trace.time[trace.steps]
        (array([2, 0, 1, 2, 0, 1], dtype=int32), array([3., 4., 4., 6., 7., 8.]))

    Reference:
        Maranjyan, Richtárik, 2025 (arXiv 2509.22860), Ringleader ASGD.
    """
    refresh = flag("refresh", refresh)

    def start(n_workers: int) -> Collector:
        unheard, waiting = set(range(n_workers)), set()  # waiting: still to step in this round
        early = set()  # have stepped and delivered again

        def receive(worker: int, delay: int) -> Verdict:
            nonlocal unheard, waiting, early
            if unheard:
                unheard.discard(worker)
                if unheard:
                    return Verdict.KEEP
                waiting = set(range(n_workers)) - {worker}
            elif worker in waiting:
                waiting.discard(worker)
            else:
                early.add(worker)
                return Verdict.KEEP
            if not waiting:
                unheard, early = set(range(n_workers)) - early, set()
            return Verdict.STEP

        def is_stuck_without(lost: Set[int]) -> bool:
            return not unheard.isdisjoint(lost) if unheard else waiting <= lost

        return Collector(receive, is_stuck_without=is_stuck_without)

    name = "ringleader" + (", refreshed" if refresh else "")
    return Collection(name, start, reuse=_rounds, keeps_model=not refresh, serves=_serving_rounds)


def _last_gradients(arrivals: Arrivals, max_age: float) -> Reuse:
    """Every gradient serves from its arrival until its worker's next one, or until it is too old.

    Its weight in a step is one over the number of those that serve there.
    """
    worker, version = arrivals.worker, arrivals.version
    last = np.full(len(worker), np.count_nonzero(arrivals.steps) - 1, np.int64)
    by_worker = np.argsort(worker, kind="stable")
    same = worker[by_worker[1:]] == worker[by_worker[:-1]]
    last[by_worker[:-1][same]] = version[by_worker[1:][same]] - 1
    last = np.minimum(last, version - arrivals.delay + max_age).astype(np.int64)
    arrival, weight = np.arange(len(worker)), np.ones(len(worker))
    return equal_shares(rows_that_serve(arrival, version, last, weight))


def _rounds(arrivals: Arrivals) -> Reuse:
    """Rows of rounds; round r makes the steps r n .. r n + n - 1.

    A gradient that was collected serves in all steps of its round, with a weight that falls when
    its worker's own step adds one more; the gradient of that step serves from there on.
    """
    worker, steps, n_workers = arrivals.worker, arrivals.steps, arrivals.n_workers
    version, n_updates = arrivals.version.astype(np.int64), int(np.count_nonzero(steps))
    opening = version % n_workers == 0  # no step of the round has been made
    joins = steps & ~opening  # its worker's own step, other than the first of the round
    cell = (version // n_workers + (~steps & ~opening)) * n_workers + worker  # (round, worker)
    collected = np.bincount(cell[~joins], minlength=int(cell.max()) + 1)[cell]
    own_step = np.full(int(cell.max()) + 1, n_updates)
    own_step[cell[joins]] = version[joins]

    begin = cell // n_workers * n_workers
    end = np.minimum(begin + n_workers, n_updates) - 1
    change = np.minimum(own_step[cell], end + 1)
    arrival, never = np.arange(len(worker)), end + 1
    before = 1.0 / (n_workers * np.maximum(collected, 1.0))
    alone = rows_that_serve(arrival, np.where(joins, never, begin), change - 1, before)
    joined = rows_that_serve(arrival, change, end, 1.0 / (n_workers * (collected + 1.0)))
    order = np.lexsort(
        (np.append(alone.first, joined.first), np.append(alone.arrival, joined.arrival))
    )
    return jax.tree.map(lambda one, other: np.append(one, other)[order], alone, joined)


def _serving_table(n_workers: int, max_age: float) -> Callable[[int, int, Verdict], Entries]:
    """The table of one run: the last gradient of every worker, told as it arrives."""
    last: dict[int, tuple[int, int]] = {}  # arrival and version read, by worker
    count = version = 0

    def hear(worker: int, delay: int, verdict: Verdict) -> Entries:
        nonlocal count, version
        number, count = count, count + 1
        if verdict is not Verdict.DROP:
            last[worker] = number, version - delay
        if verdict is not Verdict.STEP:
            return []
        serve = sorted(number for number, read in last.values() if version - read <= max_age)
        version += 1
        return [(number, 1.0 / len(serve)) for number in serve]

    return hear


def _serving_rounds(n_workers: int) -> Callable[[int, int, Verdict], Entries]:
    """The rounds of one run: gradients of this one and of the next, by worker, as they arrive."""
    current: list[list[int]] = [[] for _ in range(n_workers)]
    later: list[list[int]] = [[] for _ in range(n_workers)]
    count = steps = 0  # arrivals; steps of this round

    def hear(worker: int, delay: int, verdict: Verdict) -> Entries:
        nonlocal current, later, count, steps
        is_early = steps > 0 and verdict is Verdict.KEEP
        (later if is_early else current)[worker].append(count)
        count += 1
        if verdict is not Verdict.STEP:
            return []
        pairs = [(e, 1.0 / (n_workers * len(arrivals))) for arrivals in current for e in arrivals]
        steps = (steps + 1) % n_workers
        if not steps:
            current, later = later, [[] for _ in range(n_workers)]
        return sorted(pairs)

    return hear


def rows_that_serve(
    arrival: np.ndarray, first: np.ndarray, last: np.ndarray, weight: np.ndarray
) -> Reuse:
    """The rows that serve in at least one step; columns of K, in the order of `Reuse`."""
    serves = first <= last
    return Reuse(
        arrival[serves].astype(np.int32),
        first[serves].astype(np.int32),
        last[serves].astype(np.int32),
        weight[serves].astype(np.float32),
    )


def equal_shares(rows: Reuse) -> Reuse:
    """The rows with weight 1/m in a step where m of them serve, cut where m changes."""
    n_updates = int(rows.last.max(initial=-1)) + 1
    begins = np.bincount(rows.first, minlength=n_updates)
    ends = np.bincount(rows.last + 1, minlength=n_updates)
    serving = np.cumsum(begins[:n_updates] - ends[:n_updates])
    opening = np.flatnonzero(np.diff(serving, prepend=0))  # first steps of stretches with one m
    closing = np.append(opening[1:], n_updates) - 1
    at_first, at_last = (
        np.searchsorted(opening, at, "right") - 1 for at in (rows.first, rows.last)
    )
    pieces = at_last - at_first + 1
    row = np.repeat(np.arange(len(pieces)), pieces)
    stretch = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces - at_first, pieces)
    return rows_that_serve(
        rows.arrival[row],
        np.maximum(rows.first[row], opening[stretch]),
        np.minimum(rows.last[row], closing[stretch]),
        1.0 / serving[opening[stretch]],
    )
