"""Price floors: verdicts turn with what they earn, and are learned on their own instances."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from asyncjax import cluster
from asyncjax.study import protocol
from asyncjax.study.result import Result
from experiments.cluster import floors
from experiments.cluster.floors import LEARNED, LITERAL, MOVED, REFERENCE, Settings

SMALL: dict[str, Any] = {"n_jobs": 8, "n_slots": 6, "n_machines": 4}


def made_up(scale):
    """Rows in which a rule earns so many times the literal floor, by rule and point."""
    generator, rows = np.random.default_rng(0), []
    for point in floors.POINTS:
        base = generator.lognormal(5, 0.3, 10)
        for rule in (rule for rule in floors.ORDER if (point, rule) != (REFERENCE, MOVED)):
            times = scale.get((point, rule), scale.get(rule, 1.0))
            earned = times * base * generator.lognormal(0, 0.02, 10)
            rows += [(point, "A", i, rule, x) for i, x in enumerate(earned)]
    head = ["scene", "set", "instance", "method", "earned"]
    return Result(pd.DataFrame(rows, columns=head), "earned")


@pytest.mark.parametrize(
    ("claim", "scale", "said"),
    [
        (0, {LEARNED: 1.5}, "holds"),
        (0, {LEARNED: 0.8}, "does not hold"),
        (0, {LEARNED: 1.5, ("half the work", LEARNED): 0.8}, "in part"),
        (1, {MOVED: 1.5}, "holds"),
        (1, {MOVED: 0.7}, "does not hold"),
        (2, {"marginal_goodput": 1.4}, "does not hold"),
        (3, {floors.CHOOSING: 2.0, "marginal_goodput": 1.4}, "holds"),
    ],
)
def test_the_verdict_flips_with_what_floors_earn(claim, scale, said):
    assert made_up(scale).verdict(floors.CLAIMS[claim]) == {"A": said}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    output = tmp_path_factory.mktemp("cluster_floors")
    settings = Settings(output, instances=2, tuning_instances=2, trials=2, large=4, **SMALL)
    return floors.study_of(settings)


@pytest.mark.slow
def test_the_floor_is_the_best_of_its_trials_as_the_library_finds_it(result):
    past = [
        cluster.workloads.balanced(one.data, **SMALL)
        for one in protocol.seeds_of(0, protocol.TUNING, 2)
    ]
    lows, earned, _ = np.array(result.facts["floors"][REFERENCE][LEARNED]).T
    choice = cluster.choose_floor(past, n_slots=6, lows=lows)
    np.testing.assert_allclose(choice.utilities.mean(axis=1), earned, rtol=1e-4)
    [chosen] = result.select(scene=REFERENCE, method=LEARNED)["low"].unique()
    assert earned[np.searchsorted(lows, chosen)] == max(earned)


@pytest.mark.slow
def test_both_sets_are_played_with_that_floor(result):
    [chosen] = result.select(scene=REFERENCE, method=LEARNED)["low"].unique()
    for letter, role in (("A", protocol.SET_A), ("B", protocol.SET_B)):
        for at, one in enumerate(protocol.seeds_of(0, role, 2)):
            jobs, machines = cluster.workloads.balanced(one.data, **SMALL)
            for name, low in ((LEARNED, chosen), (LITERAL, None)):
                schedule = cluster.pd_ors(jobs, machines, n_slots=6, low=low)
                fits = {"scene": REFERENCE, "set": letter, "instance": at, "method": name}
                [row] = result.select(**fits)["utility"]
                assert row == pytest.approx(cluster.total_utility(schedule, jobs), rel=1e-4)


@pytest.mark.slow
def test_every_tuned_rule_has_as_many_trials_and_one_floor_is_carried(result):
    assert result.rows.groupby("scene")["trials"].nunique().eq(1).all()
    assert set(result.select(method=MOVED)["scene"]) == {"half the work", "more machines"}
    [carried] = result.select(method=MOVED)["low"].unique()
    assert carried == result.select(scene=REFERENCE, method=LEARNED)["low"].iloc[0]
    assert set(result.facts["past"][REFERENCE]) == {LITERAL, "marginal_goodput"}


@pytest.mark.slow
def test_the_floor_of_best_delays_is_above_the_literal_one():
    jobs, machines = cluster.workloads.balanced(0)
    assert floors.best_delay_floor(jobs, machines, 20) == pytest.approx(6.192316e-13)
    assert cluster.price_bounds(jobs, machines, n_slots=20).low < 1e-40
