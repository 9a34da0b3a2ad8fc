"""Text as a table of fields that know their line, and fields as numbers.

The delimiter is found, empty lines and lines that begin with `#` are passed over. A number may have
a decimal comma or a unit of its own ("12.5 ms"), a duration may be "0:01:12.5", a point in time a
date. Whether a comma is a decimal one or separates thousands is a matter of the whole column.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asyncjax.checks import shown
from asyncjax.clocks.log_reader.headers import UNITS, read_heading

MOST_UNPACKED = 200  # bytes that a byte of a packed file may stand for, unless more are allowed
_LIVE = {"arrived", "handled", "done", "computed", "read_version"}  # columns of `live.to_csv`
_BYTES = 2**20  # unpacked at once
_ROWS = 300  # read at once; below what makes Python look for garbage
_DELIMITERS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas", " ": "blanks"}
_BINARY = {
    b"PK": "a zip archive or a spreadsheet",
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"%PDF": "a PDF",
}
_EMPTY = ("", "na", "n/a", "nan", "none", "null", "-", "--", "nat", "#n/a", "unknown")
_WITH_UNIT = re.compile(r"([-+]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:e[-+]?\d+)?)\s*([a-zµμ]+)", re.I)
_NUMBER = re.compile(r"([-+]?)([\d.,]+)((?:e[-+]?\d+)?\s*[a-zµμ]*)", re.I)
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_CLOCK_TIME = re.compile(r"(?:(\d+)(?:-| days?,? ))?(\d+):(\d{1,2}):(\d{1,2}(?:[.,]\d+)?)")
_ORIGIN = datetime(2020, 1, 1, tzinfo=UTC)  # near, so that floats of seconds are exact
_EXACT = 2**53  # integers beyond it are no floats
# Times since 1970, in one of these units, are taken for such in the years 2001 to 2096.
_SINCE_1970 = {1.0: "seconds", 1e-3: "milliseconds", 1e-6: "microseconds", 1e-9: "nanoseconds"}
_SECONDS_OF_2001, _SECONDS_OF_2096 = 1e9, 4e9


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
    workers: list[str] = field(default_factory=lambda: ["0"])  # their names, sorted
    notes: list[str] = field(default_factory=list)  # what was supposed or passed over

    @property
    def is_live(self) -> bool:
        """Whether `live.to_csv` wrote it."""
        return set(self.names or ()) >= _LIVE

    def where(self, row: int) -> str:
        """Where a row is, for a message."""
        of = f" of {self.source}" if self.line == "line" else ""
        return f"in {self.line} {self.lines[row]}{of}"

    def title(self, place: int) -> str:
        """What a column is called in a message."""
        return f"column {self.names[place]!r}" if self.names else f"column {place + 1}"

    def name(self, place: int) -> str:
        """What a column is called in a list of columns."""
        return repr(self.names[place]) if self.names else self.title(place)

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
        if "," not in "".join(texts):
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

    def times(self, *places: int) -> list[Column]:
        """Columns of points in time, which count from one moment."""
        texts = [self.texts(place) for place in places]
        units = [self.heading(place)[1] for place in places]
        columns = [column_of(*pair, dates=True) for pair in zip(texts, units, strict=True)]
        largest = np.max([np.abs(column.values).max() for column in columns], initial=0.0)
        if not _EXACT < largest < np.inf:  # or NaN
            return columns
        try:  # large integers less the smallest of them, exactly
            whole = [list(map(int, text)) for text in texts]
        except ValueError:
            return columns
        least = min(map(min, whole))
        exact = [np.array([float(number - least) for number in numbers]) for numbers in whole]
        return [c._replace(values=values) for c, values in zip(columns, exact, strict=True)]

    def is_numeric(self, place: int, *, empty: bool = False) -> bool:
        """Whether the first fields of a column are numbers; with `empty`, or say that none is."""
        texts = self.columns[place][:50]
        return all(is_value(text) or (empty and is_empty(text)) for text in texts)


def is_json(file: Path) -> bool:
    """Whether the name of a file says that it is JSON, packed or not."""
    return file.name.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json"))


def of_text(text: str, file: Path) -> Table:
    """The table of the text of a file."""
    source = str(file)
    if is_json(file):
        line = "entry" if text.lstrip().startswith("[") else "line"
        return of_objects(_entries(text, source), source, line)
    delimiter = _delimiter(text)
    if delimiter == " ":
        text = text.replace("\t", " ")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    lines: list[int] = []
    n_comments = 0

    def content() -> Iterator[list[str]]:
        nonlocal n_comments
        for row in reader:
            if any(row) and row[0].startswith("#"):
                n_comments += 1
            elif any(row):
                lines.append(reader.line_num)
                yield row

    try:
        table = _of_lines(content(), lines, source)
    except csv.Error as error:
        raise ValueError(
            f"path must be a table of text, got {error} after line {reader.line_num} of {source}"
        ) from error
    table.delimiter = delimiter
    if delimiter != ",":
        table.notes.append(f"fields are separated by {_DELIMITERS[delimiter]}")
    if n_comments:
        table.notes.append(f"lines that begin with # were passed over, {n_comments} in all")
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


def _of_lines(rows: Iterator[list[str]], lines: list[int], source: str) -> Table:
    """The table of rows of which the first may be a header; `lines` grows with those read."""
    first = list(itertools.islice(rows, 2))
    names, *below = [list(map(str.strip, row)) for row in first] or [[]]
    while len(names) > 1 and not names[-1]:  # a delimiter at the end of the line
        names.pop()
    width, is_headed = len(names), bool(names) and _is_header(names, *below)
    if is_headed:
        for name in filter(None, names):
            if names.count(name) > 1:
                raise ValueError(
                    f"path must name each of its columns once, got {name!r} twice in line"
                    f" {lines[0]} of {source}"
                )
        del first[0], lines[0]
    columns: list[list[str]] = [[] for _ in names]  # which grow: many rows are slow to keep
    rows = itertools.chain(first, rows)
    while piece := list(itertools.islice(rows, _ROWS)):
        for place, row in enumerate(piece):
            if len(row) > width and any(map(str.strip, row[width:])):
                than = "the header" if is_headed else "the first"
                line = lines[place - len(piece)]
                raise ValueError(
                    f"path must be a table whose rows are no longer than {than}, {width} fields,"
                    f" got {len(row)} fields in line {line} of {source}"
                )
            if len(row) != width:
                piece[place] = (row + [""] * (width - len(row)))[:width]
        for column, fields in zip(columns, zip(*piece, strict=True), strict=True):
            column.extend(map(str.strip, fields))
    if not lines:
        below = " below the header" if is_headed else ""
        raise ValueError(f"path must be a table with rows, got none{below} in {source}")
    return Table(names if is_headed else None, columns, lines, source)


def _is_header(first: list[str], second: Sequence[str] = ()) -> bool:
    """Whether the first row names columns, by words or by numbers that count workers.

    Example:
        >>> _is_header(["worker", "step"]), _is_header(["w1", "0.5"], ["w2", "0.7"])
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


