"""The cheapest place for the units of one job in one slot: exact, and no LP solver.

    min sum_h cw_h w_h + cs_h s_h,     cw = price @ alpha,     cs = price @ beta
    s.t. alpha w_h + beta s_h <= room_h,     sum w >= W,     sum s >= S,     w, s >= 0

One multiplier m on `sum s >= S` decides all: a machine hosts servers if cs_h < m, as many as fit,
and a worker on piece p of its room (see `pieces`) then costs

    key = cw_h + max(m - cs_h, 0) k_p     rent, and the servers that it displaces.

Workers fill the cheapest pieces up to W. The fills at m = 0 and m = infinity deliver too few
servers and enough; the secant between their costs gives the next m, until both ends are optimal at
it. The mixture of the two ends that delivers S is the solution; it is feasible in every iteration.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from asyncjax.checks import whole
from asyncjax.cluster.solver.knapsack import take_cheapest
from asyncjax.cluster.solver.pieces import Pieces, hull_pieces, plain_pieces, room_slack
from asyncjax.cluster.solver.slot_arguments import checked_slot

_MOST_POINTS = 65_536
_MOST_ITERATIONS = 32  # 8 are usual, 15 occur with prices over 24 decades


class SlotCost(NamedTuple):
    """Units of one job in one slot; `slot_cost` makes it.

    Attributes:
        cost: float, inf if the units do not fit.
        workers: float[H], workers on each machine, with fractions; 0 if they do not fit.
        servers: float[H], servers.
    """

    cost: Array  # float
    workers: Array  # float[H]
    servers: Array  # float[H]


class InsideCost(NamedTuple):
    """One machine for all units of a job; `inside_cost` makes it.

    Attributes:
        cost: float, inf if they fit on no machine.
        machine: int32, the cheapest, the lowest index of equal ones.
    """

    cost: Array  # float
    machine: Array  # int32


class Ends(NamedTuple):
    """Two fills that are both optimal at one multiplier, and how they mix: cheap to keep."""

    cost: Array  # float, of the mixture; inf if the units do not fit
    low: Array  # float, multiplier of the fill with too few servers
    high: Array  # float, multiplier of the fill with enough
    share: Array  # float, of the second in the mixture; 0 if the units do not fit


class _Fill(NamedTuple):
    """What is best at one multiplier."""

    workers: Array  # float[H]
    servers: Array  # float[H]
    cost: Array  # float
    delivered: Array  # float, servers in all


class _End(NamedTuple):
    """A fill without its units."""

    multiplier: Array  # float
    cost: Array  # float
    delivered: Array  # float


class Progress(NamedTuple):
    """How far a solution has come; `begin` makes it and `advance` brings it on."""

    done: Array  # bool, whether both fills are optimal at the multiplier of their secant
    iteration: Array  # int32
    low: _End  # a fill with too few servers
    high: _End  # a fill with enough


def slot_cost(
    price: Array,
    room: Array,
    worker: Array,
    server: Array,
    n_workers: Array,
    n_servers: Array,
    *,
    hull_points: int = 0,
) -> SlotCost:
    """Places the units of a job over machines at least cost; pure, for `jit` and `vmap`.

    Formula: `min sum_h cw_h w_h + cs_h s_h` under room and coverage, see the head of this file.

    Args:
        price: float[H, R], at least 0.
        room: float[H, R], what is free, at least 0.
        worker: float[R], what a worker takes; one entry at least positive.
        server: float[R], what a server takes; one entry at least positive.
        n_workers: W, how many workers.
        n_servers: S, how many servers.
        hull_points: 0 for the linear program; otherwise each machine's room is the hull of its
            whole points, and this is at least the most workers that fit on any, up to 65 536;
            static.

    Returns:
        Cost and units. The cost is NaN if `hull_points` is too small or a hull has more than 13
        pieces.

    Raises:
        TypeError: If a concrete argument is not made of numbers.
        ValueError: If one is out of range or its shape does not fit; traced values are not looked
            at.

    Note:
        All tolerances are relative to the costs, since prices of one slot span 25 decades.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import cluster
        >>> price, room = jnp.array([[1.0, 1.0], [2.0, 3.0]]), jnp.array([[5.5, 7.0], [4.0, 6.5]])
        >>> worker, server = jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0])
        >>> plain = cluster.slot_cost(price, room, worker, server, 3, 2)
        >>> plain.cost.round(4).item(), plain.workers.tolist(), plain.servers.tolist()
        (20.0, [1.75, 1.25], [2.0, 0.0])
        >>> cluster.slot_cost(price, room, worker, server, 3, 2, hull_points=8).cost.round(4)
        Array(21., dtype=float32)

    Reference:
        Yu et al. (2021), arXiv 2108.02917: the external case; the solver is our own.
    """
    price, room, worker, server = checked_slot(price, room, worker, server, n_workers, n_servers)
    hull_points = whole("hull_points", hull_points, 0, _MOST_POINTS)
    price, room = jnp.asarray(price), jnp.asarray(room)
    pieces = (
        hull_pieces(room, worker, server, hull_points)
        if hull_points
        else plain_pieces(room, worker, server)
    )
    rent, host = (price * worker).sum(-1), (price * server).sum(-1)
    ends = solve_pieces(pieces, rent, host, n_workers, n_servers)
    found = fill_ends(pieces, rent, host, n_workers, ends)
    return found._replace(cost=jnp.where(pieces.overflow, jnp.nan, found.cost))


def solve_pieces(
    pieces: Pieces, rent: Array, host: Array, n_workers: Array, n_servers: Array
) -> Ends:
    """Solves one slot, with prices float[H] of a worker and a server, without giving the units.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones(1)
        >>> pieces = Pieces(jnp.array([[4.0]]), jnp.array([[0.5]]), 2 * one, jnp.zeros((), bool))
        >>> ends = solve_pieces(pieces, one, 3 * one, 2, 1)
        >>> float(ends.low), float(ends.high), float(ends.share)
        (0.0, inf, 1.0)
        >>> fill_ends(pieces, one, 3 * one, 2, ends).servers
        Array([1.], dtype=float32)
    """
    workers, servers = (jnp.asarray(number, rent.dtype) for number in (n_workers, n_servers))

    def goes_on(state: Progress) -> Array:
        return ~state.done

    def step(state: Progress) -> Progress:
        return advance(state, pieces, rent, host, workers, servers)

    found = jax.lax.while_loop(goes_on, step, begin(rent.dtype))
    return ends_of(found, pieces, workers, servers)


def begin(dtype: Any) -> Progress:
    """Starts a solution."""
    zero = jnp.zeros((), dtype)
    empty = _End(zero, zero, zero)
    return Progress(jnp.zeros((), bool), jnp.zeros((), jnp.int32), empty, empty)


def advance(
    state: Progress, pieces: Pieces, rent: Array, host: Array, workers: Array, servers: Array
) -> Progress:
    """Makes one more fill, and replaces one end by it or finds that both are optimal.

    Iterations 0 and 1 make the fills at m = 0 and m = infinity; all share one copy of the code.
    """
    _, iteration, low, high = state
    relative = 4 * float(jnp.finfo(rent.dtype).eps)
    between = high.delivered - low.delivered
    secant = (high.cost - low.cost) / jnp.where(between > 0, between, 1)
    secant = jnp.maximum(secant, 0)
    end = jnp.where(iteration == 0, 0, jnp.inf).astype(rent.dtype)
    multiplier = jnp.where(iteration < 2, end, secant)
    filled = _fill(pieces, rent, host, workers, multiplier)
    new = _End(multiplier, filled.cost, filled.delivered)
    gain = (low.cost - new.cost) + secant * (new.delivered - low.delivered)
    dual = low.cost + secant * (servers - low.delivered)
    optimal = (iteration >= 2) & ~(gain > relative * jnp.abs(dual))
    enough = jnp.where(iteration < 2, iteration == 1, new.delivered >= servers)
    low = _choose(optimal | enough, low, new)
    high = _choose(optimal | ~enough, high, new)
    single = (servers <= low.delivered) | (high.delivered <= low.delivered)
    short = high.delivered < servers
    iteration += 1
    done = optimal | ((iteration >= 2) & (single | short)) | (iteration >= _MOST_ITERATIONS)
    return Progress(done, iteration, low, high)


def ends_of(state: Progress, pieces: Pieces, workers: Array, servers: Array) -> Ends:
    """Reads the solution off a finished state; its cost is inf if the units do not fit."""
    _, _, low, high = state
    slack = 1 - (1e-12 if workers.dtype == jnp.float64 else 1e-5)
    feasible = (pieces.width.sum() >= workers * slack) & (high.delivered >= servers * slack)
    tiny = float(jnp.finfo(workers.dtype).tiny)
    share = (servers - low.delivered) / jnp.maximum(high.delivered - low.delivered, tiny)
    share = jnp.where(feasible & (servers > low.delivered), jnp.clip(share, 0, 1), 0)
    cost = jnp.where(feasible, (1 - share) * low.cost + share * high.cost, jnp.inf)
    return Ends(cost, low.multiplier, high.multiplier, share)


def fill_ends(pieces: Pieces, rent: Array, host: Array, n_workers: Array, ends: Ends) -> SlotCost:
    """Fills the machines at the two multipliers of a solution, and mixes: cost and units."""
    workers = jnp.asarray(n_workers, rent.dtype)
    low, high = (_fill(pieces, rent, host, workers, m) for m in (ends.low, ends.high))

    def mix(one: Array, other: Array) -> Array:
        mixed = (1 - ends.share) * one + ends.share * other
        return jnp.where(jnp.isfinite(ends.cost), mixed, 0)

    return SlotCost(ends.cost, mix(low.workers, high.workers), mix(low.servers, high.servers))


def unsolved(shape: int | tuple[int, ...], dtype: Any) -> Ends:
    """Makes the answers to problems that nobody solves: they cost inf."""
    zero = jnp.zeros(shape, dtype)
    return Ends(jnp.full(shape, jnp.inf, dtype), zero, zero, zero)


def inside_cost(
    price: Array,
    room: Array,
    worker: Array,
    server: Array,
    n_workers: Array,
    n_servers: Array,
) -> InsideCost:
    """Finds the cheapest machine that holds all units of a job; exact, pure, for `jit` and `vmap`.

    Formula: `min over h of price_h . (alpha W + beta S)` where that fits.

    Args:
        price, room, worker, server: As in `slot_cost`.
        n_workers: W, from the rate inside a machine.
        n_servers: S.

    Returns:
        Cost and machine.

    Raises:
        TypeError: If a concrete argument is not made of numbers.
        ValueError: If one is out of range or its shape does not fit; traced values are not looked
            at.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import cluster
        >>> price, room = jnp.array([[1.0, 1.0], [2.0, 3.0]]), jnp.array([[5.5, 7.0], [9.0, 6.5]])
        >>> worker, server = jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0])
        >>> found = cluster.inside_cost(price, room, worker, server, 3, 1)
        >>> found.cost, found.machine
        (Array(29., dtype=float32), Array(1, dtype=int32))
    """
    price, room, worker, server = checked_slot(price, room, worker, server, n_workers, n_servers)
    price, room = jnp.asarray(price), jnp.asarray(room)
    workers, servers = (jnp.asarray(number, room.dtype) for number in (n_workers, n_servers))
    use = worker * workers + server * servers
    fits = (use <= room + room_slack(room.dtype)).all(-1)
    cost = jnp.where(fits, (price * use).sum(-1), jnp.inf)
    machine = jnp.argmin(cost)
    return InsideCost(cost[machine], machine.astype(jnp.int32))


def _choose(first: Array, one: _End, other: _End) -> _End:
    """The one if `first`, else the other."""
    return jax.tree.map(lambda a, b: jnp.where(first, a, b), one, other)


def _fill(pieces: Pieces, rent: Array, host: Array, workers: Array, multiplier: Array) -> _Fill:
    """Fills the cheapest pieces with workers, at one multiplier on servers."""
    infinite = jnp.isinf(multiplier)
    hosting = infinite | (host < multiplier)
    worth = jnp.where(infinite, 0, jnp.maximum(multiplier - host, 0))
    priced = rent[:, None] + worth[:, None] * pieces.slope
    keys = jnp.where(infinite, pieces.slope, priced)
    taken = take_cheapest(keys.ravel(), pieces.width.ravel(), workers).reshape(keys.shape)
    placed = taken.sum(-1)
    displaced = (taken * pieces.slope).sum(-1)
    servers = jnp.where(hosting, jnp.maximum(pieces.servers - displaced, 0), 0)
    cost = (rent * placed).sum() + (host * servers).sum()
    return _Fill(placed, servers, cost, servers.sum())
