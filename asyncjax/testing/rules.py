"""What a good server rule does: its traces could have happened, happen again, and keep its word.

A rule decides from who delivers, when, and how stale; what it remembers belongs to one run, which
its `start` opens. It knows nothing of what comes later, and what it says of itself (`period`,
`answers_deliverer`, ...) is what it does. What passes can make traces, short and long, and stand in
front of real workers.

Every run of a check is of a few workers and updates, on the host; no model is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import chex
import jax
import numpy as np

from asyncjax import clocks
from asyncjax.checks import shown, whole
from asyncjax.clocks import Clock
from asyncjax.testing.failures import fails_as, first_difference, given_key
from asyncjax.traces import EventTrace, Rule, validate
from asyncjax.traces.collection import Collector, Verdict
from asyncjax.traces.dispatch import Answer

_COLUMNS = ("time", "worker", "job", "read_version", "version", "steps", "start")
_WEIGHTS = ("used", "weight")

Call = tuple[str, tuple[Any, ...], Any]  # name of a function, its arguments, what it answered


class Server(NamedTuple):
    """What every run of a check is of."""

    rule: Rule
    n_workers: int  # of every run
    n_updates: int  # of every run
    key: jax.Array  # typed, of every run

    @property
    def name(self) -> str:
        """The rule in words."""
        rule = self.rule
        gate = "" if rule.gate is None else f", a lead of at most {rule.gate.bound}"
        return f"dispatch '{rule.dispatch.name}', collection '{rule.collect.name}'{gate}"

    def trace(self, clock: Clock, words: str) -> EventTrace:
        """A trace of the rule; an AssertionError if none comes."""
        with fails_as(f"{self.name} must make {self.n_updates} updates with {words}"):
            return self.rule.trace(clock, n_updates=self.n_updates, key=self.key)


def check_rule(
    rule: Rule | None = None,
    *,
    n_workers: int = 4,
    n_updates: int = 40,
    key: jax.Array | None = None,
) -> None:
    """Checks a server rule, or several together, on small runs with and without ties.

    - its traces could have happened and go on, on workers that all deliver at once, that often do,
      and that never do; and, without a gate, where jobs are lost and given up after a timeout;
    - a trace belongs to its clock and key: it is the same twice with others between, its beginning
      is that of a shorter one, weights too, and two runs that are open at once answer as each would
      alone; a dispatch rule that is not random does not look at the key;
    - what a rule says of itself is what it does: `answers_deliverer` and `period` give the trace
      that asking gives, arrival by arrival; `is_stuck_without` is true of all workers; `serves`
      gives at every step what `reuse` gives.

    Args:
        rule: A server rule; None for `Rule()`, pure asynchronous SGD.
        n_workers: Workers of every run.
        n_updates: Updates of every run, at least 2.
        key: Typed key; None for `jax.random.key(0)`.

    Example:
        A rule that remembers from one trace to the next, since its counter is not made in `start`:

        >>> import numpy as np
        >>> from asyncjax.traces import Collection, Rule
        >>> from asyncjax.traces.collection import Collector, Verdict
        >>> seen = []
        >>> def receive(worker, delay):
        ...     seen.append(worker)
        ...     return Verdict.KEEP if len(seen) % 3 else Verdict.STEP
        >>> rule = Collection("every third", lambda n: Collector(receive), lambda a: 0.3 * a.used)
        >>> check_rule(Rule(collect=rule), n_updates=11)
        Traceback (most recent call last):
        ...
        AssertionError: collection 'every third' must keep what it remembers in the run that \
