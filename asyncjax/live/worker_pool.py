"""Crews: the workers of a run as its server sees them: jobs go out, events come in, one at a time.

There is one mailbox and one thread of decisions. Whatever happens at a worker becomes an event of
the job's serial; an answer counts only if the server still waits for that serial, so exactly once.
"""

from __future__ import annotations

import contextlib
import math
import queue
import time
from concurrent.futures import CancelledError, Future
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

import jax

from asyncjax.checks import flag, instance
from asyncjax.clocks import Clock
from asyncjax.live import jobs
from asyncjax.live.engines import Engine
from asyncjax.live.news import News
from asyncjax.traces.random_draws import DurationBlocks, check_key, finishes, on_host

_LONGEST_WAIT = 3600.0  # seconds, of one wait for an event
_LOOK = 5.0  # seconds between two looks at who waits for a place
_UNSENDABLE = ("pickl", "serializ")  # what errors say of things that do not travel


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
    version: int  # of the model that is sent with it
    kept: jobs.Kept | None = None  # what the worker starts it with; None: workers keep nothing


class Crew(Protocol):
    """The workers of one run."""

    places_stay: bool  # a job that is stopped goes on, and its worker is not free before
    news: News  # of its workers

    @property
    def n_workers(self) -> int:
        """How many there are."""
        ...

    def now(self) -> float:
        """Seconds since the start."""
        ...

    def start_at(self, seconds: float) -> None:
        """The time goes on from so many seconds."""
        ...

    def foresee(self, worker: int, now: float) -> None:
        """A worker's next job starts now; told of all jobs, before they are sent, in order."""
        ...

    def send(self, job: Job, model: jobs.Leaves) -> None:
        """Starts a job, or, where a run goes on, starts it again."""
        ...

    def next(self, until: float) -> Event | None:
        """Waits for the next event; None if there is none until that time."""
        ...

    def is_waiting(self) -> bool:
        """Whether an event may still come by itself."""
        ...

    def lost(self, patience: float) -> set[int]:
        """Workers from whom nothing will come, or has not for so many seconds."""
        ...

    def close(self) -> None:
        """Ends the run at the workers; they stay."""
        ...


class SetUpError(RuntimeError):
    """A worker could not be set up, or has other software than the server."""


class EngineCrew:
    """Workers of an engine; each does one call at a time."""

    places_stay = True

    def __init__(
        self,
        engine: Engine,
        source: Any,
        key: jax.Array,
        seconds: float,
        keeping: jobs.Keeping = jobs.NOTHING,
    ) -> None:
        self.engine, self.n_workers, self.source = engine, engine.n_workers, source
        self.key, self.run = jobs.key_parts(key), f"{id(self)}-{time.time_ns()}"
        self.keeping, self.fresh = keeping, set[int]()  # workers that were just set up
        self.mailbox: queue.SimpleQueue[tuple[float, int, int, Future[Any]]] = queue.SimpleQueue()
        self.restarts = [engine.restarts] * engine.n_workers
        self.calls: dict[int, tuple[int, float]] = {}  # of busy workers: serial, and since when
        self.dead: set[int] = set()  # for good
        self.shared: tuple[int, Any] = (-1, None)  # the last model that was put, by version
        self.news, self.placeless = News(engine.name, engine.n_workers), set[int]()
        self.look_at = time.monotonic() + _LOOK  # at who waits for a place
        self.zero = time.perf_counter()
        try:
            for worker in range(engine.n_workers):
                self._set_up(worker)
            while self.calls:
                self._await_worker(seconds)
        except BaseException:
            self.close()
            raise
        self.zero = time.perf_counter()

    def _await_worker(self, seconds: float) -> None:
        """Waits for one that is set up."""
        event, name = self.next(seconds), self.engine.name
        if self.dead:
            raise SetUpError(
                f"worker {min(self.dead)} of {name} was lost {self.engine.restarts + 1} times while"
                " it was set up: can it import what it is sent?"
            )
        if event is not None and event.error is not None:
            raise set_up_error(event)
        if self.calls and self.now() >= seconds:
            raise SetUpError(
                f"worker {min(self.calls)} of {name} was not ready after {seconds:g} seconds"
                " (patience)"
            )

    def _set_up(self, worker: int) -> None:
        rest = (self.key, jobs.software(), self.keeping)
        own = jobs.Assignment(self.run, self.source, worker, *rest)
        self.fresh.add(worker)
        self.engine.executor(worker)  # what keeps it from being opened is the run's error
        self._call(worker, -1, jobs.set_up, own)

    def _call(self, worker: int, serial: int, *call: Any) -> None:
        self.calls[worker] = serial, self.now()
        try:
            future = self.engine.executor(worker).submit(*call)
        except Exception as error:  # such as of a worker that was lost while it was idle
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(self._post, worker, serial))

    def _check_software(self, worker: int, own: tuple[str, bool]) -> None:
        server = jobs.software()
        if own != server:
            raise SetUpError(
                f"worker {worker} has jax {own[0]} and float64 {'on' if own[1] else 'off'}, the"
                f" server jax {server[0]} and {'on' if server[1] else 'off'}: they must agree"
            )

    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.zero

    def start_at(self, seconds: float) -> None:
        """The time goes on from so many seconds."""
        self.zero = time.perf_counter() - seconds

    def foresee(self, worker: int, now: float) -> None:
        """Nothing is known ahead."""

    def send(self, job: Job, model: jobs.Leaves) -> None:
        """Starts a job; what a worker keeps is sent where it was set up since its last one."""
        if self.shared[0] != job.version:
            put = self.engine.put
            self.shared = job.version, model if put is None else put(model)
        kept = job.kept
        if kept is not None and job.worker not in self.fresh:
            kept = kept._replace(state=None)
        self.fresh.discard(job.worker)
        call = (self.run, self.shared[1], job.worker, job.number, kept)
        self._call(job.worker, job.serial, jobs.compute, *call)

    def _post(self, worker: int, serial: int, future: Future[Any]) -> None:
        self.mailbox.put((self.now(), worker, serial, future))

    def next(self, until: float) -> Event | None:
        """Waits for the next event; None if there is none until that time."""
        left = min(max(0.0, until - self.now()), self._look_for_places())
        try:
            now, worker, serial, future = self.mailbox.get(timeout=left)
        except queue.Empty:
            return None
        del self.calls[worker]
        error = CancelledError() if future.cancelled() else future.exception()
        if isinstance(error, self.engine.lost):
            self._reopen(worker, type(error).__name__)
            return Event(now, worker, serial, None) if serial >= 0 else None
        if error is not None:
            return Event(now, worker, serial, None, error)
        if serial >= 0:
            self.news.back(worker)
            return Event(now, worker, serial, future.result())
        self._check_software(worker, future.result())
        self.news.back(worker)
        return Event(now, worker, serial, None)

    def _look_for_places(self) -> float:
        """Tells of workers without a place if none got one since the last look.

        Returns how long to wait for an event, seconds.
        """
        if self.engine.waiting is None:
            return _LONGEST_WAIT
        if time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + _LOOK
            before, self.placeless, why = self.placeless, set[int](), ""
            if any(serial < 0 for serial, _ in self.calls.values()):  # they are being set up
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

    def is_waiting(self) -> bool:
        """Whether an event may still come by itself."""
        return bool(self.calls)

    def lost(self, patience: float) -> set[int]:
        """Workers from whom nothing will come, or has not for so many seconds."""
        late = self.now() - patience
        silent = {worker for worker, (_, since) in self.calls.items() if since < late}
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


