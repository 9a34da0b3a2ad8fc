"""Live training: a `Server` in front of real workers, which makes a trace that can be replayed.

    jobs of time 0
    on each event:  an answer that is waited for    judge it, perhaps step, hand out jobs
                    a lost worker                   its job is given up; it is opened anew
                    an answer nobody waits for      its worker is free again

One thread decides; workers compute. What a run did is its trace, and when gradients were computed
how fast lies beside it (`Timing`).
"""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import optax
from numpy.typing import ArrayLike

from asyncjax.checks import instance, real, whole
from asyncjax.live import jobs
from asyncjax.live.crews import (
    Crew,
    EngineCrew,
    Event,
    VirtualCrew,
    VirtualEngine,
    in_words,
    set_up_error,
)
from asyncjax.live.engines import Engine
from asyncjax.live.log import ARRIVED, FREED, LOST, Log, Row, log_of
from asyncjax.live.measured import Timing
from asyncjax.live.model import Model
from asyncjax.live.rerun import judged
from asyncjax.problems import Problem
from asyncjax.results.run import Run
from asyncjax.simulation.arguments import check_optimizer, check_run, key_of
from asyncjax.simulation.plans.plan import plan, recorded_versions
from asyncjax.traces import Progress, StalledError
from asyncjax.traces.asynchronous import check_rules, first_jobs, timeouts_of
from asyncjax.traces.averages import immediately
from asyncjax.traces.collection import Collection, Entries, Verdict
from asyncjax.traces.dispatch import Dispatch, Gate, to_deliverer
from asyncjax.traces.host import check_key, count_of_updates, on_host
from asyncjax.traces.own_rules import answering, collector
from asyncjax.traces.patience import Moment, Patience
from asyncjax.traces.progress import Pace, pace_of
from asyncjax.traces.server import IDLE, TAKEN, Rules, Server
from asyncjax.traces.serving import Serving


class WorkerError(RuntimeError):
    """The gradient of a job failed at its worker; its cause is the error there."""


@dataclass
class Settings:
    """What a run goes by, beside its rules."""

    n_updates: int
    record_every: int | None
    timeout: list[float]
    patience: float


