"""What a collection rule is told and may say: verdicts, weights, reuse; rules of one's own."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.traces.collection import Collection, Collector, Verdict
from asyncjax.traces.event_trace import Reuse
from tests.traces.same import assert_same

KEY = jax.random.key(2)
CLOCK = clocks.exponential([1.0, 2.0, 3.0, 8.0])


def by_age(delay):
    return (1.0 + delay) ** -0.5


@pytest.mark.parametrize("b", [1, 3, 6])
@pytest.mark.parametrize("timeout", [None, 1e9])  # merged, and through the event loop
def test_buffered_weighs_by_the_delay_and_divides_by_b(b, timeout):
    rule = traces.buffered(b, staleness=by_age)
    trace = traces.asynchronous(CLOCK, n_updates=60, collect=rule, timeout=timeout, key=KEY)
    plain = traces.asynchronous(CLOCK, n_updates=60, collect=traces.buffered(b), key=KEY)
    expected = [1.0 / (b * np.sqrt(1.0 + d)) for d in trace.delay]
    np.testing.assert_allclose(trace.weight, expected, rtol=1e-6)
    assert_same(trace, plain, ("time", "worker", "job", "read_version", "version", "steps"))
    even = traces.buffered(b, staleness=lambda delay: np.ones(len(delay)))
    even = traces.asynchronous(CLOCK, n_updates=60, collect=even, key=KEY)
    np.testing.assert_array_equal(even.weight, plain.weight)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"dispatch": traces.shuffled()},
        {"collect": traces.rennala(2, cancel=True)},
        {"collect": traces.ringmaster(2)},
        {"collect": traces.ringleader()},
    ],
)
def test_a_rule_is_told_who_when_and_how_stale(arguments):
    rule, told = arguments.get("collect", traces.immediately()), []

    def watching(tell):
        return lambda arrivals: (told.append(arrivals), tell(arrivals))[1]

    name = "weigh" if rule.reuse is None else "reuse"
    watched = replace(rule, **{name: watching(getattr(rule, name))})
    arguments = {**arguments, "collect": watched}
    trace = traces.asynchronous(CLOCK, n_updates=40, key=KEY, **arguments)
    (arrivals,) = told
    assert arrivals.n_workers == 4
    assert_same(arrivals, trace, ("worker", "delay", "time", "steps", "version"))
    if rule.reuse is None:
        np.testing.assert_array_equal(arrivals.used, trace.used)


def young_rows(limit):
    """The mean of the workers' last gradients, of those no older than `limit` at the step."""

    def start(n_workers):
        return Collector(lambda worker, delay: Verdict.STEP if delay <= limit else Verdict.DROP)

    def reuse(arrivals):
        version, read = arrivals.version, arrivals.version - arrivals.delay
        table, rows = {}, []
        for place, steps in enumerate(arrivals.steps):
            if not steps:
                continue
            table[arrivals.worker[place]] = place
            now = version[place]
            young = sorted(e for e in table.values() if now - read[e] <= limit)
            rows += [(e, now, now, 1.0 / len(young)) for e in young]
        columns = zip(*sorted(rows), strict=True)
        dtypes = (np.int32, np.int32, np.int32, np.float32)
        return Reuse(*(np.array(*pair) for pair in zip(columns, dtypes, strict=True)))

    return Collection(f"rows of age at most {limit}", start, reuse=reuse)


def test_a_table_may_forget_old_rows():
    trace = traces.asynchronous(CLOCK, n_updates=80, collect=young_rows(5), key=KEY)
    traces.validate(trace)
    read = trace.read_version[trace.reuse.arrival]
    assert (trace.reuse.last - read).max() == 5
    assert (trace.delay > 5).any()
    np.testing.assert_array_equal(trace.used, trace.delay <= 5)


def test_every_step_needs_a_newly_arrived_gradient():
    rule = young_rows(5)
    always = Collector(lambda worker, delay: Verdict.STEP)
    careless = replace(rule, name="careless", start=lambda n: always)
    with pytest.raises(ValueError, match="newly arrived gradient"):
        traces.asynchronous(CLOCK, n_updates=80, collect=careless, key=KEY)


EVEN = clocks.constant([1.0, 2.0, 3.0])


def test_good_rules_of_ones_own_make_the_same_trace():
    def start(n_workers):
        return Collector(lambda worker, delay: Verdict.STEP)

    rule = traces.Collection("every", start, lambda arrivals: np.ones(len(arrivals.time)))
    asks = traces.Dispatch("back", lambda n, key: lambda deliverers: [*deliverers])
    mine = traces.asynchronous(EVEN, n_updates=50, collect=rule, dispatch=asks)
    assert_same(mine, traces.asynchronous(EVEN, n_updates=50))


@pytest.mark.parametrize("braces", ["{", "{e}", "a {b} c"])
def test_a_name_may_have_braces(braces):
    rule = traces.Collection(braces, traces.ringmaster(2).start, lambda a: np.ones(len(a.time)))
    with pytest.raises(ValueError, match="must give 0 to gradients that are not used") as caught:
        traces.asynchronous(EVEN, n_updates=9, collect=rule)
    assert f"'{braces}'" in str(caught.value)
