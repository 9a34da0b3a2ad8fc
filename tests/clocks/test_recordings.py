"""Recordings: that they are what was released; and times read from a file."""

import csv
import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest

from asyncjax import clocks, traces

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "traces"
WORKERS = {
    "job_1": (10, 300),
    "job_2": (10, 239),
    "job_3": (10, 248),
    "job_4": (10, 2182),
    "llm_sequences": (32, 43),
    "llm_slow_worker": (4, 44),
}
FILES = {f"job_{number}": (f"pai_minibatch_job{number}.csv", {}) for number in range(1, 5)}
FILES |= {
    name: (f"llm_steps_{short}.csv", {"step": "step", "duration": "duration"})
    for name, short in (("llm_sequences", "se"), ("llm_slow_worker", "ar"))
}


@pytest.mark.parametrize("name", clocks.RECORDINGS)
def test_each_says_where_it_is_from(name):
    recording, notice = clocks.recording(name), (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert recording.licence in ("CC BY 4.0", "Apache-2.0", "MIT")
    assert name in notice
    assert recording.source.split(",")[0] in notice
    assert recording.changes
    assert recording.citation
    for column in recording.columns.values():
        assert len(column)
        assert np.isfinite(column).all()
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def released(name):
    """A file as it was released, which is no part of the repository."""
    file = SHARED / name
    if not file.is_file():
        pytest.skip(
            f"compares with {name} as it was released, in {SHARED.name} of a folder shared beside"
            " the repository; it is no part of it, and clocks.recording does not need it"
        )
    return file


@pytest.mark.parametrize("name", WORKERS)
def test_times_of_workers_make_a_clock(name):
    recording = clocks.recording(name)
    assert recording.durations.shape == WORKERS[name]
    assert recording.durations.dtype == np.float64
    assert (recording.durations > 0).all()
    means = np.asarray(recording.clock().mean)
    assert means.min() == pytest.approx(1.0, rel=1e-6)


def test_the_fourth_job_is_the_uneven_one():
    spread = {
        name: clocks.recording(name).durations.mean(axis=1) for name in WORKERS if "job" in name
    }
    ratio = {name: times.max() / times.min() for name, times in spread.items()}
    assert ratio["job_4"] == pytest.approx(5.4, abs=0.05)
    assert max(ratio[f"job_{number}"] for number in (1, 2, 3)) < 1.4
    medians = clocks.recording("job_spread").columns["cov_median"]
    assert np.quantile(medians, 0.5) == pytest.approx(0.09, abs=0.005)
    assert (medians > 0.5).mean() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("name", FILES)
def test_they_are_what_was_released(name):
    file, columns = FILES[name]
    path = released(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # workers of unequal length are cut
        read = clocks.read_durations(path, **columns)
    np.testing.assert_array_equal(clocks.recording(name).durations, read)


@pytest.mark.parametrize("name", ["spot_p3", "spot_g4dn", "request_lengths"])
def test_tables_are_what_was_released(name):
    file = released(f"{name}.csv")
    columns = clocks.recording(name).columns
    with open(file, encoding="utf-8") as lines:
        rows = list(csv.reader(lines))
    if name == "request_lengths":
        for column, title in enumerate(rows[0]):
            assert [int(row[column]) for row in rows[1:]] == columns[title].tolist()
        return
    assert [int(row[0]) / 1000 for row in rows] == columns["time"].tolist()
    assert [row[1].strip() == "add" for row in rows] == columns["comes"].tolist()
    assert [int(row[2].strip()[4:]) for row in rows] == columns["node"].tolist()


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
    durations = clocks.read_durations(path, worker="node", step="step", duration="seconds")
    np.testing.assert_array_equal(durations, [[0.5], [2.5], [3.0], [1.0]])


def test_a_warning_says_how_many_rows_a_short_worker_costs(write):
    rows = [f"a,{place},1.5" for place in range(9)]
    path = write("worker,time,batch_time_norm", *rows, "b,0,2")
    with pytest.warns(UserWarning, match="worker 'b' has only 1 jobs in .* 8 jobs of 10 are left"):
        durations = clocks.read_durations(path)
    np.testing.assert_array_equal(durations, [[1.5], [2.0]])
    path = write("worker,time,batch_time_norm", *rows, *(f"b,{place},2" for place in range(7)))
    assert clocks.read_durations(path).shape == (2, 7)  # uneven ends are common, no warning


def test_durations_are_read_like_logs(write):
    wide = write("a (ms),b (ms)", "1000,5000", "2000,4000", "1500,")
    np.testing.assert_array_equal(clocks.read_durations(wide), [[1.0, 2.0], [5.0, 4.0]])  # seconds
    text = write("rank 1 took 7 ms", "rank 0 took 4 ms", "saved", "rank 0 took 5 ms")
    options = {"pattern": r"rank (?P<worker>\d+) took (?P<duration_ms>\d+) ms"}
    np.testing.assert_array_equal(clocks.read_durations(text, **options), [[0.004], [0.007]])
    rows = {"b": [5.0], "a": [1.0, 2.0]}
    np.testing.assert_array_equal(clocks.read_durations(rows), traces.read_log(rows).table())
    given = inspect.signature(clocks.read_durations).parameters
    asked = inspect.signature(traces.read_log).parameters
    assert {name: one.default for name, one in given.items()} == {
        name: one.default for name, one in asked.items()
    }
