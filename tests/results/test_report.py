"""The report: well formed, escaped, and in need of nothing outside itself."""

import base64
import re
from html.parser import HTMLParser

import pytest

from asyncjax.results.plots import Series, curves
from asyncjax.results.report import Illustration, Section, render, write
from asyncjax.results.tables import Column, Table

EVIL = "<script>alert(\"&')</script>"
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Reader(HTMLParser):
    """Collects elements and their attributes, and checks that they are nested."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def document():
    figure = curves(
        [Series("a", [0.0, 1.0], [2.0, 1.0], [2.0, 1.0], [2.0, 1.0])], x_label="time", y_label="y"
    )
    table = Table((Column(EVIL),), ((EVIL,),), caption=EVIL)
    sections = [
        Section(
            EVIL,
            f"One\nline.\n\n\n- first\n- {EVIL}\n\nEnd.",
            [Illustration(figure, EVIL), Illustration(figure, 'a "b"')],
            [table],
        ),
        Section("Second", ""),
    ]
    return render(EVIL, f"Summary {EVIL}", sections)


@pytest.fixture(scope="module")
def reader(document):
    reader = Reader()
    reader.feed(document)
    reader.close()
    return reader


def test_it_is_well_formed(reader):
    assert reader.open == []
    tags = [tag for tag, _ in reader.seen]
    assert tags[0] == "html"
    assert tags.count("h1") == 1
    assert tags.count("h2") == 2
    assert tags.count("figure") == tags.count("img") == tags.count("figcaption") == 2
    assert tags.count("table") == 1
    assert tags.count("p") == 4  # the summary, two paragraphs, the caption of the table
    assert tags.count("li") == 4  # two entries of contents, two of the list


def test_it_needs_nothing_outside_itself(document, reader):
    bare = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]*", "data:", document)
    assert "http" not in bare
    assert "//" not in bare
    assert "url(" not in bare
    assert "@import" not in bare
    for tag, attributes in reader.seen:
        assert tag not in {"script", "link", "iframe", "object", "embed"}
        assert (attributes.get("src") or "data:").startswith("data:")
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)


def test_all_text_is_escaped(document, reader):
    assert "<script" not in document
    # Title, heading, summary, contents, section, list, caption of figure and table, head, cell.
    assert reader.text.count(EVIL) == 10
    alts = [attributes["alt"] for tag, attributes in reader.seen if tag == "img"]
    assert alts == [EVIL, 'a "b"']


def test_contents_point_to_sections(reader):
    targets = [str(attributes["href"]) for tag, attributes in reader.seen if tag == "a"]
    ids = [f"#{attributes['id']}" for tag, attributes in reader.seen if tag == "section"]
    assert targets == ids == ["#section-1", "#section-2"]


def test_figures_are_pictures(reader):
    for tag, attributes in reader.seen:
        if tag == "img":
            code = str(attributes["src"]).removeprefix("data:image/png;base64,")
            assert base64.b64decode(code, validate=True).startswith(b"\x89PNG\r\n\x1a\n")


def test_png_bytes_are_taken_as_they_are():
    png = b"\x89PNG\r\n\x1a\nrest"
    code = base64.b64encode(png).decode()
    assert code in render("t", "", [Section("s", "", [Illustration(png, "c")])])


def test_an_empty_report_has_no_contents(tmp_path):
    document = render("ü", "", [])
    assert "<nav" not in document
    write(tmp_path / "report.html", document)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == document
