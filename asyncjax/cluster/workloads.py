"""Workloads: jobs and machines made from an integer seed, the same numbers everywhere.

| name | what it is |
|---|---|
| `ranges(seed)` | four resources, large jobs; far more work than the machines can do |
| `balanced(seed)` | the same, each job with the work of 1 to 8 slots at its largest crew |
| `local(seed)` | the same, small batches and slow links: communication decides |
| `tiny(seed)` | four jobs, four slots, two machines: small enough for the exact optimum |

The shapes follow Yu, Liu, Wu, Ji and Bentley (2021): four resources, sigmoid utilities in three
classes, more arrivals in odd slots than in even ones. A slot is thought of as an hour.

The full text of that paper was not at hand. `ranges` holds its numbers as they are recalled, which
were not checked against a page of it; where the other presets differ, that was chosen here:

| number | `ranges`, recalled from the paper | chosen here |
|---|---|---|
| jobs, slots, machines | | any; by default 50, 20, 100 |
| samples | 50 to 200 epochs of 20 000 to 500 000 | `balanced`, `local`: the work of 1 to 8 slots |
| batch | 1 to 200 | `balanced`: 20 to 200; `local`: 4 to 16 |
| workers a server, gradient | 1 to 10; 30 to 575 MB | |
| time of a sample | 10^-5 to 10^-4 slots, logarithm uniform | |
| links | 100 to 600 MB a second, inside 10 times that | `local`: a tenth; an hour a slot |
| a worker | 0-4 GPUs, 1-10 vCPUs, 2-32 GB, 5-10 GB of storage | |
| a server | as a worker, without GPUs | |
| a machine | 18 times the mean worker, all alike | |
| arrivals | weights 1/3 in even slots, 2/3 in odd ones | |
| utility | value 1 to 100, due 1 to 15 | |
| its steepness | of 10, 55, 35 % of the jobs: 0, 0.01 to 1, 4 to 6 | |

All numbers are a hash of the seed and a counter (`unit`), so that they stay the same for ever:
streams of random generators change between versions. Keys are for simulation.

Note:
    `ranges` is over-full: about a quarter of its jobs can finish at all, so a range or the length
    of a slot must be recalled wrongly. Use `balanced` for claims.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import whole
from asyncjax.cluster.jobs import MOST_JOBS, MOST_SLOTS, Jobs, Machines, checked_jobs, nominal_times

__all__ = ["Workload", "balanced", "fixed_workers", "local", "ranges", "tiny", "unit"]

# What each stream of numbers is for.
_ARRIVAL, _EPOCHS, _DATA, _BATCH, _RATIO, _GRADIENT, _COMPUTE, _LINK = range(8)
_WORKER, _SERVER, _KIND, _STEEPNESS, _VALUE, _DUE, _WORK, _FIXED, _CAPACITY = range(8, 17)
_MOST_MACHINES = 1_000_000
_GAMMA, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
# Batches from and to, and the factor from MB a second to MB a slot of an hour.
_PRESETS = {"ranges": (1, 200, 3600.0), "balanced": (20, 200, 3600.0), "local": (4, 16, 360.0)}
_TINY = 32  # added to the streams of `tiny`

_LEAST = np.array([0, 1, 2, 5])  # GPU, vCPU, GB of memory, GB of storage of one unit
_MOST = np.array([4, 10, 32, 10])


class Workload(NamedTuple):
    """Jobs and the machines they meet, NumPy arrays in double precision."""

    jobs: Jobs  # what arrives
    machines: Machines  # what it meets


def ranges(seed: int, *, n_jobs: int = 50, n_slots: int = 20, n_machines: int = 100) -> Workload:
    """Makes large jobs: 50 to 200 epochs of 20 000 to 500 000 samples.

    Args:
        seed: Any integer.
        n_jobs: How many jobs, at most 10 million.
        n_slots: Slots in which they arrive, at most 2^20.
        n_machines: How many machines, all alike, at most a million.

    Example:
        >>> from asyncjax import cluster
        >>> cluster.workloads.ranges(0).machines.capacity[0].tolist()
        [36.0, 99.0, 306.0, 135.0]
    """
    return _preset("ranges", seed, n_jobs, n_slots, n_machines)


def balanced(seed: int, *, n_jobs: int = 50, n_slots: int = 20, n_machines: int = 100) -> Workload:
    """Makes jobs that their largest crew trains in 1 to 8 slots.

    Formula: `samples = floor(real(1, 8) F / rho_across)`.

    Args:
        seed, n_jobs, n_slots, n_machines: As in `ranges`.

    Example:
        >>> from asyncjax import cluster
        >>> cluster.workloads.balanced(0).jobs.batch[:3].tolist()
        [165, 151, 80]
    """
    return _preset("balanced", seed, n_jobs, n_slots, n_machines)


def local(seed: int, *, n_jobs: int = 50, n_slots: int = 20, n_machines: int = 100) -> Workload:
    """Makes jobs with batches of 4 to 16 and links a tenth as fast: communication decides.

    Args:
        seed, n_jobs, n_slots, n_machines: As in `ranges`.

    Example:
        >>> from asyncjax import cluster
        >>> cluster.workloads.local(0).jobs.batch[:3].tolist()
        [14, 13, 8]
    """
    return _preset("local", seed, n_jobs, n_slots, n_machines)


def tiny(seed: int) -> Workload:
    """Makes four jobs for four slots and two machines, small enough for an exact optimum.

    Args:
        seed: Any integer.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> len(jobs.samples), machines.capacity.shape
        (4, (2, 2))
    """
    job = np.arange(4)
    pair = 2 * job[:, None] + np.arange(2)

    def draw(field: int, index: np.ndarray = job) -> np.ndarray:
        return unit(seed, field + _TINY, index)

    compute = 0.05 + 0.05 * draw(_COMPUTE)
    link = 5 + 5 * draw(_LINK)
    steepness = np.array([0.0, 0.5, 5.0])[whole_between(draw(_STEEPNESS), 0, 2)]
    jobs = Jobs(
        arrival=np.sort(whole_between(draw(_ARRIVAL), 0, 2)),
        samples=np.floor((1 + 4 * draw(_WORK)) / compute),
        batch=whole_between(draw(_BATCH), 2, 6),
        workers_per_server=whole_between(draw(_RATIO), 1, 3).astype(np.float64),
        gradient=0.5 + draw(_GRADIENT),
        compute=compute,
        link_across=link,
        link_inside=10 * link,
        worker=whole_between(draw(_WORKER, pair), 1, 2).astype(np.float64),
        server=whole_between(draw(_SERVER, pair), 1, 2).astype(np.float64),
        utility=np.stack([1 + 99 * draw(_VALUE), steepness, 3 * draw(_DUE)], axis=-1),
        asked=np.zeros(4, np.int64),
    )
    capacity = whole_between(draw(_CAPACITY, pair[:2]), 5, 8).astype(np.float64)
    return Workload(jobs, Machines(capacity))


def fixed_workers(seed: int, jobs: Jobs) -> np.ndarray:
    """Draws how many workers a job asks for where the rule leaves that to its owner.

    Formula: `min(whole(u, 1, 30), F)`.

    Args:
        seed: Any integer.
        jobs: The jobs.

    Returns:
        int64[N].

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.tiny(0)
        >>> cluster.workloads.fixed_workers(0, jobs) <= jobs.batch
        array([ True,  True,  True,  True])
    """
    jobs = checked_jobs(jobs)
    draws = unit(seed, _FIXED, np.arange(len(jobs.batch)))
    return np.minimum(whole_between(draws, 1, 30), jobs.batch)


def _preset(name: str, seed: int, n_jobs: int, n_slots: int, n_machines: int) -> Workload:
    """A workload with four resources."""
    least, most, link = _PRESETS[name]
    job = np.arange(whole("n_jobs", n_jobs, 1, MOST_JOBS))
    n_slots = whole("n_slots", n_slots, 1, MOST_SLOTS)
    n_machines = whole("n_machines", n_machines, 1, _MOST_MACHINES)
    quad = 4 * job[:, None] + np.arange(4)

    def draw(field: int, index: np.ndarray = job) -> np.ndarray:
        return unit(seed, field, index)

    samples = whole_between(draw(_EPOCHS), 50, 200) * whole_between(draw(_DATA), 20_000, 500_000)
    rate = link * real_between(draw(_LINK), 100, 600)
    weights = np.where(np.arange(n_slots) % 2 == 0, 1 / 3, 2 / 3)  # of arrivals
    later = np.cumsum(weights / weights.sum()) <= draw(_ARRIVAL)[:, None]
    kind = draw(_KIND)  # a tenth without hurry, a third steep, the others between
    steep = np.where(kind < 0.65, 0.01 + 0.99 * draw(_STEEPNESS), 4 + 2 * draw(_STEEPNESS))
    value, due = real_between(draw(_VALUE), 1, 100), real_between(draw(_DUE), 1, 15)
    server = whole_between(draw(_SERVER, quad), _LEAST, _MOST).astype(np.float64)
    server[:, 0] = 0
    jobs = Jobs(
        arrival=np.sort(np.minimum(later.sum(-1), n_slots - 1)),
        samples=samples.astype(float),
        batch=whole_between(draw(_BATCH), least, most),
        workers_per_server=whole_between(draw(_RATIO), 1, 10).astype(np.float64),
        gradient=real_between(draw(_GRADIENT), 30, 575),
        compute=10.0 ** (-5 + draw(_COMPUTE)),
        link_across=rate,
        link_inside=10 * rate,
        worker=whole_between(draw(_WORKER, quad), _LEAST, _MOST).astype(np.float64),
        server=server,
        utility=np.stack([value, np.where(kind < 0.10, 0.0, steep), due], axis=-1),
        asked=np.zeros(len(job), np.int64),
    )
    if name != "ranges":
        slots = real_between(draw(_WORK), 1, 8)
        jobs = jobs._replace(samples=np.floor(slots * jobs.batch / nominal_times(jobs).across))
    capacity = np.tile(18 * (_LEAST + _MOST) / 2, (n_machines, 1))
    return Workload(jobs, Machines(capacity))


def unit(seed: int, field: int, index: Any) -> np.ndarray:
    """Draws numbers in [0, 1) by counter.

    Formula: `mix(mix(mix(seed + G) + (field + 1) G) + (j + 1) G) >> 11` times `2^-53`, with
    `G = 0x9E3779B97F4A7C15`, modulo 2^64; `mix` is the finalizer of SplitMix64.

    Args:
        seed: Any integer.
        field: What the numbers are for, an integer: another one is another stream.
        index: int[...], which numbers of the stream.

    Returns:
        float64[...], in the shape of `index`.

    Example:
        >>> unit(0, 0, [0, 1, 2])
        array([0.13870941, 0.97110208, 0.27783287])

    Reference:
        Steele, Lea and Flood, 2014.
    """
    start = _mix(_mix(operator.index(seed) + _GAMMA & _MASK) + (field + 1) * _GAMMA & _MASK)
    counters = np.asarray(index)
    # Arrays of at least one dimension wrap around in silence; scalars warn.
    z = (np.atleast_1d(counters).astype(np.uint64) + 1) * _GAMMA + start
    return ((_mix(z) >> 11) * 2.0**-53).reshape(counters.shape)


def whole_between(numbers: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """Turns numbers in [0, 1) into whole numbers int64[...] from `low` to `high`, both included."""
    return np.floor(low + numbers * (np.asarray(high) - low + 1)).astype(np.int64)


def real_between(numbers: np.ndarray, low: float, high: float) -> np.ndarray:
    """Turns numbers in [0, 1) into numbers in [low, high)."""
    return low + numbers * (high - low)


def _mix(z: Any) -> Any:
    """The mixing function on uint64 arrays, and on Python integers below 2^64."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)
