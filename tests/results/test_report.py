"""The report: well formed, escaped, and in need of nothing outside itself."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from asyncjax.results.plots import Series, curves
from asyncjax.results.report import Illustration, Section, render, write
from asyncjax.results.tables import Column, Table

EVIL = "<script>alert(\"&')</script>"
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Reader(HTMLParser):
    """Collects elements and their attributes, and checks that they are nested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def document() -> str:
    figure = curves(
        [Series("a", [0.0, 1.0], [2.0, 1.0], [2.0, 1.0], [2.0, 1.0])], x_label="time", y_label="y"
    )
    table = Table((Column(EVIL),), ((EVIL,),), caption=EVIL)
    sections = [
        Section(
            EVIL,
            f"One\nline.\n\n\n- first\n- {EVIL}\n\nEnd.",
            [Illustration(figure, EVIL), Illustration(figure, "Two.", alt='a "b"')],
            [table],
        ),
        Section("Second", ""),
    ]
    return render(EVIL, f"Summary {EVIL}", sections)


@pytest.fixture(scope="module")
def reader(document: str) -> Reader:
    reader = Reader()
    reader.feed(document)
    reader.close()
    return reader


def test_it_is_well_formed(reader: Reader) -> None:
    assert reader.open == []
    tags = [tag for tag, _ in reader.seen]
    assert tags[0] == "html"
    assert tags.count("h1") == 1
    assert tags.count("h2") == 2
    assert tags.count("figure") == tags.count("img") == tags.count("figcaption") == 2
    assert tags.count("table") == 1
    assert tags.count("p") == 4  # the summary, two paragraphs, the caption of the table
    assert tags.count("li") == 4  # two entries of contents, two of the list


def test_it_needs_nothing_outside_itself(document: str, reader: Reader) -> None:
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


def test_all_text_is_escaped(document: str, reader: Reader) -> None:
    assert "<script" not in document
    # Title, heading, summary, contents, section, list, caption of figure and table, head, cell.
    assert reader.text.count(EVIL) == 10
    alts = [attributes["alt"] for tag, attributes in reader.seen if tag == "img"]
    assert alts == [EVIL, 'a "b"']


def test_contents_point_to_sections(reader: Reader) -> None:
    targets = [str(attributes["href"]) for tag, attributes in reader.seen if tag == "a"]
    ids = [f"#{attributes['id']}" for tag, attributes in reader.seen if tag == "section"]
    assert targets == ids == ["#section-1", "#section-2"]


def test_figures_are_pictures(reader: Reader) -> None:
    for tag, attributes in reader.seen:
        if tag == "img":
            code = str(attributes["src"]).removeprefix("data:image/png;base64,")
            assert base64.b64decode(code, validate=True).startswith(b"\x89PNG\r\n\x1a\n")


def test_png_bytes_are_taken_as_they_are_and_others_refused() -> None:
    png = b"\x89PNG\r\n\x1a\nrest"
    code = base64.b64encode(png).decode()
    assert code in render("t", "", [Section("s", "", [Illustration(png, "c")])])
    for wrong in (b"GIF89a", "picture.png"):
        with pytest.raises(TypeError, match="figure is of type"):
            render("t", "", [Section("s", "", [Illustration(wrong, "c")])])  # type: ignore[arg-type]


def test_an_empty_report_has_no_contents(tmp_path: Path) -> None:
    document = render("ü", "", [])
    assert "<nav" not in document
    write(tmp_path / "report.html", document)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == document
