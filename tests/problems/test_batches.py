"""Which rows a worker holds, how they spread the labels, and which of them a job uses."""

from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from asyncjax.problems.batches import WithoutReplacement

KEY = jax.random.key(0)


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


LABELS = np.array([3, 1, 2, 0, 1, 3, 3, 2, 0, 1, 1, 2, 3, 0, 2, 2, 1])


def owned(shards):
    return [rows[:size].tolist() for rows, size in zip(shards.rows, shards.size, strict=True)]


def label_counts(shards, labels):
    """How many rows of each label each worker holds, [n, C]."""
    numbers = np.unique(labels, return_inverse=True)[1]
    return np.array(
        [np.bincount(numbers[rows], minlength=numbers.max() + 1) for rows in owned(shards)]
    )


MAKERS = {
    "contiguous": lambda n: problems.contiguous(17, n),
    "iid": lambda n: problems.iid(17, n, key=KEY),
    "by_label": lambda n: problems.by_label(LABELS, n),
    "dirichlet": lambda n: problems.dirichlet(LABELS, n, alpha=0.3, key=KEY),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("n_workers", [3, 4])
def test_shards_are_partitions(name, n_workers):
    shards = MAKERS[name](n_workers)
    assert shards.rows.dtype == np.int32
    assert shards.size.dtype == np.int32
    assert shards.rows.shape == (n_workers, shards.size.max())
    assert sorted(chain(*owned(shards))) == list(range(17))
    for rows, size in zip(shards.rows, shards.size, strict=True):
        np.testing.assert_array_equal(rows[size:], rows[0])
    assert label_counts(shards, LABELS).sum() == 17


def test_by_label_sorts_stably():
    flat = list(chain(*owned(problems.by_label(LABELS, 4))))
    np.testing.assert_array_equal(flat, np.argsort(LABELS, kind="stable"))
    np.testing.assert_array_equal(
        label_counts(problems.by_label(np.repeat([5, 9], 4), 2), np.repeat([5, 9], 4)),
        [[4, 0], [0, 4]],
    )


@pytest.mark.parametrize("minimum", [1, 3, 5])
def test_dirichlet_leaves_everyone_the_minimum(minimum):
    labels = np.repeat([0, 1, 2, 3], 5)
    for seed in range(5):
        shards = problems.dirichlet(
            labels, 4, alpha=0.01, key=jax.random.key(seed), minimum=minimum
        )
        assert shards.size.min() >= minimum
        assert sorted(chain(*owned(shards))) == list(range(20))


def test_dirichlet_concentration():
    labels = np.repeat(np.arange(4), 200)

    def spread(concentration):
        shards = problems.dirichlet(labels, 4, alpha=concentration, key=KEY)
        return label_counts(shards, labels).std(axis=0).mean()

    assert spread(1e4) < 5 < 50 < spread(0.05)
    first = problems.dirichlet(labels, 4, alpha=1.0, key=KEY)
    second = problems.dirichlet(labels, 4, alpha=1.0, key=KEY)
    np.testing.assert_array_equal(first.rows, second.rows)
