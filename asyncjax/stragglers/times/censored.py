"""Laws of response times from what a server sees: the k fastest of n workers, the rest censored.

A plain mean of the times seen is too low, since the slow ones are never seen. With `t_1 .. t_k` the
times seen, `t_max` the last, and `n - k` workers known only to take longer:

    exponential      mean = (sum t_i + (n - k) t_max) / k, unbiased
    shifted          shift = t_min,  mean = (sum (t_i - shift) + (n - k) (t_max - shift)) / (k - 1)
    two exponentials    maximise  sum ln f(t_i) + (n - k) ln P(T > t_max)  over both means

The last, `T = C + load * X` of Egger, Kas Hanna and Bitar (2023), is symmetric in the two means at
one load. The others are unbiased (Epstein and Sobel, "Life testing", Journal of the American
Statistical Association 48, 1953). While means drift they are estimated inside a compiled loop, from
the last W updates:

    means <- argmax  sum over the last W updates of [sum ln f(t_i) + (n - k) ln P(T > t_max)]
                     - |log means - log last means|^2 / 2

While a window holds only one load, both means move by the same factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from asyncjax.checks import whole, within
from asyncjax.stragglers.times.response_times import check_size

_STEPS = 40  # of a search from nothing
_STEPS_ON = 3  # of one from the last estimate
_ONE_LOAD = 1.05  # loads whose ratio is less count as one
_SHARES = (0.05, 0.5, 0.95)  # of communication in the mean time, where searches start
_HALVES = 2.0 ** -np.arange(7)  # lengths of a Newton step that are tried


class ExponentialFit(NamedTuple):
    """An exponential law."""

    mean: Array  # float[], time units


class ShiftedExponentialFit(NamedTuple):
    """A shifted exponential law."""

    shift: Array  # float[], time units
    mean: Array  # float[], mean of what is above the shift, time units


class HypoexponentialFit(NamedTuple):
    """Two exponential laws whose times add up."""

    communicate_mean: Array  # float[], time units
    compute_mean: Array  # float[], time units a unit of load
    log_likelihood: Array  # float[]
    last_step: Array  # float[], length of the last step in the log means; small if it has converged


def fit_exponential(observed: ArrayLike, n_workers: int) -> ExponentialFit:
    """Returns an exponential law fitted to the k fastest of n times, unbiased.

    Formula: `mean = (sum t_i + (n - k) t_max) / k`; over several rounds, sums of both (Epstein and
    Sobel 1953).

    Args:
        observed: Times seen, float[k] or float[R, k] for R rounds, in any order, time units.
        n_workers: Number of workers `n` that were started.

    Example:
        >>> round(float(fit_exponential([0.1, 0.25, 0.4], 5).mean), 6)  # 1.55 / 3
        0.516667
    """
    times, n = _rounds(observed, n_workers)
    return ExponentialFit(_waited(times, n) / times.size)


def fit_shifted_exponential(observed: ArrayLike, n_workers: int) -> ShiftedExponentialFit:
    """Returns a shifted exponential law fitted to the k fastest of n times; its mean is unbiased.

    Formula: `shift = t_min`, `mean = (sum (t_i - shift) + (n - k) (t_max - shift)) / (k - 1)`; over
    R rounds the shift is the smallest time of all and the divisor `R k - 1`.

    Args:
        observed, n_workers: As for `fit_exponential`.

    Example:
        >>> fit = fit_shifted_exponential([0.1, 0.25, 0.4], 5)
        >>> round(float(fit.shift), 6), round(float(fit.mean), 6)  # 0.1, 1.05 / 2
        (0.1, 0.525)
    """
    times, n = _rounds(observed, n_workers)
    if times.size < 2:
        raise ValueError("observed must hold at least two times for a shift and a mean, got one")
    shift = times.min()
    return ShiftedExponentialFit(shift, _waited(times - shift, n) / (times.size - 1))


def fit_hypoexponential(observed: ArrayLike, load: Any, n_workers: int) -> HypoexponentialFit:
    """Returns means of communication and computation fitted to the k fastest at several loads.

    Formula: the greatest likelihood of `T = C + load * X`, both exponential, of the times seen and
    of `n - k` times beyond the last; by damped Newton steps in the log means. Works under `jit`.

    Args:
        observed: Times seen, float[R, k] for R rounds, in any order within a round, time units.
        load: Units of load a worker in each round, float[R], at least two different ones.
        n_workers: Number of workers `n` that were started.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.25), communicate=clocks.exponential(1.0), n_workers=20
        ... )
        >>> load = jnp.where(jnp.arange(200) < 100, 1.0, 8.0)
        >>> drawn = times.durations(jax.random.key(0), 200, load=load)
        >>> fit = fit_hypoexponential(jnp.sort(drawn, axis=0)[:10].T, load, 20)
        >>> bool(abs(fit.communicate_mean - 1.0) < 0.1), bool(abs(fit.compute_mean - 0.25) < 0.03)
        (True, True)
    """
    times, n = _rounds(observed, n_workers)
    loads = jnp.asarray(within("load", load, above=0), times.dtype)
    if not isinstance(load, Tracer) and np.unique(np.asarray(load)).size < 2:
        raise ValueError(
            "load must take at least two values to tell communication from computation, got one"
        )
    return _fitted(times, loads, n)


def _rounds(observed: Any, n_workers: int) -> tuple[Array, int]:
    """Reads times seen as float[R, k] and the number of workers."""
    n = whole("n_workers", n_workers, 1, 2**31 - 1)
    times = jnp.asarray(within("observed", observed, above=0), jnp.result_type(float))
    times = times.reshape(-1, times.shape[-1])
    if times.shape[1] > n:
        raise ValueError(
            f"observed must hold at most n_workers = {n} times a round, got {times.shape[1]}"
        )
    return times, n


def _waited(times: Array, n: int) -> Array:
    """Time that all workers have worked until the last answer seen, summed over rounds, float[]."""
    return times.sum() + (n - times.shape[1]) * times.max(axis=1).sum()


def log_mean_decay(x: Array) -> Array:
    """`log((1 - e^{-x}) / x)` for x >= 0, float[...], with all derivatives at 0."""
    is_small = x < 0.5
    safe = jnp.where(is_small, 1.0, x)
    y = jnp.where(is_small, x, 0.0) ** 2
    terms = y * (1 / 24 - y * (1 / 2880 - y * (1 / 181440 - y * (1 / 9676800 - y / 479001600))))
    return jnp.where(is_small, -x / 2 + terms, jnp.log(-jnp.expm1(-safe)) - jnp.log(safe))


def log_likelihood(log_means: Array, times: Array, loads: Array, n: int) -> Array:
    """Log-likelihood, float[], of the fastest of n sums of two exponential times, others censored.

    `log_means` float[2] of communication and one unit of load; `times` float[R, K], inf: not seen.
    """
    seen = jnp.isfinite(times)
    n_seen = seen.sum(axis=1)
    last = jnp.max(jnp.where(seen, times, 0.0), axis=1, keepdims=True)
    t = jnp.concatenate([jnp.where(seen, times, 1.0), jnp.where(last > 0, last, 1.0)], axis=1)
    rates = jnp.exp(-log_means[0]), jnp.exp(-log_means[1]) / loads[:, None]
    # sorted by a comparison, not by max and min, which halve derivatives at equal means
    is_first = rates[0] >= rates[1]
    hi, lo = jnp.where(is_first, *rates), jnp.where(is_first, *rates[::-1])
    x = (hi - lo) * t
    decay = log_mean_decay(x)
    density = (jnp.log(hi * lo * t) - lo * t + decay)[:, :-1]
    survival = -lo[:, 0] * t[:, -1] + jnp.log(
        jnp.exp(-x[:, -1]) + hi[:, 0] * t[:, -1] * jnp.exp(decay[:, -1])
    )
    total = jnp.where(seen, density, 0.0).sum(axis=1) + (n - n_seen) * survival
    return jnp.where(n_seen > 0, total, 0.0).sum()


def newton_step(loss: Any, point: Array) -> tuple[Array, Array]:
    """One damped Newton step, at most 1 long, from float[2] on any smooth loss: point, length."""
    # slopes' differences for second derivatives: where a search ends depends on slopes alone
    aside = 0.01 * jnp.asarray([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]], point.dtype)
    slope, *around = jax.vmap(jax.grad(loss))(point + aside)
    matrix = jnp.stack([around[0] - around[2], around[1] - around[3]]) / 0.02
    matrix = (matrix + matrix.T) / 2
    middle = jnp.trace(matrix) / 2
    spread = jnp.hypot((matrix[0, 0] - matrix[1, 1]) / 2, matrix[0, 1])
    # the function 1 / |x| of a matrix with two eigenvalues is linear in the matrix
    least = 1e-6 * (1 + jnp.abs(middle) + spread)
    low, high = (1 / jnp.maximum(jnp.abs(middle + side * spread), least) for side in (-1, 1))
    line = jnp.where(spread > 0, (high - low) / jnp.where(spread > 0, 2 * spread, 1.0), 0.0)
    step = -(high - line * (middle + spread)) * slope - line * (matrix @ slope)
    step = step / jnp.maximum(jnp.linalg.norm(step), 1.0)
    tried = jnp.asarray(np.append(_HALVES, 0.0), point.dtype)[:, None] * step
    best = jnp.nanargmin(jax.vmap(loss)(point + tried))
    return point + tried[best], jnp.linalg.norm(tried[best])


def _searched(loss: Any, start: Array, steps: int) -> tuple[Array, Array]:
    """Where Newton steps from float[2] lead, and the length of the last one."""

    def step(point: Array, _: None) -> tuple[Array, Array]:
        return newton_step(loss, point)

    point, lengths = jax.lax.scan(step, start, length=steps)
    return point, lengths[-1]


def search_starts(mean: Array, load: Array) -> Array:
    """Log means of communication and a unit of load, float[3, 2], that add up to a mean time."""
    shares = jnp.asarray(_SHARES, mean.dtype)
    return jnp.log(jnp.stack([shares * mean, (1 - shares) * mean / load], axis=1))


@partial(jax.jit, static_argnames=("n",))
def _fitted(times: Array, loads: Array, n: int) -> HypoexponentialFit:
    """The best of the searches from all starts; times float[R, k], loads float[R]."""

    def loss(log_means: Array) -> Array:
        return -log_likelihood(log_means, times, loads, n) / times.size

    mean = _waited(times, n) / times.size
    starts = search_starts(mean, loads.mean())

    points, lengths = jax.vmap(lambda start: _searched(loss, start, _STEPS))(starts)
    best = jnp.nanargmin(jax.vmap(loss)(points))
    point = points[best]
    communicate, compute = jnp.exp(point)
    return HypoexponentialFit(
        communicate, compute, log_likelihood(point, times, loads, n), lengths[best]
    )


class DriftState(NamedTuple):
    """What an estimator keeps: a ring of the last updates, and the last estimate."""

    times: Array  # float[W, n], response times in rising order, inf where not awaited
    load: Array  # float[W], units of load of each update
    updates: Array  # int32[], updates seen
    log_means: Array  # float[2], logarithms of the means of communication and of one unit of load


@dataclass(frozen=True)
class Estimator:
    """Pure functions, for use inside compiled loops.

    Attributes:
        init: `() -> state`.
        observe: `(state, response, load) -> state`, after every update: `response` float[n] are the
            response times of all workers, inf where not awaited, `load` float[] is what was asked.
        estimate: `state -> (communicate_mean, compute_mean)`, float[] each, time units.
    """

    init: Callable[[], DriftState]
    observe: Callable[[DriftState, Array, ArrayLike], DriftState]
    estimate: Callable[[DriftState], tuple[Array, Array]]


def drifting(window: int, n_workers: int, start: tuple[float, float]) -> Estimator:
    """Returns an estimator of the means of `T = C + load * X` over the last updates.

    Formula: the means maximise the likelihood of the times in the window, less half the squared
    distance of their logarithms from the last estimate; found by a few Newton steps from there.
    They are distinguished only while the window holds two loads that differ by more than 5 %.

    Args:
        window: Number `W` of updates that are remembered.
        n_workers: Number of workers `n` that are started in every update.
        start: First estimate, `(communicate_mean, compute_mean)`, positive, time units.

    Example:
        >>> estimator = drifting(64, 16, start=(0.5, 0.25))
        >>> state = estimator.observe(estimator.init(), jnp.full(16, jnp.inf), 8.0)  # none seen
        >>> [round(float(mean), 3) for mean in estimator.estimate(state)]
        [0.5, 0.25]
    """
    n = whole("n_workers", n_workers)
    size = check_size("window", window, n)
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

    return Estimator(init, observe, estimate)


def observe(state: DriftState, response: Array, load: ArrayLike) -> DriftState:
    """Puts an update in the place of the oldest, and estimates anew."""
    row, response = state.updates % state.load.shape[0], jnp.asarray(response)
    is_seen = jnp.isfinite(response) & (response > 0)
    times = jnp.sort(jnp.where(is_seen, response, jnp.inf)).astype(state.times.dtype)
    state = state._replace(
        times=state.times.at[row].set(times),
        load=state.load.at[row].set(jnp.asarray(load, state.load.dtype)),
        updates=state.updates + 1,
    )
    return state._replace(log_means=_refitted(state))


def estimate(state: DriftState) -> tuple[Array, Array]:
    """The means of communication and of one unit of load."""
    communicate, compute = jnp.exp(state.log_means)
    return communicate, compute


def _refitted(state: DriftState) -> Array:
    """The log means of the window, float[2], from the last ones."""
    (size, n), dtype = state.times.shape, state.load.dtype
    is_filled = np.arange(size) < state.updates
    least = jnp.min(jnp.where(is_filled, state.load, jnp.inf))
    most = jnp.max(jnp.where(is_filled, state.load, 0.0))
    # directions in which the log means may move: both together, or each on its own
    together, apart = jnp.asarray([[1.0, 0.0], [1.0, 0.0]], dtype), jnp.eye(2, dtype=dtype)
    directions = jnp.where(most < _ONE_LOAD * least, together, apart)

    def loss(move: Array) -> Array:
        point = state.log_means + directions @ move
        return (move**2).sum() / 2 - log_likelihood(point, state.times, state.load, n)

    # where one part is a small share of the time its slope vanishes: other shares are tried too
    mean_load = jnp.where(is_filled, state.load, 0.0).sum() / jnp.maximum(is_filled.sum(), 1)
    total = jnp.exp(state.log_means[0]) + mean_load * jnp.exp(state.log_means[1])
    starts = search_starts(total, mean_load)
    moves = jnp.concatenate([jnp.zeros((1, 2), dtype), starts - state.log_means])
    losses = jax.lax.map(loss, moves)
    started = jnp.where(most < _ONE_LOAD * least, jnp.zeros(2, dtype), moves[jnp.argmin(losses)])
    move, _ = _searched(loss, started, _STEPS_ON)
    return state.log_means + directions @ move
