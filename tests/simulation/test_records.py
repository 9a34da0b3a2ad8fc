"""Records: how many there are where nothing is said, where they begin, and what they hold."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, live, problems, simulation, traces
from asyncjax.simulation.plan import recorded_versions

KEY = jax.random.key(0)


def own_problem():
    return problems.quadratic([[1.0, 2.0], [3.0, 1.0], [0.5, 1.0]], [[1.0, 0.0]] * 3)


def loss_at(problem, params):
    assert problem.objective is not None
    return problem.objective(params)


def own_trace(n_updates, collect=None):
    clock = clocks.exponential([1.0, 2.0, 3.0])
    return traces.asynchronous(clock, n_updates=n_updates, collect=collect, key=KEY)


@pytest.mark.parametrize("n_updates", [1, 7, 25, 26, 60, 1000, 1013])
def test_where_nothing_is_said_there_are_25_records_evenly_and_the_last(n_updates):
    versions = recorded_versions(n_updates, None)
    assert len(versions) == min(n_updates, 25)
    assert versions[-1] == n_updates
    assert versions[0] >= 1
    steps = np.diff(versions)
    assert not len(steps) or steps.max() - steps.min() <= 1


@pytest.mark.parametrize("waves", [True, False])
def test_by_default_the_first_record_is_the_start(waves):
    problem, trace = own_problem(), own_trace(60)
    run = simulation.replay(problem, trace, optax.sgd(0.05), waves=waves)
    records = run.records
    assert [np.shape(column) for column in records[:7]] == [(26,)] * 7
    first = (records.version, records.time, records.delay, records.used, records.computed)
    assert [column[0] for column in first] == [0] * 5
    assert records.loss[0] == loss_at(problem, problem.params)
    # What follows is what a run records that is told to record every version.
    every = simulation.replay(problem, trace, optax.sgd(0.05), waves=waves, record_every=1).records
    at = records.version[1:] - 1
    for name in ("version", "time", "delay", "used", "computed"):
        np.testing.assert_array_equal(getattr(records, name)[1:], getattr(every, name)[at])
    np.testing.assert_allclose(records.loss[1:], every.loss[at], rtol=1e-6)
    assert every.version[0] == 1


def test_a_start_that_is_not_finite_is_seen_in_its_record():
    problem = dataclasses.replace(own_problem(), params=jnp.array([jnp.inf, 0.0]))
    run = simulation.replay(problem, own_trace(5), optax.sgd(0.05))
    assert not run.records.finite[0]


def test_without_an_objective_no_record_is_of_the_start():
    def gradient(params, worker, job, key):
        return jnp.sum(params) + worker, params

    problem = problems.from_gradient(jnp.ones(2), gradient)
    for waves in (True, False):
        run = simulation.replay(problem, own_trace(60), optax.sgd(0.05), waves=waves)
        assert run.records.version.tolist() == recorded_versions(60, None).tolist()
        assert np.isfinite(run.records.loss).all()


@pytest.mark.slow
def test_the_start_of_several_runs_is_that_of_each():
    problem, keys = own_problem(), jax.random.split(KEY, 2)

    def curve(start):
        moved = dataclasses.replace(problem, params=start)
        return simulation.replay(moved, own_trace(30), optax.sgd(0.05)).records.loss

    starts = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    losses = jax.vmap(curve)(starts)
    np.testing.assert_allclose(losses[:, 0], [loss_at(problem, one) for one in starts], rtol=1e-6)
    swept = simulation.sweep(problem, own_trace(30), optax.sgd, [0.01, 0.05], keys=keys)
    assert swept.records.loss.shape == (2, 2, 26)
    np.testing.assert_allclose(swept.records.loss[..., 0], loss_at(problem, problem.params))
    assert swept.records.version[0] == 0


@pytest.mark.slow
def test_real_workers_record_what_their_replay_records():
    problem = own_problem()
    trace = own_trace(30)
    again = live.rerun(problem, trace, optax.sgd(0.05), key=KEY)
    run = simulation.replay(problem, trace, optax.sgd(0.05), key=KEY)
    np.testing.assert_array_equal(again.records.version, run.records.version)
    np.testing.assert_allclose(again.records.loss, run.records.loss, rtol=1e-5)
