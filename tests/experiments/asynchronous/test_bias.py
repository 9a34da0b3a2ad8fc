"""The bias experiment on a small size: known optima, who goes where, verdicts that flip."""

from pathlib import Path

import numpy as np
import pytest

from asyncjax import clocks, results, traces
from asyncjax.study.protocol import SET_A, seeds_of
from asyncjax.study.statistics import OPEN
from experiments.asynchronous import bias, bias_report, bias_runs
from experiments.asynchronous.bias import Settings
from experiments.asynchronous.bias_runs import SETS
from experiments.common import numbers


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("bias"),
        methods=("pure", "shuffled", "table"),
        n_updates=600,
        records=200,
        horizon=80.0,
        instances=3,
        tuning_instances=1,
        curve_step=1,
        step_sizes=(1 / 64, 1 / 32, 1 / 16),
    )


@pytest.fixture(scope="module")
def part(settings):
    return bias.run(settings)


def test_optima_are_those_of_the_formula():
    one = bias_runs.drawn(Settings(), seeds_of(0, SET_A, 1)[0])
    assert sorted(one.times) == [1, 2, 3, 4, 5, 6]
    for point, weights in ((one.true, np.ones(6)), (one.speed_weighted, 1 / one.times)):
        slope = weights @ (one.curvature * point - one.linear)
        np.testing.assert_allclose(slope, 0.0, atol=1e-12)
    assert one.gap == pytest.approx(np.linalg.norm(one.true - one.speed_weighted))


@pytest.mark.slow
def test_who_reaches_which_optimum(part):
    """The verdicts themselves: pure at the speed-weighted optimum, shuffled at the true one."""
    for letter in SETS:
        said = bias_report.verdicts(part.numbers, letter)
        assert said["pure ends at the speed-weighted optimum"] == "holds"
        assert said["shuffled ends at the true optimum"] == "holds"
        floors = part.numbers["methods"]["pure"]["floors"]["true"][letter]
        np.testing.assert_allclose(floors[0], part.numbers["gaps"][letter], rtol=0.35)
    methods = part.numbers["methods"]
    np.testing.assert_allclose(methods["table"]["shares"], 1 / 6, rtol=1e-4)
    assert np.median(methods["table"]["floors"]["true"]["A"][2]) < 1e-4
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path, _ in part.figures)


def made_up(true, weighted):
    """Floors of pure and shuffled at two steps; the optima lie 1 apart."""
    own = {
        "floors": {
            point: {"A": [values] * 2, "B": [values] * 2}
            for point, values in (("true", true), ("speed-weighted", weighted))
        }
    }
    gaps = {letter: [1.0, 1.1, 0.9, 1.0] for letter in "AB"}
    return {"gaps": gaps, "methods": {"pure": own, "shuffled": own}}


@pytest.mark.parametrize(
    ("true", "weighted", "said"),
    [
        ([1.0, 1.1, 0.9, 1.0], [0.01, 0.02, 0.01, 0.03], ("holds", "does not hold")),
        ([0.01, 0.02, 0.01, 0.03], [1.0, 1.1, 0.9, 1.0], ("does not hold", "holds")),
        (
            [0.1, 0.9, 0.1, 0.9],
            [0.9, 0.1, 0.9, 0.1],
            (OPEN, OPEN),
        ),
    ],
)
def test_a_verdict_flips_with_the_floors(true, weighted, said):
    found = bias_report.verdicts(made_up(true, weighted), "B")
    assert found["pure ends at the speed-weighted optimum"] == said[0]
    assert found["shuffled ends at the true optimum"] == said[1]


def test_committed_verdicts_follow_from_committed_numbers():
    kept = numbers.load(bias_report.NAME)
    assert {letter: bias_report.verdicts(kept, letter) for letter in SETS} == kept["verdicts"]


def test_the_readme_has_the_tables_that_the_program_prints():
    text = (Path(bias_report.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    kept = numbers.load(bias_report.NAME)
    for table in (bias_report.main_table(kept), bias_report.verdict_table(kept)):
        lines = [ln for ln in results.as_markdown(table).splitlines() if ln.startswith("|")]
        assert "\n".join(lines) in text


def test_methods_are_those_named():
    made = bias_runs.methods(Settings())
    assert tuple(method.name for method in made) == bias_runs.METHODS
    cancelling = {m.name: m for m in made}["Ringmaster, cancel"]
    trace = cancelling.trace(clocks.constant(np.arange(1.0, 7.0)), 100, None)
    assert np.bincount(trace.worker).tolist() == [60, 30, 10]


def test_time_within_is_that_of_the_last_return():
    gaps = np.array(
        [[1.0, 0.1, 1.0, 0.2, 0.2], [1.0, 1.0, 1.0, 1.0, 0.1], [1.0, 0.1, 0.1, 0.1, 1.0]]
    )
    assert bias_runs.times_within(0.5, np.arange(5.0), gaps).tolist() == [3.0, 4.0, np.inf]
    assert bias_runs.times_within(0.5, np.arange(5.0), np.full((1, 5), 0.1)).tolist() == [0.0]


def test_shares_count_gradients_that_serve_again():
    table = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=3, collect=traces.table())
    np.testing.assert_allclose(bias_runs.shares_of(table, 2), [0.5, 0.5])
    pure = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=6)
    np.testing.assert_allclose(bias_runs.shares_of(pure, 2), [4 / 6, 2 / 6])
