"""The time-complexity experiment on a small size.

Its structure, and what theory says of easy cases.
"""

from pathlib import Path

import jax
import numpy as np
import pytest

from asyncjax import results, storage
from experiments.asynchronous import (
    time_complexity,
    time_complexity_report,
    time_complexity_runs,
)
from experiments.asynchronous.time_complexity import Settings
from experiments.asynchronous.time_complexity_report import CANDIDATES, recalled_optimum
from experiments.asynchronous.time_complexity_runs import Method, Outcome
from experiments.common import numbers

pytestmark = pytest.mark.slow  # one run serves all tests of this file


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    settings = Settings(
        output=tmp_path_factory.mktemp("time_complexity"),
        workers=(2,),
        speeds=("one straggler",),
        noise=(1.0,),
        dimension=10,
        target=0.1,
        parameters=(1,),
        horizon=300.0,
        instances=2,
        tuning_instances=1,
        step_sizes=(0.25, 0.5, 1.0),
    )
    return settings, time_complexity.run(settings)


def test_every_method_has_a_row_and_only_waiting_for_the_straggler_fails(made):
    settings, part = made
    (row,) = part.numbers["rows"]
    assert row["n"] == 2
    assert row["speeds"] == "one straggler"
    assert row["synchronous"]["median"] == np.inf  # three rounds in 300 units are too few
    for name in CANDIDATES:
        if name != "synchronous":
            assert all(3.0 <= time <= 100 for own in row[name]["times"].values() for time in own)
            assert 0.125 <= row[name]["step_size"] <= 2.0
        assert row[name]["trials"] == 2 * len(settings.step_sizes)
    assert row["fastest m"]["parameter"] == 1
    assert row["Ringmaster"]["parameter"] in (1, np.inf)
    assert row["optimum_any_data_recalled"] > 50 * row["optimum_recalled"]


def test_further_steps_lie_around_the_best_and_over_the_grid_where_nothing_arrived():
    one, other = (Method(name, 1, True, None) for name in ("one", "other"))
    tried = {(one, 0.5): 4.0, (one, 1.0): 3.0, (other, 0.5): 2.0, (other, 1.0): 5.0}
    method, steps = time_complexity_runs.finer(tried, 10.0, 6)
    assert method is other
    assert len({*steps, 0.25, 0.5, 1.0}) == 9
    assert all(0.25 < step < 1.0 for step in steps)
    method, steps = time_complexity_runs.finer(tried, 1.0, 3)
    assert len(steps) == 3
    assert all(0.5 < step < 1.0 for step in steps)


def test_tables_say_how_far_a_failed_run_went(made):
    settings, part = made
    _, times, chosen = part.tables
    labels = [column.label for column in times.columns]
    cell = labels.index("synchronous")
    assert times.columns[cell].format(times.rows[0][cell]) == "never"
    assert chosen.columns[cell].format(chosen.rows[0][cell]) == "none"
    saved = storage.load_json(settings.output / "time_complexity.json")
    assert saved["rows"][0]["pure"] == part.numbers["rows"][0]["pure"]
    for path, caption in part.figures:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert "recalled" in caption


def test_the_gradient_is_that_of_the_quadratic():
    settings = Settings(dimension=4)
    problem = time_complexity_runs.quadratic(settings, 0.0)
    matrix = (2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)) / 4
    x = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
    expected = matrix @ x - np.array([-0.25, 0, 0, 0])
    _, slope = problem.gradient(x, 0, 0, jax.random.key(0))
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    np.testing.assert_allclose(problem.objective(x), np.linalg.norm(expected), rtol=1e-6)


def test_noise_is_measured_against_the_target():
    settings = Settings(dimension=2000, target=0.2)
    problem = time_complexity_runs.quadratic(settings, 9.0)
    _, slope = problem.gradient(problem.params, 1, 2, jax.random.key(3))
    error = np.asarray(slope - time_complexity_runs.slope(problem.params))
    np.testing.assert_allclose(np.sum(error**2), 9.0 * 0.2**2, rtol=0.15)


def test_recalled_optimum_by_hand():
    assert recalled_optimum(np.ones(4), 8.0) == 3.0
    assert recalled_optimum(np.array([1.0, 100.0]), 0.0) == 1.0  # the straggler is left out
    assert recalled_optimum(np.array([1.0, 3.0]), 2.0, skewed=True) == 3.0 + 2.0 * 2.0 / 2


def test_a_run_is_prolonged_until_it_cannot_win():
    settings = Settings(noise=(1.0,), horizon=100.0)

    def method(parameter):
        return Method("Rennala", parameter, False, lambda clock, n_updates, key: None)

    def outcome(reached, end):
        return [Outcome(np.full((1, 1), reached), end)]

    fast, short, late = method(1), method(4), method(16)
    found = {fast: outcome(10.0, 12.0), short: outcome(np.inf, 8.0), late: outcome(np.inf, 20.0)}
    assert time_complexity_runs.unfinished(settings, found) == {short}
    nothing = {short: outcome(np.inf, 8.0), late: outcome(np.inf, 120.0)}
    assert time_complexity_runs.unfinished(settings, nothing) == {short}


def made_up(pure, ringmaster):
    """Numbers of one straggler on which two rules take these times and the others as the second."""
    times = {name: ringmaster for name in CANDIDATES} | {"pure": pure}
    row = {"speeds": "one straggler", "noise": 1.0, "n": 10} | {
        name: {"times": {"A": own, "B": own}} for name, own in times.items()
    }
    return {"settings": {"horizon": 100.0}, "rows": [row]}


@pytest.mark.parametrize(
    ("pure", "ringmaster", "said"),
    [
        ([10.0, 11.0, 10.5], [10.0, 10.0, 10.0], "holds"),
        ([20.0, 25.0, 30.0], [10.0, 10.0, 10.0], "does not hold"),
        ([10.0, 11.0, 30.0], [10.0, 10.0, 10.0], "no significant difference"),
    ],
)
def test_a_verdict_flips_with_the_times(pure, ringmaster, said):
    found = time_complexity_report.verdicts(made_up(pure, ringmaster), "A")
    claim = "with one straggler pure takes at most 1.25 times as long as Ringmaster"
    assert found[claim] == said


def test_committed_verdicts_follow_from_committed_numbers():
    kept = numbers.load(time_complexity_report.NAME)
    assert kept["verdicts"] == {
        letter: time_complexity_report.verdicts(kept, letter) for letter in "AB"
    }
    text = (Path(time_complexity.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    report = time_complexity_report
    for table in (report.short_table(kept), report.verdict_table(kept)):
        lines = [ln for ln in results.as_markdown(table).splitlines() if ln.startswith("|")]
        assert "\n".join(lines) in text
