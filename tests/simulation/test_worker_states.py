"""Workers that keep an optimizer's state from job to job: exact in waves and one by one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, orders, problems, simulation, traces
from asyncjax.simulation.memory import memory
from asyncjax.simulation.program import sizes_of, wave_program
from tests.oracles import worker_states
from tests.simulation.shared import (
    RULES,
    N,
    assert_close,
    assert_follows,
    both,
    columns,
    quadratic,
    trace_of,
)

pytestmark = pytest.mark.usefixtures("float64")
COUNTS, RATE, SERVER = [2, 1, 3, 2, 1, 2], 0.05, 0.7


def noisy():
    """A problem whose gradient knows its job, and the same in NumPy."""
    problem, plain = quadratic()

    def gradient(params, worker, job, key):
        loss, grads = problem.gradient_of(problem.data, params, worker, job, key)
        return loss, grads + 0.1 * jnp.sin(job + jnp.arange(3.0))

    def twin(x, worker, job):
        return plain(x, worker, job) + 0.1 * np.sin(job + np.arange(3.0))

    altered = problems.from_gradient(
        problem.params, gradient, objective=problem.objective, n_workers=N
    )
    return altered, twin


def keeping(problem, optimizer=None, *, n_steps: Any = 2, keep_state=True):
    optimizer = optax.adamw(RATE) if optimizer is None else optimizer
    return problems.local_steps(
        problem, n_steps=n_steps, optimizer=optimizer, keep_state=keep_state
    )


def check_twin(rule, *, keep_state=True):
    inner, gradient = noisy()
    trace = trace_of(rule)
    hand = {"counts": COUNTS, "rate": RATE, "server": SERVER}
    stateful, anew = (
        worker_states.train(np.ones(3), columns(trace), gradient, keeps=keeps, **hand)
        for keeps in (True, False)
    )
    assert np.abs(stateful[-1] - anew[-1]).max() > 1e-3
    problem = keeping(inner, n_steps=COUNTS, keep_state=keep_state)
    for run in both(problem, trace, optax.sgd(SERVER), record_every=30):
        assert_follows(run, stateful if keep_state else anew, inner)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_equals_the_plain_loop(rule):
    check_twin(rule)


def test_a_rule_that_throws_away_equals_the_plain_loop():
    assert not trace_of("ringmaster 4").used.all()
    check_twin("ringmaster 4")


@pytest.mark.slow
def test_a_state_that_is_not_kept_begins_anew():
    check_twin("buffered 3", keep_state=False)


@pytest.mark.slow
def test_one_step_of_sgd_is_the_plain_rule():
    inner, _ = noisy()
    trace = trace_of("buffered 3")
    plain = simulation.replay(inner, trace, optax.sgd(0.05))
    for keep_state in (False, True):
        problem = keeping(inner, optax.sgd(0.05), n_steps=1, keep_state=keep_state)
        assert_close(simulation.replay(problem, trace, optax.sgd(1.0)).params, plain.params)


@pytest.mark.slow
def test_one_worker_that_keeps_its_state_is_the_optimizer_itself():
    """H steps of AdamW in each of J jobs are H J steps of it; its state is in the run."""
    inner, _ = noisy()
    optimizer, n_steps, jobs = optax.adamw(RATE), 4, 15
    trace = traces.asynchronous(clocks.constant([1.0]), n_updates=jobs)
    params, state = jnp.ones(3), optimizer.init(jnp.ones(3))
    for job in range(n_steps * jobs):
        grads = inner.gradient(params, 0, job, jax.random.key(0))[1]
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    for run in both(keeping(inner, optimizer, n_steps=n_steps), trace, optax.sgd(1.0)):
        assert_close(run.params, params)
        assert_close(run.worker_states, jax.tree.map(lambda leaf: leaf[None], state))
    anew = keeping(inner, optimizer, n_steps=n_steps, keep_state=False)
    run = simulation.replay(anew, trace, optax.sgd(1.0))
    assert np.abs(run.params - params).max() > 1e-3
    assert run.worker_states is None


@pytest.mark.slow
def test_what_every_worker_keeps_is_in_the_run():
    """By worker, after all its jobs that arrived, thrown away or not; without the scratch row."""
    (inner, _), trace, server = noisy(), trace_of("ringmaster 4"), optax.sgd(SERVER)
    planned = simulation.plan(trace, width=1, worker_order=True)
    alone = simulation.replay(keeping(inner), planned, server)
    for run in both(keeping(inner), trace, server):
        arrived = np.bincount(trace.worker, minlength=N)
        np.testing.assert_array_equal(run.worker_states[0].count, 2 * arrived)
        assert run.worker_states[0].mu.shape == (N, 3)
        assert_close(run.worker_states, alone.worker_states)


@pytest.mark.slow
def test_a_nan_that_is_thrown_away_does_not_enter():
    """Nor in a wave in which another gradient enters a sum: 0 times NaN is NaN."""
    inner, _ = noisy()
    trace = trace_of("rennala 3")
    away = np.zeros((N, trace.job.max() + 1), bool)
    away[trace.worker[~trace.used], trace.job[~trace.used]] = True
    assert away.any()

    def gradient(params, worker, job, key):
        loss, grads = inner.gradient(params, worker, job, key)
        return loss, jnp.where(jnp.asarray(away)[worker, job], jnp.nan, grads)

    broken = problems.from_gradient(inner.params, gradient, n_workers=N)
    counting = optax.sgd(lambda count: 0.1 / (1.0 + count))  # its state stays finite
    whole = simulation.replay(keeping(inner, counting, n_steps=1), trace, optax.sgd(1.0))
    for run in both(keeping(broken, counting, n_steps=1), trace, optax.sgd(1.0)):
        assert_close(run.params, whole.params)


@pytest.mark.slow
def test_an_order_goes_with_states():
    features = np.cos(np.arange(8.0 * N * 2)).reshape(-1, 2)
    inner = problems.least_squares(features, features.sum(1), n_workers=N, batch=problems.cyclic(1))
    trace, order = trace_of("ringmaster 4"), orders.reshuffled(8, n_workers=N)
    hand = {"order": order, "key": jax.random.key(3)}
    one = keeping(inner, optax.sgd(0.05), n_steps=1)
    run = simulation.replay(one, trace, optax.sgd(1.0), **hand)
    assert_close(run.params, simulation.replay(inner, trace, optax.sgd(0.05), **hand).params)
    more = [run.params for run in both(keeping(inner), trace, optax.sgd(1.0), **hand)]
    assert_close(*more)


@pytest.mark.parametrize("rule", RULES)
def test_a_plan_in_the_order_of_the_workers(rule):
    """All that arrives is computed, a job of a worker in a later wave than the one before."""
    trace = trace_of(rule)
    for width in (None, 1, 40):
        plan = simulation.plan(trace, width=width, worker_order=True)
        gradients, waves = plan.gradients, plan.waves
        assert gradients.arrival.tolist() == np.flatnonzero(trace.version < 60).tolist()
        assert len(gradients.arrival) == len(trace.time)
        used = simulation.plan(trace, width=width)
        np.testing.assert_array_equal(
            gradients.arrival[gradients.enters], np.sort(used.gradients.arrival)
        )
        for name in ("oldest", "update_delay"):
            np.testing.assert_array_equal(getattr(plan, name), getattr(used, name))
        for worker in range(N):
            turns = waves.gradient_wave[trace.worker == worker]
            assert (np.diff(turns) > 0).all()
        created = np.append(-1, waves.update_wave)  # the wave that makes each version
        assert (waves.gradient_wave > created[gradients.read_version]).all()
        assert (waves.gradient_wave <= waves.update_wave[gradients.update]).all()
        assert np.bincount(waves.gradient_wave).max() <= plan.width


def test_a_plan_has_no_order_of_workers_unless_asked():
    used = simulation.plan(trace_of("pure"))
    assert used.gradients.sequence is None
    sizes = sizes_of([used])
    assert sizes.workers == 0
    assert wave_program(used, sizes).gradients.state_row is None


def test_states_are_in_the_memory():
    inner, _ = noisy()
    problem, trace = keeping(inner), trace_of("pure")
    sizes = sizes_of([simulation.plan(trace, worker_order=True)])
    stated = memory(problem.params, sizes, worker_state=problem.worker_state())
    state = 2 * 3 * 8 + 4  # two moments of three float64, and a count
    assert stated.workers == (N + 1) * state
    without = memory(problem.params, sizes)
    assert stated.lanes - without.lanes == 2 * sizes.width * state
    assert stated.total == without.total + stated.workers + 2 * sizes.width * state
    less = simulation.Execution(memory_limit=stated.total - 1)
    with pytest.raises(MemoryError, match="workers"):
        simulation.replay(problem, trace, optax.sgd(1.0), execution=less)
