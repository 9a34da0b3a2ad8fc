"""What the report of the main job says of numbers that are made up, so that the answer is known."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.study import search as tuning
from experiments.common.methods import METHODS
from experiments.compare import claims, page, report, tables
from experiments.compare.runs import Outcome, Settings

BY_NAME = {method.name: method for method in METHODS}
SPACE = {"step": tuning.Knob((0.05, 0.1, 0.2))}
TRACE = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=20)


def outcome(name: str, reached: list[float], used: tuple[int, int] = (1, 1)) -> Outcome:
    """One that reaches .9 at the given times, an instance each; infinite: never."""
    time = np.tile(np.arange(0.0, 21.0), (len(reached), 1))
    accuracy = np.where(time >= np.array(reached)[:, None], 0.95, 0.5)
    counts = np.array(used)
    summary: Any = SimpleNamespace(
        n_workers=2, used_by_worker=counts, used=counts.sum(), delay_mean=0.5, delay_max=1.0,
        utilisation=1.0, thrown_away=0, cancelled=0,
    )  # fmt: skip
    trials = tuple(
        tuning.Trial({"step": step}, score, 0) for step, score in ((0.1, 1.0), (0.2, 2.0))
    )
    return Outcome(
        method=BY_NAME[name], tuned=tuning.Tuned(SPACE, trials, 10), time=time,
        computed=time.astype(int) + 1,
        version=time.astype(int) + 1,
        loss=1.0 - accuracy, accuracy=accuracy, trace=TRACE,
        summaries=(summary,) * len(reached), seconds=0.0,
    )  # fmt: skip


@pytest.fixture
def settings(tmp_path):
    return Settings(
        output=tmp_path,
        n_workers=2,
        horizon=20.0,
        instances=5,
        levels=(0.8, 0.9),
        tuning_instances=2,
    )


NEVER = [np.inf] * 5
OUTCOMES = [
    outcome("synchronous", [16.0, 15.0, 16.0, 17.0, 16.0]),
    outcome("random async", NEVER),
    outcome("pure async", [4.0, 4.0, 6.0, 3.0, 4.0], (3, 1)),
    outcome("shuffled async", [5.0, 3.0, 9.0, 3.0, 5.0]),
]
ORDER = ["pure async", "shuffled async", "synchronous", "random async"]


def test_the_verdict_names_the_first_its_lead_its_rivals_and_its_price(settings):
    told = tables.verdict(settings, OUTCOMES)
    assert told.startswith("Pure async is first at 90 % test accuracy, after 4.00 units")
    lead = float(np.exp(np.mean(np.log([16 / 4, 15 / 4, 16 / 6, 17 / 3, 16 / 4]))))
    assert f"Synchronous rounds need {lead:.2g} times as long (" in told
    assert "Not told apart from it: shuffled async (5.00)." in told
    assert "Not reached within 20 units: random async." in told
    assert "least heard worker 0.5 times as often as an even share" in told
    assert told.endswith("the first of those that hear all alike is shuffled async, after 5.00.")


def test_the_verdict_says_no_more_than_the_numbers(settings):
    alone = tables.verdict(settings, [OUTCOMES[0]])
    assert alone.startswith("Synchronous is first")
    assert len(re.findall(r"\.(?: |$)", alone)) == 1  # nobody to compare with, all heard alike
    assert "fair" not in alone
    assert "Not" not in alone
    none = tables.verdict(settings, [OUTCOMES[1]])
    assert none.startswith("No way of training reaches 90 % test accuracy within 20 units")
    assert none.endswith("random async comes closest, with 50 %.")
    far = tables.verdict(settings, [OUTCOMES[2], outcome("fastest half", [12.0] * 5)])
    assert "Not told apart" not in far


def test_ranks_are_those_that_the_instances_leave_open(settings):
    ranks = {row[0]: row[1] for row in tables.table(settings, OUTCOMES).rows}
    assert ranks == {
        "pure async": "1 to 2",
        "shuffled async": "1 to 2",
        "synchronous": "3",
        "random async": "4",
    }


def test_a_quartile_is_a_time_that_was_seen(settings):
    """No quartile is made of a time that never came, and the mean is cut at the horizon."""
    one = outcome("pure async", [4.0, 8.0, 6.0, np.inf, np.inf])
    spread = tables.to_target(settings, one)
    assert (spread.low, spread.median, spread.reached) == (6.0, 8.0, 0.6)
    assert spread.high == np.inf
    [row] = tables.table(settings, [one]).rows
    assert row[4] == pytest.approx((4 + 8 + 6 + 20 + 20) / 5)


def test_the_table_stands_in_the_order_of_the_answer_with_the_same_numbers(settings):
    made = tables.table(settings, OUTCOMES)
    rows = made.rows
    assert [row[0] for row in rows] == ORDER
    assert [float(row[3].median) for row in rows] == [4.0, 5.0, 16.0, np.inf]
    assert OUTCOMES[0].method.name == "synchronous"  # the given list is left
    assert tables.table(settings, OUTCOMES[::-1]).cells() == made.cells()


@pytest.mark.slow
def test_the_report_begins_with_the_answer_and_ends_with_how_it_was_made(settings):
    made = tables.table(settings, OUTCOMES)
    text = report.write(settings, OUTCOMES, made, "Both agree.").read_text(encoding="utf-8")
    bare = re.sub(r"base64,[A-Za-z0-9+/=]*", "", text)
    assert bare.index('class="verdict">Pure async is first') < bare.index("<nav")
    assert bare.index("Both agree.") < bare.index("<nav")
    headings = re.findall(r"<h2>(.*?)</h2>", bare)
    assert headings[0] == "The answer"
    assert headings[-1] == "Version, command and papers"
    pictures = re.findall(r'<img alt="(.*?)"', bare)
    assert pictures[0].startswith("Simulated time to the target")
    body = bare[bare.index("<main>") :]
    rows = re.findall(r"<tr><td>([a-z ]+)</td>", body)
    assert rows == ORDER * 4  # the main table, other targets, who is heard, what was tried
    last = body[body.rindex("<section") :]
    words = "python -m experiments.compare --instances 5 --tuning-instances 2 --n-workers 2"
    for said in (words, "asyncjax 0", "2310.20452"):
        assert said in last
    assert last.count("2310.20452") == 1  # a paper once, though two methods are in it
    assert "2202.08550" not in last  # of methods that were not run
    narrow = bare.count("<source media=")
    assert narrow == 3  # accuracy, loss and staleness have a form for phones


def test_the_bars_stand_in_the_order_of_the_answer(settings, monkeypatch):
    seen = {}
    monkeypatch.setattr(report.plots, "bars", lambda names, *_, **__: seen.setdefault("n", names))
    report._bars(settings, tables.ranked(settings, OUTCOMES), None)
    assert seen["n"] == ORDER


def test_the_command_has_what_is_not_the_default(tmp_path):
    assert report.command(Settings()) == "python -m experiments.compare"
    changed = Settings(output=tmp_path, set="B", steps=(0.1, 0.2), threads=7, commit=True)
    assert report.command(changed) == "python -m experiments.compare --set B --steps 0.1 0.2"


def test_every_method_has_its_paper():
    assert set(report.PAPERS) == set(BY_NAME)
    assert all(re.search(r"\(arXiv \d{4}\.\d{5}\)", paper) for paper in report.PAPERS.values())


def numbers_of(times, **changed):
    """Numbers of a set: the times of each method, an instance each."""
    settings = {"horizon": 20.0, "target": 0.9, "seed": 0, "instances": 4, "tuning_instances": 2}
    return {
        "settings": {**settings, **changed},
        "methods": {
            name: {"time": own, "gradients": own, "final_loss": [0.1, 0.2, 0.3, 0.4]}
            for name, own in times.items()
        },
    }


EARLY, LATE = [4.0, 5.0, 4.5, 6.0], [12.0, 14.0, np.inf, 13.0]


def test_verdicts_flip_with_the_numbers():
    claim = "pure async is at the target before synchronous rounds"
    for pure, waiting, said in (
        (EARLY, LATE, "holds"),
        (LATE, EARLY, "does not hold"),
        (EARLY, [4.5, 4.0, 5.0, 6.0], "no significant difference"),
    ):
        found = numbers_of({"pure async": pure, "synchronous": waiting})
        assert claims.verdicts(found)[claim] == said


def test_sets_that_differ_are_said_to():
    one = numbers_of({"pure async": EARLY, "synchronous": LATE})
    other = numbers_of({"pure async": LATE, "synchronous": EARLY})
    told = claims.agreement({"A": one, "B": one})
    assert told.startswith("Two disjoint sets of 4 instances agree in all")
    assert told.endswith("1 are told apart the same way in both, 0 in neither, 0 in one only, 0 in"
                         " opposite ways.")  # fmt: skip
    told = claims.agreement({"A": one, "B": other})
    assert "pure async is at the target before synchronous rounds (holds | does not hold)" in told
    assert told.endswith("1 in opposite ways.")
    assert claims.agreement({"A": one}) == "Set B has not been run: nothing to compare with."


def test_the_page_says_what_the_committed_numbers_say():
    """The table of docs/main_job.md is made from experiments/numbers/compare.json."""
    sets = claims.committed()
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text, page.text_of(sets)) == text
    for own in sets.values():
        assert not any(method["at_edge"] for method in own["methods"].values())
        assert len({method["trials"] for method in own["methods"].values()}) == 1
