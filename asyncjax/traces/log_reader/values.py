"""Fields as numbers: durations, points in time, and what they may look like.

A number may have a decimal comma or a unit of its own ("12.5 ms"), a duration may be written as
hours, minutes and seconds ("0:01:12.5"), a point in time as a date ("2026-03-01T12:00:00Z").
Whether a comma is a decimal one or separates thousands is a matter of the whole column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from asyncjax.traces.log_reader.headers import UNITS

EMPTY = ("", "na", "n/a", "nan", "none", "null", "-", "--", "nat", "#n/a")
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
    notes: list[str]
    is_own: bool = False  # whether the fields themselves say their unit
    is_date: bool = False  # then exact to a microsecond


class Fields(NamedTuple):
    """A column as it was written."""

    name: str
    texts: list[str]
    seconds: float | None  # that a unit of its numbers is, as its name says


def is_value(text: str) -> bool:
    """Whether a field is a number or a point in time, and not a name.

    Example:
        >>> [is_value(text) for text in ("1,5", "12 ms", "2026-03-01 12:00", "w1", "ms")]
        [True, True, True, False, False]
        >>> [is_value(text) for text in ("1,234,567.5", "1_0", "1,2,3")]
        [True, False, False]
    """
    return any(one(text) is not None for one in (_number, _with_unit, _clock_time, _date))


def durations_of(fields: Fields) -> Column:
    """Reads durations.

    Example:
        >>> column = durations_of(Fields("took", ["1.5", "12 ms", "0:01:00", "x"], None))
        >>> column.values, column.seconds
        (array([1.5e+00, 1.2e-02, 6.0e+01,     nan]), 1.0)
    """
    numbers = _plain(fields.texts)
    if numbers is not None:
        return Column(numbers, fields.seconds, [])
    return _mixed(fields, (_with_unit, _clock_time))


def times_of(columns: list[Fields]) -> list[Column]:
    """Reads points in time; several columns count from one moment.

    Example:
        >>> dates = ["2026-03-01T12:00:00Z", "2026-03-01T12:00:01.5Z"]
        >>> begin, end = times_of([Fields("start", [date], None) for date in dates])
        >>> end.values - begin.values, begin.is_date
        (array([1.5]), True)
    """
    plain = [_plain(fields.texts) for fields in columns]
    numbers = [values for values in plain if values is not None]
    if len(numbers) == len(columns):
        large = any((np.abs(values) > _EXACT).any() for values in numbers)
        if large:
            numbers = _shifted([fields.texts for fields in columns], numbers)
        return [
            Column(values, fields.seconds, [])
            for values, fields in zip(numbers, columns, strict=True)
        ]
    return [_mixed(fields, (_date, _with_unit, _clock_time)) for fields in columns]


def epoch_unit(texts: list[str]) -> tuple[float, str] | None:
    """The unit of numbers that look like times since 1970: in seconds, and its name.

    Example:
        >>> epoch_unit(["1700000000000"]), epoch_unit(["12.5"])
        ((0.001, 'milliseconds'), None)
    """
    known = [number for text in texts if (number := _number(text)) is not None]
    for seconds, name in _SINCE_1970.items():
        least, most = (edge / seconds for edge in (_SECONDS_OF_2001, _SECONDS_OF_2096))
        if known and least < min(known) and max(known) < most:
            return seconds, name
    return None


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
    kinds = ["" if part is None else _mark(part[2]) for part in parts]
    decimal = "," in kinds or (decimal and "." not in kinds)
    if "either" in kinds and decimal == ("." in kinds):
        return texts, kinds.index("either")
    for_comma = {"either": "." if decimal else "", ",": ".", ".": ""}
    read = [
        text
        if part is None or not kind
        else part[1] + part[2].replace(",", for_comma[kind]) + part[3]
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


def is_empty(text: str) -> bool:
    """Whether a field says that there is nothing.

    Example:
        >>> is_empty(""), is_empty("NaN"), is_empty("0")
        (True, True, False)
    """
    return text.strip().lower() in EMPTY


def _plain(texts: list[str]) -> np.ndarray | None:
    """Numbers, with decimal commas or points; empty ones are NaN; None: there is something else."""
    if not any("_" in text for text in texts):
        try:
            return np.array(list(map(float, texts)))
        except ValueError:
            pass
    numbers = [math.nan if is_empty(text) else _number(text) for text in texts]
    known = [number for number in numbers if number is not None]
    return np.array(known) if len(known) == len(numbers) else None


def _shifted(texts: list[list[str]], numbers: list[np.ndarray]) -> list[np.ndarray]:
    """Large integers less the smallest of them, exactly; what is no integer is left as it is."""
    try:
        whole = [[int(text) for text in column] for column in texts]
    except ValueError:
        return numbers
    least = min(map(min, whole))
    return [np.array([float(number - least) for number in column]) for column in whole]


def _mixed(fields: Fields, readers: tuple[Callable[[str], float | None], ...]) -> Column:
    """Fields of several kinds in seconds."""
    scale = 1.0 if fields.seconds is None else fields.seconds
    seen: set[Callable[[str], float | None]] = set()
    values: list[float] = []
    for text in fields.texts:
        number = math.nan if is_empty(text) else _number(text)
        if number is not None:
            values.append(number * scale)
            continue
        values.append(math.nan)
        for reader in readers:
            found = reader(text)
            if found is not None:
                values[-1] = found
                seen.add(reader)
                break
    if not seen:
        return Column(np.array(values) / scale, fields.seconds, [])
    what = "dates" if _date in seen else "numbers with a unit"
    notes = [f"column {fields.name!r} has {what}: read as seconds"]
    return Column(np.array(values), 1.0, notes, True, _date in seen)


def _number(text: str) -> float | None:
    if "_" in text:  # float() takes 1_0 for 10
        return None
    try:
        return float(text)
    except ValueError:
        pass
    if text.count(",") > 1 or "." in text:
        return float(text.replace(",", "")) if _THOUSANDS.fullmatch(text) else None
    if text.count(",") == 1:
        try:
            return float(text.replace(",", "."))
        except ValueError:
            pass
    return None


def _with_unit(text: str) -> float | None:
    """Seconds of a number with its unit."""
    match = _WITH_UNIT.fullmatch(text.strip())
    if match is None or match[2].lower() not in UNITS:
        return None
    return float(match[1].replace(",", ".")) * UNITS[match[2].lower()]


def _clock_time(text: str) -> float | None:
    """Seconds of hours:minutes:seconds."""
    match = _CLOCK_TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4].replace(",", "."))


def _date(text: str) -> float | None:
    """Seconds since 2020 of a date; without a time zone it is taken as UTC."""
    stripped = text.strip()
    if len(stripped) < 8 or stripped.isdigit():  # 20260301 is a number
        return None
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _ORIGIN).total_seconds()
