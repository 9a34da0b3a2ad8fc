"""Answers that were wrong: what a log cannot tell, targets left again, counts, intervals."""

import contextlib
import csv
import datetime
import io
import re
import time
from types import SimpleNamespace
from xml.etree import ElementTree

import jax
import numpy as np
import pytest

from asyncjax import storage, traces, whatif
from asyncjax.__main__ import main
from asyncjax.whatif import command
from asyncjax.whatif.comparing import compare, played
from asyncjax.whatif.comparing import rules_for
from asyncjax.whatif.page.words import words_of
from asyncjax.whatif import toys as learning
from asyncjax.whatif.toys import TASKS
from asyncjax.whatif.toys import Learned, ToyResult, ToyResults
from tests.whatif.shared import uneven, uneven_log

BEGIN = 1.7e9  # seconds since 1970
RULES = {rule.name: rule for rule in rules_for(4, 1.0)}


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
            grad = lambda params, batch, own=seconds: time.sleep(own)  # noqa: E731
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
def test_in_python_the_same_is_said_and_nothing_is_compared():
    rows = [{"rank": rank, "end": end} for rank, own in enumerate(rounds()) for end in own.tolist()]
    found = whatif.answer(rows)
    assert found.words.headline.startswith("Unevenness cannot be seen in this log")
    assert found.comparison is found.learning is found.advice is None
    assert "perf_counter" in found.words.advice


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
        for rank, own in enumerate(rounds())
        for step, end in enumerate(own.tolist())
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


# Time to a target.


def test_a_target_that_is_left_again_is_not_reached():
    """Two step sizes; the first crosses the target at 2 and leaves it, the second is there at 5."""
    clock = np.arange(1.0, 9.0)  # the span ends at 7
    noisy = [9.0, 1.0, 9.0, 1.0, 9.0, 2.0, 1.0, 1.0]
    steady = [9.0, 9.0, 9.0, 9.0, 3.0, 3.0, 3.0, 9.0]  # what comes after the span does not count
    seeds = learning.TUNING_SEEDS + 1
    setting = learning._Setting(7.0, (0.1, 0.2, 0.4), jax.random.split(jax.random.key(0), 1), 8)
    failed = [9.0, 1.0, 1.0, 1.0, 1.0, 1.0, np.nan, np.nan]
    loss = np.tile(np.array([noisy, steady, failed]), (seeds, 1, 1))
    moments = np.tile(clock, (seeds, 1, 1))
    row = learning._learned(RULES["synchronous"], moments, loss, 3.0, setting)
    assert row.step_size == 0.2
    np.testing.assert_array_equal(row.times, [5.0])
    alone = learning._learned(RULES["synchronous"], moments, loss[:, [0]], 3.0, setting)
    assert 5.0 < alone.times[0] <= 6.0  # between 9 at 5 and 2 at 6
    never = learning._learned(RULES["synchronous"], moments, loss[:, [2]], 3.0, setting)
    assert np.isinf(never.times[0])


@pytest.mark.slow
def test_whoever_is_said_to_be_at_the_target_is_not_above_it_afterwards():
    rows = np.random.default_rng(2).gamma(9.0, 1 / 9, (4, 30)) * np.array([[1.0, 1, 1, 3]]).T
    log = traces.read_log(rows)
    found = whatif.toy_training(log, compare(log, draws=2), step_sizes=[0.125, 0.5, 2.0], seeds=2)
    there = 0
    for lesson in found.lessons:
        for row in lesson.rows:
            late = row.curve_time >= row.times[0]
            late &= row.curve_time <= lesson.span
            assert np.all(row.curve_loss[late] <= lesson.target), (lesson.task.name, row.rule.name)
            there += late.any()
    assert there > 10


# Rules that never arrive, ranges that are cut.


def taught(**seconds):
    """An answer whose rules take so long on four seeds."""
    rows = [
        Learned(RULES[name.replace("_", " ")], 0.1, False, np.asarray(own), np.ones(2), np.ones(2))
        for name, own in seconds.items()
    ]
    rows.sort(key=lambda row: row.time)
    lessons = tuple(ToyResult(task, 0.0, 1e2, tuple(rows), (rows[0].rule.name,)) for task in TASKS)
    description, comparison = whatif.describe(uneven_log()), uneven()
    found = ToyResults(lessons, (0.1,))
    words = words_of(description, comparison, found)
    advice = whatif.advise(description, comparison)
    return whatif.Answer(uneven_log(), description, comparison, found, advice, words, "here")


@pytest.fixture(scope="module")
def never():
    inf = np.inf
    return taught(
        synchronous=[40.0, 41.0, 42.0, 43.0],
        pure_asynchronous=[inf] * 4,
        Ringleader=[20.0, 21.0, 22.0, inf],
        shuffled=[30.0, 31.0, 1.0, 33.0],
    )


