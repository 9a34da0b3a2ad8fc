"""The loop of a live run: what its server is told, and what it does then.

    jobs of time 0
    on each event:  an answer that is waited for    judge it, perhaps step, hand out jobs
                    the alarm of a rule             perhaps step, hand out jobs
                    a lost worker                   its job is given up; it is opened anew
                    an answer nobody waits for      its worker is free again

One thread decides; workers compute. What a run did is its trace, and when gradients were computed
how fast lies beside it (`Timing`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from asyncjax.live import jobs
from asyncjax.live.log import ARRIVED, FREED, LOST, RANG, Log, Row
from asyncjax.live.measured import Timing
from asyncjax.live.rerun import judged
from asyncjax.live.server_state import ServerState, Told
from asyncjax.live.worker_pool import Crew, Event, Job, in_words, set_up_error
from asyncjax.problems import Problem
from asyncjax.results.run import Records, Run
from asyncjax.simulation.engine import judge
from asyncjax.simulation.loop import in_python
from asyncjax.simulation.plan import plan, recorded_versions
from asyncjax.traces import StalledError
from asyncjax.traces.collection import Alarm, Entries, Serving, Verdict
from asyncjax.traces.dispatch import Dispatch
from asyncjax.traces.progress import Pace
from asyncjax.traces.server import IDLE, TAKEN, Server
from asyncjax.traces.stall_detection import Moment, StallDetector


class WorkerError(RuntimeError):
    """The gradient of a job failed at its worker; its cause is the error there."""


@dataclass
class Settings:
    """What a run goes by, beside its rules."""

    n_updates: int
    record_every: int | None
    timeout: list[float]
    patience: float
    on_record: Callable[[Any], None] | None = None


class Live:
    """A run in progress."""

    def __init__(
        self,
        problem: Problem,
        model: ServerState,
        server: Server,
        crew: Crew,
        settings: Settings,
        dispatch: Dispatch,
        log: Log | None = None,
    ) -> None:
        self.problem, self.model, self.server, self.crew = problem, model, server, crew
        self.settings, self.log, n = settings, log, server.n_workers
        self.alarm = Alarm(server.rules.collector.timer)
        self.serving = Serving(server.collect, n)
        self.is_table = server.collect.reuse is not None
        self.records = {*recorded_versions(settings.n_updates, settings.record_every).tolist()}
        if settings.record_every is None and problem.objective is not None:
            self.records.add(0)
        self.judge = jax.jit(judge)
        self.used = self.delay = 0  # gradients that have entered; the delay of the last update
        self.entries: Entries = []  # that entered it, and not the one before it
        self.entering: set[int] = set()  # all that entered it, by arrival
        self.timing: list[tuple[float, float, float]] = []
        self.heard = self.resent = 0.0  # when an event came last; when jobs were sent again
        self.silent = self.given_up = 0  # events since the last update; jobs lost since an arrival
        collect, timeout = server.collect, settings.timeout
        needs = server.rules.collector.is_stuck_without
        self.waits = min(timeout) < math.inf
        self.stalls = StallDetector(
            collect.name, needs, dispatch, timeout, np.zeros(n), None, lambda worker, now: False
        )

    def begin(self, initial: list[int]) -> None:
        """Hands out the first jobs, or goes on from the log."""
        server, log = self.server, self.log
        self._foresee(server.begin(initial, 0.0), 0.0)
        if log is not None and log.file.path.exists():
            for row in log.load(self.model):
                self._hear_again(row)
            self.crew.news.go_on(log.events)
            self.heard = log.rows[-1].done if log.rows else 0.0
            self.resent = self.heard if self.crew.places_stay else 0.0
        elif log is not None:
            log.save(self.model, self.crew.news.events)
        if self.settings.on_record is not None:
            self._measured()  # compiles it before the run
            self._record(0.0)
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
            until, number = min(self._deadline(), self.alarm.at), number + 1
            if not crew.is_waiting() and until == math.inf:
                self._stall("no job will return any more")
            event = crew.next(min(until, self.heard + settings.patience))
            now = crew.now()
            # an answer that came in time counts, also where it was not looked at in time
            late = now if event is None else math.nextafter(event.time, -math.inf)
            if late >= until:
                self._give_up(late)
                if late >= self.alarm.at:
                    self._ring()
            if event is not None:
                self.heard = now
                self._serve(event)
            elif now >= self.heard + settings.patience:
                self._stall(f"nothing was heard for {settings.patience:g} seconds (patience)")
            if self.log is not None:
                self.log.save(self.model, crew.news.events)
            if pace is not None:
                pace.at(self.server.version, now, *crew.news.events)
        if pace is not None:
            pace.end(self.server.time, *crew.news.events)

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
        loss = np.array(answer.loss)  # a view would keep the gradient's memory
        model.move(worker, job, answer.state)
        if verdict is not Verdict.DROP:
            told = Told(loss, np.int32(worker), np.int32(job), np.float64(time))
            model.hold(number, read, answer.gradient, told)
        model.losses.append(loss)
        if verdict is Verdict.STEP:
            self._step(entries, worker, job, time)
        done = self.crew.now()
        row = Row(ARRIVED, worker, time, handled, done, answer.seconds)
        self._told(row, (verdict, entries), server.react(worker, verdict, done))

    def _judge(self, worker: int, time: float) -> tuple[Verdict, Entries]:
        """What becomes of a gradient, and what enters the step, if it makes one."""
        delay = self.server.version - self.server.read[worker]
        verdict = self.server.take(worker, time)
        self.alarm.hear(worker, time, steps=verdict is Verdict.STEP)
        return verdict, self.serving.hear(worker, delay, time, verdict)

    def _ring(self) -> None:
        """The alarm rings: the server steps, if its rule says so."""
        server, time = self.server, self.alarm.at
        worker, job = server.last
        if not self.alarm.ring():
            self._told(Row(RANG, worker, time, time, time, 0.0), None, [])
            return
        entries, handled = self.serving.step(), self.crew.now()
        self._step(entries, worker, job, time)
        done = self.crew.now()
        judged = (Verdict.STEP, entries)
        self._told(Row(RANG, worker, time, handled, done, 0.0), judged, server.ring(time, done))

    def _step(self, entries: Entries, worker: int, job: int, time: float) -> None:
        """Makes an update of the gradients that enter."""
        record = self.server.version + 1 in self.records
        self.delay = self.model.step(entries, worker, job, time, record=record)
        if not self.is_table:
            self.model.serve_once()

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
        if judged is not None and judged[0] is Verdict.STEP:
            self._record(row.time)

    def _record(self, time: float) -> None:
        """Tells the row of the update that was just made, if it is recorded and asked for."""
        tell, version = self.settings.on_record, self.model.version
        if tell is None or version not in self.records:
            return
        stopped = sum(end <= time for _, _, end in self.server.cancelled)
        known: Any = (version, time, self.delay, self.used, len(self.timing) + stopped)
        tell(in_python(Records(*known, **self._measured()._asdict())))

    def _measured(self) -> Any:
        """What is recorded of the present model."""
        weight = np.array([weight for _, weight in self.entries])
        losses = np.array([self.model.losses[arrival] for arrival, _ in self.entries], np.float64)
        loss = np.sum(weight * losses) / np.sum(weight) if self.entries else np.nan
        dtype = self.model.forms[0].dtype
        return self.judge(self.problem, self.model.params, np.asarray(loss, dtype))

    def _hear_again(self, row: Row) -> None:
        """Tells the server of an event of the log."""
        server, worker, judged = self.server, row.worker, None
        assert self.log is not None  # it is read from there
        if row.kind == ARRIVED:
            judged = self._judge(worker, row.time)
            started = server.react(worker, judged[0], row.done)
        elif row.kind == RANG:
            started = []
            if self.alarm.ring():
                judged = (Verdict.STEP, self.serving.step())
                started = server.ring(row.time, row.done)
        else:
            started = (server.lose if row.kind == LOST else server.free)(worker, row.done)
        self.log.check(judged, started)
        self.log.rows.append(row)
        self._count(row, judged)
        self._foresee(started, row.done)

    def _count(self, row: Row, judged: Any) -> None:
        self.silent += 1
        verdict, entries = (None, []) if judged is None else judged
        if verdict is Verdict.STEP:
            self.entries = [entry for entry in entries if entry[0] not in self.entering]
            self.entering = {arrival for arrival, _ in entries}
            self.used += len(self.entries)
        if row.kind == LOST:
            self.given_up += 1
        elif row.kind == RANG:
            self.silent = 0 if judged else self.silent
        elif row.kind == ARRIVED:
            self.timing.append((row.handled, row.done, row.computed))
            self.given_up = 0
            if verdict is Verdict.STEP:
                self.silent = 0

    def _foresee(self, started: Iterable[int], now: float) -> None:
        for worker in started:
            self.crew.foresee(worker, now)

    def _send(self, started: Iterable[int]) -> None:
        """Sends jobs that have started."""
        server = self.server
        for worker in started:
            version = server.read[worker]
            kept = self.model.kept_by(worker)
            job = Job(worker, server.serial[worker], server.job[worker], version, kept)
            self.crew.send(job, self.model.sent(version))
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
        silent = self.crew.lost(self.settings.patience)  # it also tells of them
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
        states = self.model.worker_states(self.server.n_workers)
        source = replace(run.source, timing=own, worker_events=self.crew.news.events)
        return replace(run, source=source, worker_states=states)
