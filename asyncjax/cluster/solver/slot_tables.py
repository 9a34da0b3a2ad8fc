"""What every amount of a job costs in every slot: the table in which a rule searches.

    cost[t, q] = min(spread over machines, if W <= F;   on one machine, if W_inside <= F)

Slots before the arrival and amounts with W > F cannot run, and are most of the table: only the rest
is solved (`slot_queue`). What is live is data, so one program serves all jobs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from asyncjax.cluster.episode import JobRow
from asyncjax.cluster.solver.pieces import Pieces, hull_pieces, plain_pieces
from asyncjax.cluster.solver.slot_queue import Problems, solve_queue
from asyncjax.cluster.solver.slot_solver import Ends, SlotCost, fill_ends, inside_cost, unsolved


class SlotTable(NamedTuple):
    """Costs and units of every amount of a job in every slot; column `q - 1` is amount `q`."""

    cost: Array  # float[T, Q], inf where the amount cannot be trained
    on_one: Array  # bool[T, Q], whether on one machine; preferred at equal cost
    machine: Array  # int32[T, Q], that machine
    ends: Ends  # float[T, Q] each, what gives the units if spread; see `spread_units`
    pieces: Pieces  # [T, H, P], what the machines hold for this job
    overflow: Array  # bool, whether a static shape was too small for an exact answer


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

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import cluster
        >>> episode = cluster.schedulers.prepare(*cluster.workloads.tiny(0), n_slots=4, parts=8)
        >>> job = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], episode.jobs)
        >>> prices, room = jnp.ones((4, 2, 2)), jnp.broadcast_to(episode.capacity, (4, 2, 2))
        >>> table = slot_table(prices, room, job, hull_points=8)
        >>> table.cost.tolist()[0][:4]
        [6.0, 6.0, inf, inf]
        >>> spread_units(table, prices, job, jnp.zeros(4, int)).workers.sum(-1).tolist()
        [2.0, 2.0, 2.0, 2.0]
    """
    n_slots = len(room)
    shape = n_slots, len(job.crew.workers_across)
    holds = _pieces(room, job, hull_points, pieces)
    ends, overflow = unsolved(shape, room.dtype), jnp.zeros((), bool)
    if across:
        ends = _spread(prices, holds, job)
        overflow = (holds.overflow & (jnp.arange(n_slots) >= job.arrival)).any()
    if not inside:
        no = jnp.zeros(shape, jnp.int32)
        return SlotTable(ends.cost, no > 0, no, ends, holds, overflow)
    by_amount = jax.vmap(inside_cost, in_axes=(None, None, None, None, 0, 0))
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
    return jax.vmap(fill_ends)(table.pieces, rent, host, asked, ends)


def _pieces(room: Array, job: JobRow, hull_points: int, most_pieces: int) -> Pieces:
    """What the machines hold in every slot, [T, H, P]."""

    def slot(room: Array) -> Pieces:
        if not hull_points:
            return plain_pieces(room, job.worker, job.server)
        points = {"most_pieces": most_pieces, "cut": True}
        return hull_pieces(room, job.worker, job.server, hull_points, **points)

    return jax.vmap(slot)(room)


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
