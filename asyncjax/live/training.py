"""Live training: a `Server` in front of real workers, which makes a trace that can be replayed.

    jobs of time 0
    on each event:  an answer that is waited for    judge it, perhaps step, hand out jobs
                    the alarm of a rule             perhaps step, hand out jobs
                    a lost worker                   its job is given up; it is opened anew
                    an answer nobody waits for      its worker is free again

One thread decides; workers compute. What a run did is its trace, and when gradients were computed
how fast lies beside it (`Timing`). The workers are in `worker_pool` and `engines`.

`rerun` runs a trace once more by the very pieces that a live run is made of, to the same bits:

    on each arrival that is used:  its gradient, at the version that it read    (jobs.gradient_of)
    on each step:                  the gradients that enter it, added, applied  (model.add, .step)

(where workers keep a state, on each arrival: it moves that of its worker, also if it is not used)

`simulation.replay` fuses these into one program, whose rounding may differ; nothing is fused here.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.checks import real, whole
from asyncjax.live import jobs
from asyncjax.live.engines import Engine
from asyncjax.live.measured import Timing
from asyncjax.live.server_state import ARRIVED, FREED, LOST, RANG, Held, Log, Row, ServerState
from asyncjax.live.worker_pool import EngineCrew, Event, Job, VirtualCrew, VirtualEngine, in_words
from asyncjax.problems import Problem
from asyncjax.problems.problem import Model
from asyncjax.results.run import Records, Run
from asyncjax.simulation import arguments
from asyncjax.simulation.arguments import (
    Execution,
    check_update,
    check_workers,
    first_equal,
    key_of,
)
from asyncjax.simulation.engine import ReplayResult, judge, measure
from asyncjax.simulation.loop import in_python
from asyncjax.simulation.plan import ReplayPlan, plan, recorded_versions
from asyncjax.simulation.program import gradients_behind
from asyncjax.simulation.replay import run_of
from asyncjax.simulation.update import Update, update_of
from asyncjax.traces import EventTrace, Progress, StalledError
from asyncjax.traces.asynchronous import Rule, first_jobs, timeouts_of
from asyncjax.traces.collection import (
    Alarm,
    Collection,
    Entries,
    Serving,
    Verdict,
    collector,
    exact_weights,
)
from asyncjax.traces.dispatch import Answer, Dispatch, answering
from asyncjax.traces.event_trace import worker_count
from asyncjax.traces.progress import Pace, pace_of
from asyncjax.traces.random_draws import count_of_updates, on_host
from asyncjax.traces.server import IDLE, TAKEN, Rules, Server
from asyncjax.traces.stall_detection import Moment, StallDetector


class WorkerError(RuntimeError):
    """The gradient of a job failed at its worker; its cause is the error there."""


def train(
    problem: Problem[Model] | Callable[..., Problem[Model]],
    workers: Engine | VirtualEngine,
    update: Update | optax.GradientTransformation,
    rule: Rule | None = None,
    *,
    n_updates: int,
    collect: Collection | None = None,
    key: jax.Array | None = None,
    record_every: int | None = None,
    patience: float = 600.0,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run[Model, Records]:
    """Trains with real workers.

    The server is that of `traces.Rule`, told what really happens: every rule works here too.
    `collect=traces.wait_for(n)` is synchronous training, `collect=traces.rennala(k, cancel=True)`
    that of the fastest k.

    Args:
        problem: What is optimised, or a function that makes it: without an argument, or of the
            worker's number (None at the server), so that each worker may load its own data. What is
            sent to another process must be importable there. Workers may keep a state from job to
            job (`problems.local_steps(..., keep_state=True)`), see the note.
        workers: An engine: `processes`, `threads`, `devices`, `ray`, `executors`, or `virtual`.
        update: Any optax optimizer, or a `simulation.Update`, whose aggregator is compiled for each
            number of gradients.
        rule: What the server does with its workers; None: `traces.Rule()`, every gradient on
            arrival. Its timeout is in seconds: the worker goes on with the job, and gets another
            when it has answered.
        n_updates: Server updates; the run ends with the arrival that makes the last one.
        collect: Short form of `rule=traces.Rule(collect=collect)`.
        key: Typed key, used as in a replay. None: `jax.random.key(0)`.
        record_every: As in `simulation.replay`. Models are evaluated after the run.
        patience: Seconds without any news after which the run is called stuck; after which a worker
            that sends nothing counts as lost, where the rule cannot step without him; and within
            which workers must be ready. Not looked at on a virtual clock.
        execution: A checkpoint, progress and `on_record`, as in `simulation.replay`. A row is told
            as soon as its update is made and the jobs in answer to it are sent; gradients that come
            while the model is evaluated wait. It counts what has happened by then: in `used` no
            gradient that only enters a later update, in `computed` no job that is cancelled later.
        progress: Short form of the execution's; its time is in seconds, and it counts how often
            workers were lost, came back, or waited for a place.
        checkpoint: Short form of the execution's: file from which a run that was killed goes on. It
            is written before anything runs, then between two events every half a minute (and no
            more than a twentieth of the time), and removed at the end. If it is there the rules are
            told all of it again, jobs that were in flight are sent again, and time goes on from the
            last event. The file of another run is refused (what workers load for themselves is not
            seen). Writing takes 10 ms for a small model, about 5 seconds a gigabyte of all that is
            held (on two slow cores).

    Returns:
        The run. Its trace (`run.trace`) is in seconds since all workers were ready;
        `simulation.replay(problem, run.trace, update, key=key, waves=False)` computes the same
        model: to the bit for plain SGD, to rounding (1e-5) where the compiler joins operations in
        another way. The server holds a model for each version that is still read or recorded, a
        gradient for each that waits or serves, and n states of workers where they are carried.

    Note:
        A worker that is lost, or has not answered for `patience` seconds, is told of once, with how
        many are left; so are its return, and workers that wait for a place on a cluster. Each is a
        warning of the logger `asyncjax.live`, and counted in `run.worker_events`. A run that goes
        on from its checkpoint counts on, and lost workers count as returned.

        A job that is stopped (`cancel=True`, `timeout`) is not taken out of a worker's hands: he is
        busy until he has answered, as in `traces.asynchronous(..., interruptible=False)`.

        What workers keep is moved by every job whose answer arrives, also if it is thrown away, and
        by no other, as in a replay. Each answer carries the state (for Adam as much as two
        gradients more), so that a worker who takes the place of a lost one goes on with it: unless
        lost workers are not opened anew (`restarts=0` of the engine) and there is no checkpoint.
        Then no state travels, and `worker_states` is None.

    Raises:
        WorkerError: The gradient of a job failed.
        SetUpError: A worker could not be set up, or has other software.
        StalledError: No update can come any more; holds the trace so far.

    Example:
        >>> import optax
        >>> from asyncjax import live, problems
        >>> problem = problems.quadratic([[1.0], [1.0]], [[0.0], [1.0]])
        >>> with live.threads(2) as workers:
        ...     run = live.train(problem, workers, optax.sgd(0.1), n_updates=60)
        >>> run.trace.n_workers, bool(run.records.loss[-1] < run.records.loss[0])
        (2, True)
    """
    n, rule = workers.n_workers, _rule(rule, collect)
    short = {"progress": progress, "checkpoint": checkpoint}
    execution = arguments.execution_of(execution, knows=("on_record",), **short)
    rule.check_workers(n)
    n_updates, key = count_of_updates(n_updates), arguments.key_of(key)
    if record_every is not None:
        record_every = whole("record_every", record_every)
    server_problem = jobs.make_problem(problem, None)
    shards = server_problem.n_workers
    if shards is not None and n > shards:
        raise ValueError(
            f"workers has {n} workers but problem has only {shards} shards (n_workers)"
        )
    arguments.check_update(update, server_problem.params, n_workers=n)
    server_update: Update = arguments.first_equal(update_of(update))
    if server_update.is_of_arrivals and rule.collect.reuse is not None:
        raise ValueError(
            "gradient_transform and aggregator must be None where gradients serve in several"
            f" updates (collect, {rule.collect.name})"
        )
    patience, least = real("patience", patience, above=0.0, finite=False), np.zeros(n)
    if isinstance(workers, VirtualEngine):
        patience, least = math.inf, workers.clock.least(1.0)
    timeout = timeouts_of(rule.timeout, least)
    answer, opened = _answering(rule.dispatch, n, key), collector(rule.collect, n)
    rules = Rules(answer, rule.collect, opened, rule.gate, rule.read == "start")
    initial = first_jobs(n, rule.concurrency, answer)
    model = ServerState(server_problem, server_update, key, once=rule.collect.reuse is None)
    model.prime()
    bound = None if rule.gate is None else rule.gate.bound
    settings = (rule.dispatch.name, rule.collect.name, bound, rule.read)
    settings += (n_updates, record_every, timeout, rule.concurrency)
    log = Log(model, execution.checkpoint, *settings)
    with contextlib.closing(_crew(workers, problem, model, patience, log)) as crew:
        server = Server(n, rules, places_stay=crew.places_stay)
        limits = (n_updates, record_every, timeout, patience, execution.on_record)
        live = Live(model, server, crew, log, rule.dispatch, *limits)
        live.begin(initial)
        live.go_on(pace_of(execution.progress, n_updates))
    run = live.outcome()
    if log.file is not None:
        log.file.forget()
    return run


def _rule(rule: Rule | None, collect: Collection | None) -> Rule:
    """The rule that was given, in its long form or its short one."""
    if rule is None:
        return Rule() if collect is None else Rule(collect=collect)
    if collect is not None:
        raise ValueError(f"collect must be None where a rule is given, got '{collect.name}'")
    return rule


def _answering(dispatch: Dispatch, n_workers: int, key: jax.Array) -> Answer:
    """A run of the dispatch rule."""
    with on_host(key) as host_key:
        dispatch_key = jax.random.split(host_key)[1]
    answering(dispatch, n_workers, dispatch_key)([0])  # compiles what it draws with before the run
    return answering(dispatch, n_workers, dispatch_key)


def _crew(
    workers: Engine | VirtualEngine, source: Any, model: ServerState, patience: float, log: Log
) -> EngineCrew | VirtualCrew:
    """The workers, set up; what they keep is carried where one may take another's place."""
    virtual = isinstance(workers, VirtualEngine)
    carries = virtual or workers.restarts > 0 or log.file is not None
    task = jobs.task_of(source, model.problem, model.key, carries)
    return VirtualCrew(workers, task) if virtual else EngineCrew(workers, task, patience)


