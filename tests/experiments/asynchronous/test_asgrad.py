"""The AsGrad experiment: instances, readings, verdicts; a small run, which goes on where it was."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from asyncjax.results.statistics import OPEN
from asyncjax.study import Scene
from asyncjax.study.protocol import SET_A, seeds_of
from experiments.asynchronous import asgrad
from experiments.asynchronous.asgrad import Settings, Task
from experiments.part import run
from tests.experiments import made_up

pytest.importorskip("sklearn", reason="the data come with scikit-learn, the extra [data]")


@pytest.mark.slow
def test_shuffled_ends_below_pure_which_is_biased_by_sorted_shards_and_busy(tmp_path, monkeypatch):
    """The verdict itself on a small instance; what is done is not done again."""
    few = ["pure", "shuffled", "Rescaled"]
    monkeypatch.setattr(asgrad, "methods", lambda *_: few)
    monkeypatch.setattr(asgrad, "STEPS", asgrad.search.log_range(1 / 16, 1 / 4, 4))
    counts = {"n_updates": 400, "rows": 80, "records": 80, "instances": 3, "tuning_instances": 3}
    tasks = {"data": ("breast cancer",), "laws": ("fixed",), "controls": ()}
    settings = Settings(tmp_path, trials=2, rounds=(1, 1), **counts, **tasks)
    part = run(asgrad, settings)
    said = part.numbers["verdicts"]
    assert said["shuffled below pure at equal updates"]["A"] == "holds"
    assert said["shuffled below pure at the time of pure's updates"]["A"] != "holds"
    at_last = "below {} at the time of the slowest rule's".format
    assert said[f"shuffled {at_last('pure')}"] == {"A": "holds", "B": "holds"}
    assert said[f"Rescaled {at_last('shuffled')}"]["A"] == "holds"
    rows = pd.read_csv(tmp_path / "asgrad.csv.gz", comment="#").query("set == 'A'")
    busy = rows.groupby("method")["utilisation"].median()
    assert busy["pure"] == pytest.approx(1.0)
    assert busy["shuffled"] < 0.75
    monkeypatch.setattr("asyncjax.study.cells.records_of_cell", None)  # nothing is run again
    assert run(asgrad, settings).numbers == part.numbers


LOW, HIGH, LEVEL = [0.1, 0.12, 0.11, 0.1], [0.4, 0.5, 0.45, 0.6], [0.3, 0.05, 0.04, 0.5]


@pytest.mark.parametrize(
    ("shuffled", "pure", "said"),
    [
        ([LOW, HIGH, LOW], [HIGH, LOW, HIGH], ("holds", "does not hold", "holds")),
        ([HIGH, LOW, LEVEL], [LOW, HIGH, LOW], ("does not hold", "holds", OPEN)),
    ],
)
def test_a_verdict_flips_with_the_norms(shuffled, pure, said):
    """At equal updates, at the short and at the long time, each by itself."""
    task = {"scene": "a task", "data": "digits", "split": "sorted", "law": "fixed"}
    cells = [
        (task | {"method": method, "tuned_for": axis}, values)
        for method, norms in (("shuffled", shuffled), ("pure", pure))
        for axis, values in zip(asgrad.AXES, norms, strict=True)
    ]
    found = made_up.result(cells, "norm").verdicts(asgrad.CLAIMS)
    claims = [f"shuffled below pure {where}" for where in asgrad.AXES.values()]
    assert tuple(found[claim]["A"] for claim in claims) == said


@pytest.mark.slow
def test_rows_are_sorted_by_label_and_workers_by_their_times():
    task = Task("breast cancer", n_updates=20, rows=80)
    [seeds] = seeds_of(0, SET_A, 1)
    both = (one.problem(seeds).data.targets for one in (task, replace(task, split="random")))
    changes = [np.abs(np.diff(np.asarray(targets))).sum() for targets in both]
    assert changes[0] == 2 < 4 < changes[1]  # one change of class
    scene = task(seeds)
    means = scene.numbers["times"]
    assert np.all(np.diff(means) >= 0)
    assert (means[0], means[-1], scene.data["updates"]) == (1.0, 10.0, 20)
    assert scene.data["time"] < scene.data["long time"] == scene.horizon


def test_a_step_function_is_averaged_over_the_last_part():
    axis, values = np.array([0.0, 5.0, 9.5, 20.0]), np.array([8.0, 4.0, 2.0, 1.0])
    read = asgrad.trailing_mean(axis, values, [4.0, 10.0])
    assert read[0] == 8.0
    assert read[1] == pytest.approx(3.0, abs=0.11)


def test_a_step_size_counts_only_if_the_objective_has_fallen():
    scenes = [Scene()] * 2
    near, far = ([{"norm": 0.1, "left": left}] * 2 for left in (0.2, 0.9))
    assert asgrad.score(near, scenes) == pytest.approx(np.log(0.1))
    assert asgrad.score(far, scenes) == pytest.approx(30.9)
    assert asgrad.score([{"norm": np.nan, "left": 0.2}] * 2, scenes) == np.inf
