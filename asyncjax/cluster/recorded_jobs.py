"""Recorded jobs of real clusters: tables of files, and jobs for the schedulers from them.

| reader | columns of the file |
|---|---|
| `read_philly` | submit_s, duration_s, num_gpus, vc: seconds from the start of the record |
| `read_tiresias` | submit_time, duration, num_gpu, model_name: seconds |
| `read_pollux` | time, num_replicas, application: seconds; no durations |
| `read_alibaba` | those of `pai_task_table.csv` |

The data come from Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training
workloads" (ATC 2019, arXiv 1901.05758), Gu et al., "Tiresias" (NSDI 2019), Qiao et al., "Pollux"
(OSDI 2021) and Weng et al., "MLaaS in the wild" (NSDI 2022), and are no part of this library.

Of the jobs that `recorded_workload` makes are real: arrival, from the time of submission; the GPUs
that were asked for, `Jobs.asked`; the GPU time, GPUs times duration, which becomes the work

    samples = gpus * (duration / slot) / rho_inside

so that the job with the GPUs it asked for, on one machine, takes the time that was recorded.
Everything in `MADE_UP` is drawn from an integer seed by the row of the table, as in the preset
`balanced`.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import NamedTuple

import numpy as np

from asyncjax.checks import file_path, real, shown, whole, within
from asyncjax.cluster.jobs import MOST_SLOTS, Jobs, check_rising, check_whole, nominal_times
from asyncjax.cluster.workloads import balanced

Path = str | PathLike[str]

MADE_UP = tuple(name for name in Jobs._fields if name not in ("arrival", "samples", "asked"))
MOST_GPUS = 1_000_000  # of one job
LARGEST = 1e12  # of a number in a table, either way; seconds: thirty thousand years
_TASK = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time")
_ALIBABA = (*_TASK, "plan_cpu", "plan_mem", "plan_gpu", "gpu_type")


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

    text: dict[str, str]  # entries by column
    place: str  # where it stands, for messages

    def number(
        self, column: str, least: float = -LARGEST, most: float = LARGEST, kind: str = "finite"
    ) -> float:
        """A finite number in a range, of a kind: "finite", "whole" or "positive"."""
        try:
            number = float(self.text[column])
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or (kind == "whole" and number != math.floor(number)):
            allowed = "a whole number" if kind == "whole" else "a finite number"
        elif kind == "positive" and not number > 0:
            allowed = "positive"
        elif number < least:
            allowed = f"at least {least:g}"
        elif number > most:
            allowed = f"at most {most:g}"
        else:
            return number
        text = shown(self.text[column])
        raise ValueError(f"{column} must be {allowed}, got {text} {self.place}")


def read_philly(path: Path) -> JobTable:
    r"""Reads jobs of the Philly record: submit_s, duration_s, num_gpus and vc, the virtual cluster.

    Args:
        path: The CSV file.

    Returns:
        The table, labels the virtual clusters.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import cluster
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "jobs.csv")
        ...     _ = path.write_text("submit_s,duration_s,num_gpus,vc\n116,66,1,11cb48\n")
        ...     cluster.read_philly(path).duration
        array([66.])
    """
    names = ("submit_s", "num_gpus", "duration_s", "vc")
    return _table(path, names, "Philly (Jeon et al., 2019)")


def read_tiresias(path: Path) -> JobTable:
    r"""Reads jobs of Tiresias' simulator: submit_time, duration, num_gpu and model_name.

    Args:
        path: The CSV file; a column job_id, if there is one, has no entry twice.

    Returns:
        The table, labels the models.

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
    return _table(path, names, "Tiresias (Gu et al., 2019)", unique="job_id")


