"""Jobs for the schedulers from a table of recorded ones; what no table holds is made up, and named.

Real: arrival, from the time of submission; the GPUs that were asked for, `Jobs.asked`; the GPU
time, GPUs times duration, which becomes the work

    samples = gpus * (duration / slot) / rho_inside

so that the job with the GPUs it asked for, on one machine, takes the time that was recorded.
Everything in `MADE_UP` is drawn from an integer seed by the row of the table, as in the preset
`balanced`.
"""

from __future__ import annotations

import numpy as np

from asyncjax.checks import instance, real, whole, within
from asyncjax.cluster.checked_jobs import MOST_SLOTS, host_floats
from asyncjax.cluster.data.job_tables import MOST_GPUS, JobTable
from asyncjax.cluster.data.workloads import balanced
from asyncjax.cluster.machines_and_jobs import Jobs
from asyncjax.cluster.throughput import nominal_times

MADE_UP = (
    "batch",
    "workers_per_server",
    "gradient",
    "compute",
    "link_across",
    "link_inside",
    "worker",
    "server",
    "utility",
)


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

    Formula: `arrival = floor((submit - start) / slot)`; `samples` as above; `batch = growth *
    gpus`, so that a job may grow to so many times what it asked for; due after 1 to 4 times its own
    duration; `asked = gpus`.

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

    Raises:
        TypeError: If `table` is no JobTable, or a number of another kind.
        ValueError: If the window holds no job, a job in it has no duration, a duration is not
            positive, GPUs are not whole numbers of 1 .. 1 000 000, submissions decrease, columns
            differ in length, or an argument is out of range.

    Example:
        >>> import numpy as np
        >>> from asyncjax import cluster
        >>> submit, duration = np.array([0.0, 5000.0]), np.array([7200.0, 60.0])
        >>> table = cluster.JobTable(submit, duration, np.array([2, 1]), ("", ""), "mine")
        >>> jobs = cluster.recorded_workload(table, n_slots=4)
        >>> jobs.arrival.tolist(), jobs.batch.tolist()
        ([0, 1], [8, 4])
        >>> jobs.asked.tolist()
        [2, 1]
        >>> hours = jobs.samples * cluster.sample_times(jobs).inside / table.gpus
        >>> hours.round(3).tolist()
        [2.0, 0.017]
    """
    n_slots = whole("n_slots", n_slots, 1, MOST_SLOTS)
    growth = whole("growth", growth, 1, 1_000_000)
    slot, start = real("slot", slot, above=0), real("start", start)
    table = _checked_table(table)
    arrival = np.floor((table.submit - start) / slot)
    here = (arrival >= 0) & (arrival < n_slots)
    if not here.any():
        raise ValueError(
            f"table must hold jobs from {start:g} to {start + n_slots * slot:g} s, got none of"
            f" {len(table.submit)}"
        )
    hours = table.duration[here] / slot
    if np.isnan(hours).any():
        row = int(np.flatnonzero(here)[np.isnan(hours)][0])
        raise ValueError(f"table must have durations, got none for job {row} of {table.source}")
    drawn, _ = balanced(seed, n_jobs=len(table.submit))
    fields = {name: field[here] for name, field in drawn._asdict().items()}
    gpus = table.gpus[here]
    fields["worker"] = np.concatenate([np.ones((len(gpus), 1)), fields["worker"][:, 1:]], axis=1)
    value, steepness, due = fields["utility"].T
    fields["utility"] = np.stack([value, steepness, hours * (1 + 3 * (due - 1) / 14)], axis=-1)
    fields["arrival"], fields["batch"] = arrival[here].astype(np.int64), growth * gpus
    fields["asked"] = gpus
    jobs = Jobs(**fields)
    return jobs._replace(samples=gpus * hours / nominal_times(jobs).inside)


def _checked_table(table: JobTable) -> JobTable:
    """Reads a table, which may be made by hand; durations may be NaN, where there is none."""
    instance("table", table, JobTable, "a JobTable, as read_jobs makes it")
    submit, duration, gpus = (
        host_floats(name, getattr(table, name)) for name in ("submit", "duration", "gpus")
    )
    n_jobs = len(submit) if submit.ndim == 1 else 0
    shapes = [np.shape(column) for column in (submit, duration, gpus, tuple(table.label))]
    if n_jobs == 0 or set(shapes) != {(n_jobs,)}:
        raise ValueError(
            "table must have one submit, duration, gpus and label a job, at least one, got shapes"
            f" {', '.join(map(str, shapes))}"
        )
    within("submit", submit)
    within("duration", np.where(np.isnan(duration), 1.0, duration), above=0)
    within("gpus", gpus, least=1, most=MOST_GPUS)
    if (gpus != np.floor(gpus)).any():
        row = int(np.argmax(gpus != np.floor(gpus)))
        raise ValueError(f"gpus must be whole, got {gpus[row]} at index {row}")
    drops = np.flatnonzero(np.diff(submit) < 0)
    if drops.size:
        row = int(drops[0])
        raise ValueError(
            f"submit must not decrease, got {submit[row + 1]:g} after {submit[row]:g} at index"
            f" {row + 1}"
        )
    return table._replace(submit=submit, duration=duration, gpus=gpus.astype(np.int64))
