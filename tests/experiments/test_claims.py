"""The table of claims says what the numbers say, and a verdict that turns is found."""

import re

import pytest

from experiments import claims, quotes

MEASURED = {
    "A": {"gain": [-2.0, -1.0, -3.0], "said": {"it is fast": "holds", "it is small": "holds"}},
    "B": {"gain": [-1.0, -2.0, -2.5], "said": {"it is fast": "holds", "it is small": "in part"}},
}
PAGE = """# Claims

| claim | source | our figure | command | verdict | test |
|---|---|---|---|---|---|
| it is fast | here | 2 | `a` | holds | `b` |
| it is fast and small | here | 3 | `a` | holds (A), in part (B) | `b` |
"""
README = "# Ours\n\nOf 2 claims checked 1\nhold here, 1 in part, 0 do not: see there."


def load(name):
    assert name == "job"
    return MEASURED


def conditions(own):
    """What `by` names in the rule of a row."""
    from asyncjax.study.statistics import Condition, paired

    return [Condition("lower", paired(own["gain"], [0.0] * len(own["gain"])))]


FAST = claims.Rule("it is fast", numbers="job/{set}", by=f"{__name__}:conditions")
BOTH = claims.Rule(
    "it is fast and small",
    verdicts=("job/{set}/said/it is fast", "job/{set}/said/it is small"),
)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/claims.md").write_text(PAGE)
    (tmp_path / "README.md").write_text(README)
    return tmp_path


def test_verdicts_of_the_table_are_what_the_numbers_say():
    wrong, without = claims.compared(claims.read())
    assert wrong == []
    assert without == []


def test_a_verdict_that_turns_is_found_and_put_right(root):
    assert claims.compared([FAST, BOTH], root=root, load=load) == ([], [])
    turned = MEASURED | {"A": MEASURED["A"] | {"gain": [2.0, 1.0, 3.0]}}

    def other(name):
        return turned

    wrong, _ = claims.compared([FAST, BOTH], root=root, load=other)
    assert "says holds, the numbers say does not hold (A), holds (B)" in wrong[0]
    assert "the table has 'Of 2 claims checked 0 hold here, 1 in part, 1 do not:'" in wrong[1]
    claims.compared([FAST, BOTH], root=root, load=other, write=True)
    assert "| does not hold (A), holds (B) |" in (root / "docs/claims.md").read_text()
    assert claims.compared([FAST, BOTH], root=root, load=other) == ([], [])


def test_rows_without_a_rule_and_rules_without_a_row_are_told(root):
    assert claims.compared([FAST], root=root, load=load)[1] == ["it is fast and small"]
    wrong, _ = claims.compared([FAST, BOTH, claims.Rule("gone")], root=root, load=load)
    assert "no row 'gone'" in wrong[0]


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        (["holds"], "holds"),
        (["holds", "in part"], "in part"),
        (["holds", "does not hold"], "in part"),
        (["no significant difference", "does not hold"], "does not hold"),
        (["no significant difference"], "no significant difference"),
    ],
)
def test_a_row_of_several_claims(said, verdict):
    assert claims.together(said) == verdict


@pytest.mark.parametrize("said", [[], ["yes"]])
def test_what_is_no_verdict_is_refused(said):
    with pytest.raises(ValueError, match="verdicts must be among holds, in part"):
        claims.together(said)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[claim]]\nrow = "a"\nverdict = "b"\n', "must have the fields"),
        ('[[claim]]\nrow = "a"\nverdicts = []\n' * 2, "must have one entry, got more for 'a'"),
    ],
)
def test_a_list_that_is_wrong_is_refused(tmp_path, text, words):
    (tmp_path / "list.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        claims.read(tmp_path / "list.toml")


def test_the_command_says_what_is_wrong_and_how_it_is_called(monkeypatch, capsys, root):
    monkeypatch.setattr(claims, "read", lambda: [])
    assert claims.main(["--white"]) == 2
    assert claims.main([]) == 1
    assert "no rule: " in capsys.readouterr().out


@pytest.mark.slow
def test_figures_of_the_table_are_quotes():
    """Each number of a row's figure lies within a quote of the page."""
    text = (quotes.ROOT / claims.TABLE).read_text(encoding="utf-8")
    left = claims.rows_of(quotes.bare(claims.TABLE, quotes.read()))
    rows = zip(claims.rows_of(text), left, strict=True)
    unquoted = {row[0] for row, bare in rows if re.search(r"\d", bare[2])}
    assert unquoted == set()
