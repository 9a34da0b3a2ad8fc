"""How fast a job trains, with so many units, on one machine or on several.

With W workers and S servers in a slot, each worker takes F/W samples a step and exchanges 2 g / S
with every server, so that

    samples trained a slot = W / (tau + (W/S) 2 g / (b F)),     0 if W = 0 or S = 0,

where b is the rate of the links inside a machine if all units of the job stand on one machine in
that slot, and the rate across machines otherwise. At the nominal ratio W/S = gamma a sample costs

    rho = tau + gamma 2 g / (b F)     slots and worker,

once inside and once across; more servers than W/gamma never make it slower.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.cluster.checked_jobs import checked_jobs, checked_units
from asyncjax.cluster.machines_and_jobs import Data, Jobs


class SampleTimes(NamedTuple):
    """Slots a sample and worker at the nominal ratio of workers to servers."""

    inside: np.ndarray  # float64[N], if one machine holds all units
    across: np.ndarray  # float64[N], if several do


def sample_times(jobs: Jobs) -> SampleTimes:
    """Computes rho, the slots a sample costs one worker, inside one machine and across machines.

    Formula: `rho = tau + gamma 2 g / (b F)`.

    Args:
        jobs: The jobs, on the host.

    Returns:
        Two float64[N], slots.

    Raises:
        TypeError: If `jobs` are no Jobs of concrete numbers.
        ValueError: If they make no sense.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.balanced(0)
        >>> float(cluster.sample_times(jobs).across[0])
        2.92822830661...e-05
    """
    return nominal_times(checked_jobs(jobs))


def nominal_times(jobs: Jobs) -> SampleTimes:
    """Computes what `sample_times` does, of jobs that are known to make sense."""
    tau, gamma, size, batch = (
        np.asarray(x, np.float64)
        for x in (jobs.compute, jobs.workers_per_server, jobs.gradient, jobs.batch)
    )
    inside, across = (
        tau + gamma * 2 * size / (np.asarray(rate, np.float64) * batch)
        for rate in (jobs.link_inside, jobs.link_across)
    )
    return SampleTimes(inside, across)


def samples_trained(workers: Data, servers: Data, jobs: Jobs) -> np.ndarray:
    """Computes the samples that units really train in a slot.

    Formula: `W / (tau + (W/S) 2 g / (b F))`, with W and S the sums over machines.

    Args:
        workers: int[N, ..., H], workers of each job on each machine.
        servers: int[N, ..., H], servers.
        jobs: The N jobs.

    Returns:
        float64[N, ...], samples.

    Raises:
        TypeError: If units are not made of numbers, or `jobs` no Jobs.
        ValueError: If units are negative or not finite, their shapes differ or are not those of N
            jobs, or the jobs make no sense.

    Example:
        >>> import numpy as np
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.tiny(0)
        >>> together, apart = np.array([[2, 0]] * 4), np.array([[0, 1]] * 4)
        >>> np.round(cluster.samples_trained(together, together, jobs)[0], 2).item()
        17.26
        >>> np.round(cluster.samples_trained(together, apart, jobs)[0], 2).item()
        4.19
    """
    jobs = checked_jobs(jobs)
    workers, servers = checked_units(workers, servers)
    if workers.ndim < 2 or len(workers) != len(jobs.arrival):
        raise ValueError(
            f"workers must have the shape [{len(jobs.arrival)}, ..., machines], got {workers.shape}"
        )
    return trained(workers, servers, jobs)


def trained(workers: np.ndarray, servers: np.ndarray, jobs: Jobs) -> np.ndarray:
    """Computes what `samples_trained` does, of what is known to make sense."""
    total, helpers = workers.sum(-1, dtype=np.float64), servers.sum(-1, dtype=np.float64)
    inside = ((workers + servers) > 0).sum(-1) <= 1
    shape = (-1,) + (1,) * (total.ndim - 1)
    tau, size, batch, across, within = (
        np.asarray(x, np.float64).reshape(shape)
        for x in (jobs.compute, jobs.gradient, jobs.batch, jobs.link_across, jobs.link_inside)
    )
    trains = (total > 0) & (helpers > 0)
    ratio = total / np.where(trains, helpers, 1.0)
    slots = tau + ratio * 2 * size / (np.where(inside, within, across) * batch)
    return np.where(trains, total / slots, 0.0)
