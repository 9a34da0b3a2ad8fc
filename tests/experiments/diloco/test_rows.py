"""Rows, claims and tables of DiLoCo, of made-up runs."""

import pytest

from experiments.diloco import language
from experiments.diloco.arms import SYNCHRONOUS, Scene, Trial
from experiments.diloco.language import DYLU, SGD, Settings, Tuned

SCENE, EVEN = Scene(2), Scene(2, "even")
SETTINGS = Settings(workers=(2,), horizons=(10.0,), characters=4000, test_rows=8)


def run(final, tokens):
    """A run to the horizon of 10, on a straight line from a loss of 4."""
    return {
        "time": [0.0, 10.0],
        "loss": [4.0, final],
        "tokens": [0, tokens],
        "bytes": [1_000_000, 3_000_000 + tokens],
        "final": final,
        "updates": 6,
        "delay": 1.25,
    }


def rows(sgd, even=(2.5, 2.5, 2.5), dylu=(0.5, 0.5, 0.5)):
    finals = {
        (SCENE, SYNCHRONOUS): ((3.0, 3.0, 3.0), 1000),
        (SCENE, SGD): (sgd, 2000),
        (SCENE, DYLU): (dylu, 4000),
        (EVEN, SYNCHRONOUS): ((2.0, 2.0, 2.0), 1000),
        (EVEN, SGD): (even, 1000),
    }
    taken = Trial(0.01, 0.5, 0.9)
    tuned = Tuned(taken, {taken: [3.0, 3.5], Trial(0.01, 1.0, 0.5): [2.5]})
    runs = {
        where: [run(one, tokens) for one in losses] for where, (losses, tokens) in finals.items()
    }
    return language.as_rows(SETTINGS, {(2, arm): tuned for arm in (SYNCHRONOUS, SGD, DYLU)}, runs)


def test_figures_of_a_scene_are_those_of_its_runs():
    result = rows((2.0, 2.0, 1.0))
    own = result.select(scene=SCENE.name, method=SGD)
    assert own["less"].tolist() == [-1.0, -1.0, -2.0]
    assert own["sooner"].tolist() == pytest.approx([2.0, 2.0, 3.0])  # 3 is 1 below 4, of 2 and of 3
    assert own["at_equal_tokens"].tolist() == [3.0, 3.0, 2.5]  # half of its tokens, of its way
    assert (own["trials"] == 2).all()
    assert result.facts["costs"][SCENE.name][SGD]["times_thousand_tokens"] == 2.0
    assert result.facts["least_loss_by_momentum"]["2"][SGD] == {"0.5": 2.5, "0.9": 3.0}
    assert language.spans(result)[SCENE.name]["less"] == {"least": -2.5, "most": -1.0}
    found = language.ahead(result)
    assert (found["uneven"], found["even"]) == ({"ahead": 6, "of": 6}, {"ahead": 0, "of": 3})
    assert found["of_sgd"][DYLU][SCENE.name] == 3
    never = rows((3.5, 3.5, 3.5)).select(scene=SCENE.name, method=SGD)
    assert never["sooner"].tolist() == [0.0] * 3
