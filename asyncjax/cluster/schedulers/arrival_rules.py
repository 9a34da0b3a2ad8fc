"""Rules that decide about a job when it arrives, by prices, and the loop that plays them.

A rule is a function `(prices, room, job) -> allocation`: from the prices at the load so far and
what is free, both [T, H, R], to what the job gets, at once and for good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.cluster.jobs import Schedule, job_utility
from asyncjax.cluster.outcomes import ROUNDING
from asyncjax.cluster.resource_prices import Episode, JobRow, price
from asyncjax.cluster.slot_tables import cheapest_by_slot


class Allocation(NamedTuple):
    """What a rule gives one job; with a leading axis N, all jobs."""

    workers: Array  # int32[T, H], workers in each slot on each machine
    servers: Array  # int32[T, H], servers
    admitted: Array  # bool, whether it is let in
    payoff: Array  # float, utility at the last used slot less the cost of the units; 0 if rejected
    overflow: Array  # bool, whether a static shape was too small for an exact answer


ArrivalRule = Callable[[Array, Array, JobRow], Allocation]


def play_arrivals(rule: ArrivalRule, episode: Episode, n_slots: int) -> Allocation:
    """Plays a rule over the jobs of an episode; pure, for `jit` with `n_slots` static and `vmap`.

    Returns allocations with a leading axis N.
    """
    jobs = jax.tree.map(jnp.asarray, episode.jobs)
    capacity = jnp.asarray(episode.capacity)

    def step(load: Array, job: JobRow) -> tuple[Array, Allocation]:
        prices = price(load, capacity, episode.low, episode.high)
        found = rule(prices, jnp.maximum(capacity - load, 0), job)
        workers, servers = (x.astype(load.dtype)[..., None] for x in found[:2])
        return load + (workers * job.worker + servers * job.server), found

    load = jnp.zeros((n_slots, *capacity.shape), capacity.dtype)
    return jax.lax.scan(step, load, jobs)[1]


def payoffs(cost: Array, job: JobRow) -> tuple[Array, Array]:
    """Finds the payoff of ending a job in each slot, float[T], and the choices that lead there.

    `cost` float[T, Q], of every amount in every slot; the choices are those of `cheapest_by_slot`.
    """
    nothing = jnp.zeros((len(cost), 1), cost.dtype)
    best, choice = cheapest_by_slot(jnp.concatenate([nothing, cost], axis=1))
    slots = jnp.arange(len(cost))
    worth = job_utility(job.utility, slots - job.arrival)
    return jnp.where(slots >= job.arrival, worth - best[:, -1], -jnp.inf), choice


def until_done(workers: Array, servers: Array, job: JobRow) -> tuple[Array, Array]:
    """Takes away the units after the slot in which a job has really trained all its samples.

    Whole units train more than the parts they were counted for, and more inside one machine than
    across, so a job may be done before the last slot that a search gave it. `workers`, `servers`
    int[T, H]; returns the same. Rounding errors never make it take what is still needed.
    """
    dtype = job.pace.dtype
    total, helpers = workers.sum(-1).astype(dtype), servers.sum(-1).astype(dtype)
    inside = ((workers + servers) > 0).sum(-1) <= 1
    compute, across, within = job.pace
    exchange = total / jnp.maximum(helpers, 1) * jnp.where(inside, within, across)
    share = jnp.where((total > 0) & (helpers > 0), total / (compute + exchange), 0)
    errors = (len(total) + 8) * float(jnp.finfo(dtype).eps)  # of the sum, relative, at the most
    before = jnp.cumsum(jnp.concatenate([jnp.zeros(1, dtype), share[:-1]]))
    needed = (before < (1 - ROUNDING) * (1 + errors))[:, None]
    return jnp.where(needed, workers, 0), jnp.where(needed, servers, 0)


def schedule_of(allocation: Allocation) -> Schedule:
    """Brings the allocations of one episode, with their leading axis N, to the host."""
    return Schedule(*(np.asarray(field) for field in allocation[:4]))
