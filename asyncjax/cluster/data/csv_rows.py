"""Rows of CSV files: one way to open them, to ask for columns, and to say what is wrong where."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import NamedTuple

from asyncjax.checks import file_path, instance, shown

Path = str | PathLike[str]

MOST_ROWS = 10_000_000
LARGEST = 1e12  # of a number in a table, either way; seconds: thirty thousand years
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


class Row(NamedTuple):
    """One row of a file."""

    entries: Mapping[str, str]  # text by column
    place: str  # where it stands, for messages

    def text(self, column: str) -> str:
        """An entry."""
        return self.entries[column]

    def number(
        self,
        column: str,
        *,
        least: float = -LARGEST,
        most: float = LARGEST,
        positive: bool = False,
        whole: bool = False,
    ) -> float:
        """A finite number of an allowed kind and size.

        Example:
            >>> Row({"num_gpus": "1.5"}, "in line 2").number("num_gpus", whole=True)
            Traceback (most recent call last):
            ...
            ValueError: num_gpus must be a whole number, got '1.5' in line 2
        """
        text = self.entries[column]
        number = float(text) if _NUMBER.fullmatch(text) else math.nan
        kind = None
        if not math.isfinite(number) or (whole and number != math.floor(number)):
            kind = "a whole number" if whole else "a finite number"
        elif positive and not number > 0:
            kind = "positive"
        elif number < least:
            kind = f"at least {least:g}"
        elif number > most:
            kind = f"at most {most:g}"
        if kind:
            raise ValueError(f"{column} must be {kind}, got {shown(text)} {self.place}")
        return number


def read_rows(path: Path, columns: Mapping[str, str], unique: str | None = None) -> Iterator[Row]:
    r"""Reads a UTF-8 file with a header; `columns`, by the argument that names each, must be in it.

    Where the file has a column `unique`, no two rows may have the same entry there.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "some.csv")
        ...     _ = path.write_text("a,b\n1,2\n")
        ...     [row.number("b") for row in read_rows(path, {"submit": "a"})]
        [2.0]
    """
    for argument, column in columns.items():
        instance(argument, column, str, "the name of a column")
    table = _entries(path)
    _, header = next(table, (0, []))
    for argument, column in columns.items():
        if header.count(column) != 1:
            kind = "name a column" if column not in header else "name one column"
            raise ValueError(
                f"{argument} must {kind} of {path}, got {column!r}; found {shown(header)}"
            )
    seen: dict[str, int] = {}
    empty = True
    for number, row in table:
        if not row:
            continue
        empty = False
        place = f"in line {number} of {path}"
        _check_width(row, len(header), place)
        entries = dict(zip(header, row, strict=True))
        if unique in entries:
            check_new(seen, entries[unique], number, unique, place)
        yield Row(entries, place)
    if empty:
        raise ValueError(f"path must be a table with rows, got none below the header of {path}")


def read_headless_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Reads a UTF-8 file of just these columns; a first line that names them is passed over."""
    for number, row in _entries(path):
        place = f"in line {number} of {path}"
        if not row or (number == 1 and row == list(columns)):
            continue
        _check_width(row, len(columns), place)
        yield Row(dict(zip(columns, row, strict=True)), place)


def check_new(seen: dict[str, int], entry: str, line: int, column: str, place: str) -> None:
    """Refuses an entry that was there before, and notes its line.

    Example:
        >>> check_new({"a": 2}, "a", 5, "name", "in line 5")
        Traceback (most recent call last):
        ...
        ValueError: name must be another in every row, got 'a' in line 5 and in line 2 before
    """
    before = seen.setdefault(entry, line)
    if before != line:
        raise ValueError(
            f"{column} must be another in every row, got {shown(entry)} {place} and in line"
            f" {before} before"
        )


def _check_width(row: Sequence[str], width: int, place: str) -> None:
    """Refuses rows of another length."""
    if len(row) != width:
        raise ValueError(f"path must have {width} columns, got {len(row)} {place}")


def _entries(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file with the lines they end in; refuses what is no table of text."""
    file = file_path("path", path)
    if file.exists() and not file.is_file():
        raise ValueError(f"path must be a regular file, got {str(file)!r}")
    with open(file, encoding="utf-8-sig", newline="") as text:
        table = csv.reader(text, strict=True)
        for count in range(MOST_ROWS + 2):
            try:
                row = next(table)
            except StopIteration:
                return
            except csv.Error as error:
                raise ValueError(
                    "path must be a CSV table of closed quotes and fields of at most"
                    f" {csv.field_size_limit()} characters, got {str(error).rstrip('.')} in line"
                    f" {table.line_num} of {path}"
                ) from error
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"path must be UTF-8 text, got the byte 0x{error.object[error.start]:02x} that"
                    f" is none after line {table.line_num} of {path}"
                ) from error
            if count <= MOST_ROWS:
                yield table.line_num, row
    raise ValueError(f"path must be a table of at most {MOST_ROWS} rows, got more in {path}")
