"""Reader of `.tsf` files: the text format of the Monash time series archive.

A head of lines `@name value` (`@attribute name type` once for each attribute of a series), then
`@data`, then a series a line, `attribute:...:value,value,...`, with `?` for what is missing:

    @relation sales
    @attribute series_name string
    @attribute start_timestamp date
    @frequency weekly
    @horizon 13
    @missing false
    @equallength false
    @data
    T1:2001-01-01 00-00-00:5,7,2.5

Lines that start with `#` are comments. Everything is read on the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from asyncjax.problems.data.sources import (
    each_line,
    parsed,
    plain_integer,
    plain_number,
    shown,
)

_COMMENT = re.compile(rb"\A\s*#.*", re.DOTALL)
_DATE = "%Y-%m-%d %H-%M-%S"
_WHOLE = ("a whole number of at most 18 digits", plain_integer)
_SWITCH = ("true or false", lambda text: ("false", "true").index(text.lower()) == 1)
# what a text must be, and what reads it
_HEAD = {
    "frequency": ("a word", str),
    "horizon": _WHOLE,
    "missing": _SWITCH,
    "equallength": _SWITCH,
}
_ATTRIBUTES = {
    "string": ("a text", str),
    "numeric": _WHOLE,
    "date": (f"a date {_DATE}", lambda text: datetime.strptime(text, _DATE)),
}


class SeriesFile(NamedTuple):
    """The series of a file, and what its head says of them."""

    series: tuple[np.ndarray, ...]  # float64[values] each, NaN where missing
    attributes: dict[str, tuple[Any, ...]]  # by name, one value a series: str, int or datetime
    frequency: str | None  # such as "weekly"
    horizon: int | None  # values to forecast
    missing: bool  # may values be missing
    equal_length: bool  # have all series one length


def tsf(path: str | os.PathLike[str], *, max_unpacked: int | None = None) -> SeriesFile:
    r"""Returns the series of a file in the Monash archive's format.

    For training rows hand `series` to `forecast_windows`, which wants no missing values.

    Args:
        path: The file; plain text, or packed if its name ends in `.gz` or `.bz2`.
        max_unpacked: The most bytes that the file may have once it is unpacked; None: 4 GiB, and of
            a packed file at most 200 times its size.

    Returns:
        The series and their attributes: of type string as str, numeric as int, date as datetime.

    Raises:
        FileNotFoundError: If there is no such file.
        OSError: If it is a folder or a device, or cannot be read.
        TypeError: If `path` is no path, or `max_unpacked` no integer.
        ValueError: If the file exceeds `max_unpacked`, is damaged or not in UTF-8, a line is not of
            this format, a value is missing where the head says that none is, lengths differ where
            it says they do not, or there are no series; it names the line.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import problems
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "tiny.tsf"
        ...     size = path.write_text(
        ...         "@attribute name string\n@frequency weekly\n@missing true\n@data\nT1:5,?,2.5\n")
        ...     found = problems.tsf(path)
        >>> found.series, found.attributes, found.frequency
        ((array([5. , nan, 2.5]),), {'name': ('T1',)}, 'weekly')

    Reference:
        Godahewa and others, Monash time series forecasting archive, 2021, arXiv 2105.06643.
    """
    head: dict[str, Any] = {}
    types: dict[str, str] = {}
    rows: list[tuple[list[Any], np.ndarray]] = []

    def read(line: str) -> None:
        line = line.strip()
        if not line or line.startswith("#"):
            return
        if "data" not in head:
            _head_line(line, head, types)
            return
        rows.append(_row(line, types, head))
        _check_length(rows, head)

    each_line(path, read, _COMMENT, max_unpacked)
    if not rows:
        what = "a series after @data" if "data" in head else "a line @data"
        raise ValueError(f"{path} must have {what}, got none")
    values = list(zip(*(row[0] for row in rows), strict=True)) or [()] * len(types)
    return SeriesFile(
        series=tuple(row[1] for row in rows),
        attributes=dict(zip(types, values, strict=True)),
        frequency=head.get("frequency"),
        horizon=head.get("horizon"),
        missing=head.get("missing", False),
        equal_length=head.get("equallength", False),
    )


def _head_line(line: str, head: dict[str, Any], types: dict[str, str]) -> None:
    """Enters one line of the head."""
    if line.lower() == "@data":
        head["data"] = True
        return
    if not line.startswith("@"):
        raise ValueError(f"a line before @data must start with @ or #, got {line[:40]!r}")
    words = line[1:].split()
    name = words[0].lower() if words else ""
    if name == "relation":  # a title, of any words
        return
    if name == "attribute":
        if len(words) != 3 or words[2].lower() not in _ATTRIBUTES:
            raise ValueError(
                f"an attribute must be '@attribute name type' with type string, numeric or date, "
                f"got {shown(line)}"
            )
        if words[1] in types:
            raise ValueError(f"an attribute must be named once, got {shown(words[1])} again")
        types[words[1]] = words[2].lower()
        return
    if name not in _HEAD:
        raise ValueError(
            "a line of the head must be @relation, @attribute, @frequency, @horizon, @missing, "
            f"@equallength or @data, got {line[:40]!r}"
        )
    if len(words) != 2:
        raise ValueError(f"@{name} must have one value, got {shown(line)}")
    if name in head:
        raise ValueError(f"@{name} must come once, got it again")
    head[name] = _entry(f"@{name}", words[1], _HEAD[name])
    if name == "horizon" and head[name] < 1:
        raise ValueError(f"@horizon must be at least 1, got {head[name]}")


def _entry(name: str, text: str, kind: tuple[str, Callable[[str], Any]]) -> Any:
    """Returns an entry of the head or of a series in its type."""
    words, parse = kind
    return parsed(parse, text, f"{name} must be {words}")


def _row(line: str, types: dict[str, str], head: dict[str, Any]) -> tuple[list[Any], np.ndarray]:
    """Returns the attributes and the values of one series."""
    parts = line.split(":")
    if len(parts) != len(types) + 1:
        raise ValueError(
            f"a series must have {len(types)} attributes and its values, parted by colons, got "
            f"{len(parts)} parts"
        )
    attributes = [
        _entry(name, text.strip(), _ATTRIBUTES[kind])
        for (name, kind), text in zip(types.items(), parts, strict=False)
    ]
    values = [_value(text.strip(), head) for text in parts[-1].split(",")]
    return attributes, np.array(values, np.float64)


def _value(text: str, head: dict[str, Any]) -> float:
    """Returns one value of a series, NaN for a question mark."""
    if text == "?":
        if not head.get("missing", False):
            raise ValueError("a value must not be missing without '@missing true', got '?'")
        return float("nan")
    number = parsed(plain_number, text, "a value must be a number or ?")
    if not np.isfinite(number):
        raise ValueError(f"a value must be finite, got {shown(text)}")
    return number


def _check_length(rows: list[tuple[list[Any], np.ndarray]], head: dict[str, Any]) -> None:
    """Refuses a series of another length where the head says that there is none."""
    if head.get("equallength", False) and rows[-1][1].size != rows[0][1].size:
        raise ValueError(
            f"a series must have {rows[0][1].size} values with '@equallength true', "
            f"got {rows[-1][1].size}"
        )
