"""No verdict turns: what experiments say of committed numbers is what it was."""

import pytest

from tests.tools import judged, verdicts


@pytest.mark.parametrize("part", ["bias", "cluster_floors", "straggler_bounds"])
def test_the_verdicts_of_a_quick_part_are_those_that_were_kept(part):
    old, _ = verdicts.read(verdicts.FILE)
    kept = {name: own for name, own in old.items() if verdicts.part_of(name) == part}
    made = verdicts.collected(part, judged.PARTS[part]())
    assert len(kept) > 20
    assert verdicts.differences(kept, made) == []


@pytest.mark.slow
def test_all_verdicts_are_those_that_were_kept(capsys):
    assert verdicts.main(["--compare", str(verdicts.FILE)]) == 0
    assert "as at" in capsys.readouterr().out


def test_what_was_kept_is_of_parts_that_are_known():
    old, commit = verdicts.read(verdicts.FILE)
    assert {verdicts.part_of(name) for name in old} == set(judged.PARTS)
    assert len(commit) == 40


def test_a_turned_word_a_moved_figure_and_a_lost_name_are_found():
    figures = {"mean": -0.2, "low": -0.4, "high": -0.1}
    kept = {"a / A / it is fast": ("holds", figures)}
    assert verdicts.differences(kept, kept) == []
    assert verdicts.differences(kept, {}) == ["missing  a / A / it is fast"]
    assert verdicts.differences({}, kept) == ["new      a / A / it is fast"]
    turned = {"a / A / it is fast": ("in part", figures)}
    (line,) = verdicts.differences(kept, turned)
    assert line == "word     a / A / it is fast: was 'holds', is 'in part'"
    moved = {"a / A / it is fast": ("holds", figures | {"mean": -0.2001})}
    assert len(verdicts.differences(kept, moved)) == 1
    assert verdicts.differences(kept, moved, figures=False) == []
    assert len(verdicts.differences(kept, {"a / A / it is fast": ("holds", {})})) == 3


def test_the_end_of_an_interval_may_move_by_a_two_hundredth_of_it_and_the_fourth_word_change():
    figures = {"mean": 0.1, "low": -0.1, "high": 0.3}
    kept = {"a": ("not told apart (A), holds (B)", figures)}
    near = {"a": ("no significant difference (A), holds (B)", figures | {"low": -0.1009})}
    assert verdicts.differences(kept, near) == []
    far = {"a": ("not told apart (A), holds (B)", figures | {"low": -0.103})}
    assert len(verdicts.differences(kept, far)) == 1


def test_a_file_keeps_verdicts_and_two_of_one_name_are_refused(tmp_path):
    found = [("A / it is fast", "holds", {"ratio": 2 / 3, "low": float("inf")})]
    made = verdicts.collected("a", found)
    verdicts.write(tmp_path / "kept.json", made)
    assert verdicts.read(tmp_path / "kept.json")[0] == made
    assert made == {"a / A / it is fast": ("holds", {"ratio": 0.666667, "low": None})}
    with pytest.raises(ValueError, match="two verdicts are called"):
        verdicts.collected("a", found * 2)
