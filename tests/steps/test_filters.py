"""Filters: dropped gradients and frozen states; Kardam beside a plain loop and by hand."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles.events import Arrivals
from tests.oracles.kardam import Kardam
from tests.oracles.treatments import train


def test_dropped_gradient_becomes_exact_zeros_even_from_nan():
    rule = steps.drop_stale(3)
    bad = {"a": jnp.array([jnp.nan, jnp.inf, 1.0]), "b": jnp.ones((), jnp.bfloat16)}
    state = rule.init(bad)
    dropped, state = rule.update(bad, state, delay=3)
    chex.assert_trees_all_equal(dropped, jax.tree.map(jnp.zeros_like, bad))
    passed, state = rule.update(bad, state, delay=2)
    chex.assert_trees_all_equal(passed, bad)
    assert int(state.dropped_gradients) == 1


@pytest.mark.parametrize(
    "inner",
    [optax.noisy_sgd(0.1, key=jax.random.key(3)), steps.delay_adaptive_sgd(0.5, max_delay=8)],
    ids=["noisy_sgd", "delay_adaptive_sgd"],
)
def test_wrapper_freezes_the_inner_state_bitwise(inner):
    rule = steps.drop_stale(2, inner)
    params = jnp.array([1.0, -3.0])
    update = jax.jit(rule.update)
    _, state = update(params, rule.init(params), params, delay=0)
    bad = jnp.array([jnp.nan, 1e30])
    dropped, after = update(bad, state, params, delay=2)
    np.testing.assert_array_equal(dropped, 0)
    chex.assert_trees_all_equal(after.kept_state, state.kept_state)
    assert int(after.dropped_gradients) == 1
    alone, expected = update(params, state, params, delay=1)
    again, resumed = update(params, after, params, delay=1)
    np.testing.assert_array_equal(alone, again)
    chex.assert_trees_all_equal(resumed.kept_state, expected.kept_state)


def test_distant_gradients_are_dropped_and_the_inner_state_frozen():
    x = jnp.array([0.0, 3.0])
    rule = steps.picky_sgd(5.0, optax.adam(0.1))
    state = rule.init(x)
    _, near = rule.update(jnp.ones(2), state, x, read_params=jnp.array([4.0, 0.0]))
    assert int(near.dropped_gradients) == 0
    far = jnp.array([4.1, 0.0])
    update, after = rule.update(jnp.full(2, jnp.nan), near, x, read_params=far)
    np.testing.assert_array_equal(update, 0)
    jax.tree.map(np.testing.assert_array_equal, after.kept_state, near.kept_state)
    assert int(after.dropped_gradients) == 1


N, F, D = 10, 2, 4


CURVATURE = np.array([1.0, 0.3, 0.1, 0.03])


BAD = (3, 7)


TIMES = 0.1 + np.random.default_rng(0).exponential(size=(N, 200))


def noise(worker, job):
    return 0.05 * np.sin(1.0 + worker + 0.7 * job + np.arange(D))


def attacked(first, scale, noisy=0.0):
    """Workers that are all alike, of whom two send flipped signs from their `first`-th job on."""

    def gradient(params, worker, job, key):
        honest = jnp.asarray(CURVATURE, params.dtype) * params
        honest = honest + noisy * 0.05 * jnp.sin(1.0 + worker + 0.7 * job + jnp.arange(D))
        is_bad = jnp.isin(worker, jnp.array(BAD)) & (job >= first)
        return jnp.zeros(()), jnp.where(is_bad, -scale * honest, honest)

    def plain(x, worker, job):
        honest = CURVATURE * x + noisy * noise(worker, job)
        return -scale * honest if worker in BAD and job >= first else honest

    return problems.from_gradient(jnp.ones(D), gradient), plain


def trace_of(n_updates=300, times=TIMES):
    return traces.asynchronous(clocks.recorded(times), n_updates=n_updates)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{}, {"window": 1}, {"frequency": False}, {"most_rejections": 3, "window": 4}],
)
def test_what_passes_is_what_passes_in_the_plain_loop(float64, settings):
    """The same in every one of 300 updates, or models would not agree to rounding."""
    problem, gradient = attacked(3, 5.0, noisy=1.0)
    twin, trace = Kardam(N, F, **settings), trace_of()

    def arrive(g, x, read, row):
        passes = twin.receive(int(trace.worker[row]), g, read, x)
        return g / (1 + trace.delay[row]) if passes else np.zeros(D)

    def sgd(direction, number, rows):
        return -0.05 * direction

    expected = train(np.ones(D), Arrivals(trace._asdict()), gradient, sgd, arrive=arrive)
    assert 20 < twin.dropped < 290
    dampening = steps.scale_by_staleness("polynomial", exponent=1.0)
    rule = optax.chain(steps.kardam(N, F, **settings), dampening)
    for way in ({"waves": False}, {}):
        run = simulation.replay(
            problem, trace, simulation.Update(optax.sgd(0.05), gradient_transform=rule), **way
        )
        np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_it_survives_a_fifth_of_flipped_signs_where_plain_arrival_fails(seed):
    """Even with the rejections after which anything passes; the first gradients are good."""
    problem, _ = attacked(3, 10.0)
    times = 0.1 + np.random.default_rng(seed).exponential(size=(N, 200))
    trace = trace_of(600, times)

    def loss(**more):
        x = simulation.replay(problem, trace, simulation.Update(optax.sgd(0.1), **more)).params
        return float(CURVATURE @ np.asarray(x, np.float64) ** 2 / CURVATURE.sum())

    assert not loss() < 1e6
    assert loss(gradient_transform=steps.kardam(N, F)) < 0.2


@pytest.mark.slow
def test_without_adversaries_everything_passes(float64):
    problem, _ = attacked(0, 20.0, noisy=1.0)
    trace = trace_of(60)
    plain = simulation.replay(problem, trace, optax.sgd(0.01)).params
    rule = steps.kardam(N, 0)
    filtered = simulation.replay(
        problem, trace, simulation.Update(optax.sgd(0.01), gradient_transform=rule)
    ).params
    np.testing.assert_array_equal(filtered, plain)


def sent(rule, rows):
    """What passes of (worker, gradient, model of it, model of the server)."""
    state, passed = rule.init(jnp.zeros(2)), []
    for worker, grad, read, now in rows:
        update, state = rule.update(
            jnp.array([grad, 0.0]),
            state,
            jnp.array([now, 0.0]),
            worker=worker,
            read_params=jnp.array([read, 0.0]),
        )
        passed.append(bool(np.any(update != 0)))
    return passed, state


@pytest.mark.slow
def test_the_second_filter_wants_workers_that_differ():
    """f = 1: of any three that pass no two are of one worker."""
    rows = [(worker, 1.0 + t, float(t), float(t)) for t, worker in enumerate([0, 1, 0, 2, 0, 0])]
    passed, state = sent(steps.kardam(4, 1), rows)
    assert passed == [True, True, False, True, True, False]
    assert int(state.dropped_gradients) == 2
    passed, _ = sent(steps.kardam(4, 1, frequency=False), rows)
    assert all(passed)


def test_what_is_no_number_is_dropped_and_not_learnt_from():
    rows = [(w, 1.0 + t, float(t), float(t)) for t, w in enumerate([0, 1, 2, 0, 1, 2])]
    rows += [(3, np.nan, 6.0, 6.0), (3, np.nan, 7.0, 7.0), (0, 9.0, 8.0, 8.0), (3, 9.0, 9.0, 9.0)]
    passed, state = sent(steps.kardam(4, 1, frequency=False), rows)
    assert passed == [True] * 6 + [False, False, True, True]
    assert int(state.dropped_gradients) == 2


def test_aflguard_passes_what_is_near_the_servers_gradient():
    """Beside the definition: the norm of the difference against the norm of the server's."""
    rng = np.random.default_rng(0)
    params = {"a": rng.normal(size=3), "b": rng.normal(size=(2, 2))}
    ours = np.concatenate([2 * params["a"], 2 * params["b"].ravel()])
    rule = steps.afl_guard(lambda params: jax.tree.map(lambda leaf: 2 * leaf, params), bound=0.7)
    state, dropped = rule.init(params), 0
    for scale in np.linspace(0.1, 2.0, 20):
        grads = jax.tree.map(
            lambda leaf, s=scale: 2 * leaf + s * rng.normal(size=leaf.shape), params
        )
        flat = np.concatenate([grads["a"], grads["b"].ravel()])
        passes = np.linalg.norm(flat - ours) <= 0.7 * np.linalg.norm(ours)
        dropped += not passes
        sent, state = rule.update(grads, state, params)
        expected = grads if passes else jax.tree.map(np.zeros_like, grads)
        chex.assert_trees_all_close(sent, expected, atol=1e-6)
        assert int(state.dropped_gradients) == dropped
    assert 0 < dropped < 20
