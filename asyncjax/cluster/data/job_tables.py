"""Recorded jobs of real clusters: one table for all sources, validated and sorted when it is read.

| reader | columns of the file |
|---|---|
| `read_philly` | submit_s, duration_s, num_gpus, vc: seconds from the start of the record |
| `read_tiresias` | submit_time, duration, num_gpu, model_name: seconds |
| `read_pollux` | time, num_replicas, application: seconds; no durations |
| `read_alibaba` | those of `pai_task_table.csv`, in `alibaba_tasks` |
| `read_jobs` | any, by name |
| `read_arrivals` | slot and how many jobs arrive in it |

The data come from Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training
workloads" (ATC 2019, arXiv 1901.05758), Gu et al., "Tiresias" (NSDI 2019) and Qiao et al., "Pollux"
(OSDI 2021), and are no part of this library. `recorded_workload` turns a table into jobs, and says
what it makes up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from asyncjax.checks import instance
from asyncjax.cluster.checked_jobs import MOST_JOBS, MOST_SLOTS
from asyncjax.cluster.data.csv_rows import Path, read_rows

MOST_GPUS = 1_000_000  # of one job


class JobTable(NamedTuple):
    """Jobs as a cluster recorded them, in the order of their submission.

    Attributes:
        submit: float64[N], seconds from the start of the record, not decreasing.
        duration: float64[N], seconds the job ran; NaN where that is not recorded.
        gpus: int64[N], GPUs it asked for, at least 1.
        label: N texts: group, model or application; empty where there is none.
        source: Where the table comes from.
    """

    submit: np.ndarray  # float64[N]
    duration: np.ndarray  # float64[N]
    gpus: np.ndarray  # int64[N]
    label: tuple[str, ...]
    source: str


def sorted_table(rows: Iterable[tuple[float, float, int, str]], source: str) -> JobTable:
    """Sorts rows (submit, duration, gpus, label), at least one, by submission.

    Example:
        >>> sorted_table([(70.0, 600.0, 2, "a"), (10.0, 60.0, 1, "b")], "mine").label
        ('b', 'a')
    """
    submit, duration, gpus, label = zip(*sorted(rows, key=lambda row: row[0]), strict=True)
    return JobTable(np.array(submit), np.array(duration), np.array(gpus), label, source)


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
    return _read_jobs(path, (submit, gpus, duration, label), source or str(path))


def _read_jobs(
    path: Path,
    names: tuple[str, str, str | None, str | None],
    source: str,
    unique: str | None = None,
) -> JobTable:
    """Reads the columns submit, gpus, duration and label; `unique` as in `read_rows`."""
    submit, gpus, duration, label = names
    columns = {"submit": submit, "gpus": gpus}
    columns |= {} if duration is None else {"duration": duration}
    columns |= {} if label is None else {"label": label}
    rows = (
        (
            row.number(submit, least=0.0),
            math.nan if duration is None else row.number(duration, positive=True),
            int(row.number(gpus, least=1.0, most=MOST_GPUS, whole=True)),
            "" if label is None else row.text(label),
        )
        for row in read_rows(path, columns, unique)
    )
    return sorted_table(rows, source)


def read_philly(path: Path) -> JobTable:
    r"""Reads jobs of the Philly record: submit_s, duration_s, num_gpus and vc, the virtual cluster.

    Args:
        path: The CSV file.

    Returns:
        The table, labels the virtual clusters.

    Raises:
        OSError, ValueError: As `read_jobs`.

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
    names = ("submit_s", "num_gpus", "duration_s", "vc")
    return _read_jobs(path, names, "Philly (Jeon et al., 2019)")


def read_tiresias(path: Path) -> JobTable:
    r"""Reads jobs of Tiresias' simulator: submit_time, duration, num_gpu and model_name.

    Args:
        path: The CSV file; a column job_id, if there is one, has no entry twice.

    Returns:
        The table, labels the models.

    Raises:
        OSError, ValueError: As `read_jobs`.

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
    return _read_jobs(path, names, "Tiresias (Gu et al., 2019)", unique="job_id")


def read_pollux(path: Path) -> JobTable:
    r"""Reads jobs of Pollux' workloads: time, num_replicas and application, without durations.

    Args:
        path: The CSV file; a column name, if there is one, has no entry twice.

    Returns:
        The table, labels the applications, durations NaN.

    Raises:
        OSError, ValueError: As `read_jobs`.

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
    return _read_jobs(path, names, "Pollux (Qiao et al., 2021)", unique="name")


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
    found = [
        [
            int(row.number(slot, least=0.0, most=MOST_SLOTS - 1, whole=True)),
            int(row.number(jobs, least=0.0, most=MOST_JOBS, whole=True)),
        ]
        for row in read_rows(path, {"slot": slot, "jobs": jobs}, unique=slot)
    ]
    slots, numbers = np.array(sorted(found), np.int64).T
    if numbers.sum() > MOST_JOBS:
        raise ValueError(f"path must hold at most {MOST_JOBS} jobs, got {numbers.sum()} in {path}")
    return np.repeat(slots, numbers)