class Live:
    """A run in progress."""

    def __init__(
        self,
        problem: Problem,
        model: Model,
        server: Server,
        crew: Crew,
        settings: Settings,
        dispatch: Dispatch,
        log: Log | None = None,
    ) -> None:
        self.problem, self.model, self.server, self.crew = problem, model, server, crew
        self.settings, self.log, n = settings, log, server.n_workers
        self.serving = Serving(server.collect, n)
        self.is_table = server.collect.reuse is not None
        self.records = {*recorded_versions(settings.n_updates, settings.record_every).tolist()}
        self.timing: list[tuple[float, float, float]] = []
        self.heard = self.resent = 0.0  # when an event came last; when jobs were sent again
        self.silent = self.given_up = 0  # events since the last update; jobs lost since an arrival
        collect, timeout = server.collect, settings.timeout
        needs = server.rules.collector.is_stuck_without
        self.waits = min(timeout) < math.inf
        self.patience = Patience(
            collect.name, needs, dispatch, timeout, np.zeros(n), None, lambda worker, now: False
        )

    def begin(self, initial: list[int]) -> None:
        """Hands out the first jobs, or goes on from the log."""
        server, log = self.server, self.log
        self._foresee(server.begin(initial, 0.0), 0.0)
        if log is not None and log.file.path.exists():
            for row in log.load(self.model):
                self._hear_again(row)
            self.heard = log.rows[-1].done if log.rows else 0.0
            self.resent = self.heard if self.crew.places_stay else 0.0
        elif log is not None:
            log.save(self.model)
        self.crew.start_at(self.heard)
        self._send(worker for worker, serial in enumerate(server.serial) if serial >= 0)
        for worker, serial in enumerate(server.serial):
            if serial == TAKEN:  # by a job of the process that was killed
                self._tell(FREED, worker)

    def go_on(self, pace: Pace | None) -> None:
        """Serves events until all updates are made."""
        crew, settings, number = self.crew, self.settings, 0
        while self.server.version < settings.n_updates:
            if number % self.server.n_workers == 0:
                self._look()
            until, number = self._deadline(), number + 1
            if not crew.is_waiting() and until == math.inf:
                self._stall("no job will return any more")
            event = crew.next(min(until, self.heard + settings.patience))
            now = crew.now()
            # an answer that came in time counts, also where it was not looked at in time
            late = now if event is None else math.nextafter(event.time, -math.inf)
            if late >= until:
                self._give_up(late)
            if event is not None:
                self.heard = now
                self._serve(event)
            elif now >= self.heard + settings.patience:
                self._stall(f"nothing was heard for {settings.patience:g} seconds (patience)")
            if self.log is not None:
                self.log.save(self.model)
            if pace is not None:
                pace.at(self.server.version, now)
        if pace is not None:
            pace.end(self.server.time)

    def _serve(self, event: Event) -> None:
        server, worker = self.server, event.worker
        if event.error is not None:
            if event.serial < 0:
                raise set_up_error(event)
            number, version = server.job[worker], server.read[worker]
            raise WorkerError(
                f"the gradient of worker {worker}, job {number}, at version {version}, failed:"
                f" {in_words(event.error)}"
            ) from event.error
        if event.serial >= 0 and event.serial == server.serial[worker]:
            if event.answer is None:
                self._tell(LOST, worker)
            else:
                self._arrive(event, event.answer)
        elif self.crew.places_stay and (event.answer is not None or event.serial < 0):
            self._tell(FREED, worker)

    def _arrive(self, event: Event, answer: jobs.Answer) -> None:
        server, model, worker = self.server, self.model, event.worker
        handled, time = self.crew.now(), max(event.time, server.time)
        number, job, read = len(self.timing), server.job[worker], server.read[worker]
        verdict, entries = self._judge(worker, time)
        if verdict is not Verdict.DROP:
            model.hold(number, read, answer.gradient)
        model.losses.append(np.array(answer.loss))  # a view would keep the gradient's memory
        if verdict is Verdict.STEP:
            model.step(entries, worker, job, time, record=server.version + 1 in self.records)
            if not self.is_table:
                model.serve_once()
        done = self.crew.now()
        row = Row(ARRIVED, worker, time, handled, done, answer.seconds)
        self._told(row, (verdict, entries), server.react(worker, verdict, done))

    def _judge(self, worker: int, time: float) -> tuple[Verdict, Entries]:
        """What becomes of a gradient, and what enters the step, if it makes one."""
        delay = self.server.version - self.server.read[worker]
        verdict = self.server.take(worker, time)
        return verdict, self.serving.hear(worker, delay, time, verdict)

    def _tell(self, kind: int, worker: int) -> None:
        """Tells the server that a job is lost, or that a worker is free again."""
        now = self.crew.now()
        started = (self.server.lose if kind == LOST else self.server.free)(worker, now)
        self._told(Row(kind, worker, now, now, now, 0.0), None, started)

    def _told(self, row: Row, judged: Any, started: list[int]) -> None:
        """Writes down what the server was told, and hands out the jobs that it answered with."""
        if self.log is not None:
            self.log.note(row, judged, started)
        self._count(row, judged)
        self._foresee(started, row.done)
        self._send(started)

    def _hear_again(self, row: Row) -> None:
        """Tells the server of an event of the log."""
        server, worker, judged = self.server, row.worker, None
        assert self.log is not None  # it is read from there
        if row.kind == ARRIVED:
            judged = self._judge(worker, row.time)
            started = server.react(worker, judged[0], row.done)
        else:
            started = (server.lose if row.kind == LOST else server.free)(worker, row.done)
        self.log.check(judged, started)
        self.log.rows.append(row)
        self._count(row, judged)
        self._foresee(started, row.done)

    def _count(self, row: Row, judged: Any) -> None:
        self.silent += 1
        if row.kind == LOST:
            self.given_up += 1
        elif row.kind == ARRIVED:
            self.timing.append((row.handled, row.done, row.computed))
            self.given_up = 0
            if judged[0] is Verdict.STEP:
                self.silent = 0

    def _foresee(self, started: Iterable[int], now: float) -> None:
        for worker in started:
            self.crew.foresee(worker, now)

    def _send(self, started: Iterable[int]) -> None:
        """Sends jobs that have started."""
        server = self.server
        for worker in started:
            version = server.read[worker]
            model = self.model.sent(version)
            self.crew.send(worker, server.serial[worker], model, server.job[worker], version)
        self.model.keep(server.awaited_versions())

    def _deadline(self) -> float:
        """When the next running job is given up."""
        return min(self._deadlines().values(), default=math.inf) if self.waits else math.inf

    def _deadlines(self) -> dict[int, float]:
        start, timeout, serials = self.server.start, self.settings.timeout, self.server.serial
        return {
            worker: max(start[worker], self.resent) + timeout[worker]
            for worker, serial in enumerate(serials)
            if serial >= 0
        }

    def _give_up(self, late: float) -> None:
        """Stops waiting for the jobs whose time is up."""
        for worker, deadline in self._deadlines().items():
            if deadline <= late:
                self._tell(LOST, worker)

    def _look(self) -> None:
        """Ends the run if no update can come any more."""
        server, n, timeout = self.server, self.server.n_workers, self.settings.timeout
        running = {worker for worker, serial in enumerate(server.serial) if serial != IDLE}
        lost = {
            worker
            for worker in running & self.crew.lost(self.settings.patience)
            if server.serial[worker] < 0 or timeout[worker] == math.inf
        }
        idle = {worker for worker in range(n) if not server.queues[worker]} - running
        why = self.patience.why_stuck(
            Moment(
                now=server.time,
                coming=running - lost,
                late={},
                lost=lost,
                jobless=idle - {*server.held},
                silent=self.silent,
                given_up=self.given_up,
            )
        )
        if why is not None:
            self._stall(why)

    def _stall(self, why: str) -> None:
        server = self.server
        raise StalledError(
            f"the run cannot go on after arrival {len(self.timing)} at {server.time:g} seconds,"
            f" update {server.version}: {why}",
            server.trace_so_far(),
        )

    def outcome(self) -> Run:
        """The run, its recorded models judged."""
        planned = plan(self.server.trace(), width=1, record_every=self.settings.record_every)
        losses = [self.model.losses[arrival] for arrival in np.sort(planned.gradients.arrival)]
        run = judged(self.problem, self.model, planned, losses)
        own = Timing(*(np.array(column) for column in zip(*self.timing, strict=True)))
        return replace(run, source=replace(run.source, timing=own))


