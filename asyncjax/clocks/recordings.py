"""Recordings of real machines: those that come with the library, by name, and files of one's own.

    job_1 .. job_4      ten workers each of a training job: times of mini-batches, in thousandths of
                        the job's longest
    job_spread          100 such jobs: how uneven their workers are, as quantiles over iterations
    llm_sequences       32 workers of an LLM training job, late by uneven sequences, seconds a step
    llm_slow_worker     4 workers of another, one of them slowed on purpose, seconds a step
    spot_p3, spot_g4dn  machines that come and go on a spot market within a day
    request_lengths     tokens of requests to a conversation service and of their answers

Each says where it is from, under which licence, and what was changed (NOTICE has the same).

Another file is a table with one row for every mini-batch of every worker. The names of its columns
are by default those of Alibaba's GPU cluster trace (Xiao et al., "AntMan", OSDI 2020), whose times
are scaled to 0 ... 1000: only their ratios mean something.
"""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Iterator
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import file_path
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.independent_laws import recorded
from asyncjax.storage import load_arrays

_FOLDER = Path(__file__).resolve().parent / "data"


_ALIBABA = (
    "alibaba/clusterdata, cluster-trace-gpu-v2020/mini-batch-time",
    "CC BY 4.0",
    'Xiao et al., "AntMan: Dynamic Scaling on GPU Clusters for Deep Learning", OSDI 2020',
)
_BYTEDANCE = (
    "ByteDance-Seed/StragglerAnalysis, data",
    "Apache-2.0",
    'Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis",'
    " OSDI 2025",
)
_BAMBOO = (
    "uclasystem/bamboo, traces",
    "MIT",
    'Thorpe et al., "Bamboo: Making Preemptible Instances Resilient for Affordable Training of'
    ' Large DNNs", NSDI 2023',
)
_MOONCAKE = (
    "kvcache-ai/Mooncake",
    "Apache-2.0",
    'Qin et al., "Mooncake: Trading More Storage for Less Computation", FAST 2025',
)
_SHARE = "share of the job's longest, 0 to 1000"
_CUT = "each worker cut to the mini-batches that all of them have"
_SUMMED = (
    "compute operations summed by step, rank and stage, the largest stage taken; no"
    " communication in it"
)
_NUMBERED = "milliseconds made seconds, nodes numbered"
# (source, licence, citation), unit, changes
_KNOWN: dict[str, tuple[tuple[str, str, str], str, str]] = {
    **dict.fromkeys(("job_1", "job_2", "job_3", "job_4"), (_ALIBABA, _SHARE, _CUT)),
    "job_spread": (_ALIBABA, "", "quantiles computed from the released times of 100 jobs"),
    **dict.fromkeys(("llm_sequences", "llm_slow_worker"), (_BYTEDANCE, "seconds", _SUMMED)),
    **dict.fromkeys(("spot_p3", "spot_g4dn"), (_BAMBOO, "seconds", _NUMBERED)),
    "request_lengths": (_MOONCAKE, "tokens", "three of four columns kept"),
}

RECORDINGS = tuple(_KNOWN)


class Recording(NamedTuple):
    """A recording, and what is known of it.

    Attributes:
        name: One of `clocks.RECORDINGS`.
        columns: Arrays by name; `durations` is float64[n, k], where workers were timed.
        unit: Unit of the columns, such as `"s"`.
        source: Where the file is from.
        licence: Its licence.
        citation: What to cite.
        changes: What was done to the original.

    Example:
        >>> from asyncjax import clocks
        >>> job = clocks.recording("job_4")
        >>> job.licence, job.durations.shape[0]
        ('CC BY 4.0', 10)
    """

    name: str
    columns: dict[str, np.ndarray]
    unit: str
    source: str
    licence: str
    citation: str
    changes: str

    @property
    def durations(self) -> np.ndarray:
        """Times of the jobs of every worker, float64[n, k]."""
        if "durations" not in self.columns:
            raise ValueError(
                f"the recording '{self.name}' has no durations of workers, but"
                f" {', '.join(self.columns)}"
            )
        return self.columns["durations"]

    def clock(self) -> Clock:
        """The clock that replays it, scaled so that the fastest worker takes 1 on average.

        Example:
            >>> from asyncjax import clocks
            >>> clock = clocks.recording("job_4").clock()
            >>> round(float(clock.mean.max()), 1)
            5.4
        """
        times = self.durations
        return recorded(times / times.mean(axis=1).min())


