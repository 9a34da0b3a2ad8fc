"""Many slots solved at once: a queue, from which a lane that is done takes the next problem.

Problems need from 2 to 15 iterations. Lanes that are solved together by `vmap` all wait for the
slowest; here none waits. Under `vmap` the problems of all members of the batch go into one queue,
and members with few problems do not wait for those with many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from asyncjax.cluster.solver.pieces import Pieces
from asyncjax.cluster.solver.slot_solver import Ends, Progress, advance, begin, ends_of, unsolved

_LANES, _MOST_LANES = 16, 128


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
    """Solves M problems of several slots; pure, for `jit` and `vmap`.

    Example:
        >>> import jax.numpy as jnp
        >>> price, one = jnp.ones((1, 1)), jnp.ones((1, 1, 1))
        >>> pieces = Pieces(4 * one, 0.5 * one, 2 * price, price < 0)
        >>> asked = jnp.array([1.0, 2.0, 9.0])
        >>> live, slot = asked != 2, jnp.zeros(3, jnp.int32)
        >>> solve_queue(Problems(pieces, price, price, slot, asked, asked, live)).cost.tolist()
        [2.0, inf, inf]
    """
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
        own = jax.tree.map(joined, problems, batched[0])
        shift = jnp.repeat(jnp.arange(size, dtype=jnp.int32) * n_slots, problems.slot.shape[-1])
        wide = _with_lanes(min(lanes * size, max(lanes, _MOST_LANES)))
        found = wide(own._replace(slot=own.slot + shift))
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
    empty = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes,)), begin(dtype))

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
        progress = jax.vmap(advance)(state.progress, *place, workers, servers)
        done = progress.done | (state.problem >= n_live)
        ends = jax.vmap(ends_of)(progress, pieces, workers, servers)
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
        unsolved(n_problems + 1, dtype),
    )
    found = jax.lax.while_loop(goes_on, step, start).found
    return jax.tree.map(lambda leaf: leaf[:n_problems], found)
