"""The small runs on which server rules are checked: workers with ties and without, lost jobs.

Every run is of a few workers and updates, on the host; no model is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax import clocks
from asyncjax.checks import instance, whole
from asyncjax.clocks import Clock
from asyncjax.testing.failures import fails_as, given_key
from asyncjax.traces import EventTrace, Rule
from asyncjax.traces.collection import Collector
from asyncjax.traces.dispatch import Answer

Call = tuple[str, tuple[Any, ...], Any]  # name of a function, its arguments, what it answered


class Server(NamedTuple):
    """What every run of a check is of.

    Attributes:
        rule: What is checked.
        n_workers: Workers of every run.
        n_updates: Updates of every run.
        key: Typed key of every run.
    """

    rule: Rule
    n_workers: int
    n_updates: int
    key: jax.Array

    @property
    def name(self) -> str:
        """The rule in words."""
        rule = self.rule
        gate = "" if rule.gate is None else f", a lead of at most {rule.gate.bound}"
        return f"dispatch '{rule.dispatch.name}', collection '{rule.collect.name}'{gate}"


def server_of(rule: Rule | None, n_workers: int, n_updates: int, key: jax.Array | None) -> Server:
    """Reads the arguments that all checks of rules share."""
    n_workers, n_updates = whole("n_workers", n_workers), whole("n_updates", n_updates, 2)
    if rule is None:
        rule = Rule()
    instance("rule", rule, Rule, "a traces.Rule")
    rule.check_workers(n_workers)
    return Server(rule, n_workers, n_updates, given_key("key", key))


def example_clocks(n_workers: int) -> dict[str, Clock]:
    """Clocks by name in words: many ties, some ties, and none.

    Example:
        >>> example_clocks(4)["workers of three speeds"].mean.tolist()
        [1.0, 2.0, 3.0, 1.0]
    """
    worker = np.arange(n_workers)
    halves = 1.0 + (7 * worker[:, None] + 5 * np.arange(8)) % 6 / 2
    return {
        "equal workers": clocks.constant(np.ones(n_workers)),
        "workers of three speeds": clocks.constant(1.0 + worker % 3),
        "times in halves": clocks.recorded(halves),
        "exponential times": clocks.exponential(1.0 + worker % 3),
    }


def trace_of(server: Server, clock: Clock, words: str) -> EventTrace:
    """A trace of the rule; an AssertionError if none comes."""
    with fails_as(f"{server.name} must make {server.n_updates} updates with {words}"):
        return server.rule.trace(clock, n_updates=server.n_updates, key=server.key)


def heard(server: Server, calls: dict[str, list[Call]]) -> Server:
    """The same rules, asked one arrival at a time; what they are asked and answer is listed.

    `calls` gets the entries "dispatch" and "collect", the calls of the run that is opened last, and
    "start", how its dispatch rule was opened.
    """

    def start_collector(n_workers: int) -> Collector:
        run, log = server.rule.collect.start(n_workers), calls.setdefault("collect", [])
        log.clear()
        if not isinstance(run, Collector):
            return run  # refused where it is used
        timer = run.timer
        if timer is not None:
            timer = timer._make(map(_listed, timer._fields, timer, [log] * len(timer)))
        given_up = run.given_up and _listed("given_up", run.given_up, log)
        return Collector(_listed("receive", run.receive, log), given_up, None, timer)

    def start_answer(n_workers: int, key: jax.Array | None) -> Answer:
        answer, log = server.rule.dispatch.start(n_workers, key), calls.setdefault("dispatch", [])
        log.clear()
        calls["start"] = [("start", (n_workers, key), None)]
        if not callable(answer):
            return answer  # refused where it is used
        listed = _listed("answer", answer, log)
        if (observe := getattr(answer, "observe", None)) is not None:
            listed.observe = _listed("observe", observe, log)  # pyright: ignore[reportFunctionMemberAccess]
        return listed

    collect, dispatch = server.rule.collect, server.rule.dispatch
    for mine, theirs in ((start_collector, collect), (start_answer, dispatch)):
        mine.__module__ = str(getattr(theirs.start, "__module__", ""))  # so looked at like theirs
    dispatch = replace(dispatch, start=start_answer, answers_deliverer=False)
    period = collect.period if collect.holds_back else None
    collect = replace(collect, start=start_collector, period=period)
    return server._replace(rule=replace(server.rule, dispatch=dispatch, collect=collect))


def _listed(name: str, function: Callable[..., Any], log: list[Call]) -> Callable[..., Any]:
    """The same function, whose calls are listed."""

    def call(*arguments: Any) -> Any:
        kept = tuple(list(one) if isinstance(one, list) else one for one in arguments)
        answer = function(*arguments)
        log.append((name, kept, list(answer) if isinstance(answer, list) else answer))
        return answer

    return call
