"""Columns by their role: which tells how long jobs took, in which unit, and what orders rows."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from asyncjax.traces.log_reader import values
from asyncjax.traces.log_reader.headers import read_heading
from asyncjax.traces.log_reader.jobs import Jobs, Reading
from asyncjax.traces.log_reader.values import Column, Fields

_LUCK = 1e-6  # chance by which durations may happen to grow in every row of every worker
_SHORT = {1e-9: "ns", 1e-6: "us", 1e-3: "ms", 1.0: "s", 60.0: "min", 3600.0: "h"}
LIVE = {"arrived", "handled", "done", "computed", "read_version"}  # columns of `live.to_csv`

Columns = dict[str, np.ndarray]  # by role, float64[K]


def settled(reading: Reading, roles: dict[str, int], jobs: Jobs) -> dict[str, int]:
    """The roles, with one that says how long jobs took.

    Raises:
        ValueError: No column can.
    """
    roles = dict(roles)
    if "duration" in roles or {"start", "end"} <= set(roles):
        return roles
    if "time" in roles:
        place = roles.pop("time")
        name = reading.table.title(place)
        if "end" not in roles and _is_a_clock(reading, place, jobs):
            reading.notes.append(
                f"{name} grows with every row of a worker: read as when its jobs ended; if it is"
                f" how long they took, say duration={name.removeprefix('column ')}"
            )
            return roles | {"end": place}
        reading.notes.append(f"{name} is read as how long jobs took")
        return roles | {"duration": place}
    if {"start", "end"} & set(roles):
        return roles
    place = _only_numbers(reading, roles)
    reading.notes.append(
        f"{reading.table.title(place)} is read as how long jobs took: no other can be it"
    )
    return roles | {"duration": place}


def _only_numbers(reading: Reading, roles: dict[str, int]) -> int:
    """The one column of numbers that has no role."""
    table = reading.table
    names = table.names or []
    free = [place for place, name in enumerate(names) if name and place not in roles.values()]
    numbers = [p for p in free if all(map(values.is_value, table.columns[p][:50]))]
    if len(numbers) == 1 and "worker" in roles:
        return numbers[0]
    raise ValueError(
        "path must have a column of durations, or of starts and ends, or a column of durations a"
        f" worker, got {table.source} with the columns {', '.join(map(repr, names))}; say which is"
        " which, such as worker='rank', duration='took_ms'"
    )


def _is_a_clock(reading: Reading, place: int, jobs: Jobs) -> bool:
    """Whether a column of times tells when, not how long: it grows in every row of a worker."""
    column = values.times_of([_fields(reading, place)])[0]
    if column.is_date:
        return True
    by_worker = np.argsort(jobs.worker, kind="stable")
    time, worker = column.values[jobs.row][by_worker], jobs.worker[by_worker]
    same = np.diff(worker) == 0
    if not same.any() or not (np.diff(time)[same] > 0).all():
        return False
    luck = -sum(math.lgamma(count + 1.0) for count in np.bincount(worker))
    return luck < math.log(_LUCK)


def _fields(reading: Reading, place: int) -> Fields:
    names = reading.table.names
    return reading.table.fields(place, read_heading(names[place]).seconds if names else None)


def in_words(reading: Reading, roles: dict[str, int], by: str | None, unit: str) -> str:
    """Which columns were read as what, in a line."""
    column = {role: reading.table.title(place) for role, place in roles.items()}
    column = {role: title.removeprefix("column ") for role, title in column.items()}
    if not reading.table.names:
        column = {role: f"column {title}" for role, title in column.items()}
    ends = [f"{role} {column[role]}" for role in ("start", "end") if role in column]
    time = " and ".join(ends) or ("none, rows in their order" if by is None else column[by])
    took = "end less start" if len(ends) == 2 else "what lies between two rows of a worker"
    said = {
        "worker": column.get("worker", "none, all rows are of one"),
        "time": time,
        "duration": column.get("duration", took),
        "unit": unit,
    }
    return "; ".join(f"{name}: {what}" for name, what in said.items())


def units_in_words(scales: Iterable[float | None]) -> str:
    """The units that numbers were read in.

    Example:
        >>> units_in_words([0.001, None, 0.001]), units_in_words([None])
        ('ms', 'not said')
    """
    known = [scale for scale in dict.fromkeys(scales) if scale is not None]
    return " and ".join(_SHORT[scale] for scale in known) or "not said"


def columns_of(
    reading: Reading, roles: dict[str, int], unit: float | None
) -> tuple[Columns, str, str, bool]:
    """Numbers by role in one unit, its name, the units in the file, and whether times are dates."""
    fields = {role: _fields(reading, place) for role, place in roles.items() if role != "worker"}
    read: dict[str, Column] = {}
    if "duration" in fields:
        read["duration"] = values.durations_of(fields["duration"])
    ends = [role for role in ("start", "end") if role in fields]
    read |= dict(zip(ends, values.times_of([fields[role] for role in ends]), strict=True))
    scales = {role: _scale(reading, fields[role], read[role], unit) for role in read}
    if set(reading.table.names or ()) >= LIVE:
        scales = {role: scale or 1.0 for role, scale in scales.items()}
    said = [scale for scale in scales.values() if scale is not None]
    columns: Columns = {}
    for role, column in read.items():
        scale = scales[role]
        if scale is None and said:
            scale = said[0]
            reading.notes.append(
                f"column {fields[role].name!r} says no unit: read in that of the other times"
            )
        columns[role] = column.values if scale in (None, 1.0) else column.values * scale
        reading.notes.extend(column.notes)
    for role in ("step", "time"):
        if role in fields:
            columns[role] = values.times_of([fields[role]])[0].values
    if any(scale != 1.0 for scale in said):
        reading.notes.append("times were made seconds")
    is_date = any(column.is_date for column in read.values())
    return columns, "seconds" if said else "time units", units_in_words(said), is_date


def _scale(reading: Reading, fields: Fields, column: Column, unit: float | None) -> float | None:
    """Seconds that a unit of a column is; None: not said."""
    if column.is_own:
        return 1.0
    if unit is not None:
        return unit
    if column.seconds is not None:
        return column.seconds
    since = values.epoch_unit(fields.texts)
    if since is None:
        return None
    reading.notes.append(f"column {fields.name!r} is read as {since[1]} since 1970")
    return since[0]


def order_of(reading: Reading, roles: dict[str, int], columns: Columns) -> str | None:
    """The role that orders rows: a time, or else a step; a column without numbers is ignored."""
    is_timed = bool({"start", "end"} & set(columns))
    for role in ("time", "step"):
        if role not in columns:
            continue
        bad = ~np.isfinite(columns[role])
        if not bad.any():
            continue
        if is_timed or bad.all():
            reading.notes.append(f"{reading.table.title(roles[role])} is not of numbers: not used")
            del columns[role]
    known = [role for role in ("time", "step") if role in columns]
    return None if is_timed or not known else known[0]
