"""Engines: where workers run. One `concurrent.futures.Executor` a worker, and nothing of our own.

An engine opens, for each worker, an executor that runs its calls one after another, and says by
which errors a lost worker is known. It retries nothing: a job that is lost is the server's to give
up, and its rule decides who gets the next. A worker that is lost is opened anew, so many times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import (
    Executor,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from typing import Any

import jax

from asyncjax.checks import whole

RESTARTS = 3  # of a worker


@dataclass(frozen=True)
class Engine:
    """Where the workers of a run are; a context that closes them.

    Attributes:
        name: In words, for messages.
        n_workers: Workers.
        open: `(worker) -> Executor` that runs what it is given in order, one after another.
        lost: Errors by which a call says that the worker is lost, not that the call failed.
        put: `(model) -> handle` that workers can read the model from; None: as it is.
        restarts: How often a lost worker is opened anew.
        close: Called when the engine is left.
        waiting: `(opened) -> (workers, why)`: which of them no place was free for yet, and how much
            is free, in words; None: each has its place at once.
        opened: The workers that are open, by number; filled by the engine itself.
    """

    name: str
    n_workers: int
    open: Callable[[int], Executor]
    lost: tuple[type[BaseException], ...] = ()
    put: Callable[[Any], Any] | None = None
    restarts: int = RESTARTS
    close: Callable[[], None] | None = None
    waiting: Callable[[Mapping[int, Executor]], tuple[set[int], str]] | None = None
    opened: dict[int, Executor] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        whole("n_workers", self.n_workers)
        whole("restarts", self.restarts, least=0)

    def executor(self, worker: int) -> Executor:
        """The worker, opened where it is not yet; it stays until the engine is left."""
        if worker not in self.opened:
            self.opened[worker] = self.open(worker)
        return self.opened[worker]

    def drop(self, worker: int) -> None:
        """Ends what is left of a worker, with what it still does."""
        executor = self.opened.pop(worker, None)
        if executor is not None:
            for process in list((getattr(executor, "_processes", None) or {}).values()):
                process.kill()
            executor.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Engine:
        """The engine itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all workers; what they still compute is lost."""
        for worker in list(self.opened):
            self.drop(worker)
        if self.close is not None:
            self.close()


def threads(n_workers: int, *, restarts: int = RESTARTS) -> Engine:
    """Workers that are threads of this process: nothing to install, nothing to send.

    Args:
        n_workers: How many.
        restarts: As in `Engine`; a thread cannot be lost.

    Returns:
        The engine. XLA, on a CPU, computes as many gradients at a time as there are cores (or
        `NPROC` of them), also where one only waits in a callback. A thread that hangs cannot be
        ended: the engine leaves it behind, and Python waits for it when it ends.

    Example:
        >>> from asyncjax import live
        >>> live.threads(3).n_workers
        3
    """
    return Engine("threads", n_workers, lambda _: ThreadPoolExecutor(1), restarts=restarts)


def devices(devices: Any = None) -> Engine:
    """A worker a device of this machine, each a thread whose arrays lie there.

    Args:
        devices: Devices of JAX; None: all local ones.

    Example:
        >>> from asyncjax import live
        >>> live.devices().n_workers == jax.local_device_count()
        True
    """
    listed = jax.local_devices() if devices is None else devices

    def open_thread(worker: int) -> Executor:
        return ThreadPoolExecutor(1, initializer=jax.default_device(listed[worker]).__enter__)

    return Engine("devices", len(listed), open_thread)


def processes(
    n_workers: int,
    *,
    restarts: int = RESTARTS,
    environment: Callable[[int], Mapping[str, str]] | None = None,
) -> Engine:
    """Workers that are processes of this machine: nothing to install; the default.

    They are spawned, so a script that calls this must do so under `if __name__ == "__main__"`, and
    what they are sent must be importable: a problem made by a lambda or of a flax module is not;
    give a function of a module that makes it. A worker ends when this process does, however it
    ends. On a CPU each computes in one thread.

    Args:
        n_workers: How many.
        restarts: How often a process that was killed is started anew.
        environment: `(worker) -> variables` of its process beside those of this one, such as
            `lambda worker: {"CUDA_VISIBLE_DEVICES": str(worker)}`, or `{"JAX_PLATFORMS": "cpu"}`.

    Example:
        >>> from asyncjax import live
        >>> with live.processes(2) as workers:
        ...     workers.name
        'processes'
    """

    def open_process(worker: int) -> Executor:
        variables = {} if environment is None else dict(environment(worker))
        executor = ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=settle, initargs=(variables,)
        )
        with restoring(variables.__contains__):
            os.environ.update(variables)  # what a process imports first may read them
            executor.submit(os.getpid)
        # Were this end open, what a process was sending when it was killed would have no end, and
        # whoever reads it would wait for ever.
        results: Any = getattr(executor, "_result_queue", None)
        if results is not None:
            results._writer.close()
        return executor

    return Engine("processes", n_workers, open_process, (BrokenProcessPool,), restarts=restarts)


@contextlib.contextmanager
def restoring(is_ours: Callable[[str], bool]) -> Iterator[None]:
    """Puts these variables of this process back as they were, when it is left."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in filter(is_ours, {*os.environ, *before}):
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


def settle(environment: dict[str, str]) -> None:
    """Begins a worker's process: Ctrl-C is for the server, and it ends with that."""
    with contextlib.suppress(ValueError):  # it is not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    single = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if "XLA_FLAGS" not in environment:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {single}".strip()
    os.environ.update(environment)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def executors(
    n_workers: int,
    open: Callable[[int], Executor],
    *,
    lost: tuple[type[BaseException], ...] = (),
    restarts: int = RESTARTS,
) -> Engine:
    """Workers of any other library that has executors, at a person's own risk.

    Args:
        n_workers: How many.
        open: `(worker) -> Executor` that runs what it is given one after another, at one worker; it
            must not retry.
        lost: Errors that mean that the worker is lost.
        restarts: How often `open` is called again for a worker that was lost.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> executors(2, lambda worker: ThreadPoolExecutor(1)).name
        'executors'
    """
    return Engine("executors", n_workers, open, lost, restarts=restarts)
