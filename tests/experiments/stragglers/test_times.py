"""Plans on recorded times, on small made-up recordings of even workers."""

import numpy as np
import pytest

from experiments.stragglers import times, training
from experiments.stragglers.times import N_WORKERS, Settings
from experiments.stragglers.training_runs import measure, methods
from tests.experiments.asynchronous.test_recorded_times import write_recording


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straggler_times")
    means = np.linspace(400, 440, N_WORKERS)
    return Settings(
        output=folder,
        even=(str(write_recording(folder / "one.csv", means)),),
        uneven=("job_4",),
        n_updates=300,
        seeds=2,
        tuning_seeds=1,
        factors=(1.0, 4.0),
        loads=(1, 56),
    )


@pytest.fixture(scope="module")
def columns(settings):
    return times.columns(settings)


def test_columns_are_planned_on_one_half_and_run_on_the_other(columns):
    even = ["one", "one with links", "one, half x4, links"]
    assert list(columns) == [*even, "job_4", "job_4 with links"]
    assert all(times.n_workers == N_WORKERS for pair in columns.values() for times in pair)
    for known, met in (columns[name] for name in even):
        assert float(known.compute.mean.mean()) < float(met.compute.mean.mean())  # ever slower
    slowed = np.asarray(columns["one, half x4, links"][1].compute.mean)
    assert slowed[N_WORKERS // 2 :].min() > 3.5 * slowed[: N_WORKERS // 2].max()


@pytest.mark.slow
def test_one_fixed_pair_is_enough_for_even_workers(settings, columns):
    made, (known, met) = times.task(settings), columns["one"]
    as_trained = training.Settings(
        n_workers=N_WORKERS,
        shard=56,
        n_updates=settings.n_updates,
        seeds=settings.seeds,
        tuning_seeds=settings.tuning_seeds,
        loads=settings.loads,
        factors=settings.factors,
    )
    wanted = ("k and load", "best fixed")
    found = [one for one in methods(as_trained, made, known) if one.name in wanted]
    time = {
        method.name: np.median(measure(as_trained, made, met, method)[1].costs["time"])
        for method in found
    }
    assert time["best fixed"] <= 1.05 * time["k and load"]
