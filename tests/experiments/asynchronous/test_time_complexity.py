"""The time-complexity experiment on a small size.

Its structure, and what theory says of easy cases.
"""

import jax
import numpy as np
import optax
import pytest

from asyncjax import results, simulation, traces
from asyncjax.study.protocol import SET_A, SET_B, TUNING_OF
from asyncjax.study.result import Result
from experiments.asynchronous import time_complexity
from experiments.asynchronous.time_complexity import CANDIDATES, Cell, Method, Settings
from experiments.common import kept_rows
from experiments.part import run

pytestmark = pytest.mark.slow  # one run serves all tests of this file


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    counts = {"instances": 2, "tuning_instances": 1, "workers": (2,), "parameters": (1,)}
    cell = {"speeds": ("one straggler",), "noise": (1.0,), "step_sizes": (0.25, 0.5, 1.0)}
    task = {"dimension": 10, "target": 0.1, "horizon": 1.0, "least": 300.0}
    folder = tmp_path_factory.mktemp("time_complexity")
    settings = Settings(folder, **counts, **cell, **task)
    return settings, run(time_complexity, settings)


def test_every_method_has_rows_and_only_waiting_for_the_straggler_fails(ran):
    settings, _ = ran
    result = Result.load(settings.output / "time_complexity.csv.gz")
    rows = result.rows.set_index("method")
    assert np.isinf(rows.loc["synchronous", "time"]).all()  # three rounds in 300 are too few
    others = rows.drop("synchronous")
    assert {*others.index} == {*CANDIDATES} - {"synchronous"}
    assert others.drop("pure")["time"].between(3.0, 100.0).all()
    assert others.loc["pure", "time"].between(100.0, 150.0).all()  # its gradient comes at 100
    assert others["step"].between(0.125, 2.0).all()
    assert (rows["trials"] == 2 * len(settings.step_sizes)).all()
    assert {*rows.loc["fastest m", "parameter"]} == {1}
    assert {*rows.loc["Ringmaster", "parameter"]} <= {1, np.inf}
    ((equal, any_data),) = time_complexity.optima(result).values()
    assert any_data > 50 * equal


def test_tables_say_what_failed_and_a_second_run_reads_the_cells(ran, monkeypatch):
    settings, part = ran
    times = part.tables[1]
    cell = [column.label for column in times.columns].index("synchronous")
    assert times.rows[0][cell] == "never"
    monkeypatch.setattr(kept_rows.Cells, "put", None)
    assert run(time_complexity, settings).numbers == part.numbers


def test_further_steps_lie_around_the_best_and_over_the_grid_where_nothing_arrived():
    one, other = (Method(name, 1, True, traces.Rule()) for name in ("one", "other"))
    tried = {(one, 0.5): 4.0, (one, 1.0): 3.0, (other, 0.5): 2.0, (other, 1.0): 5.0}
    method, steps = time_complexity.finer(tried, 6)
    assert method is other
    assert len({*steps, 0.25, 0.5, 1.0}) == 9
    assert all(0.25 < step < 1.0 for step in steps)
    method, steps = time_complexity.finer(dict.fromkeys(tried, np.inf), 3)
    assert len(steps) == 3
    assert all(0.5 < step < 1.0 for step in steps)


def test_the_gradient_is_that_of_the_quadratic():
    settings = Settings(dimension=4)
    problem = time_complexity.quadratic(settings, 0.0)
    matrix = (2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)) / 4
    x = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
    expected = matrix @ x - np.array([-0.25, 0, 0, 0])
    _, slope = problem.gradient(x, 0, 0, jax.random.key(0))
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    np.testing.assert_allclose(problem.objective(x), np.linalg.norm(expected), rtol=1e-6)


def test_noise_is_measured_against_the_target():
    settings = Settings(dimension=2000, target=0.2)
    problem = time_complexity.quadratic(settings, 9.0)
    _, slope = problem.gradient(problem.params, 1, 2, jax.random.key(3))
    error = np.asarray(slope - time_complexity.slope(problem.params))
    np.testing.assert_allclose(np.sum(error**2), 9.0 * 0.2**2, rtol=0.15)


def test_recalled_optimum_by_hand():
    optimum = time_complexity.recalled_optimum
    assert optimum(np.ones(4), 8.0) == 3.0
    assert optimum(np.array([1.0, 100.0]), 0.0) == 1.0  # the straggler is left out
    assert optimum(np.array([1.0, 3.0]), 2.0, skewed=True) == 3.0 + 2.0 * 2.0 / 2


def test_a_time_is_that_of_the_record_from_which_on_a_run_stays_until_the_end():
    settings = Settings(dimension=10, target=0.3, horizon=1.0, least=100.0)
    cell = Cell("sqrt(i)", 4.0, 2)
    steps, keys = [0.25, 1.0], time_complexity.keys_of(settings, SET_A)
    pure = Method("pure", np.inf, True, traces.Rule())
    found = time_complexity.times(settings, cell, pure, keys, steps)
    trace = traces.asynchronous(cell.clock, n_updates=200)
    problem = time_complexity.quadratic(settings, cell.noise)
    records = simulation.sweep(problem, trace, optax.sgd, steps, keys=keys, record_every=1).records
    watched = np.asarray(records.time) <= cell.end(settings)
    assert 0.5 < np.mean(watched) < 1.0
    for at in np.ndindex(found.shape):
        missed = np.flatnonzero((np.asarray(records.loss)[at] > settings.target) & watched)
        stays = missed[-1] + 1 < np.sum(watched)
        assert found[at] == (records.time[missed[-1] + 1] if stays else np.inf)
    first = results.time_to_target(records.time, records.loss, settings.target)
    assert np.isfinite(found).any()
    assert (found > first).any()


def test_the_end_of_a_cell_is_a_multiple_of_its_recalled_optimum_or_the_least():
    settings = Settings(horizon=10.0, least=25.0)
    assert Cell("one straggler", 8.0, 5).end(settings) == 30.0  # of (1 + 8 / 4)
    assert Cell("one straggler", 4.0, 5).end(settings) == 25.0
    assert Cell("one straggler", 8.0, 5).scene == "one straggler, noise 8, n 5"


def test_each_set_is_tuned_on_instances_of_its_own(monkeypatch):
    settings = Settings(workers=(1,), parameters=(1,), instances=2, tuning_instances=3)
    cell, best = Cell("sqrt(i)", 1.0, 1), {SET_A: 0.25, SET_B: 0.5}
    keys = {role: time_complexity.keys_of(settings, TUNING_OF[role]) for role in best}

    def times(settings, cell, method, asked, steps):
        """Set A's instances like one step, set B's another."""
        liked = [
            next((best[role] for role in best if (keys[role] == one).any()), 1.0) for one in asked
        ]
        return 1.0 + np.abs(np.log(np.outer(1 / np.array(liked), steps)))

    monkeypatch.setattr(time_complexity, "times", times)
    rows = time_complexity.run_cell(settings, cell)
    assert {(letter, step) for letter, step in zip(rows["set"], rows["step"], strict=True)} == {
        ("A", 0.25),
        ("B", 0.5),
    }
