"""Tables as logs: a row a job, or a column a worker.

start, end                 duration = end - start
start or end, duration     the other follows
duration                   in the order of a time or a step, or of the file
end alone, or start alone  a job is what lies between two rows of a worker, pauses included
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from asyncjax.checks import extra
from asyncjax.traces.log_reader.headers import workers_of
from asyncjax.traces.log_reader.jobs import (
    Jobs,
    finished,
    growth,
    held,
    in_order,
    one_after_the_other,
    one_row_a_step,
    positive,
    sifted,
    sorted_names,
)
from asyncjax.traces.log_reader.log import Log
from asyncjax.traces.log_reader.tables import Table
from asyncjax.traces.log_reader.values import Column, column_of, is_empty, times_of

_AGREES = 1e-3  # share of a duration by which it may differ from end less start
_LUCK = 1e-6  # chance by which durations may happen to grow in every row of every worker
_LIVE = {"arrived", "handled", "done", "computed", "read_version"}  # columns of `live.to_csv`

Roles = dict[str, int]  # the column that plays each role


def log_of_rows(table: Table, roles: Roles, unit: float | None) -> Log:
    """The log of a table with a row a job; `unit` is what the caller says a unit is, in seconds."""
    pandas = extra("pandas", "logs")
    names, workers = ["0"], np.zeros(len(table.lines), np.int64)
    if "worker" in roles:
        texts = table.columns[roles["worker"]]
        names = sorted_names([name for name in dict.fromkeys(texts) if name])
        workers = pandas.Index(names, dtype=object).get_indexer(texts)
    else:
        table.notes.append("there is no column of workers: all rows are of one, '0'")
    jobs = pandas.DataFrame({"worker": workers})
    jobs = sifted(
        table,
        jobs,
        jobs.worker < 0,
        lambda _: f"{table.title(roles['worker'])} must name the worker, got none",
    )
    roles = _settled(table, roles, jobs)
    columns, units, is_date = _columns(table, roles, unit)
    by = _order(table, roles, columns)
    jobs = jobs.join(pandas.DataFrame(columns))
    if by is not None:
        bad = ~np.isfinite(jobs[by])
        jobs = held(table, jobs, bad, roles[by], "a number that orders the rows")
    n_ends = len({"start", "end"} & set(columns))
    if "duration" not in columns and n_ends < 2:
        jobs = _between(table, names, jobs, roles)
    elif n_ends:
        jobs = _with_ends(table, names, jobs, roles, is_date=is_date)
    else:
        jobs = positive(table, jobs, roles["duration"])
        if by is None:
            jobs = jobs.sort_values("worker", kind="stable")
        else:
            jobs = in_order(table, names, jobs, by, table.title(roles[by]))
    if set(table.names or ()) >= _LIVE and {"step", "time"} & set(jobs):
        number = jobs.get("step", jobs.get("time"))
        missing = int((number.groupby(jobs.worker).max() + 1).sum()) - len(jobs)
        if missing > 0:
            table.notes.append(
                f"{missing} jobs of the run did not arrive (stopped or lost), so they are not here"
            )
    if "step" in jobs:
        jobs = one_row_a_step(table, names, jobs, "step", roles["step"])
    return finished(table, names, jobs, _told(table, roles, by), units)


def log_of_columns(table: Table, counter: int | None, unit: float | None) -> Log:
    """The log of a table with a column a worker; empty cells are jobs that there were not.

    `counter` is the column that counts the rows, if there is one; `unit` as in `log_of_rows`.
    """
    pandas = extra("pandas", "logs")
    titles = table.names or [str(place) for place in range(len(table.columns))]
    places = [place for place, name in enumerate(titles) if name and place != counter]
    workers, units = workers_of([titles[place] for place in places])
    names = sorted_names(workers)
    columns = {
        worker: (place, column_of(table.texts(place), said if unit is None else unit))
        for worker, place, said in zip(workers, places, units, strict=True)
    }
    said = [column.seconds for _, column in columns.values() if column.seconds is not None]
    parts = []
    for number, name in enumerate(names):
        place, column = columns[name]
        scale = column.seconds or (said[0] if said else 1.0)
        jobs = pandas.DataFrame({"worker": number, "duration": column.values * scale})
        jobs = jobs[[not is_empty(text) for text in table.columns[place]]]
        parts.append(positive(table, jobs, place))
    jobs = pandas.concat(parts)
    empty = len(table.lines) * len(places) - len(jobs)
    if counter is not None:
        (count,) = times_of([(table.texts(counter), None)])
        if np.isfinite(count.values).all():
            jobs["step"] = count.values[jobs.index]
            jobs = one_row_a_step(table, names, jobs, "step", counter)
    if empty:
        table.notes.append(f"{empty} empty cells: no job of that worker in that row")
    if any(seconds != 1.0 for seconds in said):
        table.notes.append("times were made seconds")
    ends = [table.title(place) for place in (places[0], places[-1])]
    told = {
        "worker": f"each of {len(places)}, {' to '.join(dict.fromkeys(ends))}",
        "time": "none, rows in their order" if counter is None else table.title(counter),
        "duration": "the numbers in them",
    }
    return finished(table, names, jobs, told, said)


def without_extremes(table: Table) -> tuple[Table, int | None]:
    """A tracker's chart export without the smallest and largest values that stand beside others.

    Such a table has a column of steps or times, and for each run `name`, `name__MIN`, `name__MAX`.
    The second is the place of the one column that had no such columns beside it, if any.
    """
    names = table.names or []
    extremes = {name for name in names if name.endswith(("__MIN", "__MAX")) and name[:-5] in names}
    if not extremes:
        return table, None
    table.notes.append(
        f"{len(extremes)} columns that end in __MIN or __MAX, such as {min(extremes)!r}, are left"
        " out: a tracker's smallest and largest values of another column, not workers"
    )
    places = [place for place, name in enumerate(names) if name not in extremes]
    kept = [names[place] for place in places]
    alone = [
        place
        for place, name in enumerate(kept)
        if name and not {f"{name}__MIN", f"{name}__MAX"} & extremes
    ]
    table = replace(table, names=kept, columns=[table.columns[place] for place in places])
    return table, alone[0] if len(alone) == 1 else None


def _settled(table: Table, roles: Roles, jobs: Jobs) -> Roles:
    """The roles, with one that says how long jobs took; refuses a table in which none can."""
    if "duration" in roles or {"start", "end"} <= set(roles):
        return roles
    roles = dict(roles)
    if "time" in roles:
        place = roles.pop("time")
        name = table.title(place)
        if "end" not in roles and _is_a_clock(table, place, jobs):
            table.notes.append(
                f"{name} grows with every row of a worker: read as when its jobs ended; if it is"
                f" how long they took, say duration={name.removeprefix('column ')}"
            )
            return roles | {"end": place}
        table.notes.append(f"{name} is read as how long jobs took")
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
    (column,) = times_of([(table.texts(place), None)])
    if column.kind == "dates":
        return True
    later = jobs.worker.duplicated()
    grows = growth(jobs.assign(time=column.values[jobs.index]), "time")[later] > 0
    luck = -sum(math.lgamma(count + 1.0) for count in jobs.worker.value_counts())
    return bool(later.any() and grows.all() and luck < math.log(_LUCK))


def _columns(
    table: Table, roles: Roles, unit: float | None
) -> tuple[dict[str, np.ndarray], list[float], bool]:
    """Numbers by role in one unit, the units in the file, and whether times are dates."""
    fields = {r: (table.texts(p), table.heading(p)[1]) for r, p in roles.items() if r != "worker"}
    read: dict[str, Column] = {}
    if "duration" in fields:
        read["duration"] = column_of(*fields["duration"])
    ends = [role for role in ("start", "end") if role in fields]
    read |= dict(zip(ends, times_of([fields[role] for role in ends]), strict=True))
    names = {role: table.title(place) for role, place in roles.items()}
    scales: dict[str, float | None] = {}
    for role, column in read.items():
        scales[role] = column.seconds if column.kind or unit is None else unit
        if scales[role] is None and column.since is not None:
            scales[role], since = column.since
            table.notes.append(f"{names[role]} is read as {since} since 1970")
    if set(table.names or ()) >= _LIVE:
        scales = {role: scale or 1.0 for role, scale in scales.items()}
    said = [scale for scale in scales.values() if scale is not None]
    columns = {}
    for role, column in read.items():
        scale = scales[role]
        if scale is None and said:
            scale = said[0]
            table.notes.append(f"{names[role]} says no unit: read in that of the other times")
        columns[role] = column.values * (scale or 1.0)
        if column.kind:
            table.notes.append(f"{names[role]} has {column.kind}: read as seconds")
    for role in ("step", "time"):
        if role in fields:
            columns[role] = times_of([fields[role]])[0].values
    if any(scale != 1.0 for scale in said):
        table.notes.append("times were made seconds")
    return columns, said, any(column.kind == "dates" for column in read.values())


def _order(table: Table, roles: Roles, columns: dict[str, np.ndarray]) -> str | None:
    """The role that orders rows: a time, or else a step; a column without numbers is ignored."""
    is_timed = bool({"start", "end"} & set(columns))
    known = [role for role in ("time", "step") if role in columns]
    for role in tuple(known):
        is_number = np.isfinite(columns[role])
        if not is_number.any() or (is_timed and not is_number.all()):
            table.notes.append(f"{table.title(roles[role])} is not of numbers: not used")
            known.remove(role)
            del columns[role]
    return None if is_timed or not known else known[0]


def _with_ends(table: Table, names: list[str], jobs: Jobs, roles: Roles, *, is_date: bool) -> Jobs:
    """Jobs whose starts are known, or follow."""
    has_both = {"start", "end"} <= set(jobs)
    if has_both:
        jobs = _without_open(table, jobs, roles["end"])
    for role in ("start", "end"):
        if role in jobs:
            jobs = held(table, jobs, ~np.isfinite(jobs[role]), roles[role], "a time")
    if has_both:
        jobs = _spanned(table, jobs, roles, is_date=is_date)
    else:
        jobs = positive(table, jobs, roles["duration"])
        if "start" in jobs:
            jobs = jobs.assign(end=jobs.start + jobs.duration)
        else:
            jobs = jobs.assign(start=jobs.end - jobs.duration)
    jobs = one_after_the_other(table, names, jobs, roles)
    first = jobs.start.min()
    return jobs.assign(start=jobs.start - first, end=jobs.end - first)


def _without_open(table: Table, jobs: Jobs, place: int) -> Jobs:
    """Leaves out the last job of a worker if it has no end: it was still open."""
    start = jobs.start.where(np.isfinite(jobs.start), -np.inf)
    is_open = start == start.groupby(jobs.worker).transform("max")
    is_open &= np.array([is_empty(table.columns[place][row]) for row in jobs.index])
    count = int(is_open.sum())
    if not 0 < count < len(jobs):
        return jobs
    table.notes.append(
        f"{count} job{'s' * (count > 1)} without an end, each the last of a worker: still open,"
        " left out"
    )
    return jobs[~is_open]


def _spanned(table: Table, jobs: Jobs, roles: Roles, *, is_date: bool) -> Jobs:
    """Jobs from their starts to their ends, as long as their durations where these agree."""
    begin, end = roles["start"], roles["end"]
    jobs = jobs.assign(took=jobs.end - jobs.start)
    if is_date:
        jobs["took"] = jobs.took.round(6)
    jobs = sifted(
        table,
        jobs,
        ~(jobs.took > 0),
        lambda row: (
            f"{table.title(end)} must be after {table.title(begin)}, {table.entry(begin, row)}, got"
            f" {table.entry(end, row)}"
        ),
    )
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


def _between(table: Table, names: list[str], jobs: Jobs, roles: Roles) -> Jobs:
    """Jobs of a log that says only when they ended, or only when they began."""
    role = "end" if "end" in jobs else "start"
    title = table.title(roles[role])
    jobs = held(table, jobs, ~np.isfinite(jobs[role]), roles[role], "a time")
    jobs = jobs.rename(columns={role: "stamp"}).assign(duration=1.0)
    jobs = in_order(table, names, jobs, "stamp", title)
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


def _told(table: Table, roles: Roles, by: str | None) -> dict[str, str]:
    """Which columns were read as what, in words."""
    column = {role: table.title(place) for role, place in roles.items()}
    if table.names:
        column = {role: title.removeprefix("column ") for role, title in column.items()}
    ends = [f"{role} {column[role]}" for role in ("start", "end") if role in column]
    took = "end less start" if len(ends) == 2 else "what lies between two rows of a worker"
    in_order = "none, rows in their order" if by is None else column[by]
    return {
        "worker": column.get("worker", "none, all rows are of one"),
        "time": " and ".join(ends) or in_order,
        "duration": column.get("duration", took),
    }
