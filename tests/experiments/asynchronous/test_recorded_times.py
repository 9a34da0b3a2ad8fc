"""The experiment on recorded times, on small made-up recordings.

It runs, and its numbers fit together.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import problems, storage, traces
from experiments.asynchronous import recorded_times, recorded_times_runs
from experiments.asynchronous.recorded_times import Settings
from experiments.common.methods import curvature
from experiments.common.recordings import of_workers, read_recordings, spread_of_jobs

pytestmark = pytest.mark.slow  # one run serves all tests of this file

pytest.importorskip("sklearn", reason="the digits come with scikit-learn, the extra [data]")


def write_recording(path, means):
    """Six ever slower iterations of every worker, in the layout of the public trace."""
    lines = [",worker,gpu,time,batch_time_norm"]
    for iteration in range(1, 7):
        for worker, mean in enumerate(means):
            lines.append(f"{len(lines) - 1},{worker},25,{iteration},{mean + 5 * iteration}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded_times")
    settings = Settings(
        output=folder,
        even=(
            str(write_recording(folder / "one.csv", [400, 420, 440, 450])),
            str(write_recording(folder / "two.csv", [800, 700, 750, 720])),
        ),
        uneven=("llm_slow_worker",),
        horizon=12.0,
        uneven_horizon=16.0,
        seeds=2,
        tuning_seeds=1,
        batch=4,
        hidden=4,
        target=0.2,
        records=6,
        methods=("synchronous",),
        step_sizes=(0.05, 0.2),
    )
    return settings, recorded_times.run(settings)


def test_numbers_have_a_row_for_each_method_and_column(made):
    settings, part = made
    stressed = "even jobs, half of them x4"
    assert list(part.numbers["columns"]) == ["even jobs", stressed, "llm_slow_worker"]
    for rows in part.numbers["columns"].values():
        assert [row["method"] for row in rows] == ["synchronous"]
        assert all(row["step_size"] in settings.step_sizes for row in rows)
    even, uneven, real = (rows[0]["utilisation"] for rows in part.numbers["columns"].values())
    assert even["low"] > 0.85
    assert uneven["high"] < 0.7  # rounds wait for those four times slower
    assert real["median"] == pytest.approx(0.58, abs=0.02)  # mean over longest, of the recording
    saved = storage.load_json(settings.output / "recorded_times.json")
    assert saved["settings"]["uneven"] == ["llm_slow_worker"]
    for path, _ in part.figures:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_seeds_start_at_different_places_and_only_half_is_stressed(made):
    settings, _ = made
    recordings = read_recordings(settings.even)
    assert [times.mean() for times in recordings] == pytest.approx([1.0, 1.0])
    plain, stressed, _ = recorded_times_runs.columns(settings)
    first = [np.asarray(clock.durations(None, 6)) for clock in plain.clocks]
    for seed, durations in enumerate(first):
        np.testing.assert_allclose(np.sort(durations), np.sort(recordings[seed % 2]), rtol=1e-6)
    assert not np.allclose(first[2], first[0])
    late = np.asarray(stressed.clocks[1].durations(None, 6)) / first[1]
    np.testing.assert_allclose(late, np.repeat([1.0, 1.0, 4.0, 4.0], 6).reshape(4, 6), rtol=1e-6)


def test_all_methods_make_valid_traces(made):
    settings, _ = made
    plain = recorded_times_runs.columns(settings)[0]
    methods = recorded_times_runs.methods(4, 1.0)
    assert len({method.name for method in methods}) == len(methods) == 24
    for method in methods:
        key = jax.random.key(0)
        trace = traces.validate(method.trace(plain.clocks[0], 12, key))
        assert trace.n_updates == 12
        if method.local_steps > 1:
            assert trace.time[0] > 3.0  # jobs of four steps last four times as long


def test_recordings_that_are_missing_are_named(made):
    settings, _ = made
    absent = replace(settings, even=("absent.csv",))
    with pytest.raises(ValueError, match=r"recordings must be among job_1, .*got 'absent\.csv'"):
        recorded_times.run(absent)


def test_curvature_of_a_quadratic_is_its_largest_eigenvalue():
    matrix = np.diag([1.0, 5.0, 2.0])
    problem = problems.from_gradient(
        np.ones(3, np.float32),
        lambda params, worker, job, key: (params[0], matrix @ params),
        objective=lambda params: 0.5 * params @ matrix @ params,
    )
    assert curvature(problem) == pytest.approx(5.0, rel=1e-4)


def test_a_recording_serves_any_number_of_workers():
    times = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(of_workers(times, 2), times[[0, 2]])
    np.testing.assert_array_equal(of_workers(times, 4), times)
    more = of_workers(times, 6)
    np.testing.assert_array_equal(more[:4], times)
    np.testing.assert_array_equal(more[4:], np.roll(times[:2], -1, axis=1))


def test_the_uneven_job_is_among_the_quarter_of_uneven_jobs():
    rows = {row[0]: row for row in spread_of_jobs().rows}
    for name in ("job_1", "job_2", "job_3"):
        assert rows[name][4] < 0.15
    assert rows["job_4"][4] > 0.5
    assert rows["job_4"][5] > 0.75  # the share of jobs that are more even
