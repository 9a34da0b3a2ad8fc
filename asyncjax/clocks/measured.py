"""Measured times of real workers, from a table with one row for every mini-batch of every worker.

The defaults fit the mini-batch times of Alibaba's GPU cluster trace (cluster-trace-gpu-v2020),
which go with Xiao et al., "AntMan: Dynamic scaling on GPU clusters for deep learning" (OSDI 2020).
Those data are under CC BY 4.0 and not part of this library. The times there are scaled to 0 ...
1000, so only their ratios mean something.
"""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np

from asyncjax.checks import file_path, instance

Row = tuple[float, float]  # (place in the worker's order, duration)
Fields = tuple[str | None, str | None, str | None]  # label, order, duration; None: not there


def read_durations(
    path: str | PathLike[str],
    *,
    worker: str = "worker",
    order: str = "time",
    duration: str = "batch_time_norm",
) -> np.ndarray:
    r"""Reads the durations of the jobs of every worker from a CSV file with a header.

    Workers are numbered in the order of their labels, as numbers if all are numbers, else as text.
    Rows of one worker are sorted by `order`, rows with the same value as they stand in the file.
    Every worker is cut to the number of rows of the one with the fewest; where this leaves out more
    rows than it takes, a warning says how many. Empty lines are passed over, and so are other
    columns.

    Args:
        path: A CSV file, UTF-8, one row for each worker and iteration.
        worker: Name of the column with the label of the worker.
        order: Name of the column with a number that grows with the worker's iterations.
        duration: Name of the column with the duration, a positive number, time units.

    Returns:
        float64[n, k] for `recorded`.

    Raises:
        OSError: If the file cannot be read.
        TypeError: If `path` is no path, or the name of a column no text.
        ValueError: If the file is no table in UTF-8, a column is missing or there twice, there are
            no rows, a row is longer than the header, a label is empty, or an order or duration is
            not a number or a duration not positive; says in which line.

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

    Reference:
        Xiao et al., "AntMan", OSDI 2020; github.com/alibaba/clusterdata.
    """
    file = file_path("path", path)
    for name, column in (("worker", worker), ("order", order), ("duration", duration)):
        instance(name, column, str, "the name of a column")
    rows: dict[str, list[Row]] = {}
    for where, (label, place, time) in _lines(file, worker, order, duration):
        if not label:
            raise ValueError(f"{worker} must be the label of a worker, got none {where}")
        entry = _number(order, place, where), _number(duration, time, where)
        if not entry[1] > 0:
            raise ValueError(f"{duration} must be positive, got {time!r} {where}")
        rows.setdefault(label, []).append(entry)
    if not rows:
        raise ValueError(f"path must be a table with rows, got none below the header of {file}")
    length, given = min(map(len, rows.values())), sum(map(len, rows.values()))
    if 2 * length * len(rows) < given:
        fewest = min(rows, key=lambda label: len(rows[label]))
        warnings.warn(
            f"{worker} {fewest!r} has only {length} rows in {file}, so"
            f" {given - length * len(rows)} rows of {given} are left out",
            stacklevel=2,
        )
    in_order = (sorted(rows[label], key=lambda entry: entry[0]) for label in _sorted(list(rows)))
    return np.array([[time for _, time in entries[:length]] for entries in in_order])


def _lines(file: Path, worker: str, order: str, duration: str) -> Iterator[tuple[str, Fields]]:
    """Where each row stands, and its label, order and duration as they are written."""
    with open(file, encoding="utf-8-sig", newline="") as opened:
        table = csv.DictReader(opened)
        try:
            found = list(table.fieldnames or ())
            for argument, column in (("worker", worker), ("order", order), ("duration", duration)):
                if found.count(column) != 1:
                    how = "name a column" if column not in found else "name one column"
                    raise ValueError(
                        f"{argument} must {how} of {file}, got {column!r}; found {found}"
                    )
            for row in table:
                where = f"in line {table.line_num} of {file}"
                if None in row:
                    raise ValueError(
                        f"path must be a table whose rows are no longer than its header, got"
                        f" {len(found) + len(row[None])} fields {where}"
                    )
                yield where, (row[worker], row[order], row[duration])
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(
                f"path must be a CSV file in UTF-8, got {error} after line {table.line_num} of"
                f" {file}"
            ) from error


def _number(column: str, text: str | None, where: str) -> float:
    """Reads a finite number."""
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{column} must be a finite number, got {text!r} {where}")
    return number


def _sorted(labels: list[str]) -> list[str]:
    """Labels in the order of their numbers, or of their text if one is not a number."""
    try:
        return sorted(labels, key=float)
    except ValueError:
        return sorted(labels)
