"""Crews: the workers of a run as its server sees them: jobs go out, events come in, one at a time.

There is one mailbox and one thread of decisions. Whatever happens at a worker becomes an event of
the job's serial; an answer counts only if the server still waits for that serial, so exactly once.
"""

import math
import queue
import time
from concurrent.futures import Executor, Future
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

import jax

from asyncjax.checks import instance
from asyncjax.clocks import Clock
from asyncjax.live import jobs
from asyncjax.live.engines import Engine, end
from asyncjax.traces.host import DurationBlocks, check_key, finishes, on_host

_LONGEST_WAIT = 3600.0  # seconds, of one wait for an event


class Event(NamedTuple):
    """What happened."""

    time: float  # seconds since the start, when it did
    worker: int
    serial: int  # of the job; of a worker that is there again: -1
    answer: jobs.Answer | None  # None: the job is lost, or the worker is there again
    error: BaseException | None = None  # of the call, where it was not the worker that was lost


class Crew(Protocol):
    """The workers of one run."""

    places_stay: bool  # a job that is stopped goes on, and its worker is not free before

    @property
    def n_workers(self) -> int:
        """How many there are."""
        ...

    def now(self) -> float:
        """Seconds since the start."""
        ...

    def send(self, worker: int, serial: int, model: jobs.Leaves, number: int, version: int) -> None:
        """Starts a job."""
        ...

    def next(self, until: float) -> Event | None:
        """Waits for the next event; None if there is none until that time."""
        ...

    def is_waiting(self) -> bool:
        """Whether an event may still come by itself."""
        ...

    def close(self) -> None:
        """Ends the run at the workers; they stay."""
        ...


class SetUpError(RuntimeError):
    """A worker could not be set up."""


class EngineCrew:
    """Workers of an engine."""

    places_stay = True

    def __init__(self, engine: Engine, source: Any, key: jax.Array, seconds: float) -> None:
        self.engine, self.n_workers, self.source = engine, engine.n_workers, source
        self.key, self.run = jobs.key_parts(key), f"{id(self)}-{time.time_ns()}"
        self.mailbox: queue.SimpleQueue[tuple[float, int, int, Future[Any]]] = queue.SimpleQueue()
        self.restarts = [engine.restarts] * engine.n_workers
        self.starting: set[int] = set()
        self.running: set[int] = set()  # serials
        self.shared: tuple[int, Any] = (-1, None)  # the last model that was put, by version
        self.zero = time.perf_counter()
        self.executors: list[Executor] = [engine.executor(i) for i in range(engine.n_workers)]
        ready = [self._set_up(i) for i in range(engine.n_workers)]
        try:
            for worker, future in enumerate(ready):
                self._check_software(worker, future.result(seconds))
        except TimeoutError as error:
            raise SetUpError(
                f"a worker of {engine.name} was not ready after {seconds:g} seconds (patience)"
            ) from error
        except engine.lost as error:
            raise SetUpError(f"a worker of {engine.name} was lost while it was set up") from error
        self.zero = time.perf_counter()

    def _set_up(self, worker: int) -> "Future[tuple[str, bool]]":
        own = jobs.Assignment(self.run, self.source, worker, self.key, jobs.software())
        return self.executors[worker].submit(jobs.set_up, own)

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

    def send(self, worker: int, serial: int, model: jobs.Leaves, number: int, version: int) -> None:
        """Starts a job."""
        if self.shared[0] != version:
            put = self.engine.put
            self.shared = version, model if put is None else put(model)
        self.running.add(serial)
        try:
            future = self.executors[worker].submit(
                jobs.compute, self.run, self.shared[1], worker, number
            )
        except (*self.engine.lost, RuntimeError) as error:  # it was lost while it was idle
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(self._post, worker, serial))

    def _post(self, worker: int, serial: int, future: "Future[Any]") -> None:
        self.mailbox.put((self.now(), worker, serial, future))

    def next(self, until: float) -> Event | None:
        """Waits for the next event; None if there is none until that time."""
        left = min(max(0.0, until - self.now()), _LONGEST_WAIT)
        try:
            now, worker, serial, future = self.mailbox.get(timeout=left)
        except queue.Empty:
            return None
        self.running.discard(serial)
        error = future.exception()
        if error is None:
            if serial >= 0:
                return Event(now, worker, serial, future.result())
            self.starting.discard(worker)
            self._check_software(worker, future.result())
            return Event(now, worker, serial, None)
        if isinstance(error, self.engine.lost):
            self._reopen(worker)
            return Event(now, worker, serial, None) if serial >= 0 else None
        return Event(now, worker, serial, None, error)

    def _reopen(self, worker: int) -> None:
        """Opens a lost worker anew, if it may be."""
        end(self.executors[worker])
        self.starting.discard(worker)
        if self.restarts[worker] == 0:
            return
        self.restarts[worker] -= 1
        self.starting.add(worker)
        self.executors[worker] = self.engine.executor(worker)
        try:
            future = self._set_up(worker)
        except self.engine.lost as error:
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(self._post, worker, -1))

    def is_waiting(self) -> bool:
        """Whether an event may still come by itself."""
        return bool(self.running or self.starting)

    def close(self) -> None:
        """Ends the run at the workers; they stay."""
        for worker, executor in enumerate(self.executors):
            if worker not in self.starting:
                try:
                    executor.submit(jobs.forget, self.run)
                except (*self.engine.lost, RuntimeError):
                    continue


