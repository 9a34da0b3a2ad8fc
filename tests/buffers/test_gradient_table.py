"""The gradient table against a NumPy array of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import buffers


def test_mean_divides_by_all_rows():
    table = buffers.gradient_table(4)
    state, rows = table.init({"w": jnp.zeros(2)}), np.zeros((4, 2))
    put = jax.jit(table.put)
    for k, worker in enumerate([2, 0, 2, 1, 0]):
        grad = np.array([k + 1.0, -k])
        rows[worker] = grad
        state = put(state, worker, {"w": jnp.asarray(grad, jnp.float32)})
        np.testing.assert_allclose(table.mean(state)["w"], rows.sum(axis=0) / 4, rtol=1e-6)


def test_several_rows_at_once_with_padding():
    table = buffers.gradient_table(3)
    state = jax.jit(table.put)(  # 3 is no padding: concrete it would be refused
        table.init(jnp.zeros(2)),
        jnp.array([2, -1, 0, 3]),
        jnp.array([[1.0, 2.0], [9.0, 9.0], [3.0, 4.0], [9.0, 9.0]]),
    )
    np.testing.assert_array_equal(state.gradient_rows, [[3, 4], [0, 0], [1, 2]])


@pytest.mark.slow
def test_rows_keep_the_dtype_and_the_mean_is_taken_in_single_precision():
    n = 512
    table = buffers.gradient_table(n)
    state = table.init(jnp.zeros((), jnp.bfloat16))
    state = table.put(state, jnp.arange(n), jnp.full(n, 1.0078125, jnp.float32))
    assert state.gradient_rows.dtype == jnp.bfloat16
    mean = table.mean(state)
    assert mean.dtype == jnp.bfloat16
    assert float(mean) == 1.0078125


def test_a_replaced_large_row_leaves_nothing_behind():
    table = buffers.gradient_table(2)
    state = table.init(jnp.float32(0))
    for worker, grad in ((0, 1e8), (1, 1e-3), (0, 1e-3)):
        state = table.put(state, worker, jnp.float32(grad))
    np.testing.assert_allclose(table.mean(state), 1e-3, rtol=1e-6)
