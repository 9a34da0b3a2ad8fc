"""Order statistics of independent times: the chance that fewer than k of n workers have finished.

With `F_i = P(T_i <= t)` and `q_i = 1 - F_i`:

    P(T_(k) > t) = P(at most k - 1 have finished)
    identical     count ~ Binomial(n, F):   P(count = j) = C(n, j) F^j q^(n-j)
    otherwise     p_i[j] = p_{i-1}[j] q_i + p_{i-1}[j-1] F_i        (Poisson-binomial)

In single precision the binomial is written as its value at `F = j/n` times `exp(-D)`, where the
deviance `D` is computed from `j - n F`, so that no large logarithms cancel; in double precision
their rounding does no harm. The alternating sums of textbooks are never used. Integrals are taken
of the probabilities of counts and summed over counts afterwards, which is far cheaper than the
other way round.
"""

from __future__ import annotations

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.stragglers.times.quadrature import is_double


@cache
def _log_chooses(n: int) -> np.ndarray:
    """`log C(n, j)` for j = 0 .. n, float64[n + 1]."""
    logs = [math.lgamma(j + 1) for j in range(n + 1)]
    return np.array([logs[n] - logs[j] - logs[n - j] for j in range(n + 1)])


@cache
def _log_peaks(n: int) -> np.ndarray:
    """`log P(Binomial(n, j/n) = j)` for j = 0 .. n, float64[n + 1]."""

    def log_peak(j: int) -> float:
        powers = sum(m * math.log(m / n) for m in (j, n - j) if m > 0)
        return _log_chooses(n)[j] + powers

    return np.array([log_peak(j) for j in range(n + 1)])


def binomial(below: Array, above: Array, n: int) -> Array:
    """`P(count = j)` for j = 0 .. n without cancellation, float[..., n + 1].

    `below`, `above` float[...]: the chances that one worker has and has not finished.

    Example:
        >>> import jax.numpy as jnp
        >>> binomial(jnp.asarray(0.5), jnp.asarray(0.5), 2).round(6).tolist()
        [0.25, 0.5, 0.25]
    """
    if n == 0:
        return jnp.ones((*jnp.shape(below), 1), below.dtype)
    counts = jnp.arange(n + 1, dtype=below.dtype)
    tiny = jnp.finfo(below.dtype).tiny
    if is_double(below.dtype):
        logs = (jnp.log(jnp.maximum(x, tiny))[..., None] for x in (below, above))
        log_below, log_above = logs
        return jnp.exp(_log_chooses(n) + counts * log_below + (n - counts) * log_above)
    done = jnp.maximum(n * below[..., None], tiny)
    open_ = jnp.maximum(n * above[..., None], tiny)
    excess = jnp.where(below[..., None] < 0.5, counts - done, open_ - (n - counts))

    def deviance(count: Array, difference: Array, expected: Array) -> Array:
        ratio = jnp.where(
            count > 0, jnp.maximum(difference / expected, -1 + count / (2 * expected)), 0
        )
        return jnp.where(count > 0, count * jnp.log1p(ratio), 0)

    total = deviance(counts, excess, done) + deviance(n - counts, -excess, open_)
    return jnp.exp(jnp.asarray(_log_peaks(n), below.dtype) - total)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def identical(below: Array, above: Array, n: int) -> tuple[Array, Array]:
    """`(P(T_(k) > t), P(T_(k) <= t))` for k = 1 .. n of n identical workers, float[..., n] each.

    `below`, `above` float[...]: `P(T <= t)` and `P(T > t)` of one worker at every time.

    Example:
        >>> import jax.numpy as jnp
        >>> late, done = identical(jnp.asarray([0.5]), jnp.asarray([0.5]), 2)
        >>> late.round(6).tolist(), done.round(6).tolist()
        ([[0.25, 0.75]], [[0.75, 0.25]])
    """
    return _tails(binomial(below, above, n))


@identical.defjvp
def _identical_jvp(
    n: int, primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    below, above = primals
    slope = n * binomial(below, above, n - 1) * tangents[1][..., None]
    return identical(below, above, n), (slope, -slope)


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def identical_integrals(weight: Array, below: Array, above: Array, n: int) -> Array:
    """Integrals of `P(T_(k) > t)` over time for k = 1 .. n of n identical workers, float[n].

    `weight`, `below`, `above` float[Q]: the node's weight, and one worker's chances there.
    """
    return jnp.cumsum((weight @ binomial(below, above, n))[:-1])


@identical_integrals.defjvp
def _identical_integrals_jvp(
    n: int, primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    weight, below, above = primals
    slope = n * (weight * tangents[2]) @ binomial(below, above, n - 1)
    counts = binomial(below, above, n)
    moved = jnp.cumsum((tangents[0] @ counts)[:-1])
    return jnp.cumsum((weight @ counts)[:-1]), slope + moved


def poisson_binomial_integrals(weight: Array, below: Array, above: Array) -> Array:
    """Integrals of `P(T_(k) > t)` over time, k = 1 .. n, for workers with laws of their own.

    `weight` float[Q]; `below`, `above` float[n, Q]; returns float[n].
    """
    return jnp.cumsum((weight @ _counts(below, above))[:-1])


def poisson_binomial(below: Array, above: Array) -> tuple[Array, Array]:
    """`(P(T_(k) > t), P(T_(k) <= t))`, k = 1 .. n, for workers with laws of their own.

    `below`, `above` float[n, Q]; returns float[Q, n] each.

    Example:
        >>> import jax.numpy as jnp
        >>> below = jnp.asarray([[0.5], [0.25]])
        >>> poisson_binomial(below, 1 - below)[0].tolist()
        [[0.375, 0.875]]
    """
    return _tails(_counts(below, above))


def _counts(below: Array, above: Array) -> Array:
    """Probabilities of the number of workers that have finished, from float[n, Q], [Q, n + 1]."""
    n, n_times = below.shape

    def add_worker(counts: Array, worker: tuple[Array, Array]) -> tuple[Array, None]:
        done, still = worker
        shifted = jnp.pad(counts[:, :-1], ((0, 0), (1, 0)))
        return counts * still[:, None] + shifted * done[:, None], None

    start = jnp.zeros((n_times, n + 1), below.dtype).at[:, 0].set(1.0)
    counts, _ = jax.lax.scan(add_worker, start, (below, above))
    return counts


def _tails(counts: Array) -> tuple[Array, Array]:
    """Sums of probabilities of counts [..., n + 1] from both ends, each free of cancellation."""
    late = jnp.cumsum(counts[..., :-1], axis=-1)
    done = jnp.flip(jnp.cumsum(jnp.flip(counts[..., 1:], -1), axis=-1), -1)
    return late, done