@dataclass(eq=False)
class Live:
    """A run in progress."""

    model: ServerState
    server: Server
    crew: EngineCrew | VirtualCrew
    log: Log
    dispatch: Dispatch
    n_updates: int
    record_every: int | None
    timeout: list[float]  # seconds, by worker
    patience: float  # seconds
    on_record: Callable[[Any], None] | None

    def __post_init__(self) -> None:
        server, collector, n = self.server, self.server.rules.collector, self.server.n_workers
        self.alarm, self.serving = Alarm(collector.timer), Serving(server.collect, n)
        self.records = {*recorded_versions(self.n_updates, self.record_every).tolist()}
        if self.record_every is None and self.model.problem.objective is not None:
            self.records.add(0)
        self.judge = jax.jit(judge)
        self.used = self.delay = 0  # gradients that have entered; the delay of the last update
        self.entries: Entries = []  # that entered it, and not the one before it
        self.entering: set[int] = set()  # all that entered it, by arrival
        self.heard = self.resent = 0.0  # when an event came last; when jobs were sent again
        self.silent = self.given_up = 0  # events since the last update; jobs lost since an arrival
        self.arrivals = 0
        self.waits = min(self.timeout) < math.inf
        known = (collector.is_stuck_without, self.dispatch, self.timeout, np.zeros(n), None)
        self.stalls = StallDetector(server.collect.name, *known, lambda worker, now: False)

    def begin(self, initial: list[int]) -> None:
        """Hands out the first jobs, or goes on from the log."""
        server, crew, log = self.server, self.crew, self.log
        for worker in server.begin(initial, 0.0):
            crew.foresee(worker, 0.0)
        for row in log.load():
            self._hear(row.kind, row.worker, row.time, logged=row)
        crew.news.go_on(log.events)
        if log.rows:
            self.heard = log.rows[-1].done
            self.resent = self.heard if crew.places_stay else 0.0
        else:
            log.save(crew.news.events)
        if self.on_record is not None:
            self._measured()  # compiles it before the run
            self._record(0.0)
        crew.start_at(self.heard)
        self._send([worker for worker, serial in enumerate(server.serial) if serial >= 0])
        for worker, serial in enumerate(server.serial):
            if serial == TAKEN:  # by a job of the process that was killed
                self._hear(FREED, worker, crew.now())

    def go_on(self, pace: Pace | None) -> None:
        """Serves events until all updates are made."""
        crew, number = self.crew, 0
        while self.server.version < self.n_updates:
            if number % self.server.n_workers == 0:
                self._look()
            deadline, number = min(self._deadlines().values(), default=math.inf), number + 1
            until = min(deadline, self.alarm.at)
            if not crew.pending and until == math.inf:
                self._stall("no job will return any more")
            event = crew.next(min(until, self.heard + self.patience))
            now = crew.now()
            # an answer that came in time counts, also where it was not looked at in time
            late = now if event is None else math.nextafter(event.time, -math.inf)
            if late >= until:
                for worker, end in self._deadlines().items():
                    if end <= late:
                        self._hear(LOST, worker, crew.now())
                if late >= self.alarm.at:
                    self._hear(RANG, self.server.last[0], self.alarm.at)
            if event is not None:
                self.heard = now
                self._serve(event)
            elif now >= self.heard + self.patience:
                self._stall(f"nothing has arrived for {self.patience:g} seconds (patience)")
            self.log.save(crew.news.events)
            if pace is not None:
                pace.at(self.server.version, now, *crew.news.events)
        if pace is not None:
            pace.end(self.server.time, *crew.news.events)

    def _deadlines(self) -> dict[int, float]:
        """When each running job is given up, by worker; none where no job ever is."""
        if not self.waits:
            return {}
        start, timeout, serials = self.server.start, self.timeout, self.server.serial
        return {
            worker: max(start[worker], self.resent) + timeout[worker]
            for worker, serial in enumerate(serials)
            if serial >= 0
        }

    def _serve(self, event: Event) -> None:
        """Sees what an event is of: a job that is waited for, or a worker that is free again."""
        server, worker = self.server, event.worker
        if event.error is not None:
            number, version = server.job[worker], server.read[worker]
            raise WorkerError(
                f"the gradient of worker {worker}, job {number}, at version {version}, failed:"
                f" {in_words(event.error)}"
            ) from event.error
        if event.serial >= 0 and event.serial == server.serial[worker]:
            if event.answer is None:
                self._hear(LOST, worker, self.crew.now())
            else:
                self._hear(ARRIVED, worker, max(event.time, server.time), event.answer)
        elif self.crew.places_stay and (event.answer is not None or event.serial < 0):
            self._hear(FREED, worker, self.crew.now())

    def _hear(
        self,
        kind: int,
        worker: int,
        time: float,
        answer: jobs.Answer | None = None,
        logged: Row | None = None,
    ) -> None:
        """Tells the server of an event, and does what it asks for, unless it is of the log."""
        server, crew, verdict, entries = self.server, self.crew, None, []
        job, read, handled = server.job[worker], server.read[worker], crew.now()
        if kind == ARRIVED:
            delay = server.version - read
            verdict = server.take(worker, time)
            self.alarm.hear(worker, time, steps=verdict is Verdict.STEP)
            entries = self.serving.hear(worker, delay, time, verdict)
        elif kind == RANG:
            job = server.last[1]
            if self.alarm.ring():
                verdict, entries = Verdict.STEP, self.serving.step()
        if answer is not None:
            loss = np.array(answer.loss)  # a view would keep the gradient's memory
            if self.model.keeps:
                self.model.kept[worker] = jobs.Kept(job, answer.state)
            if verdict is not Verdict.DROP:
                held = Held(read, answer.gradient, loss, worker, job, time)
                self.model.hold(self.arrivals, held)
            self.model.losses.append(loss)
        if verdict is Verdict.STEP and logged is None:
            record = server.version + 1 in self.records
            self.delay = self.model.step(entries, worker, job, time, record=record)
        computed = 0.0 if answer is None else answer.seconds
        row = logged or Row(kind, worker, time, handled, crew.now(), computed)
        if kind == RANG:
            started = [] if verdict is None else server.ring(time, row.done)
        elif verdict is not None:
            started = server.react(worker, verdict, row.done)
        else:
            started = (server.lose if kind == LOST else server.free)(worker, row.done)
        self.log.note(row, None if verdict is None else (verdict, entries), started)
        self._count(kind, verdict, entries)
        for each in started:
            crew.foresee(each, row.done)
        if logged is None:
            self._send(started)
            if verdict is Verdict.STEP:
                self._record(time)

    def _count(self, kind: int, verdict: Verdict | None, entries: Entries) -> None:
        """Counts an event, and the gradients that entered an update for the first time."""
        self.silent = 0 if verdict is Verdict.STEP else self.silent + 1
        if kind == LOST:
            self.given_up += 1
        elif kind == ARRIVED:
            self.arrivals, self.given_up = self.arrivals + 1, 0
        if verdict is Verdict.STEP:
            self.entries = [entry for entry in entries if entry[0] not in self.entering]
            self.entering = {arrival for arrival, _ in entries}
            self.used += len(self.entries)

    def _send(self, started: list[int]) -> None:
        """Sends jobs that have started."""
        server, model = self.server, self.model
        for worker in started:
            version, number, start = server.read[worker], server.job[worker], model.kept_by(worker)
            serial, leaves = server.serial[worker], model.sent(version)
            self.crew.send(Job(worker, serial, number, start, version, leaves))
        model.keep(server.awaited_versions())

    def _record(self, time: float) -> None:
        """Tells the row of the update that was just made, if it is recorded and asked for."""
        version = self.model.version
        if self.on_record is None or version not in self.records:
            return
        stopped = sum(end <= time for _, _, end in self.server.cancelled)
        known: Any = (version, time, self.delay, self.used, self.arrivals + stopped)
        self.on_record(in_python(Records(*known, **self._measured()._asdict())))

    def _measured(self) -> Any:
        """What is recorded of the present model."""
        model, weight = self.model, np.array([weight for _, weight in self.entries])
        losses = np.array([model.losses[arrival] for arrival, _ in self.entries], np.float64)
        loss = np.sum(weight * losses) / np.sum(weight) if self.entries else np.nan
        return self.judge(model.problem, model.params, np.asarray(loss, model.forms[0].dtype))

    def _look(self) -> None:
        """Ends the run if no update can come any more."""
        server, n, timeout = self.server, self.server.n_workers, self.timeout
        silent = self.crew.lost(self.patience)  # it also tells of them
        if self.alarm.at < math.inf:
            return
        running = {worker for worker, serial in enumerate(server.serial) if serial != IDLE}
        lost = {
            worker
            for worker in running & silent
            if server.serial[worker] < 0 or timeout[worker] == math.inf
        }
        idle = {worker for worker in range(n) if not server.queues[worker]} - running
        why = self.stalls.why_stuck(
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
            f"the run cannot go on after arrival {self.arrivals} at {server.time:g} seconds,"
            f" update {server.version}: {why}",
            server.trace_so_far(),
        )

    def outcome(self) -> Run:
        """The run, its recorded models evaluated."""
        planned = plan(self.server.trace(), width=1, record_every=self.record_every)
        losses = [self.model.losses[arrival] for arrival in np.sort(planned.gradients.arrival)]
        run = judged(self.model, planned, losses)
        arrived = [row[-3:] for row in self.log.rows if row.kind == ARRIVED]
        timing = Timing(*(np.array(column) for column in zip(*arrived, strict=True)))
        source = replace(run.source, timing=timing, worker_events=self.crew.news.events)
        states = self.model.worker_states(self.server.n_workers)
        return replace(run, source=source, worker_states=states)


