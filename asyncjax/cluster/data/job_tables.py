"""Recorded jobs of real clusters: one table for all sources, validated and sorted when it is read.

| reader | columns of the file |
|---|---|
| `read_philly` | submit_s, duration_s, num_gpus, vc: seconds from the start of the record |
| `read_tiresias` | submit_time, duration, num_gpu, model_name: seconds |
| `read_pollux` | time, num_replicas, application: seconds; no durations |
| `read_alibaba` | those of `pai_task_table.csv` |
| `read_jobs` | any, by name |
| `read_arrivals` | slot and how many jobs arrive in it |

The data come from Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training
workloads" (ATC 2019, arXiv 1901.05758), Gu et al., "Tiresias" (NSDI 2019), Qiao et al., "Pollux"
(OSDI 2021) and Weng et al., "MLaaS in the wild" (NSDI 2022), and are no part of this library.
`recorded_workload` turns a table into jobs, and says what it makes up.

A file is a table in UTF-8 with a header. Every reader raises an OSError if it cannot be read, a
TypeError if `path` is no path, and a ValueError if it is no such table of rows of one length, a
column is missing or twice there, there are no rows, or an entry is no such number; it names column,
entry and line.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import NamedTuple

import numpy as np

from asyncjax.checks import file_path, instance, shown
from asyncjax.cluster.machines_and_jobs import MOST_JOBS, MOST_SLOTS

Path = str | PathLike[str]

MOST_GPUS = 1_000_000  # of one job
MOST_ROWS = 10_000_000
LARGEST = 1e12  # of a number in a table, either way; seconds: thirty thousand years
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
# fmt: off
_ALIBABA = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time",
    "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)
# fmt: on


class JobTable(NamedTuple):
    """Jobs as a cluster recorded them, in the order of their submission.

    Attributes:
        submit: float64[N], seconds from the start of the record, not decreasing.
        duration: float64[N], seconds the job ran; NaN where that is not recorded.
        gpus: int64[N], GPUs it asked for, at least 1.
        label: N texts: group, model or application; empty where there is none.
        source: Where the table comes from.
    """

    submit: np.ndarray
    duration: np.ndarray
    gpus: np.ndarray
    label: tuple[str, ...]
    source: str


class Row(NamedTuple):
    """One row of a file."""

    text: Mapping[str, str]  # entries by column
    place: str  # where it stands, for messages

    def number(
        self,
        column: str,
        *,
        least: float = -LARGEST,
        most: float = LARGEST,
        positive: bool = False,
        whole: bool = False,
    ) -> float:
        """A finite number of an allowed kind and size.

        Example:
            >>> Row({"num_gpus": "1.5"}, "in line 2").number("num_gpus", whole=True)
            Traceback (most recent call last):
            ...
            ValueError: num_gpus must be a whole number, got '1.5' in line 2
        """
        text = self.text[column]
        number = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not math.isfinite(number) or (whole and number != math.floor(number)):
            kind = "a whole number" if whole else "a finite number"
        elif positive and not number > 0:
            kind = "positive"
        elif number < least:
            kind = f"at least {least:g}"
        elif number > most:
            kind = f"at most {most:g}"
        else:
            return number
        raise ValueError(f"{column} must be {kind}, got {shown(text)} {self.place}")


def read_jobs(
    path: Path,
    *,
    submit: str,
    gpus: str,
    duration: str | None = None,
    label: str | None = None,
    source: str = "",
) -> JobTable:
    r"""Reads recorded jobs from a CSV file with a header, by the names of its columns.

    Args:
        path: A CSV file, UTF-8, one row a job, in any order, at most 10 million.
        submit: Column with the time of submission, seconds, at least 0.
        gpus: Column with the number of GPUs, whole, 1 .. 1 000 000.
        duration: Column with the time it ran, seconds, positive; None if there is none. Times are
            at most 1e12.
        label: Column with a text; None for none.
        source: Where the file comes from; its path if empty.

    Returns:
        The table, sorted by submission; rows of the same time stay in the order of the file.

    Raises:
        OSError: The file cannot be read.
        TypeError: `path` is no path, or a name of a column no text.
        ValueError: The file is no UTF-8 table of rows of one length, a column is missing or twice
            there, there are no rows, or an entry is no such number; names column, entry and line.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import cluster
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "jobs.csv")
        ...     _ = path.write_text("at,gpu,ran\n70,2,600\n10,1,60\n")
        ...     table = cluster.read_jobs(path, submit="at", gpus="gpu", duration="ran")
        >>> table.submit.tolist(), table.gpus.tolist(), table.duration.tolist()
        ([10.0, 70.0], [1, 2], [60.0, 600.0])
    """
    instance("source", source, str, "a text")
    return _table(path, submit, gpus, duration, label, source or str(path))


def read_philly(path: Path) -> JobTable:
    r"""Reads jobs of the Philly record: submit_s, duration_s, num_gpus and vc, the virtual cluster.

    Args:
        path: The CSV file.

    Returns:
        The table, labels the virtual clusters.

    Raises:
        OSError, TypeError, ValueError: As `read_jobs`.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import cluster
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "jobs.csv")
        ...     _ = path.write_text("submit_s,duration_s,num_gpus,vc\n116,66,1,11cb48\n")
        ...     table = cluster.read_philly(path)
        >>> table.duration.tolist(), table.label
        ([66.0], ('11cb48',))
    """
    return _table(path, "submit_s", "num_gpus", "duration_s", "vc", "Philly (Jeon et al., 2019)")


def read_tiresias(path: Path) -> JobTable:
    r"""Reads jobs of Tiresias' simulator: submit_time, duration, num_gpu and model_name.

    Args:
        path: The CSV file; a column job_id, if there is one, has no entry twice.

    Returns:
        The table, labels the models.

    Raises:
        OSError, TypeError, ValueError: As `read_jobs`.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import cluster
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "jobs.csv")
        ...     _ = path.write_text("num_gpu,submit_time,model_name,duration\n8,30,vgg11,147\n")
        ...     cluster.read_tiresias(path).label
        ('vgg11',)
    """
    names = ("submit_time", "num_gpu", "duration", "model_name")
    return _table(path, *names, "Tiresias (Gu et al., 2019)", unique="job_id")


def read_pollux(path: Path) -> JobTable:
    r"""Reads jobs of Pollux' workloads: time, num_replicas and application, without durations.

    Args:
        path: The CSV file; a column name, if there is one, has no entry twice.

    Returns:
        The table, labels the applications, durations NaN.

    Raises:
        OSError, TypeError, ValueError: As `read_jobs`.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import cluster
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "jobs.csv")
        ...     _ = path.write_text("name,time,application,num_replicas\nx,107,cifar10,6\n")
        ...     cluster.read_pollux(path).duration
        array([nan])
    """
    names = ("time", "num_replicas", None, "application")
    return _table(path, *names, "Pollux (Qiao et al., 2021)", unique="name")


def read_alibaba(path: Path) -> JobTable:
    r"""Reads the tasks of Alibaba's record of 2020 that ended well and used GPUs, each as one job.

    Formula: `gpus = ceil(inst_num * plan_gpu / 100)`; times are counted from the first task kept.

    Args:
        path: A CSV file like `pai_task_table.csv`, UTF-8, with or without a header. Times are in
            seconds, and `plan_gpu` in percent of a GPU for each of `inst_num` instances.

    Returns:
        The table, labels the names of the tasks. Tasks whose status is not "Terminated", that lack
        a number, asked for no GPU, or took no time are left out: the record has many of them. The
        `source` of the table counts them.

    Raises:
        OSError, TypeError: As `read_jobs`.
        ValueError: As there; also if a task ends before it starts, needs more than a million GPUs
            or was there before, or if no task is left.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import cluster
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "tasks.csv")
        ...     _ = path.write_text(
        ...         "a,worker,4.0,Terminated,1700.0,1900.0,600.0,29.3,50.0,MISC\n"
        ...         "b,tensorflow,1.0,Failed,1500.0,1600.0,600.0,29.3,100.0,T4\n"
        ...     )
        ...     table = cluster.read_alibaba(path)
        >>> table.gpus.tolist(), table.duration.tolist(), table.label
        ([2], [200.0], ('worker',))

    Reference:
        Weng et al., NSDI 2022; github.com/alibaba/clusterdata, cluster-trace-gpu-v2020.
    """
    tasks: list[tuple[float, float, int, str]] = []
    left_out: Counter[str] = Counter()
    seen: dict[tuple[str, str], str] = {}
    for row in read_rows(path, {}, header=_ALIBABA):
        task = _task(row)
        if isinstance(task, str):
            left_out[task] += 1
            continue
        job, name = row.text["job_name"], row.text["task_name"]
        if (job, name) in seen:
            raise ValueError(
                f"task_name must be another in every row of a job, got {name!r} of job {job!r}"
                f" {row.place} and {seen[job, name]} before"
            )
        seen[job, name] = row.place.partition(" of ")[0]
        tasks.append(task)
    words = ", ".join(f"{number} {why}" for why, number in sorted(left_out.items()))
    if not tasks:
        raise ValueError(
            f"path must hold tasks that ended well and used GPUs, got none in {path}"
            f" ({words or 'no rows'})"
        )
    source = "Alibaba PAI, 2020 (Weng et al., 2022)"
    if left_out:
        total = left_out.total()
        source += f", without {total} of {total + len(tasks)} tasks ({words})"
    table = _sorted(tasks, source)
    return table._replace(submit=table.submit - table.submit[0])


def read_arrivals(path: Path, *, slot: str = "slot", jobs: str = "jobs_peak1") -> np.ndarray:
    r"""Reads how many jobs arrive in each slot, and lists the slot of every job.

    `slot` and `jobs` name the columns of a CSV file; returns int64[N], not decreasing, for
    `Jobs.arrival`. Slots are whole, below 2^20, each listed once; jobs are at most 10 million.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "arrivals.csv")
        ...     _ = path.write_text("slot,jobs_peak1\n1,2\n0,1\n")
        ...     read_arrivals(path)
        array([0, 1, 1])
    """
    counts = [
        (
            row.number(slot, least=0.0, most=MOST_SLOTS - 1, whole=True),
            row.number(jobs, least=0.0, most=MOST_JOBS, whole=True),
        )
        for row in read_rows(path, {"slot": slot, "jobs": jobs}, unique=slot)
    ]
    slots, numbers = np.array(sorted(counts), np.int64).T
    if numbers.sum() > MOST_JOBS:
        raise ValueError(f"path must hold at most {MOST_JOBS} jobs, got {numbers.sum()} in {path}")
    return np.repeat(slots, numbers)


def read_rows(
    path: Path,
    columns: Mapping[str, str],
    *,
    unique: str | None = None,
    header: Sequence[str] = (),
) -> Iterator[Row]:
    r"""Reads a UTF-8 file; `columns`, by the argument that names each, must be in its header.

    Where the file has a column `unique`, no two rows may have the same entry there. A file whose
    `header` is known may go without it.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "some.csv")
        ...     _ = path.write_text("a,b\n1,2\n")
        ...     [row.number("b") for row in read_rows(path, {"submit": "a"})]
        [2.0]
    """
    for argument, column in columns.items():
        instance(argument, column, str, "the name of a column")
    table = _entries(path)
    names = list(header) or next(table, (0, []))[1]
    for argument, column in columns.items():
        if names.count(column) != 1:
            kind = "name a column" if column not in names else "name one column"
            raise ValueError(
                f"{argument} must {kind} of {path}, got {column!r}; found {shown(names)}"
            )
    seen: dict[str, int] = {}
    empty = not header
    for line, row in table:
        if not row or (line == 1 and row == names):
            continue
        empty, place = False, f"in line {line} of {path}"
        if len(row) != len(names):
            raise ValueError(f"path must have {len(names)} columns, got {len(row)} {place}")
        text = dict(zip(names, row, strict=True))
        if unique in text and (before := seen.setdefault(text[unique], line)) != line:
            raise ValueError(
                f"{unique} must be another in every row, got {shown(text[unique])} {place} and in"
                f" line {before} before"
            )
        yield Row(text, place)
    if empty:
        raise ValueError(f"path must be a table with rows, got none below the header of {path}")


def _entries(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file with the lines they end in; refuses what is no table of text."""
    file = file_path("path", path)
    if file.exists() and not file.is_file():
        raise ValueError(f"path must be a regular file, got {str(file)!r}")
    with open(file, encoding="utf-8-sig", newline="") as text:
        table = csv.reader(text, strict=True)
        try:
            for count, row in enumerate(table):
                if count > MOST_ROWS:
                    raise ValueError(
                        f"path must be a table of at most {MOST_ROWS} rows, got more in {path}"
                    )
                yield table.line_num, row
        except csv.Error as error:
            raise ValueError(
                "path must be a CSV table of closed quotes and fields of at most"
                f" {csv.field_size_limit()} characters, got {str(error).rstrip('.')} in line"
                f" {table.line_num} of {path}"
            ) from error
        except UnicodeDecodeError as error:
            raise ValueError(
                f"path must be UTF-8 text, got the byte 0x{error.object[error.start]:02x} that"
                f" is none after line {table.line_num} of {path}"
            ) from error


