"""Traces made longer until they last to their horizon."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces

CLOCK = clocks.exponential([1.0, 2.0, 5.0])
KEYS = jax.random.split(jax.random.key(0), 3)


def maker(clock=CLOCK, counts=None):
    def make(n_updates):
        if counts is not None:
            counts.append(n_updates)
        return [traces.asynchronous(clock, n_updates=n_updates, key=key) for key in KEYS]

    return make


@pytest.mark.parametrize("horizon", [0.1, 3.0, 70.0, 900.0])
def test_numbers_of_updates_follow_the_rule(horizon):
    counts = []
    runs = traces.lasting(maker(counts=counts), horizon)
    expected, n_updates = [], 8
    while True:
        expected.append(n_updates)
        shortest = min(float(run.time[-1]) for run in maker()(n_updates))
        if shortest >= horizon:
            break
        n_updates = int(np.ceil(n_updates * min(8.0, 1.03 * horizon / shortest))) + 1
    assert counts == expected
    assert {run.n_updates for run in runs} == {expected[-1]}


def test_a_horizon_a_trace():
    horizons = np.array([20.0, 90.0, 400.0])
    runs = traces.lasting(maker(), horizons)
    ends = np.array([run.time[-1] for run in runs])
    assert (ends >= horizons).all()
    again = traces.lasting(lambda n: [maker()(n)[2]], 400.0)  # the last one decides
    assert again[0].n_updates == runs[0].n_updates


def test_multiples():
    counts = []
    traces.lasting(maker(counts=counts), 500.0, n_updates=10, multiple_of=32)
    assert counts[:2] == [32, 256]  # eightfold is a multiple already
    assert all(count % 32 == 0 for count in counts)


def test_many_equal_workers_deliver_at_one_instant():
    clock, counts = clocks.constant(np.ones(700)), []
    runs = traces.lasting(maker(clock, counts), 30.0)
    assert counts[:4] == [8, 65, 521, 4169]  # the first three end at time 1
    assert runs[0].time[-1] >= 30.0
