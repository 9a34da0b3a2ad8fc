"""Text as a table: lines become rows of fields, and each row knows its line.

The delimiter is found (comma, semicolon, tab, bar, or blanks), empty lines and lines that begin
with `#` are passed over, and a file may be packed by gzip.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asyncjax.checks import shown
from asyncjax.traces.log_reader.headers import read_heading
from asyncjax.traces.log_reader.values import commas_read, is_empty, is_value

MOST_UNPACKED = 200  # bytes that a byte of a packed file may stand for, unless more are allowed
_BYTES = 2**20  # unpacked at once
_DELIMITERS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas", " ": "blanks"}
_BINARY = {
    b"PK": "a zip archive or a spreadsheet",
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"%PDF": "a PDF",
}


@dataclass
class Table:
    """Columns of fields, as they were written, without blanks around them."""

    names: list[str] | None  # of the columns; None: there was no header
    columns: list[list[str]]  # fields of each column, one a row
    lines: list[int]  # of each row, from 1
    source: str  # what is read, in words
    line: str = "line"  # what a line is called
    delimiter: str = ","
    drops: bool = False  # whether rows that cannot be read are left out
    notes: list[str] = field(default_factory=list)  # what was supposed or passed over

    def where(self, row: int) -> str:
        """Where a row is, for a message."""
        of = f" of {self.source}" if self.line == "line" else ""
        return f"in {self.line} {self.lines[row]}{of}"

    def title(self, place: int) -> str:
        """What a column is called in a message."""
        return f"column {self.names[place]!r}" if self.names else f"column {place + 1}"

    def entry(self, place: int, row: int) -> str:
        """What stands in a column of a row, for a message."""
        text = self.columns[place][row]
        return repr(text if len(text) <= 60 else f"{text[:56]} ...") if text else "nothing"

    def heading(self, place: int) -> tuple[str, float | None]:
        """What the name of a column says: its words, and the seconds that a unit is."""
        return read_heading(self.names[place]) if self.names else ("", None)

    def texts(self, place: int) -> list[str]:
        """A column to be read as numbers; refuses a comma that may be read two ways."""
        texts = self.columns[place]
        if not any("," in text for text in texts):
            return texts
        texts, row = commas_read(texts, decimal=self.delimiter == ";")
        if row is not None:
            written = texts[row]
            raise ValueError(
                f"{self.title(place)} must say what a comma in it is, got {self.entry(place, row)}"
                f" {self.where(row)}: write {written.replace(',', '')} or"
                f" {written.replace(',', '.')}, which it may be"
            )
        return texts

    def is_numeric(self, place: int, *, empty: bool = False) -> bool:
        """Whether the first fields of a column are numbers; with `empty`, or say that none is."""
        texts = self.columns[place][:50]
        return all(is_value(text) or (empty and is_empty(text)) for text in texts)


def read_file(file: Path, max_unpacked: int | None) -> Table:
    """Reads a table from a file, packed or not, of at most `max_unpacked` bytes once unpacked."""
    text, source = _decoded(file, max_unpacked), str(file)
    if file.name.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json")):
        return _of_json(text, source)
    delimiter = _delimiter(text)
    if delimiter == " ":
        text = text.replace("\t", " ")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    passed = 0
    try:
        for row in reader:
            if any(row) and row[0].startswith("#"):
                passed += 1
            elif any(row):
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(
            f"path must be a table of text, got {error} after line {reader.line_num} of {source}"
        ) from error
    if not rows:
        raise ValueError(f"path must be a table with rows, got none in {source}")
    table = _of_lines(rows, lines, source)
    table.delimiter = delimiter
    if delimiter != ",":
        table.notes.append(f"fields are separated by {_DELIMITERS[delimiter]}")
    if passed:
        table.notes.append(f"lines that begin with # were passed over, {passed} in all")
    return table


def _delimiter(text: str) -> str:
    """What separates the fields: whatever is most often in the first line that is no comment.

    Example:
        >>> _delimiter("worker;step;seconds"), _delimiter("0 1 0.5"), _delimiter("1;0,5")
        (';', ' ', ';')
    """
    for line in io.StringIO(text):
        if line.strip() and not line.lstrip().startswith("#"):
            best = max("\t;|,", key=line.count)
            return best if best in line else " " if len(line.split()) > 1 else ","
    return ","


def _of_lines(rows: list[list[str]], lines: list[int], source: str) -> Table:
    """The table of rows of which the first may be a header; each gets its length."""
    names = list(map(str.strip, rows[0]))
    while len(names) > 1 and not names[-1]:  # a delimiter at the end of the line
        names.pop()
    width = len(names)
    is_headed = _is_header(names, list(map(str.strip, rows[1])) if len(rows) > 1 else [])
    if is_headed:
        for name in filter(None, names):
            if names.count(name) > 1:
                raise ValueError(
                    f"path must name each of its columns once, got {name!r} twice in line"
                    f" {lines[0]} of {source}"
                )
        del rows[0], lines[0]
        if not rows:
            raise ValueError(
                f"path must be a table with rows, got none below the header in {source}"
            )
    for place, row in enumerate(rows):
        if len(row) > width and any(map(str.strip, row[width:])):
            than = "the header" if is_headed else "the first"
            raise ValueError(
                f"path must be a table whose rows are no longer than {than}, {width} fields, got"
                f" {len(row)} fields in line {lines[place]} of {source}"
            )
        if len(row) != width:
            rows[place] = (row + [""] * (width - len(row)))[:width]
    return table_of(names if is_headed else None, rows, lines, source)


def table_of(names: list[str] | None, rows: list[Any], lines: list[int], *told: str) -> Table:
    """A table of rows of one length; `told` is its source, and what a line is called."""
    columns = [list(map(str.strip, column)) for column in zip(*rows, strict=True)]
    return Table(names, columns, lines, *told)


def _is_header(first: list[str], second: list[str]) -> bool:
    """Whether the first row names columns: there is a name above a number, or only names.

    Numbers that count the workers of a wide table are names, too.

    Example:
        >>> _is_header(["worker", "step"], []), _is_header(["w1", "0.5"], ["w2", "0.7"])
        (True, False)
        >>> _is_header(["w1", "7"], ["0.5", "1"]), _is_header(["", "0", "1"], ["0", "5", "6"])
        (True, True)
    """
    if not all(map(is_value, filter(None, first[1:] or first))):
        return True
    pairs = zip(first, second, strict=False)
    if any(name and not is_value(name) and is_value(below) for name, below in pairs):
        return True
    counts = first[1:] if not first[0] else first
    numbers = [str(number) for number in range(len(counts) + 1)]
    if len(counts) < 2 or counts not in (numbers[:-1], numbers[1:]):
        return False
    return not first[0] or len(counts) > 3


def _decoded(file: Path, max_unpacked: int | None) -> str:
    """The text of a file, UTF-8, or what its first bytes say."""
    content = file.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = _unpacked(content, file, max_unpacked)
    for magic, what in _BINARY.items():
        if content.startswith(magic):
            raise ValueError(
                f"path must be a table of text, such as CSV, got {what}, {file}: write it as CSV"
            )
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start : error.start + 1]
        raise ValueError(
            f"path must be a table of text in UTF-8, got the byte {byte!r} in line {line} of {file}"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"path must be a table of text, got a zero byte in line {line} of {file}")
    return text


def _unpacked(content: bytes, file: Path, max_unpacked: int | None) -> bytes:
    """What gzip packed; stops as soon as it is too much."""
    most = MOST_UNPACKED * len(content) if max_unpacked is None else max_unpacked
    unpacked = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            while len(unpacked) <= most and (piece := stream.read(_BYTES)):
                unpacked += piece
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"path must be a whole file, got {error} in {file}") from error
    if len(unpacked) > most:
        said = f", {MOST_UNPACKED} times its packed size" if max_unpacked is None else ""
        raise ValueError(
            f"path must unpack to at most {most} bytes{said}, got more in {file}: max_unpacked"
            " allows more"
        )
    return bytes(unpacked)


def _of_json(text: str, source: str) -> Table:
    """A table of lines that are each a JSON object, or of one list of objects."""
    number = 0
    try:
        if text.lstrip().startswith("["):
            return of_objects(enumerate(json.loads(text), 1), source, "entry")
        entries = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                entries.append((number, json.loads(line)))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"path must have a JSON object a line, got {error.msg} in line"
            f" {number or error.lineno} of {source}"
        ) from error
    return of_objects(entries, source, "line")


def of_objects(entries: Iterable[tuple[int, object]], source: str, line: str) -> Table:
    """A table of rows that are mappings by name, each with its number."""
    rows: list[dict[str, str]] = []
    lines: list[int] = []
    for number, entry in entries:
        if not isinstance(entry, Mapping):
            raise ValueError(
                f"path must have an object by name a row, got {shown(entry)} in {line} {number} of"
                f" {source}"
            )
        rows.append({str(name): text_of(value) for name, value in entry.items()})
        lines.append(number)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise ValueError(f"path must be a table with rows, got none in {source}")
    filled = [[row.get(name, "") for name in names] for row in rows]
    return table_of(names, filled, lines, source, line)


def text_of(value: object) -> str:
    """A value as it would stand in a file."""
    return "" if value is None else str(value)