class VirtualCrew:
    """Workers in virtual time: a heap over the finish times of a clock."""

    places_stay = False

    def __init__(self, clock: Clock, clock_key: jax.Array | None, source: Any, key: jax.Array):
        self.n_workers = clock.n_workers
        with on_host(clock_key) as host_key:
            duration_key = jax.random.split(host_key)[0]
        self.finishes, _ = finishes(DurationBlocks(clock, duration_key), 64)
        self.run, self.time = f"virtual-{id(self)}", 0.0
        self.heap: list[tuple[float, int, int, jobs.Leaves, int]] = []
        own = jobs.Assignment(self.run, source, 0, jobs.key_parts(key), jobs.software())
        jobs.set_up(own)

    def now(self) -> float:
        """Time of the last event."""
        return self.time

    def start_at(self, seconds: float) -> None:
        """The time goes on from so many seconds."""
        self.time = seconds

    def send(self, worker: int, serial: int, model: jobs.Leaves, number: int, version: int) -> None:
        """Starts a job."""
        finish = self.finishes[worker](self.time)
        if finish < math.inf:
            heappush(self.heap, (finish, worker, serial, model, number))

    def next(self, until: float) -> Event | None:
        """The next event; None if there is none until that time."""
        if not self.heap or self.heap[0][0] > until:
            self.time = max(self.time, until)
            return None
        finish, worker, serial, model, number = heappop(self.heap)
        self.time = finish
        return Event(finish, worker, serial, jobs.compute(self.run, model, worker, number))

    def is_waiting(self) -> bool:
        """Whether an event may still come by itself."""
        return bool(self.heap)

    def close(self) -> None:
        """Forgets the problem."""
        jobs.forget(self.run)


class VirtualEngine(NamedTuple):
    """A clock to live by; `virtual` makes it."""

    clock: Clock
    key: jax.Array | None

    @property
    def n_workers(self) -> int:
        """Workers of the clock."""
        return self.clock.n_workers

    def __enter__(self) -> "VirtualEngine":
        """The engine itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


def virtual(clock: Clock, key: jax.Array | None = None) -> VirtualEngine:
    """Workers in virtual time: the live loop, gradients and all, on a clock of this library.

    For tests, and to see what a run does without waiting for it. Under the same key and rules the
    trace is that of `traces.asynchronous`.

    Args:
        clock: How long each worker takes.
        key: Typed key, needed where the clock is random.

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
    return VirtualEngine(clock, key)
