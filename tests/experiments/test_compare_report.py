"""What the report of the main job says of numbers that are made up, so that the answer is known."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asyncjax import clocks, traces
from experiments.common.methods import METHODS
from experiments.compare import report
from experiments.compare.runs import Outcome, Settings

BY_NAME = {method.name: method for method in METHODS}
TRACE = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=20)


def outcome(name: str, reached: list[float], used: tuple[int, int] = (1, 1)) -> Outcome:
    """One that reaches .9 at the given times, a seed each; infinite: never."""
    time = np.tile(np.arange(0.0, 21.0), (len(reached), 1))
    accuracy = np.where(time >= np.array(reached)[:, None], 0.95, 0.5)
    counts = np.array(used)
    summary: Any = SimpleNamespace(
        n_workers=2, used_by_worker=counts, used=counts.sum(), delay_mean=0.5, delay_max=1.0,
        utilisation=1.0, thrown_away=0, cancelled=0,
    )  # fmt: skip
    return Outcome(
        method=BY_NAME[name], step_size=0.1, at_edge=False, tuning=np.array([2.0, 1.0]),
        time=time, computed=time.astype(int) + 1, version=time.astype(int) + 1,
        loss=1.0 - accuracy, accuracy=accuracy, trace=TRACE,
        summaries=(summary,) * len(reached), seconds=0.0,
    )  # fmt: skip


@pytest.fixture
def settings(tmp_path):
    return Settings(output=tmp_path, n_workers=2, horizon=20.0, seeds=3, step_sizes=(0.1, 0.2))


NEVER = [np.inf] * 3
OUTCOMES = [
    outcome("synchronous", [16.0] * 3),
    outcome("random async", NEVER),
    outcome("pure async", [4.0, 4.0, 6.0], (3, 1)),
    outcome("shuffled async", [5.0, 5.0, 9.0]),
]
ORDER = ["pure async", "shuffled async", "synchronous", "random async"]


def test_the_verdict_names_the_first_its_lead_its_rivals_and_its_price(settings):
    told = report.verdict(settings, OUTCOMES)
    assert told.startswith("Pure async is first at 90 % test accuracy, after 4.00 units")
    assert "Synchronous rounds need 16.0: 4 times as long" in told
    assert "Not told apart from it (quartiles overlap): shuffled async (5.00)." in told
    assert "Not reached within 20 units: random async." in told
    assert "least heard worker 0.5 times as often as an even share" in told
    assert told.endswith("the first of those that hear all alike is shuffled async, after 5.00.")


def test_the_verdict_says_no_more_than_the_numbers(settings):
    alone = report.verdict(settings, [OUTCOMES[0]])
    assert alone.startswith("Synchronous is first")
    assert len(re.findall(r"\.(?: |$)", alone)) == 1  # nobody to compare with, all heard alike
    assert "fair" not in alone
    assert "Not" not in alone
    none = report.verdict(settings, [OUTCOMES[1]])
    assert none.startswith("No way of training reaches 90 % test accuracy within 20 units")
    assert none.endswith("random async comes closest, with 50 %.")
    far = report.verdict(settings, [OUTCOMES[2], outcome("fastest half", [12.0] * 3)])
    assert "Not told apart" not in far


def test_the_table_stands_in_the_order_of_the_answer_with_the_same_numbers(settings):
    made = report.table(settings, OUTCOMES)
    rows = made.rows
    assert [row[0] for row in rows] == ORDER
    assert [float(row[2].median) for row in rows] == [4.0, 5.0, 16.0, np.inf]
    assert OUTCOMES[0].method.name == "synchronous"  # the given list is left
    assert report.table(settings, OUTCOMES[::-1]).cells() == made.cells()


@pytest.mark.slow
def test_the_report_begins_with_the_answer_and_ends_with_how_it_was_made(settings):
    made = report.table(settings, OUTCOMES)
    text = report.write(settings, OUTCOMES, made, None, None).read_text(encoding="utf-8")
    bare = re.sub(r"base64,[A-Za-z0-9+/=]*", "", text)
    assert bare.index('class="verdict">Pure async is first') < bare.index("<nav")
    headings = re.findall(r"<h2>(.*?)</h2>", bare)
    assert headings[0] == "The answer"
    assert headings[-1] == "Version, command and papers"
    pictures = re.findall(r'<img alt="(.*?)"', bare)
    assert pictures[0].startswith("Simulated time to the target")
    body = bare[bare.index("<main>") :]
    rows = re.findall(r"<tr><td>([a-z ]+)</td>", body)
    assert rows == ORDER * 2  # the main table, and who is heard
    last = body[body.rindex("<section") :]
    for words in ("python -m experiments.compare --n-workers 2", "asyncjax 0", "2310.20452"):
        assert words in last
    assert last.count("2310.20452") == 1  # a paper once, though two methods are in it
    assert "2202.08550" not in last  # of methods that were not run
    narrow = bare.count("<source media=")
    assert narrow == 3  # accuracy, loss and staleness have a form for phones


def test_the_bars_stand_in_the_order_of_the_answer(settings, monkeypatch):
    seen = {}
    monkeypatch.setattr(report.plots, "bars", lambda names, *_, **__: seen.setdefault("n", names))
    report._bars(settings, report.ranked(settings, OUTCOMES), None)
    assert seen["n"] == ORDER


def test_the_command_has_what_is_not_the_default(tmp_path):
    assert report.command(Settings()) == "python -m experiments.compare"
    changed = Settings(output=tmp_path, seeds=3, step_sizes=(0.1, 0.2))
    assert report.command(changed) == "python -m experiments.compare --seeds 3 --step-sizes 0.1 0.2"


def test_every_method_has_its_paper():
    assert set(report.PAPERS) == set(BY_NAME)
    assert all(re.search(r"\(arXiv \d{4}\.\d{5}\)", paper) for paper in report.PAPERS.values())
