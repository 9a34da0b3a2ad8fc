"""Schedulers that decide about a job when it arrives, by prices that rise with the load.

A rule is a function `(prices, room, job) -> allocation`: from the prices at the load so far and
what is free, both [T, H, R], to what the job gets, at once and for good.

*PD-ORS.* When job i arrives, with prices p from the load so far:

    cost[t, q] = the cheaper of q/Q of the job in slot t spread over machines, and on one machine
    best[t, q] = min over j of cost[t, j] + best[t - 1, q - j]
    payoff(t)  = u_i(t - a_i) - best[t, Q]

It is admitted if the largest payoff is positive, with whole units. After Yu, Liu, Wu, Ji and
Bentley (2021), "Toward efficient online scheduling for distributed machine learning systems".

The price L of an idle resource decides, in effect, who is admitted: too low, and early jobs of
little worth fill the machines; too high, and nobody enters. The bound from theory is set by the
single most hopeless job, and is far below the best. `choose_floor` learns one from the past.

*OASiS.* Prices as in PD-ORS, but servers stand on the first `floor(split H)` machines only and
workers only on the others, so every job runs at the rate across machines. For W workers the
machines are filled in order of their price with whole units. After Bao, Peng, Wu and Li, "Online
job scheduling in distributed machine learning clusters" (INFOCOM 2018); a reconstruction of our
own.

Note:
    Deviations from the paper of PD-ORS: the search runs on the costs of the relaxed problem, and
    only the slots that are chosen are rounded, by default deterministically (`rounding`); the
    relaxed problem is over the hulls of whole points (`pieces`); three best end slots are tried;
    prices start at 1e-24 at least. The paper lets a job complete in the last slot in which it has
    workers. Whole units may be done before the last slot of the search; units after that are never
    taken, so that its payoff, the prices that later jobs see and their room are those of what is
    needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from asyncjax.checks import real, whole, within
from asyncjax.cluster import slot_tables
from asyncjax.cluster.jobs import Data, Jobs, Machines, Schedule, job_utility
from asyncjax.cluster.outcomes import ROUNDING, total_utility
from asyncjax.cluster.resource_prices import Episode, JobRow, prepare, price
from asyncjax.cluster.slot_solver import room_slack, take_cheapest, units_that_fit

_CANDIDATES = 3  # end slots that are tried
# Of a hull: up to so many points, machines with room for more workers than a batch are not cut;
# so many pieces are the most seen, and the host starts again with more.
_FEW_POINTS, _FEW_PIECES = 32, 6
_MOST_DRAWS = 10_000
_MOST_REPLAYS = 100_000
_TOGETHER = 64  # episodes in one vmap; their tables are held at once
_HALF_DECADES = np.arange(-14, -3) / 2  # of the default floors, relative to the highest price


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
    best, choice = slot_tables.cheapest_by_slot(jnp.concatenate([nothing, cost], axis=1))
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


class PdOrsSettings(NamedTuple):
    """Static settings of PD-ORS, part of its program; `pd_ors_settings` makes them."""

    n_slots: int  # T
    hull_points: int = 0  # most workers of a job on a machine; 0 for the linear programme
    pieces: int = _FEW_PIECES  # static room for the pieces of a hull
    inside: bool = True  # whether a job may stand on one machine at the rate inside it
    across: bool = True  # whether it may spread over machines
    draws: int = 0  # random roundings to try; 0 for the deterministic one
    choices: int = 1  # K, numbers of servers to choose among


class FloorChoice(NamedTuple):
    """Price floors tried on past workloads.

    Attributes:
        low: float, the floor with the largest mean utility; the smallest of equal ones.
        lows: float64[L], the floors that were tried.
        utilities: float64[L, P], total utility of each past workload under each floor.
    """

    low: float
    lows: np.ndarray
    utilities: np.ndarray


def pd_ors(
    jobs: Jobs,
    machines: Machines,
    *,
    n_slots: int,
    parts: int = 20,
    hull: bool = True,
    low: float | None = None,
    high: Data | None = None,
    inside: bool = True,
    across: bool = True,
    draws: int = 0,
    scale: float = 1.0,
    key: Array | None = None,
    servers: Data = (1.0,),
) -> Schedule:
    """Schedules jobs one by one, as they arrive, by prices that rise with the load.

    Args:
        jobs, machines, n_slots: Jobs in order of arrival, machines, and the number of slots T.
        parts: Q, into how many parts a job is cut.
        hull: Whether the search relaxes to hulls of whole units, or to the linear programme.
        low: L, price of an idle resource; None for the paper's. In effect the threshold of
            admission.
        high: U, price of a full resource, a number or float[R]; None for the paper's.
        inside: Whether a job may stand on one machine at the rate inside it.
        across: Whether a job may spread over machines.
        draws: Random roundings to try in a slot, at most 10 000; 0 for the deterministic rounding.
        scale: Gain G on the fractions before a random rounding, positive.
        key: Random key, needed if `draws` is positive.
        servers: Numbers of servers to choose among, float[K], as factors of at least 1 on those
            that a job names: the cheapest is taken for each amount in each slot. The paper has the
            job's own alone.

    Note:
        With `low` and `high` given, no decision depends on later jobs. Without, the bounds come
        from all jobs. In single precision demands are distinguished down to 1e-4 of a unit; finer
        fractions need `jax.enable_x64`. With more `servers` a job exchanges faster and needs fewer
        workers; the bounds of prices stay those of its own number. The workers of each slot follow
        from utility and prices; what jobs ask for (`jobs.asked`) is ignored by design.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.pd_ors(jobs, machines, n_slots=4, parts=8)
        >>> schedule.admitted.tolist(), cluster.check(schedule, jobs, machines)
        ([True, False, True, True], [])
        >>> round(cluster.total_utility(schedule, jobs), 2)
        151.51
    """
    if whole("draws", draws, 0, _MOST_DRAWS) and key is None:
        raise ValueError(f"key must be given if draws is positive, got draws={draws} and no key")
    scale = real("scale", scale, above=0)
    episode = prepare(
        jobs, machines, n_slots=n_slots, parts=parts, low=low, high=high, servers=servers
    )
    settings = pd_ors_settings(
        jobs, machines, n_slots=n_slots, hull=hull, inside=inside, across=across, draws=draws
    )._replace(choices=np.size(servers))
    found = pd_ors_program(episode, settings, key=key, scale=scale)
    if np.asarray(found.overflow).any():
        settings = settings._replace(pieces=settings.hull_points)
        found = pd_ors_program(episode, settings, key=key, scale=scale)
    return schedule_of(found)


def choose_floor(
    past: Sequence[tuple[Jobs, Machines]],
    *,
    n_slots: int,
    lows: Any = None,
    parts: int = 20,
    hull: bool = True,
    inside: bool = True,
    servers: Data = (1.0,),
) -> FloorChoice:
    """Replays past workloads under many price floors and chooses the best.

    Formula: `argmax over L of mean over past workloads of their total utility under PD-ORS`.

    Args:
        past: Workloads of one shape, `(jobs, machines)` each.
        n_slots: T.
        lows: float[L], floors to try; None for half decades from 1e-7 to 1e-2 of the highest price.
        parts, hull, inside: As in `pd_ors`.
        servers: As in `pd_ors`.

    Returns:
        The floor for `pd_ors(low=...)`, and what each floor earned.

    Example:
        >>> from asyncjax import cluster
        >>> past = [cluster.workloads.tiny(seed) for seed in range(2)]
        >>> choice = cluster.choose_floor(past, n_slots=4, parts=8, lows=[1e-6, 1e-3, 100.0])
        >>> choice.utilities.shape, bool(choice.low < 100)
        ((3, 2), True)
    """
    episodes = [prepare(*one, n_slots=n_slots, parts=parts, servers=servers) for one in past]
    if lows is None:
        lows = max(float(one.high.max()) for one in episodes) * 10.0**_HALF_DECADES
    floors = within("lows", np.ravel(np.asarray(lows, np.float64)), above=0)
    if floors.size * len(past) >= _MOST_REPLAYS:
        raise ValueError(
            f"lows must make fewer than {_MOST_REPLAYS} replays of {len(past)} workloads, got"
            f" {floors.size}"
        )
    every = [pd_ors_settings(*one, n_slots=n_slots, hull=hull, inside=inside) for one in past]
    settings = max(every, key=lambda one: one.hull_points)  # serves all
    settings = settings._replace(choices=np.size(servers))
    grid = [one._replace(low=np.asarray(low, one.low.dtype)) for low in floors for one in episodes]
    found = _study(grid, settings)
    if any(np.asarray(one.overflow).any() for one in found):
        found = _study(grid, settings._replace(pieces=settings.hull_points))
    earned = [
        total_utility(schedule_of(one), past[index % len(past)][0])
        for index, one in enumerate(found)
    ]
    utilities = np.reshape(earned, (len(floors), len(past)))
    order = np.lexsort((floors, -utilities.mean(1)))
    return FloorChoice(float(floors[order[0]]), floors, utilities)


def pd_ors_settings(
    jobs: Jobs,
    machines: Machines,
    *,
    n_slots: int,
    hull: bool = True,
    inside: bool = True,
    across: bool = True,
    draws: int = 0,
) -> PdOrsSettings:
    """Chooses the static settings of PD-ORS for jobs and machines, on the host.

    Its arguments are those of `pd_ors`, which `prepare` checks; the jobs, of several episodes that
    are to be stacked, those with the smallest demands. `hull_points` is 8, 16, 32, ..., so that few
    programs are compiled.
    """
    if not (inside or across):
        raise ValueError("inside or across must be True, got False for both: nothing could run")
    points = 0
    if hull:
        worker, capacity = np.asarray(jobs.worker)[:, None], np.asarray(machines.capacity)
        fit = np.where(worker > 0, capacity / np.where(worker > 0, worker, 1.0), np.inf)
        most = min(fit.min(-1).max(), max(_FEW_POINTS, np.max(jobs.batch)))  # more are never needed
        points = 8
        while points < np.floor(most):
            points *= 2
        if n_slots * capacity.size * points >= 2**31:
            raise ValueError(
                "hull must be False where machines hold so many workers, got room for"
                f" {most:.3g} on one"
            )
    pieces = min(points, _FEW_PIECES)
    return PdOrsSettings(n_slots, points, pieces, inside, across, draws)


def pd_ors_episode(
    episode: Episode, settings: PdOrsSettings, *, key: Array | None = None, scale: ArrayLike = 1.0
) -> Allocation:
    """Plays PD-ORS; pure, for `jit` with `settings` static and for `vmap` over anything else.

    `key` is needed if `settings.draws` is positive, and `scale` is the gain G before a random
    rounding. Returns allocations with a leading axis N; where `overflow` is set, `settings.pieces`
    or `settings.hull_points` were too small for an exact search.

    Example:
        Three price floors at once:

        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> episode = prepare(jobs, machines, n_slots=4, parts=8)
        >>> settings = pd_ors_settings(jobs, machines, n_slots=4)
        >>> play = jax.jit(jax.vmap(
        ...     lambda low: pd_ors_episode(episode._replace(low=low), settings)
        ... ))
        >>> play(jnp.array([1e-12, 1e-6, 1.0])).admitted.sum(-1).tolist()
        [2, 2, 0]
    """

    def rule(prices: Array, room: Array, job: JobRow) -> Allocation:
        job_key = None if key is None else jax.random.fold_in(key, job.number)
        return _decide(prices, room, job, settings, job_key, scale)

    return play_arrivals(rule, episode, settings.n_slots)


pd_ors_program = jax.jit(pd_ors_episode, static_argnames=("settings",))  # once for a shape


def _decide(
    prices: Array,
    room: Array,
    job: JobRow,
    settings: PdOrsSettings,
    key: Array | None,
    scale: ArrayLike,
) -> Allocation:
    """Finds the best whole units for one job and admits it if they pay."""
    ways = {"inside": settings.inside, "across": settings.across, "pieces": settings.pieces}
    table = slot_tables.slot_table(prices, room, job, hull_points=settings.hull_points, **ways)
    by_servers = table.cost.reshape(settings.n_slots, settings.choices, -1)
    gains, choice = payoffs(by_servers.min(1), job)
    cheapest = by_servers.argmin(1)  # [T, Q], which number of servers; the first on ties
    promise, ends = jax.lax.top_k(gains, min(_CANDIDATES, settings.n_slots))

    def goes_on(state: tuple[Array, Allocation]) -> Array:
        tried, plan = state
        left = tried < len(promise)
        return ~plan.admitted & left & (promise[jnp.minimum(tried, len(promise) - 1)] > 0)

    def attempt(state: tuple[Array, Allocation]) -> tuple[Array, Allocation]:
        tried, _ = state
        try_key = None if key is None else jax.random.fold_in(key, tried)
        amounts = slot_tables.walk_back(choice, ends[tried])
        part = jnp.maximum(amounts - 1, 0)
        column = cheapest[jnp.arange(settings.n_slots), part] * cheapest.shape[1] + part
        plan = _whole_units(amounts > 0, column, table, prices, room, job, settings, try_key, scale)
        return tried + 1, plan

    empty, no = jnp.zeros(room.shape[:2], jnp.int32), jnp.zeros((), bool)
    plan = Allocation(empty, empty, no, jnp.zeros((), prices.dtype), table.overflow)
    _, plan = jax.lax.while_loop(goes_on, attempt, (jnp.zeros((), jnp.int32), plan))
    return plan._replace(
        workers=jnp.where(plan.admitted, plan.workers, 0),
        servers=jnp.where(plan.admitted, plan.servers, 0),
        payoff=jnp.where(plan.admitted, plan.payoff, 0),
    )


def _whole_units(
    used: Array,
    column: Array,
    table: slot_tables.SlotTable,
    prices: Array,
    room: Array,
    job: JobRow,
    settings: PdOrsSettings,
    key: Array | None,
    scale: ArrayLike,
) -> Allocation:
    """Rounds the chosen amounts of all slots and counts what they cost and bring.

    `used` bool[T], whether anything is trained in a slot; `column` int32[T], its amount and number
    of servers.
    """
    slots = jnp.arange(settings.n_slots)
    together = used & table.on_one[slots, column]
    spread = used & ~together
    wanted = jnp.where(spread, job.crew.workers_across[column], 0)
    needed = jnp.where(spread, job.crew.servers_across[column], 0)
    if settings.across:
        units = slot_tables.spread_units(table, prices, job, column)[1:]
        some, few = (jnp.where(spread[:, None], share, 0) for share in units)
    else:
        some = few = jnp.zeros(room.shape[:2], room.dtype)

    def rounded(slot: Array, shares: slot_tables.Fractions) -> slot_tables.RoundedSlot:
        if not settings.draws or key is None:
            return slot_tables.round_slot(*shares)
        slot_key = jax.random.fold_in(key, slot)
        return slot_tables.round_randomly(
            slot_key, shares, ratio=job.ratio, batch=job.batch, draws=settings.draws, scale=scale
        )

    shares = slot_tables.Fractions(some, few, prices, room, job.worker, job.server, wanted, needed)
    by_slot = slot_tables.Fractions._make((0, 0, 0, 0, None, None, 0, 0))
    found = jax.vmap(rounded, in_axes=(0, by_slot))(slots, shares)
    here = jnp.arange(room.shape[1]) == table.machine[slots, column][:, None]
    here &= together[:, None]
    workers = jnp.where(here, job.crew.workers_inside[column][:, None], found.workers)
    servers = jnp.where(here, job.crew.servers_inside[column][:, None], found.servers)
    workers, servers = until_done(workers, servers, job)
    paid = (prices * job.worker).sum(-1) * workers + (prices * job.server).sum(-1) * servers
    last = jnp.where((workers + servers).any(-1), slots, -1).max()
    payoff = job_utility(job.utility, last - job.arrival) - paid.sum()
    placed = (found.feasible | (slots > last)).all()
    return Allocation(workers, servers, placed & (payoff > 0), payoff, table.overflow)


def _study(grid: list[Episode], settings: PdOrsSettings) -> list[Allocation]:
    """Plays episodes, many at once."""
    found, width = [], min(_TOGETHER, len(grid))
    for first in range(0, len(grid), width):
        some = grid[first : first + width]
        some += some[-1:] * (width - len(some))  # one shape, one program
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *some)
        together = jax.tree.map(np.asarray, _together(stacked, settings))
        found += [jax.tree.map(lambda leaf, i=i: leaf[i], together) for i in range(width)]
    return found[: len(grid)]


@partial(jax.jit, static_argnames=("settings",))
def _together(episodes: Episode, settings: PdOrsSettings) -> Allocation:
    """Plays episodes with a leading axis in one program."""
    return jax.vmap(partial(pd_ors_episode, settings=settings))(episodes)


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
    return play_arrivals(partial(_apart, hosts=hosting), episode, n_slots)


oasis_program = jax.jit(oasis_episode, static_argnames=("n_slots",))  # once for a shape


def _apart(prices: Array, room: Array, job: JobRow, hosts: Array | np.int32 | int) -> Allocation:
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
    amounts = jnp.where(gains[end] > 0, slot_tables.walk_back(choice, end), 0)
    used, column = (amounts > 0)[:, None], jnp.maximum(amounts - 1, 0)
    crew, aides = (
        jnp.where(used, units[slots, column], 0).astype(jnp.int32) for units in (some, few)
    )
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
