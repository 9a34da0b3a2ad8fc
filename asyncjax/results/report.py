"""One HTML file that tells a whole comparison: text, tables and figures, nothing outside it.

Figures are embedded as PNG in base64, styles are inline, there is no script. The file can be
mailed, archived and opened years later. It follows the light or dark preference of the reader and
prints without its table of contents.
"""

import base64
import html
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Union

from asyncjax.checks import shown
from asyncjax.results.arguments import several, text
from asyncjax.results.plots.style import png_bytes
from asyncjax.results.tables import Table, as_html
from asyncjax.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --paper: #ffffff; --soft: #5f6368;
  --line: #dadce0; --shade: #f6f7f8; --link: #0b57a4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #17181a; --soft: #a3a8ad; --line: #3a3d41; --shade: #212326;
    --link: #8ab8ee; }
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
figure img { display: block; max-width: 100%; height: auto; background: #ffffff;
  border-radius: 6px; padding: 6px; }
figcaption, .note { color: var(--soft); font-size: .9rem; text-align: left; }
figcaption, .note { max-width: 44rem; margin-top: .5rem; }
.scroll { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .38rem .8rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
th { border-bottom-width: 2px; }
th.right, td.right { text-align: right; }
tbody tr:hover { background: var(--shade); }
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; color: #000000; background: #ffffff; }
  nav { display: none; }
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

    Raises:
        TypeError: If the figure is neither of matplotlib nor the bytes of a PNG, or a text is none.
    """

    figure: Union["Figure", bytes]  # of matplotlib, or the bytes of a PNG file
    caption: str
    alt: str = ""  # for those who cannot see the picture; the caption where empty

    def __post_init__(self) -> None:
        is_png = isinstance(self.figure, bytes) and self.figure.startswith(b"\x89PNG")
        if not is_png and not hasattr(self.figure, "savefig"):
            raise TypeError(
                f"figure is of type {type(self.figure).__name__}; allowed are a matplotlib figure"
                " and the bytes of a PNG file"
            )
        text("caption", self.caption)
        text("alt", self.alt)


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report: a heading, its text, then its figures, then its tables.

    Attributes:
        title: The heading.
        text: Paragraphs, with a blank line between them.
        figures: Illustrations, below the text.
        tables: Tables (`results.Table`), below the figures.
    """

    title: str
    text: str
    figures: Sequence[Illustration] = ()
    tables: Sequence[Table] = ()

    def __post_init__(self) -> None:
        text("title", self.title)
        text("text", self.text)
        several("figures", self.figures, Illustration, "illustrations (report.Illustration)")
        several("tables", self.tables, Table, "tables (results.Table)")


def render(title: str, summary: str, sections: Sequence[Section]) -> str:
    r"""A report as one HTML document that needs nothing outside itself.

    In the summary and in the texts a blank line begins a new paragraph, and a paragraph whose every
    line begins with "- " is a list. Everything is escaped: no text is read as HTML.

    Args:
        title: The heading of the document.
        summary: The text above the table of contents.
        sections: The parts, in order.

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
        _paragraphs(section.text),
        *(_figure(illustration) for illustration in section.figures),
        *(_table(table) for table in section.tables),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _table(table: Table) -> str:
    """A table that scrolls sideways where it is wide, its caption above, which does not."""
    note = f'<p class="note">{html.escape(table.caption)}</p>\n' if table.caption else ""
    return f'{note}<div class="scroll">\n{as_html(replace(table, caption=""))}\n</div>'


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
    """A figure as HTML with its picture inside."""
    picture = illustration.figure
    content = picture if isinstance(picture, bytes) else png_bytes(picture)
    code = base64.b64encode(content).decode("ascii")
    alt = html.escape(illustration.alt or illustration.caption)
    return (
        f'<figure>\n<img alt="{alt}" src="data:image/png;base64,{code}">\n'
        f"<figcaption>{html.escape(illustration.caption)}</figcaption>\n</figure>"
    )
