"""The map of the joint gain: gains, the rule of thumb, a small map."""

from dataclasses import replace

import numpy as np
import pytest

from asyncjax.results.statistics import OPEN, Difference
from experiments.joint import phases
from experiments.joint.phases import Gain, Settings, cells_of, gains_of
from experiments.joint.training import JOINT, MAPPED, UNBIASED
from tests.experiments import made_up


def whole_map(log):
    """A map whose mean log ratio is a function of the cell, known to 0.05."""
    means = {cell: log(cell) for cell in cells_of(Settings())}
    return {
        cell: Gain("Rescaled, reshuffled", Difference(mean, mean - 0.05, mean + 0.05, 0.5, 10))
        for cell, mean in means.items()
    }


def test_the_rule_finds_the_bounds_that_a_map_was_made_with():
    gains = whole_map(lambda cell: -0.5 if cell.unevenness >= 4 and cell.skew >= 0.5 else 0.2)
    rule = phases.rule_of(gains)
    assert (rule.unevenness, rule.skew, rule.rows) == (4.0, 0.5, 16)
    assert rule.right(gains) == len(gains) == 36
    told = phases.sentence(rule, gains, whole_map(lambda c: -0.1 if c.unevenness >= 4 else 0.3))
    assert "need 0.90 of the time of the best other arm, elsewhere 1.22" in told
    assert told.endswith("are those of set B, where it is right in 30)")
    assert phases.rule_of(whole_map(lambda cell: -0.5 if cell.rows == 1 else 0.0)).rows == 1
    none = whole_map(lambda cell: -0.02)  # below 1, but no significant difference from it
    assert phases.rule_of(none) is None
    assert phases.sentence(None, none, gains).startswith("In no cell")


@pytest.mark.parametrize(("joint", "word"), [(50.0, "gain"), (np.inf, "loss"), (80.0, OPEN)])
def test_a_gain_is_beside_the_best_of_the_others(joint, word):
    times = {arm.name: [100.0, 110.0, 90.0] for arm in MAPPED}
    times[UNBIASED[1].name] = [80.0, 88.0, 72.0]
    times[JOINT.name] = [joint, 1.1 * joint, 0.89 * joint]
    cell = {"scene": "s", "unevenness": 1.0, "skew": 0.0, "rows": 1, "horizon": 95.0}
    cells = [(cell | {"method": name}, values) for name, values in times.items()]
    (found,) = gains_of(made_up.result(cells, "value", cut=("value",)), "A").values()
    assert (found.best, found.word) == (UNBIASED[1].name, word)
    if word == "gain":
        assert found.ratio == pytest.approx(50 / 80, rel=0.01)


@pytest.mark.slow
@pytest.mark.optimised
def test_a_small_map_is_measured_drawn_and_read_again(tmp_path):
    cells = {"unevenness": (4.0,), "skew": (0.0, 1.0), "rows": (1,), "horizon": 200.0}
    counts = {"tuning_instances": 1, "instances": 3, "trials": 4, "rounds": (1, 2), "records": 100}
    settings = Settings(tmp_path, level=0.97, **cells, **counts)
    result = phases.study_of(settings)
    for letter in result.sets:
        by_skew = {cell.skew: gain.ratio for cell, gain in gains_of(result, letter).items()}
        assert by_skew[1.0] < by_skew[0.0]  # it pays where the slow hold labels
    assert len(phases.map_figure(result).figure.axes) == 2
    cells = sorted((tmp_path / "cells").iterdir())
    more = replace(settings, skew=(1.0,))
    assert len(phases.study_of(more).rows) == len(result.rows) / 2
    assert sorted((tmp_path / "cells").iterdir()) == cells
