"""Balancing from projections: against explicit gradients, at its edges, and where it fails."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from asyncjax.orders.kernels import pair_signs, prefix_norms, reorder
from asyncjax.orders.projected import directional_signs
from tests.oracles import directional as oracle

KEY = jax.random.key(0)
FEATURES = np.random.default_rng(0).standard_normal((36, 6))
TARGETS = np.random.default_rng(1).integers(0, 4, 36)


def losses_of_rows(params, rows):
    features, targets = rows
    scores = jnp.tanh(features @ params["first"]) @ params["second"] + params["bias"]
    return -jax.nn.log_softmax(scores)[jnp.arange(targets.shape[0]), targets]


def problem(n, dtype=jnp.float64):
    first, second = jax.random.split(KEY)
    params = {
        "first": jax.random.normal(first, (6, 5), dtype),
        "second": jax.random.normal(second, (5, 4), dtype),
        "bias": jnp.zeros(4, dtype),
    }
    rows = (jnp.asarray(FEATURES[:n], dtype), jnp.asarray(TARGETS[:n]))
    running_sum = jax.tree.map(lambda leaf: 0.3 * jnp.cos(leaf), params)
    return params, rows, running_sum


def decide(losses, params, running_sum, examples=None, **options):
    """One compiled call."""
    call = jax.jit(partial(directional_signs, losses, **options))
    return call(params, running_sum, examples=examples)


@jax.jit
def gradients_of(params, rows):
    jacobian = jax.jacrev(losses_of_rows)(params, rows)
    return jax.vmap(lambda tree: ravel_pytree(tree)[0])(jacobian)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("block", "rank_one"), [(1, True), (8, False), (None, True)])
def test_signs_and_sums_are_those_of_explicit_gradients(float64, block, rank_one, given):
    params, rows, running_sum = problem(36)
    gradients, start = gradients_of(params, rows), ravel_pytree(running_sum)[0]
    wanted, wanted_sum = oracle.stale_pairs(gradients, start, block or 18, rank_one)
    options = {"pairs_per_block": block, "rank_one": rank_one}
    if given:
        got = decide(losses_of_rows, params, running_sum, examples=rows, **options)
    else:
        got = decide(lambda p: losses_of_rows(p, rows), params, running_sum, **options)
    signs, mean, total = got
    assert signs.dtype == jnp.int8
    np.testing.assert_array_equal(signs, wanted)
    np.testing.assert_allclose(ravel_pytree(total)[0], wanted_sum, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ravel_pytree(mean)[0], gradients.mean(0), rtol=1e-10, atol=1e-12)


def test_pairs_of_a_dense_network_are_decided_exactly_where_no_block_is_asked_for(float64):
    params, rows, running_sum = problem(36)
    gradients, start = gradients_of(params, rows), ravel_pytree(running_sum)[0]
    wanted, total = pair_signs(gradients[0::2] - gradients[1::2], start)
    signs, mean, got = decide(losses_of_rows, params, running_sum, examples=rows)
    np.testing.assert_array_equal(signs, wanted)
    np.testing.assert_allclose(ravel_pytree(got)[0], total, rtol=1e-10)
    np.testing.assert_allclose(ravel_pytree(mean)[0], gradients.mean(0), rtol=1e-10, atol=1e-12)


def test_another_network_takes_blocks_of_eight_pairs_where_none_is_asked_for(float64):
    params, rows, running_sum = problem(36)

    def penalised(params, rows):
        return losses_of_rows(params, rows) + 0.1 * jnp.sum(params["first"] ** 2)

    got, wanted = (
        decide(penalised, params, running_sum, examples=rows, **options)
        for options in ({}, {"pairs_per_block": 8})
    )
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_losses_with_a_custom_vjp_need_the_reverse_form(float64):
    params, rows, running_sum = problem(16)

    @jax.custom_vjp
    def doubled(x):
        return 2 * x

    doubled.defvjp(lambda x: (2 * x, None), lambda _, weights: (2 * weights,))

    def losses(params):
        return doubled(losses_of_rows(params, rows))

    with pytest.raises(TypeError, match="forward_mode=False"):
        decide(losses, params, running_sum)
    got = decide(losses, params, running_sum, forward_mode=False)
    wanted = decide(lambda p: 2 * losses_of_rows(p, rows), params, running_sum)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.slow
def test_ties_and_an_empty_running_sum_give_plus():
    params, rows, running_sum = problem(16, jnp.float32)
    zeros = jax.tree.map(jnp.zeros_like, running_sum)
    signs, _, total = decide(lambda p: losses_of_rows(p, rows), params, zeros)
    assert signs.tolist() == [1, -1] * 8
    assert float(jnp.abs(ravel_pytree(total)[0]).max()) > 0
    twins = jax.tree.map(lambda leaf: jnp.repeat(leaf[:8], 2, axis=0), rows)
    signs, _, total = decide(losses_of_rows, params, running_sum, examples=twins, pairs_per_block=3)
    assert signs.tolist() == [1, -1] * 8
    np.testing.assert_allclose(ravel_pytree(total)[0], ravel_pytree(running_sum)[0], atol=1e-6)


def herded(vectors, pairs_per_block, rank_one, n_epochs=10):
    """Largest prefix norm after some epochs of fixed vectors: losses linear in the parameters."""
    n, dim = vectors.shape

    @jax.jit
    def epoch(order):
        signs, _, _ = directional_signs(
            lambda params, rows: rows @ params,
            jnp.zeros(dim),
            jnp.zeros(dim),
            examples=vectors[order],
            pairs_per_block=pairs_per_block,
            rank_one=rank_one,
        )
        return reorder(order, signs)

    order = jnp.arange(n, dtype=jnp.int32)
    for _ in range(n_epochs):
        order = epoch(order)
    return float(prefix_norms(vectors, order).l2)


@pytest.mark.slow
def test_quality_by_block_and_the_failure_at_one_dominant_direction():
    draws = np.random.default_rng(2)
    isotropic = jnp.asarray(draws.standard_normal((512, 64)), jnp.float32)
    random = float(prefix_norms(isotropic, jnp.arange(512)).l2)
    exact, eight = (herded(isotropic, block, True) for block in (1, 8))
    assert exact < 0.6 * random
    assert eight < 1.2 * exact
    dominant = isotropic * 0.3 + 5 * draws.standard_normal((512, 1)) * np.eye(64)[0]
    dominant = jnp.asarray(dominant, jnp.float32)
    exact, stale, corrected = (
        herded(dominant, *options) for options in ((1, False), (64, False), (64, True))
    )
    assert stale > 3 * exact, "a large stale block overshoots along one direction"
    assert corrected < 0.9 * stale, "the rank-one correction helps, but does not repair it"
    assert corrected > exact
