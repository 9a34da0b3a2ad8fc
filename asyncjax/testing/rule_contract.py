"""What a good server rule does: its traces could have happened, happen again, and keep its word.

A rule decides from who delivers, when, and how stale; what it remembers belongs to one run, which
its `start` opens. It knows nothing of what comes later, and what it says of itself (`period`,
`answers_deliverer`, ...) is what it does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from asyncjax import clocks
from asyncjax.checks import shown
from asyncjax.testing.failures import fails_as, first_difference
from asyncjax.testing.rule_example import Call, Server, example_clocks, heard, server_of, trace_of
from asyncjax.traces import EventTrace, Rule, validate
from asyncjax.traces.collection import Verdict

_COLUMNS = ("time", "worker", "job", "read_version", "version", "steps", "start")


def check_rule_traces(
    rule: Rule | None = None,
    *,
    n_workers: int = 4,
    n_updates: int = 40,
    key: jax.Array | None = None,
) -> None:
    """Checks that the rules make traces that could have happened, and go on.

    On workers that all deliver at once, that often do, and that never do; and, without a gate, on
    workers whose jobs are lost and given up after a timeout.

    Args:
        rule: A server rule; None for `Rule()`, pure asynchronous SGD.
        n_workers: Workers of every run.
        n_updates: Updates of every run, at least 2.
        key: Typed key; None for `jax.random.key(0)`.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a rule fails, answers wrongly or lets the server update no more, a trace
            does not validate, or a job starts further ahead than the gate allows.

    Example:
        >>> from asyncjax import traces
        >>> check_rule_traces(traces.Rule(collect=traces.wait_for(2)))
    """
    server = server_of(rule, n_workers, n_updates, key)
    runs = example_clocks(server.n_workers)
    made = {words: trace_of(server, clock, words) for words, clock in runs.items()}
    if server.rule.gate is None:
        words = "jobs that are lost, and given up after a timeout"
        lossy = clocks.with_failures(runs["exponential times"], 0.25)
        hurried = server._replace(rule=replace(server.rule, timeout=6.0))
        made[words] = trace_of(hurried, lossy, words)
    for words, trace in made.items():
        with fails_as(f"traces of {server.name} with {words} must be such as could have happened"):
            validate(trace)
        if server.rule.gate is not None:
            _check_lead(server, trace, words)


def check_rule_repeats(
    rule: Rule | None = None,
    *,
    n_workers: int = 4,
    n_updates: int = 40,
    key: jax.Array | None = None,
) -> None:
    """Checks that a trace belongs to its clock and key: nothing else is remembered or foreseen.

    The trace is the same twice with another between, and its beginning is that of a shorter one,
    weights too. Two runs that are open at once answer as each would alone. A dispatch rule that is
    not random does not look at the key.

    Args:
        rule: A server rule; None for `Rule()`, pure asynchronous SGD.
        n_workers: Workers of every run.
        n_updates: Updates of every run, at least 2.
        key: Typed key; None for `jax.random.key(0)`.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a trace cannot be made, or one of this does not hold.

    Example:
        >>> from asyncjax import traces
        >>> check_rule_repeats(traces.Rule(traces.shuffled(), traces.rennala(2)))
    """
    server = server_of(rule, n_workers, n_updates, key)
    runs = example_clocks(server.n_workers)
    first = {words: trace_of(server, clock, words) for words, clock in runs.items()}
    for words, clock in reversed(runs.items()):
        _same_traces(
            first[words],
            trace_of(server, clock, words),
            f"{server.name} must make the same trace twice with {words}, a rule keeping what it"
            " remembers in the run that `start` opens",
        )
    if not server.rule.dispatch.is_random:
        words = "workers of three speeds"
        rekeyed = server._replace(key=jax.random.fold_in(server.key, 1))
        _same_traces(
            first[words],
            trace_of(rekeyed, runs[words], words),
            f"dispatch '{server.rule.dispatch.name}' must not look at the key, since it says it is"
            " not random",
        )
    shorter = server._replace(n_updates=server.n_updates // 2)
    for words in ("times in halves", "exponential times"):
        short = trace_of(shorter, runs[words], words)
        _check_beginning(server, short, first[words], words)
        _check_open_at_once(server, runs[words], words)


def check_rule_hints(
    rule: Rule | None = None,
    *,
    n_workers: int = 4,
    n_updates: int = 40,
    key: jax.Array | None = None,
) -> None:
    """Checks what a rule says of itself, which lets traces be made without asking it.

    `answers_deliverer` and `period` give the trace that asking gives, arrival by arrival;
    `is_stuck_without` is true of all workers; `serves` gives at every step what `reuse` gives.

    Args:
        rule: A server rule; None for `Rule()`, pure asynchronous SGD.
        n_workers: Workers of every run.
        n_updates: Updates of every run, at least 2.
        key: Typed key; None for `jax.random.key(0)`.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a trace cannot be made, or what a rule says is not what it does.

    Example:
        >>> from asyncjax import traces
        >>> check_rule_hints(traces.Rule(traces.shuffled_once(), traces.wait_for(2)))
    """
    server = server_of(rule, n_workers, n_updates, key)
    calls: dict[str, list[Call]] = {}
    collect, n = server.rule.collect, server.n_workers
    for words, clock in example_clocks(n).items():
        quick = trace_of(server, clock, words)
        asked = trace_of(heard(server, calls), clock, words)
        _same_traces(
            asked,
            quick,
            f"{server.name} must make with {words} what it answers one arrival at a time (period,"
            " answers_deliverer)",
        )
        _check_serves(server, asked, calls["collect"], words)
    _check_dispatch(server)
    with fails_as(f"start of the rule '{collect.name}' must open a run"):
        needs = collect.start(n).is_stuck_without
    if needs is not None:
        with fails_as(f"is_stuck_without of the rule '{collect.name}' must take a set of workers"):
            is_stuck = needs(set(range(n)))
        if is_stuck is not True:
            raise AssertionError(
                f"is_stuck_without of the rule '{collect.name}' must be True for all {n} workers,"
                f" got {shown(is_stuck)}"
            )


def _same_traces(expected: EventTrace, got: EventTrace, asked: str) -> None:
    """Refuses a trace that differs, with the first place of the first column that does."""
    both, count = (expected, got), min(expected.n_arrivals, got.n_arrivals)
    columns = {
        name: [getattr(trace, name)[:count] for trace in both]
        for name in (*_COLUMNS, "used", "weight")
    }
    places = {name: first_difference(*pair) for name, pair in columns.items()}
    found = [(place[0], name) for name, place in places.items() if place is not None]
    if found:  # the first arrival that differs says more than the first column
        at, name = min(found, key=lambda one: one[0])
        one, other = (column[at] for column in columns[name])
        raise AssertionError(f"{asked}, got {name} of arrival {at} {other} and not {one}")
    if expected.n_arrivals != got.n_arrivals:
        raise AssertionError(f"{asked}, got {got.n_arrivals} arrivals, not {expected.n_arrivals}")
    leaves = [jax.tree.leaves(trace) for trace in (expected, got)]
    if len(leaves[0]) != len(leaves[1]) or not all(map(_equal, *leaves)):
        raise AssertionError(
            f"{asked}, got other open_jobs, cancelled, reuse or step_time for the same arrivals"
        )


def _equal(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and first_difference(one, other) is None


def _check_beginning(server: Server, short: EventTrace, long: EventTrace, words: str) -> None:
    """Refuses a trace whose beginning depends on how long it is."""
    asked = (
        f"{server.name} must decide without what comes later: a trace of {short.n_updates} updates"
        f" with {words} must be the beginning of one of {long.n_updates}"
    )
    count, beginning = short.n_arrivals, {}
    for name in (*_COLUMNS, *(() if short.reuse else ("used", "weight"))):
        beginning[name] = getattr(long, name)[:count]
        if len(beginning[name]) < count:
            raise AssertionError(f"{asked}, got fewer arrivals in the longer one")
    shared = short if not short.reuse else short._replace(used=long.used, weight=long.weight)
    shared = shared._replace(used=shared.used[:count], weight=shared.weight[:count])
    cut = shared._replace(**beginning)
    _same_traces(cut, shared, asked)
    place = first_difference(
        _table(long, short.n_updates, count), _table(short, short.n_updates, count)
    )
    if short.reuse is not None and place is not None:
        raise AssertionError(
            f"{asked}, got another weight of arrival {place[1]} in step {place[0]}"
        )


def _table(trace: EventTrace, n_steps: int, count: int) -> np.ndarray:
    """Weight of every arrival in every step where gradients serve again, float64[steps, count]."""
    table = np.zeros((n_steps, count))
    if trace.reuse is not None:
        for arrival, first, last, weight in zip(*trace.reuse, strict=True):
            if arrival < count:
                table[first : last + 1, arrival] = weight
    return table


def _check_open_at_once(server: Server, clock: clocks.Clock, words: str) -> None:
    """Refuses runs that share what they remember: two are asked in turn what one was asked."""
    calls: dict[str, list[Call]] = {}
    trace_of(heard(server, calls), clock, words)
    n, (_, start, _) = server.n_workers, calls["start"][0]
    runs = [server.rule.collect.start(n)._replace(is_stuck_without=None) for _ in range(2)]
    answers = [server.rule.dispatch.start(*start) for _ in range(2)]
    of_runs = [{**run._asdict(), **(run.timer._asdict() if run.timer else {})} for run in runs]
    of_answers = [{"answer": one, "observe": getattr(one, "observe", None)} for one in answers]
    for name, functions, log in (
        (f"collection '{server.rule.collect.name}'", of_runs, calls["collect"]),
        (f"dispatch '{server.rule.dispatch.name}'", of_answers, calls["dispatch"]),
    ):
        for number, (called, arguments, alone) in enumerate(log):
            for one in functions:
                with fails_as(f"{name} must answer each of two runs that are open at once"):
                    answer = one[called](*arguments)
                if not np.array_equal(np.asarray(answer), np.asarray(alone)):
                    raise AssertionError(
                        f"{name} must keep what it remembers in the run that `start` opens: of two"
                        f" runs that are open at once, got {shown(answer)} from {called} at call"
                        f" {number}, where a run alone answers {shown(alone)}"
                    )


def _check_serves(server: Server, trace: EventTrace, log: list[Call], words: str) -> None:
    """Refuses a `serves` that lets other gradients enter a step than `reuse`."""
    rule = server.rule.collect
    if rule.serves is None or trace.reuse is None:
        return
    with fails_as(f"serves of the rule '{rule.name}' must open a run"):
        serve = rule.serves(server.n_workers)
    table, step = _table(trace, trace.n_updates, trace.n_arrivals), 0
    received = [one for one in log if one[0] == "receive"]
    for _, (worker, delay), verdict in received:
        with fails_as(f"serves of the rule '{rule.name}' must answer every arrival"):
            entries = serve(worker, delay, verdict)
        if verdict is Verdict.STEP:
            row = np.zeros(trace.n_arrivals)
            for arrival, weight in entries:
                row[arrival] += weight
            if not np.allclose(row, table[step], rtol=1e-5, atol=1e-7):
                at = int(np.argmax(np.abs(row - table[step])))
                raise AssertionError(
                    f"serves of the rule '{rule.name}' must give what reuse gives: in step {step}"
                    f" with {words} got weight {row[at]:g} of arrival {at} and not"
                    f" {table[step, at]:g}"
                )
            step += 1


def _check_dispatch(server: Server) -> None:
    """Refuses an `answers_deliverer` that is not what is answered one by one."""
    rule, n = server.rule.dispatch, server.n_workers
    if not rule.answers_deliverer:
        return
    key = server.key if rule.is_random else None
    with fails_as(f"start of the dispatch rule '{rule.name}' must open a run"):
        handed = [int(rule.start(n, key)([worker])[0]) for worker in range(n)]
    if handed != list(range(n)):
        raise AssertionError(
            f"the dispatch rule '{rule.name}' must hand each deliverer the next job, since it says"
            f" answers_deliverer, got {handed} for {list(range(n))}"
        )


def _check_lead(server: Server, trace: EventTrace, words: str) -> None:
    """Refuses jobs that started though their worker had delivered too many more than the slowest.

    At one instant the deliveries that came after the start are counted too, which makes a lead
    smaller, never larger.
    """
    assert server.rule.gate is not None
    assert trace.start is not None  # made here
    bound, n = server.rule.gate.bound, server.n_workers
    for e, (worker, start) in enumerate(zip(trace.worker, trace.start, strict=True)):
        own = int(np.count_nonzero(trace.worker[:e] == worker))
        there = np.bincount(trace.worker[trace.time <= start], minlength=n)
        lead = min(own, int(there[worker])) - int(there.min())
        if lead > bound:
            raise AssertionError(
                f"a gate of {bound} must hold back who leads by more: with {words} got a lead of"
                f" {lead} of worker {worker}, whose job of arrival {e} started at {start:g}"
            )
