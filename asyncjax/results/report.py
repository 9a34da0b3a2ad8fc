"""One HTML file that tells a whole comparison: text, tables and figures, nothing outside it.

Figures are embedded as PNG in base64, styles are inline, there is no script. The file can be
mailed, archived and opened years later; it follows the light or dark preference of the reader (on a
dark page figures are inverted and their hues turned back) and prints without its table of contents.
A figure is never shown so small that its letters cannot be read: where the page is narrower, its
narrow form is shown if it has one, and else it scrolls sideways, as wide tables do.
"""

from __future__ import annotations

import base64
import contextlib
import html
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from asyncjax.results.plots.style import png_bytes
from asyncjax.results.tables import Table, as_html
from asyncjax.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_USUAL_WIDTH = 6.0  # inches of a picture that does not say
_PAGE = Path(__file__).with_name("report.html")  # its skeleton and its styles


@dataclass(frozen=True, eq=False)
class Illustration:
    """A figure with the text below it and the text that stands for it."""

    figure: Figure | bytes  # a figure of matplotlib, or the bytes of a PNG file
    caption: str  # the text below it, also for those who cannot see the picture
    # the same for a page narrower than 720 pixels, such as panels below one another; None:
    # `figure` is shown there too
    narrow: Figure | bytes | None = None


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report: a heading, its answer, its text, then its figures, then its tables."""

    title: str  # the heading
    text: str  # paragraphs, with a blank line between them
    figures: Sequence[Illustration] = ()  # illustrations, below the text
    tables: Sequence[Table] = ()  # tables (`results.Table`), below the figures
    verdict: str = ""  # the answer in words, in larger letters right below the heading; empty: none


def render(title: str, summary: str, sections: Sequence[Section], *, verdict: str = "") -> str:
    r"""A report as one HTML document that needs nothing outside itself.

    In the summary and in the texts a blank line begins a new paragraph, and a paragraph whose every
    line begins with "- " is a list. Everything is escaped: no text is read as HTML.

    Args:
        title: The heading of the document.
        summary: The text above the table of contents.
        sections: The parts, in order.
        verdict: The answer in words, in larger letters right below the heading; empty: none.

    Returns:
        The document.

    Example:
        >>> document = render("A & B", "Short.", [Section("First", "One.\n\nTwo.")])
        >>> "<h1>A &amp; B</h1>" in document, document.count("<p>")
        (True, 3)
    """
    links = "\n".join(
        f'<li><a href="#section-{index}">{html.escape(section.title)}</a></li>'
        for index, section in enumerate(sections, start=1)
    )
    contents = f'<nav aria-label="Contents"><ol>\n{links}\n</ol></nav>\n' if sections else ""
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        head=_lines(_verdict(verdict), _paragraphs(summary)),
        contents=contents,
        sections=_lines(*(_section(index, part) for index, part in enumerate(sections, start=1))),
    )


def _lines(*parts: str) -> str:
    """Lines of HTML, the empty ones left out."""
    return "".join(f"{part}\n" for part in parts if part)


def provenance(command: str, papers: Sequence[str] = ()) -> Section:
    """The last section of a report: how it was made and whose methods it compares.

    Args:
        command: What was run, as it is typed.
        papers: A reference each.

    Returns:
        A section with the command, the versions of asyncjax, Python and the packages below it,
        the device, and the papers.

    Example:
        >>> section = provenance("python -m experiments.compare", ["Ho et al., 2013"])
        >>> section.text.splitlines()[0], "- Ho et al., 2013" in section.text
        ('Made by: python -m experiments.compare', True)
    """
    import jax

    from asyncjax import __version__

    packages = [f"asyncjax {__version__}", f"Python {platform.python_version()}"]
    for package in ("jax", "jaxlib", "numpy", "optax", "matplotlib"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            packages.append(f"{package} {metadata.version(package)}")
    device = jax.devices()[0]
    lines = [
        f"Made by: {command}",
        "",
        f"With {', '.join(packages)}; on {device.platform} ({device.device_kind}).",
    ]
    if papers:
        lines += ["", "Papers:", "", *(f"- {' '.join(paper.split())}" for paper in papers)]
    return Section("Version, command and papers", "\n".join(lines))


def write(path: str | os.PathLike[str], document: str) -> None:
    """Writes a report, whole or not at all.

    Args:
        path: The file; its folder must exist.
        document: What `render` returned.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "report.html"
        ...     write(path, render("Title", "", []))
        ...     path.read_text().splitlines()[0]
        '<!DOCTYPE html>'
    """
    write_atomically(path, document)


def _section(index: int, section: Section) -> str:
    """A section as HTML."""
    return _lines(
        f'<section id="section-{index}">',
        f"<h2>{html.escape(section.title)}</h2>",
        _verdict(section.verdict),
        _paragraphs(section.text),
        *map(_figure, section.figures),
        *map(_table, section.tables),
        "</section>",
    ).rstrip("\n")


def _verdict(words: str) -> str:
    """An answer as HTML; nothing where there is none."""
    answer = html.escape(" ".join(words.split()))
    return f'<p class="verdict">{answer}</p>' if answer else ""


def _table(table: Table) -> str:
    """A table that scrolls sideways where it is wide, its caption above, which does not."""
    note = f'<p class="note">{html.escape(table.caption)}</p>\n' if table.caption else ""
    return f"{note}{_scroll('Table', as_html(replace(table, caption='')))}"


def _scroll(name: str, inner: str) -> str:
    """What may be wider than the page, in a box that scrolls, by keys too."""
    label = f'tabindex="0" role="region" aria-label="{name}, may scroll sideways"'
    return f'<div class="scroll" {label}>\n{inner}\n</div>'


def _paragraphs(written: str) -> str:
    """Text as paragraphs and lists, escaped."""
    parts = []
    for block in re.split(r"\n\s*\n", written):
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        if lines and all(line.startswith("- ") for line in lines):
            items = "".join(f"<li>{html.escape(line[2:])}</li>" for line in lines)
            parts.append(f"<ul>{items}</ul>")
        elif lines:
            parts.append(f"<p>{html.escape(' '.join(lines))}</p>")
    return "\n".join(parts)


def _figure(illustration: Illustration) -> str:
    """A figure as HTML with its picture inside, or both of its pictures."""
    wide, *narrow = (
        picture if isinstance(picture, bytes) else png_bytes(picture)
        for picture in (illustration.figure, illustration.narrow)
        if picture is not None
    )
    caption = html.escape(illustration.caption)
    sizes, source, kind = f"--inches: {_inches(wide):.2f}", "", ""
    if narrow:
        sizes += f"; --narrow: {_inches(narrow[0]):.2f}"
        source = f'<source media="(max-width: 45rem)" srcset="{_embedded(narrow[0])}">'
        kind = ' class="both"'
    picture = f'<img alt="{caption}" style="{sizes}" src="{_embedded(wide)}">'
    inner = _scroll("Picture", f"<picture{kind}>{source}{picture}</picture>")
    return f"<figure>\n{inner}\n<figcaption>{caption}</figcaption>\n</figure>"


def _embedded(png: bytes) -> str:
    """A PNG as an address that holds it."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _inches(png: bytes, dpi: int = 150) -> float:
    """How wide a PNG is drawn; `dpi` where it does not say its own."""
    at = png.find(b"pHYs", 0, 512)
    metres = int.from_bytes(png[at + 4 : at + 8], "big") if at > 0 else 0
    points = int.from_bytes(png[16:20], "big")
    inches = points / (metres * 0.0254 if metres else dpi)
    return inches if 0.5 <= inches <= 40.0 else _USUAL_WIDTH
