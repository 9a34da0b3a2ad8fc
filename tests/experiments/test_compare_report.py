"""What the main job says of rows and runs that are made up, so that the answer is known."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from asyncjax import clocks, traces
from asyncjax.study import search as tuning
from experiments.common.methods import METHODS
from experiments.compare import job, report, runs
from experiments.compare.runs import Outcome, Settings
from tests.experiments import made_up

BY_NAME = {method.name: method for method in METHODS}
SPACE = {"step": tuning.Knob((0.05, 0.1, 0.2))}
TRACE = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=20)


def outcome(name: str, reached: list[float], used: tuple[int, int] = (1, 1)) -> Outcome:
    """One that reaches .9 at the given times, an instance each; infinite: never."""
    time = np.tile(np.arange(0.0, 21.0), (len(reached), 1))
    accuracy = np.where(time >= np.array(reached)[:, None], 0.95, 0.5)
    summary: Any = SimpleNamespace(
        n_workers=2, used_by_worker=np.array(used), used=sum(used), delay_mean=0.5, delay_max=1.0,
        utilisation=1.0, thrown_away=0, cancelled=0,
    )  # fmt: skip
    trials = [tuning.Trial({"step": step}, score, 0) for step, score in ((0.1, 1.0), (0.2, 2.0))]
    count = time.astype(int) + 1
    return Outcome(
        method=BY_NAME[name], tuned=tuning.Tuned(SPACE, tuple(trials), 10), time=time,
        computed=count, version=count, loss=1.0 - accuracy, accuracy=accuracy, trace=TRACE,
        summaries=(summary,) * len(reached),
    )  # fmt: skip


@pytest.fixture
def settings(tmp_path, monkeypatch):
    digits = {"training": (0, [0] * 4), "validation": (0, [0]), "test": (0, [0])}
    monkeypatch.setattr(job, "split_digits", lambda share: digits)
    sizes = {"n_workers": 2, "instances": 5, "tuning_instances": 2}
    return Settings(output=tmp_path, horizon=20.0, levels=(0.8, 0.9), **sizes)


NEVER = [np.inf] * 5
OUTCOMES = [
    outcome("synchronous", [16.0, 15.0, 16.0, 17.0, 16.0]),
    outcome("random async", NEVER),
    outcome("pure async", [4.0, 4.0, 6.0, 3.0, 4.0], (3, 1)),
    outcome("shuffled async", [5.0, 3.0, 9.0, 3.0, 5.0]),
]
ORDER = ["pure async", "shuffled async", "synchronous", "random async"]


def test_the_answer_says_no_more_than_the_numbers(settings):
    alone = job.answer(job.as_rows(settings, [OUTCOMES[0]]))
    assert alone.startswith("Synchronous is first")
    none = job.answer(job.as_rows(settings, [OUTCOMES[1]]))
    assert none.startswith("No way of training reaches 90 % test accuracy within 20 units")
    assert none.endswith("random async comes closest, with 50 %.")
    far = [OUTCOMES[2], outcome("fastest half", [12.0] * 5)]
    assert "No significant difference" not in job.answer(job.as_rows(settings, far))


def test_ranks_and_quartiles_are_those_that_the_instances_leave_open(settings):
    rows = job.main_table(job.as_rows(settings, OUTCOMES)).rows
    assert [row[:2] for row in rows] == [
        ("pure async", "1 to 2"),
        ("shuffled async", "1 to 2"),
        ("synchronous", "3"),
        ("random async", "4"),
    ]
    one = job.as_rows(settings, [outcome("pure async", [4.0, 8.0, 6.0, np.inf, np.inf])])
    [row] = job.main_table(one).rows
    assert row[3].startswith("8.00 (6.00 to ")  # no quartile is made of a time that never came
    spread = job.targets_table(one).rows[0][1]
    assert (spread.low, spread.median, spread.reached) == (6.0, 8.0, 0.6)


@pytest.mark.slow
def test_the_report_begins_with_the_answer_and_ends_with_how_it_was_made(settings):
    result = job.as_rows(settings, OUTCOMES)
    tables = {
        "answer": [job.main_table(result), job.targets_table(result)],
        "claims": [],
        "tuning": [tuning.table({one.method.name: one.tuned for one in OUTCOMES})],
    }
    words = job.answer(result)
    text = report.write(settings, OUTCOMES, job.bars(result), tables, words).read_text("utf-8")
    bare = re.sub(r"base64,[A-Za-z0-9+/=]*", "", text)
    assert bare.index('class="verdict">Pure async is first') < bare.index("<nav")
    body = bare[bare.index("<main>") :]
    assert re.findall(r"<tr><td>([a-z ]+)</td>", body)[: len(ORDER)] == ORDER
    last = body[body.rindex("<section") :]
    assert "compare --instances 5 --tuning-instances 2 --n-workers 2" in last
    assert last.count("2310.20452") == 1  # a paper once, though two methods are in it
    assert "2202.08550" not in last  # of methods that were not run


def test_the_command_has_what_is_not_the_default(tmp_path):
    assert report.command(Settings()) == "python -m experiments.compare"
    changed = Settings(output=tmp_path, set="B", steps=(0.1, 0.2), threads=7, commit=True)
    assert report.command(changed) == "python -m experiments.compare --set B --steps 0.1 0.2"


def test_every_method_has_its_paper():
    assert set(report.PAPERS) == set(BY_NAME)
    assert all(re.search(r"\(arXiv \d{4}\.\d{5}\)", paper) for paper in report.PAPERS.values())


EARLY, LATE = [4.0, 5.0, 4.5, 6.0], [12.0, 14.0, np.inf, 13.0]


def rows_of(letter, times):
    """A set: the times of each method, an instance each."""
    cells = [({"scene": "digits", "method": m, "horizon": 20.0}, row) for m, row in times.items()]
    facts = {"instances": 4, "target": 0.9, "horizon": 20.0}
    result = made_up.result(cells, "time", letter, facts=facts)
    times = result.rows["time"]
    return replace(result, rows=result.rows.assign(gradients=times, final_loss=times))


def test_sets_that_differ_are_said_to():
    one = rows_of("A", {"pure async": EARLY, "synchronous": LATE})

    def both(pure, waiting):
        other = rows_of("B", {"pure async": pure, "synchronous": waiting})
        return job.agreement(replace(one, rows=pd.concat([one.rows, other.rows])))

    told = both(EARLY, LATE)
    assert told.startswith("Two disjoint sets of 4 instances agree in all")
    assert "1 differ significantly the same way in both, 0 in neither" in told
    told = both(LATE, EARLY)
    assert "pure async is at the target before synchronous rounds (holds | does not hold)" in told
    assert told.endswith("1 in opposite ways.")
    assert job.agreement(one) == "Set B has not been run: nothing to compare with."


def test_the_other_set_stands_behind_where_settings_are_alike(monkeypatch):
    one = rows_of("B", {"pure async": EARLY, "synchronous": LATE})
    known = rows_of("A", {"pure async": LATE, "synchronous": EARLY})
    monkeypatch.setattr(job.part, "committed", lambda name: known)
    assert job.beside(one).sets == ("B", "A")
    assert job.beside(replace(one, facts={"instances": 3})).sets == ("B",)


CROSSES_AND_LEAVES = [0.5, 0.95, 0.5, 0.95, 0.95, 0.5]  # at records 0 .. 5, the last too late


def test_a_time_is_that_after_which_a_run_stays_until_the_horizon(tmp_path):
    """In what is shown, in what is committed, in what is tuned."""
    settings = Settings(output=tmp_path, instances=1, horizon=4.0, levels=(0.9,))
    one = outcome("pure async", [np.inf])
    time, accuracy = np.arange(6.0)[None], np.array([CROSSES_AND_LEAVES])
    one = replace(one, time=time, accuracy=accuracy, computed=10 * time.astype(int))
    rows = job.as_rows(settings, [one]).rows
    assert rows[["time", "time_0.9", "gradients"]].to_numpy().tolist() == [[3.0, 3.0, 30.0]]
    assert runs.score(settings, time, accuracy) == pytest.approx(np.log(3.0) + 0.01 * 0.05)
    longer = replace(settings, horizon=5.0)
    assert job.as_rows(longer, [one]).rows["time"].tolist() == [np.inf]


def test_a_ratio_of_cut_times_is_a_bound(tmp_path):
    settings = Settings(output=tmp_path, n_workers=2, horizon=20.0, instances=3, levels=(0.9,))
    early, late = outcome("pure async", [4.0] * 3), outcome("synchronous", [16.0, 17.0, np.inf])
    there = outcome("synchronous", [16.0, 17.0, 20.0])
    for other, need in ((late, "more than 4.4 times"), (there, "4.4 times")):
        told = job.answer(job.as_rows(settings, [early, other]))
        assert f"Synchronous rounds need {need}" in told


@pytest.mark.slow
def test_the_bars_stand_in_the_order_of_the_answer(settings):
    [axes] = job.bars(job.as_rows(settings, OUTCOMES)).figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ORDER
