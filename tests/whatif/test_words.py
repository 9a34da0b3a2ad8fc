"""The answer in words: what is said where it is known what must be said."""

import numpy as np
import pytest

from asyncjax import traces, whatif
from asyncjax.whatif.comparing import Interval
from asyncjax.whatif.comparing import rules_for
from asyncjax.whatif.words import times
from asyncjax.whatif.toys import TASKS
from asyncjax.whatif.toys import Learned, ToyResult, ToyResults
from tests.whatif.shared import uneven, uneven_log

RULES = {rule.name: rule for rule in rules_for(4, 1.0)}


def lesson(task, seconds):
    """A lesson in which every rule takes so long on every one of four seeds."""
    rows = [
        Learned(RULES[name], 0.1, False, np.asarray(own, float), np.zeros(2), np.ones(2))
        for name, own in seconds.items()
    ]
    rows.sort(key=lambda row: row.time)
    first = rows[0].times
    level = [
        row.rule.name
        for row in rows
        if not ((row.times < first).all() or (row.times > first).all())
    ]
    return ToyResult(task, 0.0, 100.0, tuple(rows), tuple(level))


def said(log, comparison, *lessons):
    learning = ToyResults(lessons, (0.1,)) if lessons else None
    return words_of(whatif.describe(log), comparison, learning)


@pytest.mark.slow
def test_even_workers_have_nothing_to_gain():
    answer = whatif.answer(np.full((4, 30), 2.0), quick=True)
    assert "next to nothing to gain" in answer.words.headline
    assert "busy 100 %" in answer.words.headline
    assert not any("shards differ" in one for one in answer.words.sentences)


@pytest.mark.slow
def test_the_headline_says_gain_and_staleness():
    words, row = said(uneven_log(), uneven()), uneven().of("pure asynchronous")
    assert f"{row.gain.value:.2f} times" in words.headline
    assert f"mean staleness of {row.figures.staleness_mean:.1f} updates" in words.headline
    assert "pure asynchronous training" in words.headline


@pytest.mark.slow
def test_it_says_who_is_heard_less_and_which_rule_hears_all():
    told = " ".join(said(uneven_log(), uneven()).sentences)
    heard = uneven().of("pure asynchronous").figures.heard
    assert f"it hears worker d {heard[3]:.2f} times" in told
    assert "Of the rules that hear all alike, Ringleader brings most" in told
    assert "Slow for good, not by chance: d" in told


@pytest.mark.slow
def test_a_rule_for_even_and_another_for_skewed_data():
    soon, late = [10, 11, 12, 13], [40, 41, 42, 43]
    even = lesson(TASKS[0], {"synchronous": late, "pure asynchronous": soon, "Ringleader": late})
    skewed = [
        lesson(
            task,
            {
                "synchronous": late,
                "pure asynchronous": [np.inf] * 4,
                "Ringleader": [20, 21, 22, 23],
            },
        )
        for task in TASKS[1:]
    ]
    words = said(uneven_log(), uneven(), even, *skewed)
    assert words.advice == (
        "So try first: pure asynchronous if all workers draw from the same data, but Ringleader if"
        " their shards differ (by small problems, step sizes tuned)."
    )
    told = " ".join(words.sentences)
    assert (
        "the rule pure asynchronous is soonest at the target, 3.6 times (3.3 to 4.0 over seeds)"
        in told
    )
    assert "not there in the same time: pure asynchronous" in told


@pytest.mark.slow
def test_what_is_not_told_apart_is_said_to_be_so():
    level = {"synchronous": [10, 11, 12, 13], "pure asynchronous": [9, 12, 11, 14]}
    words = said(uneven_log(), uneven(), *(lesson(task, level) for task in TASKS))
    assert "no rule is surely sooner at the target than" in " ".join(words.sentences)
    assert words.advice.startswith("So stay synchronous")


@pytest.mark.slow
def test_a_barrier_in_the_log_is_noticed():
    steps = np.random.default_rng(0).gamma(4.0, 1.0, 40)
    log = traces.read_log(np.tile(steps, (3, 1)) + 1e-4 * np.arange(3)[:, None])
    assert "wait at a barrier" in whatif.answer(log, quick=True).words.caveats[0]
    assert "wait at a barrier" not in said(uneven_log(), uneven()).caveats[0]


def test_times_without_an_interval_have_none():
    assert times(Interval(2.0, 2.0, 2.0)) == "2.00 times"
    assert times(Interval(12.3, 11.0, 14.0)) == "12.3 times (11 to 14)"
