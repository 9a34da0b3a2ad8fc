"""Tables with a column a worker: a row holds a job of each."""

import numpy as np

from asyncjax.traces.logbook import values
from asyncjax.traces.logbook.headers import read_heading
from asyncjax.traces.logbook.jobs import Jobs, Reading, sifted, taken
from asyncjax.traces.logbook.log import Log
from asyncjax.traces.logbook.long import finished, sorted_names
from asyncjax.traces.logbook.values import Column, Fields


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
    own = sorted_names([names[place] for place in places])
    reading = reading._replace(names=own)
    columns = {place: _column(names[place], table.columns[place], unit) for place in places}
    said = [column.seconds for column in columns.values() if column.seconds is not None]
    ordered = sorted(places, key=lambda place: own.index(names[place]))
    parts = []
    for number, place in enumerate(ordered):
        scale = columns[place].seconds or (said[0] if said else 1.0)
        parts.append(_cells(reading, place, number, columns[place].values * scale))
    jobs = Jobs(
        *(np.concatenate(column) for column in zip(*(part[:3] for part in parts), strict=True))
    )
    if counter is not None:
        count = values.times_of([Fields("", table.columns[counter], None)])[0].values
        if np.isfinite(count).all():
            jobs = jobs._replace(counter=count[jobs.row])
    empty = table.n_rows * len(places) - len(jobs.row)
    if empty:
        reading.notes.append(f"{empty} empty cells: no job of that worker in that row")
    if any(seconds != 1.0 for seconds in said):
        reading.notes.append("times were made seconds")
    return finished(reading, jobs, "seconds" if said else "time units")


def _column(name: str, texts: list[str], unit: float | None) -> Column:
    """The numbers of a column, in the unit that the caller or its name says."""
    seconds = read_heading(name).seconds if unit is None else unit
    return values.durations_of(Fields(name, texts, seconds))


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
