"""Whole units from fractions of units.

Two ways. *Deterministic*: round down, then add what is missing where it is cheapest; exact in the
number of units. *Randomised*, as in the paper: multiply by a gain G, round every entry up with the
probability of its fraction,

    x -> floor(G x) + (1 with probability G x - floor(G x)),

draw again until the draw fits and covers, at most so many times; the deterministic way is the last
resort. After Yu, Liu, Wu, Ji and Bentley (2021) and, for such roundings of packing and covering
programmes, Raghavan and Thompson (1987).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.checks import within
from asyncjax.cluster.solver.slot_solver import (
    checked_slot,
    room_slack,
    take_cheapest,
    units_that_fit,
)

_ALMOST = 1e-6  # a fraction so close to a whole number is one


class RoundedSlot(NamedTuple):
    """Whole units of one job in one slot.

    Attributes:
        workers: int32[H], workers on each machine.
        servers: int32[H], servers.
        feasible: bool, whether they fit and are as many as was asked for.
    """

    workers: Array
    servers: Array
    feasible: Array


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
    """Rounds units down and adds what is missing where it is cheapest; pure, for `jit` and `vmap`.

    Formula: `floor(x + 1e-6)`; a surplus leaves the dearest machines; then the missing workers go
    one by one to the cheapest machine where they still fit, then the servers. If they do not fit,
    once more with the servers first.

    Args:
        workers: float[H], workers with fractions.
        servers: float[H], servers with fractions.
        price, room, worker, server: As in `slot_cost`.
        n_workers: W, how many workers there must be.
        n_servers: S, how many servers.

    Returns:
        Exactly W workers and S servers, if feasible.

    Note:
        The paper rounds at random; this is our default, and the repair of the random draws.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import cluster
        >>> price, room = jnp.array([[1.0, 1.0], [2.0, 3.0]]), jnp.array([[5.5, 7.0], [4.0, 6.5]])
        >>> worker, server = jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0])
        >>> workers, servers = jnp.array([1.75, 1.25]), jnp.array([2.0, 0.0])
        >>> rounded = cluster.round_slot(workers, servers, price, room, worker, server, 3, 2)
        >>> rounded.workers, rounded.servers, bool(rounded.feasible)
        (Array([1, 2], dtype=int32), Array([2, 0], dtype=int32), True)
    """
    price, room, worker, server = checked_slot(price, room, worker, server, n_workers, n_servers)
    for name, value in (("workers", workers), ("servers", servers)):
        if np.shape(within(name, value, least=0)) != room.shape[:1]:
            raise ValueError(
                f"{name} must have the shape {room.shape[:1]} of the machines, got"
                f" {np.shape(value)}"
            )
    unit = jnp.stack([worker, server]).astype(room.dtype)  # [2, R]: a worker, a server
    rent = (price * unit[:, None]).sum(-1)  # [2, H]
    asked = jnp.stack([jnp.asarray(n, room.dtype) for n in (n_workers, n_servers)])
    floors = jnp.floor(jnp.stack([jnp.asarray(workers), jnp.asarray(servers)]) + _ALMOST)
    base = jax.vmap(take_cheapest)(rent, floors, asked)

    def add(kind: Array, units: Array) -> Array:
        """Adds the missing units of one kind; unit by unit, that is a knapsack over what fits."""
        left = room - (units[..., None] * unit[:, None]).sum(0) + room_slack(room.dtype)
        fit = units_that_fit(left, unit[kind])
        missing = asked[kind] - units[kind].sum()
        more = take_cheapest(rent[kind], jnp.maximum(jnp.floor(fit), 0), missing)
        return units.at[kind].add(more)

    kinds = jnp.arange(2)
    once = jax.vmap(add, in_axes=(0, None))(kinds, base)
    both = jax.vmap(add)(1 - kinds, once)  # [order, kind, H]
    complete = (both.sum(-1) == asked).all(-1)
    placed = jnp.where(complete.any(), both[jnp.argmax(complete)], 0).astype(jnp.int32)
    return RoundedSlot(placed[0], placed[1], complete.any())


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


def round_randomly(
    key: Array,
    shares: Fractions,
    *,
    ratio: Array,
    batch: Array,
    draws: int,
    scale: Array | float = 1.0,
) -> RoundedSlot:
    """Rounds units at random until they fit and cover, at most `draws` times; then as `round_slot`.

    A draw must also keep to `batch` workers and to `ratio` workers a server, which the linear
    program does not know: with more it would not train what it promises. `draws` is static.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> room, one, half = jnp.full((2, 1), 4.0), jnp.ones(1), jnp.array([1.5, 1.5])
        >>> shares = Fractions(half, half, jnp.ones((2, 1)), room, one, one, 3, 3)
        >>> found = round_randomly(jax.random.key(0), shares, ratio=1.0, batch=4, draws=9)
        >>> bool(found.feasible), bool(found.workers.sum() >= 3)
        (True, True)
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
