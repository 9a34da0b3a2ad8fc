"""Fields as numbers: durations, points in time, and what they may look like.

A number may have a decimal comma or a unit of its own ("12.5 ms"), a duration may be written as
hours, minutes and seconds ("0:01:12.5"), a point in time as a date ("2026-03-01T12:00:00Z").
Whether a comma is a decimal one or separates thousands is a matter of the whole column.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from asyncjax.traces.log_reader.headers import UNITS

_EMPTY = ("", "na", "n/a", "nan", "none", "null", "-", "--", "nat", "#n/a")
_WITH_UNIT = re.compile(r"([-+]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:e[-+]?\d+)?)\s*([a-zµμ]+)", re.I)
_NUMBER = re.compile(r"([-+]?)([\d.,]+)((?:e[-+]?\d+)?\s*[a-zµμ]*)", re.I)
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_CLOCK_TIME = re.compile(r"(?:(\d+) days?,? )?(\d+):(\d{1,2}):(\d{1,2}(?:[.,]\d+)?)")
_ORIGIN = datetime(2020, 1, 1, tzinfo=UTC)  # near, so that floats of seconds are exact
_EXACT = 2**53  # integers beyond it are no floats
# Times since 1970, in one of these units, are taken for such in the years 2001 to 2096.
_SINCE_1970 = {1.0: "seconds", 1e-3: "milliseconds", 1e-6: "microseconds", 1e-9: "nanoseconds"}
_SECONDS_OF_2001, _SECONDS_OF_2096 = 1e9, 4e9


class Column(NamedTuple):
    """Fields of a column as numbers."""

    values: np.ndarray  # float64[K]; NaN where the field is none
    seconds: float | None  # that a unit of them is; None: not said
    kind: str = ""  # "dates" or "numbers with a unit", then in seconds; "": numbers
    since: tuple[float, str] | None = None  # unit of numbers that look like times since 1970


def is_empty(text: str) -> bool:
    """Whether a field says that there is nothing.

    Example:
        >>> is_empty(""), is_empty("NaN"), is_empty("0")
        (True, True, False)
    """
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
    try:
        numbers = np.array(list(map(_plain, texts)))
    except ValueError:
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


def times_of(columns: list[tuple[list[str], float | None]]) -> list[Column]:
    """Reads points in time of columns of text and the unit of each; they count from one moment.

    Example:
        >>> dates = ["2026-03-01T12:00:00Z", "2026-03-01T12:00:01.5Z"]
        >>> begin, end = times_of([([date], None) for date in dates])
        >>> end.values - begin.values, begin.kind
        (array([1.5]), 'dates')
    """
    read = [column_of(*column, dates=True) for column in columns]
    if any(c.kind for c in read) or not any((np.abs(c.values) > _EXACT).any() for c in read):
        return read
    try:  # large integers less the smallest of them, exactly
        whole = [[int(text) for text in texts] for texts, _ in columns]
    except ValueError:
        return read
    least = min(map(min, whole))
    exact = [np.array([float(number - least) for number in numbers]) for numbers in whole]
    return [c._replace(values=values) for c, values in zip(read, exact, strict=True)]


def commas_read(texts: list[str], *, decimal: bool) -> tuple[list[str], int | None]:
    """Numbers of a column written with points; and the row of a comma that may be read two ways.

    "1,500" may be 1500 or 1.5: another field of the column must say which, or `decimal`, that
    a comma in such a table is a decimal one unless a field says otherwise.

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
    if "," not in number:
        return "." if "." in number else ""
    if _THOUSANDS.fullmatch(number):
        return "." if "." in number or number.count(",") > 1 else "either"
    return "," if number.count(",") == 1 and "." not in number else ""


def _plain(text: str) -> float:
    return float(text) if "_" not in text else float("")  # float() takes 1_0 for 10


def _number(text: str) -> float | None:
    """A number with a decimal point or comma, or with commas between thousands."""
    if _THOUSANDS.fullmatch(text) and (text.count(",") > 1 or "." in text):
        text = text.replace(",", "")
    elif "." not in text and text.count(",") == 1:
        text = text.replace(",", ".")
    try:
        return _plain(text)
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
    """The unit of numbers that look like times since 1970: in seconds, and its name.

    Example:
        >>> _since_1970(np.array([1.7e12, np.nan])), _since_1970(np.array([12.5]))
        ((0.001, 'milliseconds'), None)
    """
    known = numbers[~np.isnan(numbers)]
    for seconds, name in _SINCE_1970.items():
        least, most = _SECONDS_OF_2001 / seconds, _SECONDS_OF_2096 / seconds
        if known.size and least < known.min() and known.max() < most:
            return seconds, name
    return None
