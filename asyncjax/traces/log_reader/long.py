"""Tables with a row a job: what their columns tell, and how long the jobs took.

start, end                 duration = end - start
start or end, duration     the other follows
duration                   in the order of a time or a step, or of the file
end alone, or start alone  a job is what lies between two rows of a worker, pauses included
"""

from __future__ import annotations

import re
from pathlib import PurePath

import numpy as np

from asyncjax.traces.log_reader import values
from asyncjax.traces.log_reader.columns import (
    LIVE,
    Columns,
    columns_of,
    in_words,
    order_of,
    settled,
)
from asyncjax.traces.log_reader.jobs import (
    Jobs,
    Reading,
    in_order,
    one_after_the_other,
    one_row_a_step,
    sifted,
    spans,
    taken,
)
from asyncjax.traces.log_reader.log import Log, notes_of_copies

_AGREES = 1e-3  # share of a duration by which it may differ from end less start


def log_of_rows(reading: Reading, roles: dict[str, int], unit: float | None) -> Log:
    """The log of a table with a row a job.

    Args:
        reading: The table and how it is read; `names` are not yet known.
        roles: Which column plays which role.
        unit: Seconds that a unit is, if the caller says so.

    Raises:
        ValueError: A row cannot be read, or a job is not positive; says which line.
    """
    jobs, names = _workers(reading, roles)
    reading = reading._replace(names=names)
    jobs = _named(reading, jobs, roles)
    roles = settled(reading, roles, jobs)
    columns, unit_name, units, is_date = columns_of(reading, roles, unit)
    by = order_of(reading, roles, columns)
    count = columns.get("step", columns.get("time"))
    jobs = jobs._replace(
        step=None if by is None else columns[by][jobs.row],
        counter=None if count is None else count[jobs.row],
    )
    if by is not None:
        jobs = _finite(reading, jobs, roles[by], columns[by], "a number that orders the rows")
    if "duration" not in columns and not {"start", "end"} <= set(columns):
        jobs = _between(reading, jobs, roles, columns)
    elif {"start", "end"} & set(columns):
        jobs = _with_ends(reading, jobs, roles, columns, is_date)
    else:
        jobs = jobs._replace(duration=columns["duration"][jobs.row])
        jobs = _positive(reading, jobs, roles["duration"])
        if by is not None:
            jobs = in_order(reading, jobs, reading.table.title(roles[by]))
        else:
            jobs = taken(jobs, np.argsort(jobs.worker, kind="stable"))
    if set(reading.table.names or ()) >= LIVE and jobs.counter is not None:
        _count_missing(reading, jobs.worker, jobs.counter)
    if "step" in columns:
        jobs = one_row_a_step(reading, jobs, columns["step"][jobs.row], roles["step"])
    return finished(reading, jobs, unit_name, in_words(reading, roles, by, units))


def _count_missing(reading: Reading, worker: np.ndarray, number: np.ndarray) -> None:
    """Notes how many jobs of a live run did not arrive: their numbers are missing."""
    last = np.zeros(len(reading.names))
    np.maximum.at(last, worker, number + 1)
    missing = int(last.sum()) - len(worker)
    if missing > 0:
        reading.notes.append(
            f"{missing} jobs of the run did not arrive (stopped or lost), so they are not here"
        )


def finished(reading: Reading, jobs: Jobs, unit: str, columns: str) -> Log:
    """The log of jobs that are sorted by worker and then by time."""
    heard = np.bincount(jobs.worker, minlength=len(reading.names))
    silent = [reading.names[worker] for worker in np.flatnonzero(heard == 0)]
    if silent:
        reading.notes.append(f"no job is left of worker {', '.join(map(repr, silent))}: left out")
    lines = reading.table.lines[jobs.row]

    def rows(column: np.ndarray | None) -> tuple[np.ndarray, ...] | None:
        if column is None:
            return None
        parts = np.split(column, np.cumsum(heard)[:-1])
        return tuple(part for part in parts if len(part))

    durations = rows(jobs.duration)
    assert durations is not None
    workers = tuple(name for name, count in zip(reading.names, heard, strict=True) if count)
    reading.notes.extend(notes_of_copies(workers, durations))
    source = reading.table.source
    name = PurePath(source).name  # without the folders, which a page would show
    return Log(
        workers=workers,
        durations=durations,
        start=rows(jobs.start),
        end=rows(jobs.end),
        step=rows(jobs.counter),
        lines=rows(lines),
        unit=unit,
        source=name,
        notes=tuple(note.replace(source, name) for note in reading.notes),
        columns=columns,
        stamps=rows(jobs.stamp),
    )


