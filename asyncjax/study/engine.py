"""Who computes the next cell: whoever is idle. And how much is left, where somebody looks."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from asyncjax.live import Engine


class Left(NamedTuple):
    """How far a study is."""

    done: int  # cells that are computed or were read
    left: int  # cells that will be asked for, at least
    text: str  # what is being done


def engine_of(name: str, workers: int, address: str) -> Engine:
    """An engine as it is asked for on a command line: "processes" of this machine, or "ray"."""
    from asyncjax import live

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
    running: dict[Future[Any], tuple[int, Any]] = {}
    idle = list(range(engine.n_workers))[::-1]
    while todo or running:
        while todo and idle:
            worker, piece = idle.pop(), todo.pop()
            running[engine.executor(worker).submit(work, piece)] = worker, piece
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
                engine.drop(worker)
                todo.append(piece)


@contextlib.contextmanager
def bar() -> Iterator[Callable[[Left], None]]:
    """A progress bar with what is left on standard error; nothing where that is no terminal.

    Example:
        >>> with bar() as told:
        ...     told(Left(1, 2, "round 1"))
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
    except ImportError:
        yield lambda left: None
        return
    if not sys.stderr.isatty():
        yield lambda left: None
        return
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=None)
        yield lambda left: shown.update(
            task, completed=left.done, total=left.done + left.left, description=left.text
        )