def recording(name: str) -> Recording:
    """Returns a recording of real machines.

    Args:
        name: One of `clocks.RECORDINGS`.

    Returns:
        The recording, arrays in memory, at most a third of a megabyte; cached.

    Example:
        >>> from asyncjax import clocks
        >>> sorted(clocks.recording("request_lengths").columns)
        ['input_length', 'output_length', 'timestamp_ms']
    """
    if name not in _KNOWN:
        raise ValueError(f"name must be one of {', '.join(RECORDINGS)}, got {name!r}")
    return _loaded(name)


@cache
def _loaded(name: str) -> Recording:
    origin, unit, changes = _KNOWN[name]
    columns = load_arrays(_FOLDER / f"{name}.npz")
    if "durations" in columns:
        columns["durations"] = columns["durations"].astype(np.float64)
    for column in columns.values():
        column.setflags(write=False)
    return Recording(name, columns, unit, *origin, changes)


def read_durations(
    path: str | PathLike[str],
    *,
    worker: str = "worker",
    order: str = "time",
    duration: str = "batch_time_norm",
) -> np.ndarray:
    r"""Reads the durations of the jobs of every worker from a CSV file with a header.

    Workers are numbered in the order of their labels, as numbers if all are numbers. Rows of one
    worker are sorted by `order`. Every worker is cut to the number of rows of the one with the
    fewest; a warning says how many where this leaves out more rows than it takes.

    Args:
        path: A CSV file, UTF-8, one row for each worker and iteration.
        worker: Name of the column with the label of the worker.
        order: Name of the column with a number that grows with the worker's iterations.
        duration: Name of the column with the duration, a positive number, time units.

    Returns:
        float64[n, k] for `recorded`.

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
    file = file_path("path", path)
    columns = {"worker": worker, "order": order, "duration": duration}
    rows: dict[str, list[tuple[float, float]]] = {}  # a worker's order and duration, job by job
    for where, row in _lines(file, columns):
        if not row[worker]:
            raise ValueError(f"{worker} must be the label of a worker, got none {where}")
        entry = _number(order, row, where), _number(duration, row, where)
        if not entry[1] > 0:
            raise ValueError(f"{duration} must be positive, got {row[duration]!r} {where}")
        rows.setdefault(row[worker], []).append(entry)
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


def _lines(file: Path, columns: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each row stands, and its fields as they are written, by column; None: not there."""
    with open(file, encoding="utf-8-sig", newline="") as opened:
        table = csv.DictReader(opened)
        try:
            header = list(table.fieldnames or ())
            for argument, column in columns.items():
                if header.count(column) != 1:
                    how = "name a column" if column not in header else "name one column"
                    raise ValueError(
                        f"{argument} must {how} of {file}, got {column!r}; found {header}"
                    )
            for row in table:
                where = f"in line {table.line_num} of {file}"
                if None in row:
                    raise ValueError(
                        f"path must be a table whose rows are no longer than its header, got"
                        f" {len(header) + len(row[None])} fields {where}"
                    )
                yield where, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(
                f"path must be a CSV file in UTF-8, got {error} after line {table.line_num} of"
                f" {file}"
            ) from error


def _number(column: str, row: dict[str, Any], where: str) -> float:
    """Reads a finite number."""
    try:
        number = float(row[column] or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{column} must be a finite number, got {row[column]!r} {where}")
    return number


def _sorted(labels: list[str]) -> list[str]:
    """Labels in the order of their numbers, or of their text if one is not a number."""
    try:
        return sorted(labels, key=float)
    except ValueError:
        return sorted(labels)
