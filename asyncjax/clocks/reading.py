"""Logs of real workers: a file as it comes, read as durations worker by worker.

A log tells how long jobs took, and no more is asked of it: whether it has one row per job or
one column per worker, how its columns are called, in which unit and order, is found out and noted.
What cannot be read is refused in one sentence that names the line.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax.checks import file_path, flag, shown, whole, within
from asyncjax.clocks.log_reader import jobs, tables, text_logs
from asyncjax.clocks.log_reader.headers import UNITS, roles_of
from asyncjax.clocks.log_reader.log import Log, notes_of_copies
from asyncjax.clocks.log_reader.tables import Table, is_value


def read_log(
    path: str | os.PathLike[str] | Mapping[str, Any] | Any,
    *,
    worker: str | None = None,
    step: str | None = None,
    start: str | None = None,
    end: str | None = None,
    duration: str | None = None,
    unit: str | None = None,
    pattern: str | None = None,
    drop_invalid: bool = False,
    max_unpacked: int | None = None,
) -> Log:
    r"""Reads how long the jobs of real workers took.

    A table in text (CSV, also with tabs, semicolons, bars or blanks; JSON lines; packed by gzip) in
    one of these shapes, in any order of columns and rows; files and rows need `asyncjax[logs]`:

        worker, step or time, duration         one row per job
        worker, start, end                     also start and duration, or end and duration
        worker, time                           a row whenever a job ended: what lies between them
        worker, job, start, arrived, ...       what `live.to_csv` writes
        a, b, c                                one column per worker, one row per step

    Also text logs, by a `pattern`; what `sacct -P` of Slurm prints; and profiles of torch or JAX
    (JSON with `traceEvents`), one or a folder of them, whose steps are jobs, by rank.

    Columns are known by their names ("rank" is a worker, "took_ms" a duration in milliseconds), and
    where there is no header by their place, as in the first of these shapes.

    Args:
        path: The file. Or what is in memory: a trace with starts, a mapping from worker to
            durations, an array [n, k] or a list of lists of durations, one per worker, a list of
            tuples `(worker, duration)` or `(worker, step, duration)`, or of mappings by name.
        worker: Name of the column of workers; None, here and below: found by itself.
        step: Name of the column of steps or times that orders the rows.
        start: Name of the column that says when a job began, numbers or dates.
        end: Name of the column that says when it ended.
        duration: Name of the column that says how long it took. If it is given, starts and ends
            that are not given only order the rows.
        unit: Of all numbers, such as "ms" or "seconds"; None: as the names of the columns say.
        pattern: Regular expression that is searched in every line of a text log; its named groups
            are columns, such as `r"rank(?P<worker>\d+) step (?P<step>\d+) .* (?P<took_ms>\d+) ms"`.
            Lines that it does not match are passed over. None: the file is a table. A text log
            without one is refused with a pattern that reads it, where one can be found.
        drop_invalid: Whether rows that cannot be read are left out, with a note, and not refused.
        max_unpacked: The most bytes that a packed file may unpack to; None: 200 times its size.

    Returns:
        The log; what was repaired is in its notes. Memory: about 500 bytes a row while it is read.

    Raises:
        ValueError: What cannot be read, or may mean two things; names the line.

    Note:
        Of a worker whose counter or clock starts again, in a file that is otherwise in order, it is
        supposed that its run was resumed. A time is supposed to say when a job ended, not how long
        it took, if it grows with every row of every worker. A comma is a decimal one or separates
        thousands as the other numbers of its column say ("1,500" beside "980.5" is 1500), and is a
        decimal one where semicolons separate fields.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "times.csv")
        ...     _ = path.write_text("rank;step;took_ms\nb;1;7\na;2;5\na;1;4\n")
        ...     log = traces.read_log(path)
        >>> log.workers, [row.tolist() for row in log.durations], log.unit
        (('a', 'b'), [[0.004, 0.005], [0.007]], 'seconds')
        >>> for note in log.notes:
        ...     print(note)
        fields are separated by semicolons
        times were made seconds
        the rows of worker 'a' were not in the order of column 'step': sorted
        >>> traces.read_log([("a", 1.0), ("a", -2.0)])
        Traceback (most recent call last):
        ValueError: column 2 must be a positive number, how long a job took, got '-2.0' in row 2
    """
    named = {"worker": worker, "step": step, "start": start, "end": end, "duration": duration}
    named = {name: column for name, column in named.items() if column is not None}
    if unit is not None and unit.lower() not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, or None, got {unit!r}")
    seconds = None if unit is None else UNITS[unit.lower()]
    drops = flag("drop_invalid", drop_invalid)
    if max_unpacked is not None:
        max_unpacked = whole("max_unpacked", max_unpacked)
    log = _durations(path)
    if log is not None:
        return log
    if not isinstance(path, str | os.PathLike):
        if pattern is not None:
            raise ValueError(f"pattern must be None where path is not a file, got {pattern!r}")
        return _log_of(_rows(path), named, seconds, drops)
    regex = None if pattern is None else _checked(pattern)
    file = Path(path)
    if file.is_dir():
        return _log_of(_profiles(file, max_unpacked), named, seconds, drops)
    text = tables.text_of_file(file_path("path", path), max_unpacked)
    if regex is not None:
        return _log_of(text_logs.matched(text, str(file), regex), named, seconds, drops)
    if tables.is_json(file) and (profile := _profile(text)) is not None:
        return _log_of(text_logs.of_profiles([("0", profile)], str(file)), named, seconds, drops)
    try:
        return _log_of(tables.of_text(text, file), named, seconds, drops)
    except ValueError as error:
        suggested = None if tables.is_json(file) or named else text_logs.suggested(text)
        if suggested is None:
            raise
        raise ValueError(
            f"path must be a table, got {file}, which looks like a text log; say"
            f" pattern=r{suggested!r}".replace(r"\\", "\\")
        ) from error


def read_durations(
    path: str | os.PathLike[str] | Mapping[str, Any] | Any,
    *,
    worker: str | None = None,
    step: str | None = None,
    start: str | None = None,
    end: str | None = None,
    duration: str | None = None,
    unit: str | None = None,
    pattern: str | None = None,
    drop_invalid: bool = False,
    max_unpacked: int | None = None,
) -> np.ndarray:
    r"""Reads the durations of the jobs of every worker, as `recorded` takes them.

    What `traces.read_log` reads, and with the same options; a log also has clocks with rows of
    unequal length, and notes on what was repaired.

    Args:
        path, worker, step, start, end, duration, unit, pattern: As in `traces.read_log`.
        drop_invalid, max_unpacked: As in `traces.read_log`.

    Returns:
        float64[n, k], in seconds if the log says its unit. Every worker is cut to the number of
        jobs of the one with the fewest; a warning says how many where this leaves out more than it
        takes.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import clocks
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "times.csv")
        ...     _ = path.write_text("worker,time,batch_time_norm\na,2,7\nb,1,4\na,1,5\n")
        ...     durations = clocks.read_durations(path)
        >>> durations
        array([[5.], [4.]])
        >>> clocks.recorded(durations).n_workers
        2
    """
    log = read_log(
        path,
        worker=worker,
        step=step,
        start=start,
        end=end,
        duration=duration,
        unit=unit,
        pattern=pattern,
        drop_invalid=drop_invalid,
        max_unpacked=max_unpacked,
    )
    return log.table()


def _log_of(table: Table, named: dict[str, str], seconds: float | None, drops: bool) -> Log:
    """The log of a table, some of whose columns are named."""
    table.drops = drops
    axis = _without_extremes(table)
    _without_unfinished(table)
    given = {name: _place(table, name, column) for name, column in named.items() if column}
    roles, counter = _roles(table, given, axis)
    if roles is None:
        return jobs.log_of_columns(table, counter, seconds)
    return jobs.log_of_rows(table, roles, seconds)


def _durations(path: Any) -> Log | None:
    """The log of durations in memory, worker by worker; None: it is something else."""
    if isinstance(path, Log):
        return path
    if hasattr(path, "read_version"):
        return _of_trace(path)
    if isinstance(path, Mapping):
        rows, source = list(path.items()), "a mapping"
    elif getattr(path, "ndim", 0) == 2:
        rows, source = list(enumerate(np.asarray(path))), "an array"
    elif isinstance(path, list | tuple) and all(map(_is_row, path)):
        rows, source = list(enumerate(path)), "a list"
    else:
        return None
    if not rows:
        raise ValueError(f"path must have a row of durations a worker, got none in {source}")
    times = {}
    for key, row in rows:
        times[str(key)] = np.asarray(within(f"path[{key!r}]", row, above=0.0), np.float64)
        if times[str(key)].ndim != 1 or not times[str(key)].size:
            raise ValueError(
                f"path[{key!r}] must be a list of durations, at least one, got {shown(row)}"
            )
    names = jobs.sorted_names(list(times))
    durations = tuple(times[name] for name in names)
    notes = tuple(notes_of_copies(names, durations))
    return Log(tuple(names), durations, source=source, notes=notes)


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and not any(isinstance(field, str) for field in row)


def _of_trace(trace: Any) -> Log:
    """The log of the arrivals of a trace."""
    if trace.start is None:
        raise ValueError(
            "path must be a trace that records starts, got one without (start is None)"
        )
    time, start = np.asarray(trace.time, np.float64), np.asarray(trace.start, np.float64)
    order = np.lexsort((start, trace.worker))
    heard, first = np.unique(np.asarray(trace.worker)[order], return_index=True)
    rows = np.split(order, first[1:])
    notes = []
    for part, words in ((trace.cancelled, "stopped"), (trace.open_jobs, "still open")):
        if part is not None and len(part.worker):
            notes.append(f"{len(part.worker)} jobs were {words}: not in the log")
    return Log(
        workers=tuple(str(worker) for worker in heard),
        durations=tuple(time[row] - start[row] for row in rows),
        start=tuple(start[row] - start.min() for row in rows),
        end=tuple(time[row] - start.min() for row in rows),
        source="a trace",
        notes=tuple(notes),
    )


def _rows(path: Any) -> Table:
    """The table of rows in memory."""
    if not isinstance(path, Sequence) or not path:
        raise TypeError(f"path must be the path of a file, or rows in memory, got {shown(path)}")
    if isinstance(path[0], Mapping):
        return tables.of_objects(enumerate(path, 1), "rows", "row")
    width = len(path[0])
    for number, row in enumerate(path, 1):
        if len(row) != width or width not in (2, 3):
            raise TypeError(
                "path must have rows (worker, duration) or (worker, step, duration), got"
                f" {shown(row)} in row {number}"
            )
    columns = [list(map(tables.text_of, column)) for column in zip(*path, strict=True)]
    return Table(None, columns, list(range(1, len(path) + 1)), "rows", "row")


def _checked(pattern: str) -> re.Pattern[str]:
    """A regular expression with named groups."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"pattern must be a regular expression, got {pattern!r}: {error}"
        ) from error
    if not compiled.groupindex:
        raise ValueError(
            "pattern must name its groups, such as (?P<worker>\\d+) and (?P<duration_ms>[\\d.]+),"
            f" got {pattern!r}"
        )
    return compiled


