"""Staleness scales, dropping, compensation and artificial delay."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps


@pytest.mark.parametrize("kind", ["inverse", "polynomial", "hinge", "concurrency"])
def test_factors_fall_from_one(kind):
    rule = steps.scale_by_staleness(kind, n_workers=3)
    factors = jax.vmap(lambda delay: rule.update(1.0, optax.EmptyState(), delay=delay)[0])(
        jnp.arange(-1, 50)
    )
    assert factors[0] == factors[1] == 1
    assert (np.diff(factors) <= 0).all()
    assert 0 < factors[-1] < 0.2


def test_exponents_may_be_swept_by_vmap():
    def factor(exponent):
        rule = steps.scale_by_staleness("polynomial", exponent=exponent)
        return rule.update(jnp.float32(1), optax.EmptyState(), delay=3)[0]

    np.testing.assert_allclose(jax.vmap(factor)(jnp.array([0.0, 0.5, 1.0])), [1, 0.5, 0.25])


def test_dropped_gradient_becomes_exact_zeros_even_from_nan():
    rule = steps.drop_stale(3)
    bad = {"a": jnp.array([jnp.nan, jnp.inf, 1.0]), "b": jnp.ones((), jnp.bfloat16)}
    state = rule.init(bad)
    dropped, state = rule.update(bad, state, delay=3)
    chex.assert_trees_all_equal(dropped, jax.tree.map(jnp.zeros_like, bad))
    kept, state = rule.update(bad, state, delay=2)
    chex.assert_trees_all_equal(kept, bad)
    assert int(state.dropped_gradients) == 1


@pytest.mark.parametrize(
    "inner",
    [
        optax.adam(0.1),
        optax.sgd(0.1, momentum=0.9),
        optax.noisy_sgd(0.1, key=jax.random.key(3)),
        steps.delay_adaptive_sgd(0.5, max_delay=8),
    ],
    ids=["adam", "momentum", "noisy_sgd", "delay_adaptive_sgd"],
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


def test_filter_in_front_of_adam_still_decays_its_moments():
    params = jnp.array([1.0])
    chain = optax.chain(steps.drop_stale(1), optax.adam(0.1))
    _, state = chain.update(params, chain.init(params), params, delay=0)
    before = optax.tree.get(state, "mu")
    _, state = chain.update(params, state, params, delay=5)
    assert float(optax.tree.get(state, "mu")[0]) == pytest.approx(0.9 * float(before[0]))


def test_wrapper_hides_dropped_gradients_from_the_adaptive_history():
    rule = steps.drop_stale(2, steps.scale_by_adaptive_1(1.0, max_delay=8))
    one = jnp.ones(())
    state = rule.init(one)
    outputs = []
    for delay in (0, 2, 2, 1):
        update, state = rule.update(one, state, delay=delay)
        outputs.append(float(update))
    np.testing.assert_allclose(outputs, [0.9, 0, 0, 0.09], rtol=1e-5)


def test_compensation_is_elementwise():
    rule = steps.compensate_delay(0.5)
    g = {"a": jnp.array([1.0, -2.0]), "b": jnp.float32(3.0)}
    params = {"a": jnp.array([4.0, 4.0]), "b": jnp.float32(0.0)}
    read = {"a": jnp.array([3.0, 6.0]), "b": jnp.float32(0.0)}
    update, _ = rule.update(g, rule.init(params), params, read_params=read, delay=7)
    np.testing.assert_allclose(update["a"], [1 + 0.5 * 1 * 1, -2 + 0.5 * 4 * -2])
    assert float(update["b"]) == 3.0


def test_compensation_is_exact_for_a_logistic_unit_to_first_order():
    # The Hessian of exp(x) is its gradient; g * g = g at x = 0, where the guess is exact.
    grad = jax.grad(jnp.exp)
    read, params = jnp.float32(0.0), jnp.float32(0.01)
    rule = steps.compensate_delay(1.0)
    update, _ = rule.update(grad(read), rule.init(params), params, read_params=read)
    assert abs(float(update - grad(params))) < 1e-4 < abs(float(grad(read) - grad(params)))


def test_compensation_takes_a_mask():
    rule = steps.compensate_delay(0.5)
    tree = {"a": jnp.ones(2), "b": jnp.ones(2)}
    masked = optax.masked(rule, {"a": True, "b": False})
    read = jax.tree.map(jnp.zeros_like, tree)
    update, _ = masked.update(tree, masked.init(tree), tree, read_params=read)
    np.testing.assert_array_equal(update["a"], 1.5)
    np.testing.assert_array_equal(update["b"], 1.0)


@pytest.mark.parametrize("delay", [0, 1, 4])
def test_gradients_leave_the_queue_in_order(delay):
    rule = steps.delay_gradients(delay)
    grads = jnp.arange(1.0, 13.0).reshape(6, 2)

    def body(state, grad):
        update, state = rule.update(grad, state, delay=99)
        return state, update

    _, late = jax.lax.scan(body, rule.init(grads[0]), grads)
    expected = np.concatenate([np.zeros((delay, 2)), grads[: 6 - delay]])
    np.testing.assert_array_equal(late, expected)


def test_delayed_gradients_keep_mixed_dtypes():
    params = {"a": jnp.zeros(2, jnp.bfloat16), "b": jnp.zeros(())}
    rule = steps.delay_gradients(1)
    state = rule.init(params)
    for _ in range(2):
        update, state = rule.update(jax.tree.map(jnp.ones_like, params), state)
    chex.assert_trees_all_equal(update, jax.tree.map(jnp.ones_like, params))


def test_fixed_rules():
    one = jnp.ones(())
    for rule, expected in (
        (steps.worst_case(0.6, 5), 0.1),
        (steps.sun(0.6, 1), 0.4),
        (steps.worst_case(0.6, 0), 0.6),
    ):
        state = rule.init(one)
        assert float(state.last_step_size) == pytest.approx(expected)
        update, state = rule.update(one, state, delay=3, worker=1)
        assert float(update) == pytest.approx(expected)
        assert float(state.last_step_size) == pytest.approx(expected)


def test_concurrency_bound():
    rule = steps.scale_by_concurrency_bound(0.05, concurrency=4, smoothness=2.0)
    one = jnp.ones(())
    state = rule.init(one)
    for delay, expected in ((0, 0.05), (4, 0.05), (5, 1 / 40), (2, 0.05), (50, 1 / 400)):
        update, state = rule.update(one, state, delay=delay)
        assert float(update) == pytest.approx(expected)
        assert float(state.last_step_size) == pytest.approx(expected)
    short = steps.scale_by_concurrency_bound(1e-3, concurrency=1, smoothness=1.0)
    assert float(short.update(one, short.init(one), delay=9)[0]) == pytest.approx(1e-3)
