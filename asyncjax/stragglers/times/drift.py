"""Means of communication and computation while they drift, estimated inside a compiled loop.

    means <- argmax  sum over the last W updates of [sum ln f(t_i) + (n - k) ln P(T > t_max)]
                     - |log means - log last means|^2 / 2

The likelihood is that of `censored.py`: the k fastest of n sums of two exponential times, the
others censored. One observation's worth of prior at the last estimate keeps a window with little in
it near the last estimate. At one load the two means cannot be told apart: while a window holds only
one, both move by the same factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from asyncjax.checks import instance, whole, within
from asyncjax.stragglers.times.censored import log_likelihood, newton_step, search_starts

_STEPS = 3
_ONE_LOAD = 1.05  # loads whose ratio is less count as one


class DriftState(NamedTuple):
    """What an estimator keeps: a ring of the last updates, and the last estimate."""

    times: Array  # float[W, n], response times in rising order, inf where not awaited
    load: Array  # float[W], units of load of each update
    updates: Array  # int32[], updates seen
    log_means: Array  # float[2], logarithms of the means of communication and of one unit of load


@dataclass(frozen=True)
class Estimator:
    """A bundle of pure functions, for use inside compiled loops.

    Attributes:
        init: `() -> state`.
        observe: `(state, response, load) -> state`, after every update: `response` float[n] are the
            response times of all workers, inf where not awaited, `load` float[] is what was asked;
            refuses others.
        estimate: `state -> (communicate_mean, compute_mean)`, float[] each, time units.
    """

    init: Callable[[], DriftState]
    observe: Callable[[DriftState, Array, ArrayLike], DriftState]
    estimate: Callable[[DriftState], tuple[Array, Array]]


def drifting(window: int, n_workers: int, start: tuple[float, float]) -> Estimator:
    """Makes an estimator of the means of `T = C + load * X` over the last updates.

    Formula: the means maximise the likelihood of the times in the window, the k fastest of n sums
    of two exponential times and the others censored, less half the squared distance of their
    logarithms from the last estimate; found by a few Newton steps from there.

    Args:
        window: Number `W` of updates that are remembered.
        n_workers: Number of workers `n` that are started in every update.
        start: First estimate, `(communicate_mean, compute_mean)`, positive, time units.

    Returns:
        An estimator. After a change of the means it has forgotten the old ones in `W` updates.

    Raises:
        TypeError: If a count is no integer or `start` not made of numbers.
        ValueError: If a count is below 1, both together make 2^31 times or more, or `start` is not
            two positive numbers.

    Note:
        Means are told apart only while the window holds two loads that differ by more than 5 %.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.25), communicate=clocks.exponential(1.0), n_workers=16
        ... )
        >>> load = jnp.where(jnp.arange(128) % 2, 1.0, 8.0)
        >>> drawn = times.durations(jax.random.key(0), 128, load=load).T
        >>> seen = jnp.where(jnp.argsort(jnp.argsort(drawn)) < 8, drawn, jnp.inf)  # the 8 fastest
        >>> estimator = drifting(64, 16, start=(0.3, 0.3))
        >>> state, _ = jax.lax.scan(
        ...     lambda state, row: (estimator.observe(state, *row), None),
        ...     estimator.init(), (seen, load),
        ... )
        >>> communicate_mean, compute_mean = estimator.estimate(state)
        >>> bool(abs(communicate_mean - 1.0) < 0.2), bool(abs(compute_mean - 0.25) < 0.05)
        (True, True)

    Reference:
        Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589: two independent random times.
    """
    size, n = whole("window", window), whole("n_workers", n_workers)
    if size * n >= 2**31:
        raise ValueError(f"window must make fewer than 2**31 times of {n} workers, got {size}")
    if np.shape(within("start", start, above=0)) != (2,):
        raise ValueError(f"start must be the means of communication and computation, got {start!r}")

    def init() -> DriftState:
        log_means = jnp.log(jnp.asarray(start, float))
        return DriftState(
            times=jnp.full((size, n), jnp.inf, log_means.dtype),
            load=jnp.ones((size,), log_means.dtype),
            updates=jnp.zeros((), jnp.int32),
            log_means=log_means,
        )

    def observe(state: DriftState, response: Array, load: ArrayLike) -> DriftState:
        _check_state(state, (size, n))
        within("response", response, least=0, finite=False)
        within("load", load, above=0)
        if np.shape(response) != (n,) or np.ndim(load):
            raise ValueError(
                f"response must have the shape {(n,)} and load be one number, got shapes"
                f" {np.shape(response)} and {np.shape(load)}"
            )
        row = state.updates % size
        response = jnp.asarray(response)
        is_seen = jnp.isfinite(response) & (response > 0)
        times = jnp.sort(jnp.where(is_seen, response, jnp.inf)).astype(state.times.dtype)
        state = state._replace(
            times=state.times.at[row].set(times),
            load=state.load.at[row].set(jnp.asarray(load, state.load.dtype)),
            updates=state.updates + 1,
        )
        return state._replace(log_means=_refitted(state, n))

    def estimate(state: DriftState) -> tuple[Array, Array]:
        _check_state(state, (size, n))
        communicate, compute = jnp.exp(state.log_means)
        return communicate, compute

    return Estimator(init, observe, estimate)


def _check_state(state: Any, shape: tuple[int, int]) -> None:
    """Refuses what is no state of this window and these workers."""
    instance("state", state, DriftState, "a DriftState, as init() makes it")
    if np.shape(state.times) != shape:
        raise ValueError(
            f"state must be of a window of {shape[0]} and {shape[1]} workers, got times of shape"
            f" {np.shape(state.times)}"
        )


def _refitted(state: DriftState, n: int) -> Array:
    """The log means of the window, float[2], from the last ones."""
    size, dtype = state.load.shape[0], state.load.dtype
    is_filled = np.arange(size) < state.updates
    least = jnp.min(jnp.where(is_filled, state.load, jnp.inf))
    most = jnp.max(jnp.where(is_filled, state.load, 0.0))
    # directions in which the log means may move: both together, or each on its own
    together, apart = jnp.asarray([[1.0, 0.0], [1.0, 0.0]], dtype), jnp.eye(2, dtype=dtype)
    directions = jnp.where(most < _ONE_LOAD * least, together, apart)

    def loss(move: Array) -> Array:
        point = state.log_means + directions @ move
        return (move**2).sum() / 2 - log_likelihood(point, state.times, state.load, n)

    def step(move: Array, _: None) -> tuple[Array, None]:
        return newton_step(loss, move)[0], None

    # where one part is a small share of the time its slope vanishes: other shares are tried too
    mean_load = jnp.where(is_filled, state.load, 0.0).sum() / jnp.maximum(is_filled.sum(), 1)
    total = jnp.exp(state.log_means[0]) + mean_load * jnp.exp(state.log_means[1])
    starts = search_starts(total, mean_load)
    moves = jnp.concatenate([jnp.zeros((1, 2), dtype), starts - state.log_means])
    losses = jax.lax.map(loss, moves)
    started = jnp.where(most < _ONE_LOAD * least, jnp.zeros(2, dtype), moves[jnp.argmin(losses)])
    move, _ = jax.lax.scan(step, started, length=_STEPS)
    return state.log_means + directions @ move
