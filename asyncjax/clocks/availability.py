"""Availability: workers that break down for a while, join late, or leave.

    on_off    power 1 for a while, then 0 for a while, and so on
    present   power 1 from `join` to `leave`, else 0

A job under way in an outage pauses and goes on afterwards; one that is under way when its worker
leaves never returns. Both are powers of the universal computation model (Tyurin, 2024).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from asyncjax.checks import within
from asyncjax.clocks.broadcast import widened
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.fixed import constant
from asyncjax.clocks.parameters import Parameter, check_order, namespace
from asyncjax.clocks.power import with_power


def on_off(clock: Clock, *, up: Clock, down: Clock) -> Clock:
    """Adds outages: periods of work and of standstill take turns.

    Formula: the power is 1 during period `2 m`, which lasts job `m` of `up`, and 0 during period
    `2 m + 1`, which lasts job `m` of `down`.

    Args:
        clock: Compute times at power 1; may have powers, which multiply, links, and losses.
        up: Lengths of the periods of work, the first begins at time 0; time units.
        down: Lengths of the outages; time units. A length of inf (`with_failures`) ends the work
            for good. One-worker clocks are broadcast to the number of workers of the others.

    Returns:
        A clock whose jobs pause in an outage and go on afterwards.

    Raises:
        TypeError: If an argument is not a clock.
        ValueError: If the numbers of workers disagree, or `up` or `down` has powers itself.

    Example:
        >>> from asyncjax import clocks
        >>> always = clocks.constant([1.0, 3.0])
        >>> clock = clocks.on_off(always, up=clocks.constant(2.0), down=clocks.constant(10.0))
        >>> from asyncjax.clocks.timeline import timelines
        >>> [line.finish(0.0, work) for line, work in zip(timelines(clock, None), [1.0, 3.0])]
        [1.0, 13.0]
    """
    return with_power(clock, np.array([[1.0, 0.0]]), up=up, down=down)


def available(clock: Clock, *, join: Any = 0.0, leave: Any = np.inf) -> Clock:
    """Lets workers join late and leave early.

    Formula: the power of worker `i` is 1 for `join_i <= t <= leave_i`, else 0.

    Args:
        clock: Compute times at power 1; may have powers, which multiply, links, and losses.
        join: When the worker begins to work, at least 0; a number or `[n]`, time units. A job that
            it is given before waits until then.
        leave: When it stops, later than `join`, inf for never; a number or `[n]`, time units. A job
            under way then never returns.

    Returns:
        A clock.

    Raises:
        TypeError: If `clock` is not a clock, or a time not made of real numbers.
        ValueError: If `join` is negative, NaN or infinite, `leave` is not larger than `join`, or
            the numbers of workers disagree.

    Example:
        >>> from asyncjax import clocks
        >>> times, never = clocks.constant(2.0), float("inf")
        >>> clock = clocks.available(times, join=[0.0, 5.0], leave=[3.0, never])
        >>> from asyncjax.clocks.timeline import timelines
        >>> first, second = timelines(clock, None)
        >>> first.finish(0.0, 2.0), first.finish(2.0, 2.0), second.finish(0.0, 2.0)
        (2.0, inf, 7.0)
    """
    begin, end = within("join", join, least=0.0), within("leave", leave, finite=False)
    wide, rows = widened(clock, join=begin, leave=end)
    join, leave = rows["join"], rows["leave"]
    check_order(join=join, leave=leave)
    if _is_any(join > 0):
        wide = _stepping(wide, join, join > 0, starts_at=0.0)
    if _is_any(leave < np.inf):
        wide = _stepping(wide, leave, leave < np.inf, starts_at=1.0)
    return wide


def _is_any(condition: Parameter) -> bool:
    """Whether a condition holds for a worker; traced ones may always."""
    return isinstance(condition, jax.Array) or bool(condition.any())


def _stepping(clock: Clock, time: Parameter, applies: Parameter, starts_at: float) -> Clock:
    """Adds a power that changes once, at `time`, between 0 and 1; constant 1 if not `applies`."""
    numpy = namespace(time)
    before = numpy.where(applies, starts_at, 1.0)
    after = numpy.where(applies, 1.0 - starts_at, 1.0)
    length = constant(numpy.where(applies, time, 1.0))
    return with_power(clock, numpy.stack([before, after], axis=1), repeats=False, lengths=length)
