"""Statements about the asynchronous family, each checked on its own."""

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks, problems, simulation, traces
from tests.oracles.problems import quadratic_data, quadratic_gradient


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 8),
    concurrency=st.one_of(st.none(), st.integers(1, 12)),
    rule=st.sampled_from(
        [traces.to_deliverer, traces.uniformly, traces.shuffled, traces.shuffled_once]
    ),
    seed=st.integers(0, 10**6),
)
def test_delays_and_open_ages_sum_to_updates_times_concurrency_less_one(n, concurrency, rule, seed):
    times = np.random.default_rng(seed).gamma(0.5, size=(n, 64)) + 1e-3
    trace = traces.asynchronous(
        clocks.recorded(times),
        n_updates=70,
        dispatch=rule(),
        concurrency=concurrency,
        key=jax.random.key(seed),
    )
    summary = traces.summarize(trace)
    open_jobs = n if concurrency is None else concurrency
    assert summary.concurrency == open_jobs
    assert trace.delay.sum() + summary.open_ages.sum() == 70 * (open_jobs - 1)
    assert np.all(trace.read_version <= trace.version)


@pytest.mark.parametrize("rule", [traces.shuffled, traces.uniformly, traces.shuffled_once])
def test_shuffled_dispatch_asks_every_worker_once_in_n_jobs(rule):
    n = 7
    trace = traces.asynchronous(
        clocks.gamma(2.0, np.arange(1.0, n + 1)),
        n_updates=210,
        dispatch=rule(),
        key=jax.random.key(0),
    )
    reader = dict(zip(trace.read_version, trace.worker, strict=True))
    reader |= dict(zip(trace.open_jobs.read_version, trace.open_jobs.worker, strict=True))
    blocks = [[reader[v] for v in range(b, b + n)] for b in range(1, 204, n)]
    orders = {tuple(block) for block in blocks}
    if rule is traces.uniformly:
        assert any(sorted(block) != list(range(n)) for block in blocks)
    else:
        assert all(sorted(block) == list(range(n)) for block in blocks)
        assert (len(orders) == 1) == (rule is traces.shuffled_once)


@pytest.mark.slow
def test_one_open_job_and_shuffled_dispatch_is_random_reshuffling(float64):
    curvature, linear = quadratic_data(6, 3)
    trace = traces.asynchronous(
        clocks.exponential(np.ones(6)),
        n_updates=60,
        dispatch=traces.shuffled(),
        concurrency=1,
        key=jax.random.key(2),
    )
    assert trace.delay.max() == 0
    epochs = trace.worker.reshape(10, 6)
    assert all(sorted(epoch) == list(range(6)) for epoch in epochs.tolist())
    x = np.ones(3)
    for worker in epochs.ravel():
        x = x - 0.05 * quadratic_gradient(curvature, linear, worker, x)
    run = simulation.replay(problems.quadratic(curvature, linear), trace, optax.sgd(0.05))
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_pure_solves_the_speed_weighted_problem_and_shuffled_the_true_one(float64):
    speeds = np.arange(1.0, 7.0)
    problem = problems.quadratic(*quadratic_data(6, 3))
    true, weighted = [0.058824, -0.111111, 0.105263], [-0.265985, -0.063455, 0.343147]

    def mean_end(dispatch):
        trace = traces.asynchronous(
            clocks.constant(speeds), n_updates=60_000, dispatch=dispatch, key=jax.random.key(0)
        )
        run = simulation.replay(problem, trace, optax.sgd(5e-4), record_every=50)
        return np.asarray(run.params)

    np.testing.assert_allclose(mean_end(traces.to_deliverer()), weighted, atol=2e-3)
    np.testing.assert_allclose(mean_end(traces.shuffled()), true, atol=2e-3)


@pytest.mark.parametrize(
    ("speeds", "shuffled"), [(np.arange(1.0, 11.0), 0.555), (np.arange(1.0, 7.0), 0.584)]
)
def test_utilisation_of_fixed_speeds(speeds, shuffled):
    def utilisation(rule):
        key = jax.random.key(0)
        trace = traces.asynchronous(
            clocks.constant(speeds), n_updates=5000, dispatch=rule(), key=key
        )
        return traces.summarize(trace).utilisation

    assert utilisation(traces.to_deliverer) == pytest.approx(1.0, abs=1e-9)
    assert utilisation(traces.shuffled) == pytest.approx(shuffled, abs=0.01)
    assert utilisation(traces.uniformly) < utilisation(traces.shuffled)


def test_a_longer_trace_begins_like_a_shorter_one():
    clock = clocks.exponential(np.arange(1.0, 6.0))
    for dispatch in (traces.to_deliverer(), traces.shuffled(), traces.uniformly()):
        short, long = (
            traces.asynchronous(clock, n_updates=t, dispatch=dispatch, key=jax.random.key(4))
            for t in (50, 900)
        )
        for name in ("time", "worker", "job", "read_version", "version", "weight"):
            np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:50])


def test_waiting_for_all_is_gradient_descent_paced_by_the_slowest(float64):
    speeds = np.arange(1.0, 7.0)
    trace = traces.asynchronous(clocks.constant(speeds), n_updates=20, collect=traces.wait_for(6))
    assert trace.time[trace.steps].tolist() == [6.0 * k for k in range(1, 21)]
    curvature, linear = quadratic_data(6, 3)
    x = np.ones(3)
    for _ in range(20):
        x = x - 0.05 * np.mean(curvature * x - linear, axis=0)
    run = simulation.replay(problems.quadratic(curvature, linear), trace, optax.sgd(0.05))
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)
    together = traces.synchronous(clocks.constant(speeds), k=6, n_updates=20)
    np.testing.assert_array_equal(together.time, trace.time)