`start` opens: of two runs that are open at once, got <Verdict.STEP: 2> from receive at call 1, \
where a run alone answers <Verdict.KEEP: 1>
    """
    n_workers, n_updates = whole("n_workers", n_workers), whole("n_updates", n_updates, 2)
    rule = Rule() if rule is None else rule
    rule.check_workers(n_workers)
    server = Server(rule, n_workers, n_updates, given_key("key", key))
    examples = _example_clocks(n_workers)
    first = {words: server.trace(clock, words) for words, clock in examples.items()}
    _check_traces(server, examples, first)
    _check_repeats(server, examples, first)
    for words, clock in examples.items():
        calls: dict[str, list[Call]] = {}
        asked = _heard(server, calls).trace(clock, words)
        _check_open_at_once(server, calls)
        _same_traces(
            asked,
            first[words],
            f"{server.name} must make with {words} what it answers one arrival at a time (period,"
            " answers_deliverer)",
        )
        _check_serves(server, asked, calls["collect"], words)
    _check_promises(server)


def _example_clocks(n_workers: int) -> dict[str, Clock]:
    """Clocks by name in words: many ties, some ties, and none."""
    worker = np.arange(n_workers)
    halves = 1.0 + (7 * worker[:, None] + 5 * np.arange(8)) % 6 / 2
    return {
        "equal workers": clocks.constant(np.ones(n_workers)),
        "workers of three speeds": clocks.constant(1.0 + worker % 3),
        "times in halves": clocks.recorded(halves),
        "exponential times": clocks.exponential(1.0 + worker % 3),
    }


def _check_traces(server: Server, examples: dict[str, Clock], first: dict[str, EventTrace]) -> None:
    """Refuses traces that could not have happened."""
    if server.rule.gate is None:
        words = "jobs that are lost, and given up after a timeout"
        lossy = clocks.with_failures(examples["exponential times"], 0.25)
        hurried = server._replace(rule=replace(server.rule, timeout=6.0))
        first = {**first, words: hurried.trace(lossy, words)}
    for words, trace in first.items():
        with fails_as(f"traces of {server.name} with {words} must be such as could have happened"):
            validate(trace)


def _check_repeats(
    server: Server, examples: dict[str, Clock], first: dict[str, EventTrace]
) -> None:
    """Refuses traces that depend on earlier ones, on a key without need, or on what comes later."""
    for words, clock in reversed(examples.items()):
        _same_traces(
            first[words],
            server.trace(clock, words),
            f"{server.name} must make the same trace twice with {words}, a rule keeping what it"
            " remembers in the run that `start` opens",
        )
    if not server.rule.dispatch.is_random:
        words = "workers of three speeds"
        rekeyed = server._replace(key=jax.random.fold_in(server.key, 1))
        _same_traces(
            first[words],
            rekeyed.trace(examples[words], words),
            f"dispatch '{server.rule.dispatch.name}' must not look at the key, since it says it is"
            " not random",
        )
    shorter = server._replace(n_updates=server.n_updates // 2)
    for words in ("times in halves", "exponential times"):
        short, long = shorter.trace(examples[words], words), first[words]
        asked = (
            f"{server.name} must decide without what comes later: a trace of {short.n_updates}"
            f" updates with {words} must be the beginning of one of {long.n_updates}"
        )
        if long.n_arrivals < short.n_arrivals:
            raise AssertionError(f"{asked}, got fewer arrivals in the longer one")
        _same_arrivals(long, short, _COLUMNS if short.reuse else (*_COLUMNS, *_WEIGHTS), asked)
        tables = [_table(trace, short.n_updates, short.n_arrivals) for trace in (long, short)]
        if short.reuse is not None and (at := first_difference(*tables)) is not None:
            raise AssertionError(f"{asked}, got another weight of arrival {at[1]} in step {at[0]}")


def _same_traces(expected: EventTrace, got: EventTrace, asked: str) -> None:
    """Refuses a trace that differs."""
    _same_arrivals(expected, got, (*_COLUMNS, *_WEIGHTS), asked)
    if expected.n_arrivals != got.n_arrivals:
        raise AssertionError(f"{asked}, got {got.n_arrivals} arrivals, not {expected.n_arrivals}")
    chex.assert_trees_all_equal(got, expected, custom_message=asked)


def _same_arrivals(expected: EventTrace, got: EventTrace, names: Sequence[str], asked: str) -> None:
    """Refuses arrivals that differ as far as both traces go: the first, in its first column."""
    count = min(expected.n_arrivals, got.n_arrivals)
    differences = []
    for name in names:
        pair = [getattr(trace, name)[:count] for trace in (expected, got)]
        if (place := first_difference(*pair)) is not None:
            differences.append((place[0], name, *pair))
    if differences:  # the first arrival that differs says more than the first column
        at, name, one, other = min(differences, key=lambda difference: difference[0])
        raise AssertionError(f"{asked}, got {name} of arrival {at} {other[at]} and not {one[at]}")


def _table(trace: EventTrace, n_steps: int, count: int) -> np.ndarray:
    """Weight of every arrival in every step where gradients serve again, float64[steps, count]."""
    table = np.zeros((n_steps, count))
    if trace.reuse is not None:
        for arrival, first, last, weight in zip(*trace.reuse, strict=True):
            if arrival < count:
                table[first : last + 1, arrival] = weight
    return table


def _heard(server: Server, calls: dict[str, list[Call]]) -> Server:
    """The same rules, asked one arrival at a time; what they are asked and answer is listed.

    `calls` gets the entries "dispatch" and "collect", the calls of the run that is opened last, and
    "start", how its dispatch rule was opened.
    """

    def start_collector(n_workers: int) -> Collector:
        run, log = server.rule.collect.start(n_workers), calls.setdefault("collect", [])
        log.clear()
        timer = run.timer
        if timer is not None:
            timer = timer._make(map(_listed, timer._fields, timer, [log] * len(timer)))
        given_up = run.given_up and _listed("given_up", run.given_up, log)
        return Collector(_listed("receive", run.receive, log), given_up, None, timer)

    def start_answer(n_workers: int, key: jax.Array | None) -> Answer:
        answer, log = server.rule.dispatch.start(n_workers, key), calls.setdefault("dispatch", [])
        log.clear()
        calls["start"] = [("start", (n_workers, key), None)]
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
        inputs = tuple(list(one) if isinstance(one, list) else one for one in arguments)
        answer = function(*arguments)
        log.append((name, inputs, list(answer) if isinstance(answer, list) else answer))
        return answer

    return call


def _check_open_at_once(server: Server, calls: dict[str, list[Call]]) -> None:
    """Refuses runs that share what they remember: two are asked in turn what one was asked."""
    (_, start, _), rule = calls["start"][0], server.rule
    runs = [rule.collect.start(server.n_workers) for _ in range(2)]
    answers = [rule.dispatch.start(*start) for _ in range(2)]
    of_runs = [{**run._asdict(), **(run.timer._asdict() if run.timer else {})} for run in runs]
    of_answers = [{"answer": one, "observe": getattr(one, "observe", None)} for one in answers]
    for name, functions, log in (
        (f"collection '{rule.collect.name}'", of_runs, calls["collect"]),
        (f"dispatch '{rule.dispatch.name}'", of_answers, calls["dispatch"]),
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


def _check_promises(server: Server) -> None:
    """Refuses an `answers_deliverer` or `is_stuck_without` that does not hold of some workers."""
    dispatch, collect, n = server.rule.dispatch, server.rule.collect, server.n_workers
    if dispatch.answers_deliverer:
        key = server.key if dispatch.is_random else None
        handed = [int(dispatch.start(n, key)([worker])[0]) for worker in range(n)]
        if handed != list(range(n)):
            raise AssertionError(
                f"the dispatch rule '{dispatch.name}' must hand each deliverer the next job, since"
                f" it says answers_deliverer, got {handed} for {list(range(n))}"
            )
    if (needs := collect.start(n).is_stuck_without) is not None:
        with fails_as(f"is_stuck_without of the rule '{collect.name}' must take a set of workers"):
            is_stuck = needs(set(range(n)))
        if is_stuck is not True:
            raise AssertionError(
                f"is_stuck_without of the rule '{collect.name}' must be True for all {n} workers,"
                f" got {shown(is_stuck)}"
            )
