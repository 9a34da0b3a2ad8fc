"""Tables with a column a worker: a row holds a job of each."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from asyncjax.traces.log_reader import values
from asyncjax.traces.log_reader.columns import units_in_words
from asyncjax.traces.log_reader.headers import UNITS
from asyncjax.traces.log_reader.jobs import Jobs, Reading, one_row_a_step, sifted, taken
from asyncjax.traces.log_reader.log import Log
from asyncjax.traces.log_reader.long import finished, sorted_names
from asyncjax.traces.log_reader.text import Table

_UNIT = "|".join(map(re.escape, sorted(UNITS, key=len, reverse=True)))
_IN_BRACKETS = re.compile(rf"(.*\S)\s*[(\[]\s*(?:in\s+)?(?i:({_UNIT}))\s*[)\]]\s*")
_AT_END = re.compile(rf"(.*?[^\W_])(?:[\W_]+(?:in[\W_]+)?|(?<=[a-z0-9])(?=[A-Z]))(?i:({_UNIT}))")


def log_of_columns(reading: Reading, counter: int | None, unit: float | None) -> Log:
    """The log of a table with a column a worker; empty cells are jobs that there were not.

    Args:
        reading: The table and how it is read.
        counter: The column that counts the rows; None: there is none.
        unit: Seconds that a unit is, if the caller says so.

    Raises:
        ValueError: A cell is no positive number; says which line and column.
    """
    table = reading.table
    names = table.names or [str(place) for place in range(len(table.columns))]
    places = [place for place, name in enumerate(names) if name and place != counter]
    named, units = workers_of([names[place] for place in places])
    own = sorted_names(named)
    reading = reading._replace(names=own)
    columns = {
        place: values.durations_of(table.fields(place, said if unit is None else unit))
        for place, said in zip(places, units, strict=True)
    }
    said = [column.seconds for column in columns.values() if column.seconds is not None]
    worker_at = {place: own.index(name) for place, name in zip(places, named, strict=True)}
    ordered = sorted(places, key=worker_at.__getitem__)
    parts = []
    for number, place in enumerate(ordered):
        scale = columns[place].seconds or (said[0] if said else 1.0)
        parts.append(_cells(reading, place, number, columns[place].values * scale))
    jobs = Jobs(
        *(np.concatenate(column) for column in zip(*(part[:3] for part in parts), strict=True))
    )
    empty = table.n_rows * len(places) - len(jobs.row)
    if counter is not None:
        count = values.times_of([table.fields(counter)])[0].values
        if np.isfinite(count).all():
            jobs = jobs._replace(counter=count[jobs.row])
            jobs = one_row_a_step(reading, jobs, count[jobs.row], counter)
    if empty:
        reading.notes.append(f"{empty} empty cells: no job of that worker in that row")
    if any(seconds != 1.0 for seconds in said):
        reading.notes.append("times were made seconds")
    titles = [table.title(place) for place in places]
    ends = titles[0] if len(titles) == 1 else f"{titles[0]} to {titles[-1]}"
    columns = "; ".join(
        (
            f"worker: each of {len(places)}, {ends}",
            f"time: {'none, rows in their order' if counter is None else table.title(counter)}",
            "duration: the numbers in them",
            f"unit: {units_in_words(said)}",
        )
    )
    return finished(reading, jobs, "seconds" if said else "time units", columns)


def without_extremes(table: Table) -> tuple[Table, str | None]:
    """A tracker's chart export without the smallest and largest values that stand beside others.

    Such a table has a column of steps or times, and for each run `name`, `name__MIN`, `name__MAX`.

    Returns:
        The table, and the name of the one column that had no such columns beside it, if any.
    """
    names = table.names or []
    extremes = {name for name in names if name.endswith(("__MIN", "__MAX")) and name[:-5] in names}
    if not extremes:
        return table, None
    places = [place for place, name in enumerate(names) if name not in extremes]
    alone = [
        name for name in names if name and not {name, f"{name}__MIN", f"{name}__MAX"} & extremes
    ]
    table.notes.append(
        f"{len(extremes)} columns that end in __MIN or __MAX, such as {min(extremes)!r}, are left"
        " out: a tracker's smallest and largest values of another column, not workers"
    )
    table = replace(
        table,
        names=[names[place] for place in places],
        columns=[table.columns[place] for place in places],
    )
    return table, alone[0] if len(alone) == 1 else None


def workers_of(names: list[str]) -> tuple[list[str], list[float | None]]:
    """Workers that columns are named after, and the seconds that a unit of each column is.

    A unit in brackets is one. Another at the end of a name is one if all names end so: of "rack_a"
    to "rack_h" none is in hours. Names that would then be the same stay as they are.

    Example:
        >>> workers_of(["a (ms)", "b (ms)"]), workers_of(["gpu0_s", "gpu1_s"])
        ((['a', 'b'], [0.001, 0.001]), (['gpu0', 'gpu1'], [1.0, 1.0]))
        >>> workers_of(["rack_g", "rack_h"])
        (['rack_g', 'rack_h'], [None, None])
    """
    found = [_IN_BRACKETS.fullmatch(name) for name in names]
    if not any(found):
        found = [_AT_END.fullmatch(name) for name in names]
        if not all(found):
            return names, [None] * len(names)
    bare = [name if match is None else match[1] for name, match in zip(names, found, strict=True)]
    units = [None if match is None else UNITS[match[2].lower()] for match in found]
    return (bare if len(set(bare)) == len(bare) else names), units


def _cells(reading: Reading, place: int, worker: int, numbers: np.ndarray) -> Jobs:
    """The jobs of a column; refuses cells that are neither empty nor positive numbers."""
    rows = np.arange(len(numbers))
    texts = reading.table.columns[place]
    is_empty = np.isnan(numbers)
    is_empty[is_empty] = [values.is_empty(texts[row]) for row in rows[is_empty].tolist()]
    jobs = taken(Jobs(np.full(len(rows), worker), numbers, rows), ~is_empty)
    return sifted(
        reading,
        jobs,
        ~(np.isfinite(jobs.duration) & (jobs.duration > 0)),
        lambda at: (
            f"{reading.table.title(place)} must be a positive number, how long a job took, got"
            f" {reading.table.entry(place, int(jobs.row[at]))}"
        ),
    )
