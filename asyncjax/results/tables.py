"""Tables of results as plain text, Markdown and HTML, from one set of rows.

A column says how its cells are written; the three renderings differ only in layout and in what they
escape. Numbers are written with a fixed count of significant digits and thousands separators.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncjax.checks import whole
from asyncjax.results.metrics import Spread
from asyncjax.results.run import Run

NOT_REACHED = "not reached"


def format_number(value: Any, digits: int = 3) -> str:
    """A number for people: significant digits, thousands separators, words for what is no number.

    Integers are written out exactly. Sizes from 0.0001 up to 1e9 are written plainly, all others
    with an exponent.

    Example:
        >>> format_number(12345.6), format_number(7), format_number(2.5e-7), format_number(np.inf)
        ('12,300', '7', '2.50e-07', 'not reached')
    """
    digits = whole("digits", digits)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{int(value):,}"
    number = value if isinstance(value, float) else float(value)  # NumPy rounds in its own way
    if np.isnan(number):
        return "n/a"
    if np.isinf(number):
        return NOT_REACHED if number > 0 else "-inf"
    if number == 0.0:
        return "0"
    scientific = f"{number:.{digits - 1}e}"
    size = int(scientific.partition("e")[2])
    if not -4 <= size < 9:
        return scientific
    decimals = digits - 1 - size
    return f"{round(number, decimals):,.{max(decimals, 0)}f}"


def format_spread(spread: Spread, digits: int = 3) -> str:
    """A median with its quartiles, "median (low–high)".

    Example:
        >>> format_spread(Spread(median=1250.0, low=1100.0, high=1500.0, reached=1.0))
        '1,250 (1,100–1,500)'
    """
    if np.isposinf(spread.median):
        share = round(100 * float(spread.reached))
        return f"{NOT_REACHED} ({share}% did)" if spread.reached > 0 else NOT_REACHED
    low, high = format_number(spread.low, digits), format_number(spread.high, digits)
    joint = " to " if "-" in low + high else "–"
    return f"{format_number(spread.median, digits)} ({low}{joint}{high})"


def format_cell(value: Any) -> str:
    """A cell by its type: text as it is, yes or no, a number, a `Spread`; nothing for None.

    Of a `Run` its last loss, with the word that it diverged where it did; of several, how many.
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Spread):
        return format_spread(value)
    if isinstance(value, Run):
        return _run(value)
    value = np.asarray(value)[()] if hasattr(value, "dtype") else value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return format_number(value)


def _run(run: Run) -> str:
    """What a row says of a run, or of several."""
    diverged = np.asarray(run.diverged)
    if diverged.ndim:
        return f"{int(diverged.sum()):,} of {diverged.size:,} diverged"
    losses = np.asarray(run.records.loss)
    if not losses.size:
        return "no records"
    last = format_number(float(losses[-1]))
    return f"diverged ({last})" if diverged else last


@dataclass(frozen=True)
class Column:
    """One column: its heading, the unit of its cells and how a cell is written."""

    heading: str  # what stands above it
    unit: str = ""  # unit of its cells, shown in brackets; empty: none
    format: Callable[[Any], str] = format_cell  # `value -> text` of a cell; default `format_cell`
    right: bool = True  # numbers to the right, names to the left

    @property
    def label(self) -> str:
        """Heading and unit, as written above the column."""
        return f"{self.heading} [{self.unit}]" if self.unit else self.heading


@dataclass(frozen=True)
class Table:
    """Columns and rows; a row has one value a column.

    Example:
        >>> columns = (Column("method", right=False), Column("time", "s"))
        >>> print(as_text(Table(columns, (("sgd", 1234.5), ("late", float("inf"))))))
        method     time [s]
        ------  -----------
        sgd           1,230
        late    not reached
    """

    columns: Sequence[Column]  # the columns, from left to right
    rows: Sequence[Sequence[Any]]  # one value a column each
    caption: str = ""  # text above the table; empty: none

    def __post_init__(self) -> None:
        if not self.columns:
            raise ValueError("columns is empty; a table needs at least one column")
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"rows[{index}] has {len(row)} values; it must have one for each of the "
                    f"{len(self.columns)} columns"
                )

    def cells(self) -> list[list[str]]:
        """The text of every cell, row by row, not escaped."""
        return [
            [column.format(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]


def as_text(table: Table) -> str:
    """A table in aligned columns for a terminal.

    Args:
        table: The table.

    Returns:
        Lines joined by newlines, the caption above where there is one.

    Example:
        >>> print(as_text(Table((Column("n"),), ((1,), (1000,)))))
            n
        -----
            1
        1,000
    """
    cells = [[_one_line(cell) for cell in row] for row in table.cells()]
    labels = [_one_line(column.label) for column in table.columns]
    widths = [max(map(len, column)) for column in zip(labels, *cells, strict=True)]
    sides = [">" if column.right else "<" for column in table.columns]
    lines = [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        )
        for row in [labels, ["-" * width for width in widths], *cells]
    ]
    return "\n".join([*filter(None, [table.caption]), *(line.rstrip() for line in lines)])


def as_markdown(table: Table) -> str:
    r"""A table in the Markdown of GitHub, cells escaped.

    Args:
        table: The table.

    Returns:
        Lines joined by newlines, the caption as a paragraph above where there is one.

    Example:
        >>> print(as_markdown(Table((Column("method", right=False), Column("n")), (("a|b", 1),))))
        | method | n |
        | :--- | ---: |
        | a\|b | 1 |
    """
    labels = [_markdown(column.label) for column in table.columns]
    rules = ["---:" if column.right else ":---" for column in table.columns]
    rows = [[_markdown(cell) for cell in row] for row in table.cells()]
    lines = ["| " + " | ".join(row) + " |" for row in [labels, rules, *rows]]
    return "\n".join([*([_markdown(table.caption), ""] if table.caption else []), *lines])


def as_html(table: Table) -> str:
    """A table as an HTML element, cells escaped; cells of right columns have the class "right".

    Args:
        table: The table.

    Returns:
        The element `<table>`.

    Example:
        >>> print(as_html(Table((Column("n"),), (("<1",),))))
        <table>
        <thead><tr><th scope="col" class="right">n</th></tr></thead>
        <tbody>
        <tr><td class="right">&lt;1</td></tr>
        </tbody>
        </table>
    """
    right = ' class="right"'

    def row(tag: str, cells: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{right if column.right else ''}>{html.escape(cell)}</{tag[:2]}>"
            for column, cell in zip(table.columns, cells, strict=True)
        )

    head = row('th scope="col"', [column.label for column in table.columns])
    caption = [f"<caption>{html.escape(table.caption)}</caption>"] if table.caption else []
    lines = ["<table>", *caption, f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    body = [f"<tr>{row('td', cells)}</tr>" for cells in table.cells()]
    return "\n".join([*lines, *body, "</tbody>", "</table>"])


def _one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(text.split("\n"))


def _markdown(text: str) -> str:
    """Text with what Markdown would read as markup escaped."""
    for mark in ("\\", "|", "*", "`", "<"):
        text = text.replace(mark, "\\" + mark)
    return _one_line(text)
