"""Rows as jobs: in order of time, worker by worker, positive and one after the other.

What is repaired is told in a note: rows out of order, rows that are there twice, counters and
clocks that start again after a run was resumed, ends that touch the next start by rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asyncjax.traces.log_reader.headers import read_heading
from asyncjax.traces.log_reader.text import Table

_ROUNDING = 1e-9  # of the largest time
_TOUCH = 1e-2  # of the shorter of two jobs, by which they may overlap
_CONSTANT = ("batch", "job", "job id")  # counters that may be a size, or name the whole run
_MOST_RESUMED = 4  # rows a worker must have for each time that its counter starts again


class Jobs(NamedTuple):
    """A job a row; K in all."""

    worker: np.ndarray  # int64[K], index of the name
    duration: np.ndarray  # float64[K]
    row: np.ndarray  # int64[K], row of the table
    start: np.ndarray | None = None  # float64[K]
    end: np.ndarray | None = None  # float64[K]
    step: np.ndarray | None = None  # float64[K], of the column that orders the rows
    counter: np.ndarray | None = None  # float64[K], of the column of steps, or else of times
    stamp: np.ndarray | None = None  # float64[K], its time, where that is all it has


class Reading(NamedTuple):
    """What the jobs of a table are read with."""

    table: Table
    names: list[str]  # of the workers
    drops: bool  # whether rows that cannot be read are left out
    notes: list[str]

    def line(self, jobs: Jobs, place: int) -> str:
        """Where a job stands."""
        return self.table.where(int(jobs.row[place]))


def taken(jobs: Jobs, which: np.ndarray) -> Jobs:
    """Some of the jobs: a mask, or places in an order."""
    return jobs._replace(
        **{name: column[which] for name, column in jobs._asdict().items() if column is not None}
    )


def spans(jobs: Jobs) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of jobs that have them, float64[K] each."""
    assert jobs.start is not None
    assert jobs.end is not None
    return jobs.start, jobs.end


def sifted(reading: Reading, jobs: Jobs, bad: np.ndarray, words: Callable[[int], str]) -> Jobs:
    """The jobs that are not bad; refuses the first that is, unless such are to be left out.

    Raises:
        ValueError: A job is bad; `words(place)` says how.
    """
    if not bad.any():
        return jobs
    first = int(np.argmax(bad))
    sentence = f"{words(first)} {reading.line(jobs, first)}"
    if not reading.drops:
        raise ValueError(sentence)
    count = int(bad.sum())
    reading.notes.append(f"{_rows(count)} left out as invalid, first: {sentence}")
    if count == len(bad):
        raise ValueError(f"path must have a row that can be read, got none: {sentence}")
    return taken(jobs, ~bad)


