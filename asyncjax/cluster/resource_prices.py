"""Prices of resources that rise with their load, and the bounds between which they rise.

    price(load)[h, r] = L (U[r] / L)^(load / C)

At load 0 a resource costs L, so little that all are welcome; at load C it costs U[r], so much that
nobody gains by entering. The bounds come from the jobs:

    U[r] = max_i u_i(D_i) / (smallest positive one of alpha_i[r], beta_i[r])
    mu   = max_i  T sum_{h,r} C / (ceil(V_i rho_inside_i) dem_i)
    L    = min_i  u_i(T - a_i) / (2 mu ceil(V_i rho_across_i) dem_i)
    dem  = sum_r alpha[r] + beta[r]

After the primal-dual method of Yu, Liu, Wu, Ji and Bentley (2021). L decides, in effect, who is
admitted: raise it and a crowded cluster earns more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from asyncjax.checks import within
from asyncjax.cluster.checked_jobs import checked_cluster, host_floats
from asyncjax.cluster.gang_size import best_delays
from asyncjax.cluster.machines_and_jobs import Jobs, Machines
from asyncjax.cluster.throughput import nominal_times
from asyncjax.cluster.utility import job_utility


class PriceBounds(NamedTuple):
    """Between what prices move.

    Attributes:
        low: float, L, price of an idle resource, utility a unit and slot.
        high: float64[R], U, price of a full one; 0 for a resource that nobody asks for.
        spread: float, mu.
    """

    low: float
    high: np.ndarray  # float64[R]
    spread: float


def price(load: ArrayLike, capacity: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Computes prices from the load.

    Formula: `L (U / L)^(load / C)`, as `exp(log L + (load / C) (log max(U, L) - log L))`, since
    `U / L` overflows in single precision.

    Args:
        load: float[..., H, R], units in use.
        capacity: float[H, R], units there are; where it is 0, load / C counts as 0.
        low: L, positive.
        high: float[R], U; where it is below L, the price is L.

    Returns:
        float[..., H, R], utility a unit and slot.

    Raises:
        TypeError: If an argument is not made of numbers; traced ones pass.
        ValueError: If one is negative or not finite, `low` is not positive, or the shapes do not
            broadcast.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import cluster
        >>> load = jnp.array([[0.0, 2.0], [1.0, 4.0]])
        >>> cluster.price(load, jnp.full((2, 2), 4.0), 0.01, jnp.array([1.0, 100.0])).round(4)
        Array([[1.00e-02, 1.00e+00], [3.16e-02, 1.00e+02]], dtype=float32)

    Reference:
        Yu et al. (2021), arXiv 2108.02917: exponential price function.
    """
    load, capacity, high = (_array(value) for value in (load, capacity, high))
    for name, value in (("load", load), ("capacity", capacity), ("high", high)):
        within(name, value, least=0)
    within("low", low, above=0)
    shapes = [np.shape(value) for value in (load, capacity, low, high)]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise ValueError(
            f"load, capacity, low and high must broadcast, got shapes {shapes}"
        ) from error
    share = jnp.where(capacity == 0, 0.0, load / jnp.where(capacity == 0, 1.0, capacity))
    floor, top = _log(low, share.dtype), _log(high, share.dtype)
    return jnp.exp(floor + share * jnp.maximum(top - floor, 0))


def price_bounds(
    jobs: Jobs, machines: Machines, *, n_slots: int, delays: np.ndarray | None = None
) -> PriceBounds:
    """Computes the bounds of prices from all jobs, on the host, in double precision.

    Formula: see the head of this file.

    Args:
        jobs: The jobs, all of them: the bounds look ahead, decisions do not.
        machines: The machines.
        n_slots: T, number of slots.
        delays: float[N], the delays at which L values the jobs; None for `T - arrival`, the end of
            time. `np.minimum(best_delays(jobs), n_slots - jobs.arrival)` gives a much higher L.

    Returns:
        The bounds.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If jobs and machines do not fit, or `delays` is not finite or has the wrong
            length.

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
    ends = n_slots - jobs.arrival if delays is None else host_floats("delays", delays)
    within("delays", ends)
    if ends.shape != jobs.arrival.shape:
        raise ValueError(f"delays must have one entry a job, got an array of shape {ends.shape}")
    both = np.stack([jobs.worker, jobs.server])
    smallest = np.where(both > 0, both, np.inf).min(0)
    best = job_utility(jobs.utility, best_delays(jobs))
    demand = (jobs.worker + jobs.server).sum(-1)
    times = nominal_times(jobs)
    total = n_slots * machines.capacity.sum()
    spread = (total / (np.ceil(jobs.samples * times.inside) * demand)).max()
    cost = 2 * spread * np.ceil(jobs.samples * times.across) * demand
    # Machines without any room have no spread, and any price will do.
    low = (job_utility(jobs.utility, ends) / cost).min() if spread > 0 else 0.0
    return PriceBounds(float(low), (best[:, None] / smallest).max(0), float(spread))


def _array(value: Any) -> Any:
    """Lists as arrays, anything else as it is."""
    return np.asarray(value) if isinstance(value, list | tuple) else value


def _log(bound: ArrayLike, dtype: jnp.dtype) -> Array:
    """Logarithm of a bound; of one on the host in double precision, which reaches further down."""
    if isinstance(bound, Array):
        return jnp.log(jnp.maximum(bound, jnp.finfo(dtype).tiny)).astype(dtype)
    least = np.finfo(np.float64).smallest_subnormal
    return jnp.asarray(np.log(np.maximum(np.asarray(bound, np.float64), least)), dtype)
