"""`delay_gradients`: constant, by leaf, drawn; with an inner optimizer and its parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from tests.oracles import steps as oracle

GRADS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)


def scanned(transform, params=None):
    """Updates and a record of the state's delays over all of GRADS."""
    params = jnp.zeros(2) if params is None else params

    def body(state, grad):
        update, state = transform.update(grad, state, params)
        return state, update

    return jax.jit(lambda: jax.lax.scan(body, transform.init(params), jnp.asarray(GRADS)))()


@pytest.mark.parametrize("delay", [0, 1, 5, 39, 60])
def test_constant_delay(delay):
    _, updates = scanned(steps.delay_gradients(delay))
    np.testing.assert_array_equal(updates, oracle.delayed(GRADS, [delay] * 40))


def test_every_leaf_has_its_delay():
    grads = {"stage0": {"w": GRADS, "b": GRADS[:, 0]}, "stage1": GRADS[:, 1]}
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:]), grads)
    late = steps.delay_gradients({"stage0": 4, "stage1": 1})

    def body(state, grad):
        update, state = late.update(grad, state)
        return state, update

    _, updates = jax.lax.scan(body, late.init(params), jax.tree.map(jnp.asarray, grads))
    np.testing.assert_array_equal(updates["stage0"]["w"], oracle.delayed(GRADS, [4] * 40))
    np.testing.assert_array_equal(updates["stage0"]["b"], oracle.delayed(GRADS[:, 0], [4] * 40))
    np.testing.assert_array_equal(updates["stage1"], oracle.delayed(GRADS[:, 1], [1] * 40))


def which(updates):
    """The number of the gradient that each update repeats."""
    return np.array([int(np.flatnonzero((row == GRADS).all(axis=1))[0]) for row in updates])


@pytest.mark.slow
def test_drawn_delays_stay_within_bounds_and_follow_the_key():
    late = steps.delay_gradients(6, key=jax.random.key(3))
    _, updates = scanned(late)
    delays = np.arange(40) - which(np.asarray(updates))
    assert delays.min() >= 0
    assert (delays <= np.minimum(6, np.arange(40))).all()
    assert len(set(delays[6:].tolist())) >= 5
    np.testing.assert_array_equal(scanned(late)[1], updates)
    other = scanned(steps.delay_gradients(6, key=jax.random.key(4)))[1]
    assert not np.array_equal(other, updates)


def test_drawn_delays_follow_their_probabilities():
    late = steps.delay_gradients(3, key=jax.random.key(0), probabilities=[0.0, 1.0, 0.0, 3.0])
    state, counts = late.init(jnp.zeros(())), np.zeros(4)
    update = jax.jit(late.update)
    for k in range(400):
        given, state = update(jnp.float32(k), state)
        if k >= 3:
            counts[k - int(given)] += 1
    assert counts[0] == counts[2] == 0
    np.testing.assert_allclose(counts[3] / counts.sum(), 0.75, atol=0.08)


def test_the_inner_optimizer_is_told_the_delay():
    inner = steps.scale_by_adaptive_1(1.0, max_delay=8)
    _, updates = scanned(steps.delay_gradients(3, inner))
    gamma = oracle.adaptive_1(np.minimum(np.arange(40), 3))
    expected = gamma[:, None] * oracle.delayed(GRADS, [3] * 40)
    np.testing.assert_allclose(updates, expected, atol=1e-6)
    drawn = steps.delay_gradients(
        3, steps.scale_by_delay(lambda delay: delay), key=jax.random.key(1)
    )
    _, scaled = scanned(drawn)
    _, plain = scanned(steps.delay_gradients(3, key=jax.random.key(1)))
    delays = np.arange(40) - which(np.asarray(plain))
    np.testing.assert_allclose(scaled, delays[:, None] * np.asarray(plain), rtol=1e-6)