def _profile(text: str) -> dict[str, Any] | None:
    """The profile that a text is; None: it is none."""
    if '"traceEvents"' not in text:
        return None
    try:
        profile = json.loads(text)
    except json.JSONDecodeError:
        return None
    return profile if isinstance(profile, dict) and "traceEvents" in profile else None


def _profiles(folder: Path, max_unpacked: int | None) -> Table:
    """The table of the profiles in a folder, one a rank."""
    files = sorted(file for file in folder.iterdir() if tables.is_json(file))
    read = ((file, _profile(tables.text_of_file(file, max_unpacked))) for file in files)
    known = [(file.name.split(".")[0], profile) for file, profile in read if profile is not None]
    if not known:
        raise ValueError(f"path must be a file, or a folder of profiles in JSON, got {folder}")
    return text_logs.of_profiles(known, str(folder))


def _place(table: Table, argument: str, column: str) -> int:
    """The column that an argument names."""
    names = table.names
    if names is None:
        raise ValueError(
            f"{argument} must be None where columns have no names, got {column!r}; {table.source}"
            " has no header"
        )
    if column not in names:
        raise ValueError(
            f"{argument} must name a column of {table.source}, got {column!r}; found"
            f" {', '.join(map(repr, names))}"
        )
    return names.index(column)


