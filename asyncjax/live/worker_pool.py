"""Crews: the workers of a run as its server sees them: jobs go out, events come in, one at a time.

There is one mailbox and one thread of decisions. Whatever happens at a worker becomes an event of
the job's serial; an answer counts only if the server still waits for that serial, so exactly once.

Who is lost, who is back and who waits is told, a line each: a warning of the logger `asyncjax.live`
and no `warnings.warn`, which shows the same line once only, and may be set to end the run.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import time
from concurrent.futures import CancelledError, Future
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

import jax

from asyncjax.checks import flag
from asyncjax.clocks import Clock
from asyncjax.live import jobs
from asyncjax.live.engines import Engine
from asyncjax.traces.random_draws import DurationBlocks, check_key, finishes, on_host

logger = logging.getLogger("asyncjax.live")
_LONGEST_WAIT = 3600.0  # seconds, of one wait for an event
_LOOK = 5.0  # seconds between two looks at who waits for a place
_UNSENDABLE = ("pickl", "serializ")  # what errors say of things that do not travel


class WorkerEvents(NamedTuple):
    """What happened to the workers of a live run, counted, the time while they are set up included.

    Attributes:
        lost: Times that a worker was lost.
        returned: Times that a lost worker was there again.
        waited: Times that a worker was told of that waited for a place.
    """

    lost: int = 0
    returned: int = 0
    waited: int = 0


class News:
    """Tells what happens to workers, and counts it."""

    def __init__(self, name: str, n_workers: int) -> None:
        self.name, self.n_workers, self.events = name, n_workers, WorkerEvents()
        self.missing: set[int] = set()  # lost, and not back
        self.waiting: set[int] = set()  # for a place, and told of

    def lost(self, worker: int, why: str, then: str, *, for_good: bool = False) -> None:
        """A worker is lost; nothing if it was already, unless it is now for good."""
        is_new = worker not in self.missing
        if is_new or for_good:
            self.missing.add(worker)
            self.events = self.events._replace(lost=self.events.lost + is_new)
            logger.warning(
                f"worker {worker} of {self.name} is lost ({why}): {self._present()} left, {then}"
            )

    def back(self, worker: int) -> None:
        """A worker answers; nothing if it was not lost."""
        if worker in self.missing:
            self.missing.discard(worker)
            self.events = self.events._replace(returned=self.events.returned + 1)
            logger.warning(f"worker {worker} of {self.name} is back: {self._present()} there")

    def wait(self, workers: set[int], why: str) -> None:
        """These workers wait for a place; nothing if all of them were told of already."""
        more, self.waiting = workers - self.waiting, workers
        if more:
            self.events = self.events._replace(waited=self.events.waited + len(more))
            waiting = f"{len(workers)} of {self.n_workers} workers of {self.name}"
            logger.warning(f"{waiting} {'waits' if len(workers) == 1 else 'wait'}: {why}")

    def go_on(self, before: WorkerEvents) -> None:
        """Counts on from a run that was killed: all its workers were opened again."""
        lost, returned, waited = self.events
        self.events = WorkerEvents(
            before.lost + lost, before.lost + returned, before.waited + waited
        )

    def _present(self) -> str:
        present = self.n_workers - len(self.missing)
        return f"{present} of {self.n_workers} workers {'is' if present == 1 else 'are'}"


class Event(NamedTuple):
    """What happened."""

    time: float  # seconds since the start, when it did
    worker: int
    serial: int  # of the job; of a worker that is there again: -1
    answer: jobs.Answer | None  # None: the job is lost, or the worker is there again
    error: BaseException | None = None  # of the call, where it was not the worker that was lost


class Job(NamedTuple):
    """A job as it is sent."""

    worker: int
    serial: int
    number: int  # jobs that the worker had started before
    kept: jobs.Kept | None  # what the worker starts it with; None: workers keep nothing
    version: int
    model: jobs.Leaves  # that version


class SetUpError(RuntimeError):
    """A worker could not be set up, or has other software than the server."""


class EngineCrew:
    """Workers of an engine; each does one call at a time."""

    places_stay = True  # a job that is stopped goes on, and its worker is not free before

    def __init__(self, engine: Engine, task: tuple[Any, ...], seconds: float) -> None:
        self.engine, self.n_workers, self.task = engine, engine.n_workers, task
        self.run, self.fresh = f"{id(self)}-{time.time_ns()}", set[int]()  # workers just set up
        self.mailbox: queue.SimpleQueue[tuple[float, int, int, Future[Any]]] = queue.SimpleQueue()
        self.restarts = [engine.restarts] * engine.n_workers
        self.pending: dict[int, tuple[int, float]] = {}  # by busy worker: serial, and since when
        self.dead: set[int] = set()  # for good
        self.shared: tuple[int, Any] = (-1, None)  # the last model that was put, by version
        self.news, self.placeless = News(engine.name, engine.n_workers), set[int]()
        self.look_at = time.monotonic() + _LOOK  # at who waits for a place
        self.zero = time.perf_counter()
        try:
            for worker in range(engine.n_workers):
                self._set_up(worker)
            while self.pending:
                self._await_worker(seconds)
        except BaseException:
            self.close()
            raise
        self.zero = time.perf_counter()

    def _await_worker(self, seconds: float) -> None:
        """Waits for one that is set up."""
        self.next(seconds)
        name = self.engine.name
        if self.dead:
            raise SetUpError(
                f"worker {min(self.dead)} of {name} was lost {self.engine.restarts + 1} times while"
                " it was set up: can it import what it is sent?"
            )
        if self.pending and self.now() >= seconds:
            raise SetUpError(
                f"worker {min(self.pending)} of {name} was not ready after {seconds:g} seconds"
                " (patience)"
            )

    def _set_up(self, worker: int) -> None:
        self.fresh.add(worker)
        self.engine.executor(worker)  # what keeps it from being opened is the run's error
        self._call(worker, -1, jobs.set_up, self.run, worker, *self.task)

    def _call(self, worker: int, serial: int, *call: Any) -> None:
        self.pending[worker] = serial, self.now()
        try:
            future = self.engine.executor(worker).submit(*call)
        except Exception as error:  # such as of a worker that was lost while it was idle
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(self._post, worker, serial))

    def _post(self, worker: int, serial: int, future: Future[Any]) -> None:
        self.mailbox.put((self.now(), worker, serial, future))

    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.zero

    def start_at(self, seconds: float) -> None:
        """The time goes on from so many seconds."""
        self.zero = time.perf_counter() - seconds

    def foresee(self, worker: int, now: float) -> None:
        """A worker's next job starts now; told of all jobs, before they are sent, in order."""

    def send(self, job: Job) -> None:
        """Starts a job; what a worker keeps is sent where it was set up since its last one."""
        put, start, worker = self.engine.put, job.kept, job.worker
        if self.shared[0] != job.version:
            self.shared = job.version, job.model if put is None else put(job.model)
        if start is not None and worker not in self.fresh:
            start = start._replace(state=None)
        self.fresh.discard(worker)
        call = (self.run, self.shared[1], worker, job.number, start)
        self._call(worker, job.serial, jobs.compute, *call)

    def next(self, until: float) -> Event | None:
        """Waits for the next event; None if there is none until that time."""
        left = min(max(0.0, until - self.now()), self._look_for_places())
        try:
            now, worker, serial, future = self.mailbox.get(timeout=left)
        except queue.Empty:
            return None
        del self.pending[worker]
        error = CancelledError() if future.cancelled() else future.exception()
        if isinstance(error, self.engine.lost):
            self._reopen(worker, type(error).__name__)
            return Event(now, worker, serial, None) if serial >= 0 else None
        if error is not None and serial < 0:
            raise _set_up_error(worker, error)
        if error is not None:
            return Event(now, worker, serial, None, error)
        answer = future.result()
        if serial < 0 and answer != (server := jobs.software()):
            raise SetUpError(
                f"worker {worker} has jax {answer[0]} and float64 {'on' if answer[1] else 'off'},"
                f" the server jax {server[0]} and {'on' if server[1] else 'off'}: they must agree"
            )
        self.news.back(worker)
        return Event(now, worker, serial, answer if serial >= 0 else None)

    def _look_for_places(self) -> float:
        """Tells of workers that got no place since the last look; seconds until the next look."""
        if self.engine.waiting is None:
            return _LONGEST_WAIT
        if time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + _LOOK
            before, self.placeless, why = self.placeless, set[int](), ""
            if any(serial < 0 for serial, _ in self.pending.values()):  # they are being set up
                self.placeless, why = self.engine.waiting(self.engine.opened)
            if self.placeless == before:
                self.news.wait(before, why)
        return max(0.0, self.look_at - time.monotonic())

    def _reopen(self, worker: int, why: str) -> None:
        """Opens a lost worker anew, if it may be."""
        self.engine.drop(worker)
        if self.restarts[worker] == 0:
            then = f"it is not opened again (restarts={self.engine.restarts})"
            self.news.lost(worker, why, then, for_good=True)
            self.dead.add(worker)
            return
        self.news.lost(worker, why, "it is opened again")
        self.restarts[worker] -= 1
        self._set_up(worker)

    def lost(self, patience: float) -> set[int]:
        """Workers from whom nothing will come, or has not for so many seconds."""
        late = self.now() - patience
        silent = {worker for worker, (_, since) in self.pending.items() if since < late}
        for worker in silent:
            why = f"no answer for {patience:g} seconds, patience"
            self.news.lost(worker, why, "it is waited for")
        return self.dead | silent

    def close(self) -> None:
        """Ends the run at the workers; they stay. Waits for nobody."""
        self.shared = -1, None
        for worker in range(self.n_workers):
            jobs.forget(self.run, worker)  # of a thread, which may be ended before its turn
        for worker, executor in self.engine.opened.items():
            with contextlib.suppress(Exception):  # it is lost
                executor.submit(jobs.forget, self.run, worker)


