"""Adaptive rules as transformations and schedules: dtypes, hyperparameters."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from tests.oracles import steps as oracle

DELAYS = [0, 1, 1, 3, 0, 2, 5, 1]


RULES = {
    1: (steps.scale_by_adaptive_1, steps.adaptive_1_schedule, oracle.adaptive_1),
    2: (steps.scale_by_adaptive_2, steps.adaptive_2_schedule, oracle.adaptive_2),
}


def run(transform, grad, delays=DELAYS):
    state, outputs = transform.init(grad), []
    for delay in delays:
        update, state = transform.update(grad, state, grad, delay=jnp.int32(delay), worker=0)
        outputs.append(update)
    return outputs, state


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_bfloat16_updates_keep_a_float32_history(rule):
    factory, _, twin = RULES[rule]
    updates, state = run(factory(0.3, max_delay=8), jnp.ones(2, jnp.bfloat16))
    assert updates[0].dtype == jnp.bfloat16
    assert state.last_step_size.dtype == jnp.float32
    assert state.step_history.recent_steps.dtype == jnp.float32
    np.testing.assert_allclose(state.last_step_size, twin(DELAYS, 0.3)[-1], atol=1e-7)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_history_follows_the_widest_parameter():
    tree = {"a": jnp.ones(2, jnp.float32), "b": jnp.ones((), jnp.float64)}
    updates, state = run(steps.scale_by_adaptive_1(0.3, max_delay=8), tree)
    assert state.last_step_size.dtype == jnp.float64
    assert (updates[0]["a"].dtype, updates[0]["b"].dtype) == (jnp.float32, jnp.float64)
    assert float(updates[-1]["b"]) == pytest.approx(oracle.adaptive_1(DELAYS, 0.3)[-1], abs=1e-14)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("rule", RULES)
def test_schedule_equals_the_transformation_inside_inject_hyperparams(rule):
    factory, schedule, twin = RULES[rule]
    grad = jnp.array([1.0, -2.0])
    plain, _ = run(optax.chain(factory(0.3, max_delay=8), optax.scale(-1.0)), grad)
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=schedule(0.3, max_delay=8))
    scheduled, state = run(optimizer, grad)
    np.testing.assert_array_equal(plain, scheduled)
    assert float(optax.tree.get(state, "last_step_size")) == float(
        state.hyperparams["learning_rate"]
    )
    np.testing.assert_allclose(np.array(plain)[:, 0], -twin(DELAYS, 0.3), atol=1e-14)


@pytest.mark.parametrize("rule", RULES)
def test_injected_hyperparameters(rule):
    factory = RULES[rule][0]
    grad = jnp.ones(2)
    expected, _ = run(factory(0.3), grad)
    injected = optax.inject_hyperparams(factory)(0.3)
    state = injected.init(grad)
    update = jax.jit(injected.update)
    for delay, row in zip(DELAYS, expected, strict=True):
        actual, state = update(grad, state, grad, delay=delay)
        np.testing.assert_allclose(actual, row, rtol=1e-6)
    state.hyperparams["step_size"] = jnp.float32(0.0)
    actual, _ = update(grad, state, grad, delay=0)
    np.testing.assert_array_equal(actual, 0)


def test_capacity_must_be_static_in_a_jitted_init():
    grad = jnp.ones(2)
    with pytest.raises(TypeError, match=r"max_delay .* static_args=\('max_delay',\)"):
        jax.jit(optax.inject_hyperparams(steps.scale_by_adaptive_1)(0.3).init)(grad)
    static = optax.inject_hyperparams(steps.scale_by_adaptive_1, static_args=("max_delay",))
    state = jax.jit(static(0.3, max_delay=7).init)(grad)
    chex.assert_shape(optax.tree.get(state, "recent_steps"), (7,))


def test_float32_hyperparameters_beside_bfloat16_parameters():
    injected = optax.inject_hyperparams(
        steps.scale_by_adaptive_1, static_args=("max_delay",), hyperparam_dtype=jnp.float32
    )(0.1)
    _, state = run(injected, jnp.ones(2, jnp.bfloat16), delays=[0])
    assert float(optax.tree.get(state, "last_step_size")) == pytest.approx(0.09, rel=1e-6)


def test_a_zero_step_ignores_a_gradient_that_is_not_finite():
    rule = steps.scale_by_adaptive_2(1.0, max_delay=4)
    state = rule.init(jnp.ones(2))
    _, state = rule.update(jnp.ones(2), state, delay=0)
    update, state = rule.update(jnp.array([jnp.nan, jnp.inf]), state, delay=1)
    np.testing.assert_array_equal(update, 0)
