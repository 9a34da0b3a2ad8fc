"""What a rule that decides at arrival is given, on the device: jobs, machines, bounds of prices.

Everything is an argument, nothing a constant of the program: a program compiled once serves all
jobs, seeds and bounds of one shape, and `vmap` plays many episodes at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from asyncjax.checks import real, within
from asyncjax.cluster.checked_jobs import checked_cluster, host_floats
from asyncjax.cluster.gang_size import Crew, crews_to_choose
from asyncjax.cluster.machines_and_jobs import Data, Jobs, Machines
from asyncjax.cluster.resource_prices import price_bounds

_LEAST_PRICE = 1e-24


class JobRow(NamedTuple):
    """What a rule knows of one job when it arrives; with a leading axis N, of all jobs."""

    number: Data  # int32, its place in the order of arrival
    arrival: Data  # int32, slot of arrival
    batch: Data  # int32, F, the most workers in a slot
    ratio: Data  # float, gamma, workers a server
    worker: Data  # float[R], what a worker takes
    server: Data  # float[R], what a server takes
    utility: Data  # float[3], value, steepness, due
    pace: Data  # float[3], slots that all samples cost one worker: tau, and exchange across, inside
    crew: Crew  # four int32[K Q], units for each number of servers and amount


class Episode(NamedTuple):
    """Jobs, machines and bounds as one pytree of arrays; `prepare` makes it."""

    jobs: JobRow  # the jobs, with a leading axis N
    capacity: Data  # float[H, R]
    low: Data  # float, price of an idle resource, at least 1e-24
    high: Data  # float[R], price of a full one


def prepare(
    jobs: Jobs,
    machines: Machines,
    *,
    n_slots: int,
    parts: int = 20,
    low: float | None = None,
    high: Data | None = None,
    servers: Data = (1.0,),
) -> Episode:
    """Checks jobs and machines and computes what a rule needs, on the host, with JAX's precision.

    Its arguments are those of `pd_ors`, which are refused as there. Episodes of one shape can be
    stacked for `vmap`.

    Note:
        `low` is raised to 1e-24, which single precision can still multiply; literal bounds are
        often far below, where they make no difference to utility.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> episode = prepare(jobs, machines, n_slots=4, parts=8, high=50.0)
        >>> episode.high, episode.jobs.crew.workers_across.shape
        (array([50., 50.], dtype=float32), (4, 8))
    """
    jobs, machines = checked_cluster(jobs, machines, n_slots)
    units = crews_to_choose(jobs, parts=parts, servers=servers)
    if low is None or high is None:
        bounds = price_bounds(jobs, machines, n_slots=n_slots)
        low = bounds.low if low is None else low
        high = bounds.high if high is None else high
    least = real("low", low, least=0)
    most = host_floats("high", within("high", high, least=0))
    _check_size(n_slots, units.workers_across.shape[1], machines)
    resources = machines.capacity.shape[1:]
    if most.shape not in ((), resources):
        raise ValueError(
            f"high must be one number or one for each of the {resources[0]} resources, got {high}"
        )
    dtype = np.dtype(jnp.result_type(float))
    rows = JobRow(
        number=np.arange(len(jobs.arrival), dtype=np.int32),
        arrival=jobs.arrival.astype(np.int32),
        batch=np.minimum(jobs.batch, 2**31 - 2).astype(np.int32),
        ratio=jobs.workers_per_server.astype(dtype),
        worker=jobs.worker.astype(dtype),
        server=jobs.server.astype(dtype),
        utility=jobs.utility.astype(dtype),
        pace=_pace(jobs).astype(dtype),
        crew=units,
    )
    return Episode(
        jobs=rows,
        capacity=machines.capacity.astype(dtype),
        low=np.maximum(least, _LEAST_PRICE).astype(dtype),
        high=np.broadcast_to(most, resources).astype(dtype),
    )


def _pace(jobs: Jobs) -> np.ndarray:
    """V tau, and V 2 g / (b F) with the rates across machines and inside one, float64[N, 3]."""
    links = np.stack([jobs.link_across, jobs.link_inside])
    exchange = 2 * jobs.gradient / (links * jobs.batch)
    return (jobs.samples * np.stack([jobs.compute, *exchange])).T


def _check_size(n_slots: int, parts: int, machines: Machines) -> None:
    """Refuses tables of every part in every slot on every machine that fit into no memory.

    `parts` counts one for every number of servers that is tried.
    """
    n_machines, n_resources = machines.capacity.shape
    if n_slots * parts * n_machines * n_resources >= 2**31:
        raise ValueError(
            f"parts must make fewer than 2**31 numbers of {n_slots} slots, {n_machines} machines"
            f" and {n_resources} resources, got {parts}"
        )
