"""Laws of one's own: they run as the library's do, their errors are theirs, the least time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law
from tests.registries.clocks import REGISTRY

KEY = jax.random.key(0)


def first(parameters):
    return parameters["a"]


def own(draw, is_random=False):
    return Clock({"a": np.array([1.0, 2.0])}, Law("own", draw, first, first, is_random))


RUNS = {
    "in one piece": lambda clock: traces.asynchronous(clock, n_updates=300),
    "restarts": lambda clock: traces.asynchronous(
        clock, n_updates=300, collect=traces.rennala(2, cancel=True)
    ),
    "event loop": lambda clock: traces.asynchronous(
        clock, n_updates=300, collect=traces.ringmaster(3)
    ),
    "rounds": lambda clock: traces.synchronous(clock, k=1, n_updates=300),
    "powers": lambda clock: traces.asynchronous(
        clocks.with_speed(clock, [1.0, 2.0], [1.0, 0.5]), n_updates=300
    ),
    "behind a link": lambda clock: traces.asynchronous(
        clocks.communicating(clock, upload=clocks.constant(0.5)), n_updates=300
    ),
}


@pytest.mark.parametrize("make", RUNS.values(), ids=RUNS)
def test_a_good_law_runs_like_one_of_the_library(make):
    mine = make(own(lambda row, key, start, count: jnp.broadcast_to(row["a"], (count,))))
    theirs = make(clocks.constant([1.0, 2.0]))
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", REGISTRY)
def test_no_duration_is_shorter_than_the_least(name):
    clock = REGISTRY[name]()
    for load in (0.5, 3.0):
        shortest = np.asarray(clock.durations(KEY, 300, load=load)).min(axis=1)
        least = clock.least(load)
        assert (least >= 0).all()
        assert (least <= shortest * (1 + 1e-5)).all()


def test_least_is_reached_where_it_is_known():
    assert clocks.constant([1.0, 2.0]).least(2.0).tolist() == [2.0, 4.0]
    assert clocks.recorded([[3.0, 1.0], [2.0, 5.0]]).least().tolist() == [1.0, 2.0]
    assert clocks.pareto(3.0, 3.0).least().tolist() == [2.0]
    fast = clocks.with_speed(clocks.constant(2.0), [1.0, 1.0], [1.0, 4.0])
    assert fast.least().tolist() == [0.5]
    assert clocks.exponential(1.0).least().tolist() == [0.0]


def test_durations_that_are_nearly_nothing_are_good():
    # half of the jobs last less than the smallest double
    clock = clocks.gamma(shape=1e-3, mean=[1.0, 2.0])
    trace = traces.asynchronous(clock, n_updates=200, key=KEY)
    assert trace.n_updates == 200
