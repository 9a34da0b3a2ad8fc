"""Tables as logs, one row per job or one column per worker: jobs in time order by worker.

Of one row per job, its columns say how long the jobs took:

    start, end                 duration = end - start
    start or end, duration     the other follows
    duration                   in the order of a time or a step, or of the file
    end alone, or start alone  a job is what lies between two rows of a worker, pauses included

What is repaired is told in a note. Jobs are a pandas frame, whose index is the row of the table:

    worker           index of its name, int64
    duration         float64
    start, end       float64, where starts are known
    step, time       float64, where the table has such a column
    stamp            float64, the time of a job, where that is all it has
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import numpy as np

from asyncjax.checks import extra
from asyncjax.clocks.log_reader.headers import UNITS, workers_of
from asyncjax.clocks.log_reader.log import Log, notes_of_copies
from asyncjax.clocks.log_reader.tables import Column, Table, column_of, is_empty

Jobs = Any  # a pandas frame
Roles = dict[str, int]  # the column that plays each role

_AGREES = 1e-3  # share of a duration by which it may differ from end less start
_CONSTANT = ("batch", "job", "job id")  # counters that may be a size, or name the whole run
_LUCK = 1e-6  # chance by which durations may happen to grow in every row of every worker
_MOST_RESUMED = 4  # rows a worker must have for each time that its counter starts again
_ROUNDING = 1e-9  # of the largest time
_TOUCH = 1e-2  # of the shorter of two jobs, by which they may overlap


def log_of_rows(table: Table, roles: Roles, unit: float | None) -> Log:
    """The log of a table with one row per job; `unit` is what the caller says, in seconds."""
    pandas = extra("pandas", "logs")
    jobs = pandas.DataFrame({"worker": 0}, index=range(len(table.lines)))
    if "worker" in roles:
        place = roles["worker"]
        table.workers = sorted_names(list(filter(None, dict.fromkeys(table.columns[place]))))
        number = {name: worker for worker, name in enumerate(table.workers)}
        jobs["worker"] = [number.get(name, -1) for name in table.columns[place]]
        nameless = f"{table.title(place)} must name the worker, got none"
        jobs = sifted(table, jobs, jobs.worker < 0, lambda _: nameless)
    else:
        table.notes.append("there is no column of workers: all rows are of one, '0'")
    roles = _settled(table, roles, jobs)
    columns, units = _columns(table, roles, unit)
    jobs = jobs.join(pandas.DataFrame(columns))
    by = next((role for role in ("start", "end", "time", "step") if role in columns), None)
    if by in ("start", "end"):
        by, is_measured = None, {"took", "duration"} & set(columns)
        jobs = (_with_ends if is_measured else _between)(table, jobs, roles)
    elif by is None:
        jobs = positive(table, jobs, roles["duration"]).sort_values("worker", kind="stable")
    else:
        bad = ~np.isfinite(jobs[by])
        jobs = held(table, jobs, bad, roles[by], "a number that orders the rows")
        jobs = in_order(table, positive(table, jobs, roles["duration"]), by, roles[by])
    counter = next((role for role in ("step", "time") if role in jobs), None)
    if counter is not None and table.is_live:
        missing = int((jobs.groupby("worker")[counter].max() + 1).sum()) - len(jobs)
        if missing > 0:
            table.notes.append(
                f"{missing} jobs of the run did not arrive (stopped or lost), so they are not here"
            )
    if counter == "step":
        jobs = one_row_a_step(table, jobs, roles["step"])
    name = {role: table.name(place) for role, place in roles.items()}
    ends = [f"{role} {name[role]}" for role in ("start", "end") if role in name]
    took = "end less start" if len(ends) == 2 else "what lies between two rows of a worker"
    told = {
        "worker": name.get("worker", "none, all rows are of one"),
        "time": " and ".join(ends) or name.get(by or "", "none, rows in their order"),
        "duration": name.get("duration", took),
    }
    return finished(table, jobs, told, units)


def log_of_columns(table: Table, counter: int | None, unit: float | None) -> Log:
    """The log of a table with one column per worker and perhaps a `counter` of its rows."""
    pandas = extra("pandas", "logs")
    titles = table.names or [str(place) for place in range(len(table.columns))]
    places = [place for place, name in enumerate(titles) if name and place != counter]
    names, units = workers_of([titles[place] for place in places])
    table.workers = sorted_names(names)
    columns = {
        name: (place, column_of(table.texts(place), said if unit is None else unit))
        for name, place, said in zip(names, places, units, strict=True)
    }
    said = [column.seconds for _, column in columns.values() if column.seconds is not None]
    parts = []
    for worker, name in enumerate(table.workers):
        place, column = columns[name]
        scale = column.seconds or (said[0] if said else 1.0)
        cells = pandas.DataFrame({"worker": worker, "duration": column.values * scale})
        cells = cells[[not is_empty(text) for text in table.columns[place]]]
        parts.append(positive(table, cells, place))
    jobs = pandas.concat(parts)
    empty = len(table.lines) * len(places) - len(jobs)
    if counter is not None:
        count = table.times(counter)[0].values
        if np.isfinite(count).all():
            jobs = one_row_a_step(table, jobs.assign(step=count[jobs.index]), counter)
    if empty:
        table.notes.append(f"{empty} empty cells: no job of that worker in that row")
    if set(said) - {1.0}:
        table.notes.append("times were made seconds")
    ends = dict.fromkeys(table.title(place) for place in (places[0], places[-1]))
    told = {
        "worker": f"each of {len(places)}, {' to '.join(ends)}",
        "time": "none, rows in their order" if counter is None else table.title(counter),
        "duration": "the numbers in them",
    }
    return finished(table, jobs, told, said)


def _settled(table: Table, roles: Roles, jobs: Jobs) -> Roles:
    """The roles, with one that says how long jobs took; refuses a table in which none can."""
    if "duration" in roles or {"start", "end"} <= set(roles):
        return roles
    if "time" in roles:
        place = roles["time"]
        title = table.title(place)
        roles = {role: column for role, column in roles.items() if role != "time"}
        if "end" not in roles and _is_a_clock(table, place, jobs):
            table.notes.append(
                f"{title} grows with every row of a worker: read as when its jobs ended; if it is"
                f" how long they took, say duration={table.name(place)}"
            )
            return roles | {"end": place}
        table.notes.append(f"{title} is read as how long jobs took")
        return roles | {"duration": place}
    if {"start", "end"} & set(roles):
        return roles
    names = table.names or []
    free = [place for place, name in enumerate(names) if name and place not in roles.values()]
    numbers = [place for place in free if table.is_numeric(place)]
    if len(numbers) != 1 or "worker" not in roles:
        raise ValueError(
            "path must have a column of durations, or of starts and ends, or a column of durations"
            f" a worker, got {table.source} with the columns {', '.join(map(repr, names))}; say"
            " which is which, such as worker='rank', duration='took_ms'"
        )
    title = table.title(numbers[0])
    table.notes.append(f"{title} is read as how long jobs took: no other can be it")
    return roles | {"duration": numbers[0]}


def _is_a_clock(table: Table, place: int, jobs: Jobs) -> bool:
    """Whether a column of times tells when, not how long: it grows in every row of a worker."""
    (column,) = table.times(place)
    later = jobs.worker.duplicated()
    grows = growth(jobs.assign(time=column.values[jobs.index]), "time")[later] > 0
    luck = -sum(math.lgamma(count + 1.0) for count in jobs.worker.value_counts())
    return column.kind == "dates" or bool(grows.all() and luck < math.log(_LUCK))


def _columns(
    table: Table, roles: Roles, unit: float | None
) -> tuple[dict[str, np.ndarray], list[float]]:
    """Numbers by role in one unit, and the units in the file."""
    read: dict[str, Column] = {}
    if "duration" in roles:
        place = roles["duration"]
        read["duration"] = column_of(table.texts(place), table.heading(place)[1])
    ends = [role for role in ("start", "end") if role in roles]
    read |= dict(zip(ends, table.times(*(roles[role] for role in ends)), strict=True))
    for role, column in read.items():
        scale = column.seconds if column.kind or unit is None else unit
        if scale is None and column.since is not None:
            scale, since = column.since
            table.notes.append(f"{table.title(roles[role])} is read as {since} since 1970")
        if scale is None and table.is_live:
            scale = 1.0
        read[role] = column._replace(seconds=scale)
    units = [column.seconds for column in read.values() if column.seconds is not None]
    columns = {}
    for role, column in read.items():
        title = table.title(roles[role])
        if column.seconds is None and units:
            table.notes.append(f"{title} says no unit: read in that of the other times")
        columns[role] = column.values * (column.seconds or [*units, 1.0][0])
        if column.kind:
            table.notes.append(f"{title} has {column.kind}: read as seconds")
    if len(ends) == 2:
        took = columns["end"] - columns["start"]
        is_date = any(column.kind == "dates" for column in read.values())
        columns["took"] = np.round(took, 6) if is_date else took
    if set(units) - {1.0}:
        table.notes.append("times were made seconds")
    for role in ("time", "step"):
        if role in roles:
            values = table.times(roles[role])[0].values
            is_number = np.isfinite(values)
            if is_number.any() and (is_number.all() or not ends):
                columns[role] = values
            else:
                table.notes.append(f"{table.title(roles[role])} is not of numbers: not used")
    return columns, units


def _with_ends(table: Table, jobs: Jobs, roles: Roles) -> Jobs:
    """Jobs whose starts are known, or follow."""
    if "took" in jobs:
        jobs = _without_open(table, jobs, roles["end"])
    for role in ("start", "end"):
        if role in jobs:
            jobs = held(table, jobs, ~np.isfinite(jobs[role]), roles[role], "a time")
    if "took" in jobs:
        jobs = _spanned(table, jobs, roles)
    else:
        jobs = positive(table, jobs, roles["duration"])
        if "start" in jobs:
            jobs = jobs.assign(end=jobs.start + jobs.duration)
        else:
            jobs = jobs.assign(start=jobs.end - jobs.duration)
    jobs = one_after_the_other(table, jobs, roles)
    first = jobs.start.min()
    return jobs.assign(start=jobs.start - first, end=jobs.end - first)


def _without_open(table: Table, jobs: Jobs, place: int) -> Jobs:
    """Leaves out the last job of a worker if it has no end: it was still open."""
    known = jobs.start.where(np.isfinite(jobs.start))
    is_open = jobs.start == known.groupby(jobs.worker).transform("max")
    is_open &= np.array([is_empty(table.columns[place][row]) for row in jobs.index])
    count = int(is_open.sum())
    if not 0 < count < len(jobs):
        return jobs
    table.notes.append(
        f"{count} job{'s' * (count > 1)} without an end, each the last of a worker: still open,"
        " left out"
    )
    return jobs[~is_open]


def _spanned(table: Table, jobs: Jobs, roles: Roles) -> Jobs:
    """Jobs from their starts to their ends, as long as their durations where these agree."""
    begin, end = roles["start"], roles["end"]

    def words(row: int) -> str:
        after = f"after {table.title(begin)}, {table.entry(begin, row)}"
        return f"{table.title(end)} must be {after}, got {table.entry(end, row)}"

    jobs = sifted(table, jobs, ~(jobs.took > 0), words)
    if "duration" in jobs:
        differs = ~((jobs.duration - jobs.took).abs() <= _AGREES * jobs.took)
        if not differs.any():
            return jobs
        first = jobs[differs].iloc[0]
        table.notes.append(
            f"{table.title(roles['duration'])} is not end less start in {differs.sum()} of"
            f" {len(jobs)} rows, first {first.duration:g} and {first.took:g}"
            f" {table.where(jobs.index[differs][0])}: end less start was taken"
        )
    return jobs.assign(duration=jobs.took)


def _between(table: Table, jobs: Jobs, roles: Roles) -> Jobs:
    """Jobs of a log that says only when they ended, or only when they began."""
    role = "end" if "end" in jobs else "start"
    title = table.title(roles[role])
    jobs = held(table, jobs, ~np.isfinite(jobs[role]), roles[role], "a time")
    jobs = jobs.rename(columns={role: "stamp"}).assign(duration=1.0)
    jobs = in_order(table, jobs, "stamp", roles[role])
    jobs["duration"] = growth(jobs, "stamp")
    goes_on = jobs.duration >= 0  # not where a clock starts again
    if not goes_on.any():
        raise ValueError(
            f"path must have two rows of a worker where it only tells when jobs {role}, got one a"
            f" worker in {table.source}"
        )
    table.notes.append(
        f"there are no durations: a job is what lies between two rows of a worker ({title}), pauses"
        f" included; the {'first' if role == 'end' else 'last'} row of each worker only begins or"
        " ends one"
    )
    if role == "start":  # a job stands in the row in which it began
        jobs["duration"] = jobs.duration.shift(-1)
        goes_on = goes_on.shift(-1, fill_value=False)
    return positive(table, jobs[goes_on], roles[role], "later than that of the row before")


def sifted(table: Table, jobs: Jobs, bad: Any, words: Callable[[int], str]) -> Jobs:
    """The jobs that are not bad; refuses the first that is, unless such are to be left out."""
    if not bad.any():
        return jobs
    rows = jobs.index[bad]
    sentence = f"{words(rows[0])} {table.where(rows[0])}"
    if not table.drops:
        raise ValueError(sentence)
    table.notes.append(f"{_rows(len(rows))} left out as invalid, first: {sentence}")
    if len(rows) == len(jobs):
        raise ValueError(f"path must have a row that can be read, got none: {sentence}")
    return jobs[~bad]


def held(table: Table, jobs: Jobs, bad: Any, place: int, what: str) -> Jobs:
    """As `sifted`, of a column that must be `what`."""
    title = table.title(place)
    return sifted(
        table, jobs, bad, lambda row: f"{title} must be {what}, got {table.entry(place, row)}"
    )


def positive(table: Table, jobs: Jobs, place: int, what: str = "") -> Jobs:
    """Refuses durations that are not positive."""
    bad = ~(np.isfinite(jobs.duration) & (jobs.duration > 0))
    return held(table, jobs, bad, place, what or "a positive number, how long a job took")


def growth(jobs: Jobs, key: str) -> Any:
    """By how much a column grows from row to row of a worker; NaN in the first of each."""
    return jobs.groupby("worker")[key].diff()


def _is_often(jobs: Jobs, again: Any) -> Any:
    """By row, whether so many rows of its worker are not because its run was resumed."""
    count = again.groupby(jobs.worker).transform("sum")
    return count > np.maximum(1, count.groupby(jobs.worker).transform("size") // _MOST_RESUMED)


def in_order(table: Table, jobs: Jobs, key: str, place: int) -> Jobs:
    """Sorts the jobs of every worker by a column, unless it starts again: a resumed run."""
    jobs = _without_repeats(table, jobs.sort_values("worker", kind="stable"), key)
    falls, title = growth(jobs, key) < 0, table.title(place)
    if not falls.any():
        return jobs
    is_sortable = ~jobs.duplicated(["worker", key]).groupby(jobs.worker).transform("any")
    bad = ~is_sortable & _is_often(jobs, falls)
    if bad.any():
        worker = jobs.worker[bad].iloc[0]
        ordered = jobs[jobs.worker == worker].sort_values(key, kind="stable")
        twice = ordered[ordered.duplicated(key, keep=False)]
        one, other = twice.index[:2]
        raise ValueError(
            f"{title} must grow with the rows of a worker, or start again where a run was resumed;"
            f" worker {table.workers[worker]!r} has rows in no order and {twice[key].iloc[0]:g}"
            f" twice, in {table.line} {table.lines[one]} and {table.where(other)}"
        )
    moved = jobs.worker[falls & is_sortable].unique()
    if len(moved):
        whom = f"worker {table.workers[moved[0]]!r}" if len(moved) == 1 else f"{len(moved)} workers"
        table.notes.append(f"the rows of {whom} were not in the order of {title}: sorted")
    resumed = np.flatnonzero(falls & ~is_sortable)
    if len(resumed):
        step, first = jobs[key].to_numpy(), resumed[0]
        times = "" if len(resumed) == 1 else f", {len(resumed)} times in all"
        table.notes.append(
            f"{title} starts again at {step[first]:g} after {step[first - 1]:g} for worker"
            f" {_at(table, jobs, first)}{times}: read as a run that was resumed, rows in the"
            " order of the file"
        )
    order = np.where(is_sortable, jobs[key], np.arange(len(jobs)))
    return jobs.iloc[np.lexsort((order, jobs.worker))]


def one_after_the_other(table: Table, jobs: Jobs, roles: dict[str, int]) -> Jobs:
    """Sorts jobs whose starts are known; clocks that start again go on where they ended."""
    jobs = jobs.sort_values("worker", kind="stable")
    tidy = jobs.iloc[np.lexsort((jobs.end, jobs.start, jobs.worker))]
    is_sorted = tidy.index.equals(jobs.index)
    tidy = _without_repeats(table, tidy, "start")
    overlap = _overlap(tidy)
    if (overlap > 0).any() and not is_sorted:
        resumed = _resumed(table, jobs)
        if resumed is not None:
            return resumed
    if not is_sorted:
        table.notes.append("rows were not in the order of their starts: sorted")

    def words(row: int) -> str:
        before = table.lines[tidy.index[tidy.index.get_loc(row) - 1]]
        told = [table.entry(roles[role], row) for role in ("start", "end") if role in roles]
        return (
            "a job must begin after the one before it of its worker has ended"
            f" ({table.workers[tidy.worker[row]]!r}, {table.line} {before}), got"
            f" {' to '.join(told)}"
        )

    shorter = np.minimum(tidy.duration, tidy.groupby("worker").duration.shift())
    bad = overlap > _TOUCH * shorter
    jobs = sifted(table, tidy, bad, words)
    touching = overlap[~bad & (overlap > 0)]
    if len(touching):
        table.notes.append(
            f"jobs overlap by at most {touching.max():.2g}, {len(touching)} times: taken as"
            " rounding"
        )
    return jobs


def _overlap(jobs: Jobs) -> Any:
    """By how much each job begins before the one ahead of it ends, float64[K]; 0: not."""
    late = jobs.groupby("worker").end.shift() - jobs.start - _ROUNDING * jobs.end.abs().max()
    return late.clip(lower=0.0).fillna(0.0)


def _resumed(table: Table, jobs: Jobs) -> Jobs | None:
    """Jobs of a log whose clock starts again, in the order of the file; None: it is none."""
    falls = growth(jobs, "start") < 0
    part = falls.groupby(jobs.worker).cumsum()  # times that the clock of the worker started again
    near = jobs.start.min() + jobs.duration.max()  # where a clock that starts again is
    if _is_often(jobs, falls).any() or (jobs.start.groupby(part).min() > near).any():
        return None
    ends = jobs.end.groupby(part).max().to_numpy()
    shift = np.append(0.0, np.cumsum(ends)[:-1])[part]
    moved = jobs.assign(start=jobs.start + shift, end=jobs.end + shift)
    if (_overlap(moved) > _TOUCH * moved.duration).any():
        return None
    start, first = jobs.start.to_numpy(), int(np.argmax(falls))
    table.notes.append(
        f"start falls back to {start[first]:g} after {start[first - 1]:g} for worker"
        f" {_at(table, jobs, first)}, {part.max()} time(s): read as a run that was resumed,"
        " its time going on from the last end"
    )
    return moved


def _without_repeats(table: Table, jobs: Jobs, key: str) -> Jobs:
    """Leaves out rows that repeat the one before: the same worker, time or step, and duration."""
    same = growth(jobs, key) == 0
    again = same & (growth(jobs, "duration") == 0)
    is_shared = (same & ~again).any() or 2 * again.sum() > len(jobs)  # several rows make a step
    if not again.any() or (key != "start" and is_shared):
        return jobs
    rows = jobs.index[again]
    table.notes.append(
        f"{_rows(len(rows))} there twice, first that {table.where(rows[0])}: left out"
    )
    return jobs[~again]


def one_row_a_step(table: Table, jobs: Jobs, place: int) -> Jobs:
    """Rows of a step that are the same count once; refuses steps with several rows throughout."""
    same = growth(jobs, "step") == 0
    if not same.any():
        return jobs
    title, words = table.title(place), table.heading(place)[0]
    first, count = int(np.argmax(same)), int(same.sum())
    before, row = jobs.index[first - 1 : first + 1]
    if words == "epoch" or (words in _CONSTANT and jobs.step.nunique() == 1):
        table.notes.append(
            f"{title} has one number in several rows of a worker: each row is read as a job"
        )
        return jobs
    if "start" not in jobs and not growth(jobs, "duration")[same].any():
        table.notes.append(
            f"{_rows(count)} of a worker, a step ({title}) and a duration that were there already,"
            f" first that {table.where(row)}: each step is counted once"
        )
        return jobs[~same]
    told = (
        f"first {jobs.step.iloc[first]:g} of worker {table.workers[jobs.worker.iloc[first]]!r} in"
        f" {table.line} {table.lines[before]} and {table.where(row)}"
    )
    if _is_often(jobs, same).any():
        raise ValueError(
            f"{title} must number the jobs of a worker, got {count} rows with the step of the row"
            f" before, {told}: sum the rows of a step to one, or leave the column out if each row"
            " is a job"
        )
    table.notes.append(
        f"{title} is the same in rows of a worker, {count} times, {told}: read as jobs that were"
        " done again"
    )
    return jobs


def finished(table: Table, jobs: Jobs, columns: dict[str, str], units: list[float]) -> Log:
    """The log of jobs that are sorted by worker and then by time, with what its columns were."""
    starts = np.flatnonzero(np.diff(jobs.worker, prepend=-1))
    heard = jobs.worker.iloc[starts]
    silent = [table.workers[worker] for worker in sorted({*range(len(table.workers))} - {*heard})]
    if silent:
        table.notes.append(f"no job is left of worker {', '.join(map(repr, silent))}: left out")

    def rows(*keys: str) -> Any:
        columns = (np.split(jobs[key].to_numpy(), starts)[1:] for key in keys if key in jobs)
        return next(map(tuple, columns), None)

    workers = tuple(table.workers[worker] for worker in heard)
    table.notes.extend(notes_of_copies(workers, rows("duration")))
    short = {seconds: name for name, seconds in reversed(UNITS.items())}
    unit = " and ".join(short[seconds] for seconds in dict.fromkeys(units)) or "not said"
    source = table.source
    name = PurePath(source).name  # without the folders, which a page would show
    return Log(
        workers=workers,
        durations=rows("duration"),
        start=rows("start"),
        end=rows("end"),
        step=rows("step", "time"),
        lines=tuple(np.split(np.array(table.lines)[jobs.index], starts)[1:]),
        unit="seconds" if units else "time units",
        source=name,
        notes=tuple(note.replace(source, name) for note in table.notes),
        columns="; ".join(f"{name}: {what}" for name, what in (columns | {"unit": unit}).items()),
        stamps=rows("stamp"),
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

    def key(name: str) -> tuple[list[tuple[int, int, str]], str]:
        parts = re.split(r"(\d+)", name)
        split = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
        return split, name

    return sorted(names, key=key)


def _at(table: Table, jobs: Jobs, place: int) -> str:
    return f"{table.workers[jobs.worker.iloc[place]]!r} {table.where(jobs.index[place])}"


def _rows(count: int) -> str:
    return "a row is" if count == 1 else f"{count} rows are"
