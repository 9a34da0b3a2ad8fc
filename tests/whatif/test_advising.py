"""The decision tree read for a log: a tree that is made up, so that what must be said is known."""

import numpy as np
import pytest

from asyncjax import traces, whatif
from asyncjax.whatif import advising
from asyncjax.whatif.advising import is_lasting
from asyncjax.whatif.comparing import Interval
from tests.whatif.shared import uneven, uneven_log


def leaf(method, over_synchronous, **others):
    return {
        "method": method,
        "call": f"call of {method}",
        "over_synchronous": over_synchronous,
        "over_pure": [1.25, 1.125, 1.375],
        "by_scene": [1.5, 2.5],
        "arrived": 1.0,
        "synchronous_arrived": 1.0,
        "level_with": [],
        "faster": [],
        "knobs": "step 1",
        "instances": 10,
        **others,
    }


def fork(yes, no, what, **others):
    return {"question": {"what": what, **others}, "yes": yes, "no": no}


TREE = fork(
    fork(
        leaf("Rescaled", [1.9, 1.6, 2.3]),
        fork(leaf("Rennala", [2.5, 2.0, 3.0]), leaf("pure", [3.0, 2.5, 3.5]), "lasting"),
        "skew",
    ),
    fork(leaf("local SGD", [1.2, 0.9, 1.6]), leaf("synchronous", [1.0, 1.0, 1.0]), "link"),
    "busy",
    below=0.7,
    around=[0.5, 0.9],
)
ABOUT = {
    "level": 0.95,
    "problems": "a problem",
    "workers": 8,
    "instances": 10,
    "chosen_on": 1.245,
    "held_out": 1.228,
    "busy": [0.2, 0.95],
    "by_chance": "bad luck",
}


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    monkeypatch.setattr(advising, "tree", lambda: {"about": ABOUT, "tree": TREE})


def walked(**known):
    unknown = dict.fromkeys(("busy", "lasting", "skew", "noise", "link"))
    hints = advising._walk(TREE, {**unknown, **known})
    return {hint.method: hint.conditions for hint in hints}


def test_what_is_not_known_is_a_condition_and_what_is_known_is_none():
    slow, alike = "the slow hold labels of their own", "all workers hold like data"
    assert walked(busy=0.4) == {
        "Rescaled": (slow,),
        "Rennala": (alike, "the slow are slow for good"),
        "pure": (alike, "who is slow changes from job to job"),
    }
    assert walked(busy=0.4, lasting=False)["Rescaled"] == ("some workers hold labels of their own",)
    assert walked(busy=0.4, lasting=True) == {"Rescaled": (slow,), "Rennala": (alike,)}
    assert walked(busy=0.4, lasting=False, skew=False) == {"pure": ()}
    assert walked(busy=0.4, skew=True, link=True) == {"Rescaled": ()}
    assert walked(busy=0.7, link=False) == {"synchronous": ()}
    assert walked(busy=0.8) == {
        "local SGD": ("the link is expensive",),
        "synchronous": ("the link is free",),
    }


def test_what_would_leave_fewer_lines_is_said():
    def said(busy, lasting=None, skew=None):
        known = {"busy": busy, "lasting": lasting, "skew": skew, "noise": None, "link": None}
        return whatif.Advice(busy, lasting, tuple(advising._walk(TREE, known))).notes

    begin = "Say what you know and fewer lines are left:"
    assert said(0.8)[-1] == f"{begin} --link, or in Python expensive_link="
    assert said(0.4, lasting=False)[-1] == f"{begin} --own-labels, or in Python own_labels="
    assert said(0.4, skew=False)[-1] == "A longer log would tell whether they are uneven for good"
    assert "believe the latter" in said(0.4, lasting=True, skew=True)[-1]


