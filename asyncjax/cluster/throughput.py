"""How fast a job trains with so many units, and how many units it needs.

With W workers and S servers in a slot, each worker takes F/W samples a step and exchanges 2 g / S
with every server, so that

    samples trained a slot = W / (tau + (W/S) 2 g / (b F)),     0 if W = 0 or S = 0,

where b is the rate of the links inside a machine if all units of the job stand on one machine in
that slot, and the rate across machines otherwise. At the nominal ratio W/S = gamma a sample costs

    rho = tau + gamma 2 g / (b F)     slots and worker,

once inside and once across; more servers than W/gamma never make it slower. The search over amounts
is cut into Q parts: amount q = 1..Q is q V / Q samples, for which

    W = ceil(q V rho / Q),     S = ceil(W / gamma)

workers and servers are needed. With k times as many servers as the job's own number, gamma becomes
gamma / k, and rho falls too. All in double precision on the host: V rho reaches 1e5, and a ceiling
flips in single precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.checks import whole
from asyncjax.cluster.jobs import Data, Jobs, checked_jobs, checked_units

MOST_PARTS = 10_000
_LARGEST = 2**31 - 1
_SLACK = 1e-9  # a rounding error above a whole number is not another unit


class SampleTimes(NamedTuple):
    """Slots a sample and worker at the nominal ratio of workers to servers."""

    inside: np.ndarray  # float64[N], if one machine holds all units
    across: np.ndarray  # float64[N], if several do


class Crew(NamedTuple):
    """Units for every job and amount; column `q - 1` is amount `q`."""

    workers_across: np.ndarray  # int32[N, Q], workers if several machines share them
    servers_across: np.ndarray  # int32[N, Q], servers for those
    workers_inside: np.ndarray  # int32[N, Q], workers if one machine holds all
    servers_inside: np.ndarray  # int32[N, Q], servers for those


def sample_times(jobs: Jobs) -> SampleTimes:
    """Computes rho, the slots a sample costs one worker, inside one machine and across machines.

    Formula: `rho = tau + gamma 2 g / (b F)`.

    Args:
        jobs: The jobs, on the host.

    Returns:
        Two float64[N], slots.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.balanced(0)
        >>> float(cluster.sample_times(jobs).across[0])
        2.92822830661...e-05
    """
    return nominal_times(checked_jobs(jobs))


def nominal_times(jobs: Jobs) -> SampleTimes:
    """Computes what `sample_times` does, of checked jobs."""
    inside, across = (
        jobs.compute + jobs.workers_per_server * 2 * jobs.gradient / (rate * jobs.batch)
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
        x.reshape(shape)
        for x in (jobs.compute, jobs.gradient, jobs.batch, jobs.link_across, jobs.link_inside)
    )
    trains = (total > 0) & (helpers > 0)
    ratio = total / np.where(trains, helpers, 1.0)
    slots = tau + ratio * 2 * size / (np.where(inside, within, across) * batch)
    return np.where(trains, total / slots, 0.0)


def crew(jobs: Jobs, *, parts: int) -> Crew:
    """Computes the units for each of `parts` equal parts of every job.

    Formula: `W = ceil(q V rho / Q - 1e-9)`, `S = ceil(W / gamma - 1e-9)`, at most 2^31 - 1.

    Args:
        jobs: The jobs.
        parts: Q, into how many parts a job is cut, at most 10 000.

    Returns:
        Four int32[N, Q]. Only those with W up to the batch can run.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.balanced(0)
        >>> units = cluster.crew(jobs, parts=20)
        >>> [int(numbers[0, 4]) for numbers in units]
        [136, 16, 100, 12]
    """
    parts = whole("parts", parts, 1, MOST_PARTS)
    return crew_with(checked_jobs(jobs), parts, 1.0)


def crew_with(jobs: Jobs, parts: int, factor: float) -> Crew:
    """Computes what `crew` does, with `factor` times the servers that a job names."""
    jobs = jobs._replace(workers_per_server=jobs.workers_per_server / factor)
    units = []
    for times in reversed(nominal_times(jobs)):
        exact = np.arange(1, parts + 1) * (jobs.samples * times)[:, None] / parts
        workers = np.minimum(np.ceil(exact - _SLACK), _LARGEST)
        servers = np.ceil(workers / jobs.workers_per_server[:, None] - _SLACK)
        units += [workers.astype(np.int32), np.minimum(servers, _LARGEST).astype(np.int32)]
    return Crew(*units)


def best_delays(jobs: Jobs) -> np.ndarray:
    """Computes how many slots each job takes with as many workers as it may have, on one machine.

    Formula: `D = ceil((V / F) rho_inside)`.

    Args:
        jobs: The jobs.

    Returns:
        float64[N], slots.

    Note:
        This counts slots. A job that takes D of them completes D - 1 slots after its arrival.

    Example:
        >>> from asyncjax import cluster
        >>> cluster.best_delays(cluster.workloads.balanced(0)[0])[:4]
        array([3., 1., 2., 1.])
    """
    jobs = checked_jobs(jobs)
    return np.ceil(jobs.samples / jobs.batch * nominal_times(jobs).inside)