def _without_extremes(table: Table) -> int | None:
    """Leaves `name__MIN` and `name__MAX` out; gives the one column that had none, if any."""
    names = table.names or []
    extremes = {name for name in names if name.endswith(("__MIN", "__MAX")) and name[:-5] in names}
    if not extremes:
        return None
    table.notes.append(
        f"{len(extremes)} columns that end in __MIN or __MAX, such as {min(extremes)!r}, are left"
        " out: a tracker's smallest and largest values of another column, not workers"
    )
    columns = dict(zip(names, table.columns, strict=True))
    table.names = [name for name in names if name not in extremes]
    table.columns = [columns[name] for name in table.names]
    beside = {name[:-5] for name in extremes}
    alone = [place for place, name in enumerate(table.names) if name and name not in beside]
    return alone[0] if len(alone) == 1 else None


def _without_unfinished(table: Table) -> None:
    """Leaves out of what Slurm's `sacct` prints steps of jobs, and jobs that were not completed."""
    if not {"JobID", "State"} <= set(table.names or ()):
        return
    columns = dict(zip(table.names or (), table.columns, strict=True))
    is_step = ["." in name for name in columns["JobID"]]
    is_step = is_step if not all(is_step) else [False] * len(is_step)
    states = [state.split()[0] if state else "no state" for state in columns["State"]]
    is_open = ["COMPLETED" in states and state != "COMPLETED" for state in states]
    unfinished = Counter(
        s for s, step, bad in zip(states, is_step, is_open, strict=True) if bad > step
    )
    if any(is_step):
        table.notes.append(f"{sum(is_step)} rows are steps of a job (a dot in JobID): left out")
    if unfinished:
        listed = ", ".join(f"{count} {state}" for state, count in sorted(unfinished.items()))
        table.notes.append(f"jobs that were not completed are left out: {listed}")
    stay = [at for at, bad in enumerate(map(max, is_step, is_open)) if not bad]
    table.columns = [[column[at] for at in stay] for column in table.columns]
    table.lines = [table.lines[at] for at in stay]
    if any("[" in nodes or "," in nodes for nodes in columns.get("NodeList", ())):
        table.notes.append("a job on several nodes counts as one of a worker with their names")


