"""Models handed out ahead, and models mixed in."""

import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import steps
from tests.oracles.treatments import Dana

RATE, BETA, CURVATURE = 0.1, 0.8, np.array([1.0, 2.0, 0.5])


def handed_out(optimizer, view, n_updates=30, start=1.0, **extras):
    """What one worker is handed in turn, gradients of a quadratic taken there."""
    params = jnp.full(3, start)
    state = optimizer.init(params)
    seen = []
    for _ in range(n_updates):
        at = view(params, state)
        seen.append(at)
        updates, state = optimizer.update(CURVATURE * at, state, params, **extras)
        params = optax.apply_updates(params, updates)
    return np.array(seen)


def test_a_look_ahead_by_the_momentum_is_nesterov(float64):
    """Classical momentum whose gradient is taken ahead hands out Nesterov's iterates."""
    nesterov = handed_out(optax.sgd(RATE, BETA, nesterov=True), lambda params, state: params)
    heavy = optax.chain(optax.sgd(RATE, BETA), steps.remember_update())
    np.testing.assert_allclose(handed_out(heavy, steps.look_ahead(BETA)), nesterov, rtol=1e-12)
    dana = steps.distributed_nesterov(RATE, BETA, n_workers=1)
    np.testing.assert_allclose(handed_out(dana, steps.look_ahead(), worker=0), nesterov, rtol=1e-12)


def test_distributed_nesterov_equals_the_plain_loop(float64):
    rng, plain = np.random.default_rng(0), Dana(RATE, BETA, 4, 3)
    optimizer, view = steps.distributed_nesterov(RATE, BETA, n_workers=4), steps.look_ahead()
    params, x = jnp.ones(3), np.ones(3)
    state = optimizer.init(params)
    for worker in rng.integers(0, 4, 40):
        grad = rng.normal(size=3)
        x = x + plain.step(grad, worker)
        updates, state = optimizer.update(grad, state, params, worker=worker)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(params, x, rtol=1e-12)
        np.testing.assert_allclose(view(params, state), plain.view(x), rtol=1e-12)


def test_views_keep_dtypes():
    params = {"w": jnp.ones(2, jnp.bfloat16), "b": jnp.float32(1.0)}
    rule = steps.remember_update()
    ahead = steps.look_ahead(0.5)(params, rule.update(params, rule.init(params))[1])
    assert ahead["w"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(ahead["w"], float), 1.5)


def test_mixing_moves_towards_the_worker():
    x, worker = jnp.array([2.0, 4.0]), jnp.array([0.0, 8.0])
    for rule, delay in (
        (steps.mix_models(0.25), 9),
        (steps.mix_models(0.5, steps.hinge_delay(1.0, 4)), 5),
    ):
        update, state = rule.update(x, rule.init(x), x, delay=delay, worker_params=worker)
        np.testing.assert_allclose(update, [-0.5, 1.0])
        assert float(state.last_step_size) == 0.25


def test_mixing_finds_the_worker_from_its_pseudo_gradient():
    x, read = jnp.array([2.0, 4.0]), jnp.array([1.0, 3.0])
    pseudo = (read - jnp.array([0.0, 8.0])) / 0.4  # what local steps moved, over H s = 0.4
    rule = steps.mix_models(0.25, local_scale=0.4)
    update, _ = rule.update(pseudo, rule.init(x), x, delay=0, read_params=read)
    np.testing.assert_allclose(update, [-0.5, 1.0], rtol=1e-6)
