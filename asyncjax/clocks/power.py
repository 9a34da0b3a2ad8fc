"""Power over time: the universal computation model.

A worker has a power `v_i(t) >= 0`. A job that starts at `s` and whose compute time, at power 1, is
`c` is done at the first `t` with

    integral of v_i from s to t = c

Here `v_i` is piecewise constant, its pieces as long as further clocks say, and several powers of
one clock multiply. The model is that of Tyurin, "Tight time complexities in parallel stochastic
optimization with arbitrary computation dynamics" (2024), arXiv 2408.04929.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jax.core import Tracer

from asyncjax.checks import flag, within
from asyncjax.clocks.broadcast import agreed
from asyncjax.clocks.clock import Clock, Power
from asyncjax.clocks.fixed import recorded
from asyncjax.clocks.parameters import Parameter, as_floats, namespace, spread


def with_power(clock: Clock, rates: Parameter, *, repeats: bool = True, **lengths: Clock) -> Clock:
    """Adds a power to a clock; one-worker clocks and rates are broadcast to the others.

    `rates` float[1 or n, K].
    """
    wide = agreed(clock=clock, **lengths)
    for name, length in lengths.items():
        if length.powers:
            raise ValueError(f"{name} must be a clock without powers, got {len(length.powers)}")
    own = wide.pop("clock")
    power = Power(tuple(wide.values()), spread(rates, own.n_workers), repeats)
    return replace(own, powers=(*own.powers, power))


def _table(name: str, given: Any) -> Parameter:
    """Reads `[K]` or `[n, K]` as `[n, K]`."""
    value = as_floats(given)
    if value.ndim not in (1, 2) or value.size == 0:
        raise ValueError(
            f"{name} must be a non-empty array [pieces] or [workers, pieces], got an array of"
            f" shape {value.shape}"
        )
    return value.reshape(-1, value.shape[-1])


def with_speed(clock: Clock, lengths: Any, rates: Any, *, repeats: bool = True) -> Clock:
    """Gives the workers of a clock a power that follows a table.

    Formula: `v_i(t) = rates[i, m]` during piece `m`, which lasts `lengths[i, m]`; after the last
    piece the table begins again, or the last piece never ends. A job is done when the integral of
    `v_i` since its start equals its compute time.

    Note:
        `durations`, `times`, `mean` and `variance` of the clock stay those at power 1; it is the
        simulation, through `timeline.timelines`, that knows when a job starts.

    Args:
        clock: Compute times at power 1; may have powers, which multiply, links, and losses.
        lengths: Lengths of the pieces, positive; `[K]` or `[n, K]`, time units. With
            `repeats=False` the last one is of no effect and may be left out.
        rates: Power during the pieces, at least 0; `[K]` or `[n, K]`, work a time unit.
        repeats: Whether the table begins again after its last piece.

    Returns:
        A clock with the compute times of `clock` as work.

    Raises:
        TypeError: If `clock` is not a clock, a table is not made of real numbers, or `repeats` is
            neither True nor False.
        ValueError: If a length is not positive, a rate is negative, one is NaN or infinite, the
            shapes disagree, or a worker of a repeating table has no power at all.

    Example:
        >>> from asyncjax import clocks
        >>> clock = clocks.with_speed(clocks.constant(3.0), lengths=[2.0, 2.0], rates=[1.0, 0.25])
        >>> from asyncjax.clocks.timeline import timelines
        >>> line, = timelines(clock, None)
        >>> line.finish(0.0, 3.0), line.finish(3.0, 1.0)
        (4.5, 4.75)

    Reference:
        Tyurin (2024), arXiv 2408.04929: universal computation model.
    """
    repeats = flag("repeats", repeats)
    length_table = _table("lengths", within("lengths", lengths, above=0.0))
    rate_table = _table("rates", within("rates", rates, least=0.0))
    missing = rate_table.shape[1] - length_table.shape[1]
    if missing == 1 and not repeats:
        numpy = namespace(length_table)
        length_table = numpy.concatenate(
            [length_table, numpy.ones_like(length_table[:, :1])], axis=1
        )
    elif missing:
        raise ValueError(
            "lengths must have one entry for each entry of rates, got"
            f" {length_table.shape[1]} for {rate_table.shape[1]}"
        )
    counts = {len(length_table), len(rate_table)} - {1}
    if len(counts) > 1:
        raise ValueError(
            "lengths and rates must agree on the number of workers, got"
            f" {len(length_table)} and {len(rate_table)}"
        )
    if repeats and not isinstance(rate_table, Tracer):
        works = np.asarray(rate_table).any(axis=1)
        if not works.all():
            raise ValueError(
                "rates must be positive in one piece at least if they repeat, got only 0 for"
                f" worker {int(np.argmin(works))}"
            )
    n_workers = max(len(length_table), len(rate_table))
    pieces = recorded(spread(length_table, n_workers))
    return with_power(clock, rate_table, repeats=repeats, lengths=pieces)
