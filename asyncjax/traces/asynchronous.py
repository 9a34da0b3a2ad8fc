"""Asynchronous traces: a clock, a dispatch rule, a collection rule.

    x_0; hand out the initial jobs at time 0
    on each arrival (worker i, read version r):
        the server takes the gradient    (collection rule; maybe an update, which makes a version)
        the server hands out jobs        (dispatch rule), perhaps stops some
        idle workers start the head of their queue    (start gate permitting)

Conventions, each of which changes a trace: a worker does one job at a time and queues the others
first in, first out; arrivals at one instant are served by worker index, each completely before the
next; a gradient is handled before jobs are handed out, so these see the new model; finish = start +
duration, in float64, unless the clock has powers: then the job is done when the power since its
start adds up to its compute time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import flag, shown, whole, within
from asyncjax.clocks import Clock
from asyncjax.traces.arrival_streams import NoStreamError, stream_of, trace_of_stream
from asyncjax.traces.collection import Collection, collector
from asyncjax.traces.collection_rules import immediately, rennala, wait_for
from asyncjax.traces.dispatch import (
    Answer,
    Dispatch,
    Gate,
    answering,
    fastest_quotas,
    lead_at_most,
    learned_quotas,
    quotas,
    to_deliverer,
)
from asyncjax.traces.event_loop import EventLoop
from asyncjax.traces.event_trace import EventTrace
from asyncjax.traces.progress import Progress, made_until, pace_of
from asyncjax.traces.random_draws import (
    DurationBlocks,
    check_key,
    count_of_updates,
    finishes,
    looking_up,
    on_host,
)
from asyncjax.traces.server import Rules, Service, check_service
from asyncjax.traces.stall_detection import StallDetector
from asyncjax.traces.synchronous import restarted

_MOST_OPEN = 10_000_000  # jobs, each with its place in a queue
_PURE, _IMMEDIATELY = to_deliverer(), immediately()


@dataclass(frozen=True)
class Rule:
    """What a server does with its workers; `Rule()` is pure asynchronous SGD.

    A rule has no state: `trace` runs it on a clock, `live.train` on real workers.

    Attributes:
        dispatch: Which worker gets the next job; by default `to_deliverer`.
        collect: What the server does with a gradient; by default `immediately`.
        gate: A start gate, `lead_at_most`.
        read: When a job reads the model: `"assignment"`, the moment it is handed out, even if it
            then waits in its worker's queue; or `"start"`, the moment its worker starts it.
        concurrency: Number of jobs handed out at time 0 by the dispatch rule; may exceed n. None:
            one to every worker, and the dispatch rule begins with the first reaction.
        timeout: A job that is not back so long after its start is given up (and counted as
            cancelled): its worker is idle again, the collection rule is told, and the dispatch rule
            hands out a job in its place, at the current model (at the job's own, where a rule's
            workers keep their model). One number, or one per worker; more than 0, inf for never,
            time units. None: the server waits for ever.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rule = traces.Rule(collect=traces.wait_for(2))
        >>> rule.trace(clocks.constant([1.0, 2.0, 4.0]), n_updates=3).update_time
        array([2., 4., 5.])

    Reference:
        Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452).
    """

    dispatch: Dispatch = _PURE
    collect: Collection = _IMMEDIATELY
    gate: Gate | None = None
    read: str = "assignment"
    concurrency: int | None = None
    timeout: ArrayLike | None = None

    def __post_init__(self) -> None:
        if self.concurrency is not None and whole("concurrency", self.concurrency) > _MOST_OPEN:
            whole("concurrency", self.concurrency, 1, _MOST_OPEN)
        if self.read not in ("assignment", "start"):
            raise ValueError(f"read must be one of 'assignment', 'start', got {shown(self.read)}")
        if self.read == "start" and self.collect.keeps_model:
            raise ValueError(
                f"read must be 'assignment' for '{self.collect.name}', whose workers keep their"
                " model, got 'start'"
            )
        if self.timeout is not None and np.ndim(self.timeout) > 0:  # so that equal rules are equal
            times = tuple(np.asarray(self.timeout).tolist())
            object.__setattr__(self, "timeout", times)

    def trace(
        self,
        clock: Clock,
        *,
        n_updates: int | None = None,
        until: float | None = None,
        load: ArrayLike = 1.0,
        service: Service | None = None,
        interruptible: bool = True,
        key: jax.Array | None = None,
        progress: Callable[[Progress], None] | bool | None = None,
    ) -> EventTrace:
        """Makes the trace of a server that goes by this rule.

        The duration of job j of worker i depends on (key, i, j) alone: all rules under one key face
        the same workers, and the trace of 50 updates is a prefix of the trace of 100.

        Args:
            clock: How long each of the n workers takes.
            n_updates: Number of server updates; the trace ends with the arrival that makes the last
                one. Either this or `until`.
            until: Time up to which updates are made, time units: the trace of as many `n_updates`,
                to the bit. Costs about twice as much, since the number has to be found.
            load: Factor on the compute part of every duration, more than 0; H for jobs of H local
                steps. One number, or one per worker.
            service: How long the server itself takes for a gradient and for a step. An arrival's
                `time` is when it reaches the server; it is handled when those before it are, and
                the jobs in answer to it start when that is done. None: no time at all.
            interruptible: Whether a worker lets go of a job that is stopped (`cancel=True`) or
                given up (`timeout`) and starts his next one at once. False: he goes on with it, in
                vain, and starts the next one when it is done, as real workers do (see `live`).
            key: Typed key, needed where the clock or the dispatch rule is random.
            progress: True shows on standard error how far the run is. Or a function that is called
                a few times a second with a `Progress`, about, and at the end.

        Returns:
            The trace, NumPy arrays on the host. Cost: with `to_deliverer` arrivals are found in
            whole arrays, also where jobs are given up or lost or, from 64 workers on, a gate holds
            them back; `rennala(b, cancel=True)` is O(n) a round in NumPy. All else (other dispatch
            rules, `wait_for`, jobs that are stopped, a server that takes time, timeouts with
            powers, alarms, rules of one's own that do not say what they are stuck without) runs an
            event loop, O(log n) an arrival or a cancelled job.

        Note:
            A run is called stuck (`StalledError`) when no update can come any more: the rule needs
            a worker whose job is lost, who has no job and gets none, or whose jobs are always given
            up (his timeout is shorter than any, or none of his next 100,000 is back in time). Where
            this cannot be known it is called stuck after 100,000 jobs given up in a row, and 20
            more a worker, without an arrival; and, with a rule of one's own that does not say what
            it needs (`Collector.is_stuck_without`), a dispatch rule that may pass workers over, or
            powers that make jobs late, after 250,000 arrivals and given-up jobs, and 100 more a
            worker, without an update. One that is only slow goes on.

            A job may never return (`clocks.with_failures`, `clocks.available`). Without a timeout
            its worker then never delivers again: dispatch rules but `to_deliverer` queue jobs for
            it until all open jobs lie there; `wait_for`, `table` before its first step, `malenia`,
            `ringleader` and a gate may wait for it for ever; `rennala`, `buffered` and `ringmaster`
            go on. With a timeout, `to_deliverer` asks the same worker again and the other rules ask
            the next; the jobs queued at a dead worker each take one timeout to leave it.
        """
        dispatch, collect, concurrency = self.dispatch, self.collect, self.concurrency
        n = clock.n_workers
        self.check_workers(n)
        factor: Any = np.asarray(load)
        least = clock.least(factor)  # refuses other loads
        factor = factor.astype(np.float64) if factor.ndim else float(factor)
        timeout = timeouts_of(self.timeout, least)
        if service is not None:
            check_service(service)
        interruptible = flag("interruptible", interruptible)
        is_random = {"clock": clock.is_random, "dispatch": dispatch.is_random}
        check_key(key, " and ".join(what for what, drawn in is_random.items() if drawn) or None)
        is_free = service is None and interruptible
        is_whole = self.gate is None and self.timeout is None and concurrency is None

        def make(count: int) -> EventTrace:
            n_updates = count_of_updates(count)
            pace = pace_of(progress, n_updates)
            with on_host(key) as host_key:
                duration_key, dispatch_key = jax.random.split(host_key)
            blocks, run = DurationBlocks(clock, duration_key, factor), collector(collect, n)
            if is_free and dispatch.answers_deliverer and run.timer is None:
                if is_whole and clock.returns and collect.restarts is not None:
                    return restarted(blocks, n_updates, collect, pace)
                rules = Rules(list, collect, run, self.gate, self.read == "start")
                stream = stream_of(blocks, rules, n_updates, concurrency, timeout, least)
                if stream is not None:
                    with contextlib.suppress(NoStreamError):
                        return trace_of_stream(stream, rules, n_updates, pace)
                    run = collector(collect, n)  # the other one is used up
            answer = answering(dispatch, n, dispatch_key)
            initial = first_jobs(n, concurrency, answer)
            done, has_left = finishes(blocks, n_updates * (collect.period or 1) / n)
            known = looking_up(blocks, timeout), has_left
            needs = run.is_stuck_without
            stalls = StallDetector(collect.name, needs, dispatch, timeout, least, *known)
            rules = Rules(answer, collect, run, self.gate, self.read == "start")
            loop = EventLoop(done, rules, stalls, service, interruptible=interruptible)
            return loop.run(initial, n_updates, pace)

        return made_until(make, until, n_updates)

    def check_workers(self, n_workers: int) -> None:
        """Refuses a collection that waits for more gradients than jobs are open."""
        open_jobs = n_workers if self.concurrency is None else self.concurrency
        collect, period = self.collect, self.collect.period
        if collect.holds_back and period is not None and period > open_jobs:
            raise ValueError(
                f"collect waits for {period} gradients but only {open_jobs} jobs are open"
                " (concurrency): it would wait for ever; wait for fewer or raise concurrency"
            )
        for name, most in (("quorum", collect.quorum), ("most", collect.most)):
            if collect.holds_back and most is not None and most > open_jobs:
                raise ValueError(
                    f"{name} must be at most the number of open jobs, {open_jobs} (concurrency),"
                    f" where workers are held back until the step, got {most}"
                )


def asynchronous(
    clock: Clock,
    *,
    n_updates: int | None = None,
    until: float | None = None,
    dispatch: Dispatch | None = None,
    collect: Collection | None = None,
    read: str = "assignment",
    concurrency: int | None = None,
    gate: Gate | None = None,
    load: ArrayLike = 1.0,
    timeout: ArrayLike | None = None,
    service: Service | None = None,
    interruptible: bool = True,
    key: jax.Array | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
) -> EventTrace:
    """Makes the trace of an asynchronous server: `Rule(...).trace(clock, ...)` in one call.

    Args:
        clock: As in `Rule.trace`, like all that are no part of a `Rule`.
        n_updates: Number of updates; either this or `until`.
        until: Time up to which updates are made.
        dispatch: As in `Rule`, like all that are parts of one; None: `to_deliverer`.
        collect: What becomes of a gradient; None: `immediately`.
        read: When a job reads the model.
        concurrency: Number of open jobs.
        gate: A start gate.
        load: Factor on the compute part of every duration.
        timeout: After which a job is given up.
        service: How long the server itself takes.
        interruptible: Whether a worker lets go of a job that is stopped or given up.
        key: Where the clock or the dispatch rule is random.
        progress: True shows how far the run is; or a function that is called with it.

    Returns:
        The trace, NumPy arrays on the host.

    Example:
        >>> import jax
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.exponential([1.0, 2.0, 4.0])
        >>> rule, key = traces.shuffled(), jax.random.key(0)
        >>> trace = traces.asynchronous(clock, n_updates=100, dispatch=rule, key=key)
        >>> trace.n_updates, int(trace.delay.max()) >= 2
        (100, True)
    """
    return Rule(
        _PURE if dispatch is None else dispatch,
        _IMMEDIATELY if collect is None else collect,
        gate,
        read,
        concurrency,
        timeout,
    ).trace(
        clock,
        n_updates=n_updates,
        until=until,
        load=load,
        service=service,
        interruptible=interruptible,
        key=key,
        progress=progress,
    )


def first_jobs(n_workers: int, concurrency: int | None, answer: Answer) -> list[int]:
    """The workers who get the jobs of time 0."""
    if concurrency is None:
        return list(range(n_workers))
    return list(answer([i % n_workers for i in range(concurrency)]))


def timeouts_of(timeout: ArrayLike | None, least: np.ndarray) -> list[float]:
    """How long each worker's jobs may take, inf for ever; some job at `least` must keep to it."""
    n_workers = len(least)
    longest = np.inf if timeout is None else within("timeout", timeout, above=0.0, finite=False)
    allowed = np.broadcast_to(np.asarray(longest, np.float64), (n_workers,))
    if np.all(allowed < least * (1 - 1e-9)):
        worker = int(np.argmin(least / allowed))
        raise ValueError(
            f"timeout must be longer than the shortest job of some worker, got {allowed[worker]:g}"
            f" for worker {worker}, whose jobs take {least[worker]:g} at least"
        )
    return allowed.tolist()


def ssp(bound: float) -> Rule:
    """Stale synchronous parallel: `Rule(gate=lead_at_most(bound), read="start")`.

    Args:
        bound: Jobs by which a worker may lead the slowest, at least 0; `math.inf` is pure
            asynchronous SGD.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.ssp(1).trace(clocks.constant([1.0, 3.0]), n_updates=6)
        >>> trace.worker.tolist()
        [0, 0, 1, 0, 1, 0]

    Reference:
        Ho et al., NeurIPS 2013.
    """
    return Rule(gate=lead_at_most(bound), read="start")


def ata(b: int, *, times: Sequence[float] | None = None, scale: float = 0.0) -> Rule:
    """Adaptive task allocation: every step takes b jobs at one model, shared by the workers' times.

    `Rule(learned_quotas(b, scale=scale), wait_for(b), concurrency=b)`, or the quotas that are best
    for `times`, where these are known.

    Args:
        b: Jobs of a step, at least 1.
        times: What a job of each worker takes in the mean, float[n]; None: they are learned.
        scale: How far times scatter, time units; see `learned_quotas`.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rule = traces.ata(4, times=[1.0, 3.0])
        >>> rule.trace(clocks.constant([1.0, 3.0]), n_updates=2).update_time
        array([3., 6.])

    Reference:
        Maranjyan, Saad, Richtárik, Orabona, 2025 (arXiv 2502.00775).
    """
    learned = learned_quotas(b, scale=scale)
    dispatch = learned if times is None else quotas(fastest_quotas(times, b))
    return Rule(dispatch, wait_for(b), concurrency=b)


def mindflayer(b: int, patience: ArrayLike) -> Rule:
    """MindFlayer: Rennala with b gradients; a job that outlasts its worker's patience restarts.

    `Rule(collect=rennala(b), timeout=patience)`.

    Args:
        b: Gradients at the present model in a step, at least 1.
        patience: Time after which a job is given up and another begun, time units, more than 0; one
            number, or one per worker.

    Note:
        What is known of the method is in the note of `rennala`.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.recorded([[1.0, 1.0], [9.0, 1.0]])
        >>> traces.mindflayer(2, 2.0).trace(clock, n_updates=1).update_time
        array([2.])

    Reference:
        After Maranjyan, Omar, Richtárik, 2024 (arXiv 2410.04285).
    """
    within("patience", patience, above=0.0, finite=False)
    return Rule(collect=rennala(b), timeout=patience)
