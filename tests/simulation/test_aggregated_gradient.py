"""PIAG from a trace: its definition, its start, its optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles import steps as oracle
from tests.simulation import lasso

pytestmark = pytest.mark.usefixtures("float64")
PROX, ADAM = steps.l1(lasso.L1), optax.adam(0.05)
ADAPTIVE = steps.scale_by_adaptive_1(0.5, max_delay=128)


@pytest.mark.slow
@pytest.mark.parametrize("full_start", [True, False])
def test_a_replay_is_piag_as_defined(full_start):
    start, trace = np.full(lasso.DIM, 0.3), lasso.trace(lasso.durations(), 150)
    models, gammas, ages = oracle.piag(
        lasso.gradient,
        start,
        trace.worker,
        n_workers=lasso.WORKERS,
        step_size=0.5,
        alpha=0.9,
        l1=lasso.L1,
        full_start=full_start,
    )
    problem = lasso.problem(start)
    for waves in (True, False):
        run = simulation.replay_piag(
            problem,
            trace,
            ADAPTIVE,
            prox=PROX,
            full_start=full_start,
            record_every=1,
            waves=waves,
        )
        np.testing.assert_allclose(run.params, models[-1], rtol=0, atol=1e-12)
        losses = [lasso.objective(x) for x in models[1:]]
        np.testing.assert_allclose(run.records.loss, losses, rtol=0, atol=1e-12)
        assert int(optax.tree.get(run.opt_state, "last_table_delay")) == ages[-1]
        np.testing.assert_allclose(
            optax.tree.get(run.opt_state, "last_step_size"), gammas[-1], atol=1e-12
        )
        extra = lasso.WORKERS * full_start
        assert run.costs.gradients_used == run.costs.uplinks == 150 + extra
        assert run.records.used[-1] == run.records.computed[-1] == 150 + extra
        assert run.trace is trace
        run.raise_if_failed()


@pytest.mark.slow
def test_one_slow_worker_does_not_keep_piag_from_the_optimum():
    times = np.array([1.0, 1.1, 0.9, 10.0])
    trace = traces.asynchronous(clocks.constant(times), n_updates=12_000)
    rule = steps.scale_by_adaptive_1(0.99 / lasso.lipschitz(), max_delay=128)
    run = simulation.replay_piag(lasso.problem(), trace, rule, prox=PROX, record_every=3000)
    gaps = np.asarray(run.records.loss) - lasso.optimum()
    assert gaps[0] > 1e-9
    assert abs(gaps[-1]) <= 1e-9
    assert (np.asarray(run.params) == 0).any()
    run.raise_if_failed()


@pytest.mark.slow
def test_first_gradients_are_those_of_job_0():
    def gradient(params, worker, job, key):
        noise = jax.random.normal(key, (2,))
        return jnp.zeros(()), {"w": params["w"] * (1.0 + worker) + 10.0 * job + noise}

    problem = problems.from_gradient({"w": jnp.ones(2)}, gradient)
    key = jax.random.key(4)
    found = simulation.first_gradients(problem, 3, key=key)
    for worker in range(3):
        job_key = jax.random.fold_in(jax.random.fold_in(key, worker), 0)
        _, grads = problem.gradient(problem.params, worker, 0, job_key)
        np.testing.assert_allclose(found["w"][worker], grads["w"], atol=1e-15)
    trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=1)
    run = simulation.replay_piag(problem, trace, steps.worst_case(1.0, 0), key=key)
    np.testing.assert_allclose(run.params["w"], 1.0 - np.mean(found["w"], axis=0), atol=1e-14)


@pytest.mark.slow
def test_vmap_over_step_sizes_and_a_second_call_that_compiles_nothing():
    traced = []

    def gradient(params, worker, job, key):
        traced.append(1)
        return jnp.sum(params), params * (1.0 + worker) - 1.0

    problem = problems.from_gradient(jnp.ones(3), gradient)
    trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=40)

    def run(step_size):
        rule = steps.scale_by_adaptive_2(step_size, max_delay=32)
        return simulation.replay_piag(problem, trace, rule, prox=PROX)

    together = jax.vmap(run)(jnp.array([0.1, 0.2]))
    rule = steps.scale_by_adaptive_2(0.2, max_delay=32)
    alone = simulation.replay_piag(problem, trace, rule, prox=PROX)
    np.testing.assert_allclose(together.params[1], alone.params, rtol=0, atol=1e-14)
    assert together.costs.gradients_used == 43
    before = len(traced)
    again = simulation.replay_piag(problem, trace, rule, prox=PROX)
    assert len(traced) == before, "the second call compiled something"
    assert np.array_equal(again.params, alone.params)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"waves": False}, {"progress": lambda _: None}])
def test_a_run_goes_on_from_the_state_of_another(options):
    one = clocks.constant([1.0])
    whole = traces.asynchronous(one, n_updates=40)
    half = traces.asynchronous(one, n_updates=20)
    first = simulation.replay(lasso.problem(), half, ADAM)
    expected = simulation.replay(lasso.problem(), whole, ADAM).params
    later = lasso.problem(first.params)
    for _ in range(2):  # the state that is handed in stays usable
        second = simulation.replay(later, half, ADAM, opt_state=first.opt_state, **options)
        np.testing.assert_allclose(second.params, expected, rtol=0, atol=1e-13)
