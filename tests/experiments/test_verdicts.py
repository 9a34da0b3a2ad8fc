"""No verdict turns: what experiments say of committed numbers is what it was."""

import json

import pytest

from tests.tools import verdicts

QUICK = ("bias", "cluster_floors", "straggler_bounds", "claims")
SLOW = [pytest.param(part, marks=pytest.mark.slow) for part in verdicts.PARTS if part not in QUICK]


@pytest.mark.parametrize("part", [*QUICK, *SLOW])
def test_the_verdicts_of_a_part_are_those_that_were_kept(part):
    old, _ = verdicts.read(verdicts.FILE)
    kept = {name: own for name, own in old.items() if verdicts.part_of(name) == part}
    assert len(kept) > (20 if part in QUICK else 0)
    assert verdicts.differences(kept, verdicts.verdicts_of(part)) == []


def test_all_parts_are_kept_and_since_when_is_told():
    assert {verdicts.part_of(name) for name in verdicts.read(verdicts.FILE)[0]} == {*verdicts.PARTS}
    head = json.loads(verdicts.FILE.read_text("utf-8"))
    assert {len(head[name]) for name in ("commit", "words", "names")} == {40}


def test_a_turned_word_a_moved_figure_and_a_lost_name_are_found():
    figures = {"mean": -0.2, "low": None, "high": -0.1}
    kept = {"a / A / it is fast": ("holds", figures)}
    assert verdicts.differences(kept, kept) == []
    assert verdicts.differences(kept, {}) == ["missing  a / A / it is fast"]
    assert verdicts.differences({}, kept) == ["new      a / A / it is fast"]
    turned = {"a / A / it is fast": ("in part", figures)}
    (line,) = verdicts.differences(kept, turned)
    assert line == "word     a / A / it is fast: was 'holds', is 'in part'"
    moved = {"a / A / it is fast": ("holds", figures | {"mean": -0.2001, "low": -1.0})}
    assert len(verdicts.differences(kept, moved)) == 2
    assert verdicts.differences(kept, moved, words=True) == []
    assert len(verdicts.differences(kept, {"a / A / it is fast": ("holds", {})})) == 3
