"""Figures of fastest-k SGD with load, small, against known answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.papers import fastest_k
from experiments.papers.fastest_k import ALONE, BOTH
from experiments.papers.figure import Options
from experiments.stragglers import bounds, methods


def test_the_forerunners_formula_switches_when_its_example_does() -> None:
    means = 0.2 * np.cumsum(1 / np.arange(5, 0, -1))  # E T_(k) of five exponential times
    switches = fastest_k.switch_times(fastest_k.FIVE, means, 10)
    known = [496.9196222964, 621.6237211486, 793.6535740604, 1102.5187248964]
    assert switches == pytest.approx(known, rel=1e-10)


def test_rows_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,label\n0.5,1,1\n2,3,0\n")
    features, signs = fastest_k.table(path)
    assert features.tolist() == [[0.5, 1.0], [2.0, 3.0]]
    assert signs.tolist() == [1.0, -1.0]


@pytest.mark.slow
def test_plans_are_those_of_the_formula_and_below_every_fixed_k() -> None:
    block = fastest_k.forerunner(Options())["no communication"]
    assert block["off"] < 1e-10
    assert block["above"] < 1 + 1e-9
    both, alone = (np.array(block["curves"][name]["error"]) for name in (BOTH, ALONE))
    assert (both <= alone * (1 + 1e-9)).all()
    assert block["costs"]["k = 3"]["time"].tolist() == [np.inf]  # its floor is above the target
    assert "nowhere above a fixed k" in fastest_k.found_forerunner({"no communication": block}).ours


@pytest.mark.slow
def test_costs_on_the_bound_are_those_of_an_independent_program() -> None:
    numbers = fastest_k.bounded(Options())
    known = {  # times of k and load, of k alone, of k = 40; then ratios to k alone
        "scale": (994.6, 1088.9, 4089, 0.583, 0.947, 1.013, 1.098),
        "additive": (1046.7, 1809.6, 3597, 0.349, 0.876, 1.250, 1.209),
    }
    for law, (both, alone, fixed, *ratios) in known.items():
        block = numbers[law]
        times = [fastest_k.time_of(block, name) for name in (BOTH, ALONE, "k = 40")]
        assert times == pytest.approx([both, alone, fixed], rel=1e-3)
        found = [fastest_k.ratio(block, cost) for cost in bounds.COSTS[1:]]
        assert found == pytest.approx(ratios, abs=1e-3)
        for curve in block["curves"].values():
            assert (np.diff(curve["error"]) <= 0).all()
            assert (np.diff(curve["samples_assigned"]) >= 0).all()
    assert "in part" in fastest_k.found_costs(numbers).near  # one law asks a quarter more answers


@pytest.mark.slow
def test_runs_do_what_plans_say_and_come_again() -> None:
    task = methods.linear(0, None, (50, 40, 20))
    arguments = task, (1, 5, 10, 20, 40), 0.1, {"scale": 150.0}, Options(quick=True)
    block = fastest_k.trained(*arguments)["scale"]
    again = fastest_k.trained(*arguments)["scale"]
    start = float(task.problem.objective(task.problem.params)) - task.minimum
    for name, curve in block["curves"].items():
        assert np.array_equal(curve["error"], again["curves"][name]["error"])
        assert np.asarray(curve["error"])[:, 0] == pytest.approx([start] * 3, rel=1e-5)
        if name not in (BOTH, ALONE):
            assert {*curve["k"].tolist()} == {float(name.removeprefix("k = "))}
        assert name == BOTH or {*curve["load"].tolist()} == {40.0}
    stages = block["stages"][BOTH]
    assert block["curves"][BOTH]["k"][0] == stages["k"][0]
    assert block["curves"][BOTH]["load"][0] == stages["load"][0] < 40
    costs = block["costs"][BOTH]
    assert np.isfinite(costs["time"]).all()
    assert fastest_k.ratio(block, "samples_assigned") < 1
    assert fastest_k.time_of(block, BOTH) < fastest_k.time_of(block, ALONE)
    assert np.all(np.array(costs["uplinks"]) <= costs["broadcasts"])
    numbers = fastest_k.only(lambda _: {"scale": block}, "error")(Options())
    assert [*numbers["scale"]["curves"][BOTH]] == ["error"]


@pytest.mark.slow
def test_the_forerunners_data_are_moved_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(fastest_k, "watched", lambda *arguments: seen.append(arguments))
    fastest_k.synthetic.__wrapped__(Options(seed=3))
    (scene, step, policies, keys) = seen[0]
    task = scene.data.task
    rng = np.random.default_rng(3)
    features, weights = rng.integers(1, 11, (2000, 100)), rng.integers(1, 101, 100)
    targets = features @ weights + rng.standard_normal(2000)
    assert float(task.problem.objective(task.problem.params)) == pytest.approx(
        np.mean(targets**2) / 2, rel=1e-5
    )
    best = np.linalg.lstsq(features.astype(float), targets, rcond=None)[0]
    assert task.minimum == pytest.approx(np.mean((features @ best - targets) ** 2) / 2)
    assert (step, len(keys), scene.horizon) == (5e-4, 2, 3000.0)
    assert sorted(policies) == [BOTH, ALONE, "k = 10", "k = 20", "k = 30", "k = 40"]
