"""What a machine can still hold: with w workers s(w) servers, a concave line made of pieces.

    s(w) = min over r with beta_r > 0 of (room_r - alpha_r w) / beta_r,
    0 <= w <= min over r with alpha_r > 0 of room_r / alpha_r

Piece p of a machine is a stretch of `width` workers on which every worker displaces `slope`
servers; slopes rise along the line. `plain_pieces` takes the line as it is, with fractions of
units; `hull_pieces` takes the concave envelope of its whole points `(w, floor(s(w)))`, which does
not squeeze fractions of a worker into leftovers, and is much closer to what whole units cost.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

MOST_PIECES = 13  # of a hull over 27 workers and as many servers; more are reported


class Pieces(NamedTuple):
    """Room of every machine, as pieces of a concave line."""

    width: Array  # float[H, P], workers of each piece; 0 for none
    slope: Array  # float[H, P], servers that one of its workers displaces
    servers: Array  # float[H], servers the machine holds without any worker
    overflow: Array  # bool, whether a hull did not fit into its static shape


def plain_pieces(room: Array, worker: Array, server: Array) -> Pieces:
    """Cuts the room of every machine into pieces, one for each resource that servers use.

    Formula: the line of resource r starts at `I = room_r / beta_r` and falls by `k_r = alpha_r /
    beta_r`; line q is the lowest from `max (I_q - I_j) / (k_q - k_j)` over flatter lines j up to
    `min (I_j - I_q) / (k_j - k_q)` over steeper ones. Of equal slopes only the lowest line counts.

    `room` float[H, R], what is free; `worker`, `server` float[R], what one takes.

    Example:
        >>> import jax.numpy as jnp
        >>> room = jnp.array([[5.5, 7.0], [4.0, 6.5]])
        >>> pieces = plain_pieces(room, jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0]))
        >>> pieces.width[1].tolist(), pieces.slope[1].tolist(), pieces.servers.tolist()
        ([0.5, 1.5], [0.5, 2.0], [3.5, 3.25])
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

    Example:
        >>> import jax.numpy as jnp
        >>> room = jnp.array([[5.5, 7.0], [4.0, 6.5]])
        >>> pieces = hull_pieces(room, jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0]), 2)
        >>> pieces.width.tolist(), pieces.slope.tolist(), pieces.servers.tolist()
        ([[1.0, 1.0], [1.0, 1.0]], [[0.0, 2.0], [1.0, 2.0]], [3.0, 3.0])
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
    """How much a whole unit may exceed the room, for rounding errors in loads.

    Example:
        >>> import numpy as np
        >>> room_slack(np.dtype(np.float32))
        0.0001
    """
    return 1e-9 if dtype == jnp.float64 else 1e-4


def units_that_fit(room: Array, unit: Array) -> Array:
    """Divides `room` float[..., R] by what one unit takes, float[R]; returns float[...]."""
    return jnp.where(unit > 0, room / jnp.where(unit > 0, unit, 1), jnp.inf).min(-1)