def text_of_file(file: Path, max_unpacked: int | None) -> str:
    """The text of a file, UTF-8, or what its first bytes say; packed by gzip or not."""
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


def _entries(text: str, source: str) -> Iterator[tuple[int, object]]:
    """What JSON tells line by line, or in one list, each with its number."""
    number = 0
    try:
        if text.lstrip().startswith("["):
            yield from enumerate(json.loads(text), 1)
            return
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield number, json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"path must have a JSON object a line, got {error.msg} in line"
            f" {number or error.lineno} of {source}"
        ) from error


def of_objects(entries: Iterable[tuple[int, object]], source: str, line: str) -> Table:
    """A table of rows that are mappings by name, each with its number."""
    columns: dict[str, list[str]] = {}
    lines: list[int] = []
    for number, entry in entries:
        if not isinstance(entry, Mapping):
            raise ValueError(
                f"path must have an object by name a row, got {shown(entry)} in {line} {number} of"
                f" {source}"
            )
        row = {str(name): text_of(value) for name, value in entry.items()}
        for name in row:
            if name not in columns:
                columns[name] = [""] * len(lines)
        for name, column in columns.items():
            column.append(row.get(name, ""))
        lines.append(number)
    if not columns:
        raise ValueError(f"path must be a table with rows, got none in {source}")
    return Table(list(columns), list(columns.values()), lines, source, line)


def text_of(value: object) -> str:
    """A value as it would stand in a file, without blanks around it."""
    return "" if value is None else str(value).strip()


class Column(NamedTuple):
    """Fields of a column as numbers."""

    values: np.ndarray  # float64[K]; NaN where the field is none
    seconds: float | None  # that a unit of them is; None: not said
    kind: str = ""  # "dates" or "numbers with a unit", then in seconds; "": numbers
    since: tuple[float, str] | None = None  # unit of numbers that look like times since 1970


def is_empty(text: str) -> bool:
    """Whether a field says that there is nothing."""
    return text.strip().lower() in _EMPTY


