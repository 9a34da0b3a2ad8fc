"""The page: whole, self-contained, light and dark; its pictures; the figures as JSON."""

import html
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from asyncjax import storage, traces, whatif
from asyncjax.results import plots
from asyncjax.whatif import page as pages
from asyncjax.whatif.toys import TASKS, Learned, ToyResult
from tests.whatif.shared import uneven, uneven_log

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answer():
    return whatif.answer(uneven_log(), quick=True, command="python -m asyncjax.whatif <x>.csv")


@pytest.fixture
def drawn(monkeypatch):
    """The figures of matplotlib that a page is made of, by title."""
    figures, svg = {}, plots.svg_text

    def keep(figure, title):
        figures[title] = figure
        return svg(figure, title)

    monkeypatch.setattr(plots, "svg_text", keep)
    return figures


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_needs_nothing_outside(answer):
    page = answer.html()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not {"script", "link", "img", "iframe", "metadata"} & set(parser.seen)
    outside = r"(src|href)=(?!.(#|data:image/png))|url\((?!#)|@import|https?://(?!www\.w3\.org/(2000/svg|1999/xlink))"
    assert not re.search(outside, page)
    assert len(page) < 300_000
    assert page == whatif.answer(uneven_log(), quick=True, command=answer.command).html()


def test_the_answer_comes_first_then_the_picture_then_the_sorted_table(answer):
    page = answer.html()
    places = [page.index(what) for what in ('class="answer"', "<svg", "<table>")]
    assert places == sorted(places)
    names = re.findall(r"<tr><td>([^<]+)</td>", page)
    assert names[: len(answer.comparison.rows)] == [r.rule.name for r in answer.comparison.rows]


def test_letters_of_pictures_can_be_read_on_a_phone(answer):
    """A picture is as wide as a phone, some 350 points, or is moved under it."""
    page = answer.html()
    least = int(re.search(r"svg \{ min-width: (\d+)px", page)[1])
    for drawn in re.findall(r"<svg.*?</svg>", page, re.S):
        width = float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])
        sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", drawn)]
        assert min(sizes) * least / width >= 11


def test_every_picture_is_xml_with_a_title_and_names_of_its_own(answer):
    pictures = re.findall(r"<svg.*?</svg>", answer.html(), re.S)
    assert len(pictures) == 5
    ids = []
    for drawn in pictures:
        root = ElementTree.fromstring(drawn)
        assert root[0].tag.endswith("title")
        assert root[0].text
        ids += [part.get("id") for part in root.iter() if part.get("id")]
    assert len(set(ids)) == len(ids)


def test_bars_are_as_long_as_the_gains(answer, drawn):
    pages.gains(answer.comparison)
    (figure,) = drawn.values()
    bars = figure.axes[0].patches
    rows = answer.comparison.leading
    assert [bar.get_width() for bar in bars] == [row.gain.value for row in rows]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == [f"{row.gain.value:.2f}" for row in rows]


@pytest.mark.parametrize("rounds", [[40.0, 41.0, 42.0, 43.0], [np.inf] * 4])
def test_whiskers_that_are_cut_are_open(drawn, rounds):
    """Of the rule shuffled one seed is 42 times as fast: the picture ends before."""
    times = {"Ringleader": [20.0, 21.0, 22.0, 21.5], "shuffled": [30.0, 31.0, 1.0, 33.0]}
    times |= {"synchronous": rounds, "pure asynchronous": [np.inf] * 4}
    rows = [
        Learned(uneven().of(name).rule, 0.1, False, np.array(row), np.ones(2), np.ones(2))
        for name, row in times.items()
    ]
    pages.soonest(ToyResult(TASKS[0], 0.0, 1e2, tuple(rows), ("Ringleader",)))
    (figure,) = drawn.values()
    marks = {}
    for line in figure.axes[0].lines:
        marks.setdefault(line.get_ydata()[0], []).append(line.get_marker())
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[-1] == "not at the target in time"
    assert marks[1].count(">") == 1
    assert marks[0].count(">") == (rounds[0] == np.inf)  # faster than what never arrives
    assert texts[0] == ("∞" if rounds[0] == np.inf else "1.95")


def test_names_and_commands_are_escaped(answer):
    log = {"<script>alert(1)</script>": [1.0, 2.0, 1.5], "b&b": [2.0, 2.5, 2.0]}
    page = whatif.answer(log, quick=True).html()
    assert "<script>" not in page
    assert "b&amp;b" in page
    assert "&lt;x&gt;.csv" in answer.html()


def test_what_small_problems_say_is_there_as_text_as_page_and_as_figures(answer):
    page, text, advice = answer.html(), answer.text(), answer.advice
    said = page.split("What small problems say of such workers")[1].split("</section>")[0]
    read = answer.numbers()["small_problems"]
    assert len(read["hints"]) == said.count("<li>") == len(advice.hints)
    for hint, entry in zip(advice.hints, read["hints"], strict=True):
        assert entry["sentence"] == hint.sentence
        assert f"- {hint.sentence}" in text
        assert hint.call in html.unescape(said)
        assert entry["over_synchronous"]["low"] == hint.over_synchronous.low
    assert page.index("All rules on these durations") < page.index("What small problems say")
    assert text.index("Ringleader") < text.index(advice.headline)


def test_a_notebook_shows_the_page_in_a_frame(answer):
    shown = answer._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "&lt;!DOCTYPE html&gt;" in shown


def test_figures_for_programs_are_those_of_the_comparison(answer, tmp_path):
    read = storage.load_json(answer.save(tmp_path / "a.json"))
    assert read["answer"] == answer.words.headline
    assert [row["rule"] for row in read["rules"]] == [r.rule.name for r in answer.comparison.rows]
    for row in read["rules"]:
        assert row["gain"]["value"] == pytest.approx(answer.comparison.of(row["rule"]).gain.value)
        assert len(row["heard"]) == 4
    assert read["log"]["workers"] == list("abcd")
    assert read["learning"] is None


def test_many_workers_are_shown_by_ranks(drawn):
    many = traces.read_log(np.random.default_rng(0).gamma(9.0, 1.0, (60, 8)))
    pages.workers(many)
    comparison = uneven()
    pages.timeline(uneven_log(), comparison, comparison.best.rule)
    boxes, jobs = drawn.values()
    assert len(boxes.axes[0].patches) == pages.MOST_WORKERS
    names = [label.get_text() for label in jobs.axes[0].get_yticklabels()]
    order = np.argsort([np.median(row) for row in uneven_log().durations])
    assert names == ["updates", *np.array(list("abcd"))[order]]
    assert plots.png_bytes(jobs).startswith(b"\x89PNG")


def test_what_is_missing_is_one_sentence_with_its_install_line(answer, monkeypatch):
    """Numbers need no page, and no words."""
    for module in ("jinja2", "matplotlib"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    again = whatif.answer(uneven_log(), quick=True)
    assert again.comparison.best.gain == answer.comparison.best.gain
    with pytest.raises(ImportError, match=r'needs jinja2.* pip install "asyncjax\[whatif\] @ git'):
        again.text()
