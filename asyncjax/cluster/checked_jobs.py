"""Jobs, machines and schedules as they are given, checked on the host before anything compiles."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import instance, shown, whole, within
from asyncjax.cluster.machines_and_jobs import Data, Jobs, Machines, Schedule

MOST_SLOTS = 2**20
MOST_JOBS = 10_000_000
MOST_NUMBERS = 2**28  # of a schedule's workers: 1 GiB, and as much for its servers

_POSITIVE = {"samples", "batch", "workers_per_server", "compute", "link_across", "link_inside"}
_WHOLE = ("arrival", "batch", "asked")
_LARGEST_WHOLE = 2**53  # in double precision


def host_floats(name: str, value: Any) -> np.ndarray:
    """Reads numbers onto the host as float64; refuses what is traced, or no number (TypeError).

    Example:
        >>> host_floats("delays", [1, 2])
        array([1., 2.])
    """
    if isinstance(value, Tracer):
        raise TypeError(f"{name} must be concrete, on the host, got {value}")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # rows of several lengths
        raise TypeError(f"{name} must be made of real numbers, got {shown(value)}") from error
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise TypeError(f"{name} must be made of real numbers, got {shown(value)}")
    return array.astype(np.float64)


def checked_jobs(jobs: Jobs) -> Jobs:
    """Reads jobs onto the host, in double precision, and refuses what makes no sense.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.tiny(0)
        >>> checked_jobs(jobs._replace(samples=-jobs.samples))
        Traceback (most recent call last):
        ...
        ValueError: samples must be positive and finite, got -28.0 at index 0
    """
    instance("jobs", jobs, Jobs, "cluster.Jobs")
    given = jobs._asdict()
    asked = given.pop("asked")
    fields = {name: host_floats(name, value) for name, value in given.items()}
    nothing = np.zeros(fields["arrival"].shape)
    fields["asked"] = nothing if asked is None else host_floats("asked", asked)
    n_jobs = fields["arrival"].shape[0] if fields["arrival"].ndim == 1 else 0
    if n_jobs == 0:
        raise ValueError(
            f"arrival must have one entry a job, got an array of shape {fields['arrival'].shape}"
        )
    n_resources = fields["worker"].shape[-1] if fields["worker"].ndim else 0
    shapes = dict.fromkeys(("worker", "server"), (n_jobs, n_resources)) | {"utility": (n_jobs, 3)}
    for name, value in fields.items():
        shape = shapes.get(name, (n_jobs,))
        if value.shape != shape:
            raise ValueError(f"{name} must have the shape {shape}, got {value.shape}")
        if name in _POSITIVE:
            within(name, value, above=0)
        else:
            within(name, value, least=None if name == "utility" else 0)
    for name in _WHOLE:
        within(name, fields[name], most=_LARGEST_WHOLE)
        parts = fields[name] != np.floor(fields[name])
        if parts.any():
            job = int(np.argmax(parts))
            raise ValueError(f"{name} must be whole, got {fields[name][job]} for job {job}")
    for name in ("worker", "server"):
        idle = ~(fields[name] > 0).any(-1)
        if idle.any():
            raise ValueError(
                f"{name} must have a positive demand, got none for job {np.argmax(idle)}"
            )
    drops = np.flatnonzero(np.diff(fields["arrival"]) < 0)
    if drops.size:
        earlier, later = fields["arrival"][drops[0] : drops[0] + 2].astype(int)
        raise ValueError(
            f"arrival must not decrease, got {earlier} for job {drops[0]} and {later} for the next"
        )
    return Jobs(**(fields | {name: fields[name].astype(np.int64) for name in _WHOLE}))


def checked_machines(machines: Machines, n_resources: int) -> Machines:
    """Reads machines onto the host; they have the resources of the jobs.

    Example:
        >>> checked_machines(Machines([[1.0, -1.0]]), 2)
        Traceback (most recent call last):
        ...
        ValueError: capacity must be at least 0 and finite, got -1.0 at index 0, 1
    """
    instance("machines", machines, Machines, "cluster.Machines")
    capacity = host_floats("capacity", machines.capacity)
    if capacity.ndim != 2 or capacity.shape[0] == 0 or capacity.shape[1] != n_resources:
        raise ValueError(
            f"capacity must have the shape [machines, {n_resources}], since worker and server have"
            f" {n_resources} resources, got {capacity.shape}"
        )
    return Machines(within("capacity", capacity, least=0))


def checked_cluster(jobs: Jobs, machines: Machines, n_slots: int) -> tuple[Jobs, Machines]:
    """Reads what every scheduler is given.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> checked_cluster(jobs, machines, 1)
        Traceback (most recent call last):
        ...
        ValueError: arrival must be less than n_slots = 1, got 1 for job 2
    """
    n_slots = whole("n_slots", n_slots, 1, MOST_SLOTS)
    jobs = checked_jobs(jobs)
    late = jobs.arrival >= n_slots
    if late.any():
        job = int(np.argmax(late))
        raise ValueError(
            f"arrival must be less than n_slots = {n_slots}, got {jobs.arrival[job]} for job {job}"
        )
    machines = checked_machines(machines, jobs.worker.shape[1])
    n_jobs, n_machines = len(jobs.arrival), len(machines.capacity)
    if n_jobs * n_slots * n_machines >= MOST_NUMBERS:
        raise ValueError(
            f"n_slots must make fewer than 2**28 numbers of {n_jobs} jobs on {n_machines} machines,"
            f" got {n_slots}"
        )
    return jobs, machines


def checked_schedule(schedule: Schedule, jobs: Jobs) -> tuple[Schedule, Jobs]:
    """Reads a schedule and its jobs onto the host: units that are finite, at least 0, and theirs.

    Whether it keeps the rules of the model is for `check` to say.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.tiny(0)
        >>> units = np.zeros((3, 4, 2))
        >>> checked_schedule(Schedule(units, units, np.ones(3, bool), np.zeros(3)), jobs)
        Traceback (most recent call last):
        ...
        ValueError: workers must have the shape [4, slots, machines] of the 4 jobs, got (3, 4, 2)
    """
    instance("schedule", schedule, Schedule, "a cluster.Schedule")
    jobs = checked_jobs(jobs)
    n_jobs = len(jobs.arrival)
    workers, servers = checked_units(schedule.workers, schedule.servers)
    if workers.ndim != 3 or len(workers) != n_jobs or workers.size == 0:
        raise ValueError(
            f"workers must have the shape [{n_jobs}, slots, machines] of the {n_jobs} jobs, got"
            f" {workers.shape}"
        )
    admitted, payoff = np.asarray(schedule.admitted), np.asarray(schedule.payoff)
    for name, value in (("admitted", admitted), ("payoff", payoff)):
        if value.shape != (n_jobs,):
            raise ValueError(f"{name} must have one entry a job, got shape {value.shape}")
    return Schedule(workers, servers, admitted, payoff), jobs


def checked_units(workers: Data, servers: Data) -> tuple[np.ndarray, np.ndarray]:
    """Reads numbers of units, of one shape, onto the host."""
    for name, value in (("workers", workers), ("servers", servers)):
        within(name, host_floats(name, value), least=0)
    workers, servers = np.asarray(workers), np.asarray(servers)
    if workers.shape != servers.shape:
        raise ValueError(
            f"workers and servers must have one shape, got {workers.shape} and {servers.shape}"
        )
    return workers, servers
