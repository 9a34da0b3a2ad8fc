"""Traces up to a time are those of the updates made by then; traces that last to a horizon."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from tests.traces.same import assert_same

RANDOM = clocks.exponential([0.5, 1.0, 3.0])
KEY = jax.random.key(1)
RULES = {
    "pure": {},
    "waiting": {"collect": traces.wait_for(2)},
    "stopped": {"collect": traces.rennala(2, cancel=True)},
    "a table": {"collect": traces.table()},
    "shuffled": {"dispatch": traces.shuffled()},
    "gated": {"gate": traces.lead_at_most(2)},
    "given up": {"timeout": 4.0},
    "a server that takes time": {"service": traces.Service(0.1, 0.2)},
    "by the clock": {"collect": traces.grace_period(1.5)},
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_trace_up_to_a_time_is_a_prefix(rule):
    long = traces.asynchronous(RANDOM, n_updates=400, key=KEY, **rule)
    for until in (0.9 * long.update_time[-1], float(long.update_time[30]), 7.3):
        trace = traces.asynchronous(RANDOM, until=until, key=KEY, **rule)
        count = int((long.update_time <= until).sum())
        assert trace.n_updates == count
        assert_same(trace, traces.asynchronous(RANDOM, n_updates=count, key=KEY, **rule))
        traces.validate(trace)


def test_rounds_up_to_a_time():
    trace = traces.synchronous(RANDOM, k=2, until=40.0, key=KEY)
    longer = traces.synchronous(RANDOM, k=2, n_updates=trace.n_updates + 1, key=KEY)
    assert trace.update_time[-1] <= 40.0 < longer.update_time[-1]
    assert_same(trace, traces.synchronous(RANDOM, k=2, n_updates=trace.n_updates, key=KEY))


def test_all_updates_of_the_last_instant_are_in():
    trace = traces.asynchronous(clocks.constant([1.0, 2.0, 2.0]), until=4.0)
    assert trace.update_time.tolist() == [1, 2, 2, 2, 3, 4, 4, 4]
    assert traces.synchronous(clocks.constant(2.0), k=1, until=4.0).n_updates == 2


def test_seeds_last_equally_long_with_as_many_updates_as_they_make():
    keys = jax.random.split(jax.random.key(2), 4)
    runs = [traces.asynchronous(RANDOM, until=200.0, key=key) for key in keys]
    assert len({run.n_updates for run in runs}) > 1
    assert all(195.0 < run.end <= 200.0 for run in runs)


def test_a_run_that_stalls_later_is_told_up_to_the_time():
    clock = clocks.available(clocks.constant([1.0, 2.0]), leave=[6.5, 4.5])
    assert traces.asynchronous(clock, until=5.5).update_time.tolist() == [1, 2, 2, 3, 4, 4, 5]
    with pytest.raises(traces.StalledError, match="cannot go on after arrival 8 at time 6"):
        traces.asynchronous(clock, until=7.0)


SLOWER = clocks.exponential([1.0, 2.0, 5.0])
SEEDS = jax.random.split(jax.random.key(0), 3)


def maker(clock=SLOWER, counts=None):
    def make(n_updates):
        if counts is not None:
            counts.append(n_updates)
        return [traces.asynchronous(clock, n_updates=n_updates, key=key) for key in SEEDS]

    return make


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