def _roles(
    table: Table, given: dict[str, int], axis: int | None
) -> tuple[dict[str, int] | None, int | None]:
    """Which column plays which role; None where each is a worker, then with that which counts."""
    if table.names is None:
        return _roles_by_place(table), None
    free = [name if place not in given.values() else "" for place, name in enumerate(table.names)]
    roles, others = roles_of(free)
    if "duration" in given:
        begun = roles.pop("start", None)
        roles.pop("end", None)
        if begun is not None and not {"step", "time"} & set(roles):
            roles["time"] = begun
    if "step" in given:
        roles.pop("time", None)
    if not {"worker", "start", "end", "duration"} & {*roles, *given}:
        counters = (roles[role] for role in ("step", "time") if role in roles)
        counter = next((place for place in counters if _counts(table, place)), None)
        counter = axis if axis is not None else counter
        columns = [place for place, name in enumerate(table.names) if name and place != counter]
        if columns and all(table.is_numeric(place, empty=True) for place in columns):
            return None, counter
    for role in ("worker", "duration"):
        if role not in given and others.get(role) and (role == "worker" or "end" not in roles):
            unused = ", ".join(map(repr, others[role]))
            table.notes.append(
                f"column {table.names[roles[role]]!r} is read as the {role}, not {unused}"
            )
    return roles | given, None


def _roles_by_place(table: Table) -> dict[str, int] | None:
    """The roles of columns without names; None: each is a worker."""
    width, first = len(table.columns), table.columns[0]
    if width == 1:
        return {"duration": 0}
    if table.line != "row":
        table.notes.append("there is no header: columns are known by their places")
    if width == 2:
        counts = all(map(str.isdigit, first)) and len(set(first)) < len(first)
        if table.line == "row" or counts or not all(map(is_value, first)):
            return {"worker": 0, "duration": 1}
    if width == 3:
        last = {"start": 1, "end": 2} if _is_spans(table) else {"step": 1, "duration": 2}
        return {"worker": 0, **last}
    if width > 3 and all(table.is_numeric(place, empty=True) for place in range(width)):
        return None
    raise ValueError(
        f"path must have a header that names its {width} columns, got none in {table.source}"
    )


def _is_spans(table: Table) -> bool:
    """Whether the second and third columns are starts and ends: no job begins before the last."""
    begin, end = (table.times(place)[0] for place in (1, 2))
    if begin.kind == end.kind == "dates":
        return True
    if not (np.isfinite(begin.values) & (end.values > begin.values)).all():
        return False
    latest: dict[str, float] = {}
    for name, first, last in zip(table.columns[0], begin.values, end.values, strict=True):
        if first < latest.get(name, -np.inf):
            return False
        latest[name] = last
    return len(latest) < len(table.lines)


def _counts(table: Table, place: int) -> bool:
    """Whether a column counts the rows of a wide table."""
    goes = np.diff(table.times(place)[0].values)
    return bool((goes >= 0).all() and (goes.any() or not goes.size))
