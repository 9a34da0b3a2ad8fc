"""Where a job trains: what every amount costs in every slot, the search, and whole units.

    cost[t, q] = min(spread over machines, if W <= F;   on one machine, if W_inside <= F)
    best[t, q] = min over j <= q of cost[t, j] + best[t - 1, q - j],     best[-1] = (0, inf, ...)

*Table.* Slots before the arrival and amounts with W > F cannot run, and are most of the table: only
the rest is solved, in a queue from which a lane that is done takes the next problem. Problems need
from 2 to 15 iterations; lanes that are solved together by `vmap` all wait for the slowest, here
none waits. Under `vmap` the problems of all members of the batch go into one queue, and members
with few problems do not wait for those with many. What is live is data, so one program serves all
jobs.

*Rounding.* Two ways. Deterministic: round down, then add what is missing where it is cheapest;
exact in the number of units. Randomised, as in the paper: multiply by a gain G, round every entry
up with the probability of its fraction,

    x -> floor(G x) + (1 with probability G x - floor(G x)),

draw again until the draw fits and covers, at most so many times; the deterministic way is the last
resort. After Yu, Liu, Wu, Ji and Bentley (2021) and, for such roundings of packing and covering
programmes, Raghavan and Thompson (1987).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from asyncjax.cluster import slot_solver
from asyncjax.cluster.resource_prices import JobRow
from asyncjax.cluster.slot_solver import Ends, Pieces, Progress, SlotCost, room_slack, take_cheapest

_LANES, _MOST_LANES = 16, 128
_ALMOST = 1e-6  # a fraction so close to a whole number is one


class SlotTable(NamedTuple):
    """Costs and units of every amount of a job in every slot; column `q - 1` is amount `q`."""

    cost: Array  # float[T, Q], inf where the amount cannot be trained
    on_one: Array  # bool[T, Q], whether on one machine; preferred at equal cost
    machine: Array  # int32[T, Q], that machine
    ends: Ends  # float[T, Q] each, what gives the units if spread; see `spread_units`
    pieces: Pieces  # [T, H, P], what the machines hold for this job
    overflow: Array  # bool, whether a static shape was too small for an exact answer


class RoundedSlot(NamedTuple):
    """Whole units of one job in one slot."""

    workers: Array  # int32[H], workers on each machine
    servers: Array  # int32[H], servers
    feasible: Array  # bool, whether they fit and are as many as was asked for


class Fractions(NamedTuple):
    """Units with fractions in one slot, and all that their rounding needs: see `round_slot`."""

    workers: Array  # float[H]
    servers: Array  # float[H]
    price: Array  # float[H, R]
    room: Array  # float[H, R]
    worker: Array  # float[R]
    server: Array  # float[R]
    n_workers: Array
    n_servers: Array


def slot_table(
    prices: Array,
    room: Array,
    job: JobRow,
    *,
    hull_points: int = 0,
    pieces: int = 6,
    inside: bool = True,
    across: bool = True,
) -> SlotTable:
    """Computes the costs of every amount of a job in every slot; pure, for `jit` and `vmap`.

    `prices`, `room` float[T, H, R]. Static: `hull_points` as in `slot_cost`; `pieces`, the most of
    a hull; `inside` and `across` as in `pd_ors`.
    """
    n_slots = len(room)
    shape = n_slots, len(job.crew.workers_across)

    def held(room: Array) -> Pieces:
        if not hull_points:
            return slot_solver.plain_pieces(room, job.worker, job.server)
        return slot_solver.hull_pieces(
            room, job.worker, job.server, hull_points, most_pieces=pieces, cut=True
        )

    holds = jax.vmap(held)(room)  # [T, H, P]
    ends, overflow = slot_solver.unsolved(shape, room.dtype), jnp.zeros((), bool)
    if across:
        ends = _spread(prices, holds, job)
        overflow = (holds.overflow & (jnp.arange(n_slots) >= job.arrival)).any()
    if not inside:
        no = jnp.zeros(shape, jnp.int32)
        return SlotTable(ends.cost, no > 0, no, ends, holds, overflow)
    by_amount = jax.vmap(slot_solver.inside_cost, in_axes=(None, None, None, None, 0, 0))
    by_slot = jax.vmap(by_amount, in_axes=(0, 0, None, None, None, None))
    workers, servers = (
        jnp.asarray(units) for units in (job.crew.workers_inside, job.crew.servers_inside)
    )
    one = by_slot(prices, room, job.worker, job.server, workers, servers)
    runs = (workers <= job.batch) & (jnp.arange(n_slots) >= job.arrival)[:, None]
    cost = jnp.where(runs, one.cost, jnp.inf)
    on_one = jnp.isfinite(cost) & (cost <= ends.cost)
    return SlotTable(jnp.minimum(cost, ends.cost), on_one, one.machine, ends, holds, overflow)


def spread_units(table: SlotTable, prices: Array, job: JobRow, column: Array) -> SlotCost:
    """Gives the units of one amount a slot, `column` int[T], as if spread over machines."""
    rent, host = (prices * job.worker).sum(-1), (prices * job.server).sum(-1)
    asked = jnp.asarray(job.crew.workers_across)[column]
    ends = jax.tree.map(lambda leaf: leaf[jnp.arange(len(column)), column], table.ends)
    return jax.vmap(slot_solver.fill_ends)(table.pieces, rent, host, asked, ends)


def _spread(prices: Array, holds: Pieces, job: JobRow) -> Ends:
    """Costs across machines, [T, Q], for live slots and amounts only."""
    shape = n_slots, n_parts = len(prices), len(job.crew.workers_across)
    workers, servers = (
        jnp.broadcast_to(jnp.asarray(units), shape).ravel()
        for units in (job.crew.workers_across, job.crew.servers_across)
    )
    slot = jnp.repeat(jnp.arange(n_slots, dtype=jnp.int32), n_parts)
    asked = Problems(
        pieces=holds._replace(overflow=jnp.zeros(n_slots, bool)),
        rent=(prices * job.worker).sum(-1),
        host=(prices * job.server).sum(-1),
        slot=slot,
        workers=workers.astype(prices.dtype),
        servers=servers.astype(prices.dtype),
        live=(workers <= job.batch) & (slot >= job.arrival),
    )
    return jax.tree.map(lambda leaf: leaf.reshape(shape), solve_queue(asked))


def cheapest_by_slot(cost: Array) -> tuple[Array, Array]:
    """Finds the least cost of training q parts of a job by the end of slot t; pure, safe with inf.

    `cost` float[T, Q + 1], of training j parts in slot t; column 0 is 0, inf where that cannot be
    done. Returns the least costs, float[T, Q + 1], and the j of slot t, int32, lowest of equals.
    """
    amount = jnp.arange(cost.shape[1])
    rest = amount[:, None] - amount  # [q, j]
    possible = rest >= 0

    def slot(before: Array, row: Array) -> tuple[Array, tuple[Array, Array]]:
        sums = jnp.where(possible, row + before[jnp.maximum(rest, 0)], jnp.inf)
        best = sums.min(-1)
        return best, (best, jnp.argmin(sums, axis=-1).astype(jnp.int32))

    nothing = jnp.where(amount == 0, 0, jnp.inf).astype(cost.dtype)
    return jax.lax.scan(slot, nothing, cost)[1]


def walk_back(choice: Array, end: Array) -> Array:
    """Reads from the choices how much to train in each slot, if all is to be done by slot `end`.

    `choice` int32[T, Q + 1]; returns int32[T], parts a slot, Q in all; 0 after `end`.
    """
    n_slots, width = choice.shape

    def slot(left: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        index, row = at
        amount = jnp.where(index <= end, row[left], 0).astype(jnp.int32)
        return left - amount, amount

    everything = jnp.asarray(width - 1, jnp.int32)
    return jax.lax.scan(slot, everything, (jnp.arange(n_slots), choice), reverse=True)[1]


def round_slot(
    workers: Array,
    servers: Array,
    price: Array,
    room: Array,
    worker: Array,
    server: Array,
    n_workers: Array,
    n_servers: Array,
) -> RoundedSlot:
    """Rounds units float[H] down and adds what is missing where it is cheapest.

    Formula: `floor(x + 1e-6)`; a surplus leaves the machines of the highest price; then the missing
    workers go one by one to the cheapest machine where they still fit, then the servers. If they do
    not fit, once more with the servers first. The paper rounds at random; this is our default, and
    the repair of the random draws. The other arguments are those of `slot_cost`.
    """
    unit = jnp.stack([worker, server]).astype(room.dtype)  # [2, R]: a worker, a server
    rent = (price * unit[:, None]).sum(-1)  # [2, H]
    asked = jnp.stack([jnp.asarray(n, room.dtype) for n in (n_workers, n_servers)])
    floors = jnp.floor(jnp.stack([jnp.asarray(workers), jnp.asarray(servers)]) + _ALMOST)
    base = jax.vmap(take_cheapest)(rent, floors, asked)

    def add(kind: Array, units: Array) -> Array:
        """Adds the missing units of one kind; unit by unit, that is a knapsack over what fits."""
        left = room - (units[..., None] * unit[:, None]).sum(0) + room_slack(room.dtype)
        fit = slot_solver.units_that_fit(left, unit[kind])
        missing = asked[kind] - units[kind].sum()
        more = take_cheapest(rent[kind], jnp.maximum(jnp.floor(fit), 0), missing)
        return units.at[kind].add(more)

    kinds = jnp.arange(2)
    once = jax.vmap(add, in_axes=(0, None))(kinds, base)
    both = jax.vmap(add)(1 - kinds, once)  # [order, kind, H]
    complete = (both.sum(-1) == asked).all(-1)
    placed = jnp.where(complete.any(), both[jnp.argmax(complete)], 0).astype(jnp.int32)
    return RoundedSlot(placed[0], placed[1], complete.any())


def round_randomly(
    key: Array, shares: Fractions, *, ratio: Array, batch: Array, draws: int, scale: ArrayLike = 1.0
) -> RoundedSlot:
    """Rounds units at random until they fit and cover, at most `draws` times; then as `round_slot`.

    A draw must also keep to `batch` workers and to `ratio` workers a server, which the linear
    program does not know: with more it would not train what it promises. `draws` is static.
    """
    room = jnp.asarray(shares.room)
    exact = jnp.stack([shares.workers, shares.servers]) * jnp.asarray(scale, room.dtype)
    uniform = jax.random.uniform(key, (draws, *exact.shape), room.dtype)
    drawn = jnp.floor(exact) + (uniform < exact - jnp.floor(exact))
    some, few = drawn[:, 0], drawn[:, 1]
    use = some[..., None] * shares.worker + few[..., None] * shares.server
    fits = (use <= room + room_slack(room.dtype)).all((-1, -2))
    total, helpers = some.sum(-1), few.sum(-1)
    covers = (total >= shares.n_workers) & (helpers >= shares.n_servers)
    runs = (total <= batch) & (total <= ratio * helpers)
    good = fits & covers & runs
    first = jnp.argmax(good)
    repaired = round_slot(*shares)

    def pick(drawn: Array, other: Array) -> Array:
        return jnp.where(good.any(), drawn[first].astype(jnp.int32), other)

    feasible = good.any() | repaired.feasible
    return RoundedSlot(pick(some, repaired.workers), pick(few, repaired.servers), feasible)


class Problems(NamedTuple):
    """Slots and what is asked of them."""

    pieces: Pieces  # [T, H, P], what the machines hold in each slot
    rent: Array  # float[T, H], price of a worker
    host: Array  # float[T, H], price of a server
    slot: Array  # int32[M], where each problem lies
    workers: Array  # float[M], W of each
    servers: Array  # float[M], S of each
    live: Array  # bool[M], which are solved; the others cost inf


def solve_queue(problems: Problems) -> Ends:
    """Solves M problems of several slots; pure, for `jit` and `vmap`."""
    return _with_lanes(_LANES)(problems)


def _with_lanes(lanes: int) -> Callable[[Problems], Ends]:
    """The solver with so many lanes, and how it is batched."""

    @jax.custom_batching.custom_vmap
    def solve(problems: Problems) -> Ends:
        return _run(problems, min(lanes, len(problems.slot)))

    @solve.def_vmap
    def _(size: int, batched: list[Problems], problems: Problems) -> tuple[Ends, Ends]:
        def joined(leaf: Array, has_axis: bool) -> Array:
            whole = leaf if has_axis else jnp.broadcast_to(leaf, (size, *leaf.shape))
            return whole.reshape(-1, *whole.shape[2:])

        n_slots = problems.rent.shape[-2]
        flat = jax.tree.map(joined, problems, batched[0])
        shift = jnp.repeat(jnp.arange(size, dtype=jnp.int32) * n_slots, problems.slot.shape[-1])
        wide = _with_lanes(min(lanes * size, max(lanes, _MOST_LANES)))
        found = wide(flat._replace(slot=flat.slot + shift))
        back = jax.tree.map(lambda leaf: leaf.reshape(size, -1), found)
        return back, jax.tree.map(lambda _: True, back)

    return solve


class _Lanes(NamedTuple):
    """What the lanes are at."""

    problem: Array  # int32[L], place in the queue; past its end: nothing
    progress: Progress  # [L]
    taken: Array  # int32, problems taken from the queue
    found: Ends  # float[M + 1]; the last takes what nobody asked for


def _run(problems: Problems, lanes: int) -> Ends:
    """Runs the queue."""
    n_problems, dtype = len(problems.slot), problems.rent.dtype
    n_live = problems.live.sum().astype(jnp.int32)
    queue = jnp.nonzero(problems.live, size=n_problems, fill_value=n_problems)[0].astype(jnp.int32)
    queue = jnp.append(queue, jnp.int32(n_problems))
    empty = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes,)), slot_solver.begin(dtype))

    def goes_on(state: _Lanes) -> Array:
        return (state.problem < n_live).any()

    def step(state: _Lanes) -> _Lanes:
        number = queue[jnp.minimum(state.problem, n_problems)]
        inside = jnp.minimum(number, n_problems - 1)
        slot, workers, servers = (
            leaf[inside] for leaf in (problems.slot, problems.workers, problems.servers)
        )
        pieces = jax.tree.map(lambda leaf: leaf[slot], problems.pieces)
        place = pieces, problems.rent[slot], problems.host[slot]
        progress = jax.vmap(slot_solver.advance)(state.progress, *place, workers, servers)
        done = progress.done | (state.problem >= n_live)
        ends = jax.vmap(slot_solver.ends_of)(progress, pieces, workers, servers)
        goal = jnp.where(done, number, n_problems)

        def put(whole: Array, part: Array) -> Array:
            return whole.at[goal].set(part)

        found = jax.tree.map(put, state.found, ends)
        turn = state.taken + jnp.cumsum(done, dtype=jnp.int32) - done
        progress = jax.tree.map(lambda new, old: jnp.where(done, new, old), empty, progress)
        problem = jnp.where(done, jnp.minimum(turn, n_problems), state.problem)
        taken = jnp.minimum(state.taken + done.sum(dtype=jnp.int32), n_problems)
        return _Lanes(problem, progress, taken, found)

    start = _Lanes(
        jnp.arange(lanes, dtype=jnp.int32),
        empty,
        jnp.int32(lanes),
        slot_solver.unsolved(n_problems + 1, dtype),
    )
    found = jax.lax.while_loop(goes_on, step, start).found
    return jax.tree.map(lambda leaf: leaf[:n_problems], found)
