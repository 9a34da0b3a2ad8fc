"""Additions to the statistics with known answers: Holm, power, profiles, improvement, best of k."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from asyncjax.results.statistics import (
    HOLDS,
    OPEN,
    Condition,
    Difference,
    expected_best,
    holm,
    paired,
    probability_of_improvement,
    profile,
    smallest_ratio,
)


def student(mean, count=10):
    """A condition by Student's interval, of which scipy knows the p-value."""
    spread = np.linspace(-1, 1, count)
    sample = mean + spread

    def at(level):
        low, high = stats.t.interval(level, count - 1, sample.mean(), stats.sem(sample))
        return Condition("", Difference(sample.mean(), low, high, 0.5, count))

    return at, stats.ttest_1samp(sample, 0.0).pvalue


@pytest.mark.parametrize("seed", range(5))
def test_holm_decides_what_the_textbook_rejects(seed):
    asked = [student(mean) for mean in np.random.default_rng(seed).normal(0, 0.7, 8)]
    values = np.array([value for _, value in asked])
    rejected = np.zeros(8, bool)
    for step, at in enumerate(np.argsort(values)):
        if values[at] > 0.05 / (8 - step):
            break
        rejected[at] = True
    found = holm([condition for condition, _ in asked])
    assert [condition.verdict != OPEN for condition in found] == rejected.tolist()


def test_holm_decides_more_than_equal_shares():
    (near, _), (far, _) = student(-0.52), student(-3.0)
    assert near(1 - 0.05).verdict == HOLDS
    assert near(1 - 0.05 / 2).verdict == OPEN
    assert [one.verdict for one in holm([near, far])] == [HOLDS, HOLDS]
    assert [one.verdict for one in holm([near, near])] == [OPEN, OPEN]
    assert holm([]) == ()


@pytest.mark.parametrize("count", [5, 20])
def test_the_smallest_ratio_is_found_in_four_of_five_studies(count):
    edge, scale = stats.t.ppf(0.975, count - 1), 0.3
    half = edge * scale / np.sqrt(count)
    shift = np.log(smallest_ratio(Difference(0.1, 0.1 - half, 0.1 + half, 0.5, count)))
    drawn = np.random.default_rng(0).normal(shift, scale, (20_000, count))
    seen = np.abs(drawn.mean(1)) > edge * drawn.std(1, ddof=1) / np.sqrt(count)
    assert seen.mean() == pytest.approx(0.8, abs=0.012)


def test_the_smallest_ratio_falls_with_instances_and_is_one_without_spread():
    sample = np.linspace(-1, 1, 10)
    few, many = (paired(np.tile(sample, times), np.zeros(10 * times)) for times in (1, 4))
    assert 1 < smallest_ratio(many) < smallest_ratio(few) < smallest_ratio(few, power=0.95)
    assert smallest_ratio(paired([0.3, 0.3, 0.3], [0.0, 0.0, 0.0])) == 1.0


def test_profiles_by_hand():
    never = np.inf
    values = {"a": [1.0, 2.0, never, never], "b": [2.0, 2.0, 5.0, never]}
    found = profile(values, [1.0, 1.5, 2.0])
    np.testing.assert_array_equal(found["a"], [0.5, 0.5, 0.5])  # a problem nobody solves counts
    np.testing.assert_array_equal(found["b"], [0.5, 0.5, 0.75])
    with pytest.raises(ValueError, match="as many of every method"):
        profile({"a": [1.0], "b": [1.0, 2.0]}, [1.0])


def test_improvement_is_the_mean_of_signs_and_where_sure_that_of_clopper_and_pearson():
    first = np.array([[1.0, 2.0, 3.0, 9.0], [1.0, 1.0, 1.0, 1.0]])
    second = np.array([[2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0]])
    value, low, high = probability_of_improvement(first, second)
    assert value == pytest.approx((1.5 / 4 + 1.0) / 2)
    assert 0 <= low < value < high <= 1
    value, low, high = probability_of_improvement(second[0], second[0] + 1)
    assert (value, high) == (1.0, 1.0)
    assert low == pytest.approx(0.025 ** (1 / 4))
    with pytest.raises(ValueError, match="as many"):
        probability_of_improvement([1.0], [1.0, 2.0])


def test_the_expected_best_is_the_mean_over_all_choices():
    scores = np.random.default_rng(0).normal(size=6)
    wanted = [np.mean([min(some) for some in combinations(scores, k)]) for k in range(1, 7)]
    np.testing.assert_allclose(expected_best(scores), wanted)
    assert expected_best([np.inf, 1.0]).tolist() == [np.inf, 1.0]
    with pytest.raises(ValueError, match="at least one"):
        expected_best([])
