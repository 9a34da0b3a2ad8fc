"""Shards: partitions of the rows, and how they spread the labels."""

from itertools import chain

import jax
import numpy as np
import pytest

from asyncjax import problems
from asyncjax.problems.shards import label_counts

KEY = jax.random.key(0)
LABELS = np.array([3, 1, 2, 0, 1, 3, 3, 2, 0, 1, 1, 2, 3, 0, 2, 2, 1])


def owned(shards):
    return [rows[:size].tolist() for rows, size in zip(shards.rows, shards.size, strict=True)]


MAKERS = {
    "contiguous": lambda n: problems.contiguous(17, n),
    "iid": lambda n: problems.iid(17, n, key=KEY),
    "by_label": lambda n: problems.by_label(LABELS, n),
    "two_classes": lambda n: problems.by_label(LABELS, n, classes_per_worker=2),
    "dirichlet": lambda n: problems.dirichlet(LABELS, n, concentration=0.3, key=KEY),
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


def test_contiguous_is_array_split():
    for n_rows, n_workers in ((17, 5), (10, 5), (3, 3), (4, 1)):
        parts = np.array_split(np.arange(n_rows), n_workers)
        want = [part.tolist() for part in parts]
        assert owned(problems.contiguous(n_rows, n_workers)) == want


def test_iid_depends_on_the_key_alone():
    again = problems.iid(17, 3, key=KEY)
    np.testing.assert_array_equal(problems.iid(17, 3, key=KEY).rows, again.rows)
    assert (problems.iid(17, 3, key=jax.random.key(1)).rows != again.rows).any()
    assert again.size.tolist() == [6, 6, 5]


def test_by_label_sorts_stably():
    flat = list(chain(*owned(problems.by_label(LABELS, 4))))
    np.testing.assert_array_equal(flat, np.argsort(LABELS, kind="stable"))
    np.testing.assert_array_equal(
        label_counts(problems.by_label(np.repeat([5, 9], 4), 2), np.repeat([5, 9], 4)),
        [[4, 0], [0, 4]],
    )


def test_classes_per_worker_is_as_defined():
    labels = np.tile(np.arange(4), 6)
    shards = problems.by_label(labels, 4, classes_per_worker=2)
    counts = label_counts(shards, labels)
    np.testing.assert_array_equal(counts, [[3, 3, 0, 0], [0, 0, 3, 3], [3, 3, 0, 0], [0, 0, 3, 3]])
    all_classes = label_counts(problems.by_label(labels, 3, classes_per_worker=4), labels)
    np.testing.assert_array_equal(all_classes, np.full((3, 4), 2))


@pytest.mark.parametrize("minimum", [1, 3, 5])
def test_dirichlet_leaves_everyone_the_minimum(minimum):
    labels = np.repeat([0, 1, 2, 3], 5)
    for seed in range(5):
        shards = problems.dirichlet(
            labels, 4, concentration=0.01, key=jax.random.key(seed), minimum=minimum
        )
        assert shards.size.min() >= minimum
        assert sorted(chain(*owned(shards))) == list(range(20))


def test_dirichlet_concentration():
    labels = np.repeat(np.arange(4), 200)

    def spread(concentration):
        shards = problems.dirichlet(labels, 4, concentration=concentration, key=KEY)
        return label_counts(shards, labels).std(axis=0).mean()

    assert spread(1e4) < 5 < 50 < spread(0.05)
    first = problems.dirichlet(labels, 4, concentration=1.0, key=KEY)
    second = problems.dirichlet(labels, 4, concentration=1.0, key=KEY)
    np.testing.assert_array_equal(first.rows, second.rows)


def test_label_counts():
    shards = problems.Shards(np.array([[0, 1, 2], [3, 3, 3]]), np.array([3, 1]))
    counts = label_counts(shards, [-1, 1, 1, -1])
    np.testing.assert_array_equal(counts, [[1, 2], [1, 0]])
