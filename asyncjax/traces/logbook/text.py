"""Text as a table: lines become rows of fields, and each row knows its line.

The delimiter is found (comma, semicolon, tab, bar, or blanks), empty lines and lines that begin
with `#` are passed over, and a file may be packed by gzip.
"""

import csv
import gzip
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from asyncjax.checks import shown
from asyncjax.traces.logbook.values import is_value

DELIMITERS = ("\t", ";", "|", ",")
_BINARY = {
    b"PK": "a zip archive or a spreadsheet",
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"%PDF": "a PDF",
}


@dataclass(frozen=True)
class Table:
    """Rows of fields, as they were written.

    Attributes:
        names: Names of the columns; None: there was no header.
        rows: Fields of each row, as many as there are columns.
        lines: The line of each row, from 1.
        source: What is read, in words.
        notes: What was supposed or passed over, a sentence each.
        line: What a line is called.
    """

    names: list[str] | None
    rows: list[list[str]]
    lines: list[int]
    source: str
    notes: list[str] = field(default_factory=list)
    line: str = "line"

    def where(self, row: int) -> str:
        """Where a row is, for a message."""
        of = f" of {self.source}" if self.line == "line" else ""
        return f"in {self.line} {self.lines[row]}{of}"

    def column(self, place: int) -> list[str]:
        """The fields of a column, without blanks around them."""
        return [row[place].strip() for row in self.rows]


def read_file(file: Path) -> Table:
    """Reads a table from a file.

    Raises:
        ValueError: It is empty, not of text, or no table; says in which line.
        OSError: It cannot be read.
    """
    text = _decoded(file)
    source = str(file)
    if file.name.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json")):
        return _of_json_lines(text, source)
    lines = text.splitlines()
    content = [number for number, line in enumerate(lines) if _is_content(line)]
    if not content:
        raise ValueError(f"path must be a table with rows, got none in {source}")
    delimiter = _delimiter(lines[content[0]])
    rows, numbers = _split(text, lines, delimiter, source)
    passed = sum(line.lstrip().startswith("#") for line in lines)
    notes = [f"{_lines(passed)} that begin with # were passed over"] if passed else []
    if delimiter != ",":
        notes.append(f"fields are separated by {_NAMES[delimiter]}")
    return headed(Table(None, rows, numbers, source, notes))


_NAMES = {"\t": "tabs", ";": "semicolons", "|": "bars", " ": "blanks", ",": "commas"}


def headed(table: Table) -> Table:
    """The table with its first row as header, if it is one, and all rows of one length.

    Raises:
        ValueError: A row is longer than the header, or a name is there twice.
    """
    first = table.rows[0]
    is_header = not all(map(is_value, filter(None, map(str.strip, first[1:] or first))))
    if not is_header:  # numbers that count the workers of a wide table are a header
        counts = [name.strip() for name in first]
        counts = counts[1:] if counts and not counts[0] else counts
        numbers = [str(number) for number in range(len(counts) + 1)]
        is_header = len(counts) > 1 and counts in (numbers[:-1], numbers[1:])
        is_header = is_header and (not first[0].strip() or len(counts) > 3)
    if not is_header:
        return _rectangular(table, len(first), "the first row")
    names = [name.strip() for name in first]
    body = Table(names, table.rows[1:], table.lines[1:], table.source, table.notes, table.line)
    if not body.rows:
        raise ValueError(
            f"path must be a table with rows, got none below the header of {table.source}"
        )
    for name in names:
        if name and names.count(name) > 1:
            raise ValueError(
                f"path must name each of its columns once, got {name!r} twice {table.where(0)}"
            )
    return _rectangular(body, len(names), "the header")


def _rectangular(table: Table, width: int, than: str) -> Table:
    """Fills short rows up with empty fields; refuses long ones."""
    for place, row in enumerate(table.rows):
        if len(row) == width:
            continue
        if len(row) > width and any(entry.strip() for entry in row[width:]):
            raise ValueError(
                f"path must be a table whose rows are no longer than {than}, {width} fields, got"
                f" {len(row)} fields {table.where(place)}"
            )
        table.rows[place] = (row + [""] * (width - len(row)))[:width]
    return table


def _lines(count: int) -> str:
    return "a line" if count == 1 else f"{count} lines"


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


def _split(
    text: str, lines: list[str], delimiter: str, source: str
) -> tuple[list[list[str]], list[int]]:
    """Fields of every row, and its line."""
    if delimiter == " ":
        kept = [(line.split(), n) for n, line in enumerate(lines, 1) if _is_content(line)]
        return [fields for fields, _ in kept], [number for _, number in kept]
    rows: list[list[str]] = []
    numbers: list[int] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        for row in reader:
            if row and not row[0].startswith("#") and any(row):
                rows.append(row)
                numbers.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(
            f"path must be a table of text, got {error} after line {reader.line_num} of {source}"
        ) from error
    return rows, numbers


def _decoded(file: Path) -> str:
    """The text of a file, UTF-8, or what its first bytes say."""
    content = file.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise ValueError(f"path must be a whole file, got {error} in {file}") from error
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
    names: dict[str, int] = {}
    rows: list[list[str]] = []
    for number, entry in zip(numbers, found, strict=True):
        if not isinstance(entry, dict):
            raise ValueError(
                f"path must have an object by name a row, got {shown(entry)} in {line} {number} of"
                f" {source}"
            )
        row = [""] * len(names)
        for name, value in entry.items():
            place = names.setdefault(str(name), len(names))
            if place == len(row):
                row.append("")
            row[place] = text_of(value)
        rows.append(row)
    if not rows:
        raise ValueError(f"path must be a table with rows, got none in {source}")
    filled = [row + [""] * (len(names) - len(row)) for row in rows]
    return Table(list(names), filled, numbers, source, line=line)


def text_of(value: object) -> str:
    """A value as it would stand in a file."""
    return "" if value is None else str(value)
