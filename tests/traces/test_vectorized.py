"""Traces made in whole arrays, without an event loop, are those of the loop, to the last bit."""

import sys
import tracemalloc
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks, traces
from asyncjax.traces import random_draws
from asyncjax.traces.random_draws import DurationBlocks
from tests.registries.clocks import REGISTRY
from tests.traces.same import assert_same

STREAMS = sys.modules["asyncjax.traces.arrival_streams"]
RUN = sys.modules["asyncjax.traces.asynchronous"]  # the name in `traces` is the function's
CLOCKS = {
    "random": clocks.exponential(np.sqrt(1.0 + np.arange(7))),
    "ties": clocks.constant([1.0, 1.0, 2.0, 2.0, 3.0, 1.0, 1.0]),
    "one": clocks.exponential(1.0),
    "many": clocks.exponential(np.sqrt(1.0 + np.arange(200))),
}
RULES = {
    "immediately": traces.immediately(),
    "buffered": traces.buffered(3),
    "by staleness": traces.buffered(2, staleness=lambda delay: 1.0 / (1.0 + delay)),
    "rennala": traces.rennala(2),
    "ringmaster": traces.ringmaster(4),
    "quantile": traces.ringmaster_quantile(0.8),
    "malenia": traces.malenia(1),
    "table": traces.table(),
    "ringleader": traces.ringleader(),
}


def both_ways(clock, **arguments):
    """The trace of the event loop and that in whole arrays, or the errors of the two."""
    outcomes = []
    for module, name, value in (
        (RUN, "stream_of", lambda *limits: None),
        (STREAMS, "GATED_FROM", 1),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, value)
            try:
                outcomes.append(traces.asynchronous(clock, **arguments))
            except ValueError as error:
                outcomes.append(str(error))
    return outcomes


LOSSY = {
    **CLOCKS,
    "losing": clocks.with_failures(CLOCKS["random"], 0.05),
    "losing, ties": clocks.with_failures(CLOCKS["ties"], 0.1),
    "losing, many": clocks.with_failures(CLOCKS["many"], 0.3),
    "leaving": clocks.available(
        CLOCKS["ties"], leave=[np.inf, 5.0, np.inf, np.inf, 9.0, 3.0, 30.0]
    ),
}
GATES = (0, 1, 2.5, 1e300, np.inf)
TIMEOUTS = (1.0, 2.0, 1.5, np.inf, [2.5, 1.0, 3.0, np.inf, 3.0, 1.0, 1.5])


def check_limited(clock, rule, read, seed, n_updates, **limits):
    """Gates, timeouts and losses: the same trace, or the same error, with and without a heap."""
    if rule == "ringleader" and read == "start":
        return
    few = rule in ("malenia", "table", "ringleader")
    loop, stream = both_ways(
        LOSSY[clock],
        n_updates=min(n_updates, 5) if few else n_updates,
        collect=RULES[rule],
        read=read,
        key=jax.random.key(seed),
        **limits,
    )
    if isinstance(loop, str):
        assert loop == stream
    else:
        assert_same(loop, stream)
        traces.validate(stream)


@pytest.mark.parametrize(
    ("clock", "rule", "read", "limits"),
    [
        ("ties", "rennala", "assignment", {}),
        ("random", "immediately", "start", {"concurrency": 15}),
        ("random", "ringmaster", "start", {"concurrency": 15}),
        ("ties", "immediately", "start", {"gate": traces.lead_at_most(1)}),
        ("many", "ringmaster", "assignment", {"gate": traces.lead_at_most(0)}),
        ("ties", "buffered", "start", {"timeout": TIMEOUTS[-1]}),
        ("random", "ringleader", "assignment", {"timeout": 2.0}),
        ("losing, ties", "rennala", "assignment", {}),
        ("losing, many", "quantile", "assignment", {"timeout": 20.0}),
    ],
)
def test_what_limits_jobs_needs_no_heap(clock, rule, read, limits, monkeypatch):
    check_limited(clock, rule, read, 0, 60, **limits)
    monkeypatch.setattr(STREAMS, "GATED_FROM", 1)
    monkeypatch.delattr(RUN, "EventLoop")
    traces.asynchronous(
        LOSSY[clock],
        n_updates=5,
        collect=RULES[rule],
        read=read,
        key=jax.random.key(0),
        **limits,
    )


@pytest.mark.parametrize("timeout", [1.0, 2.0])
def test_workers_who_are_never_back_in_time_are_left_to_the_event_loop(timeout):
    """All of the rule's workers are late for ever: the same error; only some: the same trace."""
    clock = clocks.constant([1.5, 3.0, 3.0])
    for rule in (traces.immediately(), traces.malenia(1)):
        loop, stream = both_ways(clock, n_updates=6, collect=rule, timeout=[timeout, 2.0, 2.0])
        if isinstance(loop, str):
            assert loop == stream
        else:
            assert_same(loop, stream)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    clock=st.sampled_from(sorted(LOSSY)),
    rule=st.sampled_from(sorted(RULES)),
    read=st.sampled_from(["assignment", "start"]),
    gate=st.sampled_from([None, *GATES]),
    timeout=st.sampled_from([None, *TIMEOUTS]),
    concurrency=st.sampled_from([None, 3, 7, 15]),
    n_updates=st.integers(1, 60),
    seed=st.integers(0, 9),
)
def test_all_limits_are_those_of_the_event_loop(
    clock, rule, read, gate, timeout, concurrency, n_updates, seed
):
    if isinstance(timeout, list) and LOSSY[clock].n_workers != len(timeout):
        timeout = 3.0
    check_limited(
        clock,
        rule,
        read,
        seed,
        n_updates,
        gate=None if gate is None else traces.lead_at_most(gate),
        timeout=timeout,
        concurrency=concurrency,
    )


@pytest.mark.slow
@pytest.mark.parametrize("law", sorted(REGISTRY))
def test_durations_do_not_depend_on_the_size_of_a_block(law, monkeypatch):
    clock, key = REGISTRY[law](), jax.random.key(5)
    large = DurationBlocks(clock, key, 1.5)
    monkeypatch.setattr(random_draws, "_MANY_WORKERS", 1)
    small = DurationBlocks(clock, key, 1.5)
    assert (large.size, small.size) == (64, 8)
    workers = np.arange(clock.n_workers)
    whole = large.draw(workers, np.full(len(workers), 1))
    parts = small.draw(np.repeat(workers, 8), np.tile(np.arange(8, 16), len(workers)))
    np.testing.assert_array_equal(whole.ravel(), parts.ravel())


@pytest.mark.slow
@pytest.mark.parametrize(
    "rules",
    [
        {"collect": traces.buffered(3)},
        {"collect": traces.ringmaster(100_000)},
        {"gate": traces.lead_at_most(4), "read": "start"},
        {"timeout": 600.0},
    ],
)
def test_memory_of_a_hundred_thousand_workers(rules):
    """A trace takes 38 bytes an arrival; its making at most 8 times that, and 400 a worker."""
    n, n_updates = 100_000, 200_000
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(n)))
    make: dict[str, Any] = {**rules, "key": jax.random.key(0)}
    traces.asynchronous(clock, n_updates=1, **make)  # compiles
    tracemalloc.start()
    trace = traces.asynchronous(clock, n_updates=n_updates, **make)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert trace.n_updates == n_updates
    assert peak < 8 * 38 * len(trace.time) + 400 * n
    traces.validate(trace)
