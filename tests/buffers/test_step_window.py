"""The step history against sums of a Python list."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import buffers

CAPACITY, LENGTH = 5, 12


@jax.jit
def windows(steps, delays):
    history = buffers.step_window(CAPACITY)

    def body(state, inputs):
        step, delay = inputs
        return history.push(state, step), history.window(state, delay)

    return jax.lax.scan(body, history.init(), (steps, delays))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0, 1, width=32, allow_subnormal=False), min_size=LENGTH, max_size=LENGTH),
    st.lists(st.integers(-2, 15), min_size=LENGTH, max_size=LENGTH),
)
def test_window_is_the_sum_of_the_last_steps(steps, delays):
    state, sums = windows(jnp.array(steps, jnp.float32), jnp.array(delays, jnp.int32))
    for k, delay in enumerate(delays):
        clipped = min(max(delay, 0), k)
        expected = np.inf if clipped > CAPACITY else sum(steps[k - clipped : k])
        np.testing.assert_allclose(sums[k], expected, rtol=1e-6)
        if not clipped:
            assert sums[k] == 0
    assert int(state.steps_pushed) == LENGTH


def test_counter_saturates_and_the_ring_goes_on():
    history = buffers.step_window(2)
    state = history.init()._replace(steps_pushed=jnp.int32(np.iinfo(np.int32).max))
    state = history.push(history.push(state, 1.0), 2.0)
    assert int(state.steps_pushed) == np.iinfo(np.int32).max
    assert float(history.window(state, 2)) == 3.0


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_double_precision():
    history = buffers.step_window(2, jnp.float64)
    state = history.push(history.init(), 0.1)
    assert history.window(state, 1).dtype == jnp.float64
    assert float(history.window(state, 1)) == 0.1


def test_an_old_large_step_leaves_nothing_behind():
    history = buffers.step_window(3)
    state = history.init()
    for step in (1e8, 1e-3, 1e-3, 1e-3):
        state = history.push(state, step)
    np.testing.assert_allclose(history.window(state, 3), 3e-3, rtol=1e-6)