def sorted_names(names: list[str]) -> list[str]:
    """Names as numbers if all are, else as text in which numbers count as numbers.

    Example:
        >>> sorted_names(["10", "9"]), sorted_names(["w10", "w9", "a"])
        (['9', '10'], ['a', 'w9', 'w10'])
    """
    try:
        return sorted(names, key=float)
    except ValueError:
        pass

    def key(name: str) -> list[tuple[int, int, str]]:
        parts = re.split(r"(\d+)", name)
        return [(1, 0, part) if not part.isdecimal() else (0, int(part), "") for part in parts]

    return sorted(names, key=lambda name: (key(name), name))


def _workers(reading: Reading, roles: dict[str, int]) -> tuple[Jobs, list[str]]:
    """A job a row with its worker, and the names, sorted."""
    table = reading.table
    rows = np.arange(table.n_rows)
    if "worker" not in roles:
        reading.notes.append("there is no column of workers: all rows are of one, '0'")
        return Jobs(np.zeros(len(rows), np.int64), np.ones(len(rows)), rows), ["0"]
    texts = table.columns[roles["worker"]]
    names = sorted_names([name for name in dict.fromkeys(texts) if name])
    number = {name: place for place, name in enumerate(names)} | {"": -1}
    worker = np.array([number[text] for text in texts], np.int64)
    return Jobs(worker, np.ones(len(rows)), rows), names


def _named(reading: Reading, jobs: Jobs, roles: dict[str, int]) -> Jobs:
    """Refuses rows without a worker."""
    return sifted(
        reading,
        jobs,
        jobs.worker < 0,
        lambda _: f"{reading.table.title(roles['worker'])} must name the worker, got none",
    )


def _positive(
    reading: Reading,
    jobs: Jobs,
    place: int,
    what: str = "a positive number, how long a job took",
) -> Jobs:
    """Refuses durations that are not positive."""
    return sifted(
        reading,
        jobs,
        ~(np.isfinite(jobs.duration) & (jobs.duration > 0)),
        lambda at: (
            f"{reading.table.title(place)} must be {what}, got"
            f" {reading.table.entry(place, int(jobs.row[at]))}"
        ),
    )


def _with_ends(
    reading: Reading, jobs: Jobs, roles: dict[str, int], columns: Columns, is_date: bool
) -> Jobs:
    """Jobs whose starts are known, or follow."""
    if {"start", "end"} <= set(columns):
        jobs = _without_open(reading, jobs, roles, columns)
    for role in ("start", "end"):
        if role in columns:
            jobs = _finite(reading, jobs, roles[role], columns[role], "a time")
    start, end, duration = (columns.get(role) for role in ("start", "end", "duration"))
    if start is not None and end is not None:
        jobs = _spanned(reading, jobs, roles, columns, is_date)
    else:
        assert duration is not None
        jobs = jobs._replace(duration=duration[jobs.row])
        jobs = _positive(reading, jobs, roles["duration"])
        if start is not None:
            begin = start[jobs.row]
            jobs = jobs._replace(start=begin, end=begin + jobs.duration)
        else:
            assert end is not None
            stop = end[jobs.row]
            jobs = jobs._replace(start=stop - jobs.duration, end=stop)
    jobs = one_after_the_other(reading, jobs, roles)
    begin, stop = spans(jobs)
    return jobs._replace(start=begin - begin.min(), end=stop - begin.min())


