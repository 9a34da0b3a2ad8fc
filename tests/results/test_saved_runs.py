"""Runs on disk: what is read is what was written, to the bit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, orders, problems, results, simulation, steps, stragglers, traces

KEY = jax.random.key(0)
PROBLEM = problems.quadratic([[1.0], [2.0], [3.0]], [[1.0], [1.0], [1.0]], noise=0.1)
TRACE = traces.asynchronous(clocks.exponential([1.0, 2.0, 4.0]), n_updates=20, key=KEY)


def same(one, other):
    """Holds that trees have equal structure and bits, random keys included."""

    def bits(leaf):
        is_key = jnp.issubdtype(jnp.asarray(leaf).dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert bits(left).dtype == bits(right).dtype
        np.testing.assert_array_equal(bits(left), bits(right))


@pytest.mark.slow
def test_a_replay_comes_back_and_goes_on_to_the_same_bits(tmp_path):
    optimizer = optax.chain(steps.scale_by_adaptive_1(0.1, max_delay=32), optax.scale(-1.0))
    run = simulation.replay(PROBLEM, TRACE, optimizer, key=KEY)
    results.save(tmp_path / "run.npz", run)
    again = results.load(tmp_path / "run.npz", problem=PROBLEM, optimizer=optimizer)
    same((run.params, run.opt_state), (again.params, again.opt_state))
    same(run.records, again.records)
    assert type(again.opt_state) is type(run.opt_state)
    assert repr(again) == repr(run)
    assert again.costs == run.costs
    same(tuple(run.trace), tuple(again.trace))

    def later(run):
        problem = replace(PROBLEM, params=run.params)
        return simulation.replay(problem, TRACE, optimizer, opt_state=run.opt_state, key=KEY)

    same(later(run).records, later(again).records)


@pytest.mark.slow
def test_sweeps_policies_and_orders_come_back(tmp_path):
    path = tmp_path / "run.npz"
    sweep = simulation.sweep(PROBLEM, TRACE, optax.sgd, [0.1, 0.2], keys=jax.random.split(KEY, 2))
    results.save(path, sweep)
    again = results.load(path)
    same((sweep.params, sweep.records), (again.params, again.records))
    times = clocks.exponential([1.0, 2.0, 4.0])
    policy = simulation.run_policy(
        PROBLEM, times, stragglers.fixed(2), optax.sgd(0.1), n_updates=8, key=KEY
    )
    results.save(path, policy)
    again = results.load(path)
    same((policy.records, policy.rounds), (again.records, again.rounds))
    assert again.costs == policy.costs
    problem = problems.least_squares(np.eye(12, 2), np.ones(12), n_workers=3)
    order = orders.reshuffled(4, n_workers=3)
    epochs = simulation.run_epochs(problem, order, optax.sgd(0.1), n_epochs=2, n_workers=3, key=KEY)
    results.save(path, epochs)
    assert jax.tree.leaves(results.load(path).order_state)


def test_another_optimizer_problem_or_file_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    results.save(path, simulation.replay(PROBLEM, TRACE, optax.sgd(0.1), key=KEY))
    with pytest.raises(
        ValueError, match=r"^optimizer must be the one of the run, whose file lacks"
    ):
        results.load(path, optimizer=optax.adam(0.1))
    other = replace(PROBLEM, params=[PROBLEM.params])
    with pytest.raises(
        ValueError, match=r"^problem must be the one .* file also has 'params'$|lacks"
    ):
        results.load(path, problem=other)
    traces.save(path, TRACE)
    with pytest.raises(ValueError, match=r"^path must be a run that `results\.save` wrote"):
        results.load(path)