def is_value(text: str) -> bool:
    """Whether a field is a number or a point in time, and not a name.

    Example:
        >>> [is_value(text) for text in ("1,5", "12 ms", "2026-03-01 12:00", "w1", "ms")]
        [True, True, True, False, False]
        >>> [is_value(text) for text in ("1,234,567.5", "1_0", "1,2,3")]
        [True, False, False]
    """
    return _number(text) is not None or _seconds(text, dates=True) is not None


def column_of(texts: list[str], seconds: float | None = None, *, dates: bool = False) -> Column:
    """Reads durations, or points in time if there may be dates.

    Example:
        >>> column_of(["1.5", "12 ms", "0:01:00", "x"]).values
        array([1.5e+00, 1.2e-02, 6.0e+01,     nan])
    """
    numbers = None
    with contextlib.suppress(ValueError):
        if "_" not in "".join(texts):  # float() takes 1_0 for 10
            numbers = np.array(list(map(float, texts)))
    if numbers is None:
        read = [math.nan if is_empty(text) else _number(text) for text in texts]
        numbers = np.array(read, np.float64)  # NaN for None
        unread = [row for row, number in enumerate(read) if number is None]
        times = {row: time for row in unread if (time := _seconds(texts[row], dates=dates))}
        if times:
            kinds = {kind for _, kind in times.values()}
            values = numbers if seconds is None else numbers * seconds
            values[list(times)] = [time for time, _ in times.values()]
            return Column(values, 1.0, min(kinds))
    return Column(numbers, seconds, since=_since_1970(numbers))


def commas_read(texts: list[str], *, decimal: bool) -> tuple[list[str], int | None]:
    """Numbers of a column written with points; and the row of a comma that may be read two ways.

    "1,500" is 1500 or 1.5 as other fields of the column say, or else `decimal`.

    Example:
        >>> commas_read(["1,500", "980.5"], decimal=False), commas_read(["1,500"], decimal=False)
        ((['1500', '980.5'], None), (['1,500'], 0))
        >>> commas_read(["1,500", "0,25", "7"], decimal=False)
        (['1.500', '0.25', '7'], None)
    """
    parts = [_NUMBER.fullmatch(text) for text in texts]
    kinds = [part and _mark(part[2]) for part in parts]
    decimal = "," in kinds or (decimal and "." not in kinds)
    if "either" in kinds and decimal == ("." in kinds):
        return texts, kinds.index("either")
    for_comma = {"either": "." if decimal else "", ",": ".", ".": ""}
    read = [
        part[1] + part[2].replace(",", for_comma[kind]) + part[3] if part and kind else text
        for text, part, kind in zip(texts, parts, kinds, strict=True)
    ]
    return read, None


def _mark(number: str) -> str:
    """The decimal mark of a number, "," or "."; "either" if "," may be one; "" if there is none."""
    if re.fullmatch(r"[1-9]\d{0,2},\d{3}", number):
        return "either"
    if "." in number or number.count(",") > 1:
        return "." if "," not in number or _THOUSANDS.fullmatch(number) else ""
    return "," if "," in number else ""


def _number(text: str) -> float | None:
    """A number with a decimal point or comma, or with commas between thousands."""
    if _THOUSANDS.fullmatch(text) and (text.count(",") > 1 or "." in text):
        text = text.replace(",", "")
    elif "." not in text and text.count(",") == 1:
        text = text.replace(",", ".")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _seconds(text: str, *, dates: bool) -> tuple[float, str] | None:
    """Seconds of a time that says its unit, and what it is; dates count from 2020, in UTC."""
    stripped = text.strip()
    if dates and len(stripped) >= 8 and not stripped.isdigit():  # 20260301 is a number
        try:
            moment = datetime.fromisoformat(stripped)
        except ValueError:
            pass
        else:
            zone = moment.tzinfo or UTC
            return (moment.replace(tzinfo=zone) - _ORIGIN).total_seconds(), "dates"
    match = _WITH_UNIT.fullmatch(stripped)
    if match and match[2].lower() in UNITS:
        return float(match[1].replace(",", ".")) * UNITS[match[2].lower()], "numbers with a unit"
    match = _CLOCK_TIME.fullmatch(stripped)
    if match:
        days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4].replace(",", "."))
        return seconds, "numbers with a unit"
    return None


def _since_1970(numbers: np.ndarray) -> tuple[float, str] | None:
    """The unit of numbers that look like times since 1970: in seconds, and its name."""
    known = numbers[~np.isnan(numbers)]
    for seconds, name in _SINCE_1970.items():
        least, most = _SECONDS_OF_2001 / seconds, _SECONDS_OF_2096 / seconds
        if known.size and least < known.min() and known.max() < most:
            return seconds, name
    return None
