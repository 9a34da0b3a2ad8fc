"""OASiS: prices as in PD-ORS, but servers and workers stand on different machines.

Servers only on the machines `h < H // 2`, workers only on the others, so every job runs at the rate
across machines. For W workers the machines are filled in order of their price with whole units.
After Bao, Peng, Wu and Li, "Online job scheduling in distributed machine learning clusters"
(INFOCOM 2018); a reconstruction of our own.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.cluster.episode import Episode, JobRow, prepare
from asyncjax.cluster.machines_and_jobs import Data, Jobs, Machines, Schedule
from asyncjax.cluster.schedulers.arrival_rules import (
    Allocation,
    payoffs,
    play_arrivals,
    schedule_of,
)
from asyncjax.cluster.solver.knapsack import take_cheapest
from asyncjax.cluster.solver.pieces import room_slack, units_that_fit
from asyncjax.cluster.solver.slot_search import walk_back


def oasis(
    jobs: Jobs,
    machines: Machines,
    *,
    n_slots: int,
    parts: int = 20,
    low: float | None = None,
    high: Data | None = None,
) -> Schedule:
    """Schedules jobs as they arrive by prices, with servers and workers on different machines.

    Formula: admit job i if `max over t of u_i(t - a_i) - best[t, Q]` is positive.

    Args:
        jobs: The jobs.
        machines: The machines; with one alone nothing can run.
        n_slots, parts, low, high: As in `pd_ors`.

    Returns:
        The schedule; `admitted` are the jobs that got units, `payoff` is 0.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If jobs and machines make no sense or do not fit, or an argument is out of
            range.

    Note:
        As `pd_ors` it chooses the workers of each slot by utility and prices, and ignores what jobs
        ask for (`jobs.asked`) by design.

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
    found = schedule_of(oasis_program(episode, n_slots))
    return found._replace(payoff=np.zeros_like(found.payoff))


def oasis_episode(episode: Episode, *, n_slots: int) -> Allocation:
    """Plays OASiS; pure, for `jit` with `n_slots` static and for `vmap`.

    Returns allocations with a leading axis N.

    Example:
        >>> from asyncjax import cluster
        >>> episode = prepare(*cluster.workloads.tiny(2), n_slots=4, parts=8)
        >>> oasis_episode(episode, n_slots=4).admitted.sum()
        Array(1, dtype=int32)
    """
    return play_arrivals(_decide, episode, n_slots)


@partial(jax.jit, static_argnames=("n_slots",))
def oasis_program(episode: Episode, n_slots: int) -> Allocation:
    """Plays OASiS as `oasis_episode`, compiled once for all data of one shape."""
    return oasis_episode(episode, n_slots=n_slots)


def _decide(prices: Array, room: Array, job: JobRow) -> Allocation:
    """Admits a job at its best end slot, if that pays."""
    n_slots, n_machines, _ = room.shape
    halves = jnp.arange(n_machines) < n_machines // 2
    workers, servers = (jnp.asarray(x) for x in job.crew[:2])
    cost, some = _cheapest(prices, room, job.worker, ~halves, workers)
    cost_of_servers, few = _cheapest(prices, room, job.server, halves, servers)
    slots = jnp.arange(n_slots)
    runs = (workers <= job.batch) & (slots >= job.arrival)[:, None]
    gains, choice = payoffs(jnp.where(runs, cost + cost_of_servers, jnp.inf), job)
    end = jnp.argmax(gains)
    amounts = jnp.where(gains[end] > 0, walk_back(choice, end), 0)
    used, column = (amounts > 0)[:, None], jnp.maximum(amounts - 1, 0)
    return Allocation(
        workers=jnp.where(used, some[slots, column], 0).astype(jnp.int32),
        servers=jnp.where(used, few[slots, column], 0).astype(jnp.int32),
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