def rerun(
    problem: Problem[Model] | Callable[..., Problem[Model]],
    trace: EventTrace,
    update: Update | optax.GradientTransformation,
    *,
    key: jax.Array | None = None,
    record_every: int | None = None,
) -> Run[Model, Records]:
    """Computes the model of a live run again from its trace, bit for bit.

    It calls the compiled pieces of the live run in the order that the trace tells, whatever the
    rule and the optimizer.

    Args:
        problem: As in `train`.
        trace: `run.trace` of a live run, or any other trace.
        update: As in `train`.
        key: That of the live run.
        record_every: As in `train`.

    Returns:
        The run. Its parameters are those of the live run where the workers computed on the same
        kind of device as this process, with the same software and flags of the compiler. Where
        workers keep a state from job to job, what was thrown away is computed too.

    Example:
        >>> import optax
        >>> from asyncjax import live, problems
        >>> problem = problems.quadratic([[1.0], [1.0]], [[0.0], [1.0]])
        >>> with live.threads(2) as workers:
        ...     run = live.train(problem, workers, optax.adam(0.1), n_updates=30)
        >>> again = live.rerun(problem, run.trace, optax.adam(0.1))
        >>> bool((again.params == run.params).all())
        True
    """
    server_problem, key = jobs.make_problem(problem, None), key_of(key)
    planned = plan(trace, width=1, record_every=record_every)
    check_update(update, server_problem.params, [trace])
    check_workers(server_problem, trace)
    problem_of = cache(lambda worker: jobs.make_problem(problem, worker))
    server_update: Update = first_equal(update_of(update))
    model = ServerState(server_problem, server_update, key, once=trace.reuse is None)
    entries = _entries(trace)
    records, losses, states = {*planned.records.tolist()}, [], dict[int, Any]()
    enters = np.zeros(trace.n_arrivals, bool)
    enters[planned.gradients.arrival] = True
    columns = (trace.worker, trace.job, trace.read_version, enters, trace.steps, trace.time)
    reads = Counter(np.asarray(trace.read_version).tolist())
    update_times = iter(np.asarray(trace.update_time).tolist())
    for arrival, (worker, job, read, enter, steps, time) in enumerate(
        zip(*(np.asarray(column).tolist() for column in columns), strict=True)
    ):
        if enter or (model.keeps and model.version < trace.n_updates):
            its, state = problem_of(worker), states.get(worker)
            if model.keeps and worker not in states:
                state = jobs.first_state(its)
            loss, gradient, states[worker] = jobs.evaluate(
                its, model.sent(read), worker, job, model.key, state
            )
            if enter:
                losses.append(loss)
                model.hold(arrival, Held(read, gradient, loss, worker, job, time))
        if steps:
            record, made_at = model.version + 1 in records, next(update_times)
            model.step(entries[model.version], worker, job, made_at, record=record)
        reads[read] -= 1
        model.keep(version for version in model.versions if reads[version] > 0)
    states_now = jobs.stacked(server_problem, states, worker_count(trace)) if model.keeps else None
    return replace(judged(model, planned, losses), worker_states=states_now)


