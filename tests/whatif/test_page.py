"""The page: whole, self-contained, light and dark; the figures as JSON."""

import html
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from asyncjax import storage, traces, whatif
from asyncjax.whatif import page as pages
from tests.whatif.shared import uneven, uneven_log

pytestmark = pytest.mark.slow
EMPTY = {"meta", "br", "line", "rect", "circle", "path"}


@pytest.fixture(scope="module")
def answer():
    return whatif.answer(uneven_log(), quick=True, command="python -m asyncjax.whatif <x>.csv")


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in EMPTY:
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
    assert not {"script", "link", "img", "iframe"} & set(parser.seen)
    assert not re.search(r"(src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)
    assert len(page) < 300_000


def test_the_answer_comes_first_then_the_picture_then_the_sorted_table(answer):
    page = answer.html()
    places = [page.index(what) for what in ('class="answer"', "<svg", "<table>")]
    assert places == sorted(places)
    names = re.findall(r"<tr><td>([^<]+)</td>", page)
    assert names[: len(answer.comparison.rows)] == [r.rule.name for r in answer.comparison.rows]


def test_colours_are_variables_for_light_and_for_dark(answer):
    page = answer.html()
    light, dark = page.split("@media (prefers-color-scheme: dark)")
    names = set(re.findall(r"var\((--[a-z]+)\)", page))
    for name in names:
        assert f"{name}:" in light, name
        assert f"{name}:" in dark.split("}")[0], name
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, re.S))
    assert not re.search(r"#[0-9a-fA-F]{3,6}|rgb\(|fill=|stroke=", drawn)


def test_letters_of_pictures_can_be_read_on_a_phone(answer):
    """A picture of 480 units fills about 350 points of a phone: 16 units are 11.7 points."""
    style = answer.html().split("@media (max-width: 34rem)")[1]
    sizes = [int(size) for size in re.findall(r"svg [^{]*\{ font-size: (\d+)px", style)]
    assert min(sizes) * 350 / drawing.WIDTH >= 11


def test_every_picture_is_xml_and_within_its_box(answer):
    for drawn in re.findall(r"<svg.*?</svg>", answer.html(), re.S):
        root = ElementTree.fromstring(drawn)
        assert root[0].tag.endswith("title")
        assert root[0].text
        _, _, width, height = map(float, root.get("viewBox").split())
        for part in root:
            if part.tag.endswith("rect"):
                x, y, w, h = (float(part.get(name)) for name in ("x", "y", "width", "height"))
                assert x >= 0
                assert y >= 0
                assert x + w <= width + 1
                assert y + h <= height + 1


def test_bars_are_as_long_as_the_gains(answer):
    root = ElementTree.fromstring(figures.gains(answer.comparison))
    bars = [p for p in root if p.tag.endswith("rect") and float(p.get("height")) > 12.5]
    rows = figures.leading(answer.comparison)
    ratios = [float(bar.get("width")) / row.gain.value for bar, row in zip(bars, rows, strict=True)]
    np.testing.assert_allclose(ratios, ratios[0], rtol=0.01)


def test_names_and_commands_are_escaped(answer):
    log = {"<script>alert(1)</script>": [1.0, 2.0, 1.5], "b&b": [2.0, 2.5, 2.0]}
    page = whatif.answer(log, quick=True).html()
    assert "<script>" not in page
    assert "b&amp;b" in page
    assert "&lt;x&gt;.csv" in answer.html()


def test_the_end_says_how_it_is_made_again(answer):
    page = answer.html()
    assert "python -m asyncjax.whatif" in page.split("Make it again")[1]
    assert "asyncjax 0." in page.split("Make it again")[1]


def test_what_small_problems_say_is_there_as_text_as_page_and_as_figures(answer):
    page, text, advice = answer.html(), answer.text(), answer.advice
    said = page.split("What small problems say of such workers")[1].split("</section>")[0]
    read = answer.numbers()["small_problems"]
    assert len(read["hints"]) == said.count("<li>") == len(advice.hints)
    for hint, kept in zip(advice.hints, read["hints"], strict=True):
        assert kept["sentence"] == hint.sentence
        assert f"- {hint.sentence}" in text
        assert hint.call in html.unescape(said)
        assert kept["over_synchronous"]["low"] == hint.over_synchronous.low
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


def test_ticks_are_round_and_few():
    for largest in (0.3, 0.96, 1.0, 1.9, 2.7, 9.1, 14.0, 99.0, 1234.0):
        found = drawing.ticks(largest)
        assert 2 <= len(found) <= 6
        assert found[0] == 0.0
        assert found[-1] <= largest * (1 + 1e-9)
        assert found[-1] > largest / 2


def test_many_workers_are_shown_by_ranks():
    assert uneven().workers == ("a", "b", "c", "d")
    many = np.random.default_rng(0).gamma(9.0, 1.0, (60, 8))
    drawn = figures.workers(traces.read_log(many))
    assert drawn.count("<circle") == figures.MOST_WORKERS
