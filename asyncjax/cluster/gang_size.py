"""How many units a job needs to train a given share of its samples in one slot.

The search over amounts is cut into Q parts: amount q = 1..Q is q V / Q samples, for which

    W = ceil(q V rho / Q),     S = ceil(W / gamma)

workers and servers are needed, once at the rate across machines and once at the rate inside one.
With k times as many servers as the job's own number, gamma becomes gamma / k, and rho falls too.
All in double precision on the host: V rho reaches 1e5, and a ceiling flips in single precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import shown, whole, within
from asyncjax.cluster.checked_jobs import checked_jobs, host_floats
from asyncjax.cluster.machines_and_jobs import Jobs
from asyncjax.cluster.throughput import nominal_times

MOST_PARTS = 10_000
MOST_FACTORS = 100
_LARGEST = 2**31 - 1
_SLACK = 1e-9  # a rounding error above a whole number is not another unit


class Crew(NamedTuple):
    """Units for every job and amount; column `q - 1` is amount `q`.

    Attributes:
        workers_across: int32[N, Q], workers if several machines share them.
        servers_across: int32[N, Q], servers for those.
        workers_inside: int32[N, Q], workers if one machine holds all.
        servers_inside: int32[N, Q], servers for those.
    """

    workers_across: np.ndarray  # int32[N, Q]
    servers_across: np.ndarray  # int32[N, Q]
    workers_inside: np.ndarray  # int32[N, Q]
    servers_inside: np.ndarray  # int32[N, Q]


def crew(jobs: Jobs, *, parts: int) -> Crew:
    """Computes the units for each of `parts` equal parts of every job.

    Formula: `W = ceil(q V rho / Q - 1e-9)`, `S = ceil(W / gamma - 1e-9)`, at most 2^31 - 1.

    Args:
        jobs: The jobs.
        parts: Q, into how many parts a job is cut, at most 10 000.

    Returns:
        Four int32[N, Q]. Only those with W up to the batch can run.

    Raises:
        TypeError: If `parts` is no integer, or `jobs` no Jobs.
        ValueError: If it is out of range, or the jobs make no sense.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.balanced(0)
        >>> units = cluster.crew(jobs, parts=20)
        >>> [int(numbers[0, 4]) for numbers in units]
        [136, 16, 100, 12]
    """
    parts = whole("parts", parts, 1, MOST_PARTS)
    jobs = checked_jobs(jobs)
    times = nominal_times(jobs)
    across = _units(jobs, times.across, parts)
    inside = _units(jobs, times.inside, parts)
    return Crew(*across, *inside)


def crews_to_choose(jobs: Jobs, *, parts: int, servers: Any) -> Crew:
    """Puts side by side the units for several numbers of servers.

    `servers` float[K], factors on the servers that a job names. Returns four int32[N, K parts];
    column `k parts + q - 1` is amount q with the factor k.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.tiny(0)
        >>> found = crews_to_choose(jobs, parts=2, servers=(1, 3))
        >>> found.workers_across[1].tolist(), found.servers_across[1].tolist()
        ([18, 35, 8, 15], [6, 12, 8, 15])
    """
    factors = read_servers(servers)
    own = [
        crew(jobs._replace(workers_per_server=jobs.workers_per_server / factor), parts=parts)
        for factor in factors
    ]
    return Crew(*(np.concatenate(units, axis=1) for units in zip(*own, strict=True)))


def read_servers(servers: Any) -> np.ndarray:
    """Reads factors on the servers of a job, float64[K], at least 1: fewer may not serve it.

    Example:
        >>> read_servers((1, 2.5))
        array([1. , 2.5])
    """
    factors = host_floats("servers", servers)
    if factors.ndim != 1 or not 0 < factors.size <= MOST_FACTORS:
        raise ValueError(
            f"servers must be a list of 1 to {MOST_FACTORS} factors, got {shown(servers)}"
        )
    return within("servers", factors, least=1, most=1e6)


def best_delays(jobs: Jobs) -> np.ndarray:
    """Computes how many slots each job takes with as many workers as it may have, on one machine.

    Formula: `D = ceil((V / F) rho_inside)`.

    Args:
        jobs: The jobs.

    Returns:
        float64[N], slots.

    Raises:
        TypeError: If `jobs` are no Jobs.
        ValueError: If they make no sense.

    Note:
        This counts slots. A job that takes D of them completes D - 1 slots after its arrival.

    Example:
        >>> from asyncjax import cluster
        >>> cluster.best_delays(cluster.workloads.balanced(0)[0])[:4]
        array([3., 1., 2., 1.])
    """
    jobs = checked_jobs(jobs)
    return np.ceil(jobs.samples / jobs.batch * nominal_times(jobs).inside)


def _units(jobs: Jobs, times: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Workers and servers int32[N, Q] at `times` slots a sample."""
    amounts = np.arange(1, parts + 1)
    exact = amounts * (jobs.samples * times)[:, None] / parts
    workers = np.minimum(np.ceil(exact - _SLACK), _LARGEST)
    servers = np.ceil(workers / jobs.workers_per_server[:, None] - _SLACK)
    return workers.astype(np.int32), np.minimum(servers, _LARGEST).astype(np.int32)
