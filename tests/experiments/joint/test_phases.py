"""The map of the joint gain: cells, crossings, the rule of thumb."""

from dataclasses import replace

import numpy as np
import pytest

from asyncjax.study.protocol import SET_A, SET_B
from asyncjax.study.statistics import OPEN, Difference
from experiments.common import numbers
from experiments.joint import phases, phases_report, phases_runs
from experiments.joint.arms import JOINT, RESCALED
from experiments.joint.pages import gains_of
from experiments.joint.phases_report import (
    Gain,
    agreement,
    crossings,
    gain_of,
    rule_of,
    sentence,
)
from experiments.joint.phases_runs import ARMS, Settings, cells_of


def whole_map(log):
    """A map whose mean log ratio is a function of the cell, known to 0.05."""
    made = {}
    for cell in cells_of(Settings()):
        mean = log(cell)
        difference = Difference(mean, mean - 0.05, mean + 0.05, 0.5, 10)
        made[cell] = Gain("Rescaled, reshuffled", difference)
    return made


def test_the_rule_finds_the_bounds_that_a_map_was_made_with():
    made = whole_map(lambda cell: -0.5 if cell.unevenness >= 4 and cell.skew >= 0.5 else 0.2)
    rule = rule_of(made)
    assert (rule.unevenness, rule.skew, rule.rows) == (4.0, 0.5, 16)
    assert rule.right == rule.cells == 36
    other = whole_map(lambda cell: -0.1 if cell.unevenness >= 4 else 0.3)
    told = sentence(rule, made, other)
    assert "at least 4 times slower" in told
    assert "need 0.90 of the time of the best other arm, elsewhere 1.22" in told
    assert (
        "right in 36 of 36 cells; these figures are those of set B, where it is right in 30" in told
    )
    few = whole_map(lambda cell: -0.5 if cell.rows == 1 else 0.0)
    assert rule_of(few).rows == 1
    none = whole_map(lambda cell: -0.02)  # below 1, but no significant difference from it
    assert rule_of(none) is None
    assert sentence(None, none, made).startswith("In no cell")


def test_crossings_lie_on_the_line_between_two_places():
    made = whole_map(lambda cell: 0.3 - 0.2 * np.log2(cell.unevenness) * (cell.skew > 0))
    found = crossings(made)
    assert found[0.0, 1] is None
    assert found[0.5, 4] == pytest.approx(2**1.5)
    below = whole_map(lambda cell: -0.1)
    assert crossings(below)[1.0, 16] == 1.0
    back = whole_map(lambda cell: -0.1 if cell.unevenness == 2 else 0.1)
    assert crossings(back)[1.0, 16] is None  # it does not stay below


def test_a_gain_is_judged_against_the_best_of_the_others():
    times = {arm.name: [100.0, 110.0, 90.0] for arm in ARMS}
    times[JOINT.name] = [50.0, 55.0, 45.0]
    times[RESCALED[1].name] = [80.0, 88.0, 72.0]
    arms = {name: {"times": {SET_A: t, SET_B: [90.0] * 3}} for name, t in times.items()}
    own = {"asked": {"horizon": 95.0}, "arms": arms}
    found = gain_of(own, SET_A)
    assert found.best == RESCALED[1].name
    assert found.ratio == pytest.approx(50 / 80)
    assert (found.word, gain_of(own, SET_B).word) == ("gain", OPEN)
    times[JOINT.name][:] = [np.inf] * 3
    assert gain_of(own, SET_A).word == "loss"


@pytest.mark.slow
@pytest.mark.optimised
def test_a_small_map_is_measured_drawn_and_read_again(tmp_path, monkeypatch):
    settings = Settings(
        output=tmp_path,
        unevenness=(4.0,),
        skew=(0.0, 1.0),
        rows=(1,),
        horizon=200.0,
        level=0.97,
        tuning=1,
        instances=3,
        trials=4,
        rounds=(1, 2),
        records=100,
    )
    part = phases.run(settings)
    for role in (SET_A, SET_B):
        by_skew = {cell["skew"]: gain_of(cell, role) for cell in part.numbers["cells"]}
        assert by_skew[1.0].ratio < by_skew[0.0].ratio  # it pays where the slow hold labels
    assert all(path.stat().st_size > 10_000 for path, _ in part.figures)
    monkeypatch.setattr(phases_runs, "_measured", lambda *_: pytest.fail("measured again"))
    again = phases.run(settings)
    assert again.numbers == part.numbers


def test_wrong_settings_are_named(tmp_path):
    settings = Settings(output=tmp_path)
    with pytest.raises(ValueError, match="skew must be numbers from 0 to 1, got"):
        phases.run(replace(settings, skew=(2.0,)))
    with pytest.raises(ValueError, match="tuning must be at least 1, got 0"):
        phases.run(replace(settings, tuning=0))


def test_the_committed_rule_follows_from_the_committed_cells():
    found = numbers.load("joint")["map"]
    made = gains_of(found["cells"])
    assert list(made[SET_A]) == list(cells_of(Settings()))
    assert phases_report.told_of(made) == found["sentence"]
    arms = [own for cell in found["cells"] for own in cell["arms"].values()]
    assert all(len(own["times"][role]) >= 10 for own in arms for role in (SET_A, SET_B))
    assert (
        len(
            {arm["tuned"]["trials"] for cell in found["cells"][:1] for arm in cell["arms"].values()}
        )
        == 1
    )


def test_sets_agree_cell_by_cell():
    one = whole_map(lambda cell: -0.5)
    other = whole_map(lambda cell: {1: -0.5, 4: 0.0, 16: 0.5}[cell.rows])
    assert agreement(one, other) == (
        "Sets A and B say the same in 12 of 36 cells; in 12 one says gain and the other loss"
    )
