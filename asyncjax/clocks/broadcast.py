"""Agreement of clocks that describe the same workers on their number.

One-worker clocks stand for any number of workers, each with its own stream.
"""

from __future__ import annotations

from typing import Any

from asyncjax.checks import instance
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.parameters import Parameter, align, spread


def agreed(**clocks: Clock) -> dict[str, Clock]:
    """Broadcasts one-worker clocks to the number of workers of the others.

    Example:
        >>> from asyncjax import clocks
        >>> wide = agreed(clock=clocks.constant(1.0), upload=clocks.constant([1.0, 2.0]))
        >>> wide["clock"].n_workers
        2
    """
    for name, part in clocks.items():
        instance(name, part, Clock, "a clock, as its factories make it")
    n_workers = max(part.n_workers for part in clocks.values())
    for name, part in clocks.items():
        if part.n_workers not in (1, n_workers):
            raise ValueError(
                f"{name} must have 1 or {n_workers} workers as the other clocks, got"
                f" {part.n_workers}"
            )
    return {name: part.broadcast(n_workers) for name, part in clocks.items()}


def widened(clock: Clock, **parameters: Any) -> tuple[Clock, dict[str, Parameter]]:
    """Broadcasts a clock and parameters of its workers to one number of workers.

    Example:
        >>> import numpy as np
        >>> from asyncjax import clocks
        >>> wide, rows = widened(clocks.constant([1.0, 2.0]), share=np.array(0.5))
        >>> rows["share"].tolist()
        [0.5, 0.5]
    """
    own = agreed(clock=clock)["clock"]
    rows = align(**parameters)
    given = next(iter(rows.values())).shape[0]
    if given != own.n_workers and 1 not in (given, own.n_workers):
        raise ValueError(
            f"{' and '.join(rows)} must be a number or one number for each of the clock's"
            f" {own.n_workers} workers, got {given} values"
        )
    n_workers = max(given, own.n_workers)
    return own.broadcast(n_workers), {name: spread(row, n_workers) for name, row in rows.items()}