def set_up_error(event: Event) -> SetUpError:
    """The error of a worker whose set-up failed."""
    error = SetUpError(f"worker {event.worker} could not be set up: {in_words(event.error)}")
    if any(word in str(event.error).lower() for word in _UNSENDABLE):
        error = SetUpError(
            f"problem cannot be sent to worker {event.worker} ({in_words(event.error)}): give a"
            " function of a module that makes it"
        )
    error.__cause__ = event.error
    return error


def in_words(error: BaseException | None) -> str:
    """An error in a message."""
    return str(error) if isinstance(error, jobs.CallError) else f"{type(error).__name__}: {error}"


class VirtualCrew:
    """Workers in virtual time: a heap over the finish times of a clock."""

    def __init__(
        self,
        engine: VirtualEngine,
        source: Any,
        key: jax.Array,
        keeping: jobs.Keeping = jobs.NOTHING,
    ) -> None:
        self.n_workers, self.places_stay = engine.n_workers, not engine.interruptible
        with on_host(engine.key) as host_key:
            duration_key = jax.random.split(host_key)[0]
        self.finishes, _ = finishes(DurationBlocks(engine.clock, duration_key), 64)
        self.run, self.time = f"virtual-{id(self)}", 0.0
        self.news = News("virtual", self.n_workers)  # none: who leaves does so by the clock
        self.heap: list[tuple[float, int, int, jobs.Leaves, Job]] = []
        self.sent = [-1] * self.n_workers  # the serial of each worker's last job
        self.finish = [0.0] * self.n_workers  # of each worker's last job
        parts, software = jobs.key_parts(key), jobs.software()
        for worker in range(self.n_workers):
            try:
                jobs.set_up(jobs.Assignment(self.run, source, worker, parts, software, keeping))
            except jobs.CallError as error:
                raise set_up_error(Event(0.0, worker, -1, None, error)) from error

    def now(self) -> float:
        """Time of the last event."""
        return self.time

    def start_at(self, seconds: float) -> None:
        """The time goes on from so many seconds."""
        self.time = seconds

    def foresee(self, worker: int, now: float) -> None:
        """A worker's next job starts now."""
        self.finish[worker] = self.finishes[worker](now)

    def send(self, job: Job, model: jobs.Leaves) -> None:
        """Starts a job."""
        finish, self.sent[job.worker] = self.finish[job.worker], job.serial
        if finish < math.inf:
            heappush(self.heap, (finish, job.worker, job.serial, model, job))

    def next(self, until: float) -> Event | None:
        """The next event; None if there is none until that time."""
        if not self.heap or self.heap[0][0] > until:
            self.time = max(self.time, until)
            return None
        finish, worker, serial, model, job = heappop(self.heap)
        self.time = finish
        if serial != self.sent[worker]:  # it was stopped, and its worker has begun another
            return Event(finish, worker, serial, None)
        try:
            answer = jobs.compute(self.run, model, worker, job.number, job.kept)
            return Event(finish, worker, serial, answer)
        except jobs.CallError as error:
            return Event(finish, worker, serial, None, error)

    def is_waiting(self) -> bool:
        """Whether an event may still come by itself."""
        return bool(self.heap)

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
        The engine.

    Raises:
        TypeError: `clock` is no clock.
        ValueError: The clock is random and there is no key.

    Example:
        >>> from asyncjax import clocks, live
        >>> live.virtual(clocks.constant([1.0, 2.0])).n_workers
        2
    """
    instance("clock", clock, Clock, "a Clock, as its factories make it")
    check_key(key, "clock" if clock.is_random else None)
    return VirtualEngine(clock, key, flag("interruptible", interruptible))
