"""What every amount of a job costs in every slot: the table in which a rule searches.

    cost[t, q] = min(spread over machines, if W <= F;   on one machine, if W_inside <= F)

Slots before the arrival and amounts with W > F cannot run, and are most of the table: loops run over
the rest only. Their bounds are data, so one program serves all jobs.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from asyncjax.cluster.episode import JobRow
from asyncjax.cluster.pieces import hull_pieces, plain_pieces
from asyncjax.cluster.slot_solver import SlotCost, fill_pieces, inside_cost


class SlotTable(NamedTuple):
    """Costs and units of every amount of a job in every slot; column `q - 1` is amount `q`.

    Attributes:
        cost: float[T, Q], inf where the amount cannot be trained.
        on_one: bool[T, Q], whether on one machine; preferred at equal cost.
        machine: int32[T, Q], that machine.
        workers: float[T, Q, H], workers with fractions, if spread.
        servers: float[T, Q, H], servers.
        overflow: bool, whether a static shape was too small for an exact answer.
    """

    cost: Array  # float[T, Q]
    on_one: Array  # bool[T, Q]
    machine: Array  # int32[T, Q]
    workers: Array  # float[T, Q, H]
    servers: Array  # float[T, Q, H]
    overflow: Array  # bool


def slot_table(
    prices: Array,
    room: Array,
    job: JobRow,
    *,
    hull_points: int = 0,
    pieces: int = 8,
    inside: bool = True,
    across: bool = True,
    lanes: int = 4,
) -> SlotTable:
    """Computes the costs of every amount of a job in every slot; pure, for `jit` and `vmap`.

    Args:
        prices: float[T, H, R], at least 0.
        room: float[T, H, R], what is free.
        job: the job, with its units for each amount.
        hull_points: 0 for the linear programme, else at least the most workers of a job that a
            machine can hold; static.
        pieces: static room for the pieces of a hull.
        inside: whether the job may stand on one machine; static.
        across: whether it may spread; static.
        lanes: amounts that are solved together; static, no effect on the result.

    Returns:
        The table.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import cluster
        >>> episode = cluster.prepare(*cluster.workloads.tiny(0), n_slots=4, parts=8)
        >>> job = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], episode.jobs)
        >>> room = jnp.broadcast_to(episode.capacity, (4, 2, 2))
        >>> table = slot_table(jnp.ones((4, 2, 2)), room, job, hull_points=8)
        >>> table.cost.tolist()[0][:4]
        [6.0, 6.0, inf, inf]
    """
    n_slots, n_machines, _ = room.shape
    n_parts = len(job.crew.workers_across)
    shape = (n_slots, n_parts)
    no = jnp.zeros((), bool)
    spread = SlotCost(
        jnp.full(shape, jnp.inf, room.dtype),
        jnp.zeros((*shape, n_machines), room.dtype),
        jnp.zeros((*shape, n_machines), room.dtype),
    )
    overflow = no
    if across:
        spread, overflow = _spread(prices, room, job, hull_points, pieces, lanes)
    if not inside:
        nowhere = jnp.zeros(shape, jnp.int32)
        return SlotTable(spread.cost, nowhere > 0, nowhere, *spread[1:], overflow)
    by_amount = jax.vmap(inside_cost, in_axes=(None, None, None, None, 0, 0))
    by_slot = jax.vmap(by_amount, in_axes=(0, 0, None, None, None, None))
    workers, servers = (
        jnp.asarray(units) for units in (job.crew.workers_inside, job.crew.servers_inside)
    )
    one = by_slot(prices, room, job.worker, job.server, workers, servers)
    runs = (workers <= job.batch) & (jnp.arange(n_slots) >= job.arrival)[:, None]
    cost = jnp.where(runs, one.cost, jnp.inf)
    on_one = jnp.isfinite(cost) & (cost <= spread.cost)
    return SlotTable(jnp.minimum(cost, spread.cost), on_one, one.machine, *spread[1:], overflow)


def _spread(
    prices: Array, room: Array, job: JobRow, hull_points: int, pieces: int, lanes: int
) -> tuple[SlotCost, Array]:
    """Costs and units across machines, [T, Q] and [T, Q, H], for live slots and amounts only."""
    n_slots, n_machines, _ = room.shape
    n_parts = len(job.crew.workers_across)
    lanes = min(lanes, n_parts)
    padding = -n_parts % lanes
    most = jnp.iinfo(jnp.int32).max
    workers, servers = (
        jnp.pad(units, (0, padding), constant_values=most)
        for units in (job.crew.workers_across, job.crew.servers_across)
    )
    live = (workers <= job.batch).sum()  # a prefix, since units rise with the amount
    rent, host = (prices * job.worker).sum(-1), (prices * job.server).sum(-1)
    shape = (n_slots, n_parts + padding)
    table = SlotCost(
        jnp.full(shape, jnp.inf, room.dtype),
        jnp.zeros((*shape, n_machines), room.dtype),
        jnp.zeros((*shape, n_machines), room.dtype),
    )

    def slot(t: Array, state: tuple[SlotCost, Array]) -> tuple[SlotCost, Array]:
        table, overflow = state
        place = (
            hull_pieces(room[t], job.worker, job.server, hull_points, most_pieces=pieces, cut=True)
            if hull_points
            else plain_pieces(room[t], job.worker, job.server)
        )

        def some(chunk: Array, table: SlotCost) -> SlotCost:
            first = (chunk * lanes).astype(jnp.int32)
            asked = (jax.lax.dynamic_slice(x, (first,), (lanes,)) for x in (workers, servers))
            fill = jax.vmap(fill_pieces, in_axes=(None, None, None, 0, 0))
            found = fill(place, rent[t], host[t], *asked)
            runs = first + jnp.arange(lanes) < live
            found = found._replace(cost=jnp.where(runs, found.cost, jnp.inf))

            def put(whole: Array, part: Array) -> Array:
                corner = (
                    t.astype(jnp.int32),
                    first,
                    *(jnp.zeros((), first.dtype),) * (whole.ndim - 2),
                )
                return jax.lax.dynamic_update_slice(whole, part[None], corner)

            return jax.tree.map(put, table, found)

        chunks = (live + lanes - 1) // lanes
        return jax.lax.fori_loop(0, chunks, some, table), overflow | place.overflow

    start = table, jnp.zeros((), bool)
    table, overflow = jax.lax.fori_loop(job.arrival, n_slots, slot, start)
    return jax.tree.map(lambda whole: whole[:, :n_parts], table), overflow
