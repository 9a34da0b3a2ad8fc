"""Example orders in logistic regression: verdicts flip with gaps, and small runs make rows."""

import numpy as np
import pandas as pd
import pytest

from asyncjax.study.statistics import FAILS, HOLDS, OPEN
from experiments.ordering import epoch_costs, ordered_instances
from experiments.ordering.epoch_costs import CPU, FLOPS, MACHINE
from experiments.ordering.ordered_instances import LOWER, THAN_ALONE, after, equal


def gaps(own, alone):
    """Rows of mortgages: gaps of CD-GraB and of workers alone where D-RR has 1.

    They fall from ten times as much by the epoch; an epoch of CD-GraB takes the time of 1.5.
    """
    slope, rows = np.linspace(10.0, 1.0, 50), []
    for seed, (name, level) in enumerate({"D-RR": 1, "CD-GraB": own, "independent": alone}.items()):
        noise = np.random.default_rng(seed).uniform(0.97, 1.03, (12, 1))
        curves = pd.DataFrame(level * noise * slope, columns=[after(e) for e in range(1, 51)])
        facts = {
            "set": ["A"] * 6 + ["B"] * 6,
            "instance": [*range(6)] * 2,
            "gap": curves.iloc[:, -1],
        }
        rows.append(curves.assign(scene="mortgages", method=name, price=1.5, **facts))
    return pd.concat(rows)


@pytest.mark.parametrize(
    ("own", "alone", "claim", "word"),
    [
        (0.2, 0.9, LOWER, HOLDS),
        (0.2, 0.9, THAN_ALONE, HOLDS),
        (2.0, 0.9, LOWER, FAILS),
        (0.8, 0.5, THAN_ALONE, FAILS),
        (1.0, 1.0, LOWER, OPEN),
        # at a price of 1.5, 33 of 50 epochs fit, after which the gap is 4.1 times that at the end
        (0.2, 0.9, equal(CPU), HOLDS),
        (0.5, 0.9, equal(CPU), FAILS),
        (0.5, 0.9, equal(FLOPS), HOLDS),
    ],
)
def test_the_verdicts_on_convex_problems_flip(monkeypatch, own, alone, claim, word):
    costs = {"ratio": {MACHINE: [1.0, 1.2]}, "sent ratio": 1.25}
    monkeypatch.setattr(epoch_costs, "of_logistic", lambda *_: costs)
    result = ordered_instances.as_result(ordered_instances.Settings(), gaps(own, alone))
    found = result.verdicts(ordered_instances.claims(result))
    assert found[claim] == {"A": word, "B": word}
    assert "after 1" not in result.rows


@pytest.mark.slow
def test_a_small_run_makes_rows_and_is_read_again(tmp_path):
    settings = ordered_instances.Settings(
        tmp_path, cells=("8 workers",), instances=2, tuning_instances=1, rounds=(1, 1), epochs=8
    )
    result = ordered_instances.study_of(settings)
    assert set(result.methods) == {"D-RR", "independent", "CD-GraB"}
    assert len(result.rows) == 3 * 2 * 2
    assert result.rows["trials"].unique() == [4]
    assert ordered_instances.study_of(settings).rows.equals(result.rows)
    assert len([*(tmp_path / "cells").iterdir()]) == 1
