"""Rows as jobs: in order of time, worker by worker, positive and one after the other.

What is repaired is told in a note: rows out of order, rows that are there twice, counters and
clocks that start again after a run was resumed, ends that touch the next start by rounding.

Jobs are a pandas frame with a row a job, whose index is the row of the table:

    worker           index of its name, int64
    duration         float64
    start, end       float64, where starts are known
    step, time       float64, where the table has such a column
    stamp            float64, the time of a job, where that is all it has
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import numpy as np

from asyncjax.traces.log_reader.headers import UNITS
from asyncjax.traces.log_reader.log import Log, notes_of_copies
from asyncjax.traces.log_reader.tables import Table

Jobs = Any  # a pandas frame

_ROUNDING = 1e-9  # of the largest time
_TOUCH = 1e-2  # of the shorter of two jobs, by which they may overlap
_CONSTANT = ("batch", "job", "job id")  # counters that may be a size, or name the whole run
_MOST_RESUMED = 4  # rows a worker must have for each time that its counter starts again


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


def in_order(table: Table, names: list[str], jobs: Jobs, key: str, title: str) -> Jobs:
    """Sorts the jobs of every worker by a column.

    A counter that starts again is that of a run that was resumed: its rows stay as they are.
    """
    jobs = _without_repeats(table, jobs.sort_values("worker", kind="stable"), key)
    falls = growth(jobs, key) < 0
    if not falls.any():
        return jobs
    by_worker = jobs.groupby("worker")[key]
    n_rows = by_worker.transform("size")
    n_falls = falls.groupby(jobs.worker).transform("sum")
    is_sortable = by_worker.transform("nunique") == n_rows
    bad = ~is_sortable & (n_falls > np.maximum(1, n_rows // _MOST_RESUMED))
    if bad.any():
        worker = jobs.worker[bad].iloc[0]
        ordered = jobs[jobs.worker == worker].sort_values(key, kind="stable")
        twice = ordered[ordered.duplicated(key, keep=False)]
        one, other = twice.index[:2]
        raise ValueError(
            f"{title} must grow with the rows of a worker, or start again where a run was resumed;"
            f" worker {names[worker]!r} has rows in no order and {twice[key].iloc[0]:g} twice, in"
            f" {table.line} {table.lines[one]} and {table.where(other)}"
        )
    moved = jobs.worker[falls & is_sortable].unique()
    if len(moved):
        whom = f"worker {names[moved[0]]!r}" if len(moved) == 1 else f"{len(moved)} workers"
        table.notes.append(f"the rows of {whom} were not in the order of {title}: sorted")
    resumed = np.flatnonzero(falls & ~is_sortable)
    if len(resumed):
        step, first = jobs[key].to_numpy(), resumed[0]
        times = "" if len(resumed) == 1 else f", {len(resumed)} times in all"
        table.notes.append(
            f"{title} starts again at {step[first]:g} after {step[first - 1]:g} for worker"
            f" {_at(table, names, jobs, first)}{times}: read as a run that was resumed, rows in the"
            " order of the file"
        )
    order = np.where(is_sortable, jobs[key], np.arange(len(jobs)))
    return jobs.iloc[np.lexsort((order, jobs.worker))]


def one_after_the_other(table: Table, names: list[str], jobs: Jobs, roles: dict[str, int]) -> Jobs:
    """Sorts jobs whose starts are known; clocks that start again go on where they ended.

    `roles` has the columns of starts and ends, or one of them. Refuses jobs of a worker that
    overlap by more than rounding.
    """
    jobs = jobs.sort_values("worker", kind="stable")
    tidy = jobs.iloc[np.lexsort((jobs.end, jobs.start, jobs.worker))]
    is_sorted = tidy.index.equals(jobs.index)
    tidy = _without_repeats(table, tidy, "start")
    overlap = _overlap(tidy)
    if (overlap > 0).any() and not is_sorted:
        resumed = _resumed(table, names, jobs)
        if resumed is not None:
            return resumed
    if not is_sorted:
        table.notes.append("rows were not in the order of their starts: sorted")

    def words(row: int) -> str:
        at = tidy.index.get_loc(row)
        told = [table.entry(roles[role], row) for role in ("start", "end") if role in roles]
        return (
            "a job must begin after the one before it of its worker has ended"
            f" ({names[tidy.worker[row]]!r}, {table.line} {table.lines[tidy.index[at - 1]]}), got"
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


def _resumed(table: Table, names: list[str], jobs: Jobs) -> Jobs | None:
    """Jobs of a log whose clock starts again, in the order of the file; None: it is none."""
    falls = growth(jobs, "start") < 0
    part = falls.groupby(jobs.worker).cumsum()  # times that the clock of the worker started again
    n_rows = jobs.groupby("worker").start.transform("size")
    near = jobs.start.min() + jobs.duration.max()  # where a clock that starts again is
    if (part > np.maximum(1, n_rows // _MOST_RESUMED)).any():
        return None
    if (jobs.start.groupby(part).min() > near).any():
        return None
    ends = jobs.end.groupby(part).max().to_numpy()
    shift = np.append(0.0, np.cumsum(ends)[:-1])[part]
    moved = jobs.assign(start=jobs.start + shift, end=jobs.end + shift)
    if (_overlap(moved) > _TOUCH * moved.duration).any():
        return None
    start, first = jobs.start.to_numpy(), int(np.argmax(falls))
    table.notes.append(
        f"start falls back to {start[first]:g} after {start[first - 1]:g} for worker"
        f" {_at(table, names, jobs, first)}, {part.max()} time(s): read as a run that was resumed,"
        " its time going on from the last end"
    )
    return moved


def _without_repeats(table: Table, jobs: Jobs, key: str) -> Jobs:
    """Leaves out rows that repeat the one before: the same worker, time or step, and duration."""
    same = growth(jobs, key) == 0
    again = same & (growth(jobs, "duration") == 0)
    # Steps may repeat because several rows make one.
    if not again.any() or (
        key != "start" and ((same & ~again).any() or 2 * again.sum() > len(jobs))
    ):
        return jobs
    rows = jobs.index[again]
    table.notes.append(
        f"{_rows(len(rows))} there twice, first that {table.where(rows[0])}: left out"
    )
    return jobs[~again]


def one_row_a_step(table: Table, names: list[str], jobs: Jobs, key: str, place: int) -> Jobs:
    """Looks whether rows of a worker that follow each other have one step.

    Rows that are otherwise the same count once; a few may be jobs that were done again. Refuses
    steps that have several rows throughout: what a row is, is not known.
    """
    same = growth(jobs, key) == 0
    if not same.any():
        return jobs
    title, words = table.title(place), table.heading(place)[0]
    first, count = int(np.argmax(same)), int(same.sum())
    if words == "epoch" or (words in _CONSTANT and jobs[key].nunique() == 1):
        table.notes.append(
            f"{title} has one number in several rows of a worker: each row is read as a job"
        )
        return jobs
    if "start" not in jobs and not growth(jobs, "duration")[same].any():
        table.notes.append(
            f"{_rows(count)} of a worker, a step ({title}) and a duration that were there already,"
            f" first that {table.where(jobs.index[first])}: each step is counted once"
        )
        return jobs[~same]
    step, worker = jobs[key].iloc[first], names[jobs.worker.iloc[first]]
    lines = f"in {table.line} {table.lines[jobs.index[first - 1]]} and"
    told = f"first {step:g} of worker {worker!r} {lines} {table.where(jobs.index[first])}"
    n_same = same.groupby(jobs.worker).sum()
    if (n_same > np.maximum(1, jobs.groupby("worker").size() // _MOST_RESUMED)).any():
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


def finished(
    table: Table, names: list[str], jobs: Jobs, columns: dict[str, str], units: list[float]
) -> Log:
    """The log of jobs that are sorted by worker and then by time, with what its columns were."""
    heard = jobs.worker.unique()
    silent = [name for worker, name in enumerate(names) if worker not in set(heard)]
    if silent:
        table.notes.append(f"no job is left of worker {', '.join(map(repr, silent))}: left out")
    cuts = np.flatnonzero(np.diff(jobs.worker)) + 1

    def rows(*keys: str) -> tuple[np.ndarray, ...] | None:
        key = next((key for key in keys if key in jobs), None)
        return None if key is None else tuple(np.split(jobs[key].to_numpy(), cuts))

    durations = rows("duration")
    assert durations is not None
    workers = tuple(names[worker] for worker in heard)
    table.notes.extend(notes_of_copies(workers, durations))
    short = {seconds: name for name, seconds in reversed(UNITS.items())}
    unit = " and ".join(short[seconds] for seconds in dict.fromkeys(units)) or "not said"
    source = table.source
    name = PurePath(source).name  # without the folders, which a page would show
    return Log(
        workers=workers,
        durations=durations,
        start=rows("start"),
        end=rows("end"),
        step=rows("step", "time"),
        lines=tuple(np.split(np.array(table.lines)[jobs.index], cuts)),
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


def _at(table: Table, names: list[str], jobs: Jobs, place: int) -> str:
    return f"{names[jobs.worker.iloc[place]]!r} {table.where(jobs.index[place])}"


def _rows(count: int) -> str:
    return "a row is" if count == 1 else f"{count} rows are"
