"""OASiS: prices as in PD-ORS, but servers and workers stand on different machines.

Servers only on the first `floor(split H)` machines, workers only on the others, so every job runs
at the rate across machines. For W workers the machines are filled in order of their price with
whole units.
After Bao, Peng, Wu and Li, "Online job scheduling in distributed machine learning clusters"
(INFOCOM 2018); a reconstruction of our own.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.checks import real
from asyncjax.cluster.jobs import Data, Jobs, Machines, Schedule
from asyncjax.cluster.resource_prices import Episode, JobRow, prepare
from asyncjax.cluster.schedulers.arrival_rules import (
    Allocation,
    payoffs,
    play_arrivals,
    schedule_of,
    until_done,
)
from asyncjax.cluster.slot_solver import room_slack, take_cheapest, units_that_fit
from asyncjax.cluster.slot_tables import walk_back


def oasis(
    jobs: Jobs,
    machines: Machines,
    *,
    n_slots: int,
    parts: int = 20,
    low: float | None = None,
    high: Data | None = None,
    split: float = 0.5,
) -> Schedule:
    """Schedules jobs as they arrive by prices, with servers and workers on different machines.

    Formula: admit job i if `max over t of u_i(t - a_i) - best[t, Q]` is positive.

    Args:
        jobs: The jobs.
        machines: The machines; with one alone nothing can run.
        n_slots, parts, low, high: As in `pd_ors`.
        split: Share of the machines that hold servers, in [0, 1]; the others hold workers.

    Returns:
        The schedule; `admitted` are the jobs that got units, `payoff` is 0.

    Note:
        As `pd_ors` it chooses the workers of each slot by utility and prices, and ignores what jobs
        ask for (`jobs.asked`) by design. How many machines there are of either kind is a given of
        its model, not a choice of the rule; that half of them hold servers is ours. Jobs need far
        fewer servers than workers where one serves several, so a smaller `split` earns more there.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.oasis(jobs, machines, n_slots=4, parts=8)
        >>> round(cluster.total_utility(schedule, jobs), 3)
        12.153

    Reference:
        Bao et al., INFOCOM 2018, arXiv 1801.00936.
    """
    episode = prepare(jobs, machines, n_slots=n_slots, parts=parts, low=low, high=high)
    hosts = np.int32(real("split", split, least=0, most=1) * len(episode.capacity) + 1e-9)
    found = schedule_of(oasis_program(episode, n_slots=n_slots, hosts=hosts))
    return found._replace(payoff=np.zeros_like(found.payoff))


def oasis_episode(
    episode: Episode, *, n_slots: int, hosts: Array | np.int32 | None = None
) -> Allocation:
    """Plays OASiS; pure, for `jit` with `n_slots` static and for `vmap`.

    `hosts` is how many machines hold servers, the first; None for half of them. Returns allocations
    with a leading axis N.
    """
    hosting = len(episode.capacity) // 2 if hosts is None else hosts
    return play_arrivals(partial(_decide, hosts=hosting), episode, n_slots)


oasis_program = jax.jit(oasis_episode, static_argnames=("n_slots",))  # once for a shape


def _decide(prices: Array, room: Array, job: JobRow, hosts: Array | np.int32 | int) -> Allocation:
    """Admits a job at its best end slot, if that pays."""
    n_slots, n_machines, _ = room.shape
    holds_servers = jnp.arange(n_machines) < hosts
    workers, servers = (jnp.asarray(x) for x in job.crew[:2])
    cost, some = _cheapest(prices, room, job.worker, ~holds_servers, workers)
    cost_of_servers, few = _cheapest(prices, room, job.server, holds_servers, servers)
    slots = jnp.arange(n_slots)
    runs = (workers <= job.batch) & (slots >= job.arrival)[:, None]
    gains, choice = payoffs(jnp.where(runs, cost + cost_of_servers, jnp.inf), job)
    end = jnp.argmax(gains)
    amounts = jnp.where(gains[end] > 0, walk_back(choice, end), 0)
    used, column = (amounts > 0)[:, None], jnp.maximum(amounts - 1, 0)
    crew, aides = (jnp.where(used, own[slots, column], 0).astype(jnp.int32) for own in (some, few))
    needed, helpers = until_done(crew, aides, job)
    return Allocation(
        workers=needed,
        servers=helpers,
        admitted=gains[end] > 0,
        payoff=jnp.maximum(gains[end], 0),
        overflow=jnp.zeros((), bool),
    )


def _cheapest(
    prices: Array, room: Array, unit: Array, allowed: Array, numbers: Array
) -> tuple[Array, Array]:
    """Whole units on the cheapest machines: cost [T, Q], inf without room; units [T, Q, H]."""
    fit = units_that_fit(room + room_slack(room.dtype), unit)
    fit = jnp.where(allowed, jnp.maximum(jnp.floor(fit), 0), 0)
    rent = (prices * unit).sum(-1)
    by_amount = jax.vmap(take_cheapest, in_axes=(None, None, 0))
    wanted = numbers.astype(room.dtype)
    units = jax.vmap(by_amount, in_axes=(0, 0, None))(rent, fit, wanted)
    cost = (units * rent[:, None]).sum(-1)
    return jnp.where(units.sum(-1) == wanted, cost, jnp.inf), units
