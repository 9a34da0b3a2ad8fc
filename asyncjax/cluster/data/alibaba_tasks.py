"""Tasks of Alibaba's GPU cluster record of 2020 as recorded jobs.

The published table has no header; its columns are job_name, task_name, inst_num, status,
start_time, end_time, plan_cpu, plan_mem, plan_gpu, gpu_type, with times in seconds and `plan_gpu`
in percent of a GPU for each of `inst_num` instances. The data go with Weng et al., "MLaaS in the
wild" (NSDI 2022), and are no part of this library.
"""

from __future__ import annotations

import math
from collections import Counter

from asyncjax.cluster.data.csv_rows import Path, Row, read_headless_rows
from asyncjax.cluster.data.job_tables import MOST_GPUS, JobTable, sorted_table

# fmt: off
_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time",
    "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)
# fmt: on
_NEEDED = ("inst_num", "start_time", "end_time", "plan_gpu")


def read_alibaba(path: Path) -> JobTable:
    r"""Reads the tasks that ended well and used GPUs, each as one job.

    Formula: `gpus = ceil(inst_num * plan_gpu / 100)`; times are counted from the first task kept.

    Args:
        path: A CSV file like `pai_task_table.csv`, UTF-8, with or without a header.

    Returns:
        The table, labels the names of the tasks. Tasks whose status is not "Terminated", that lack
        a number, asked for no GPU, or took no time are left out: the record has many of them. The
        `source` of the table counts them.

    Raises:
        OSError: The file cannot be read.
        TypeError: `path` is no path.
        ValueError: The file is no UTF-8 table, a row has another number of columns, an entry is no
            number or out of range, a task ends before it starts, needs more than a million GPUs or
            was there before; names column, entry and line; or if no task is left.

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
    kept: list[tuple[float, float, int, str]] = []
    left_out: Counter[str] = Counter()
    seen: dict[tuple[str, str], str] = {}
    for row in read_headless_rows(path, _COLUMNS):
        task = _task(row)
        if isinstance(task, str):
            left_out[task] += 1
            continue
        name = row.text("job_name"), row.text("task_name")
        if name in seen:
            raise ValueError(
                f"task_name must be another in every row of a job, got {name[1]!r} of job"
                f" {name[0]!r} {row.place} and {seen[name]} before"
            )
        seen[name] = row.place.partition(" of ")[0]
        kept.append(task)
    words = ", ".join(f"{number} {why}" for why, number in sorted(left_out.items()))
    if not kept:
        raise ValueError(
            f"path must hold tasks that ended well and used GPUs, got none in {path}"
            f" ({words or 'no rows'})"
        )
    source = "Alibaba PAI, 2020 (Weng et al., 2022)"
    if left_out:
        total = left_out.total()
        source += f", without {total} of {total + len(kept)} tasks ({words})"
    table = sorted_table(kept, source)
    return table._replace(submit=table.submit - table.submit[0])


def _task(row: Row) -> tuple[float, float, int, str] | str:
    """A task as (start, duration, gpus, label), or why it is left out."""
    if row.text("status") != "Terminated":
        return "not terminated"
    if not all(row.text(name) for name in _NEEDED):
        return "that lack a number"
    share = row.number("plan_gpu", least=0.0)
    if share == 0:
        return "without a GPU"
    instances = row.number("inst_num", least=1.0, most=MOST_GPUS, whole=True)
    start, end = row.number("start_time"), row.number("end_time")
    if end < start:
        raise ValueError(
            f"end_time must not be before start_time = {start:g},"
            f" got {row.text('end_time')!r} {row.place}"
        )
    if end == start:
        return "that took no time"
    gpus = math.ceil(instances * share / 100 - 1e-9)
    if gpus > MOST_GPUS:
        raise ValueError(
            f"plan_gpu must make at most {MOST_GPUS} GPUs of inst_num = {instances:g},"
            f" got {row.text('plan_gpu')!r} {row.place}"
        )
    return start, end - start, gpus, row.text("task_name")