def in_order(reading: Reading, jobs: Jobs, by: str) -> Jobs:
    """Sorts the jobs of every worker by their step, which `by` names.

    A counter that starts again is that of a run that was resumed: its rows stay as they are.

    Raises:
        ValueError: A step is there twice, and rows are in no order.
    """
    assert jobs.step is not None
    by_worker = np.argsort(jobs.worker, kind="stable")
    jobs = taken(jobs, by_worker)
    jobs = _without_repeats(reading, jobs)
    step, worker = jobs.step, jobs.worker
    assert step is not None
    falls = np.append(False, (np.diff(step) < 0) & (np.diff(worker) == 0))
    if not falls.any():
        return jobs
    order = np.arange(len(worker))
    resumed: list[int] = []
    n_sorted = 0
    for rows in _rows_by_worker(worker):
        if not falls[rows].any():
            continue
        if len(np.unique(step[rows])) == len(step[rows]):
            order[rows] = rows.start + np.argsort(step[rows], kind="stable")
            n_sorted += 1
            continue
        again = rows.start + np.flatnonzero(falls[rows])
        if len(again) > max(1, len(step[rows]) // _MOST_RESUMED):
            _refuse_disorder(reading, jobs, rows, by)
        resumed += again.tolist()
    if n_sorted:
        whom = f"worker {_name(reading, jobs, int(np.argmax(falls)))}"
        whom = whom if n_sorted == 1 else f"{n_sorted} workers"
        reading.notes.append(f"the rows of {whom} were not in the order of {by}: sorted")
    if resumed:
        first = resumed[0]
        times = "" if len(resumed) == 1 else f", {len(resumed)} times in all"
        reading.notes.append(
            f"{by} starts again at {step[first]:g} after {step[first - 1]:g} for worker"
            f" {_name(reading, jobs, first)} {reading.line(jobs, first)}{times}: read as a run that"
            " was resumed, rows in the order of the file"
        )
    return taken(jobs, order)


def one_after_the_other(reading: Reading, jobs: Jobs, roles: dict[str, int]) -> Jobs:
    """Sorts jobs whose starts are known; clocks that start again go on where they ended.

    `roles` has the columns of starts and ends, or one of them.

    Raises:
        ValueError: Jobs of one worker overlap.
    """
    jobs = taken(jobs, np.argsort(jobs.worker, kind="stable"))
    order = np.lexsort((*reversed(spans(jobs)), jobs.worker))
    is_sorted = bool((order == np.arange(len(order))).all())
    tidy = _without_repeats(reading, taken(jobs, order))
    overlap = _overlap(tidy)
    if (overlap > 0).any() and not is_sorted:
        resumed = _resumed(reading, jobs)
        if resumed is not None:
            return resumed
    if not is_sorted:
        reading.notes.append("rows were not in the order of their starts: sorted")
    return _checked(reading, tidy, overlap, roles)


def _checked(reading: Reading, jobs: Jobs, overlap: np.ndarray, roles: dict[str, int]) -> Jobs:
    """Refuses jobs that overlap by more than rounding."""
    shorter = np.minimum(jobs.duration, np.append(0.0, jobs.duration[:-1]))
    bad = overlap > _TOUCH * shorter
    table = reading.table

    def words(place: int) -> str:
        row, before = int(jobs.row[place]), int(jobs.row[place - 1])
        told = [table.entry(roles[role], row) for role in ("start", "end") if role in roles]
        got = " to ".join(told)
        return (
            f"a job must begin after the one before it of its worker has ended"
            f" ({_name(reading, jobs, place)}, {table.line} {table.lines[before]}), got {got}"
        )

    kept = sifted(reading, jobs, bad, words)
    touching = overlap[~bad]
    if (touching > 0).any():
        reading.notes.append(
            f"jobs overlap by at most {touching.max():.2g}, {int((touching > 0).sum())} times:"
            " taken as rounding"
        )
    return kept


def _overlap(jobs: Jobs) -> np.ndarray:
    """By how much each job begins before the one ahead of it ends, float64[K]; 0 or less: not."""
    start, end = spans(jobs)
    latest = end[:-1] - start[1:] - _ROUNDING * float(np.abs(end).max())
    same = np.diff(jobs.worker) == 0
    return np.append(0.0, np.where(same, np.maximum(latest, 0.0), 0.0))


def _resumed(reading: Reading, jobs: Jobs) -> Jobs | None:
    """Jobs of a log whose clock starts again, in the order of the file; None: it is none."""
    start, end = spans(jobs)
    worker = jobs.worker
    falls = np.append(False, (np.diff(start) < 0) & (np.diff(worker) == 0))
    before = np.zeros(len(worker), np.int64)  # times that the clock of the worker started again
    for rows in _rows_by_worker(worker):
        before[rows] = np.cumsum(falls[rows])
        if before[rows][-1] > max(1, len(start[rows]) // _MOST_RESUMED):
            return None
    first = int(np.argmax(falls))
    near = float(start.min()) + float(jobs.duration.max())  # where a clock that starts again is
    if any(start[before == part].min() > near for part in range(int(before.max()) + 1)):
        return None
    late, later = start.copy(), end.copy()
    for part in range(1, int(before.max()) + 1):
        shift = float(later[before == part - 1].max())
        late[before == part] += shift
        later[before == part] += shift
    moved = jobs._replace(start=late, end=later)
    if (_overlap(moved) > _TOUCH * moved.duration).any():
        return None
    reading.notes.append(
        f"start falls back to {start[first]:g} after {start[first - 1]:g} for worker"
        f" {_name(reading, jobs, first)} {reading.line(jobs, first)}, {int(before.max())} time(s):"
        " read as a run that was resumed, its time going on from the last end"
    )
    return moved


def _without_repeats(reading: Reading, jobs: Jobs) -> Jobs:
    """Leaves out rows that repeat the one before: the same worker, time or step, and duration."""
    place = jobs.step if jobs.start is None else jobs.start
    if place is None or len(place) < 2:
        return jobs
    same = (np.diff(jobs.worker) == 0) & (np.diff(place) == 0) & (np.diff(jobs.duration) == 0)
    again = np.append(False, same)
    if not again.any():
        return jobs
    if jobs.start is None:  # steps may repeat because several rows make one
        shared = (np.diff(jobs.worker) == 0) & (np.diff(place) == 0) & ~same
        if shared.any() or 2 * np.count_nonzero(again) > len(again):
            return jobs
    first = int(np.argmax(again))
    count = int(again.sum())
    reading.notes.append(
        f"{_rows(count)} there twice, first that {reading.line(jobs, first)}: left out"
    )
    return taken(jobs, ~again)


def one_row_a_step(reading: Reading, jobs: Jobs, step: np.ndarray, place: int) -> Jobs:
    """Looks whether rows of a worker that follow each other have one step.

    Rows that are otherwise the same count once; a few may be jobs that were done again.

    Args:
        reading: The table and how it is read.
        jobs: Sorted by worker and then by time.
        step: float64[K], of each job.
        place: The column of steps.

    Raises:
        ValueError: Steps have several rows throughout: what a row is, is not known.
    """
    same = np.append(False, (np.diff(jobs.worker) == 0) & (np.diff(step) == 0))
    if not same.any():
        return jobs
    title = reading.table.title(place)
    first, count = int(np.argmax(same)), int(same.sum())
    words = read_heading(reading.table.names[place]).words if reading.table.names else ""
    if words == "epoch" or (words in _CONSTANT and (step == step[0]).all()):
        reading.notes.append(
            f"{title} has one number in several rows of a worker: each row is read as a job"
        )
        return jobs
    if jobs.start is None and not (np.append(0.0, np.diff(jobs.duration))[same]).any():
        reading.notes.append(
            f"{_rows(count)} of a worker, a step ({title}) and a duration that were there already,"
            f" first that {reading.line(jobs, first)}: each step is counted once"
        )
        return taken(jobs, ~same)
    rows = np.bincount(jobs.worker)
    often = np.bincount(jobs.worker[same], minlength=len(rows)) > np.maximum(
        1, rows // _MOST_RESUMED
    )
    lines = f"in {reading.table.line} {reading.table.lines[int(jobs.row[first - 1])]} and"
    lines = f"{lines} {reading.line(jobs, first)}"
    if often.any():
        raise ValueError(
            f"{title} must number the jobs of a worker, got {count} rows with the step of the row"
            f" before, first {step[first]:g} of worker {_name(reading, jobs, first)} {lines}: sum"
            " the rows of a step to one, or leave the column out if each row is a job"
        )
    reading.notes.append(
        f"{title} is the same in rows of a worker, {count} times, first {step[first]:g} of worker"
        f" {_name(reading, jobs, first)} {lines}: read as jobs that were done again"
    )
    return jobs


def _refuse_disorder(reading: Reading, jobs: Jobs, rows: slice, by: str) -> None:
    """Says which two rows of a worker have one step."""
    assert jobs.step is not None
    step = jobs.step[rows]
    order = np.argsort(step, kind="stable")
    twice = int(np.argmax(np.diff(step[order]) == 0))
    one, other = (rows.start + int(order[place]) for place in (twice, twice + 1))
    line = reading.table.lines[int(jobs.row[one])]
    raise ValueError(
        f"{by} must grow with the rows of a worker, or start again where a run was resumed; worker"
        f" {_name(reading, jobs, one)} has rows in no order and {jobs.step[one]:g} twice, in"
        f" {reading.table.line} {line} and {reading.line(jobs, other)}"
    )


def _rows_by_worker(worker: np.ndarray) -> list[slice]:
    """The rows of each worker that has any; `worker` is sorted."""
    cuts = np.flatnonzero(np.diff(worker)) + 1
    bounds = [0, *cuts.tolist(), len(worker)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


def _name(reading: Reading, jobs: Jobs, place: int) -> str:
    return repr(reading.names[int(jobs.worker[place])])


def _rows(count: int) -> str:
    return "a row is" if count == 1 else f"{count} rows are"