def _spanned(
    reading: Reading, jobs: Jobs, roles: dict[str, int], columns: Columns, is_date: bool
) -> Jobs:
    """Jobs from their starts to their ends, as long as their durations where these agree."""
    start, end = columns["start"][jobs.row], columns["end"][jobs.row]
    took = np.round(end - start, 6) if is_date else end - start
    jobs = jobs._replace(start=start, end=end, duration=took)
    begun, ended = reading.table.title(roles["start"]), roles["end"]

    def words(at: int) -> str:
        row = int(jobs.row[at])
        return (
            f"{reading.table.title(ended)} must be after {begun},"
            f" {reading.table.entry(roles['start'], row)}, got {reading.table.entry(ended, row)}"
        )

    jobs = sifted(reading, jobs, ~(took > 0), words)
    if "duration" not in columns:
        return jobs
    own = columns["duration"][jobs.row]
    differs = ~(np.abs(own - jobs.duration) <= _AGREES * jobs.duration)
    if not differs.any():
        return jobs._replace(duration=own)
    at = int(np.argmax(differs))
    reading.notes.append(
        f"{reading.table.title(roles['duration'])} is not end less start in {int(differs.sum())} of"
        f" {len(differs)} rows, first {own[at]:g} and {jobs.duration[at]:g}"
        f" {reading.line(jobs, at)}: end less start was taken"
    )
    return jobs


def _without_open(reading: Reading, jobs: Jobs, roles: dict[str, int], columns: Columns) -> Jobs:
    """Leaves out the last job of a worker if it has no end: it was still open."""
    texts = reading.table.columns[roles["end"]]
    start = columns["start"][jobs.row]
    is_open = np.array([values.is_empty(texts[row]) for row in jobs.row.tolist()])
    if not is_open.any():
        return jobs
    latest = np.full(len(reading.names), -np.inf)
    np.maximum.at(latest, jobs.worker, np.where(np.isfinite(start), start, -np.inf))
    is_open &= start == latest[jobs.worker]
    if is_open.any() and not is_open.all():
        count = int(is_open.sum())
        reading.notes.append(
            f"{count} job{'s' * (count > 1)} without an end, each the last of a worker: still open,"
            " left out"
        )
        jobs = taken(jobs, ~is_open)
    return jobs


def _between(reading: Reading, jobs: Jobs, roles: dict[str, int], columns: Columns) -> Jobs:
    """Jobs of a log that says only when they ended, or only when they began."""
    role = "end" if "end" in columns else "start"
    jobs = _finite(reading, jobs, roles[role], columns[role], "a time")
    jobs = jobs._replace(step=columns[role][jobs.row])
    jobs = in_order(reading, jobs, reading.table.title(roles[role]))
    assert jobs.step is not None
    same = np.diff(jobs.worker) == 0
    goes_on = same & (np.diff(jobs.step) >= 0)  # not where a clock starts again
    took = np.diff(jobs.step)
    which = np.flatnonzero(goes_on) + (role == "end")
    if not which.size:
        raise ValueError(
            f"path must have two rows of a worker where it only tells when jobs {role}, got one a"
            f" worker in {reading.table.source}"
        )
    reading.notes.append(
        f"there are no durations: a job is what lies between two rows of a worker"
        f" ({reading.table.title(roles[role])}), pauses included; the"
        f" {'first' if role == 'end' else 'last'} row of each worker only begins or ends one"
    )
    jobs = taken(jobs, which)
    jobs = jobs._replace(duration=took[goes_on], stamp=jobs.step)
    return _positive(reading, jobs, roles[role], "later than that of the row before")


def _finite(reading: Reading, jobs: Jobs, place: int, column: np.ndarray, what: str) -> Jobs:
    """Refuses fields that are no numbers."""
    return sifted(
        reading,
        jobs,
        ~np.isfinite(column[jobs.row]),
        lambda at: (
            f"{reading.table.title(place)} must be {what}, got"
            f" {reading.table.entry(place, int(jobs.row[at]))}"
        ),
    )
