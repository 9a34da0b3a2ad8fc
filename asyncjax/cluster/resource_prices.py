"""Prices of resources that rise with their load, and what a rule that goes by them is given.

    price(load)[h, r] = L (U[r] / L)^(load / C)

At load 0 a resource costs L, so little that all are welcome; at load C it costs U[r], so much that
nobody gains by entering. The bounds come from the jobs:

    U[r] = max_i u_i(D_i) / (smallest positive one of alpha_i[r], beta_i[r])
    mu   = max_i  T sum_{h,r} C / (ceil(V_i rho_inside_i) dem_i)
    L    = min_i  u_i(T - a_i) / (2 mu ceil(V_i rho_across_i) dem_i)
    dem  = sum_r alpha[r] + beta[r]

After the primal-dual method of Yu, Liu, Wu, Ji and Bentley (2021). L decides, in effect, who is
admitted: raise it and a crowded cluster earns more.

An `Episode` holds jobs, machines and bounds on the device. Everything in it is an argument, nothing
a constant of the program: a program compiled once serves all jobs, seeds and bounds of one shape,
and `vmap` plays many episodes at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from asyncjax.checks import real, shown, whole, within
from asyncjax.cluster.jobs import (
    MOST_PARTS,
    Crew,
    Data,
    Jobs,
    Machines,
    checked_cluster,
    crew_with,
    job_utility,
    nominal_times,
)

_MOST_FACTORS = 100
_LEAST_PRICE = 1e-24


class PriceBounds(NamedTuple):
    """Between what prices move."""

    low: float  # float, L, price of an idle resource, utility a unit and slot
    high: np.ndarray  # float64[R], U, price of a full one; 0 for a resource that nobody asks for
    spread: float  # float, mu


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


def price(load: ArrayLike, capacity: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Computes prices from the load.

    Args:
        load: float[..., H, R], units in use.
        capacity: float[H, R], units there are; where it is 0, load / C counts as 0.
        low: L, positive.
        high: float[R], U; where it is below L, the price is L.

    Returns:
        float[..., H, R], utility a unit and slot.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import cluster
        >>> load = jnp.array([[0.0, 2.0], [1.0, 4.0]])
        >>> cluster.price(load, jnp.full((2, 2), 4.0), 0.01, jnp.array([1.0, 100.0])).round(4)
        Array([[1.00e-02, 1.00e+00], [3.16e-02, 1.00e+02]], dtype=float32)
    """
    for name, value in (("load", load), ("capacity", capacity), ("high", high)):
        within(name, value, least=0)
    within("low", low, above=0)
    load, capacity = jnp.asarray(load), jnp.asarray(capacity)
    share = jnp.where(capacity == 0, 0.0, load / jnp.where(capacity == 0, 1.0, capacity))
    floor, top = _log(low, share.dtype), _log(high, share.dtype)
    return jnp.exp(floor + share * jnp.maximum(top - floor, 0))


def price_bounds(
    jobs: Jobs, machines: Machines, *, n_slots: int, delays: np.ndarray | None = None
) -> PriceBounds:
    """Computes the bounds of prices from all jobs, on the host, in double precision.

    Formula: `U = max u(D) / (smallest demand)`, `L = min u(T - a) / (2 mu ceil(V rho) dem)`.

    Args:
        jobs: The jobs, all of them: the bounds look ahead, decisions do not.
        machines: The machines.
        n_slots: T, number of slots.
        delays: float[N], the delays at which L values the jobs; None for `T - arrival`, the end of
            time. `np.minimum(best_delays(jobs), n_slots - jobs.arrival)` gives a much higher L.

    Returns:
        The bounds.

    Note:
        U values a job at its best delay D_i in slots, although it could complete after D_i - 1: it
        is a little too low. L is set by the most hopeless job alone: literal values of 1e-30 and
        below are common where some utilities are steep. Both are kept as the method has them.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.balanced(0)
        >>> bounds = cluster.price_bounds(jobs, machines, n_slots=20)
        >>> bounds.high.round(3).tolist(), round(bounds.spread, 3)
        ([80.274, 80.274, 34.292, 19.804], 987.993)

    Reference:
        Yu et al. (2021), arXiv 2108.02917.
    """
    jobs, machines = checked_cluster(jobs, machines, n_slots)
    if delays is None:
        return bounds_of(jobs, machines, n_slots, n_slots - jobs.arrival)
    ends = within("delays", np.asarray(delays, np.float64))
    if ends.shape != jobs.arrival.shape:
        raise ValueError(f"delays must have one entry a job, got an array of shape {ends.shape}")
    return bounds_of(jobs, machines, n_slots, ends)