def read_pollux(path: Path) -> JobTable:
    r"""Reads jobs of Pollux' workloads: time, num_replicas and application, without durations.

    Args:
        path: The CSV file; a column name, if there is one, has no entry twice.

    Returns:
        The table, labels the applications, durations NaN.

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
    return _table(path, names, "Pollux (Qiao et al., 2021)", unique="name")


def read_alibaba(path: Path) -> JobTable:
    r"""Reads the tasks of Alibaba's record of 2020 that ended well and used GPUs, each as one job.

    Formula: `gpus = ceil(inst_num * plan_gpu / 100)`; times are counted from the first task kept.

    Args:
        path: A CSV file like `pai_task_table.csv`, UTF-8, with or without a header. Times are in
            seconds, and `plan_gpu` in percent of a GPU for each of `inst_num` instances.

    Returns:
        The table, labels the names of the tasks. Tasks whose status is not "Terminated", that lack
        a number, asked for no GPU, or took no time are left out; the `source` counts them.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import cluster
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "tasks.csv")
        ...     _ = path.write_text(
        ...         "a,worker,4.0,Terminated,1700.0,1900.0,600.0,29.3,50.0,MISC\n"
        ...     )
        ...     cluster.read_alibaba(path).gpus
        array([2])

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
    source, total = "Alibaba PAI, 2020 (Weng et al., 2022)", left_out.total()
    if total:
        source += f", without {total} of {total + len(tasks)} tasks ({words})"
    table = _sorted(tasks, source)
    return table._replace(submit=table.submit - table.submit[0])


def recorded_workload(
    table: JobTable,
    *,
    n_slots: int,
    slot: float = 3600.0,
    start: float = 0.0,
    growth: int = 4,
    seed: int = 0,
) -> Jobs:
    """Turns a window of a table into jobs.

    Formula: `arrival = floor((submit - start) / slot)`; `samples = gpus (duration / slot) / rho`
    at the rate inside one machine; `batch = growth * gpus`, so that a job may grow to so many times
    what it asked for; due after 1 to 4 times its own duration; `asked = gpus`.

    Args:
        table: Recorded jobs, with durations.
        n_slots: T; jobs outside `start .. start + T slot` are left out.
        slot: Length of a slot, seconds, positive.
        start: Where slot 0 begins, seconds.
        growth: The most workers of a job are so many times its GPUs, at least 1.
        seed: For everything in `MADE_UP`.

    Returns:
        The jobs; resources are GPU, vCPU, GB of memory and GB of storage, and a worker takes one
        GPU. The same row has the same made-up numbers in every window. `fifo` runs each job with
        the GPUs it asked for; all other schedulers choose between 1 and `growth` times as many.

    Example:
        >>> import numpy as np
        >>> from asyncjax import cluster
        >>> submit, duration = np.array([0.0, 5000.0]), np.array([7200.0, 60.0])
        >>> table = cluster.JobTable(submit, duration, np.array([2, 1]), ("", ""), "mine")
        >>> jobs = cluster.recorded_workload(table, n_slots=4)
        >>> jobs.arrival.tolist(), jobs.batch.tolist(), jobs.asked.tolist()
        ([0, 1], [8, 4], [2, 1])
        >>> hours = jobs.samples * cluster.sample_times(jobs).inside / table.gpus
        >>> hours.round(3).tolist()
        [2.0, 0.017]
    """
    n_slots = whole("n_slots", n_slots, 1, MOST_SLOTS)
    growth = whole("growth", growth, 1, 1_000_000)
    slot, start = real("slot", slot, above=0), real("start", start)
    submit, duration, gpus = _columns(table)
    arrival = np.floor((submit - start) / slot)
    here = (arrival >= 0) & (arrival < n_slots)
    if not here.any():
        raise ValueError(
            f"table must hold jobs from {start:g} to {start + n_slots * slot:g} s, got none of"
            f" {len(submit)}"
        )
    hours, gpus = duration[here] / slot, gpus[here].astype(np.int64)
    if np.isnan(hours).any():
        row = int(np.flatnonzero(here)[np.isnan(hours)][0])
        raise ValueError(f"table must have durations, got none for job {row} of {table.source}")
    drawn, _ = balanced(seed, n_jobs=len(submit))
    jobs = Jobs(*(field[here] for field in drawn))
    value, steepness, due = jobs.utility.T
    jobs.worker[:, 0] = 1
    return jobs._replace(
        arrival=arrival[here].astype(np.int64),
        samples=gpus * hours / nominal_times(jobs._replace(batch=growth * gpus)).inside,
        batch=growth * gpus,
        utility=np.stack([value, steepness, hours * (1 + 3 * (due - 1) / 14)], axis=-1),
        asked=gpus,
    )


