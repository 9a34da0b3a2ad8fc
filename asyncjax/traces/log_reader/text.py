"""Text as a table: lines become rows of fields, and each row knows its line.

The delimiter is found (comma, semicolon, tab, bar, or blanks), empty lines and lines that begin
with `#` are passed over, and a file may be packed by gzip.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asyncjax.checks import shown
from asyncjax.traces.log_reader.values import Fields, commas_read, is_value

DELIMITERS = ("\t", ";", "|", ",")
MOST_UNPACKED = 200  # bytes that a byte of a packed file may stand for, unless more are allowed
_PIECE = 300  # rows read at once; below what makes Python look for garbage
_BYTES = 2**20  # unpacked at once
_BINARY = {
    b"PK": "a zip archive or a spreadsheet",
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"%PDF": "a PDF",
}


class _Shape(NamedTuple):
    """What the first row of a table says."""

    names: list[str] | None
    width: int


@dataclass(frozen=True)
class Table:
    """Columns of fields, as they were written, without blanks around them.

    Attributes:
        names: Names of the columns; None: there was no header.
        columns: Fields of each column, one a row.
        lines: The line of each row, from 1, int64[K].
        source: What is read, in words.
        notes: What was supposed or passed over, a sentence each.
        line: What a line is called.
        delimiter: What separates fields.
    """

    names: list[str] | None
    columns: list[list[str]]
    lines: np.ndarray
    source: str
    notes: list[str] = field(default_factory=list)
    line: str = "line"
    delimiter: str = ","

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.lines)

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

    def fields(self, place: int, seconds: float | None = None) -> Fields:
        """A column, to be read as numbers; `seconds` is what a unit of it is, if its name says so.

        Raises:
            ValueError: A comma in it may be a decimal one or separate thousands.
        """
        texts = self.columns[place]
        if any("," in text for text in texts):
            texts, row = commas_read(texts, decimal=self.delimiter == ";")
            if row is not None:
                written = texts[row]
                raise ValueError(
                    f"{self.title(place)} must say what a comma in it is, got"
                    f" {self.entry(place, row)} {self.where(row)}: write"
                    f" {written.replace(',', '')} or {written.replace(',', '.')}, which it may be"
                )
        return Fields(self.names[place] if self.names else f"{place + 1}", texts, seconds)


def read_file(file: Path, max_unpacked: int | None = None) -> Table:
    """Reads a table from a file, packed or not, of at most `max_unpacked` bytes once unpacked.

    Raises:
        ValueError: It is empty, damaged, not of text, or no table; says in which line.
        OSError: It cannot be read.
    """
    text = _decoded(file, max_unpacked)
    source = str(file)
    if file.name.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json")):
        return _of_json_lines(text, source)
    opening = next((line for line in io.StringIO(text) if _is_content(line)), None)
    if opening is None:
        raise ValueError(f"path must be a table with rows, got none in {source}")
    delimiter = _delimiter(opening)
    notes = [] if delimiter == "," else [f"fields are separated by {_NAMES[delimiter]}"]
    return _split(text, delimiter, source, notes)


_NAMES = {"\t": "tabs", ";": "semicolons", "|": "bars", " ": "blanks", ",": "commas"}


def table_of(rows: list[list[str]], source: str, line: str) -> Table:
    """A table without a header, of rows of one length."""
    columns = [list(map(str.strip, column)) for column in zip(*rows, strict=True)]
    return Table(None, columns, np.arange(1, len(rows) + 1), source, line=line)


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
    if any(one and not is_value(one) and is_value(two) for one, two in pairs):
        return True
    counts = first[1:] if not first[0] else first
    numbers = [str(number) for number in range(len(counts) + 1)]
    if len(counts) < 2 or counts not in (numbers[:-1], numbers[1:]):
        return False
    return not first[0] or len(counts) > 3


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _delimiter(line: str) -> str:
    """What separates the fields: whatever is most often in the first line.

    Example:
        >>> _delimiter("worker;step;seconds"), _delimiter("0 1 0.5"), _delimiter("1;0,5")
        (';', ' ', ';')
    """
    counts = {delimiter: line.count(delimiter) for delimiter in DELIMITERS}
    best = max(counts, key=lambda delimiter: counts[delimiter])
    if counts[best]:
        return best
    return " " if len(line.split()) > 1 else ","


def _split(text: str, delimiter: str, source: str, notes: list[str]) -> Table:
    """The table of a text: piece by piece, since lists of many rows are slow to keep."""
    if delimiter == " ":
        text = text.replace("\t", " ")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    shape: _Shape | None = None
    columns: list[list[str]] = []
    lines: list[np.ndarray] = []
    passed = 0
    line = 0
    try:
        while piece := list(itertools.islice(reader, _PIECE)):
            ends = _ends(piece, line, reader.line_num)
            line = reader.line_num
            if shape is None or set(map(len, piece)) != {shape.width} or _has_mark(piece):
                kept = [(row, end) for row, end in zip(piece, ends, strict=True) if any(row)]
                content = [(row, end) for row, end in kept if not row[0].startswith("#")]
                passed += len(kept) - len(content)
                if content and shape is None:
                    shape, content = _opened(content, source)
                    columns = [[] for _ in range(shape.width)]
                if shape is None or not content:
                    continue
                piece = [_fitting(row, int(end), shape, source) for row, end in content]
                ends = np.array([end for _, end in content])
            for column, fields in zip(columns, zip(*piece, strict=True), strict=True):
                column.extend(map(str.strip, fields))
            lines.append(ends)
    except csv.Error as error:
        raise ValueError(
            f"path must be a table of text, got {error} after line {reader.line_num} of {source}"
        ) from error
    if passed:
        notes.append(f"lines that begin with # were passed over, {passed} in all")
    if shape is None or not lines:
        below = " below the header" if shape is not None else ""
        raise ValueError(f"path must be a table with rows, got none{below} in {source}")
    return Table(shape.names, columns, np.concatenate(lines), source, notes, delimiter=delimiter)


def _opened(
    content: list[tuple[list[str], int]], source: str
) -> tuple[_Shape, list[tuple[list[str], int]]]:
    """The shape that the first row gives a table, and the rows below it."""
    first, line = content[0]
    names = list(map(str.strip, first))
    while len(names) > 1 and not names[-1]:  # a delimiter at the end of the line
        names.pop()
    below = list(map(str.strip, content[1][0])) if len(content) > 1 else []
    if not _is_header(names, below):
        return _Shape(None, len(names)), content
    for name in names:
        if name and names.count(name) > 1:
            raise ValueError(
                f"path must name each of its columns once, got {name!r} twice in line {line} of"
                f" {source}"
            )
    return _Shape(names, len(names)), content[1:]


def _fitting(row: list[str], line: int, shape: _Shape, source: str) -> list[str]:
    """A row as long as the header: filled up with empty fields; refused if it is longer."""
    width = shape.width
    if len(row) > width and any(entry.strip() for entry in row[width:]):
        than = "the header" if shape.names else "the first"
        raise ValueError(
            f"path must be a table whose rows are no longer than {than}, {width} fields, got"
            f" {len(row)} fields in line {line} of {source}"
        )
    return (row + [""] * (width - len(row)))[:width]


def _ends(piece: list[list[str]], before: int, after: int) -> np.ndarray:
    """The line that each row of a piece ends in; quoted fields may go over several."""
    if after - before == len(piece):
        return np.arange(before + 1, after + 1)
    return before + np.cumsum([1 + sum(entry.count("\n") for entry in row) for row in piece])


def _has_mark(piece: list[list[str]]) -> bool:
    """Whether a row may be a comment, or empty."""
    first = [row[0] for row in piece]
    return "#" in "".join(first) or "" in first


def _unpacked(content: bytes, file: Path, max_unpacked: int | None) -> bytes:
    """What gzip packed; stops as soon as it is too much."""
    most = MOST_UNPACKED * len(content) if max_unpacked is None else max_unpacked
    unpacked = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            while piece := stream.read(_BYTES):
                unpacked += piece
                if len(unpacked) > most:
                    break
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"path must be a whole file, got {error} in {file}") from error
    if len(unpacked) > most:
        said = f", {MOST_UNPACKED} times its packed size" if max_unpacked is None else ""
        raise ValueError(
            f"path must unpack to at most {most} bytes{said}, got more in {file}: max_unpacked"
            " allows more"
        )
    return bytes(unpacked)


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
        found = content[error.start : error.start + 1]
        raise ValueError(
            f"path must be a table of text in UTF-8, got the byte {found!r} in line {line} of"
            f" {file}"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"path must be a table of text, got a zero byte in line {line} of {file}")
    return text


def _of_json_lines(text: str, source: str) -> Table:
    """A table of lines that are each a JSON object, or of one list of objects."""
    lines = text.splitlines()
    found: list[object] = []
    numbers: list[int] = []
    line = "line"
    try:
        if text.lstrip().startswith("["):
            found, line = json.loads(text), "entry"
            numbers = list(range(1, len(found) + 1))
        else:
            for number, entry in enumerate(lines, 1):
                if entry.strip():
                    numbers.append(number)
                    found.append(json.loads(entry))
    except json.JSONDecodeError as error:
        at = error.lineno if line == "entry" or not numbers else numbers[-1]
        raise ValueError(
            f"path must have a JSON object a line, got {error.msg} in line {at} of {source}"
        ) from error
    return of_objects(found, numbers, source, line)


def of_objects(found: Iterable[object], numbers: list[int], source: str, line: str) -> Table:
    """A table of rows that are mappings by name."""
    columns: dict[str, list[str]] = {}
    count = 0
    for number, entry in zip(numbers, found, strict=True):
        if not isinstance(entry, Mapping):
            raise ValueError(
                f"path must have an object by name a row, got {shown(entry)} in {line} {number} of"
                f" {source}"
            )
        for name, value in entry.items():
            column = columns.setdefault(str(name), [])
            column.extend([""] * (count - len(column)))
            column.append(text_of(value).strip())
        count += 1
    if not columns:
        raise ValueError(f"path must be a table with rows, got none in {source}")
    for column in columns.values():
        column.extend([""] * (count - len(column)))
    return Table(list(columns), list(columns.values()), np.array(numbers), source, line=line)


def text_of(value: object) -> str:
    """A value as it would stand in a file."""
    return "" if value is None else str(value)
