"""Gradient codes: every set of late workers decodes, fewer answers come as close as they can."""

from itertools import chain, combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.stragglers import cyclic_code, fractional_code, gradient_coding
from asyncjax.stragglers.policies.coding import decoded
from tests.oracles import policies as oracle
from tests.stragglers.policies.following import chosen

SIZES = [(1, 0), (4, 0), (5, 1), (5, 2), (6, 3), (6, 5), (7, 2), (8, 3)]
GROUPS = [(4, 1), (6, 1), (6, 2), (6, 5), (8, 3)]

decode_all = jax.jit(jax.vmap(lambda code, used: decoded(code, used)[1], in_axes=(None, 0)))


def answers(n, sizes):
    """All sets of answers of the given sizes, bool[F, n]."""
    sets = list(chain.from_iterable(combinations(range(n), size) for size in sizes))
    used = np.zeros((len(sets), n), bool)
    for row, members in zip(used, sets, strict=True):
        row[list(members)] = True
    return used


@pytest.mark.parametrize(("n", "s"), SIZES)
def test_rows_of_the_cyclic_code_are_cyclic(n, s):
    code = cyclic_code(n, s)
    assert code.dtype == np.float64
    expected = [[(j - i) % n <= s for j in range(n)] for i in range(n)]
    np.testing.assert_array_equal(code != 0, expected)
    np.testing.assert_allclose((code**2).sum(axis=1), s + 1)
    rank = np.linalg.matrix_rank(code)
    assert rank == n - s
    if s:
        assert np.linalg.svd(code, compute_uv=False)[n - s - 1] > 0.1


CODES = [
    *(pytest.param(cyclic_code, n, s, id=f"cyclic-{n}-{s}") for n, s in SIZES),
    *(pytest.param(fractional_code, n, s, id=f"fractional-{n}-{s}") for n, s in GROUPS),
]


@pytest.mark.parametrize(("make", "n", "s"), CODES)
def test_all_sets_of_answers(make, n, s):
    code, used = make(n, s), answers(n, range(n + 1))
    is_exact = used.sum(axis=1) >= n - s
    weights = decode_all(jnp.asarray(code, jnp.float32), used)
    assert weights.dtype == jnp.float32
    np.testing.assert_allclose(weights[is_exact], 1.0, atol=1e-5)
    expected = [oracle.decoded(code, row) for row in used]
    np.testing.assert_allclose(weights, expected, atol=1e-4)
    with jax.enable_x64(True):
        weights = decode_all(jnp.asarray(code), used)
    np.testing.assert_allclose(weights[is_exact], 1.0, atol=1e-10)
    np.testing.assert_allclose(weights, expected, atol=1e-9)
    assert not np.any(weights[0])


def test_a_code_does_not_know_its_scale():
    code, used = cyclic_code(7, 2), answers(7, range(8))
    plain = decode_all(jnp.asarray(code, jnp.float32), used)
    for scale in (1e-12, 1e12):
        scaled = decode_all(jnp.asarray(code * scale, jnp.float32), used)
        np.testing.assert_allclose(scaled, plain, atol=2e-5)


def test_more_workers_are_decoded_too():
    for n, s in ((20, 3), (30, 2)):
        code = cyclic_code(n, s)
        late = np.random.default_rng(n).random((64, n)).argsort(axis=1)[:, :s]
        used = np.ones((64, n), bool)
        np.put_along_axis(used, late, False, axis=1)
        error = max(abs(oracle.decoded(code, row) - 1).max() for row in used)
        assert error < 1e-9


def test_keys_make_other_codes_and_the_same_key_the_same():
    first, again = cyclic_code(6, 2), cyclic_code(6, 2)
    np.testing.assert_array_equal(first, again)
    other = cyclic_code(6, 2, key=jax.random.key(1))
    assert np.abs(first - other).max() > 1e-3
    with jax.enable_x64(True):
        np.testing.assert_allclose(cyclic_code(6, 2), first, rtol=1e-9)


def test_a_code_is_a_constant_of_a_program():
    code = jax.jit(lambda x: x @ cyclic_code(5, 2).astype(np.float32))(jnp.eye(5))
    np.testing.assert_allclose(code, cyclic_code(5, 2), rtol=1e-6)


def test_the_policy_waits_for_all_but_the_tolerated():
    for make, n, s in ((cyclic_code, 5, 2), (fractional_code, 6, 1), (cyclic_code, 4, 0)):
        code = make(n, s)
        policy = gradient_coding(code, 8, tolerated=s)
        choice = chosen(policy, 3, n_workers=n)
        np.testing.assert_array_equal(choice.k, [n - s] * 3)
        np.testing.assert_array_equal(choice.load, [8 * (s + 1)] * 3)
        np.testing.assert_array_equal(policy.code, code)
        assert (policy.max_load, policy.copies) == (8 * (s + 1), s + 1)
        assert not policy.varies_load
        leaves, structure = jax.tree.flatten(policy)
        assert jax.tree.unflatten(structure, leaves).copies == s + 1


def test_a_code_that_only_comes_close_is_allowed_if_asked_for():
    policy = gradient_coding(fractional_code(6, 1), 8, tolerated=2, exact=False)
    assert (policy.copies, int(chosen(policy, 2, n_workers=6).k[0])) == (2, 4)
