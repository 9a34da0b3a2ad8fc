"""Reading measured durations: tiny tables, and the real files where they are."""

from pathlib import Path

import jax
import numpy as np
import pytest

from asyncjax import clocks

REAL = Path(__file__).parents[3] / "shared" / "traces"


@pytest.fixture
def write(tmp_path):
    def written(*lines):
        path = tmp_path / "times.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return written


def test_rows_become_a_table_of_workers_and_jobs(write):
    path = write(
        ",worker,gpu,time,batch_time_norm",
        "0,10,25,2,7",
        "1,9,25,30,1.5",
        "2,10,25,1,5",
        "3,9,25,4,2",
        "",
        "4,10,25,3,6",
    )
    durations = clocks.read_durations(path)
    np.testing.assert_array_equal(durations, [[2.0, 1.5], [5.0, 7.0]])
    assert durations.dtype == np.float64
    replayed = clocks.recorded(durations).durations(None, 3)
    np.testing.assert_array_equal(replayed, [[2.0, 1.5, 2.0], [5.0, 7.0, 5.0]])


def test_columns_may_have_other_names_and_labels_be_text(write):
    path = write("node;x", "b,1,2.5,0", "a,1,0.5,0", "c10,1,1,0", "c9,1,3,0").read_text()
    path = write("node,step,seconds,rest", *path.splitlines()[1:])
    durations = clocks.read_durations(path, worker="node", order="step", duration="seconds")
    np.testing.assert_array_equal(durations, [[0.5], [2.5], [1.0], [3.0]])


def test_rows_at_the_same_place_stay_in_the_order_of_the_file(write):
    path = write("worker,time,batch_time_norm", "a,1,3", "a,1,2", "a,0,9", "a,1,1")
    np.testing.assert_array_equal(clocks.read_durations(str(path)), [[9.0, 3.0, 2.0, 1.0]])


def test_the_real_mini_batch_times():
    files = sorted(REAL.glob("pai_minibatch_job*.csv"))
    if not files:
        pytest.skip(
            "reads mini-batch times of cluster-trace-gpu-v2020 as they were released, as"
            f" pai_minibatch_job*.csv in {REAL.name} of a folder shared beside the repository; the"
            " library has their numbers (clocks.recording), not the files"
        )
    shapes = {}
    for path in files:
        durations = clocks.read_durations(path)
        shapes[path.stem[-4:]] = durations.shape
        assert durations.min() > 0
        assert durations.max() <= 1000
        mean = durations.mean(1)
        if path.stem[-1] in "123":  # their workers are alike
            assert (np.median(durations, 1) > 100).all()
            assert mean.max() / mean.min() < 1.4
        # A row begins with its worker's first in the file.
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
        first = min((row for row in rows if row[1] == "3"), key=lambda row: float(row[3]))
        assert durations[3, 0] == float(first[4])
        clock = clocks.recorded(durations)
        np.testing.assert_allclose(clock.mean, mean)
        assert clock.n_workers == 10
    known = {"job1": (10, 300), "job2": (10, 239), "job3": (10, 248), "job4": (10, 2182)}
    assert shapes.items() >= known.items(), "others may be added"
    with jax.enable_x64(True):
        np.testing.assert_array_equal(clock.durations(None, durations.shape[1]), durations)


def test_a_warning_says_how_many_rows_a_short_worker_costs(write):
    rows = [f"a,{place},1.5" for place in range(9)]
    path = write("worker,time,batch_time_norm", *rows, "b,0,2")
    with pytest.warns(UserWarning, match="worker 'b' has only 1 rows in .* 8 rows of 10 are left"):
        durations = clocks.read_durations(path)
    np.testing.assert_array_equal(durations, [[1.5], [2.0]])
    path = write("worker,time,batch_time_norm", *rows, *(f"b,{place},2" for place in range(7)))
    assert clocks.read_durations(path).shape == (2, 7)  # uneven ends are common, no warning
