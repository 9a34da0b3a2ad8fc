"""Late gradients corrected by how far the model moved: plain loops, known divisors."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from tests.oracles import outer_steps, steps as oracle
from tests.steps.loops import updates_of


def random_gradients(n, seed=0):
    return list(np.random.default_rng(seed).normal(size=(n, 3)))


@pytest.mark.usefixtures("float64")
def test_adaptive_compensation_equals_a_plain_loop():
    grads = random_gradients(6)
    x = jnp.array([1.0, -1.0, 0.5])
    reads = np.array([x + 0.1 * k for k in range(6)])
    rule = steps.compensate_delay_adaptively(2.0, decay=0.95, epsilon=1e-7)
    updates, _ = updates_of(rule, grads, read_params=reads, params=x)
    expected = oracle.compensated_adaptively(grads, np.asarray(x), reads)
    np.testing.assert_allclose(updates, expected, rtol=1e-13)
    silent, _ = updates_of(
        steps.compensate_delay_adaptively(0.0), grads, read_params=reads, params=x
    )
    np.testing.assert_array_equal(silent, grads)


def test_adaptive_compensation_survives_gradients_that_are_always_zero():
    rule = steps.compensate_delay_adaptively(2.0, epsilon=0.0)
    updates, _ = updates_of(rule, np.zeros((2, 2)), read_params=np.ones((2, 2)))
    np.testing.assert_array_equal(updates, 0)


def iterates_of(optimizer, grads, delays, x):
    """All iterates, with gradient k taken `delays[k]` updates before update k."""

    @jax.jit
    def step(state, x, grad, read):
        move, state = optimizer.update(grad, state, x, read_params=read)
        return state, x + move

    found, state = [jnp.asarray(x)], optimizer.init(jnp.asarray(x))
    for k, (grad, delay) in enumerate(zip(grads, delays, strict=True)):
        state, x = step(state, found[-1], jnp.asarray(grad), found[max(0, k - delay)])
        found.append(x)
    return np.array(found)


@pytest.mark.parametrize(("decay", "epsilon"), [(0.999, 1e-8), (0.5, 0.0), (0.0, 0.3)])
def test_gap_aware_equals_the_plain_loop(float64, decay, epsilon):
    grads, start = np.array(random_gradients(40)), np.array([1.0, -2.0, 0.5])
    delays = np.random.default_rng(1).integers(0, 6, len(grads))
    optimizer = steps.gap_aware(optax.sgd(0.3), decay=decay, epsilon=epsilon)
    found = iterates_of(optimizer, grads, delays, start)
    reads = [found[max(0, k - delay)] for k, delay in enumerate(delays)]
    expected = outer_steps.gap_aware(
        grads, reads, start, lambda g: -0.3 * g, decay=decay, epsilon=epsilon
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("delay", [1, 2, 7])
def test_steps_that_all_go_the_same_way_divide_by_one_more_than_the_delay(float64, delay):
    """Steps of one size and sign: the gap is `delay` steps, whatever its size."""
    given = []

    def spy(updates, state, params=None):
        given.append(float(updates))
        return -0.25 * jnp.sign(updates), state

    inner = optax.GradientTransformation(lambda params: optax.EmptyState(), spy)
    optimizer, x = steps.gap_aware(inner, epsilon=0.0), [jnp.zeros(())]
    state = optimizer.init(x[0])
    for k in range(12):
        read = x[max(0, k - delay)]
        move, state = optimizer.update(jnp.ones(()), state, x[-1], read_params=read)
        x.append(x[-1] + move)
    np.testing.assert_allclose(given, 1 / (1 + np.minimum(delay, np.arange(12))), rtol=1e-12)