@pytest.mark.slow
def test_a_rule_that_never_arrives_is_never_there_and_not_at_zero(never):
    text = never.text().split("Stand-in problem")[1]
    cells = {line[:17].strip(): line.split() for line in text.splitlines()}
    assert cells["pure asynchronous"][-2:] == ["never", "never"]
    assert cells["Ringleader"][-1] == "never–2.00"
    rows = re.findall(r"<tr><td>(.*?)</td></tr>", never.html().split("Time to a target")[1])
    cells = {row.split("</td>")[0]: re.sub("<.*?>", "|", row).split("|") for row in rows}
    assert "never" in cells["pure asynchronous"]
    assert "0" not in cells["pure asynchronous"]
    drawn = re.search(r"<title>Speed-up to the target.*?</title>", never.html())
    assert "pure asynchronous never" in drawn[0]
    assert "0.00" not in drawn[0]


@pytest.mark.slow
def test_programs_read_that_it_never_arrives(never, tmp_path):
    lesson = storage.load_json(never.save(tmp_path / "a.json"))["learning"][0]
    ratios = {row["rule"]: row["speed_up"] for row in lesson["rules"]}
    assert ratios["pure asynchronous"] == [None, None, None]
    assert ratios["Ringleader"][1:] == [None, 2.0]


@pytest.mark.slow
def test_whiskers_that_are_cut_are_open(never):
    """Of the rule shuffled one seed is 42 times as fast: the picture ends before."""
    drawn = re.search(r"<svg[^>]*><title>Speed-up to the target.*?</svg>", never.html())[0]
    ends = {}
    for part in ElementTree.fromstring(drawn):
        if part.get("class") == "whisker":
            y1, y2 = float(part.get("y1")), float(part.get("y2"))
            ends.setdefault((y1 + y2) / 2, []).append((float(part.get("x2")), y1 == y2))
    names = [row.rule.name for row in never.learning.lessons[0].rows]
    assert names[:2] == ["Ringleader", "shuffled"]
    whole, cut = (ends[y] for y in sorted(ends))
    for parts, caps in ((whole, 2), (cut, 1)):
        (line,) = [x for x, is_flat in parts if is_flat]
        marks = [x for x, is_flat in parts if not is_flat]
        assert len(marks) == caps
        assert (line in marks) == (caps == 2)


@pytest.mark.slow
def test_it_is_said_what_time_to_a_target_means(never, capsys):
    assert "stays there: no later record is above it" in never.html()
    assert "first crossing" in " ".join(never.advice.notes)  # of the tree, which is older
    with pytest.raises(SystemExit):
        main(["whatif", "--help"])
    assert "reached and not left again" in " ".join(capsys.readouterr().out.split())


# Counts and intervals.


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        # Until 0.5: three rounds; one makes 3 jobs, the other 5. Floats of 32 bits end after it.
        (([0.1, 0.1, 0.3], [0.1, 0.1, 0.1]), {"synchronous": 6, "pure asynchronous": 8}),
        # Until 4: eighty jobs end in four moments, and all of the last moment count.
        (([1.0] * 4,) * 20, {"synchronous": 80, "pure asynchronous": 80}),
        # Until 0.4: of two rounds, of 0.2 and 0.3, the first is in time; each makes two jobs.
        (([0.1, 0.3], [0.2, 0.1]), {"synchronous": 2, "pure asynchronous": 4}),
    ],
)
def test_the_last_job_of_the_span_counts(rows, counts):
    rows = [np.array(row) for row in rows]
    span = max(float(row.sum()) for row in rows)
    for rule in rules_for(len(rows), 1.0):
        if rule.name in counts:
            figures = played(rule, rows, span, jax.random.key(0))
            # the count ends at the last update
            end = {2: 0.2}.get(counts[rule.name], span)
            assert figures.gradients_per_time * end == pytest.approx(counts[rule.name], rel=1e-6)


@pytest.mark.slow
def test_the_gain_has_the_last_job_of_the_span(tmp_path):
    table = "a,b\n0.1,0.1\n0.1,0.1\n0.3,0.1\n"
    said = asked(tmp_path, table, "--quick")
    gain = {row["rule"]: row["gain"]["value"] for row in said.read["rules"]}
    assert gain["pure asynchronous"] == pytest.approx(8 / 6)
    assert gain["buffered 2"] == pytest.approx(8 / 6)


def plain(times):
    return float((1 / times.mean(axis=1)).sum() / (len(times) / times.max(axis=0).mean()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant", "random", "few jobs"])
def test_intervals_hold_the_ratio_of_the_whole_log(kind):
    """With 300 workers jobs under way at the end of the span are more than what chance leaves."""
    rng = np.random.default_rng(5)
    times = {
        "constant": np.linspace(1.0, 4.0, 300)[:, None] * np.ones((300, 20)),
        "random": rng.gamma(4.0, 0.25, (300, 12)),
        "few jobs": rng.exponential(1.0, (5, 6)),
    }[kind]
    found = compare(traces.read_log(times), draws=2)
    for name in ("pure asynchronous", "Ringleader", "4 local steps (asynchronous)"):
        gain = found.of(name).gain
        assert gain.low <= plain(times) <= gain.high, name
        assert gain.low <= gain.value <= gain.high, name
    assert found.of("synchronous").gain == (1.0, 1.0, 1.0)


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


def test_help_does_not_call_a_quick_run_seconds(capsys):
    with pytest.raises(SystemExit):
        main(["whatif", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert "6 seconds to a minute of processor time" in help_text
    assert "train nothing: seconds" not in help_text
