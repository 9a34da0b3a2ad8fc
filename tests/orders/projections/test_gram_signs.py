"""The sign recursion on a Gram matrix: the scan and the definition."""

import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.orders.kernels import balance_signs, gram_signs


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5, 16, 130])
def test_both_forms_decide_alike(count):
    draws = np.random.default_rng(count)
    vectors = draws.standard_normal((count, 24)).astype(np.float32)
    start = draws.standard_normal(24).astype(np.float32)
    gram, inner = jnp.asarray(vectors @ vectors.T), jnp.asarray(vectors @ start)
    wanted, _ = balance_signs(vectors, start)
    np.testing.assert_array_equal(gram_signs(gram, inner), wanted)
    assert gram_signs(gram, inner).dtype == jnp.int8


def test_ties_give_plus():
    assert gram_signs(jnp.zeros((3, 3)), jnp.zeros(3)).tolist() == [1, 1, 1]
    assert gram_signs(jnp.zeros((0, 0)), jnp.zeros(0)).shape == (0,)
    with pytest.raises(ValueError, match=r"\[K, K\] and \[K\]"):
        gram_signs(jnp.zeros((3, 2)), jnp.zeros(3))
