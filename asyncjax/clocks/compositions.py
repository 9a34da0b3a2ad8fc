"""What is done to a clock: links, lost jobs, powers, workers that come and go.

    communicating   T = download + load * compute + upload      three independent parts
    with_failures   T = inf with probability p, else the time of the clock
    with_speed      a power that follows a table
    on_off          power 1 for a while, then 0 for a while, and so on
    available       power 1 from `join` to `leave`, else 0

A worker with the power `v_i(t) >= 0` is done with a job that starts at `s`, and whose compute time
at power 1 is `c`, at the first `t` with

    integral of v_i from s to t = c

Powers are piecewise constant; several of one clock multiply. The model is that of Tyurin, "Tight
time complexities in parallel stochastic optimization with arbitrary computation dynamics" (2024),
arXiv 2408.04929; the links follow Egger, Kas Hanna and Bitar (2023). Links and losses have streams
of their own: the compute times are those of the clock without them under the same key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from asyncjax.checks import within
from asyncjax.clocks.clock import Clock, Power
from asyncjax.clocks.independent_laws import CONSTANT, constant, recorded
from asyncjax.clocks.law import Parameter, align, as_floats, check_order, namespace


def _agreed(**clocks: Clock) -> dict[str, Clock]:
    """Broadcasts one-worker clocks, each with its own stream, to the number of the others."""
    n_workers = max(part.n_workers for part in clocks.values())
    for name, part in clocks.items():
        if part.n_workers not in (1, n_workers):
            raise ValueError(
                f"{name} must have 1 or {n_workers} workers as the other clocks, got"
                f" {part.n_workers}"
            )
    return {name: part.broadcast(n_workers) for name, part in clocks.items()}


def widened(clock: Clock, **parameters: Any) -> tuple[Clock, dict[str, Parameter]]:
    """Broadcasts a clock and parameters of its workers to one number of workers."""
    rows = Clock(align(**parameters), CONSTANT)
    clock, rows = _agreed(**{"clock": clock, " and ".join(parameters): rows}).values()
    return clock, rows.parameters


def communicating(
    clock: Clock, *, download: Clock | None = None, upload: Clock | None = None
) -> Clock:
    """Returns a clock with link times added (Egger et al. 2023, arXiv 2304.08589).

    Formula: `T = download + load * compute + upload`.

    Args:
        clock: Time of computing, the only part that a load multiplies.
        download: Time of sending the model to the worker, None for no time.
        upload: Time of sending the gradient to the server, None for no time.

    Example:
        >>> from asyncjax import clocks
        >>> clock = clocks.communicating(clocks.constant([1.0, 2.0]), upload=clocks.constant(0.5))
        >>> clock.durations(None, 1, load=3.0).tolist()
        [[3.5], [6.5]]
    """
    links = {"download": download, "upload": upload}
    given = {name: link for name, link in links.items() if link is not None}
    wide = _agreed(clock=clock, **given)
    for name, link in given.items():
        if getattr(clock, name) is not None:
            raise ValueError(
                f"{name} must be None for a clock that has one already, got another,"
                f" {link.law.name!r}"
            )
        if not link.is_plain:
            has = f"losses and {len(link.powers)}" if link.loss is not None else len(link.powers)
            raise ValueError(
                f"{name} must be a clock without losses and powers, got one with {has} powers"
            )
    return replace(wide.pop("clock"), **wide)


def with_failures(clock: Clock, probability: Any) -> Clock:
    """Returns a clock whose jobs get lost, each independently of all others.

    Formula: `compute = inf` with the given probability. Losses of a clock that loses jobs already
    add up to `1 - (1 - p) (1 - q)`; mean and variance are those of the jobs that return.

    Args:
        clock: Any clock; may have links, powers and losses.
        probability: Chance that a job never returns, in [0, 1); a number or `[n]`.

    Example:
        >>> import jax
        >>> from asyncjax import clocks
        >>> clock = clocks.with_failures(clocks.constant([1.0, 2.0]), probability=[0.0, 0.5])
        >>> clock.durations(jax.random.key(1), 4).tolist()
        [[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, inf, inf]]
    """
    chance = within("probability", probability, least=0.0, below=1.0)
    wide, rows = widened(clock, probability=chance)
    loss = rows["probability"]
    if wide.loss is not None:
        loss = wide.loss + loss - wide.loss * loss
    return replace(wide, loss=loss)


def with_power(clock: Clock, rates: Parameter, *, repeats: bool = True, **lengths: Clock) -> Clock:
    """Adds a power, rates float[1 or n, K], to a clock; one-worker parts are broadcast."""
    table = Clock({"rates": rates}, CONSTANT)
    clock, table, *pieces = _agreed(clock=clock, rates=table, **lengths).values()
    for name, length in lengths.items():
        if length.powers:
            raise ValueError(f"{name} must be a clock without powers, got {len(length.powers)}")
    power = Power(tuple(pieces), table.parameters["rates"], repeats)
    return replace(clock, powers=(*clock.powers, power))


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
    """Returns a clock whose workers have a power that follows a table.

    Formula: `v_i(t) = rates[i, m]` during piece `m`, which lasts `lengths[i, m]`; a job is done
    when the integral of `v_i` since its start equals its compute time (Tyurin 2024, 2408.04929).

    Note:
        Draws and moments of the clock stay those at power 1; the simulation knows when a job
        starts.

    Args:
        clock: Compute times at power 1; powers it has multiply.
        lengths: Lengths of the pieces, positive; `[K]` or `[n, K]`, time units.
        rates: Power during the pieces, at least 0; `[K]` or `[n, K]`, work a time unit.
        repeats: Whether the table begins again after its last piece; if not, that one never ends,
            and its length may be left out.

    Example:
        >>> from asyncjax import clocks
        >>> clock = clocks.with_speed(clocks.constant(3.0), lengths=[2.0, 2.0], rates=[1.0, 0.25])
        >>> from asyncjax.clocks.timeline import timelines
        >>> line, = timelines(clock, None)
        >>> line.finish(0.0, 3.0), line.finish(3.0, 1.0)
        (4.5, 4.75)

        Drift: jobs become 5 % longer every 100 time units, ten times, and then stay so.

        >>> drifting = clocks.with_speed(
        ...     clocks.gamma(4.0, 1.0), [100.0] * 10, [1.05**-m for m in range(11)], repeats=False
        ... )
    """
    length_table = _table("lengths", within("lengths", lengths, above=0.0))
    rate_table = _table("rates", within("rates", rates, least=0.0))
    missing = rate_table.shape[1] - length_table.shape[1]
    if missing == 1 and not repeats:
        numpy = namespace(length_table)
        length_table = numpy.pad(length_table, ((0, 0), (0, 1)), constant_values=1.0)
    elif missing:
        raise ValueError(
            "lengths must have one entry for each entry of rates, got"
            f" {length_table.shape[1]} for {rate_table.shape[1]}"
        )
    return with_power(clock, rate_table, repeats=repeats, lengths=recorded(length_table))


def on_off(clock: Clock, *, up: Clock, down: Clock) -> Clock:
    """Returns a clock with outages, in which jobs pause and go on afterwards.

    Formula: the power is 1 during period `2 m`, which lasts job `m` of `up`, and 0 during period
    `2 m + 1`, which lasts job `m` of `down`.

    Args:
        clock: Compute times at power 1; powers it has multiply.
        up: Lengths of the periods of work, the first begins at time 0; time units.
        down: Lengths of the outages; time units. A length of inf (`with_failures`) ends the work
            for good.

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
    """Returns a clock whose workers join late and leave early.

    Formula: the power of worker `i` is 1 for `join_i <= t <= leave_i`, else 0.

    Args:
        clock: Compute times at power 1; powers it has multiply.
        join: When the worker begins to work, at least 0; a number or `[n]`, time units. A job that
            it is given before waits until then.
        leave: When it stops, later than `join`, inf for never; a number or `[n]`, time units. A job
            under way then never returns.

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
    for time, steps, before in ((join, join > 0, 0.0), (leave, leave < np.inf, 1.0)):
        if isinstance(steps, jax.Array) or steps.any():  # traced ones may always
            numpy = namespace(time)
            rates = [numpy.where(steps, rate, 1.0) for rate in (before, 1.0 - before)]
            lengths = constant(numpy.where(steps, time, 1.0))
            rates = numpy.stack(rates, axis=1)
            wide = with_power(wide, rates, repeats=False, lengths=lengths)
    return wide
