"""Logs of real workers: whatever shape they are written in, the same durations are read."""

import gzip
import json
import sys

import hypothesis.strategies as st
import jax
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, given, settings

from asyncjax import clocks, live, problems, traces

CALM = settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NAMES = ("w2", "w10", "node-a", "7", "gpu 1")


@st.composite
def measured(draw):
    """Durations by worker, and a generator to shuffle rows with."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    times = st.floats(1e-3, 1e3, allow_nan=False)
    rows = {name: draw(st.lists(times, min_size=2, max_size=6)) for name in names}
    return rows, np.random.default_rng(draw(st.integers(0, 99)))


@pytest.fixture
def read(tmp_path):
    """Reads a file of a text, of bytes, or of rows of fields."""

    def log_of(text, name="log.csv", mark=",", **columns):
        if isinstance(text, list):
            text = "".join(mark.join(map(str, line)) + "\n" for line in text)
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return traces.read_log(tmp_path / name, **columns)

    return log_of


def rows_of(log):
    return [row.tolist() for row in log.durations]


def read_back(log, rows, exactly=True):
    """Holds that a log has these durations."""
    assert set(log.workers) == set(rows)
    for name, row in zip(log.workers, log.durations, strict=True):
        if exactly:
            assert row.tolist() == rows[name]
        else:
            np.testing.assert_allclose(row, rows[name], rtol=1e-9)
    assert log.n_jobs == sum(map(len, rows.values()))
    assert log.clock().n_workers == len(rows)


def shuffled(lines, rng):
    return [lines[place] for place in rng.permutation(len(lines))]


@CALM
@given(measured())
def test_a_row_a_job_and_a_column_a_worker(read, drawn):
    rows, rng = drawn
    lines = [(name, step, time) for name in rows for step, time in enumerate(rows[name])]
    for mark in ",;\t|":
        log = read([("rank", "iteration", "took"), *shuffled(lines, rng)], mark=mark)
        read_back(log, rows)
        assert log.start is None
        assert np.isnan(log.utilisation).all()
        for name, row in zip(log.workers, log.step, strict=True):
            assert row.tolist() == list(range(len(rows[name])))
    last = {name: len(row) - 1 for name, row in rows.items()}
    if any(
        time < step or (time > step + 1 and step < last[name]) for name, step, time in lines
    ):  # else they are as well starts and ends of jobs that do not overlap
        read_back(read(lines), rows)  # without a header, in its order
    longest = range(max(map(len, rows.values())))
    cells = [[i, *(row[i] if i < len(row) else "" for row in rows.values())] for i in longest]
    lines = [["step", *rows], *cells]
    read_back(read(lines), rows)
    if len(rows) > 1:  # one column is that of one worker, whose name may be a number or have blanks
        read_back(read([line[1:] for line in lines], mark=";"), rows)


@CALM
@given(measured())
def test_starts_with_ends_or_durations(read, drawn):
    rows, rng = drawn
    jobs = []
    for name, times in rows.items():
        now = float(rng.uniform(0, 9))
        for time in times:
            jobs.append((name, now, now + time, time))
            now += time + float(rng.choice([0.0, 2.5]))
    jobs = shuffled(jobs, rng)
    first = min(job[1] for job in jobs)
    span = max(job[2] for job in jobs) - first
    for header, which, exactly in (
        ("worker,start,end", (0, 1, 2), False),
        ("duration,worker,start time", (3, 0, 1), True),
        ("host,finished,elapsed", (0, 2, 3), True),
        ("worker,begin,end,seconds", (0, 1, 2, 3), True),
    ):
        lines = [tuple(job[place] for place in which) for job in jobs]
        log = read([header.split(","), *lines])
        read_back(log, rows, exactly)
        starts = {job[:2] for job in jobs}
        for name, row in zip(log.workers, log.start, strict=True):
            begun = sorted(start - first for who, start in starts if who == name)
            np.testing.assert_allclose(row, begun, atol=1e-9)
        busy = [sum(rows[name]) / span for name in log.workers]
        np.testing.assert_allclose(log.utilisation, busy, rtol=1e-6)


@CALM
@given(measured())
def test_rows_in_memory_and_json_lines(read, drawn):
    rows, rng = drawn
    read_back(traces.read_log(rows), rows)
    jobs = [(name, step, time) for name in rows for step, time in enumerate(rows[name])]
    read_back(traces.read_log([(name, time) for name, _, time in jobs]), rows)
    names = ("worker", "step", "duration")
    objects = [dict(zip(names, job, strict=True)) for job in shuffled(jobs, rng)]
    read_back(traces.read_log(objects), rows)
    read_back(read("\n".join(map(json.dumps, objects)), "log.jsonl"), rows)
    lines = "\n".join(",".join(map(str, line)) for line in [names, *jobs])
    read_back(read(gzip.compress(lines.encode()), "log.csv.gz"), rows)


def test_an_array_and_a_trace():
    times = [[1.0, 2.0], [3.0, 4.0]]
    assert rows_of(traces.read_log(np.array(times))) == rows_of(traces.read_log(times)) == times
    assert traces.read_log([[1.0, 2.0], [3.0]]).n_jobs == 3
    assert traces.read_log([["a", 1.0], ["b", 2.0]]).workers == ("a", "b")
    clock = clocks.exponential([1.0, 2.0, 4.0])
    trace = traces.asynchronous(clock, n_updates=60, key=jax.random.key(0))
    log = traces.read_log(trace)
    for worker, row in enumerate(log.durations):
        np.testing.assert_array_equal(row, (trace.time - trace.start)[trace.worker == worker])
        assert len(log.start[worker]) == len(row)
    assert log.notes == ("3 jobs were still open: not in the log",)
    with pytest.raises(ValueError, match="records starts"):
        traces.read_log(trace._replace(start=None))


def test_a_live_run(tmp_path, read):
    problem = problems.quadratic(np.ones((2, 3)), np.arange(6.0).reshape(2, 3))
    workers = live.virtual(clocks.recorded([[1.0, 1.5, 0.5], [2.0, 2.5, 2.25]]))
    run = live.train(problem, workers, optax.sgd(0.1), n_updates=12)
    live.to_csv(run, tmp_path / "run.csv")
    log = traces.read_log(tmp_path / "run.csv")
    assert (log.workers, log.unit) == (("0", "1"), "seconds")
    for worker, row in enumerate(log.durations):
        took = (run.trace.time - run.trace.start)[run.trace.worker == worker]
        np.testing.assert_array_equal(row, took)
    np.testing.assert_allclose(log.span, run.trace.time[-1])
    head, _, *lines = (tmp_path / "run.csv").read_text().splitlines()  # one did not arrive
    assert "1 jobs of the run did not arrive" in " ".join(read("\n".join([head, *lines])).notes)


def test_without_pandas_the_message_has_the_install_line(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs pandas, which is .*asyncjax\[logs\] @ git"):
        read("worker,s\na,1\n")
    assert traces.read_log({"a": [1.0]}).n_jobs == 1


# How else a log may be written, and what is refused: tests/whatif/tables.txt.
@pytest.mark.parametrize(
    "text",
    ["worker,s\r\na,1.5\r\na,2\r\nb,0.25\r\n", "\ufeffworker,s\na,1.5\na,2\nb,0.25\n"],
)
def test_lines_of_windows_and_a_mark_of_bytes(read, text):
    assert rows_of(read(text)) == [[1.5, 2.0], [0.25]]


COLUMNS = {  # header of a table with a column a worker; their names, and seconds of a unit
    "in brackets": ("a (ms),b (ms)", ("a", "b"), (0.001, 0.001)),
    "in square brackets": ("gpu 10 [s],gpu 2 [s]", ("gpu 2", "gpu 10"), (1.0, 1.0)),
    "at the end of all": ("step,a_ms,bMs", ("a", "b"), (0.001, 0.001)),
    "in words": ("a in min,b in s", ("a", "b"), (60.0, 1.0)),
    "in one, which holds for all": ("a (ms),b", ("a", "b"), (0.001, 0.001)),
    "different, of one worker": ("a (ms),a (s)", ("a (ms)", "a (s)"), (0.001, 1.0)),
    "a name that ends like one": ("rack_g,rack_h", ("rack_g", "rack_h"), None),
    "other brackets": ("a (old),b (new)", ("a (old)", "b (new)"), None),
}


@pytest.mark.parametrize(("header", "workers", "scales"), COLUMNS.values(), ids=COLUMNS)
def test_columns_of_workers_are_named_without_their_unit(read, header, workers, scales):
    rows = ["3,5", "7,2"] if header.count(",") == 1 else ["0,3,5", "1,7,2"]
    log = read("\n".join([header, *rows]))
    assert log.workers == workers
    assert log.unit == ("time units" if scales is None else "seconds")
    in_file = [[3, 7], [5, 2]] if "gpu" not in header else [[5, 2], [3, 7]]
    for row, numbers, scale in zip(log.durations, in_file, scales or (1.0, 1.0), strict=True):
        np.testing.assert_allclose(row, np.multiply(numbers, scale), rtol=1e-15)


def test_a_clock_that_starts_again_goes_on():
    text = [("a", 0, 4), ("a", 4, 5), ("a", 5, 6), ("a", 6, 8), ("a", 0, 3), ("a", 3, 4)]
    log = traces.read_log([{"worker": w, "start": s, "end": e} for w, s, e in text])
    assert log.start[0].tolist() == [0.0, 4.0, 5.0, 6.0, 8.0, 11.0]
    assert log.span == 12.0


def test_bytes_that_are_no_text_and_json_that_is_none(tmp_path, read):
    with pytest.raises(ValueError, match=r"UTF-8, got the byte b'\\xe9' in line 3 of"):
        read(b"worker,s\na,1\n\xe9,2\n")
    assert read("worker,s\na,1\n".encode("utf-16")).n_jobs == 1
    with pytest.raises(ValueError, match=r"a zero byte in line 2 of .*log\.csv"):
        read("worker,s\na,1\0\n")
    with pytest.raises(ValueError, match=r"a zip archive or a spreadsheet, .*log\.csv"):
        read("PK\3\4")
    with pytest.raises(ValueError, match=r"a JSON object a line, got .* in line 2 of"):
        read('{"worker": 1, "s": 2}\n{"worker": \n', "log.jsonl")
    with pytest.raises(ValueError, match="object by name a row, got 3 in line 2"):
        read('{"worker": 1, "s": 2}\n3\n', "log.jsonl")
    with pytest.raises(FileNotFoundError):
        traces.read_log(tmp_path / "none.csv")


def test_columns_units_and_rows_left_out_may_be_said(read):
    rows = [("x", "y", "z"), ("a", 2, 1000), ("a", 1, 500), ("b", 1, 250)]
    log = read(rows, worker="x", step="y", duration="z", unit="ms")
    assert rows_of(log) == [[0.5, 1.0], [0.25]]
    assert log.unit == "seconds"
    with pytest.raises(ValueError, match=r"worker must name a column of .*, got 'w'; found 'x'"):
        read(rows, worker="w")
    log = read("worker,s\na,1\na,-1\na,?\nb,3\n,1\n", drop_invalid=True)
    assert rows_of(log) == [[1.0], [3.0]]
    told = " ".join(log.notes)
    assert "a row is left out as invalid, first: column 'worker' must name the worker" in told
    assert "2 rows are left out as invalid, first: column 's' must be a positive" in told
    log = read("worker,start,end,computed\na,0,2,1\na,5,7,1.5\n", duration="computed")
    assert rows_of(log) == [[1.0, 1.5]]
    assert log.start is None


def test_the_clock_of_a_log():
    log = traces.read_log({"a": [1.0, 2.0], "b": [5.0]})
    assert log.clock().durations(None, 5).tolist() == [[1, 2, 1, 2, 1], [5, 5, 5, 5, 5]]
    np.testing.assert_allclose(log.clock(clocks.fitted).mean, [1.5, 5.0])
    trace = traces.asynchronous(log.clock(), n_updates=5)
    assert trace.time.tolist() == [1.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.slow
def test_a_million_rows(read):
    times = np.random.default_rng(0).exponential(size=1_000_000)
    lines = [f"w{i % 100},{i // 100},{t!r}" for i, t in enumerate(times.tolist())]
    lines.insert(0, "worker,step,seconds")
    for worker, row in enumerate(read("\n".join(lines)).durations):
        np.testing.assert_array_equal(row, times[worker::100])
    lines[777_777] = "w1,1,0"
    with pytest.raises(ValueError, match="got '0' in line 777778 of"):
        read("\n".join(lines))
