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
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike

from asyncjax.checks import instance, real, whole, within
from asyncjax.live import jobs
from asyncjax.live.crews import Crew, EngineCrew, Event, VirtualCrew, VirtualEngine
from asyncjax.live.engines import Engine
from asyncjax.live.model import Model
from asyncjax.problems import Problem
from asyncjax.results.run import Run
from asyncjax.simulation.arguments import check_optimizer, check_run, key_of
from asyncjax.simulation.loops.events import events_of
from asyncjax.simulation.loops.server import Replayed, measure
from asyncjax.simulation.plans.plan import plan, recorded_versions
from asyncjax.simulation.replay import run_of
from asyncjax.traces import Progress, StalledError
from asyncjax.traces.asynchronous import check_rules, first_jobs
from asyncjax.traces.averages import immediately
from asyncjax.traces.collection import Collection, Verdict
from asyncjax.traces.dispatch import Dispatch, Gate, to_deliverer
from asyncjax.traces.host import check_key, count_of_updates, on_host
from asyncjax.traces.own_rules import answering, collector
from asyncjax.traces.progress import Pace, pace_of
from asyncjax.traces.server import Rules, Server
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


class Timing(NamedTuple):
    """When things were done, beside the trace; a row an arrival, E in all."""

    handled: np.ndarray  # float64[E], seconds, when the server took the gradient up
    done: np.ndarray  # float64[E], seconds, when it had answered it
    computed: np.ndarray  # float64[E], seconds that the worker computed


