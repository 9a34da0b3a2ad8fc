"""Measured models: how long a mini-batch takes, how large a model is, how fast its links are.

A file has one row for each model, with the columns model, comp_s_per_minibatch (seconds), model_mb,
inter_mb_s and intra_mb_s (rates across and inside machines, MB a second), worker_cpu,
worker_gpu_quarter, ps_cpu and ps_gpu_quarter (what a worker and a server take; a GPU is four
quarters). Such profiles were measured for training with parameter servers; they are no part of this
library.

A sample, in the sense of `Jobs`, is here one mini-batch of one worker.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.checks import instance, real, within
from asyncjax.cluster.checked_jobs import MOST_SLOTS, host_floats
from asyncjax.cluster.data.counter_numbers import real_between, unit, whole_between
from asyncjax.cluster.data.csv_rows import Path, read_rows
from asyncjax.cluster.machines_and_jobs import Data, Jobs
from asyncjax.cluster.throughput import nominal_times

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
    columns = {name: name for name in ("model", *_NUMBERS, *_DEMANDS)}
    rows = [
        (
            row.text("model"),
            [row.number(name, positive=True) for name in _NUMBERS],
            [row.number(name, least=0.0) for name in _DEMANDS],
        )
        for row in read_rows(path, columns)
    ]
    models, numbers, demands = zip(*rows, strict=True)
    demand = np.array(demands) / [4.0, 1.0, 4.0, 1.0]
    compute, size, across, inside = np.array(numbers).T
    return Profiles(models, compute, size, across, inside, demand[:, :2], demand[:, 2:])


def profiled_workload(
    profiles: Profiles, arrival: Data, *, slot: float = 3600.0, seed: int = 0
) -> Jobs:
    """Makes jobs that train measured models.

    Formula: `samples = floor(real(1, 8) F / rho_across)`, 1 to 8 slots with all workers.

    `arrival` int[N] as `read_arrivals` gives it; `slot` is the length of a slot in seconds. Made up
    from `seed` are the choice of the model, samples, batch, workers_per_server and utility. The
    resources are GPU and CPU. Refused are profiles that make no sense, slots of arrival that are
    negative or decrease, and numbers out of range.

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
    profiles, slots = _checked_profiles(profiles), _checked_arrival(arrival)
    job = np.arange(len(slots))
    model = whole_between(unit(seed, _MODEL, job), 0, len(profiles.model) - 1)
    due = real_between(unit(seed, _DUE, job), 1, 15)
    value = real_between(unit(seed, _VALUE, job), 1, 100)
    jobs = Jobs(
        arrival=slots,
        samples=np.ones(len(slots)),
        batch=whole_between(unit(seed, _BATCH, job), 4, 16),
        workers_per_server=whole_between(unit(seed, _RATIO, job), 1, 4).astype(np.float64),
        gradient=profiles.size[model],
        compute=profiles.compute[model] / slot,
        link_across=profiles.across[model] * slot,
        link_inside=profiles.inside[model] * slot,
        worker=profiles.worker[model],
        server=profiles.server[model],
        utility=np.stack([value, unit(seed, _STEEPNESS, job), due], axis=-1),
        asked=np.zeros(len(slots), np.int64),
    )
    work = real_between(unit(seed, _WORK, job), 1, 8) * jobs.batch
    return jobs._replace(samples=np.maximum(np.floor(work / nominal_times(jobs).across), 1))


def _checked_profiles(profiles: Profiles) -> Profiles:
    """Reads profiles, which may be made by hand."""
    instance("profiles", profiles, Profiles, "Profiles, as read_profiles makes them")
    n_models = len(tuple(profiles.model))
    columns: dict[str, np.ndarray] = {}
    for name in ("compute", "size", "across", "inside", "worker", "server"):
        value = columns[name] = host_floats(name, getattr(profiles, name))
        is_demand = name in ("worker", "server")
        shape = (n_models, 2) if is_demand else (n_models,)
        if value.shape != shape or n_models == 0:
            raise ValueError(f"{name} must have the shape {shape} of the models, got {value.shape}")
        within(name, value, least=0) if is_demand else within(name, value, above=0)
    return Profiles(profiles.model, **columns)


def _checked_arrival(arrival: Data) -> np.ndarray:
    """Reads slots of arrival, at least one."""
    slots = within("arrival", host_floats("arrival", arrival), least=0, most=MOST_SLOTS - 1)
    if slots.ndim != 1 or slots.size == 0:
        raise ValueError(f"arrival must have one entry a job, got shape {slots.shape}")
    if (slots != np.floor(slots)).any() or (np.diff(slots) < 0).any():
        raise ValueError("arrival must be whole and must not decrease, got slots that are not so")
    return slots.astype(np.int64)
