"""Completion times of workers that stop computing at a deadline and answer with what they have.

    T_i = C_i + min(S_i(b), D)

The rule of anytime minibatches (Ferdinand et al., 2020). With C and S independent and
`m = min(t, D)`,

    P(T > t) = integral_0^m f_S(y) P(C > t - y) dy + P(S > m) P(C > t - m)
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from asyncjax.checks import whole, within
from asyncjax.clocks.clock import Clock
from asyncjax.stragglers.times.decomposition import check_times, part_at, pieces
from asyncjax.stragglers.times.laws import Part, both_of, part_quantiles
from asyncjax.stragglers.times.order_statistics import identical, identical_integrals
from asyncjax.stragglers.times.quadrature import (
    convolution_panels,
    log_panels,
    nodes_a_panel,
    panel_levels,
    split_panels,
)
from asyncjax.stragglers.times.response_times import Response
from asyncjax.stragglers.times.shapes import as_array, common_shape


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
        TypeError: If `times` is no response or clock, or `k` not made of integers.
        ValueError: If workers have laws of their own or recorded times, the deadline or the load is
            not positive, or as `expected_completion`.

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
    _check_identical(times)
    within("k", k, least=1, most=times.n_workers, integer=True)
    within("load", load, above=0)
    limits = jnp.asarray(within("deadline", deadline, above=0), float)
    loads = jnp.asarray(load, limits.dtype)
    common_shape(k=k, deadline=limits, load=loads)
    limits, loads = jnp.broadcast_arrays(limits, loads)
    rows = np.arange(limits.size).reshape(limits.shape)
    table = _deadline_table(times, limits.ravel(), loads.ravel())
    return table[rows, jnp.clip(as_array(k), 1, times.n_workers) - 1]


def deadline_samples(times: Response | Clock, deadline: ArrayLike, load: int = 1) -> Array:
    """Mean number of its `load` samples that a worker has done by a deadline, float[n].

    Formula: `sum_{b=1..load} P(S(b) <= D)`, one sample being one unit of load.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(compute=clocks.constant([1.0, 3.0]), n_workers=2)
        >>> deadline_samples(times, 7.5, load=5).tolist()
        [5.0, 2.0]
    """
    _check_laws(times)
    limit = jnp.asarray(within("deadline", deadline, above=0), float)
    if limit.ndim:
        raise ValueError(f"deadline must be one number, got an array of shape {limit.shape}")
    return _samples_done(times, limit, whole("load", load))


def _check_laws(times: Any) -> None:
    """Refuses what has no survival function, recorded times among it."""
    check_times(times)
    if any(clock.law.name == "recorded" for _, clock, _ in pieces(times)):
        raise ValueError("times must have laws that are known for a deadline, got recorded times")


def _check_identical(times: Any) -> None:
    """Refuses workers with laws of their own."""
    _check_laws(times)
    n_rows = max(clock.n_workers for _, clock, _ in pieces(times))
    if n_rows > 1:
        raise ValueError(
            "times must be of identical workers (a response of one-worker clocks) for a deadline, "
            f"got laws of {n_rows} workers"
        )


@partial(jax.jit, static_argnames=("load",))
def _samples_done(times: Response | Clock, limit: Array, load: int) -> Array:
    """`sum_b P(S(b) <= D)`, float[n]."""
    computing = [(clock, scaling) for _, clock, scaling in pieces(times) if scaling is not None]
    if not computing:
        return jnp.full((times.n_workers,), float(load), limit.dtype)
    clock, scaling = computing[0]

    def is_done(size: Array) -> Array:
        location, part = part_at(clock, scaling, size)
        since = limit - location
        if part is None:
            return (since >= 0).astype(limit.dtype)
        x = jnp.where(since > 0, since, 1.0) / part.scale
        return jnp.where(since > 0, part.law.distribution(x, part.shape), 0.0)

    done = jax.vmap(is_done)(jnp.arange(1, load + 1, dtype=limit.dtype)).sum(0)
    return jnp.broadcast_to(done, (times.n_workers,))


class _Stopped(NamedTuple):
    """Response times of identical workers that stop at a deadline, at one load."""

    start: Array  # float[], smallest possible time
    room: Array  # float[], what the deadline leaves for the random part of computing
    apart: tuple[Part, ...]  # random parts of communication: none, one or two; scalar rows
    compute: Part | None  # random part of computing


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

    def means(pair: tuple[Array, Array]) -> Array:
        it, n = _stopped(times, *pair), times.n_workers
        if it.compute is None and not it.apart:
            return jnp.broadcast_to(it.start, (n,))
        ends = _ends(it, n)
        ends = jnp.maximum(ends, ends[-1] * jnp.asarray(1e-25, ends.dtype))
        t, weight = log_panels(ends, nodes_a_panel(ends.dtype, n))
        if it.compute is not None:  # nodes move with the deadline, which gives its derivative
            is_before = t < it.room
            t, weight = _follow(it.room, t, is_before), _scaled(it.room, weight, is_before)
            both = _tails(it, t, is_before)
        else:
            both = both_of(it.apart)(t)
        total = it.start + identical_integrals(weight, *both, n)
        tails = [part.shape for part in it.apart if part.law.has_tail]
        if not tails:
            return total
        past = ends[-1:]
        both = both_of(it.apart)(past) if it.compute is None else _tails(it, past, past < it.room)
        late = identical(*both, n)[0][0]
        exponent = jnp.stack(tails).min() * jnp.arange(n, 0, -1)
        rest = ends[-1] * late / (jnp.maximum(exponent, 1.0) - 1)
        return jnp.where(exponent > 1, total + rest, jnp.inf)

    return jax.lax.map(means, (limits, loads))


def _scaled(room: Array, values: Array, is_before: Array) -> Array:
    """Values that grow with the room where they belong to times before the deadline."""
    fixed = jax.lax.stop_gradient(room)
    return jnp.where(is_before, room * (values / fixed), values)


def _follow(room: Array, t: Array, is_before: Array) -> Array:
    """Times that follow the deadline: in proportion before it, at a distance after it."""
    return jnp.where(
        is_before, _scaled(room, t, is_before), room + (t - jax.lax.stop_gradient(room))
    )


def _tails(it: _Stopped, t: Array, is_before: Array) -> tuple[Array, Array]:
    """`(P(T <= t), P(T > t))` at times after the start, float[Q] each."""
    compute = it.compute
    assert compute is not None  # the caller has looked
    if not it.apart:  # the last node is the deadline itself, where all have finished
        x = t / compute.scale
        above = compute.law.survival(x, compute.shape)
        below = compute.law.distribution(x, compute.shape)
        return jnp.where(is_before, below, 1.0), jnp.where(is_before, above, 0.0)
    (apart,) = it.apart
    order, at = convolution_panels(t.dtype)
    compute_ends, apart_ends = part_quantiles(compute, at), part_quantiles(apart, at)
    tiny = jnp.finfo(t.dtype).tiny

    def at_time(t: Array, is_before: Array) -> tuple[Array, Array]:
        most = jnp.where(is_before, t, it.room)
        after = jnp.where(is_before, 0.0, jnp.maximum(t - it.room, 0.0))
        zero = jnp.zeros((1,), t.dtype)
        places = [zero, compute_ends, most + after - apart_ends, most[None] / 2, most[None]]
        ends = jnp.sort(jnp.clip(jnp.concatenate(places), 0, most))
        share = most / jax.lax.stop_gradient(most)
        y, rest, weight = (share * part for part in split_panels(ends, most, order))
        x = jnp.maximum(y / compute.scale, tiny)
        mass = weight / compute.scale * jnp.exp(compute.law.log_density(x, compute.shape))
        stopped = compute.law.survival(most / compute.scale, compute.shape)

        def both(law: Any) -> Array:
            left = jnp.maximum((rest + after) / apart.scale, tiny)
            last = jnp.maximum(after / apart.scale, tiny)
            return (mass * law(left, apart.shape)).sum() + stopped * law(last, apart.shape)

        return both(apart.law.distribution), both(apart.law.survival)

    below, above = jax.vmap(at_time)(t, is_before)
    return jnp.clip(below, 0, 1), jnp.clip(above, 0, 1)