def bounds_of(jobs: Jobs, machines: Machines, n_slots: int, ends: np.ndarray) -> PriceBounds:
    """Computes what `price_bounds` does, of what is known to make sense."""
    both = np.stack([jobs.worker, jobs.server])
    smallest = np.where(both > 0, both, np.inf).min(0)
    times = nominal_times(jobs)
    best = job_utility(jobs.utility, np.ceil(jobs.samples / jobs.batch * times.inside))
    demand = (jobs.worker + jobs.server).sum(-1)
    total = n_slots * machines.capacity.sum()
    spread = (total / (np.ceil(jobs.samples * times.inside) * demand)).max()
    cost = 2 * spread * np.ceil(jobs.samples * times.across) * demand
    # Machines without any room have no spread, and any price will do.
    low = (job_utility(jobs.utility, ends) / cost).min() if spread > 0 else 0.0
    return PriceBounds(float(low), (best[:, None] / smallest).max(0), float(spread))


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
    """
    jobs, machines = checked_cluster(jobs, machines, n_slots)
    factors = np.asarray(servers, np.float64)
    if factors.ndim != 1 or not 0 < factors.size <= _MOST_FACTORS:
        raise ValueError(
            f"servers must be a list of 1 to {_MOST_FACTORS} factors, got {shown(servers)}"
        )
    within("servers", factors, least=1, most=1e6)  # fewer may not serve the workers
    parts = whole("parts", parts, 1, MOST_PARTS)
    n_machines, n_resources = machines.capacity.shape
    if n_slots * parts * factors.size * n_machines * n_resources >= 2**31:
        raise ValueError(
            f"parts must make fewer than 2**31 numbers of {n_slots} slots, {n_machines} machines"
            f" and {n_resources} resources, got {parts * factors.size}"
        )
    if low is None or high is None:
        bounds = bounds_of(jobs, machines, n_slots, n_slots - jobs.arrival)
        low = bounds.low if low is None else low
        high = bounds.high if high is None else high
    least = real("low", low, least=0)
    most = np.asarray(within("high", high, least=0), np.float64)
    dtype = np.dtype(jnp.result_type(float))
    exchange = 2 * jobs.gradient / (np.stack([jobs.link_across, jobs.link_inside]) * jobs.batch)
    crews = zip(*(crew_with(jobs, parts, factor) for factor in factors), strict=True)
    rows = JobRow(
        number=np.arange(len(jobs.arrival), dtype=np.int32),
        arrival=jobs.arrival.astype(np.int32),
        batch=np.minimum(jobs.batch, 2**31 - 2).astype(np.int32),
        ratio=jobs.workers_per_server.astype(dtype),
        worker=jobs.worker.astype(dtype),
        server=jobs.server.astype(dtype),
        utility=jobs.utility.astype(dtype),
        pace=(jobs.samples * np.stack([jobs.compute, *exchange])).T.astype(dtype),
        crew=Crew(*(np.concatenate(units, axis=1) for units in crews)),
    )
    return Episode(
        jobs=rows,
        capacity=machines.capacity.astype(dtype),
        low=np.maximum(least, _LEAST_PRICE).astype(dtype),
        high=np.broadcast_to(most, (n_resources,)).astype(dtype),
    )


def _log(bound: ArrayLike, dtype: jnp.dtype) -> Array:
    """Logarithm of a bound; of one on the host in double precision, which reaches further down."""
    if isinstance(bound, Array):
        return jnp.log(jnp.maximum(bound, jnp.finfo(dtype).tiny)).astype(dtype)
    least = np.finfo(np.float64).smallest_subnormal
    return jnp.asarray(np.log(np.maximum(np.asarray(bound, np.float64), least)), dtype)