def test_a_hint_is_one_line_with_its_interval():
    gain, cost = Interval(1.9, 1.6, 2.3), Interval(1.25, 1.125, 1.375)
    hint = whatif.Hint(
        ("it rains",), "Rescaled", "f()", gain, cost, (1.5, 2.5), 1.0, 1.0, (), (), "step 1", 10
    )
    told = "Rescaled, 1.90 times as fast as synchronous (1.60 to 2.30 on 10 instances)"
    span = "; in single scenes 1.50 to 2.50"
    assert hint.sentence == f"if it rains: {told}{span}"
    cut = hint._replace(arrived=0.9, synchronous_arrived=0.75).sentence
    assert cut.endswith("2.50; at the target in 90 % of its runs, synchronous in 75 %")
    level = hint._replace(conditions=(), level_with=("synchronous", "pure", "table"))
    assert level.sentence == f"{told}{span}; no significant difference to it: pure, table"
    beaten = hint._replace(faster=("local SGD",), level_with=("pure",)).sentence
    assert beaten.endswith(
        "2.50; significantly faster: local SGD; no significant difference to it: pure"
    )
    unsure = hint._replace(over_synchronous=Interval(1.2, 0.9, 1.6))
    assert "instances), no significant difference; in" in unsure.sentence
    rounds = hint._replace(conditions=(), method="synchronous")
    said = "pure asynchronous training takes 1.25 times as long (1.12 to 1.38 on 10 instances)"
    assert rounds.sentence == f"stay synchronous; {said}"
    level = rounds._replace(over_pure=Interval(1.02, 0.99, 1.08)).sentence
    assert level.endswith(
        "1.02 times as long (0.99 to 1.08 on 10 instances), no significant difference"
    )


def test_uneven_for_good_is_what_means_tell():
    assert is_lasting(0.5, [1.0, 1.0, 4.0])
    assert not is_lasting(0.5, [1.0, 1.0, 1.2])
    assert not is_lasting(0.95, [1.0, 1.0, 1.15])  # even workers lose nothing for good


@pytest.mark.slow
def test_a_log_tells_how_uneven_its_workers_are():
    advice = whatif.advise(whatif.describe(uneven_log()), uneven(), own_labels=False, noisy=True)
    assert advice.busy == pytest.approx(1 - uneven().of("synchronous").figures.idle)
    assert advice.lasting
    assert [hint.method for hint in advice.hints] == ["Rennala"]
    assert "uneven for good" in advice.headline
    notes = " ".join(advice.notes)
    assert "95 % of the way" in notes
    assert "believe the latter" in notes
    assert "asks nothing of noise" in notes
    assert "--own-labels" not in notes
    open_advice = whatif.advise(whatif.describe(uneven_log()), uneven())
    assert [hint.method for hint in open_advice.hints] == ["Rescaled", "Rennala"]
    assert open_advice.notes[-1].endswith("left: --own-labels, or in Python own_labels=")


@pytest.mark.slow
def test_it_tells_for_good_from_by_chance_and_from_too_short():
    chance = traces.read_log(np.random.default_rng(0).exponential(1.0, (4, 80)))
    assert advising._lasting(whatif.describe(chance), 0.5) is False
    short = traces.read_log({"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [1.0, 2.0]})
    assert advising._lasting(whatif.describe(short), 0.8) is None


def test_what_was_not_measured_is_said():
    def notes(busy, lasting, *unasked):
        return whatif.Advice(busy, lasting, (), unasked).notes

    assert len(notes(0.45, True)) == 1
    assert notes(0.8, True)[1].startswith("Nothing was measured between 0.50 and 0.90")
    told = notes(1.0, False, "noise")
    assert told[1] == "No scene had such workers: there rounds were busy 0.20 to 0.95"
    assert told[2].startswith("The tree asks nothing of noise")
    for kind in (False, None):
        assert notes(0.4, kind)[-1] == "Uneven by chance was measured with one law alone, bad luck"
    heads = [whatif.Advice(0.8, kind, ()).headline for kind in (True, False, None)]
    assert "80 % of the time, uneven for good)" in heads[0]
    assert "80 % of the time, uneven by chance)" in heads[1]
    assert "80 % of the time, uneven for good or by chance)" in heads[2]
    assert whatif.Advice(0.95, False, ()).headline.endswith("95 % of the time)")
