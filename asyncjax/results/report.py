"""One HTML file that tells a whole comparison: text, tables and figures, nothing outside it.

Figures are embedded as PNG in base64, styles are inline, there is no script. The file can be
mailed, archived and opened years later. It follows the light or dark preference of the reader and
prints without its table of contents.

On a dark page figures are inverted and their hues turned back, so that white becomes the page and
blue stays blue. A figure is never shown so small that its letters cannot be read: where the page is
narrower, its narrow form is shown if it has one, and else it scrolls sideways, as wide tables do;
a scroll bar and a shadow at the cut edge say so.
"""

from __future__ import annotations

import base64
import contextlib
import html
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from asyncjax.checks import shown
from asyncjax.results.arguments import several, text
from asyncjax.results.plots.style import png_bytes
from asyncjax.results.tables import Table, as_html
from asyncjax.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_USUAL_WIDTH = 6.0  # inches of a picture that does not say
_STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --paper: #ffffff; --soft: #5f6368;
  --line: #dadce0; --shade: #f6f7f8; --link: #0b57a4; --cut: rgb(0 0 0 / .38); }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #17181a; --soft: #a3a8ad; --line: #3a3d41; --shade: #212326;
    --link: #8ab8ee; --cut: rgb(255 255 255 / .4); }
  figure img { filter: invert(.9) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 62rem; background: var(--paper);
  color: var(--ink); font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .75rem; padding-top: .5rem;
  border-top: 1px solid var(--line); }
p, ul { max-width: 44rem; margin: 0 0 1rem; }
a { color: var(--link); }
nav { margin: 1.5rem 0; padding: .9rem 1.2rem; background: var(--shade); border-radius: 6px; }
nav ol { margin: 0; padding-left: 1.4rem; }
figure { margin: 1.75rem 0; }
figure img { display: block; height: auto; background: #ffffff; border-radius: 6px; padding: 4px;
  width: min(100%, calc(var(--inches) * 110px)); min-width: calc(var(--inches) * 50px); }
.verdict { font-size: 1.15rem; line-height: 1.5; padding-left: 1rem;
  border-left: 4px solid var(--link); }
figcaption, .note { color: var(--soft); font-size: .9rem; text-align: left; }
figcaption, .note { max-width: 44rem; margin-top: .5rem; }
.scroll { overflow-x: auto; margin: 1.5rem 0; scrollbar-width: thin;
  background: linear-gradient(to right, var(--paper) 35%, transparent) left / 3rem 100%,
    linear-gradient(to left, var(--paper) 35%, transparent) right / 3rem 100%,
    linear-gradient(to right, var(--cut), transparent) left / 1rem 100%,
    linear-gradient(to left, var(--cut), transparent) right / 1rem 100%;
  background-repeat: no-repeat; background-attachment: local, local, scroll, scroll; }
figure .scroll { margin: 0; padding-bottom: 2px; background: none; display: flex; }
figure picture { position: relative; flex: 1 0 auto; max-width: none; padding-right: 1rem;
  width: 100%; min-width: min-content; }
figure .scroll::after, figure picture::after { content: ""; width: 1rem; z-index: 1; }
figure .scroll::after { position: sticky; right: 0; flex: none; margin-left: -1rem;
  background: linear-gradient(to left, var(--cut), transparent); pointer-events: none; }
figure picture::after { position: absolute; inset: 0 0 0 auto; z-index: 2;
  background: var(--paper); }