def read_rows(
    path: Path, columns: dict[str, str], *, unique: str | None = None, header: tuple[str, ...] = ()
) -> Iterator[Row]:
    r"""Reads a UTF-8 file; `columns`, by the argument that names each, must be in its header.

    Where the file has a column `unique`, no two rows may have the same entry there. A file whose
    `header` is known may go without it.
    """
    seen: dict[str, int] = {}
    empty = not header
    with open(file_path("path", path), encoding="utf-8-sig", newline="") as file:
        table = csv.reader(file, strict=True)
        try:
            names = list(header) or next(table, [])
            for argument, column in columns.items():
                if names.count(column) != 1:
                    kind = "name a column" if column not in names else "name one column"
                    raise ValueError(
                        f"{argument} must {kind} of {path}, got {column!r}; found {shown(names)}"
                    )
            for row in table:
                line = table.line_num
                if not row or (line == 1 and row == names):
                    continue
                empty, place = False, f"in line {line} of {path}"
                if len(row) != len(names):
                    raise ValueError(f"path must have {len(names)} columns, got {len(row)} {place}")
                text = dict(zip(names, row, strict=True))
                if unique in text and (before := seen.setdefault(text[unique], line)) != line:
                    raise ValueError(
                        f"{unique} must be another in every row, got {shown(text[unique])} {place}"
                        f" and in line {before} before"
                    )
                yield Row(text, place)
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(
                "path must be a CSV table in UTF-8 text, of closed quotes and fields of at most"
                f" {csv.field_size_limit()} characters, got {str(error).rstrip('.')} in line"
                f" {table.line_num} of {path}"
            ) from error
    if empty:
        raise ValueError(f"path must be a table with rows, got none below the header of {path}")


def _table(
    path: Path, names: tuple[str, str, str | None, str], source: str, unique: str | None = None
) -> JobTable:
    """Reads the columns submit, gpus, duration and label; `unique` as in `read_rows`."""
    submit, gpus, duration, label = names
    columns = {"submit": submit, "gpus": gpus, "duration": duration, "label": label}
    given = {argument: column for argument, column in columns.items() if column is not None}
    rows = (
        (
            row.number(submit, 0.0),
            math.nan if duration is None else row.number(duration, kind="positive"),
            int(row.number(gpus, 1.0, MOST_GPUS, "whole")),
            row.text[label],
        )
        for row in read_rows(path, given, unique=unique)
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
    share = row.number("plan_gpu", 0.0)
    if share == 0:
        return "without a GPU"
    instances = row.number("inst_num", 1.0, MOST_GPUS, "whole")
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


def _columns(table: JobTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads a table that may be made by hand; durations may be NaN, where there is none."""
    submit, duration, gpus = (np.asarray(column, np.float64) for column in table[:3])
    shapes = [np.shape(column) for column in (submit, duration, gpus, tuple(table.label))]
    if submit.ndim != 1 or submit.size == 0 or len(set(shapes)) > 1:
        raise ValueError(
            "table must have one submit, duration, gpus and label a job, at least one, got shapes"
            f" {', '.join(map(str, shapes))}"
        )
    within("submit", submit)
    within("duration", np.where(np.isnan(duration), 1.0, duration), above=0)
    check_whole("gpus", within("gpus", gpus, least=1, most=MOST_GPUS))
    check_rising("submit", submit)
    return submit, duration, gpus