class Live:
    """A run in progress."""

    def __init__(
        self, problem: Problem, model: Model, server: Server, crew: Crew, settings: Settings
    ) -> None:
        self.problem, self.model, self.server, self.crew = problem, model, server, crew
        self.settings = settings
        self.serving = Serving(server.collect, server.n_workers)
        self.is_table = server.collect.reuse is not None
        self.records = {*recorded_versions(settings.n_updates, settings.record_every).tolist()}
        self.timing: list[tuple[float, float, float]] = []
        self.heard = 0.0  # when an event came last
        self.deadlines = [math.inf] * server.n_workers

    def begin(self, initial: list[int]) -> None:
        """Hands out the first jobs."""
        self._send(self.server.begin(initial, 0.0), 0.0)

    def go_on(self, pace: Pace | None) -> None:
        """Serves events until all updates are made."""
        while self.server.version < self.settings.n_updates:
            until = min(self.deadlines)
            if not self.crew.is_waiting() and until == math.inf:
                self._stall("no job will return any more")
            event = self.crew.next(min(until, self.heard + self.settings.patience))
            now = self.crew.now()
            if event is not None:
                self.heard = now
                self._serve(event)
            elif now >= until:
                self._give_up(until)
            elif now >= self.heard + self.settings.patience:
                self._stall(f"nothing was heard for {self.settings.patience:g} seconds (patience)")
            if pace is not None:
                pace.at(self.server.version, now)

    def _serve(self, event: Event) -> None:
        server, worker = self.server, event.worker
        if event.error is not None:
            number, version = server.job[worker], server.read[worker]
            raise WorkerError(
                f"the gradient of worker {worker}, job {number}, at version {version}, failed:"
                f" {type(event.error).__name__}: {event.error}"
            ) from event.error
        if event.serial >= 0 and event.serial == server.serial[worker]:
            if event.answer is None:
                self._lose(worker, event.time)
            else:
                self._arrive(event, event.answer)
        elif self.crew.places_stay and (event.answer is not None or event.serial < 0):
            self._send(server.free(worker, self.crew.now()), self.crew.now())

    def _arrive(self, event: Event, answer: jobs.Answer) -> None:
        server, model, worker = self.server, self.model, event.worker
        handled = self.crew.now() if self.crew.places_stay else event.time
        number, job, read = len(self.timing), server.job[worker], server.read[worker]
        delay = server.version - read
        time = max(event.time, server.time)
        verdict = server.take(worker, time)
        self.deadlines[worker] = math.inf
        if verdict is not Verdict.DROP:
            model.hold(number, read, answer.gradient)
        model.losses.append(answer.loss)
        entries = self.serving.hear(worker, delay, time, verdict)
        if verdict is Verdict.STEP:
            model.step(entries, worker, job, time, record=server.version + 1 in self.records)
            if not self.is_table:
                model.serve_once()
        done = self.crew.now() if self.crew.places_stay else event.time
        self.timing.append((handled, done, answer.seconds))
        self._send(server.react(worker, verdict, done), done)

    def _lose(self, worker: int, time: float) -> None:
        """The worker of a running job is gone."""
        self.deadlines[worker] = math.inf
        now = max(time, self.server.start[worker])
        self._send(self.server.lose(worker, now), now)

    def _give_up(self, now: float) -> None:
        """Stops waiting for the jobs whose time is up."""
        for worker, deadline in enumerate(self.deadlines):
            if deadline <= now:
                self._lose(worker, now)

    def _send(self, started: list[int], now: float) -> None:
        server = self.server
        for worker in started:
            version = server.read[worker]
            self.deadlines[worker] = server.start[worker] + self.settings.timeout[worker]
            self.crew.send(
                worker, server.serial[worker], self.model.sent(version), server.job[worker], version
            )
        self.model.keep(server.awaited_versions())

    def _stall(self, why: str) -> None:
        server = self.server
        raise StalledError(
            f"the run cannot go on after arrival {len(self.timing)} at {server.time:g} seconds,"
            f" update {server.version}: {why}",
            server.trace_so_far(),
        )

    def outcome(self) -> Run:
        """The run, its recorded models judged."""
        trace = self.server.trace()
        planned = plan(trace, width=1, record_every=self.settings.record_every)
        events = events_of(planned)
        recorded = [self.model.recorded[int(version)] for version in planned.records]
        rows = jax.tree.map(lambda *leaves: jnp.stack([*leaves, leaves[-1]]), *recorded)
        losses = jnp.asarray(np.stack(self.model.losses)[np.sort(planned.gradients.arrival)])
        measured = jax.jit(measure)(
            self.problem, events.record_events, events.record_weights, rows, losses
        )
        return run_of(planned, Replayed(self.model.params, self.model.opt_state, measured))


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
        workers: An engine: `processes`, `threads`, `devices`, `executors`, or `virtual`.
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
        patience: Seconds without any news after which the run is called stuck, and within which
            workers must be ready.
        progress: As in `simulation.replay`; its time is in seconds.
        checkpoint: As in `simulation.replay`.

    Returns:
        The run. Its trace (`run.trace`) is in seconds since all workers were ready;
        `simulation.replay(problem, run.trace, optimizer, key=key, waves=False)` computes the same
        model: to the bit for plain SGD, to rounding (1e-5) where the compiler joins operations in
        another way. Memory at the server: a model for each version that is still read or recorded,
        and a gradient for each that waits or serves.

    Note:
        A job that is stopped (`cancel=True`, `timeout`) is not taken out of a worker's hands: he is
        busy until he has answered. The simulator frees him at once.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range.
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
    own = jobs.make_problem(problem, None)
    check_run(own, progress=progress, checkpoint=checkpoint)
    settings = Settings(
        n_updates, record_every, _timeouts(timeout, n), real("patience", patience, above=0.0)
    )
    check_key(key, None)
    with on_host(key) as host_key:
        dispatch_key = jax.random.split(host_key)[1]
    answer = answering(dispatch, n, dispatch_key)
    rules = Rules(answer, collect, collector(collect, n), gate, read == "start")
    initial = first_jobs(n, concurrency, answer)
    crew: Crew
    if isinstance(workers, VirtualEngine):
        crew = VirtualCrew(workers.clock, workers.key, problem, key)
    else:
        crew = EngineCrew(workers, problem, key, settings.patience)
    server = Server(n, rules, places_stay=crew.places_stay)
    live = Live(own, Model(own, optimizer, key), server, crew, settings)
    try:
        live.begin(initial)
        live.go_on(pace_of(progress, n_updates))
    finally:
        crew.close()
    return live.outcome()


def _timeouts(timeout: ArrayLike | None, n_workers: int) -> list[float]:
    longest = math.inf if timeout is None else within("timeout", timeout, above=0.0, finite=False)
    if np.shape(longest) not in ((), (n_workers,)):
        raise ValueError(
            f"timeout must be one number or one a worker, {n_workers}, got shape"
            f" {np.shape(longest)}"
        )
    return np.broadcast_to(np.asarray(longest, np.float64), (n_workers,)).tolist()
