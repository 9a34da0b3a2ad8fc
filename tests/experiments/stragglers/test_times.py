"""Plans on recorded times: verdicts see their flip; what is planned on is not what is met."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import experiments
from asyncjax import results
from asyncjax.study.protocol import SET_A, Seeds
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART
from experiments.common import numbers
from experiments.stragglers import times, training_runs
from experiments.stragglers.times import FASTER, FASTER_THAN_ALONE, N_WORKERS, Settings, verdicts
from experiments.stragglers.training_report import ALONE, BOTH, PAIR
from experiments.stragglers.training_runs import SETS
from tests.experiments.asynchronous.test_recorded_times import write_recording

PAGE = Path(experiments.__file__).parent / "README.md"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straggler_times")
    means = np.linspace(400, 440, N_WORKERS)
    return Settings(
        output=folder,
        even=(str(write_recording(folder / "one.csv", means)),),
        uneven=("job_4",),
        instances=3,
        tuning_instances=2,
        trials=6,
        rounds=(2, 2),
        lengths=(250,),
        loads=(1, 56),
    )


def cell(pair: float, alone: float) -> dict:
    """A column in which the pair and k alone take so many times the time of k and load."""
    spread = np.array([0.9, 1.0, 1.1, 1.2])
    factors = {BOTH: 1.0, PAIR: pair, ALONE: alone}
    tuned = {
        name: {letter: {"time": (factor * spread).tolist()} for letter in SETS}
        for name, factor in factors.items()
    }
    return {"tuned": tuned}


def test_verdicts_flip_with_times():
    both = {"one": cell(1.3, 2.0), "two": cell(1.2, 0.5)}
    assert verdicts(both)["A"] == {FASTER: HOLDS, FASTER_THAN_ALONE: IN_PART}
    assert verdicts({"one": cell(0.9, 2.0)})["B"] == {FASTER: FAILS, FASTER_THAN_ALONE: HOLDS}
    assert verdicts(both | {"three": cell(0.9, 2.0)})["A"][FASTER] == IN_PART


@pytest.mark.slow
def test_columns_are_planned_on_one_half_and_run_on_the_other(settings):
    columns = times.columns(settings)
    even = ["one", "one with links", "one, half x4, links"]
    assert list(columns) == [*even, "job_4", "job_4 with links"]
    pairs = {name: times.responses(settings, columns[name], Seeds(0, SET_A, 0)) for name in even}
    for known, met in pairs.values():
        assert known.n_workers == met.n_workers == N_WORKERS
        assert float(known.compute.mean.mean()) < float(met.compute.mean.mean())  # ever slower
    slowed = np.sort(np.asarray(pairs[even[2]][1].compute.mean).ravel())
    assert slowed[N_WORKERS // 2] > 3.5 * slowed[N_WORKERS // 2 - 1]


@pytest.mark.slow
def test_instances_begin_elsewhere_with_other_shards(settings):
    column = times.Column("job_4")
    met = [times.responses(settings, column, Seeds(0, SET_A, at))[1] for at in (0, 1)]
    first = [np.asarray(own.compute.durations(jax.random.key(0), 1))[:, 0] for own in met]
    assert not np.allclose(np.sort(first[0]), np.sort(first[1]))
    made = [times.task(settings, Seeds(0, SET_A, at)).problem.data for at in (0, 1)]
    rows = [np.asarray(own.features)[:5] for own in made]
    assert not np.allclose(*rows)


@pytest.mark.slow
def test_the_load_is_what_matters_on_even_workers(settings):
    """One sample a worker is far ahead of whole shards, and the verdict says so."""
    own, trained = replace(settings, uneven=()), times.as_trained(settings)
    scenes = times.scenes_of(own, times.columns(own)["one"])
    chosen = {
        BOTH: {"step": 8.0, "floor": "quadratic", "convexity": 16.0},
        ALONE: {"step": 32.0, "floor": "bound", "convexity": 2.0},
        PAIR: {"step": 32.0, "k": 10, "load": 1},
    }
    made = times.methods(own)
    found = {
        name: training_runs.on_sets(trained, scenes, made[name], one)
        for name, one in chosen.items()
    }
    assert verdicts({"one": {"tuned": found}})["A"][FASTER_THAN_ALONE] == HOLDS


def test_the_page_shows_the_committed_numbers():
    found = numbers.load(times.NUMBERS)
    assert found["verdicts"] == verdicts({name: found["cases"][name] for name in found["order"]})
    lines = results.as_markdown(times.page_table(found)).splitlines()
    assert "\n".join(line for line in lines if line.startswith("|")) in PAGE.read_text()
