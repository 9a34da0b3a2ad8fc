"""Batch rules: which positions of a shard a job uses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from asyncjax.problems.batches import WithoutReplacement

KEY = jax.random.key(0)


def test_whole_marks_the_padding():
    for size in (1, 3, 5):
        positions, valid = problems.whole()(jnp.int32(size), 5, 9, KEY)
        np.testing.assert_array_equal(positions, np.arange(5))
        np.testing.assert_array_equal(valid, np.arange(5) < size)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 19])
def test_cyclic_goes_round(size):
    rule = jax.jit(problems.cyclic(size), static_argnums=1)
    for shard in (1, 7, 8):
        for job in (0, 1, 2, 50):
            positions, valid = rule(jnp.int32(shard), 8, jnp.int32(job), KEY)
            np.testing.assert_array_equal(positions, (job * size + np.arange(size)) % shard)
            assert positions.dtype == jnp.int32
            assert bool(valid.all())


def test_cyclic_is_exact_for_large_numbers():
    size, shard, job = 300_000, 1_000_003, 2**31 - 1
    positions, _ = problems.cyclic(size)(jnp.int32(shard), shard, jnp.int32(job), KEY)
    want = [(job * size + offset) % shard for offset in (0, 1, size - 1)]
    assert [int(positions[offset]) for offset in (0, 1, size - 1)] == want


def test_uniform_covers_the_shard_and_no_more():
    draw = jax.jit(jax.vmap(lambda key: problems.uniform(4)(jnp.int32(5), 8, 0, key)[0]))
    positions = np.asarray(draw(jax.random.split(KEY, 1000)))
    counts = np.bincount(positions.ravel(), minlength=8)
    assert counts[5:].sum() == 0
    np.testing.assert_allclose(counts[:5] / 4000, 0.2, atol=0.03)
    repeats = [len(set(row)) < 4 for row in positions.tolist()]
    assert any(repeats)
    np.testing.assert_array_equal(draw(jax.random.split(KEY, 1000)), positions)


def test_rules_are_equal_by_value():
    assert problems.cyclic(4) == problems.cyclic(4)
    assert hash(problems.uniform(4)) == hash(problems.uniform(4))
    assert problems.cyclic(4) != problems.uniform(4)
    assert problems.cyclic(4) != problems.cyclic(5)


@pytest.mark.slow
def test_mini_batches_average_to_the_whole_gradient():
    features = np.random.default_rng(0).normal(size=(10, 3))
    shared = {"features": features, "targets": features[:, 0] ** 2, "n_workers": 2}
    whole = problems.least_squares(**shared)
    start = jnp.ones(3)
    _, want = jax.jit(whole.gradient)(start, 1, 0, KEY)
    cyclic = problems.least_squares(**shared, batch=problems.cyclic(1))
    grads = jax.jit(jax.vmap(lambda job: cyclic.gradient(start, 1, job, KEY)[1]))(jnp.arange(5))
    np.testing.assert_allclose(grads.mean(0), want, rtol=1e-5)
    uniform = problems.least_squares(**shared, batch=problems.uniform(4))
    keys = jax.random.split(KEY, 4000)
    grads = jax.jit(jax.vmap(lambda key: uniform.gradient(start, 1, 0, key)[1]))(keys)
    np.testing.assert_allclose(grads.mean(0), want, atol=5 * float(grads.std(0).max()) / 4000**0.5)


@pytest.mark.parametrize("capacity", [5, 5000])
def test_without_replacement_draws_every_row_once_and_a_load_takes_the_first(capacity):
    rule = problems.without_replacement(capacity)
    positions, valid = rule(jnp.int32(capacity - 2), capacity, 0, jax.random.key(3))
    drawn = np.asarray(positions)[np.asarray(valid)]
    assert sorted(drawn.tolist()) == list(range(capacity - 2))
    part = WithoutReplacement(capacity, jnp.float32(2.0))
    positions, valid = part(jnp.int32(capacity - 2), capacity, 0, jax.random.key(3))
    assert np.asarray(positions)[np.asarray(valid)].tolist() == drawn[:2].tolist()


@pytest.mark.slow
def test_without_replacement_is_uniform_over_permutations():
    rule = problems.without_replacement(3)
    keys = jax.random.split(jax.random.key(0), 60000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: rule(jnp.int32(3), 4, 0, key)[0]))(keys))
    counts = np.unique(drawn @ [9, 3, 1], return_counts=True)[1]
    assert counts.size == 6
    assert ((counts - 10000) ** 2 / 10000).sum() < 20.5  # chi-square, 5 degrees, 0.1 %


@pytest.mark.slow
def test_a_gradient_without_replacement_is_unbiased_and_less_noisy():
    shared = {"features": np.eye(6)[:, :2], "targets": np.arange(6.0) + 2, "n_workers": 1}
    grads = {}
    for make in (problems.uniform, problems.without_replacement):
        problem = problems.least_squares(**shared, batch=make(3))
        keys = jax.random.split(jax.random.key(1), 20000)
        draw = jax.jit(
            jax.vmap(lambda key, problem=problem: problem.gradient(jnp.ones(2), 0, 0, key)[1])
        )
        grads[make.__name__] = np.asarray(draw(keys))
    full = problems.least_squares(**shared).gradient(jnp.ones(2), 0, 0, jax.random.key(0))[1]
    for name in grads:
        np.testing.assert_allclose(grads[name].mean(0), full, atol=0.01)
    ratio = grads["without_replacement"].var(0) / grads["uniform"].var(0)
    np.testing.assert_allclose(ratio, 3 / 5, atol=0.03)  # (m - b) / (m - 1)
