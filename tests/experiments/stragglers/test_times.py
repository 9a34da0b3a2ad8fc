"""Plans on recorded times: verdicts see their flip; what is planned on is not what is met."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import study
from asyncjax.results.statistics import FAILS, HOLDS, IN_PART
from asyncjax.study.protocol import SET_A, Seeds
from asyncjax.study.result import Result
from experiments import part
from experiments.stragglers import times
from experiments.stragglers.methods import ALONE, BOTH, PAIR, main_methods
from experiments.stragglers.times import FASTER, FASTER_THAN_ALONE, N_WORKERS, Settings
from experiments.stragglers.training import compared
from tests.experiments import made_up
from tests.experiments.asynchronous.test_recorded_times import write_recording


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straggler_times")
    means = np.linspace(400, 440, N_WORKERS)
    jobs = {"even": (write_recording(folder / "one.csv", means),), "uneven": ("job_4",)}
    counts = {"instances": 3, "tuning_instances": 2, "trials": 5, "rounds": (1, 1)}
    return Settings(folder, lengths=(250,), loads=(1, 56), **jobs, **counts)


@pytest.mark.parametrize(
    ("pairs", "alone", "said"),
    [
        ((1.3, 1.2), (2.0, 0.5), (HOLDS, IN_PART)),
        ((0.9,), (2.0,), (FAILS, HOLDS)),
        ((1.3, 1.2, 0.9), (2.0, 0.5, 2.0), (IN_PART, IN_PART)),
    ],
)
def test_verdicts_flip_with_times(pairs, alone, said):
    """The pair and k alone take so many times the time of k and load."""
    cells = [
        ({"scene": f"recording {scene}", "method": name}, factor * np.linspace(0.9, 1.2, 4))
        for scene, (pair, single) in enumerate(zip(pairs, alone, strict=True))
        for name, factor in {BOTH: 1.0, PAIR: pair, ALONE: single}.items()
    ]
    result = made_up.result(cells, "time")
    found = result.verdicts(times.claims(result))
    assert (found[FASTER]["A"], found[FASTER_THAN_ALONE]["B"]) == said


@pytest.mark.slow
def test_scenes_are_planned_on_one_half_and_run_on_the_other(settings):
    scenes = times.scenes(settings)
    assert list(scenes)[3:] == ["job_4", "job_4 with links"]
    pairs = [one.responses(Seeds(0, SET_A, 0)) for one in list(scenes.values())[:3]]
    for known, met in pairs:
        assert known.n_workers == met.n_workers == N_WORKERS
        assert float(known.compute.mean.mean()) < float(met.compute.mean.mean())
    slowed = np.sort(np.asarray(pairs[2][1].compute.mean).ravel())  # half x4, links
    assert slowed[N_WORKERS // 2] > 3.5 * slowed[N_WORKERS // 2 - 1]


@pytest.mark.slow
def test_instances_begin_elsewhere_with_other_shards(settings):
    scene = times.scenes(settings)["job_4"]
    met = [scene.responses(Seeds(0, SET_A, at))[1] for at in (0, 1)]
    first = [np.asarray(response.compute.durations(jax.random.key(0), 1))[:, 0] for response in met]
    assert not np.allclose(np.sort(first[0]), np.sort(first[1]))
    rows = [times.task(0.05, Seeds(0, SET_A, at)).problem.data.features[:5] for at in (0, 1)]
    assert not np.allclose(*rows)


@pytest.mark.slow
def test_the_load_is_what_matters_on_even_workers_and_a_fixed_pair_has_it_too(settings):
    """A few samples per worker are far ahead of whole shards; the verdicts say so."""
    chosen = {
        BOTH: {"step": 32.0, "floor": "bound", "convexity": 4.0},
        ALONE: {"step": 32.0, "floor": "bound", "convexity": 1.0},
        PAIR: {"step": 32.0, "k": 10, "load": 8},
    }
    several = main_methods(N_WORKERS, 56)
    methods = {
        name: study.Method(
            run=lambda scene, _, seeds, n=name: several[n].run(scene, chosen[n], seeds)
        )
        for name in chosen
    }
    scene = times.scenes(replace(settings, loads=Settings().loads))["one with links"]
    rows = compared(settings, "one with links", scene, methods)
    assert rows["whole"].all()
    result = Result(rows, "time")
    found = result.verdicts(times.claims(result))
    assert found[FASTER_THAN_ALONE]["A"] == HOLDS
    assert HOLDS not in found[FASTER].values()
    assert result.ratio(BOTH, over=PAIR, set="B")["ratio"][0] > 1
    assert times.time_table(result).rows


def test_each_set_is_tuned_on_instances_of_its_own_and_all_are_watched_to_the_horizon():
    committed = part.committed("straggler_times")
    assert committed.facts["tuned apart"]
    assert committed.facts["tuning_instances"] >= 5
    assert committed.rows["whole"].all()  # everybody was watched to the horizon
