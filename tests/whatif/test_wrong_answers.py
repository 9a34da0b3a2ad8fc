"""Answers that were wrong: of logs that cannot tell, without the last job, without their cost."""

import contextlib
import csv
import datetime
import io
import re
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from asyncjax import storage, traces, whatif
from asyncjax.__main__ import main
from asyncjax.whatif import command

BEGIN = 1.7e9  # seconds since 1970


def asked(folder, table, *options):
    """What `asyncjax whatif` says of a table: both streams, the page, the figures."""
    (folder / "log.csv").write_text(table)
    out, err = io.StringIO(), io.StringIO()
    places = ["--output", str(folder), "--json", str(folder / "a.json")]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["whatif", str(folder / "log.csv"), *options, *places])
    assert status == 0, err.getvalue()
    page = (folder / "whatif.html").read_text(encoding="utf-8")
    read = storage.load_json(folder / "a.json")
    return SimpleNamespace(out=out.getvalue(), err=err.getvalue(), page=page, read=read)


def work(n=8, steps=40):
    """Seconds of computing: workers differ by chance, and two of them are twice as slow."""
    times = np.random.default_rng(0).gamma(20.0, 1 / 20, (n, steps))
    times[-2:] *= 2
    return times


def rounds(jitter=0.01):
    """When workers stamp the steps of synchronous training: all after the slowest."""
    times = work()
    noise = np.random.default_rng(1).uniform(0, jitter, times.shape)
    return BEGIN + np.cumsum(times.max(axis=0)) + noise


def stamped(ends, write="{:.6f}".format):
    rows = [
        (end, rank, step) for rank, row in enumerate(ends) for step, end in enumerate(row.tolist())
    ]
    lines = [f"{write(end)},{rank},{step}" for end, rank, step in sorted(rows)]
    return "timestamp,rank,step\n" + "\n".join(lines) + "\n"