def _table(
    path: Path,
    submit: str,
    gpus: str,
    duration: str | None,
    label: str | None,
    source: str,
    unique: str | None = None,
) -> JobTable:
    """Reads a table by the names of its columns; `unique` as in `read_rows`."""
    columns = {"submit": submit, "gpus": gpus}
    columns |= {} if duration is None else {"duration": duration}
    columns |= {} if label is None else {"label": label}
    rows = (
        (
            row.number(submit, least=0.0),
            math.nan if duration is None else row.number(duration, positive=True),
            int(row.number(gpus, least=1.0, most=MOST_GPUS, whole=True)),
            "" if label is None else row.text[label],
        )
        for row in read_rows(path, columns, unique=unique)
    )
    return _sorted(rows, source)


def _sorted(rows: Iterable[tuple[float, float, int, str]], source: str) -> JobTable:
    """A table of rows (submit, duration, gpus, label), at least one, sorted by submission."""
    submit, duration, gpus, label = zip(*sorted(rows, key=lambda row: row[0]), strict=True)
    return JobTable(np.array(submit), np.array(duration), np.array(gpus), label, source)


def _task(row: Row) -> tuple[float, float, int, str] | str:
    """A task of Alibaba's as (start, duration, gpus, label), or why it is left out."""
    if row.text["status"] != "Terminated":
        return "not terminated"
    if not all(row.text[name] for name in ("inst_num", "start_time", "end_time", "plan_gpu")):
        return "that lack a number"
    share = row.number("plan_gpu", least=0.0)
    if share == 0:
        return "without a GPU"
    instances = row.number("inst_num", least=1.0, most=MOST_GPUS, whole=True)
    start, end = row.number("start_time"), row.number("end_time")
    if end < start:
        raise ValueError(
            f"end_time must not be before start_time = {start:g},"
            f" got {row.text['end_time']!r} {row.place}"
        )
    if end == start:
        return "that took no time"
    gpus = math.ceil(instances * share / 100 - 1e-9)
    if gpus > MOST_GPUS:
        raise ValueError(
            f"plan_gpu must make at most {MOST_GPUS} GPUs of inst_num = {instances:g},"
            f" got {row.text['plan_gpu']!r} {row.place}"
        )
    return start, end - start, gpus, row.text["task_name"]
