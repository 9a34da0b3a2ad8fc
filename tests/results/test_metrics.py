"""Metrics against values worked out by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from asyncjax.results.metrics import (
    at_grid_edge,
    best_on_grid,
    median_and_spread,
    resample,
    series_over_seeds,
    time_to_target,
)

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("values", "target", "expected", "between"),
    [
        ([4.0, 2.0, 1.0], 2.0, 1.0, 1.0),  # exactly at a record
        ([4.0, 2.0, 1.0], 3.0, 1.0, 0.5),
        ([4.0, 2.0, 1.0], 1.25, 3.0, 2.5),  # uneven axis: 1 + 2 * 0.75
        ([4.0, 2.0, 1.0], 9.0, 0.0, 0.0),  # reached at the first record: nothing before it
        ([4.0, 2.0, 1.0], 0.5, INF, INF),
        ([NAN, 2.0, 1.0], 2.5, 1.0, 1.0),  # no straight line from NaN
        ([INF, 2.0, 1.0], 2.5, 1.0, 1.0),
        ([4.0, NAN, 1.0], 3.0, 3.0, 3.0),  # NaN is not reached
        ([4.0, -INF, 1.0], 3.0, 1.0, 1.0),
        ([NAN, NAN, NAN], 3.0, INF, INF),
        ([4.0, 2.0, 5.0], 2.0, 1.0, 1.0),  # the first time counts, not the last
    ],
)
def test_time_to_target_of_one_curve(values, target, expected, between):
    axis = [0.0, 1.0, 3.0]
    assert time_to_target(axis, values, target) == expected
    assert_allclose(time_to_target(axis, values, target, interpolate=True), between, rtol=1e-15)


def test_time_to_target_above_and_many_curves():
    accuracy = np.array([[0.1, 0.5, 0.9], [0.1, 0.2, 0.3], [NAN, 0.2, 0.8]], np.float32)
    reached = time_to_target([0.0, 10.0, 20.0], accuracy, 0.5, above=True)
    assert reached.dtype == np.float64
    assert_array_equal(reached, [10.0, INF, 20.0])
    between = time_to_target([0.0, 10.0, 20.0], accuracy, 0.7, above=True, interpolate=True)
    assert_allclose(between, [15.0, INF, 10.0 + 10.0 * 5 / 6], rtol=1e-6)
    axes = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [5.0, 6.0, NAN]])
    assert_array_equal(time_to_target(axes, accuracy, 0.5, above=True), [1.0, INF, INF])


def test_time_to_target_single_record_and_none():
    assert time_to_target([7.0], [1.0], 1.0, interpolate=True) == 7.0
    assert time_to_target([7.0], [2.0], 1.0) == INF
    assert_array_equal(time_to_target(np.zeros(0), np.zeros((2, 0)), 1.0), [INF, INF])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("above", [False, True])
def test_time_to_target_for_good_is_the_definition(seed, above):
    """min {x_i : v_j at the target for all j >= i}, by two loops; NaN axes are left out."""
    rng = np.random.default_rng(seed)
    axis = np.sort(rng.choice(30, size=9)).astype(float)
    values = rng.choice([0.0, 1.0, 2.0, NAN], p=[0.5, 0.3, 0.15, 0.05], size=9)
    axis[rng.random(9) < 0.2] = NAN
    expected = INF
    for i in range(9):
        later = [v for x, v in zip(axis[i:], values[i:], strict=True) if not np.isnan(x)]
        if not np.isnan(axis[i]) and all(v <= 1.0 for v in later):
            expected = axis[i]
            break
    sign = -1.0 if above else 1.0
    reached = time_to_target(axis, sign * values, sign * 1.0, above=above, stays=True)
    assert reached == expected


def test_time_to_target_for_good_of_a_noisy_curve():
    time, loss = [0.0, 1.0, 2.0, 3.0, 4.0], [[4.0, 1.0, 3.0, 1.0, 0.5], [4.0, 1.0, 1.0, 1.0, 2.0]]
    assert_array_equal(time_to_target(time, loss, 2.0, stays=True), [3.0, 1.0])
    assert_array_equal(time_to_target(time, loss, 1.5, stays=True), [3.0, INF])
    between = time_to_target(time, loss, 2.0, stays=True, interpolate=True)
    assert_allclose(between, [2.5, 2.0 / 3.0], rtol=1e-15)
    assert_array_equal(time_to_target(time, loss, 1.5), [1.0, 1.0])


@pytest.mark.parametrize(
    ("samples", "low", "median", "high", "reached"),
    [
        ([5.0], 5.0, 5.0, 5.0, 1.0),
        ([4.0, 1.0, 3.0, 2.0], 1.75, 2.5, 3.25, 1.0),
        ([1.0, 2.0, 3.0, 4.0, INF], 2.0, 3.0, 4.0, 0.8),  # weight 0 on the infinite one
        ([1.0, 2.0, 3.0, INF, INF], 2.0, 3.0, INF, 0.6),
        ([1.0, 2.0, INF, INF, INF], 2.0, INF, INF, 0.4),
        ([1.0, 2.0, INF, INF], 1.75, INF, INF, 0.5),  # half of an even number
        ([1.0, 2.0, NAN], 1.5, 2.0, INF, 2 / 3),  # NaN is the worst value
        ([INF, NAN], INF, INF, INF, 0.0),
    ],
)
def test_median_and_spread(samples, low, median, high, reached):
    spread = median_and_spread(samples)
    assert_allclose([spread.low, spread.median, spread.high], [low, median, high], rtol=1e-15)
    assert_allclose(spread.reached, reached)


def test_median_and_spread_agrees_with_numpy_on_finite_samples():
    samples = np.random.default_rng(0).normal(size=(3, 4, 11))
    spread = median_and_spread(samples)
    expected = np.quantile(samples, [0.25, 0.5, 0.75], axis=-1)
    assert_allclose([spread.low, spread.median, spread.high], expected, rtol=1e-13)
    assert spread.reached.shape == (3, 4)


def test_median_and_spread_of_accuracies():
    spread = median_and_spread([0.5, NAN, 0.7], smaller_is_better=False)
    assert_array_equal([spread.low, spread.median], [-INF, 0.5])


def test_resample_two_seeds():
    axis = [[0.0, 1.0, 3.0], [1.0, 2.0, NAN]]
    values = [[10.0, 8.0, 4.0], [6.0, 4.0, 99.0]]
    grid = [0.0, 0.5, 1.0, 2.0, 3.0, 3.5]
    linear = [[10.0, 9.0, 8.0, 6.0, 4.0, NAN], [NAN, NAN, 6.0, 4.0, NAN, NAN]]
    held = [[10.0, 10.0, 8.0, 8.0, 4.0, NAN], [NAN, NAN, 6.0, 4.0, NAN, NAN]]
    assert_array_equal(resample(axis, values, grid), linear)
    assert_array_equal(resample(axis, values, grid, stepwise=True), held)


def test_resample_edge_cases():
    # Two records at one time: the later one holds.
    twice = resample([0.0, 1.0, 1.0, 2.0], [[3.0, 2.0, 1.0, 0.0]], [1.0], stepwise=True)
    assert_array_equal(twice, [[1.0]])
    assert_array_equal(resample([5.0], [[2.0]], [4.0, 5.0, 6.0]), [[NAN, 2.0, NAN]])
    assert_array_equal(resample([NAN], [[2.0]], [4.0]), [[NAN]])
    # A run that has diverged is NaN from there on.
    assert_array_equal(resample([0.0, 1.0, 2.0], [[1.0, NAN, NAN]], [0.0, 0.5]), [[1.0, NAN]])


def test_best_on_grid():
    assert best_on_grid([[3.0, 3.0], [1.0, 2.0], [0.0, 4.0]]).row == 1
    assert best_on_grid([2.0, 1.0, 1.0]).row == 1  # ties to the first
    assert best_on_grid([0.1, 0.9, 0.5], smaller_is_better=False).row == 1
    assert best_on_grid([[0.0, NAN], [5.0, 6.0]]).row == 1  # half of the seeds diverged
    assert best_on_grid([[0.0, 0.0, NAN], [5.0, 6.0, 7.0]]).row == 0  # one of three did
    assert best_on_grid([-INF, 3.0]).row == 1  # infinitely good is diverged as well
    assert best_on_grid([INF, 3.0], smaller_is_better=False).row == 1
    assert best_on_grid([NAN, 3.0], smaller_is_better=False).row == 1
    grids = [[3.0, 4.0], [1.0, 2.0], [5.0, 0.5], [9.0, 9.0]], [[1.0], [2.0], [3.0]], [[1.0]]
    assert [tuple(best_on_grid(grid)) for grid in grids] == [(1, False), (0, True), (0, True)]
    assert best_on_grid([1.0, 2.0, 3.0], smaller_is_better=False) == (2, True)


def test_at_grid_edge():
    assert [at_grid_edge(index, 4) for index in range(4)] == [True, False, False, True]
    assert at_grid_edge(0, 1)


def test_series_over_seeds_tells_uncovered_from_diverged():
    axis = [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [0.0, 1.0, NAN]]
    values = [[4.0, 2.0, 1.0], [5.0, NAN, NAN], [6.0, 4.0, NAN]]
    line = series_over_seeds("sgd", axis, values, [0.0, 1.0, 2.0])
    assert_array_equal(line.median, [5.0, 4.0, NAN])  # of 2, 4 and diverged: 4
    assert_array_equal(line.low, [4.5, 3.0, NAN])
    assert_array_equal(line.high, [5.5, INF, NAN])