def _set_up_error(worker: int, error: BaseException) -> SetUpError:
    """The error of a worker whose set-up failed."""
    told = SetUpError(f"worker {worker} could not be set up: {in_words(error)}")
    if any(word in str(error).lower() for word in _UNSENDABLE):
        told = SetUpError(
            f"problem cannot be sent to worker {worker} ({in_words(error)}): give a"
            " function of a module that makes it"
        )
    told.__cause__ = error
    return told


def in_words(error: BaseException) -> str:
    """An error in a message."""
    return str(error) if isinstance(error, jobs.CallError) else f"{type(error).__name__}: {error}"


class VirtualCrew:
    """Workers in virtual time: a heap over the finish times of a clock."""

    def __init__(self, engine: VirtualEngine, task: tuple[Any, ...]) -> None:
        self.n_workers, self.places_stay = engine.n_workers, not engine.interruptible
        with on_host(engine.key) as host_key:
            duration_key = jax.random.split(host_key)[0]
        self.finishes, _ = finishes(DurationBlocks(engine.clock, duration_key), 64)
        self.run, self.time = f"virtual-{id(self)}", 0.0
        self.news = News("virtual", self.n_workers)  # none: who leaves does so by the clock
        self.pending: list[tuple[float, int, int, Job]] = []  # a heap
        self.sent = [-1] * self.n_workers  # the serial of each worker's last job
        self.finish = [0.0] * self.n_workers  # of each worker's last job
        for worker in range(self.n_workers):
            try:
                jobs.set_up(self.run, worker, *task)
            except jobs.CallError as error:
                raise _set_up_error(worker, error) from error

    def now(self) -> float:
        """Time of the last event."""
        return self.time

    def start_at(self, seconds: float) -> None:
        """The time goes on from so many seconds."""
        self.time = seconds

    def foresee(self, worker: int, now: float) -> None:
        """A worker's next job starts now."""
        self.finish[worker] = self.finishes[worker](now)

    def send(self, job: Job) -> None:
        """Starts a job."""
        finish, self.sent[job.worker] = self.finish[job.worker], job.serial
        if finish < math.inf:
            heappush(self.pending, (finish, job.worker, job.serial, job))

    def next(self, until: float) -> Event | None:
        """The next event; None if there is none until that time."""
        if not self.pending or self.pending[0][0] > until:
            self.time = max(self.time, until)
            return None
        self.time, worker, serial, job = heappop(self.pending)
        if serial != self.sent[worker]:  # it was stopped, and its worker has begun another
            return Event(self.time, worker, serial, None)
        try:
            answer = jobs.compute(self.run, job.model, worker, job.number, job.kept)
            return Event(self.time, worker, serial, answer)
        except jobs.CallError as error:
            return Event(self.time, worker, serial, None, error)

    def lost(self, patience: float) -> set[int]:
        """Workers whose job never returns."""
        return {worker for worker, finish in enumerate(self.finish) if finish == math.inf}

    def close(self) -> None:
        """Forgets the problem."""
        for worker in range(self.n_workers):
            jobs.forget(self.run, worker)


class VirtualEngine(NamedTuple):
    """A clock to live by; `virtual` makes it."""

    clock: Clock
    key: jax.Array | None
    interruptible: bool

    @property
    def n_workers(self) -> int:
        """Workers of the clock."""
        return self.clock.n_workers

    def __enter__(self) -> VirtualEngine:
        """The engine itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


def virtual(
    clock: Clock, key: jax.Array | None = None, *, interruptible: bool = True
) -> VirtualEngine:
    """Workers in virtual time: the live loop, gradients and all, on a clock of this library.

    For tests, and to see what a run does without waiting for it. Under the same key and rules the
    trace is that of `traces.asynchronous`.

    Args:
        clock: How long each worker takes.
        key: Typed key, needed where the clock is random.
        interruptible: As in `traces.asynchronous`. Real workers are not.

    Returns:
        The workers, for `live.train`.

    Example:
        >>> from asyncjax import clocks, live
        >>> live.virtual(clocks.constant([1.0, 2.0])).n_workers
        2
    """
    check_key(key, "clock" if clock.is_random else None)
    return VirtualEngine(clock, key, flag("interruptible", interruptible))
