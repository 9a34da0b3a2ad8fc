"""Which traces are made of streams: arrivals that no rule can change.

Those of `to_deliverer` are merged, also where jobs are given up or lost; behind a gate they are
found a job of every worker at a time, which pays from some dozen workers on. Where jobs go down a
list, or are handed out to those who wait for a step, as many are found at once as are certain; with
less than some thousand workers these are few, and a heap is as fast.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from asyncjax.checks import shown
from asyncjax.traces.arrival_streams import NoStreamError, Stream, streamed
from asyncjax.traces.collection import Collection, Collector
from asyncjax.traces.dispatch import Dispatch, Gate, Take
from asyncjax.traces.event_trace import EventTrace
from asyncjax.traces.gated import Gated
from asyncjax.traces.given_up import GivenUp
from asyncjax.traces.held import Held
from asyncjax.traces.listed import Listed
from asyncjax.traces.merge import Renewals
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import DurationBlocks


class Least(NamedTuple):
    """Workers from which on a kind of stream is faster than the event loop."""

    merged: int = 1
    gated: int = 64
    calendar: int = 8_192  # of a list, or of those who wait


LEAST = Least()
# Events without an update, and more a worker, that the event loop lets pass without a question.
_SILENT, _SILENT_A_WORKER = 4_096, 16
_SLACK = 1e-9  # of shortest times, which are rounded like any


class Limits(NamedTuple):
    """What may hold a job back, or end it."""

    gate: Gate | None
    timeout: list[float]  # a worker, time units, inf for never
    least: np.ndarray  # float64[n], time units, the shortest jobs


def trace_of_stream(
    blocks: DurationBlocks,
    dispatch: tuple[Dispatch, jax.Array | None],
    collect: tuple[Collection, Collector],
    n_updates: int,
    limits: Limits,
    concurrency: int | None,
    *,
    read_at_start: bool,
    pace: Pace | None = None,
) -> EventTrace | None:
    """The trace, if it can be made of a stream.

    `dispatch` with its key, `collect` with a run of it; nobody is stopped, the server takes no time
    and no power changes. A rule that does not say what it is stuck without is left to the event
    loop, which calls it stuck after so many arrivals.

    Raises:
        NoStreamError: It cannot, as was seen too late: the run of the rule is used up.
    """
    n, (dispatch_rule, key), (rule, run) = blocks.clock.n_workers, dispatch, collect
    if run.is_stuck_without is None:
        return None
    if rule.cancel_from is not None or (rule.holds_back and rule.period is None):
        return None
    stream, is_free = None, limits.gate is None and not _may_end(blocks, limits)
    if dispatch_rule.answers_deliverer:
        stream = _pure(blocks, rule, run, limits, concurrency, read_at_start)
    elif is_free and n >= LEAST.calendar and goes_down_a_list(dispatch_rule):
        stream = _listed(blocks, dispatch_rule, key, rule, concurrency, read_at_start)
    if stream is None:
        return None
    is_counted = rule.period is not None and not rule.keeps_model
    trace = streamed(stream, rule, None if is_counted else run, n_updates, pace)
    most = _SILENT + _SILENT_A_WORKER * n
    if isinstance(stream, GivenUp) and stream.longest_silence(trace.steps) >= most:
        raise NoStreamError
    return trace


def _may_end(blocks: DurationBlocks, limits: Limits) -> bool:
    """Whether some job may be given up or lost."""
    return blocks.clock.loss is not None or min(limits.timeout) < np.inf


def _pure(
    blocks: DurationBlocks,
    rule: Collection,
    run: Collector,
    limits: Limits,
    concurrency: int | None,
    read_at_start: bool,
) -> Stream | None:
    """The stream of `to_deliverer`, if there is one."""
    n = blocks.clock.n_workers
    is_full, stuck_without = concurrency in (None, n), run.is_stuck_without
    assert stuck_without is not None  # or it is left to the event loop
    if concurrency is not None and concurrency < n and stuck_without(set(range(concurrency, n))):
        return None
    if _may_end(blocks, limits):
        timeout = np.asarray(limits.timeout)
        is_heard = run.given_up is not None or (timeout < limits.least * (1.0 - _SLACK)).any()
        if limits.gate is not None or rule.holds_back or not is_full or is_heard:
            return None
        may_be_lost = timeout.max() == np.inf and blocks.clock.loss is not None
        if n < LEAST.merged or (may_be_lost and stuck_without(set(range(1, n)))):
            return None
        return GivenUp(blocks, timeout, keeps_model=rule.keeps_model)
    if limits.gate is not None:
        if rule.holds_back or not is_full or n < LEAST.gated:
            return None
        return Gated(blocks, limits.gate.bound, read_at_start=read_at_start)
    if rule.holds_back:
        active = concurrency or n
        if active > n or n < LEAST.calendar:
            return None
        return Held(blocks, active, rule.period or 1)
    if n < LEAST.merged:
        return None
    return Renewals(blocks, concurrency or n, read_at_start=read_at_start)


def goes_down_a_list(rule: Dispatch) -> bool:
    """Whether a rule has a list of workers, and it is that of its `start`."""
    return rule.listed is not None and rule.asks_all and _home(rule.listed) == _home(rule.start)


def _home(function: object) -> str:
    return str(getattr(function, "__module__", ""))


def _listed(
    blocks: DurationBlocks,
    rule: Dispatch,
    key: jax.Array | None,
    collect: Collection,
    concurrency: int | None,
    read_at_start: bool,
) -> Stream:
    """The stream of a list of workers."""
    n, period = blocks.clock.n_workers, collect.period or 1
    assert rule.listed is not None
    take = checked(rule.listed(n, key), rule.name, n)
    period = period if collect.holds_back else 1
    return Listed(blocks, take, concurrency, period=period, read_at_start=read_at_start)


def checked(take: Take, name: str, n_workers: int) -> Take:
    """The same, refusing what are no workers.

    Example:
        >>> checked(lambda count: np.arange(count), "all", 3)(4)
        Traceback (most recent call last):
        ValueError: listed of the rule 'all' must name workers of 0 .. 2, got 3
    """

    def next_workers(count: int) -> np.ndarray:
        workers = take(count)
        whose = f"listed of the rule '{name}' must"
        if not isinstance(workers, np.ndarray) or workers.dtype.kind not in "iu":
            raise TypeError(f"{whose} give an array of integers, got {shown(workers)}")
        if workers.ndim != 1 or len(workers) > count:
            raise ValueError(f"{whose} give {count} workers at most, got shape {workers.shape}")
        outside = (workers < 0) | (workers >= n_workers)
        if outside.any():
            wrong = workers[np.argmax(outside)]
            raise ValueError(f"{whose} name workers of 0 .. {n_workers - 1}, got {wrong}")
        return workers

    return next_workers
