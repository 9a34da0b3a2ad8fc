"""Completion times of workers that stop computing at a deadline and answer with what they have.

    T_i = C_i + min(S_i(b), D)

The rule of anytime minibatches (Ferdinand et al., 2020). With C and S independent and
`m = min(t, D)`,

    P(T > t) = integral_0^m f_S(y) P(C > t - y) dy + P(S > m) P(C > t - m)
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from asyncjax.checks import within
from asyncjax.clocks.clock import Clock
from asyncjax.stragglers.times.completion import with_rest
from asyncjax.stragglers.times.laws import (
    Part,
    both_of,
    check_times,
    convolution,
    part_at,
    part_quantiles,
    pieces,
)
from asyncjax.stragglers.times.quadrature import (
    Pair,
    identical,
    identical_integrals,
    log_panels,
    nodes_a_panel,
    panel_levels,
)
from asyncjax.stragglers.times.response_times import Response


def deadline_completion(
    times: Response | Clock, k: ArrayLike, deadline: ArrayLike, load: ArrayLike = 1.0
) -> Array:
    """Computes the expected time until k of n workers that stop at a deadline have answered.

    Formula: `E T_(k)` of `T_i = C_i + min(S_i(load), D)`: every worker computes until it is done or
    for a time D, whichever is first, and then answers.

    Args:
        times: Response times of identical workers: a response of one-worker clocks.
        k: How many answers the server waits for, int or int array in 1 .. n; traced ones are not
            checked.
        deadline: Time `D` that a worker computes at most, positive; float or array.
        load: Units of load a worker; `k`, `deadline` and `load` broadcast.

    Returns:
        float of the broadcast shape, time units; at most `expected_completion`, to which it tends
        as the deadline grows. Works under `jit`; can be differentiated in means, load and deadline.

    Raises:
        ValueError: If workers have laws of their own or recorded times, or as
            `expected_completion`.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(1.0), communicate=clocks.constant(0.5), n_workers=4
        ... )
        >>> [round(float(value), 4) for value in deadline_completion(times, [1, 4], 1.0)]
        [0.7454, 1.456]

    Reference:
        Ferdinand, Al-Lawati, Draper, Nokleby, "Anytime minibatch", ICLR 2020, arXiv 2006.05752.
    """
    check_times(times)
    laws = [clock for _, clock, _ in pieces(times)]
    if any(clock.law.name == "recorded" for clock in laws):
        raise ValueError("times must have laws that are known for a deadline, got recorded times")
    n_rows = max(clock.n_workers for clock in laws)
    if n_rows > 1:
        raise ValueError(
            "times must be of identical workers (a response of one-worker clocks) for a deadline, "
            f"got laws of {n_rows} workers"
        )
    within("k", k, least=1, most=times.n_workers, integer=True)
    within("load", load, above=0)
    limits = jnp.asarray(within("deadline", deadline, above=0), float)
    limits, loads = jnp.broadcast_arrays(limits, jnp.asarray(load, limits.dtype))
    rows = np.arange(limits.size).reshape(limits.shape)
    table = _deadline_table(times, limits.ravel(), loads.ravel())
    return table[rows, jnp.clip(jnp.asarray(k), 1, times.n_workers) - 1]


class _Stopped(NamedTuple):
    """Response times of identical workers that stop at a deadline, at one load."""

    start: Array  # float[], smallest possible time
    room: Array  # float[], what the deadline leaves for the random part of computing
    apart: tuple[Part, ...]  # random parts of communication: none, one or two; scalar rows
    compute: Part | None  # random part of computing

    def both(self, t: Array, is_before: Array) -> Pair:
        """`(P(T <= t), P(T > t))` at times after the start, float[Q] each."""
        if self.compute is None:
            return both_of(self.apart)(t)
        if self.apart:
            return convolution(self.compute, self.apart[0], self.room)(t, is_before)
        below, above = self.compute.both(t)  # the last node is the deadline: all have finished
        return jnp.where(is_before, below, 1.0), jnp.where(is_before, above, 0.0)


def _stopped(times: Response | Clock, limit: Array, load: Array) -> _Stopped:
    """Splits response times at one load into communication, and computing until a deadline."""
    apart, compute = [], None
    start, smallest = jnp.zeros_like(limit), jnp.zeros_like(limit)
    for _, clock, scaling in pieces(times):
        location, part = part_at(clock, scaling, load)
        row = jax.tree.map(lambda rows: rows[0], part)
        if scaling is None:
            start = start + location[0]
            apart += [] if row is None else [row]
        else:
            smallest, compute = location[0], row
    room = jnp.maximum(limit - smallest, limit * 1e-20)
    return _Stopped(start + jnp.minimum(smallest, limit), room, tuple(apart), compute)


def _ends(it: _Stopped, n_workers: int) -> Array:
    """Ends of panels, times after the start, float[P]; what the deadline leaves is one of them."""
    at = panel_levels(it.room.dtype, n_workers)
    apart = [part_quantiles(part, at) for part in it.apart]
    communicate = sum(apart, jnp.zeros(at.shape, it.room.dtype))
    if it.compute is None:
        return communicate
    compute = jnp.minimum(part_quantiles(it.compute, at), it.room)
    ends = [compute + communicate, it.room[None]]
    if apart:  # after the deadline the times of communication go on
        ends.append(it.room + communicate)
    return jax.lax.stop_gradient(jnp.sort(jnp.concatenate(ends)))


@jax.jit
def _deadline_table(times: Response | Clock, limits: Array, loads: Array) -> Array:
    """`E T_(k)` for every k at B pairs of deadline and load, float[B, n]."""

    def means(pair: Pair) -> Array:
        it, n = _stopped(times, *pair), times.n_workers
        if it.compute is None and not it.apart:
            return jnp.broadcast_to(it.start, (n,))
        ends = _ends(it, n)
        ends = jnp.maximum(ends, ends[-1] * jnp.asarray(1e-25, ends.dtype))
        t, weight = log_panels(ends, nodes_a_panel(ends.dtype, n))
        is_before = t < it.room
        if it.compute is not None:  # nodes move with the deadline, which gives its derivative
            t, weight = _follow(it.room, t, weight, is_before)
        total = it.start + identical_integrals(weight, *it.both(t, is_before), n)
        tails = [part.shape for part in it.apart if part.law.has_tail]
        if not tails:
            return total
        past = ends[-1:]
        late = identical(*it.both(past, past < it.room), n)[0][0]
        return with_rest(total, ends[-1], late, jnp.stack(tails).min() * jnp.arange(n, 0, -1))

    return jax.lax.map(means, (limits, loads))


def _follow(room: Array, t: Array, weight: Array, is_before: Array) -> Pair:
    """Nodes that follow the deadline: in proportion before it, at a distance after it."""
    fixed = jax.lax.stop_gradient(room)
    t = jnp.where(is_before, room * (t / fixed), room + (t - fixed))
    return t, jnp.where(is_before, room * (weight / fixed), weight)
