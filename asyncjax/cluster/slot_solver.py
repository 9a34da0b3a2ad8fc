"""The cheapest place for the units of one job in one slot: exact, and no LP solver.

    min sum_h cw_h w_h + cs_h s_h,     cw = price @ alpha,     cs = price @ beta
    s.t. alpha w_h + beta s_h <= room_h,     sum w >= W,     sum s >= S,     w, s >= 0

*Pieces.* With w workers a machine can still hold s(w) servers, a concave line made of pieces:

    s(w) = min over r with beta_r > 0 of (room_r - alpha_r w) / beta_r,
    0 <= w <= min over r with alpha_r > 0 of room_r / alpha_r

Piece p is a stretch of `width` workers on which every worker displaces `slope` servers; slopes rise
along the line. `plain_pieces` takes the line as it is, with fractions of units; `hull_pieces` the
concave envelope of its whole points `(w, floor(s(w)))`, much closer to what whole units cost.

*Multiplier.* One multiplier m on `sum s >= S` decides all: a machine hosts servers if cs_h < m, as
many as fit, and a worker on piece k_p of its room then costs

    key = cw_h + max(m - cs_h, 0) k_p     rent, and the servers that it displaces.

Workers fill the cheapest pieces up to W. The fills at m = 0 and m = infinity deliver too few
servers and enough; the secant between their costs gives the next m, until both ends are optimal at
it. The mixture of the two ends that delivers S is the solution; it is feasible in every iteration.

*Knapsack.* Amounts are taken in ascending order of their keys until they sum to W; of equal keys,
the first. A float of at least 0 orders like its bits read as an integer. So the largest key that is
taken is found by halving an interval of integers, 31 times in single and 63 times in double
precision: exact, without a sort or a gather.

Every function is pure and meant for `jit` and `vmap`, where nothing is looked at.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

MOST_PIECES = 13  # of a hull over 27 workers and as many servers; more are reported
_MOST_ITERATIONS = 32  # 8 are usual, 15 occur with prices over 24 decades
_EXACT = jax.lax.Precision.HIGHEST  # accelerators otherwise drop digits of single precision


class Pieces(NamedTuple):
    """Room of every machine, as pieces of a concave line."""

    width: Array  # float[H, P], workers of each piece; 0 for none
    slope: Array  # float[H, P], servers that one of its workers displaces
    servers: Array  # float[H], servers the machine holds without any worker
    overflow: Array  # bool, whether a hull did not fit into its static shape


class SlotCost(NamedTuple):
    """Units of one job in one slot; `slot_cost` makes it."""

    cost: Array  # float, inf if the units do not fit
    workers: Array  # float[H], workers on each machine, with fractions; 0 if they do not fit
    servers: Array  # float[H], servers


class InsideCost(NamedTuple):
    """One machine for all units of a job; `inside_cost` makes it."""

    cost: Array  # float, inf if they fit on no machine
    machine: Array  # int32, the cheapest, the lowest index of equal ones


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
    """Places the units of a job over machines at least cost, as the head of this file says.

    `price`, `room` float[H, R], at least 0; `worker`, `server` float[R], what one takes, with a
    positive entry; `n_workers`, `n_servers` how many. `hull_points` is static: 0 for the linear
    program; otherwise each machine's room is the hull of its whole points, and this is at least the
    most workers that fit on any. The cost is NaN if it is too small, or a hull has more than 13
    pieces. All tolerances are relative to the costs: prices of one slot span 25 decades.
    """
    pieces = (
        hull_pieces(room, worker, server, hull_points)
        if hull_points
        else plain_pieces(room, worker, server)
    )
    rent, host = (price * worker).sum(-1), (price * server).sum(-1)
    ends = solve_pieces(pieces, rent, host, n_workers, n_servers)
    found = fill_ends(pieces, rent, host, n_workers, ends)
    return found._replace(cost=jnp.where(pieces.overflow, jnp.nan, found.cost))


def inside_cost(
    price: Array, room: Array, worker: Array, server: Array, n_workers: Array, n_servers: Array
) -> InsideCost:
    """Finds the cheapest machine that holds all units of a job; exact; arguments of `slot_cost`.

    Formula: `min over h of price_h . (alpha W + beta S)` where that fits.
    """
    workers, servers = (jnp.asarray(number, room.dtype) for number in (n_workers, n_servers))
    use = worker * workers + server * servers
    fits = (use <= room + room_slack(room.dtype)).all(-1)
    cost = jnp.where(fits, (price * use).sum(-1), jnp.inf)
    machine = jnp.argmin(cost)
    return InsideCost(cost[machine], machine.astype(jnp.int32))


def solve_pieces(
    pieces: Pieces, rent: Array, host: Array, n_workers: Array, n_servers: Array
) -> Ends:
    """Solves one slot, with prices float[H] of a worker and a server, without giving the units."""
    workers, servers = (jnp.asarray(number, rent.dtype) for number in (n_workers, n_servers))
    found = jax.lax.while_loop(
        lambda state: ~state.done,
        lambda state: advance(state, pieces, rent, host, workers, servers),
        begin(rent.dtype),
    )
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


def plain_pieces(room: Array, worker: Array, server: Array) -> Pieces:
    """Cuts the room of every machine into pieces, one for each resource that servers use.

    Formula: the line of resource r starts at `I = room_r / beta_r` and falls by `k_r = alpha_r /
    beta_r`; line q is the lowest from `max (I_q - I_j) / (k_q - k_j)` over flatter lines j up to
    `min (I_j - I_q) / (k_j - k_q)` over steeper ones. Of equal slopes only the lowest line counts.

    `room` float[H, R], what is free; `worker`, `server` float[R], what one takes.
    """
    used = server > 0
    slope = jnp.where(used, worker / jnp.where(used, server, 1), jnp.inf)
    order = jnp.argsort(slope, stable=True)
    slope, used = slope[order], used[order]
    start = (room / jnp.where(server > 0, server, 1))[:, order]
    start = jnp.where(used, start, jnp.inf)
    most = jnp.maximum(units_that_fit(room, worker), 0)

    gap = slope[:, None] - slope[None, :]  # [q, j]
    gap = jnp.where(used[:, None] & used[None, :], gap, 0)
    drop = jnp.where(used, start, 0)[:, :, None] - jnp.where(used, start, 0)[:, None, :]
    crossing = drop / jnp.where(gap == 0, 1, gap)  # [H, q, j]
    low = jnp.where(gap > 0, crossing, 0).max(-1)
    high = jnp.where(gap < 0, crossing, jnp.inf).min(-1)
    earlier = jnp.arange(len(slope))[None, :] < jnp.arange(len(slope))[:, None]
    alike = (gap == 0) & used[:, None] & used[None, :]
    hidden = (alike & ((drop > 0) | ((drop == 0) & earlier))).any(-1)
    width = jnp.minimum(high, most[:, None]) - jnp.maximum(low, 0)
    width = jnp.where(used & ~hidden, jnp.maximum(width, 0), 0)
    slope = jnp.broadcast_to(jnp.where(used, slope, 0), width.shape)
    return Pieces(width, slope, start.min(-1), jnp.zeros((), bool))


def hull_pieces(
    room: Array,
    worker: Array,
    server: Array,
    points: int,
    *,
    most_pieces: int = MOST_PIECES,
    cut: bool = False,
) -> Pieces:
    """Takes the concave envelope of the whole points of every machine.

    Formula: from the vertex at w workers jump to the later point seen under the largest slope, the
    farthest of those; each jump is a piece.

    `room` float[H, R]; `worker`, `server` float[R]. No machine may hold more than `points` workers,
    unless `cut` says that more are never needed; P is the smaller of `points` and `most_pieces`.
    What does not fit into these static numbers sets `overflow`.
    """
    slack = room_slack(room.dtype)
    workers = jnp.arange(points + 1, dtype=room.dtype)
    last = jnp.floor(jnp.maximum(units_that_fit(room + slack, worker), 0))
    left = room[:, None, :] + slack - worker * workers[:, None]  # [H, M + 1, R]
    height = jnp.maximum(jnp.floor(units_that_fit(left, server)), 0)
    exists = workers <= last[:, None]
    rows = jnp.arange(room.shape[0])

    def jump(vertex: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        ahead = workers - vertex[:, None]
        reachable = exists & (ahead > 0)
        fall = height[rows, vertex.astype(int)][:, None] - height
        slopes = jnp.where(reachable, fall / jnp.where(ahead > 0, ahead, 1), jnp.inf)
        least = slopes.min(-1)
        goal = jnp.where(reachable & (slopes == least[:, None]), workers, -1).max(-1)
        moves = goal > vertex
        width = jnp.where(moves, goal - vertex, 0)
        return vertex + width, (width, jnp.where(moves, least, 0))

    vertex = jnp.zeros(room.shape[0], room.dtype)
    vertex, (width, slope) = jax.lax.scan(jump, vertex, length=min(points, most_pieces))
    overflow = (vertex < (jnp.minimum(last, points) if cut else last)).any()
    return Pieces(width.T, slope.T, height[:, 0], overflow)


def room_slack(dtype: jnp.dtype) -> float:
    """How much a whole unit may exceed the room, for rounding errors in loads."""
    return 1e-9 if dtype == jnp.float64 else 1e-4


def units_that_fit(room: Array, unit: Array) -> Array:
    """Divides `room` float[..., R] by what one unit takes, float[R]; returns float[...]."""
    return jnp.where(unit > 0, room / jnp.where(unit > 0, unit, 1), jnp.inf).min(-1)


def take_cheapest(keys: Array, amounts: Array, total: Array) -> Array:
    """Takes amounts in ascending order of their keys until they sum to `total`.

    Formula: all amounts with a key below the threshold, and of those at the threshold the first by
    index; the threshold is the smallest `b` with `sum of amounts where key <= b` at least `total`.

    `keys` float[P]; `amounts` float[P]; returns float[P], what is taken of each amount.
    """
    double = keys.dtype == jnp.float64
    integer = jnp.int64 if double else jnp.int32
    bits = jax.lax.bitcast_convert_type(jnp.abs(keys), integer)  # abs turns -0 into 0
    largest = jax.lax.bitcast_convert_type(jnp.asarray(jnp.inf, keys.dtype), integer)

    one, ones = jnp.ones((), integer), jnp.ones_like(amounts)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = low + jax.lax.shift_right_logical(high - low, one)
        counted = jnp.where(bits <= middle, amounts, 0)
        enough = jnp.dot(counted, ones, precision=_EXACT) >= total  # of many at once, one product
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    ends = jnp.zeros((), integer), largest
    threshold, _ = jax.lax.fori_loop(0, 63 if double else 31, halve, ends)
    below = jnp.where(bits < threshold, amounts, 0)
    equal = jnp.where(bits == threshold, amounts, 0)
    rest = jnp.maximum(total - below.sum(), 0)
    return below + jnp.clip(rest - _sum_before(equal), 0, equal)


def _sum_before(values: Array) -> Array:
    """Sums all entries before each.

    Within rows of a square, and over the rows, as matrix products.
    """
    side = math.isqrt(max(len(values) - 1, 0)) + 1
    rows = jnp.pad(values, (0, side * side - len(values))).reshape(side, side)
    earlier = jnp.triu(jnp.ones((side, side), values.dtype), 1)
    within = jnp.matmul(rows, earlier, precision=_EXACT)
    above = jnp.matmul(rows.sum(-1), earlier, precision=_EXACT)
    return (within + above[:, None]).ravel()[: len(values)]
