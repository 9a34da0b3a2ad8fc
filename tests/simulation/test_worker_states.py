"""Workers that keep an optimizer's state from job to job: exact in waves and one by one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, orders, problems, simulation, steps, stragglers, traces
from asyncjax.simulation.memory import memory
from asyncjax.simulation.program import sizes_of, wave_program
from tests.oracles import worker_states
from tests.simulation.shared import RULES, N, columns, quadratic, trace_of

pytestmark = pytest.mark.usefixtures("float64")
COUNTS, RATE, SERVER = [2, 1, 3, 2, 1, 2], 0.05, 0.7
# Thrown-away gradients are among them, jobs that are stopped, and gradients that serve again.
FAST = ("buffered 3", "ringmaster 4")


def noisy():
    """A problem whose gradient knows its job, and the same in NumPy."""
    problem, plain = quadratic()

    def gradient(params, worker, job, key):
        loss, grads = problem.gradient_of(problem.data, params, worker, job, key)
        return loss, grads + 0.1 * jnp.sin(job + jnp.arange(3.0))

    def own(x, worker, job):
        return plain(x, worker, job) + 0.1 * np.sin(job + np.arange(3.0))

    made = problems.from_gradient(
        problem.params, gradient, objective=problem.objective, n_workers=N
    )
    return made, own


def keeping(problem, optimizer=None, *, n_steps: Any = 2, keep_state=True):
    optimizer = optax.adamw(RATE) if optimizer is None else optimizer
    return problems.local_steps(
        problem, n_steps=n_steps, optimizer=optimizer, keep_state=keep_state
    )


def check_twin(rule, waves, *, keep_state=True):
    inner, gradient = noisy()
    trace = trace_of(rule)
    expected = worker_states.train(
        np.ones(3),
        columns(trace),
        gradient,
        counts=COUNTS,
        rate=RATE,
        server=SERVER,
        keeps=keep_state,
    )
    problem = keeping(inner, n_steps=COUNTS, keep_state=keep_state)
    run = simulation.replay(problem, trace, optax.sgd(SERVER), waves=waves, record_every=30)
    np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)
    assert inner.objective is not None
    losses = [inner.objective(expected[version]) for version in (30, 60)]
    np.testing.assert_allclose(run.records.loss, losses, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_equals_the_plain_loop(rule):
    for waves in (True, False):
        check_twin(rule, waves)


@pytest.mark.parametrize("waves", [True, False])
@pytest.mark.parametrize("rule", FAST)
def test_some_rules_equal_the_plain_loop(rule, waves):
    check_twin(rule, waves)


def test_a_state_that_is_not_kept_begins_anew():
    check_twin("buffered 3", waves=True, keep_state=False)


def test_steps_that_are_thrown_away_move_their_worker():
    """What the two tests above rest on: the twin is another one without them."""
    trace = columns(trace_of("ringmaster 4"))
    assert not trace.used.all()
    hand = {"counts": COUNTS, "rate": RATE, "server": SERVER}
    _, gradient = noisy()
    kept = worker_states.train(np.ones(3), trace, gradient, **hand)
    anew = worker_states.train(np.ones(3), trace, gradient, keeps=False, **hand)
    assert np.abs(kept[-1] - anew[-1]).max() > 1e-3


@pytest.mark.slow
def test_one_step_of_sgd_is_the_plain_rule():
    inner, _ = noisy()
    trace = trace_of("buffered 3")
    plain = simulation.replay(inner, trace, optax.sgd(0.05))
    for keep_state in (False, True):
        own = keeping(inner, optax.sgd(0.05), n_steps=1, keep_state=keep_state)
        run = simulation.replay(own, trace, optax.sgd(1.0))
        np.testing.assert_allclose(run.params, plain.params, rtol=0, atol=1e-12)


@pytest.mark.parametrize("waves", [True, False])
def test_one_worker_that_keeps_its_state_is_the_optimizer_itself(waves):
    """H steps of AdamW in each of J jobs are H J steps of it; its state is in the run."""
    inner, _ = noisy()
    optimizer, n_steps, jobs = optax.adamw(RATE), 4, 15
    trace = traces.asynchronous(clocks.constant([1.0]), n_updates=jobs)
    run = simulation.replay(
        keeping(inner, optimizer, n_steps=n_steps), trace, optax.sgd(1.0), waves=waves
    )
    params, state = jnp.ones(3), optimizer.init(jnp.ones(3))
    for job in range(n_steps * jobs):
        grads = inner.gradient(params, 0, job, jax.random.key(0))[1]
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(run.params, np.asarray(params), rtol=0, atol=1e-12)
    assert_states(jax.tree.map(lambda rows: rows[0], run.worker_states), state)
    assert jax.tree.leaves(run.worker_states)[0].shape == (1,)
    anew = simulation.replay(
        keeping(inner, optimizer, n_steps=n_steps, keep_state=False),
        trace,
        optax.sgd(1.0),
        waves=waves,
    )
    assert np.abs(anew.params - params).max() > 1e-3
    assert anew.worker_states is None


@pytest.mark.parametrize("waves", [True, False])
def test_what_every_worker_keeps_is_in_the_run(waves):
    """By worker, after all its jobs that arrived, thrown away or not; without the scratch row."""
    inner, _ = noisy()
    trace = trace_of("ringmaster 4")
    run = simulation.replay(keeping(inner, n_steps=2), trace, optax.sgd(SERVER), waves=waves)
    arrived = np.bincount(trace.worker, minlength=N)
    np.testing.assert_array_equal(run.worker_states[0].count, 2 * arrived)
    assert run.worker_states[0].mu.shape == (N, 3)
    assert_states(run.worker_states, by_events(inner, trace))


def by_events(inner, trace):
    """The states of a replay one event at a time on a plan that was made before."""
    planned = simulation.plan(trace, width=1, worker_order=True)
    run = simulation.replay(keeping(inner, n_steps=2), planned, optax.sgd(SERVER))
    return run.worker_states


def assert_states(states, expected):
    for own, other in zip(jax.tree.leaves(states), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(own, np.asarray(other), rtol=0, atol=1e-12)


@pytest.mark.parametrize("waves", [True, False])
def test_a_nan_that_is_thrown_away_does_not_enter(waves):
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
    runs = [
        simulation.replay(keeping(each, counting, n_steps=1), trace, optax.sgd(1.0), waves=waves)
        for each in (broken, inner)
    ]
    assert np.isfinite(runs[0].params).all()
    np.testing.assert_allclose(runs[0].params, runs[1].params, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_an_order_goes_with_states():
    features = np.cos(np.arange(8.0 * N * 2)).reshape(-1, 2)
    inner = problems.least_squares(features, features.sum(1), n_workers=N, batch=problems.cyclic(1))
    trace, order = trace_of("ringmaster 4"), orders.reshuffled(8, n_workers=N)
    hand = {"order": order, "key": jax.random.key(3)}
    one = keeping(inner, optax.sgd(0.05), n_steps=1)
    run = simulation.replay(one, trace, optax.sgd(1.0), **hand)
    plain = simulation.replay(inner, trace, optax.sgd(0.05), **hand)
    np.testing.assert_allclose(run.params, plain.params, rtol=0, atol=1e-12)
    more = [
        simulation.replay(keeping(inner), trace, optax.sgd(1.0), waves=waves, **hand)
        for waves in (True, False)
    ]
    np.testing.assert_allclose(more[0].params, more[1].params, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_a_sweep_is_replays():
    inner, _ = noisy()
    own, keys = keeping(inner), jax.random.split(jax.random.key(1), 2)
    several = [trace_of("ringmaster 4", seed=seed) for seed in (0, 1)]
    for given in (several, several[0]):
        swept = simulation.sweep(own, given, optax.sgd, [0.5, 1.0], keys=keys)
        for seed, key in enumerate(keys):
            trace = several[seed] if isinstance(given, list) else given
            for place, step in enumerate((0.5, 1.0)):
                run = simulation.replay(own, trace, optax.sgd(step), key=key)
                np.testing.assert_allclose(
                    swept.params[seed, place], run.params, rtol=0, atol=1e-12
                )
                at = (seed, place)
                kept = jax.tree.map(lambda rows, at=at: rows[at], swept.worker_states)
                assert_states(kept, run.worker_states)


class Killed(Exception):
    """A run that is stopped."""


@pytest.mark.slow
@pytest.mark.parametrize("waves", [True, False])
def test_a_resumed_run_has_the_same_bits(waves, tmp_path):
    inner, _ = noisy()
    own, trace, path = keeping(inner), trace_of("ringmaster 4"), tmp_path / "run.npz"

    def run(**how):
        return simulation.replay(own, trace, optax.sgd(SERVER), waves=waves, **how)

    def kill(at):
        if at.updates > 5:
            raise Killed

    whole = run(progress=lambda _: None)
    with pytest.raises(Killed):
        run(progress=kill, checkpoint=path)
    assert path.exists()
    resumed = run(checkpoint=path)
    np.testing.assert_array_equal(resumed.params, whole.params)
    np.testing.assert_array_equal(resumed.records.loss, whole.records.loss)


@pytest.mark.parametrize("rule", RULES)
def test_a_plan_in_the_order_of_the_workers(rule):
    """All that arrives is computed, a job of a worker in a later wave than the one before."""
    trace = trace_of(rule)
    for width in (None, 1, 40):
        made = simulation.plan(trace, width=width, worker_order=True)
        gradients, waves = made.gradients, made.waves
        assert gradients.arrival.tolist() == np.flatnonzero(trace.version < 60).tolist()
        assert len(gradients.arrival) == len(trace.time)
        used = simulation.plan(trace, width=width)
        np.testing.assert_array_equal(
            gradients.arrival[gradients.enters], np.sort(used.gradients.arrival)
        )
        for name in ("oldest", "update_delay"):
            np.testing.assert_array_equal(getattr(made, name), getattr(used, name))
        for worker in range(N):
            own = waves.gradient_wave[trace.worker == worker]
            assert (np.diff(own) > 0).all()
        created = np.append(-1, waves.update_wave)  # the wave that makes each version
        assert (waves.gradient_wave > created[gradients.read_version]).all()
        assert (waves.gradient_wave <= waves.update_wave[gradients.update]).all()
        assert np.bincount(waves.gradient_wave).max() <= made.width


def test_a_plan_has_no_order_of_workers_unless_asked():
    used = simulation.plan(trace_of("pure"))
    assert used.gradients.sequence is None
    sizes = sizes_of([used])
    assert sizes.workers == 0
    assert wave_program(used, sizes).gradients.state_row is None


def test_states_are_in_the_memory():
    inner, _ = noisy()
    own, trace = keeping(inner), trace_of("pure")
    sizes = sizes_of([simulation.plan(trace, worker_order=True)])
    stated = memory(own.params, sizes, worker_state=own.worker_state())
    state = 2 * 3 * 8 + 4  # two moments of three float64, and a count
    assert stated.workers == (N + 1) * state
    without = memory(own.params, sizes)
    assert stated.lanes - without.lanes == 2 * sizes.width * state
    assert stated.total == without.total + stated.workers + 2 * sizes.width * state
    simulation.replay(
        own, trace, optax.sgd(1.0), execution=simulation.Execution(memory_limit=stated.total)
    )
    with pytest.raises(MemoryError, match="workers"):
        simulation.replay(
            own,
            trace,
            optax.sgd(1.0),
            execution=simulation.Execution(memory_limit=stated.total - 1),
        )


def test_runs_that_carry_no_states_say_so():
    inner, _ = noisy()
    own, trace = keeping(inner), trace_of("pure")
    rule, key = optax.sgd(0.1), jax.random.key(0)
    with pytest.raises(ValueError, match=r"simulation.plan\(trace, worker_order=True\)"):
        simulation.replay(own, simulation.plan(trace), rule)
    with pytest.raises(ValueError, match="order must ignore gradients where workers keep a state"):
        simulation.replay(own, trace, rule, order=orders.independent(N, 2, 3))
    with pytest.raises(ValueError, match="mesh must be None where workers keep a state"):
        simulation.replay(
            own, trace, rule, execution=simulation.Execution(mesh=jax.make_mesh((1,), ("d",)))
        )
    keeps = r"problem keeps a state at every worker \(keep_state=True\)"
    with pytest.raises(ValueError, match=keeps):
        simulation.replay_piag(own, trace, steps.scale_by_adaptive_1(0.1))
    with pytest.raises(ValueError, match=keeps):
        simulation.replay_block_descent(
            own, trace, steps.scale_by_adaptive_1(0.1), n_blocks=3, torn=0.5
        )
    with pytest.raises(ValueError, match=keeps):
        simulation.run_epochs(own, orders.reshuffled(2, n_workers=N), rule, n_epochs=1, n_workers=N)
    times = stragglers.response(compute=clocks.exponential(1.0), n_workers=N)
    with pytest.raises(ValueError, match=keeps):
        simulation.run_policy(
            own, times, stragglers.fixed(2), rule, n_updates=2, record_every=1, key=key
        )
