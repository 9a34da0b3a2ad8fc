"""Templates: what is filled in, what is refused, and a missing extra."""

import sys

import jinja2
import pytest

from asyncjax.study import pages
from asyncjax.study.result import Claim, less
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


def test_marks_stand_around_what_is_filled_in(tmp_path):
    text = filled(tmp_path, "It is {{ ratio('a', 'b').instances }} long.", marked=True)
    assert text == f"It is {pages.BEGIN}8{pages.END} long."


def test_a_missing_extra_is_one_sentence_with_the_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"this needs jinja2.* pip install \"asyncjax\[study\]"):
        filled(tmp_path, "")