def _entries(trace: EventTrace) -> list[Entries]:
    """Which gradients enter each step, by arrival, and with which weight."""
    steps: list[Entries] = [[] for _ in range(trace.n_updates)]
    if trace.reuse is not None:
        arrival, first, last, weight = (np.asarray(column) for column in trace.reuse)
        rows = zip(arrival.tolist(), exact_weights(weight).tolist(), strict=True)
        for row, begin, end in zip(rows, first.tolist(), last.tolist(), strict=True):
            for step in range(begin, end + 1):
                steps[step].append(row)
        return steps
    version, weight = np.asarray(trace.version), exact_weights(np.asarray(trace.weight))
    for arrival in np.flatnonzero(np.asarray(trace.used) & (version < len(steps))).tolist():
        steps[version[arrival]].append((arrival, float(weight[arrival])))
    return steps


def judged(model: ServerState, planned: ReplayPlan, losses: Sequence[np.ndarray]) -> Run:
    """The run of a trace whose steps are made, its recorded models evaluated; losses float[G]."""
    recorded = [model.recorded[int(version)] for version in planned.records]
    rows = jax.tree.map(lambda *leaves: jnp.stack([*leaves, leaves[-1]]), *recorded)
    measured = jax.jit(measure)(
        model.problem, *gradients_behind(planned), rows, jnp.asarray(np.stack(losses))
    )
    left = {"arrival_state": model.arrival_state, "failed": model.failed}
    return run_of(planned, ReplayResult(model.params, model.opt_state, measured, **left))
