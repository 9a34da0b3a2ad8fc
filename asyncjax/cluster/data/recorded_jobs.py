"""Jobs for the schedulers from recorded ones, or from measured models; the rest is made up.

From a table of recorded jobs are real: arrival, from the time of submission; the GPUs that were
asked for, `Jobs.asked`; the GPU time, GPUs times duration, which becomes the work

    samples = gpus * (duration / slot) / rho_inside

so that the job with the GPUs it asked for, on one machine, takes the time that was recorded.
Everything in `MADE_UP` is drawn from an integer seed by the row of the table, as in the preset
`balanced`.

A file of measured models has one row for each, with the columns model, comp_s_per_minibatch
(seconds), model_mb, inter_mb_s and intra_mb_s (rates across and inside machines, MB a second),
worker_cpu, worker_gpu_quarter, ps_cpu and ps_gpu_quarter (what a worker and a server take; a GPU is
four quarters). Such profiles were measured for training with parameter servers; they are no part of
this library. A sample, in the sense of `Jobs`, is there one mini-batch of one worker.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.checks import instance, real, whole, within
from asyncjax.cluster.data.job_tables import MOST_GPUS, JobTable, Path, read_rows
from asyncjax.cluster.data.workloads import balanced, real_between, unit, whole_between
from asyncjax.cluster.machines_and_jobs import (
    MOST_SLOTS,
    Data,
    Jobs,
    check_rising,
    check_whole,
    checked_jobs,
    host_floats,
)
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
_MODEL, _BATCH, _RATIO, _WORK, _VALUE, _STEEPNESS, _DUE = range(64, 71)  # streams of numbers
_NUMBERS = ("comp_s_per_minibatch", "model_mb", "inter_mb_s", "intra_mb_s")
_DEMANDS = ("worker_gpu_quarter", "worker_cpu", "ps_gpu_quarter", "ps_cpu")


class Profiles(NamedTuple):
    """Measured models."""

    model: tuple[str, ...]  # M names
    compute: np.ndarray  # float64[M], seconds a mini-batch takes one worker
    size: np.ndarray  # float64[M], MB of its gradient and of its parameters
    across: np.ndarray  # float64[M], rate of a link between machines, MB a second
    inside: np.ndarray  # float64[M], rate of a link within one machine, MB a second
    worker: np.ndarray  # float64[M, 2], GPUs and CPUs of a worker
    server: np.ndarray  # float64[M, 2], GPUs and CPUs of a server


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


def read_profiles(path: Path) -> Profiles:
    r"""Reads measured models from a CSV file with a header.

    It has the columns at the head of this file; an error names column, entry and line.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import cluster
        >>> head = "model,comp_s_per_minibatch,model_mb,inter_mb_s,intra_mb_s"
        >>> head += ",worker_cpu,worker_gpu_quarter,ps_cpu,ps_gpu_quarter"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "profiles.csv")
        ...     _ = path.write_text(head + "\nvgg,0.5,550,230,430,2,4,2,0\n")
        ...     profiles = read_profiles(path)
        >>> profiles.model, profiles.worker.tolist(), profiles.server.tolist()
        (('vgg',), [[1.0, 2.0]], [[0.0, 2.0]])
    """
    rows = [
        (
            row.text["model"],
            [row.number(name, positive=True) for name in _NUMBERS],
            [row.number(name, least=0.0) for name in _DEMANDS],
        )
        for row in read_rows(path, {name: name for name in ("model", *_NUMBERS, *_DEMANDS)})
    ]
    models, numbers, demands = zip(*rows, strict=True)
    demand = np.array(demands) / [4.0, 1.0, 4.0, 1.0]
    return Profiles(models, *np.array(numbers).T, demand[:, :2], demand[:, 2:])


def profiled_workload(
    profiles: Profiles, arrival: Data, *, slot: float = 3600.0, seed: int = 0
) -> Jobs:
    """Makes jobs that train measured models.

    Formula: `samples = floor(real(1, 8) F / rho_across)`, 1 to 8 slots with all workers.

    `arrival` int[N] as `read_arrivals` gives it; `slot` is the length of a slot in seconds. Made up
    from `seed` are the choice of the model, samples, batch, workers_per_server and utility. The
    resources are GPU and CPU. Refused is what makes jobs that no scheduler would take.

    Example:
        >>> import numpy as np
        >>> from asyncjax import cluster
        >>> one, two = np.ones(1), np.ones((1, 2))
        >>> profiles = Profiles(("net",), one, 100 * one, 50 * one, 200 * one, two, two)
        >>> jobs = profiled_workload(profiles, [0, 0, 3])
        >>> jobs.arrival.tolist(), (jobs.link_inside / jobs.link_across).tolist()
        ([0, 0, 3], [4.0, 4.0, 4.0])
    """
    slot = real("slot", slot, above=0)
    instance("profiles", profiles, Profiles, "Profiles, as read_profiles makes them")
    job = np.arange(np.size(arrival))
    model = whole_between(unit(seed, _MODEL, job), 0, len(profiles.model) - 1)
    due = real_between(unit(seed, _DUE, job), 1, 15)
    value = real_between(unit(seed, _VALUE, job), 1, 100)
    jobs = checked_jobs(
        Jobs(
            arrival=arrival,
            samples=np.ones(len(job)),
            batch=whole_between(unit(seed, _BATCH, job), 4, 16),
            workers_per_server=whole_between(unit(seed, _RATIO, job), 1, 4),
            gradient=profiles.size[model],
            compute=profiles.compute[model] / slot,
            link_across=profiles.across[model] * slot,
            link_inside=profiles.inside[model] * slot,
            worker=profiles.worker[model],
            server=profiles.server[model],
            utility=np.stack([value, unit(seed, _STEEPNESS, job), due], axis=-1),
        )
    )
    work = real_between(unit(seed, _WORK, job), 1, 8) * jobs.batch
    return jobs._replace(samples=np.maximum(np.floor(work / nominal_times(jobs).across), 1))


def _columns(table: JobTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads a table that may be made by hand; durations may be NaN, where there is none."""
    instance("table", table, JobTable, "a JobTable, as read_jobs makes it")
    submit, duration, gpus = (
        host_floats(name, getattr(table, name)) for name in ("submit", "duration", "gpus")
    )
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