.scroll::-webkit-scrollbar { height: 9px; }
.scroll::-webkit-scrollbar-thumb { background: var(--soft); border-radius: 5px; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .38rem .8rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
th { border-bottom-width: 2px; }
th.right, td.right { text-align: right; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
tbody tr:hover, tbody tr:hover td:first-child { background: var(--shade); }
@media (max-width: 45rem) {
  body { padding: 1.25rem .75rem 3rem; }
  figure .both img { width: min(100%, calc(var(--narrow) * 110px));
    min-width: calc(var(--narrow) * 50px); }
  td:first-child, th:first-child { max-width: 9rem; white-space: normal; padding-left: 0; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; color: #000000; background: #ffffff; }
  nav { display: none; }
  figure img { filter: none; min-width: 0; }
  .scroll { overflow: visible; background: none; }
  figure .scroll::after { display: none; }
  figure, table, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""


@dataclass(frozen=True, eq=False)
class Illustration:
    """A figure with the text below it and the text that stands for it.

    Attributes:
        figure: A figure of matplotlib, or the bytes of a PNG file.
        caption: The text below it.
        alt: For those who cannot see the picture; empty: the caption.
        narrow: The same for a page narrower than 720 pixels, such as panels below one another;
            None: `figure` is shown there too.

    Raises:
        TypeError: If a figure is neither of matplotlib nor the bytes of a PNG, or a text is none.
    """

    figure: Figure | bytes  # of matplotlib, or the bytes of a PNG file
    caption: str
    alt: str = ""  # for those who cannot see the picture; the caption where empty
    narrow: Figure | bytes | None = None  # the same for a narrow page

    def __post_init__(self) -> None:
        _check_picture("figure", self.figure)
        if self.narrow is not None:
            _check_picture("narrow", self.narrow)
        text("caption", self.caption)
        text("alt", self.alt)


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report: a heading, its answer, its text, then its figures, then its tables.

    Attributes:
        title: The heading.
        text: Paragraphs, with a blank line between them.
        figures: Illustrations, below the text.
        tables: Tables (`results.Table`), below the figures.
        verdict: The answer in words, in larger letters right below the heading; empty: none.
    """

    title: str
    text: str
    figures: Sequence[Illustration] = ()
    tables: Sequence[Table] = ()
    verdict: str = ""

    def __post_init__(self) -> None:
        text("title", self.title)
        text("text", self.text)
        text("verdict", self.verdict)
        several("figures", self.figures, Illustration, "illustrations (report.Illustration)")
        several("tables", self.tables, Table, "tables (results.Table)")


def _check_picture(name: str, picture: Any) -> None:
    """Refuses what is neither a figure nor the bytes of a PNG."""
    is_png = isinstance(picture, bytes) and picture.startswith(b"\x89PNG")
    if not is_png and not hasattr(picture, "savefig"):
        raise TypeError(
            f"{name} is of type {type(picture).__name__}; allowed are a matplotlib figure"
            " and the bytes of a PNG file"
        )


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

    Raises:
        TypeError: If an argument is of another kind.

    Example:
        >>> document = render("A & B", "Short.", [Section("First", "One.\n\nTwo.")])
        >>> "<h1>A &amp; B</h1>" in document, document.count("<p>")
        (True, 3)
    """
    head = html.escape(text("title", title))
    text("summary", summary)
    text("verdict", verdict)
    several("sections", sections, Section, "sections (report.Section)")
    contents = "\n".join(
        f'<li><a href="#section-{index}">{html.escape(section.title)}</a></li>'
        for index, section in enumerate(sections, start=1)
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{head}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        f"<header><h1>{head}</h1>",
        _verdict(verdict),
        _paragraphs(summary),
        "</header>",
        *([f'<nav aria-label="Contents"><ol>\n{contents}\n</ol></nav>'] if sections else []),
        "<main>",
        *(_section(index, section) for index, section in enumerate(sections, start=1)),
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def provenance(command: str, papers: Sequence[str] = ()) -> Section:
    """The last section of a report: how it was made and whose methods it compares.

    Args:
        command: What was run, as it is typed.
        papers: A reference each.

    Returns:
        A section with the command, the versions of asyncjax, Python and the packages below it,
        the device, and the papers.

    Raises:
        TypeError: If an argument is of another kind.

    Example:
        >>> section = provenance("python -m experiments.compare", ["Ho et al., 2013"])
        >>> section.text.splitlines()[0], "- Ho et al., 2013" in section.text
        ('Made by: python -m experiments.compare', True)
    """
    import jax

    from asyncjax import __version__

    text("command", command)
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
    listed = several("papers", papers, str, "texts")
    if listed:
        lines += ["", "Papers:", "", *(f"- {' '.join(paper.split())}" for paper in listed)]
    return Section("Version, command and papers", "\n".join(lines))


def write(path: str | os.PathLike[str], document: str) -> None:
    """Writes a report, whole or not at all.

    Args:
        path: The file; its folder must exist.
        document: What `render` returned.

    Raises:
        TypeError: If `path` is no path, or `document` no text.
        ValueError: If `path` is empty.
        FileNotFoundError: If the folder does not exist.
        IsADirectoryError: If `path` is a folder.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "report.html"
        ...     write(path, render("Title", "", []))
        ...     path.read_text().splitlines()[0]
        '<!DOCTYPE html>'
    """
    check_path(path)
    write_atomically(path, text("document", document))


def check_path(path: str | os.PathLike[str]) -> None:
    """Refuses a path to which no report can be written; call it before a long run.

    Example:
        >>> check_path("no/such/folder/report.html")
        Traceback (most recent call last):
        ...
        FileNotFoundError: path is 'no/such/folder/report.html'; its folder does not exist
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a text or a path, got {shown(path)}")
    name = os.fspath(path)
    if not name:
        raise ValueError("path must name a file, got ''")
    if not os.path.isdir(os.path.dirname(name) or "."):
        raise FileNotFoundError(f"path is {name!r}; its folder does not exist")
    if os.path.isdir(name):
        raise IsADirectoryError(f"path must name a file, got the folder {name!r}")


def _section(index: int, section: Section) -> str:
    """A section as HTML."""
    parts = [
        f'<section id="section-{index}">',
        f"<h2>{html.escape(section.title)}</h2>",
        _verdict(section.verdict),
        _paragraphs(section.text),
        *(_figure(illustration) for illustration in section.figures),
        *(_table(table) for table in section.tables),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


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
    blocks: list[list[str]] = [[]]
    for line in written.splitlines():
        if line.strip():
            blocks[-1].append(line.strip())
        elif blocks[-1]:
            blocks.append([])
    parts = []
    for lines in filter(None, blocks):
        if all(line.startswith("- ") for line in lines):
            items = "".join(f"<li>{html.escape(line[2:])}</li>" for line in lines)
            parts.append(f"<ul>{items}</ul>")
        else:
            parts.append(f"<p>{html.escape(' '.join(lines))}</p>")
    return "\n".join(parts)


def _figure(illustration: Illustration) -> str:
    """A figure as HTML with its picture inside, or both of its pictures."""
    wide = _png(illustration.figure)
    alt = html.escape(illustration.alt or illustration.caption)
    sizes, source, kind = f"--inches: {_inches(wide):.2f}", "", ""
    if illustration.narrow is not None:
        narrow = _png(illustration.narrow)
        sizes += f"; --narrow: {_inches(narrow):.2f}"
        source = f'<source media="(max-width: 45rem)" srcset="{_embedded(narrow)}">'
        kind = ' class="both"'
    picture = f'<img alt="{alt}" style="{sizes}" src="{_embedded(wide)}">'
    inner = _scroll("Picture", f"<picture{kind}>{source}{picture}</picture>")
    caption = html.escape(illustration.caption)
    return f"<figure>\n{inner}\n<figcaption>{caption}</figcaption>\n</figure>"


def _png(picture: Figure | bytes) -> bytes:
    """The bytes of a picture."""
    return picture if isinstance(picture, bytes) else png_bytes(picture)


def _embedded(png: bytes) -> str:
    """A PNG as an address that holds it."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _inches(png: bytes, dpi: int = 150) -> float:
    """How wide a PNG is drawn; `dpi` where it does not say its own.

    Example:
        >>> _inches(b"0123456789 length" + bytes(1) + (900).to_bytes(2, "big"))
        6.0
    """
    place = png.find(b"pHYs", 0, 512)
    metres = int.from_bytes(png[place + 4 : place + 8], "big") if place > 0 else 0
    points = int.from_bytes(png[16:20], "big")
    inches = points / (metres * 0.0254 if metres else dpi)
    return inches if 0.5 <= inches <= 40.0 else _USUAL_WIDTH
