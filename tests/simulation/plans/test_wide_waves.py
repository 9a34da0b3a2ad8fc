"""Plans of many workers: whole waves packed at once, slots without a heap of what is taken."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncjax import clocks, traces
from asyncjax.simulation.plans import slots, waves
from tests.oracles import slots as plain

RULES = {
    "immediately": (traces.immediately(), None),
    "buffered": (traces.buffered(5), None),
    "shuffled": (traces.immediately(), traces.shuffled()),
    "ringmaster": (traces.ringmaster(30), None),
    "table": (traces.table(), None),
    "ringleader": (traces.ringleader(), None),
}


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_whole_waves_are_packed_as_gradient_by_gradient(rule, equal):
    n, (collect, dispatch) = 40, RULES[rule]
    clock = clocks.constant(np.ones(n) if equal else np.sqrt(1.0 + np.arange(n)))
    trace = traces.asynchronous(
        clock, n_updates=400, collect=collect, dispatch=dispatch, key=jax.random.key(1)
    )
    gradients = waves.used_gradients(trace)
    for width, lookahead in ((1, 1), (3, 5), (20, 60), (300, 400)):
        by_heap = waves._packed_by_heap(gradients, width, lookahead)
        by_wave = waves._packed_by_wave(gradients, width, lookahead)
        for one, other in zip(by_heap, by_wave, strict=True):
            np.testing.assert_array_equal(one, other)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 20), st.integers(0, 9)), min_size=1, max_size=50))
def test_slots_are_those_of_the_plain_way(intervals):
    intervals = sorted(intervals)
    first = np.array([begin for begin, _ in intervals])
    last = first + np.array([length for _, length in intervals])
    expected, count = plain.allocate(first, last)
    found, n_slots = slots.allocate(first, last)
    np.testing.assert_array_equal(found, expected)
    assert n_slots == count
