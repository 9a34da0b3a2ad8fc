"""The answer in words: what is said where it is known what must be said."""

import re

import numpy as np
import pytest

from asyncjax import storage, traces, whatif
from asyncjax.whatif.comparing import rules_for
from asyncjax.whatif.toys import TASKS, Learned, ToyResult, ToyResults
from asyncjax.whatif.words import percent, some, speed, times
from tests.whatif.shared import uneven, uneven_log

RULES = {rule.name: rule for rule in rules_for(4, 1.0)}
SOON, LATE = [10.0, 11.0, 12.0, 13.0], [40.0, 41.0, 42.0, 43.0]


def lesson(task, seconds):
    """A lesson in which every rule takes so long on every one of four seeds."""
    rows = [
        Learned(RULES[name], 0.1, False, np.asarray(row, float), np.ones(2), np.ones(2))
        for name, row in seconds.items()
    ]
    rows.sort(key=lambda row: row.time)
    first = rows[0].times
    level = [
        row.rule.name
        for row in rows
        if not ((row.times < first).all() or (row.times > first).all())
    ]
    return ToyResult(task, 0.0, 100.0, tuple(rows), tuple(level))


def answered(*lessons):
    """The answer on uneven workers with lessons that are made up."""
    description, comparison = whatif.describe(uneven_log()), uneven()
    learning = ToyResults(lessons, (0.1,)) if lessons else None
    advice = whatif.advise(description, comparison)
    return whatif.Answer(uneven_log(), description, comparison, learning, advice, "here")


@pytest.fixture(scope="module")
def never():
    """Rules that do not arrive, or do on some seeds; one that once is 42 times as fast."""
    seconds = {
        "synchronous": LATE,
        "pure asynchronous": [np.inf] * 4,
        "Ringleader": [20.0, 21.0, 22.0, np.inf],
        "shuffled": [30.0, 31.0, 1.0, 33.0],
    }
    return answered(*(lesson(task, seconds) for task in TASKS))


@pytest.mark.slow
def test_even_workers_have_nothing_to_gain():
    words = whatif.answer(np.full((4, 30), 2.0), quick=True).words
    assert "next to nothing to gain: synchronous rounds keep them busy 100 %" in words.headline
    assert words.headline.endswith("no rule surely brings 5 % more gradients.")
    assert not any("shards differ" in sentence for sentence in words.sentences)


@pytest.mark.slow
def test_it_says_gain_and_staleness_and_who_is_heard_less():
    words, row = answered().words, uneven().of("pure asynchronous")
    assert f"{row.gain.value:.2f} times" in words.headline
    assert f"mean staleness of {row.figures.staleness_mean:.1f} updates" in words.headline
    assert "pure asynchronous training" in words.headline
    assert "wait at a barrier" not in words.caveats[0]
    told = " ".join(words.sentences)
    assert f"it hears worker d {row.figures.heard[3]:.2f} times" in told
    assert "Of the rules that hear all alike, Ringleader brings most" in told
    assert "Slow for good, not by chance: d" in told


@pytest.mark.slow
def test_a_rule_for_even_and_another_for_skewed_data():
    even = {"synchronous": LATE, "pure asynchronous": SOON, "Ringleader": LATE}
    ringleader = [20, 21, 22, 23]
    skewed = {"synchronous": LATE, "pure asynchronous": [np.inf] * 4, "Ringleader": ringleader}
    words = answered(lesson(TASKS[0], even), *(lesson(task, skewed) for task in TASKS[1:])).words
    assert words.advice == (
        "So try first: pure asynchronous if all workers draw from the same data, but Ringleader if"
        " their shards differ (by small problems, step sizes tuned)."
    )
    told = " ".join(words.sentences)
    assert (
        "On the stand-in problem with even data, every step size tuned, the rule pure asynchronous"
        " is soonest at the target, 3.6 times (3.3 to 4.0 over seeds) as fast as synchronous"
        " rounds." in told
    )
    assert "not there in the same time: pure asynchronous." in told
    words = answered(*(lesson(task, even) for task in TASKS)).words
    assert words.advice.startswith("So try first: pure asynchronous. On small problems")


@pytest.mark.slow
def test_where_no_difference_is_significant_that_is_said():
    level = {"synchronous": SOON, "pure asynchronous": [9, 12, 11, 14]}
    words = answered(*(lesson(task, level) for task in TASKS)).words
    assert "no rule is surely sooner at the target than" in " ".join(words.sentences)
    assert words.advice.startswith("So stay synchronous")


@pytest.mark.slow
def test_a_barrier_in_the_log_is_noticed():
    steps = np.random.default_rng(0).gamma(4.0, 1.0, 40)
    log = traces.read_log(np.tile(steps, (3, 1)) + 1e-4 * np.arange(3)[:, None])
    assert "wait at a barrier" in whatif.answer(log, quick=True).words.caveats[0]


def test_numbers_as_people_say_them():
    assert times((2.0, 2.0, 2.0)) == "2.00 times"
    assert times((12.3, 11.0, 14.0)) == "12.3 times (11 to 14)"
    assert [speed(ratio) for ratio in (1.234, 0.0, np.inf)] == ["1.23", "never", "∞"]
    assert [percent(share) for share in (0.421, 0.0042, 0.0)] == ["42 %", "0.4 %", "0 %"]
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


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
    assert "not at the target in time" in never.html()


@pytest.mark.slow
def test_programs_read_that_it_never_arrives(never, tmp_path):
    read = storage.load_json(never.save(tmp_path / "a.json"))["learning"][0]
    ratios = {row["rule"]: row["speed_up"] for row in read["rules"]}
    assert ratios["pure asynchronous"] == [None, None, None]
    assert ratios["Ringleader"][1:] == [None, 2.0]
