"""No verdict turns: what experiments say of committed numbers is what it was."""

import json

import pytest

from tests.tools import verdicts

QUICK = ("bias", "cluster_floors", "straggler_bounds", "claims")
SLOW = [pytest.param(part, marks=pytest.mark.slow) for part in verdicts.PARTS if part not in QUICK]


@pytest.mark.parametrize("part", [*QUICK, *SLOW])
def test_the_verdicts_of_a_part_are_those_that_were_kept(part):
    old, _ = verdicts.read(verdicts.FILE)
    known = {name: verdict for name, verdict in old.items() if verdicts.part_of(name) == part}
    assert len(known) > (20 if part in QUICK else 0)
    assert verdicts.differences(known, verdicts.verdicts_of(part)) == []


def test_all_parts_are_kept_and_since_when_is_told():
    assert {verdicts.part_of(name) for name in verdicts.read(verdicts.FILE)[0]} == {*verdicts.PARTS}
    head = json.loads(verdicts.FILE.read_text("utf-8"))
    assert {len(head[name]) for name in ("commit", "words", "names")} == {40}


def test_a_turned_word_a_moved_figure_and_a_lost_name_are_found():
    figures = {"mean": -0.2, "low": None, "high": -0.1}
    known = {"a / A / it is fast": ("holds", figures)}
    assert verdicts.differences(known, known) == []
    assert verdicts.differences(known, {}) == ["missing  a / A / it is fast"]
    assert verdicts.differences({}, known) == ["new      a / A / it is fast"]
    turned = {"a / A / it is fast": ("in part", figures)}
    (line,) = verdicts.differences(known, turned)
    assert line == "word     a / A / it is fast: was 'holds', is 'in part'"
    moved = {"a / A / it is fast": ("holds", figures | {"mean": -0.2001, "low": -1.0})}
    assert len(verdicts.differences(known, moved)) == 2
    assert verdicts.differences(known, moved, words=True) == []
    assert len(verdicts.differences(known, {"a / A / it is fast": ("holds", {})})) == 3
