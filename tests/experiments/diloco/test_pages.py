"""What is committed of DiLoCo, and the rows of its tables, of made-up numbers."""

import numpy as np
import pytest

from experiments.common import numbers
from experiments.common.parts import Part
from experiments.diloco import __main__ as command
from experiments.diloco import pages
from experiments.diloco.arms import SYNCHRONOUS

SGD = "pure, SGD"


def run(final, tokens=128):
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


def language(last_of_sgd):
    def entry(scene, arm, finals, tokens):
        runs = [run(final, tokens) for final in finals]
        return {"scene": scene, "horizon": 10.0, "arm": arm, "runs": runs}

    scene, even = "2 workers, uneven", "2 workers, even"
    trials = [[0.01, 0.5, 0.9, [3.0, 3.5]], [0.01, 1.0, 0.5, [2.5]]]
    return {
        "parameters": 7,
        "tuned": [
            {
                "workers": 2,
                "arm": arm,
                "trial": [0.01, 0.5, 0.9],
                "at_edge": False,
                "trials": trials,
            }
            for arm in (SYNCHRONOUS, SGD)
        ],
        "runs": [
            entry(scene, SYNCHRONOUS, [3.0, 3.0, 3.0], 1000),
            entry(scene, SGD, last_of_sgd, 2000),
            entry(scene, pages.NESTEROV, [2.5, 2.25, 2.0], 2000),
            entry(even, SYNCHRONOUS, [2.0, 2.0, 2.0], 1000),
            entry(even, SGD, [2.5, 2.5, 2.5], 1000),
        ],
    }


GAUSSIANS = {
    "ways": [
        {
            "name": "synchronous, Nesterov",
            "rate": 0.7,
            "time": [0.0, 6660.0],
            "local_steps": [0, 8000],
            "loss": [[1.4, 1.0], [1.3, 1.25], [1.5, 1.5]],
            "accuracy": [[0.2, 0.5], [0.2, 0.6], [0.2, 0.7]],
        }
    ]
}


def test_figures_of_a_scene_are_those_of_its_runs():
    found = pages.summary(language([2.0, 2.0, 1.0]), GAUSSIANS)
    own = found["scenes"]["2 workers, uneven"][SGD]
    assert own["less"] == [-1.0, -1.0, -2.0]
    assert own["sooner"] == pytest.approx([2.0, 2.0, 3.0])  # 3 is 1 below 4, of 2 and of 3
    assert own["middle"]["times_thousand_tokens"] == 2.0
    assert own["at_equal_tokens"] == [3.0, 3.0, 2.5]  # half of its tokens, half of its way
    assert found["spans"]["2 workers, uneven"]["less"] == {"least": -1.0, "most": -0.75}
    assert found["ahead"] == {"uneven": {"ahead": 6, "of": 6}, "even": {"ahead": 0, "of": 3}}
    pair = found["pairs"]["2 workers, uneven"]["pure, Nesterov less pure, SGD"]
    assert pair == {"seeds": [0.5, 0.25, 1.0], "middle": 0.5, "ahead": 0}
    tuned = found["tuned"]["2"][SGD]
    assert (tuned["trials"], tuned["momentum"]) == (2, 0.9)
    assert tuned["least_loss_by_momentum"] == {"0.5": 2.5, "0.9": 3.0}
    later = pages.summary(language([3.5, 3.5, 3.5]), GAUSSIANS)
    assert later["ahead"]["uneven"] == {"ahead": 3, "of": 6}  # the opposite outcome is seen
    assert later["scenes"]["2 workers, uneven"][SGD]["sooner"] == [0.0, 0.0, 0.0]


def test_rows_are_made_of_committed_numbers_alone(tmp_path):
    found = pages.summary(language([2.0, 2.0, 1.0]), GAUSSIANS)
    numbers.save("tiny", found, folder=tmp_path)
    made = pages.tables(numbers.load("tiny", folder=tmp_path))
    assert made["loss"][0] == "| arm | 2 workers, uneven | 2, even |"
    assert made["less"][2:] == [
        "| pure, SGD | -1.00 (-1.50 to -1.00) | +0.50 (0.50 to 0.50) |",
        "| pure, Nesterov | -0.75 (-0.88 to -0.62) | not run |",
    ]
    assert made["costs"][2].startswith(f"| 2 | {SYNCHRONOUS} | 6 | 1.2 | 1 | 3.0 | 3.00 (3.00 to")
    assert made["costs"][3].startswith(f"| | {SGD} | 6 | 1.2 | 2 | 3.0 | 3.00 (2.75 to 3.00) |")
    assert made["tuned"][2] == f"| 2 | {SYNCHRONOUS} | 0.01 | 0.5 | 0.9 | 2 | |"
    assert made["gaussians"][2:] == [
        "| synchronous, Nesterov | 0.7 | 6,660 | 1.25 (1.12 to 1.38) | 0.600 (0.550 to 0.650) |"
    ]
    assert all(len(set(map(lambda row: row.count("|"), own))) == 1 for own in made.values())


def test_numbers_are_committed_of_both_parts_alone(tmp_path, monkeypatch):
    kept = {}
    monkeypatch.setattr(numbers, "save", lambda name, found, **others: kept.update({name: found}))
    text = Part("diloco", "", (), (), language([2.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match="parts must be both"):
        pages.commit([text])
    pages.commit([text, Part("diloco_gaussians", "", (), (), GAUSSIANS)])
    assert list(kept) == [pages.NAME]
    settings = command.Settings(tmp_path, ("gaussians",), commit=True)
    with pytest.raises(ValueError, match="commit must be False unless all parts"):
        command.run(settings)


def test_a_figure_that_was_not_measured_is_a_dash():
    assert pages.spread([1.0, np.nan]) == "-"
