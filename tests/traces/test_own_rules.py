"""Rules of one's own: the same trace as the library's, and a name with braces."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.traces.collection import Collector, Verdict

CLOCK = clocks.constant([1.0, 2.0, 3.0])


def test_good_rules_of_ones_own_make_the_same_trace():
    def start(n_workers):
        return Collector(lambda worker, delay: Verdict.STEP)

    rule = traces.Collection("every", start, lambda arrivals: np.ones(len(arrivals.time)))
    asks = traces.Dispatch("back", lambda n, key: lambda deliverers: [*deliverers])
    mine = traces.asynchronous(CLOCK, n_updates=50, collect=rule, dispatch=asks)
    theirs = traces.asynchronous(CLOCK, n_updates=50)
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("braces", ["{", "{e}", "a {b} c"])
def test_a_name_may_have_braces(braces):
    rule = traces.Collection(braces, traces.ringmaster(2).start, lambda a: np.ones(len(a.time)))
    with pytest.raises(ValueError, match="must give 0 to gradients that are not used") as caught:
        traces.asynchronous(CLOCK, n_updates=9, collect=rule)
    assert f"'{braces}'" in str(caught.value)
