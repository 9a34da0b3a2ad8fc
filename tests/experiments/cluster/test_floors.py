"""Price floors: verdicts turn with what they earn, and are learned on their own instances."""

from itertools import product

import numpy as np
import pytest

from asyncjax import cluster
from asyncjax.study import protocol
from experiments.cluster import floors
from experiments.cluster.floors import LEARNED, MOVED, REFERENCE, Settings
from tests.experiments import made_up
from tests.experiments.cluster.test_rivals import SMALL


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
    """A rule earns so many times what the others do, by rule and scene."""
    generator = np.random.default_rng(0)
    base = generator.lognormal(5, 0.3, 12)
    cells = [
        ({"scene": scene, "method": name}, factor * base * generator.lognormal(0, 0.02, 12))
        for scene, name in product(floors.POINTS, floors.ORDER)
        for factor in [scale.get((scene, name), scale.get(name, 1.0))]
    ]
    result = made_up.result(cells, "earned", "A")
    assert result.verdict(floors.CLAIMS[claim]) == {"A": said}


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
    [chosen] = result.select(scene=REFERENCE, method=LEARNED, set="A")["low"].unique()
    assert earned[np.searchsorted(lows, chosen)] == max(earned)


@pytest.mark.slow
def test_each_set_is_played_with_its_floor(result):
    for letter, role in (("A", protocol.SET_A), ("B", protocol.SET_B)):
        [chosen] = result.select(scene=REFERENCE, method=LEARNED, set=letter)["low"].unique()
        [one] = protocol.seeds_of(0, role, 1)
        jobs, machines = cluster.workloads.balanced(one.data, **SMALL)
        earned = cluster.total_utility(cluster.pd_ors(jobs, machines, n_slots=6, low=chosen), jobs)
        rows = result.select(scene=REFERENCE, set=letter, instance=0, method=LEARNED)
        assert rows["utility"].tolist() == pytest.approx([earned], rel=1e-4)
        moved = result.select(method=MOVED, set=letter)
        assert set(moved["scene"]) == {floors.LIGHT, floors.LARGE}
        assert moved["low"].eq(chosen).all()
    assert result.rows.groupby(["scene", "set"])["trials"].nunique().eq(1).all()


@pytest.mark.slow
def test_the_floor_of_best_delays_is_above_the_literal_one():
    jobs, machines = cluster.workloads.balanced(0)
    assert floors.best_delay_floor(jobs, machines, 20) == pytest.approx(6.192316e-13)
    assert cluster.price_bounds(jobs, machines, n_slots=20).low < 1e-40
