"""Slots of versions: as few as can be."""

import numpy as np
from hypothesis import given, settings, strategies as st

from asyncjax.simulation.plan import allocate
from tests.oracles import slots as plain


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 20), st.integers(0, 9)), min_size=1, max_size=50))
def test_slots_are_those_of_the_plain_way(intervals):
    intervals = sorted(intervals)
    first = np.array([begin for begin, _ in intervals])
    last = first + np.array([length for _, length in intervals])
    expected, count = plain.allocate(first, last)
    found, n_slots = allocate(first, last)
    np.testing.assert_array_equal(found, expected)
    assert n_slots == count
