"""Work that is spread over the workers of an engine: who is idle gets the next piece."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from asyncjax import live
from asyncjax.live import Engine


def engine_of(name: str, workers: int, address: str) -> Engine:
    """An engine as it is asked for on a command line: "processes" of this machine, or "ray"."""
    if name == "ray":
        return live.ray(workers, address=address or None)
    flags = os.environ.get("XLA_FLAGS", "")  # those of this process, for the same bits
    return live.processes(workers, environment=lambda _: {"XLA_FLAGS": flags})


def spread(engine: Engine, work: Callable[..., Any], pieces: Sequence[Any]) -> Iterator[Any]:
    """Yields `(piece, work(piece))` as the pieces are done, each by one worker.

    The pieces of a worker that is lost are done by another that is opened in its place; `work` must
    be importable at the workers, and pure: it may run twice.

    Raises:
        RuntimeError: A worker was lost more often than the engine restarts it.

    Example:
        >>> from asyncjax import live
        >>> with live.threads(2) as workers:
        ...     sorted(spread(workers, abs, [-3, 2, -1]))
        [(-3, 3), (-1, 1), (2, 2)]
    """
    todo, restarts = list(pieces)[::-1], [engine.restarts] * engine.n_workers
    executors: dict[int, Any] = {}
    running: dict[Future[Any], tuple[int, Any]] = {}
    idle = list(range(engine.n_workers))
    while todo or running:
        while todo and idle:
            worker, piece = idle.pop(), todo.pop()
            if worker not in executors:
                executors[worker] = engine.executor(worker)
            running[executors[worker].submit(work, piece)] = worker, piece
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            worker, piece = running.pop(future)
            idle.append(worker)
            error = future.exception()
            if error is None:
                yield piece, future.result()
            elif not isinstance(error, engine.lost):
                raise error
            elif not restarts[worker]:
                raise RuntimeError(
                    f"worker {worker} of {engine.name} was lost {engine.restarts + 1} times"
                ) from error
            else:
                restarts[worker] -= 1
                del executors[worker]
                todo.append(piece)
