"""The comparisons of step rules: claims that flip, what small runs say, what is drawn."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from asyncjax.results.statistics import FAILS, HOLDS, IN_PART
from experiments.common import kept_rows
from experiments.delay_adaptive import block_descent, piag, step_rules
from tests.experiments import made_up

COUNTS = {"instances": 3, "tuning_instances": 1, "n_updates": 1500, "trials": 3}
SMALL = COUNTS | {"rounds": (1, 1), "multiples": (0.25, 0.5, 8.0), "levels": (0.8, 0.95)}
DRAWN, LATE = "uniform 0..20, as drawn", "1 write in 64 late by 100"


def small(module, folder, *laws):
    return module.Settings(folder, data=("breast cancer",), laws=laws, **SMALL)


def needs(result, rival, law, kind="theory"):
    """Updates of a rival to the last target over those of Adaptive 1, set A."""
    where = {"scene": f"breast cancer, {law}", "tuned_for": kind, "axis": "updates", "to": 0.95}
    return result.ratio(rival, "Adaptive 1", set="A", where=where)["ratio"][0]


@pytest.mark.slow
@pytest.mark.optimised
def test_aggregated_gradients_gain_where_delays_vary(tmp_path, monkeypatch):
    """And a tuned constant is no slower; what is done is not done again."""
    settings = small(piag, tmp_path, piag.EVEN, DRAWN, piag.CONSTANT_DELAY)
    result = piag.study_of(settings)
    assert 1.2 <= needs(result, "sun", piag.EVEN) <= 2.0
    assert 2.8 <= needs(result, "sun", DRAWN) <= 5.0
    assert 0.85 <= needs(result, "sun", piag.CONSTANT_DELAY) <= 1.1
    assert needs(result, "constant", piag.EVEN, "tuned") <= 1.1
    for law in (piag.EVEN, DRAWN, piag.CONSTANT_DELAY):
        expected = piag.predicted(result, f"breast cancer, {law}", "A")
        assert needs(result, "sun", law) == pytest.approx(expected, rel=0.35), law
    found = result.verdicts(piag.CLAIMS)
    assert {*found[piag.SAFE.text].values()} <= {HOLDS, IN_PART}
    for claim in (piag.STEADY.text, piag.NAIVE.text, piag.TUNED_ALIKE.text):
        assert found[claim]["A"] != HOLDS
    assert {*result.select(tuned_for="tuned")["trials"]} == {3}
    monkeypatch.setattr(kept_rows.Cells, "put", None)
    pd.testing.assert_frame_equal(piag.study_of(settings).rows, result.rows)


@pytest.mark.slow
@pytest.mark.optimised
def test_block_descent_gains_and_a_rare_long_delay_costs_little(tmp_path):
    result = block_descent.study_of(small(block_descent, tmp_path, piag.EVEN, LATE))
    assert 1.4 <= needs(result, "sun", piag.EVEN) <= 2.6
    assert needs(result, "Davis", piag.EVEN) >= 1.4
    assert needs(result, "sun", LATE) >= 3.0
    ours = {"method": "Adaptive 1", "tuned_for": "theory", "axis": "updates", "to": 0.95}
    logs = np.log(result.values(set="A", column="needed", **ours)).mean(axis=1)
    assert np.ptp(logs) < 0.35
    assert {*result.verdicts(block_descent.CLAIMS)[piag.SAFE.text].values()} <= {HOLDS, IN_PART}


def said(*scenes, rival="sun", **more):
    """Of scenes (name, ours, theirs) in which both rules need so many updates."""
    rest = {"tuned_for": "theory", "axis": "updates", "to": 0.95, "horizon": 1e4, **more}
    noise = np.random.default_rng(0).lognormal(0, 0.03, (2, 6))
    cells = [
        (rest | {"scene": scene, "delays": scene.split(", ")[-1], "method": method}, count * luck)
        for scene, *both in scenes
        for method, count, luck in zip(("Adaptive 1", rival), both, noise, strict=True)
    ]
    result = made_up.result(cells, "needed", cut=("needed",))
    return {claim: by["A"] for claim, by in result.verdicts(piag.CLAIMS).items()}


@pytest.mark.parametrize(
    ("claim", "scene", "more"),
    [
        (piag.SAFE.text, "data, even workers", {}),
        (piag.STEADY.text, "data, constant 20", {}),
        (piag.TUNED_ALIKE.text, "data, even", {"tuned_for": "tuned", "rival": "constant"}),
        (piag.NAIVE.text, "data, even", {"rival": "c/(delay+1)"}),
        (piag.ROUNDS.text, "data, even", {"rival": "synchronous", "axis": "time"}),
    ],
)
def test_verdicts_flip_with_who_is_ahead(claim, scene, more):
    ahead, behind = (scene, 100.0, 200.0), (f"more {scene}", 200.0, 100.0)
    assert said(ahead, **more) == {claim: HOLDS}
    assert said(behind, **more) == {claim: FAILS}
    assert said(ahead, behind, **more) == {claim: IN_PART}
    # who is not there counts as the horizon; where nobody is, there is no condition
    assert said((scene, 100.0, np.inf), ("more", np.inf, np.inf), **more) == {claim: HOLDS}
    assert said((scene, np.inf, np.inf), **more) == {}


@pytest.mark.slow
@pytest.mark.parametrize("module", [piag, block_descent])
def test_instances_differ_in_rows_workers_and_first_model(module):
    settings = module.Settings(instances=1, tuning_instances=1, n_updates=300)
    tasks = module.case_of(settings, "breast cancer", piag.SLOW)[0].tasks
    assert len(tasks) == 4  # of sets A and B, and one to tune each on
    for first, second in combinations(tasks, 2):
        assert abs(first.optimum - second.optimum) > 1e-6
        assert not np.array_equal(first.ages, second.ages)
        assert not np.array_equal(first.problem.params, second.problem.params)


def test_stamps_in_order_never_jump_up():
    as_drawn = piag.sequence("uniform 0..20, as drawn", 4000, 0)
    ordered = piag.sequence("uniform 0..20, in order", 4000, 0)
    assert (np.diff(ordered) <= 1).all()
    assert (np.diff(as_drawn) > 1).any()
    assert (ordered <= as_drawn).all()
    outages = piag.sequence("outages", 3000, 0)
    assert (outages.max(), outages.mean()) == (100, pytest.approx(5.05))


@pytest.mark.slow
def test_the_optimum_is_a_minimum():
    features, labels = (array[:100] for array in step_rules.rows_of("breast cancer"))
    signs, loss = np.where(labels == 1, 1.0, -1.0), step_rules.logistic_loss(labels)
    best, value = step_rules.minimum(features, loss, 1e-2, 1e-2)

    def objective(x):
        mean = np.logaddexp(0, -signs * (features.astype(float) @ x)).mean()
        return mean + 0.005 * (x @ x) + 1e-2 * np.abs(x).sum()

    assert objective(best) == pytest.approx(value, abs=1e-12)
    for way in np.random.default_rng(0).normal(size=(50, best.size)):
        assert min(objective(best + size * way) for size in (1e-3, 1e-2, 1e-1)) > value
