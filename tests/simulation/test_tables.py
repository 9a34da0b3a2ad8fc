"""Tables and Ringleader equal their definitions: arrivals, ages and models at once."""

from functools import partial

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks, simulation, steps, traces
from tests.oracles import tables
from tests.simulation.shared import N, assert_close, both, quadratic, trace_of

RULES = {
    "table": (traces.table, tables.incremental, {}),
    "ringleader": (traces.ringleader, tables.ringleader, {}),
    "ringleader, refreshed": (
        partial(traces.ringleader, refresh=True),
        tables.ringleader,
        {"refresh": True},
    ),
} | {
    f"table, at most {age} old": (
        partial(traces.table, max_age=age),
        tables.incremental,
        {"max_age": age},
    )
    for age in (0, 1, 4, 8, 1000)
}


def compare(rule, times, n_updates, waves=True):
    n = len(times)
    collect, definition, extra = RULES[rule]
    problem, gradient = quadratic()
    models, arrivals = definition(
        lambda i, j: times[i, j % times.shape[1]],
        n,
        n_updates,
        lambda x, i, j: gradient(x, i, j),
        np.ones(3),
        0.05,
        **extra,
    )
    trace = traces.asynchronous(clocks.recorded(times), n_updates=n_updates, collect=collect())
    traces.validate(trace)
    names = ("time", "worker", "job", "read_version", "steps")
    for name, column in zip(names, zip(*arrivals, strict=True), strict=False):
        np.testing.assert_array_equal(getattr(trace, name), column, err_msg=name)
    plan = simulation.plan(trace)
    assert plan.update_delay.tolist() == [row[-1] for row in arrivals if row[-2]]
    return trace, models, problem


def weights_by_step(trace):
    """How much each worker counts in each step, [T, n]."""
    weights = np.zeros((trace.n_updates, trace.n_workers))
    for arrival, first, last, weight in zip(*trace.reuse, strict=True):
        weights[first : last + 1, trace.worker[arrival]] += weight
    return weights


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    rule=st.sampled_from(sorted(RULES)),
    n=st.integers(1, N),
    n_updates=st.integers(1, 25),
    ties=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_arrivals_and_ages_are_those_of_the_definition(rule, n, n_updates, ties, seed):
    times = np.random.default_rng(seed).exponential(size=(n, 40)) + 0.01
    times = np.ceil(times / 0.5) if ties else times
    trace, _, _ = compare(rule, times, n_updates)
    weights = weights_by_step(trace)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-5)
    oldest = max(0, 2 * n - 2) if "ringleader" in rule else RULES[rule][2].get("max_age", np.inf)
    assert simulation.plan(trace).update_delay.max() <= oldest


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", [0, 1])
def test_models_are_those_of_the_definition(rule, seed, float64):
    times = np.random.default_rng(seed).gamma(0.5, size=(N, 50)) + 0.05
    trace, models, problem = compare(rule, times, 60)
    for run in both(problem, trace, optax.sgd(0.05), record_every=60):
        assert_close(run.params, models[-1])


@pytest.mark.slow
def test_a_table_of_the_trace_is_the_table_of_the_optimizer(float64):
    """PIAG by the trace, and by `steps.average_workers` behind a plain trace.

    The same once all have been heard.
    """
    problem, _ = quadratic()
    trace = trace_of("table", n_updates=40)
    run = simulation.replay(problem, trace, optax.sgd(0.05))
    plain = trace_of("pure", n_updates=len(trace.time))
    heard = int(np.argmax(trace.steps))  # arrivals before the first step
    hold = optax.chain(
        steps.average_workers(N),
        optax.inject_hyperparams(optax.sgd)(
            learning_rate=lambda count: 0.05 * (count >= heard).astype(float)
        ),
    )
    other = simulation.replay(problem, plain, hold)
    assert_close(run.params, other.params)


def test_a_table_with_a_large_age_is_the_table():
    plain, aged = (
        traces.asynchronous(clocks.constant([1.0, 2.0, 7.0]), n_updates=50, collect=rule)
        for rule in (traces.table(), traces.table(max_age=50))
    )
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(aged), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("max_age", "members"), [(3, 1), (4, 2), (5, 3), (6, 4), (9, 4)])
def test_of_equal_workers_the_latest_are_remembered(max_age, members):
    """Four in turn deliver gradients 3 updates old, and 4, 5, 6 old are those of the others."""
    rule = traces.table(max_age=max_age)
    trace = traces.asynchronous(clocks.constant([1.0] * 4), n_updates=30, collect=rule)
    weights = weights_by_step(trace)
    in_turn = [[(t - back) % 4 for back in range(1, 1 + members)] for t in range(30)]
    for t in range(8, 30):
        np.testing.assert_array_equal(np.flatnonzero(weights[t]), np.sort(in_turn[t]))
        np.testing.assert_allclose(weights[t, in_turn[t]], 1 / members, rtol=1e-6)


def test_of_equal_workers_too_slow_for_the_age_few_ever_step():
    """Who steps last at an instant is the first to be given the newest model."""
    clock = clocks.constant([1.0] * 4)
    trace = traces.asynchronous(clock, n_updates=9, collect=traces.table(max_age=0))
    assert trace.worker[trace.steps].tolist() == [3] * 9
    trace = traces.asynchronous(clock, n_updates=9, collect=traces.table(max_age=1))
    assert trace.worker[trace.steps].tolist() == [3] + [0, 3] * 4
    everyone = np.count_nonzero(weights_by_step(trace), axis=1)
    assert everyone.tolist() == [4, 4] + [1] * 7


def test_at_age_zero_the_table_is_fresh_one_after_its_first_step():
    rule = traces.table(max_age=0)
    trace = traces.asynchronous(clocks.constant([1.0, 2.5, 4.0]), n_updates=20, collect=rule)
    later = trace.version > 0
    assert 0 < trace.used[later].sum() < later.sum()
    np.testing.assert_array_equal(trace.used[later], trace.delay[later] == 0)
    np.testing.assert_array_equal(trace.steps[later], trace.used[later])
    assert (np.count_nonzero(weights_by_step(trace), axis=1) == [3] + [1] * 19).all()


def test_a_worker_that_leaves_is_forgotten():
    clock = clocks.available(clocks.constant([1.0, 2.0, 3.0]), leave=[np.inf, 5.0, np.inf])
    trace = traces.asynchronous(clock, n_updates=40, collect=traces.table(max_age=9))
    weights = weights_by_step(trace)
    read = trace.read_version[trace.worker == 1].max()  # at 2, for the job that ends at 4
    assert np.flatnonzero(weights[:, 1]).max() == read + 9
    np.testing.assert_allclose(weights[read + 10 :, [0, 2]], 0.5, rtol=1e-6)


def test_one_worker_makes_ringleader_and_the_table_plain_descent():
    pure = traces.asynchronous(clocks.constant([2.0]), n_updates=9)
    for collect in (rule() for rule, _, _ in RULES.values()):
        trace = traces.asynchronous(clocks.constant([2.0]), n_updates=9, collect=collect)
        np.testing.assert_array_equal(trace.time, pure.time)
        assert trace.steps.all()
        assert not trace.delay.any()


def test_a_shorter_ringleader_trace_is_the_beginning_of_a_longer_one():
    short, long = (trace_of("ringleader", n_updates=t) for t in (31, 90))
    count = len(short.time)
    for name in ("time", "worker", "job", "read_version", "version", "steps"):
        np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:count])