def train(
    problem: Problem | Callable[..., Problem],
    workers: Engine | VirtualEngine,
    optimizer: optax.GradientTransformation,
    *,
    n_updates: int,
    dispatch: Dispatch | None = None,
    collect: Collection | None = None,
    gate: Gate | None = None,
    read: str = "assignment",
    concurrency: int | None = None,
    timeout: ArrayLike | None = None,
    key: jax.Array | None = None,
    record_every: int | None = None,
    patience: float = 600.0,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
    """Trains with real workers.

    The server is that of `traces.asynchronous`, told what really happens: every dispatch and
    collection rule and gate works here too. `traces.wait_for(n)` is synchronous training,
    `traces.fresh(k, cancel=True)` that of the fastest k.

    Args:
        problem: What is optimised, or a function that makes it: without an argument, or of the
            worker's number (None at the server), so that each worker may load its own data. What is
            sent to another process must be importable there.
        workers: An engine: `processes`, `threads`, `devices`, `ray`, `executors`, or `virtual`.
        optimizer: Any optax optimizer; handed what `simulation.replay` hands it.
        n_updates: Server updates; the run ends with the arrival that makes the last one.
        dispatch: As in `traces.asynchronous`.
        collect: As in `traces.asynchronous`.
        gate: As in `traces.asynchronous`.
        read: As in `traces.asynchronous`.
        concurrency: As in `traces.asynchronous`.
        timeout: As in `traces.asynchronous`, seconds. The worker goes on with the job, and gets
            another when it has answered.
        key: Typed key: job j of worker i gets fold_in(fold_in(key, i), j), as in a replay. None:
            `jax.random.key(0)`.
        record_every: As in `simulation.replay`. Models are judged after the run.
        patience: Seconds without any news after which the run is called stuck; after which a worker
            that is not heard counts as lost, where the rule cannot step without him; and within
            which workers must be ready. Not looked at on a virtual clock.
        progress: As in `simulation.replay`; its time is in seconds.
        checkpoint: File from which a run that was killed goes on. It is written before anything
            runs, then every half a minute (and no more than a twentieth of the time), and removed
            at the end: what the server was told, and the models and gradients that it holds. If it
            is there the rules are told all of it again, jobs that were in flight are sent again,
            and time goes on from the last event. The file of another run is refused, as in
            `simulation.replay` (what workers load for themselves is not seen). It is written
            between two events, by the thread that serves them: 10 ms for a small model, about 5
            seconds a gigabyte of all that is held (measured on two slow cores).

    Returns:
        The run. Its trace (`run.trace`) is in seconds since all workers were ready;
        `simulation.replay(problem, run.trace, optimizer, key=key, waves=False)` computes the same
        model: to the bit for plain SGD, to rounding (1e-5) where the compiler joins operations in
        another way. Memory at the server: a model for each version that is still read or recorded,
        and a gradient for each that waits or serves.

    Note:
        A job that is stopped (`cancel=True`, `timeout`) is not taken out of a worker's hands: he is
        busy until he has answered, as in `traces.asynchronous(..., interruptible=False)`.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range, or the checkpoint damaged or of another run.
        WorkerError: The gradient of a job failed.
        SetUpError: A worker could not be set up, or has other software.
        StalledError: No update can come any more; holds the trace so far.

    Example:
        >>> import numpy as np, optax
        >>> from asyncjax import live, problems
        >>> problem = problems.quadratic(np.ones((2, 3)), np.arange(6.0).reshape(2, 3))
        >>> with live.threads(2) as workers:
        ...     run = live.train(problem, workers, optax.sgd(0.1), n_updates=60)
        >>> run.trace.n_workers, bool(run.records.loss[-1] < run.records.loss[0])
        (2, True)
    """
    instance("workers", workers, (Engine, VirtualEngine), "an engine, such as live.processes(8)")
    n = workers.n_workers
    dispatch = to_deliverer() if dispatch is None else dispatch
    collect = immediately() if collect is None else collect
    n_updates, key = count_of_updates(n_updates), key_of(key)
    check_rules(n, dispatch, collect, read, concurrency, gate)
    check_optimizer("optimizer", optimizer)
    if record_every is not None:
        record_every = whole("record_every", record_every)
    own = _servers(problem, n)
    check_run(own, progress=progress, checkpoint=checkpoint)
    patience, least = real("patience", patience, above=0.0, finite=False), np.zeros(n)
    if isinstance(workers, VirtualEngine):
        patience, least = math.inf, workers.clock.least(1.0)
    settings = Settings(n_updates, record_every, timeouts_of(timeout, least), patience)
    check_key(key, None)
    with on_host(key) as host_key:
        dispatch_key = jax.random.split(host_key)[1]
    answering(dispatch, n, dispatch_key)([0])  # what it draws with is compiled before the run
    answer = answering(dispatch, n, dispatch_key)
    rules = Rules(answer, collect, collector(collect, n), gate, read == "start")
    initial, model = first_jobs(n, concurrency, answer), Model(own, optimizer, key)
    model.prime()
    log = None
    if checkpoint is not None:
        bound = None if gate is None else gate.bound
        rest = (settings.n_updates, record_every, settings.timeout, concurrency)
        log = log_of(checkpoint, own, model, dispatch.name, collect.name, bound, read, *rest)
    crew = _crew(workers, problem, key, patience)
    try:
        server = Server(n, rules, places_stay=crew.places_stay)
        live = Live(own, model, server, crew, settings, dispatch, log)
        live.begin(initial)
        live.go_on(pace_of(progress, n_updates))
    finally:
        crew.close()
    run = live.outcome()
    if log is not None:
        log.file.forget()
    return run


def _servers(source: Problem | Callable[..., Problem], n_workers: int) -> Problem:
    """The server's own problem."""
    own = jobs.make_problem(source, None)
    if own.n_workers is not None and n_workers > own.n_workers:
        raise ValueError(
            f"workers has {n_workers} workers but problem has only {own.n_workers} shards"
            " (n_workers)"
        )
    return own


def _crew(
    workers: Engine | VirtualEngine,
    problem: Problem | Callable[..., Problem],
    key: jax.Array,
    patience: float,
) -> Crew:
    if isinstance(workers, VirtualEngine):
        return VirtualCrew(workers, problem, key)
    return EngineCrew(workers, problem, key, patience)
