"""Signs, places and prefix sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import orders
from tests.oracles import orders as oracle
from tests.orders.shared import all_orders, from_identity, gaussian


@pytest.mark.parametrize("block", [1, 3, 8, 64])
def test_kernels_follow_their_twin(block):
    vectors, start = gaussian(50, 7, seed=1), gaussian(7, seed=2)
    expected, total = oracle.balance(vectors, start)
    signs, running_sum = orders.balance_signs(vectors, start, block=block)
    np.testing.assert_array_equal(signs, expected)
    np.testing.assert_allclose(running_sum, total, rtol=1e-4, atol=1e-5)
    signs, running_sum = orders.pair_signs(vectors, start, block=block)
    np.testing.assert_array_equal(signs, np.stack([expected, -expected], 1).ravel())
    np.testing.assert_allclose(running_sum, total, rtol=1e-4, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([3, 8]), st.integers(1, 9))
def test_blocks_decide_exactly_as_the_scan_ties_included(seed, block, largest):
    integers = np.random.default_rng(seed).integers(-largest, largest + 1, (19, 3))
    vectors = integers.astype(np.float32)  # exact sums, many ties
    signs, running_sum = orders.balance_signs(vectors, np.zeros(3))
    in_blocks, blocked_sum = orders.balance_signs(vectors, np.zeros(3), block=block)
    np.testing.assert_array_equal(in_blocks, signs)
    np.testing.assert_array_equal(blocked_sum, running_sum)
    expected, total = oracle.balance(vectors)
    np.testing.assert_array_equal(signs, expected)
    np.testing.assert_array_equal(running_sum, total)


def test_no_vectors_have_no_signs():
    for block in (1, 4):
        signs, running_sum = orders.balance_signs(np.zeros((0, 2)), np.ones(2), block=block)
        assert signs.shape == (0,)
        assert running_sum.tolist() == [1.0, 1.0]


@pytest.mark.slow
def test_precision_is_float32_or_what_is_given(float64):
    def dtypes(vectors, start, block):
        signs, total = orders.balance_signs(jnp.ones((4, 2), vectors), jnp.ones(2, start), block)
        return signs.dtype, total.dtype

    for block in (1, 2):
        assert dtypes("bfloat16", "bfloat16", block) == (jnp.int8, jnp.float32)
        assert dtypes("bfloat16", "float32", block) == (jnp.int8, jnp.float32)
        assert dtypes("float64", "float32", block) == (jnp.int8, jnp.float64)
        assert dtypes("float32", "float64", block) == (jnp.int8, jnp.float64)
    norms = orders.prefix_norms(jnp.ones((2, 1), "bfloat16"), jnp.arange(2))
    assert norms.l2.dtype == norms.linf.dtype == jnp.float32
    assert orders.prefix_norms(jnp.ones((2, 1)), jnp.arange(2)).l2.dtype == jnp.float64


def test_bfloat16_sums_do_not_stall():
    vectors = jnp.full((512, 1), 1.0, jnp.bfloat16).at[0, 0].set(-300.0)
    _, running_sum = orders.balance_signs(vectors, jnp.zeros(1, jnp.bfloat16))
    assert float(running_sum[0]) == oracle.balance(np.asarray(vectors, np.float64))[1][0]


@pytest.mark.slow
def test_pairs_do_not_see_a_common_vector_and_grab_does():
    vectors = np.round(8 * gaussian(12, 5, seed=3)) / 8  # exact sums
    moved = vectors + np.float32(3.0)
    pair, grab = orders.pair_balanced(12, 5), orders.grab(12, 5)
    np.testing.assert_array_equal(
        all_orders(pair, from_identity(pair), moved, 3),
        all_orders(pair, from_identity(pair), vectors, 3),
    )
    found = all_orders(grab, from_identity(grab), moved, 1)
    assert (found != all_orders(grab, from_identity(grab), vectors, 1)).any()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=9, max_size=9), st.permutations(range(9)))
def test_reorder_follows_its_twin(signs, order):
    found = orders.reorder(np.array(order), np.array(signs, np.int8))
    assert found.tolist() == oracle.reorder(order, signs)


def test_a_reordering_halves_what_is_unbalanced():
    for seed in range(20):
        vectors = gaussian(64, 6, seed=seed)
        vectors -= vectors.mean(axis=0)
        order = np.random.default_rng(seed).permutation(64)
        signs, _ = orders.balance_signs(vectors[order], np.zeros(6))
        signed = np.cumsum(np.asarray(signs)[:, None] * vectors[order], axis=0)
        old = float(orders.prefix_norms(vectors, order).linf)
        new = float(orders.prefix_norms(vectors, orders.reorder(order, signs)).linf)
        assert new <= (old + np.abs(signed).max()) / 2 + 1e-4


def test_prefix_norms_follow_their_twin():
    shards = [gaussian(9, 4, seed=1), gaussian(9, 4, seed=2)]
    order = np.stack([np.random.default_rng(j).permutation(9) for j in range(2)])
    norms = orders.prefix_norms(np.stack(shards), order)
    np.testing.assert_allclose(norms, oracle.prefix_norms(shards, order), rtol=1e-5)
    norms = orders.prefix_norms(shards[0], order[0])
    np.testing.assert_allclose(norms, oracle.prefix_norms(shards[:1], order[:1]), rtol=1e-5)


def test_prefix_norms_of_unequal_shards_leave_gaps_out():
    shards = [gaussian(9, 4, seed=1), gaussian(5, 4, seed=2)]
    vectors = np.full((2, 9, 4), np.nan, np.float32)
    vectors[0], vectors[1, :5] = shards
    order = np.full((2, 9), -1)
    order[0], order[1, ::2] = np.arange(9), np.arange(5)[::-1]
    norms = orders.prefix_norms(vectors, order)
    expected = oracle.prefix_norms(shards, order)
    np.testing.assert_allclose(norms, expected, rtol=1e-5)


def test_kernels_work_under_vmap():
    vectors = gaussian(3, 20, 4)
    signs, _ = jax.vmap(orders.balance_signs, (0, None))(vectors, jnp.zeros(4))
    found = jax.vmap(orders.reorder, (None, 0))(jnp.arange(20), signs)
    for j in range(3):
        expected, _ = oracle.balance(vectors[j])
        assert found[j].tolist() == oracle.reorder(range(20), expected)