def as_date(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


# Stamps behind a barrier.


@pytest.fixture(scope="module", params=["seconds", "dates"])
def behind_a_barrier(request, tmp_path_factory):
    write = as_date if request.param == "dates" else "{:.6f}".format
    return asked(tmp_path_factory.mktemp("barrier"), stamped(rounds(), write))


@pytest.mark.slow
def test_stamps_behind_a_barrier_are_told_first(behind_a_barrier):
    said = behind_a_barrier
    assert said.out.startswith("Unevenness cannot be seen in this log: its durations are diff")
    assert said.page.split('class="answer">')[1].startswith("Unevenness cannot be seen in this")
    assert said.read["answer"].startswith("Unevenness cannot be seen in this log")


@pytest.mark.slow
def test_stamps_behind_a_barrier_make_no_headline_and_no_advice(behind_a_barrier):
    said = behind_a_barrier
    for text in (said.out, said.page.split("</style>")[1]):
        assert not re.search(r"\d ?(times|x)\b", text)
        assert not re.search("next to nothing|stay synchronous|equally often|try first", text, re.I)
        assert "pure asynchronous" not in text
    assert said.read["rules"] == []
    assert said.read["learning"] is said.read["small_problems"] is said.read["span"] is None
    assert len(said.read["description"]["sentences"]) == 1
    assert "What small problems" not in said.page


@pytest.mark.slow
def test_what_to_log_instead_is_a_line_that_works(behind_a_barrier):
    """Run by two workers, one of them slow, it makes a log in which that is seen."""
    told = next(line for line in behind_a_barrier.out.splitlines() if "before gradients" in line)
    assert told in behind_a_barrier.read["advice"]
    line = told.partition("rank, step, seconds: ")[2]
    assert line
    assert "<code>t = time.perf_counter()" in behind_a_barrier.page
    file = io.StringIO()
    log = csv.writer(file)
    log.writerow(("rank", "step", "seconds"))
    for step in range(4):
        for rank, seconds in enumerate((0.0, 0.02)):
            grad = lambda params, batch, pause=seconds: time.sleep(pause)  # noqa: E731
            names = {"time": time, "jax": jax, "grad": grad, "params": 0, "batch": 0, "log": log}
            exec(line, names | {"rank": rank, "step": step})
    head, *rows = file.getvalue().splitlines()
    read = traces.read_log(
        [dict(zip(head.split(","), row.split(","), strict=True)) for row in rows]
    )
    assert read.workers == ("0", "1")
    assert read.stamps is None
    assert read.durations[1].min() > 0.02 > np.median(read.durations[0])


@pytest.mark.slow
def test_stamps_without_a_barrier_are_compared(tmp_path):
    """Applied on arrival: the rates of the workers add up."""
    times = work()
    said = asked(tmp_path, stamped(BEGIN + np.cumsum(times, axis=1)), "--quick")
    left = times[:, 1:]  # the first stamp only begins a job
    plain = (1 / left.mean(axis=1)).sum() / (8 / left.max(axis=0).mean())
    (gain,) = (row["gain"] for row in said.read["rules"] if row["rule"] == "pure asynchronous")
    assert said.out.startswith("With these 8 workers, pure asynchronous training would bring")
    assert gain["low"] <= plain <= gain["high"]


@pytest.mark.parametrize(("share", "hides"), [(0.049, True), (0.051, False)])
def test_together_is_within_a_twentieth_of_a_step(share, hides):
    """Steps of 1, 2 and 3: the median is 2; the last worker stamps so much after the first."""
    ends = np.cumsum([1.0, 2.0, 3.0, 2.0, 2.0, 1.0, 3.0, 2.0, 2.0])
    late = np.linspace(0.0, 2.0 * share, 4)
    rows = [
        {"rank": rank, "timestamp": end + late[rank], "step": step}
        for rank in range(4)
        for step, end in enumerate(ends.tolist())
    ]
    log = traces.read_log(rows, end="timestamp")
    said = whatif.describe(log).sentences[0]
    assert said.startswith("Unevenness cannot be seen") == hides


def test_rows_that_are_missing_hide_no_barrier():
    rows = [
        {"rank": rank, "end": end}
        for rank, ends in enumerate(rounds())
        for step, end in enumerate(ends.tolist())
        if (step + 5 * rank) % 17  # not of the same steps
    ]
    said = whatif.describe(traces.read_log(rows)).sentences[0]
    assert said.startswith("Unevenness cannot be seen")


def test_durations_that_were_measured_are_no_stamps():
    ends = rounds()
    took = np.diff(ends, axis=1)
    rows = [
        {"rank": rank, "end": ends[rank, step + 1], "seconds": took[rank, step]}
        for rank in range(8)
        for step in range(39)
    ]
    assert "Unevenness" not in whatif.describe(traces.read_log(rows)).sentences[0]


# How long it takes.


def announced(folder, monkeypatch, capsys, n_workers):
    """The seconds that are said before anything is computed."""

    def stop(*_, **__):
        raise ValueError("stopped here")

    monkeypatch.setattr(command, "answer", stop)
    names = [f"w{worker}" for worker in range(n_workers)]
    rows = [",".join(["1.0"] * n_workers)] * 200
    (folder / "log.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    assert main(["whatif", str(folder / "log.csv"), "--quick", "--output", str(folder)]) == 2
    first, _ = capsys.readouterr().err.split("\n", 1)
    said = re.search(rf"about (\d+) seconds .*{n_workers} workers and {200 * n_workers:,} j", first)
    assert said, first
    return int(said[1])


def test_a_quick_run_says_first_how_long_it_takes_and_more_workers_take_longer(
    tmp_path, monkeypatch, capsys
):
    few, more, many = (announced(tmp_path, monkeypatch, capsys, n) for n in (2, 40, 300))
    assert few < more < many
    assert 3 <= few <= 20
    assert many <= 120
