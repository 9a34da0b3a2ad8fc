"""Intervals that cover, ranks by hand, verdicts that flip with the numbers, known answers."""

import numpy as np
import pytest
from scipy import stats

from asyncjax.results.statistics import (
    FAILS,
    HOLDS,
    IN_PART,
    OPEN,
    Condition,
    Difference,
    disagreements,
    holm,
    interval,
    paired,
    profile,
    ranks,
    smallest_ratio,
    verdict,
)

SPREAD = np.array([-2.0, -1.0, -0.5, 0.0, 0.0, 0.0, 0.5, 1.0, 1.5, 0.5])  # mean 0


@pytest.mark.parametrize(("count", "least", "most"), [(10, 0.91, 0.99), (30, 0.91, 0.99)])
def test_intervals_hold_the_mean_about_as_often_as_they_say(count, least, most):
    samples = np.random.default_rng(1).normal(2.0, 3.0, (400, count))
    ends = np.array([interval(sample, draws=1000) for sample in samples])
    covered = np.mean((ends[:, 0] <= 2.0) & (ends[:, 1] >= 2.0))
    assert least <= covered <= most  # 0.95, and four standard errors of 400


def test_width_is_that_of_a_normal_interval():
    sample = np.random.default_rng(2).normal(size=100)
    low, high = interval(sample)
    assert high - low == pytest.approx(2 * 1.96 * sample.std() / 10, rel=0.08)


def test_few_values_have_the_width_of_students_interval():
    low, high = interval(SPREAD, draws=100_000)
    student = 2 * 2.262 * SPREAD.std(ddof=1) / np.sqrt(10)
    assert high - low == pytest.approx(student, rel=0.03)


def test_a_long_tail_reaches_further_on_its_side():
    sample = np.random.default_rng(3).exponential(size=20)
    low, high = interval(sample)
    assert high - sample.mean() > 1.5 * (sample.mean() - low)  # 1.3 without acceleration


def test_the_mirror_of_a_sample_has_the_mirror_of_its_interval():
    sample = np.random.default_rng(3).exponential(size=20)
    low, high = interval(sample)
    assert interval(-sample) == pytest.approx((-high, -low), rel=1e-2)


def test_the_same_seed_gives_the_same_numbers():
    assert interval(SPREAD, seed=3) == interval(SPREAD, seed=3)
    assert interval(SPREAD, seed=3) != interval(SPREAD, seed=4)


@pytest.mark.parametrize("values", [[1.0], [1.0, np.inf], [1.0, np.nan], [[1.0, 2.0]]])
def test_what_has_no_mean_or_no_spread_is_refused(values):
    with pytest.raises(ValueError, match="two or more finite numbers"):
        interval(values)


def test_a_wider_level_is_a_wider_interval_even_with_an_outlier():
    sample = np.array([0.0] * 5 + [10.0]) + SPREAD[:6] / 100
    ends = np.array([interval(sample, level=x, draws=200_000) for x in (0.9, 0.999, 0.9999)])
    assert (np.diff(ends[:, 0]) <= 0).all()
    assert (np.diff(ends[:, 1]) >= 0).all()


def test_too_few_draws_for_a_level_are_refused():
    with pytest.raises(ValueError, match="draws"):
        interval(SPREAD, level=0.999)
    with pytest.raises(ValueError, match="level"):
        interval(SPREAD, level=1.0)


def test_pairing_tells_apart_what_the_spread_over_instances_hides():
    instances = np.array([1.0, 10.0, 100.0, 1000.0, 30.0])
    found = paired(instances - [1.0, 1.1, 0.9, 1.0, 1.0], instances)
    assert found.mean == pytest.approx(-1.0)
    assert found.significant
    assert found.lower == 1.0
    assert not paired(SPREAD, 0 * SPREAD).significant


def test_a_tie_counts_half():
    assert paired([0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 3.0, 1.0]).lower == (0.5 + 2) / 4


def test_groups_of_ranks_by_hand():
    # "a" and "b" differ by the spread alone; "c" is 5 above both; "d" is 5 above "c".
    base = np.linspace(0, 50, 10)
    scores = {"d": base + 10, "b": base + SPREAD + 0.05, "c": base + 5, "a": base}
    found = {place.name: place for place in ranks(scores)}
    assert list(found) == ["a", "b", "c", "d"]
    spans = {name: (place.best_rank, place.worst_rank) for name, place in found.items()}
    assert spans == {"a": (1, 2), "b": (1, 2), "c": (3, 3), "d": (4, 4)}
    assert {name for name, place in found.items() if place.with_best} == {"a", "b"}


def test_a_method_alone_is_the_best():
    (place,) = ranks({"a": [1.0, 2.0]})
    assert (place.best_rank, place.worst_rank, place.with_best) == (1, 1, True)


LOWER, HIGHER, EITHER = (
    Condition(text, paired(SPREAD + shift, 0 * SPREAD))
    for text, shift in (("lower", -3.0), ("higher", 3.0), ("either", 0.0))
)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([LOWER, LOWER], HOLDS),
        ([LOWER, EITHER], IN_PART),
        ([LOWER, HIGHER], IN_PART),
        ([HIGHER], FAILS),
        ([EITHER, HIGHER], FAILS),
        ([EITHER], OPEN),
    ],
)
def test_a_verdict_follows_from_the_conditions(conditions, expected):
    assert verdict(conditions) == expected


def test_a_bound_moves_the_verdict():
    found = paired(SPREAD - 3.0, 0 * SPREAD)
    asked = [Condition("lower", found, bound) for bound in (0.0, -3.0, -6.0)]
    assert [verdict([one]) for one in asked] == [HOLDS, OPEN, FAILS]


def test_verdicts_of_two_sets_are_compared_claim_by_claim():
    assert disagreements({"a": HOLDS, "b": OPEN}, {"b": FAILS, "a": HOLDS}) == {"b": (OPEN, FAILS)}
    with pytest.raises(ValueError, match="'b' in one only"):
        disagreements({"a": HOLDS}, {"a": HOLDS, "b": OPEN})


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
