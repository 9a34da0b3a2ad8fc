"""Templates: what is filled in, what is refused, and a missing extra."""

import sys
from functools import partial

import jinja2
import numpy as np
import pytest
from scipy import stats

from asyncjax.results.statistics import Condition, Difference
from asyncjax.study import pages
from asyncjax.study.result import Claim, less
from tests.oracles import describing as oracle
from tests.study.test_result import PLAIN

CLAIMS = (
    Claim("a is before c", [less("a", than="c")]),
    Claim("and c before a", [less("c", than="a")]),
)


def filled(tmp_path, text, **options):
    path = tmp_path / "page.md.j2"
    path.write_text(text)
    return pages.render(path, pages.functions(PLAIN, CLAIMS), **options)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{{ ratio("a", "b", scene="uneven").value | fixed(2) }}', "0.25"),
        ('{{ ratio("a", "b", "B", scene="uneven").set }}', "B"),
        ('{{ ratios("a", "b") | selectattr("significant") | list | length }}', "2"),
        ('{{ (ratios("a", "b", set="A") | min(attribute="value")).cell }}', "uneven"),
        ('{{ value("time", "median", method="c", scene="uneven") | fixed }}', "never"),
        ('{{ value("time", "share", set=none, method="c") | percent }} %', "50 %"),
        ('{{ value("time", "count", method="c") | fixed(0) }}', "16"),
        ('{{ value("horizon") | short(2) }}', "100"),
        ('{{ verdict("a is before c") }}, {{ verdict("a is before c").A }}', "holds, holds"),
        ('{{ verdict("a is before c", "and c before a").word }}', "in part"),
        ('{{ verdict("a is before c", "and c before a") }}', "in part (1 of 2)"),
        ('{{ verdict("a faster than b").B }}', "in part"),
        ('{% if verdict("a faster than c").word == "holds" %}\nyes\n{% endif %}\n', "yes\n"),
        ("{{ 12345 }}", "12,345"),
    ],
)
def test_what_a_template_says(tmp_path, text, wanted):
    assert filled(tmp_path, text) == wanted


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("one\n{{ 1 + 1 }}", ValueError, "must not reckon, got arithmetic in line 2"),
        ("{{ nothing }}", jinja2.UndefinedError, "nothing"),
        ("{{ ratio('a', 'b').nothing }}", jinja2.UndefinedError, "nothing"),
        ("{{ ratio('a', 'b').value }}", TypeError, "must have a format"),
        ("{{ none }}", TypeError, "must have a format"),
        ("{{ value('time', 'middle') }}", ValueError, "how must be one of median"),
        ("{{ value('time', method='d') }}", ValueError, "must leave rows, got none"),
    ],
)
def test_what_a_template_may_not_say(tmp_path, text, error, words):
    with pytest.raises(error, match=words):
        filled(tmp_path, text)


@pytest.mark.parametrize("seed", range(4))
def test_a_verdict_counts_what_holds_in_both_sets_as_a_plain_loop_does(seed):
    """By p-values and Holm's textbook procedure, set by set; then condition by condition."""
    rng = np.random.default_rng(seed)
    samples = {s: rng.normal(-0.7, 0.6, (9, 1)) + rng.normal(0, 0.6, (9, 8)) for s in "AB"}

    def condition(at, letter, level):
        sample = samples[letter][at]
        low, high = stats.t.interval(level, 7, sample.mean(), stats.sem(sample))
        return Condition("", Difference(sample.mean(), low, high, 0.5, 8))

    words = {}
    for letter, rows in samples.items():
        p_values = oracle.holm([float(stats.ttest_1samp(one, 0.0).pvalue) for one in rows])
        signs = ["holds" if one.mean() < 0 else "refuted" for one in rows]
        words[letter] = [s if p < 0.05 else "open" for s, p in zip(signs, p_values, strict=True)]
    each = [sum(word == "holds" for word in words[letter]) for letter in "AB"]
    both = sum(one == other == "holds" for one, other in zip(*words.values(), strict=True))
    assert 0 < both < 9
    tail = "" if each == [both, both] else f"; A {each[0]}, B {each[1]}"
    found = pages.Verdict(("A", "B"), [partial(condition, at) for at in range(9)])
    assert str(found) == f"in part ({both} of 9{tail})"


def test_a_claim_that_is_certain_is_marked_where_it_holds_and_conditions_differ_by_set():
    sure = Claim("sure", [less("a", than="c")], certain="a theorem")
    found = pages.verdict(PLAIN, sure)
    assert (str(found), found.certain) == ("holds: a check of the code", "a theorem")
    assert str(pages.verdict(PLAIN, sure, CLAIMS[0])) == "holds"
    assert str(pages.verdict(PLAIN, CLAIMS[1])) == "does not hold (1 of 1 refuted)"
    ends = {"A": (-3.0, -1.0), "B": (-3.0, 1.0)}
    of = [lambda letter, level: Condition("", Difference(-1.0, *ends[letter], 0.5, 9))]
    split = pages.Verdict(("A", "B"), of)
    assert split.word == "holds (A), no significant difference (B)"
    assert str(split) == "no significant difference (0 of 1; A 1, B 0)"


def test_marks_stand_around_what_is_filled_in(tmp_path):
    text = filled(tmp_path, "It is {{ ratio('a', 'b').instances }} long.", marked=True)
    assert text == f"It is {pages.BEGIN}8{pages.END} long."


def test_a_missing_extra_is_one_sentence_with_the_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"this needs jinja2.* pip install \"asyncjax\[study\]"):
        filled(tmp_path, "")
