"""Aggregates against plain NumPy: any number present, trees, numbers that are none."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import steps

ROWS = np.random.default_rng(0).normal(size=(7, 3))


def trimmed(rows, share):
    cut = int(np.floor(share * len(rows) + 1e-9))
    return np.sort(rows, axis=0)[cut : len(rows) - cut].mean(axis=0)


def closest(rows, f):
    """Krum by its definition."""
    scores = []
    for i, row in enumerate(rows):
        far = sorted(np.sum((row - other) ** 2) for j, other in enumerate(rows) if j != i)
        scores.append(sum(far[: max(1, len(rows) - f - 2)]))
    return rows[int(np.argmin(scores))]


CASES = {
    "mean": (steps.mean(), lambda rows: rows.mean(axis=0)),
    "median": (steps.median(), lambda rows: np.median(rows, axis=0)),
    "trimmed mean": (steps.trimmed_mean(0.2), lambda rows: trimmed(rows, 0.2)),
    "trimmed by nothing": (steps.trimmed_mean(0.0), lambda rows: rows.mean(axis=0)),
    "krum": (steps.krum(1), lambda rows: closest(rows, 1)),
    "krum without adversaries": (steps.krum(0), lambda rows: closest(rows, 0)),
}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7])
@pytest.mark.parametrize("name", CASES)
def test_aggregates_equal_plain_ones(float64, name, count):
    """What is not present is never looked at."""
    make, plain = CASES[name]
    rows = np.where(np.arange(7)[:, None] < count, ROWS, np.nan)
    found = make({"w": jnp.asarray(rows)}, jnp.arange(7) < count, None)["w"]
    np.testing.assert_allclose(found, plain(ROWS[:count]), rtol=1e-12, atol=1e-12)


def test_a_tree_is_one_gradient_for_krum(float64):
    rows = {"w": jnp.asarray(ROWS[:, :2]), "b": jnp.asarray(ROWS[:, 2])}
    found = steps.krum(2)(rows, jnp.ones(7, bool), None)
    expected = closest(ROWS, 2)
    np.testing.assert_allclose([*found["w"], found["b"]], expected, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e30])
def test_one_bad_gradient_does_not_move_far(float64, bad):
    rows = ROWS.copy()
    rows[2] = bad
    for make in (steps.median(), steps.trimmed_mean(0.2), steps.krum(1)):
        found = make(jnp.asarray(rows), jnp.ones(7, bool), None)
        assert np.all(np.isfinite(found))
        assert np.abs(found).max() <= np.abs(ROWS).max()


def test_buckets_are_averaged_first(float64):
    worker = np.array([0, 4, 1, 1, 6, 7, 0])
    arrived = SimpleNamespace(worker=jnp.asarray(worker))
    present = np.arange(7) < 6
    means = [
        ROWS[present & (worker % 4 == bucket)].mean(axis=0)
        for bucket in range(4)
        if (present & (worker % 4 == bucket)).any()
    ]
    assert len(means) == 4
    found = steps.bucketed(4, steps.median())(jnp.asarray(ROWS), jnp.asarray(present), arrived)
    np.testing.assert_allclose(found, np.median(means, axis=0), rtol=1e-12)
    empty = steps.bucketed(9, steps.median())(jnp.asarray(ROWS), jnp.asarray(present), arrived)
    means = [ROWS[present & (worker == number)].mean(axis=0) for number in (0, 1, 4, 6, 7)]
    np.testing.assert_allclose(empty, np.median(means, axis=0), rtol=1e-12)
    one = steps.bucketed(1, steps.median())(jnp.asarray(ROWS), jnp.asarray(present), arrived)
    np.testing.assert_allclose(one, ROWS[:6].mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("make", [steps.mean(), steps.median(), steps.trimmed_mean(0.3)])
def test_dtypes_are_kept(make):
    found = make(jnp.ones((5, 2), jnp.bfloat16), jnp.ones(5, bool), None)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(found, float), 1.0)