def test_a_donated_state_leaves_the_key_usable():
    key = jax.random.key(0)
    late = steps.delay_gradients(2, key=key)
    update = jax.jit(lambda state: late.update(jnp.zeros(2), state)[1], donate_argnums=0)
    for _ in range(2):
        update(update(late.init(jnp.zeros(2))))
    assert key.shape == ()


CURVATURE = np.array([1.0, 0.3, 0.05])


START = np.array([2.0, -1.0, 3.0])


RULES = {
    "compensate_delay": (
        lambda: optax.chain(steps.compensate_delay(0.4), optax.sgd(0.1)),
        oracle.compensated_change(0.1, 0.4),
    ),
    "picky_sgd": (
        lambda: steps.picky_sgd(0.35, optax.sgd(0.1)),
        oracle.distant_change(0.1, 0.35),
    ),
    "mix_models": (
        lambda: steps.mix_models(0.3, local_scale=0.5),
        oracle.mixed_change(0.3, 0.5),
    ),
}


def gradient(x):
    """Of a quadratic with a quartic term, so that curvature changes."""
    return CURVATURE * x + 0.02 * x**3


def path(optimizer, n_updates):
    """The iterates of an ordinary loop whose optimizer makes it late."""

    def body(carry, _):
        params, state = carry
        updates, state = optimizer.update(gradient(params), state, params)
        return (optax.apply_updates(params, updates), state), params

    start = jnp.asarray(START)
    run = jax.jit(lambda: jax.lax.scan(body, (start, optimizer.init(start)), length=n_updates))
    (last, state), iterates = run()
    return np.concatenate([iterates, last[None]]), state


@pytest.mark.parametrize("delay", [0, 1, 4])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("float64")
def test_a_loop_equals_its_twin(rule, delay):
    make, change = RULES[rule]
    iterates, _ = path(steps.delay_gradients(delay, make()), 30)
    expected = oracle.queued(gradient, START, delay, 30, change)
    np.testing.assert_allclose(iterates, expected, rtol=0, atol=1e-12)


def gap(updates, state, params=None, *, read_params, **extra):
    """What is left of a gradient that equals its parameters: nothing, if they belong together."""
    return jax.tree.map(lambda g, x: jnp.where(g == 0, 0, g - x), updates, read_params), state


@pytest.mark.parametrize(
    "late",
    [
        {"delay": 2},
        {"delay": {"a": 3, "b": 1}},
        {"delay": 4, "key": jax.random.key(0)},
    ],
    ids=["constant", "by leaf", "drawn"],
)
def test_every_gradient_comes_with_its_own_parameters(late):
    inner = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), gap)
    optimizer = steps.delay_gradients(**late, inner=inner)
    state = optimizer.init({"a": jnp.zeros(2), "b": jnp.zeros(())})
    update = jax.jit(optimizer.update)
    for k in range(12):
        params = {"a": jnp.array([k + 1.0, -k - 2.0]), "b": jnp.float32(k + 3)}
        left, state = update(params, state, params)
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(left))
    # A loop that takes gradients elsewhere says where.
    read = jax.tree.map(lambda leaf: leaf / 2, params)
    for _ in range(6):
        left, state = update(read, state, params, read_params=read)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(left))


@pytest.mark.parametrize(
    ("inner", "keeps"),
    [
        (steps.compensate_delay(0.1), True),
        (optax.chain(steps.scale_by_adaptive_2(0.5), steps.compensate_delay(0.1)), True),
        (optax.masked(steps.compensate_delay(0.1), {"w": True, "b": False}), True),
        (steps.oldest_delay(steps.mix_models(0.5, local_scale=1.0), 2), True),
        (steps.mix_models(0.5), False),
        (optax.adam(0.1), False),
        (None, False),
    ],
)
def test_parameters_are_kept_only_where_they_are_asked_for(inner, keeps):
    params = {"w": jnp.ones(2), "b": jnp.ones(())}
    state = steps.delay_gradients(2, inner).init(params)
    assert (state.queued_params is not None) is keeps
    said = steps.delay_gradients(2, inner, keep_params=not keeps).init(params)
    assert (said.queued_params is None) is keeps
