"""Gap-aware steps: a plain loop, and what the divisor is where it is known."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles import outer_steps

RATE = 0.3


def gradients(n_updates=40, seed=0):
    return np.random.default_rng(seed).normal(size=(n_updates, 3))


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
def test_equals_the_plain_loop(float64, decay, epsilon):
    grads, start = gradients(), np.array([1.0, -2.0, 0.5])
    delays = np.random.default_rng(1).integers(0, 6, len(grads))
    optimizer = steps.gap_aware(optax.sgd(RATE), decay=decay, epsilon=epsilon)
    found = iterates_of(optimizer, grads, delays, start)
    reads = [found[max(0, k - delay)] for k, delay in enumerate(delays)]
    expected = outer_steps.gap_aware(
        grads, reads, start, lambda g: -RATE * g, decay=decay, epsilon=epsilon
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_fresh_gradients_are_left_alone(float64):
    grads, fresh = gradients(), np.zeros(40, int)
    inner = optax.adam(0.1)
    found = iterates_of(steps.gap_aware(inner), grads, fresh, np.ones(3))
    plain = iterates_of(optax.with_extra_args_support(inner), grads, fresh, np.ones(3))
    np.testing.assert_array_equal(found, plain)


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


def test_steps_that_cancel_do_not_count(float64):
    """After two opposite steps the parameter is where it was: the gradient is as good as fresh."""
    optimizer, x = steps.gap_aware(optax.sgd(RATE), epsilon=0.0), jnp.array([1.0])
    state, read = optimizer.init(x), x
    for grad in (1.0, -1.0):
        move, state = optimizer.update(jnp.array([grad]), state, x, read_params=x)
        x = x + move
    move, _ = optimizer.update(jnp.array([1.0]), state, x, read_params=read)
    np.testing.assert_allclose(move, [-RATE], rtol=1e-12)


@pytest.mark.slow
def test_a_replay_hands_it_what_it_needs():
    """On a quadratic with ten even workers it stands a step at which plain SGD diverges."""
    problem = problems.quadratic(np.ones((10, 4)), np.ones((10, 4)))
    trace = traces.asynchronous(clocks.constant(1.0 + 1e-3 * np.arange(10)), n_updates=400)
    ends = [
        simulation.replay(problem, trace, optimizer, key=jax.random.key(0)).records.loss[-1]
        for optimizer in (optax.sgd(0.3), steps.gap_aware(optax.sgd(0.3)))
    ]
    start = simulation.replay(problem, trace, optax.sgd(1e-9), key=jax.random.key(0)).records.loss
    assert not ends[0] < start[0]
    assert ends[1] < 0.1 * start[0]
