"""Order statistics of independent times: the chance that fewer than k of n workers have finished.

With `F_i = P(T_i <= t)` and `q_i = 1 - F_i`:

    P(T_(k) > t) = P(at most k - 1 have finished)
    identical     count ~ Binomial(n, F):   P(count = j) = C(n, j) F^j q^(n-j)
    otherwise     p_i[j] = p_{i-1}[j] q_i + p_{i-1}[j-1] F_i        (Poisson-binomial)

The binomial is written as its value at `F = j/n` times `exp(-D)`, where the deviance `D` is computed
from `j - n F`: no large logarithms cancel. The alternating sums of textbooks are never used.
"""

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


@cache
def _log_peaks(n: int) -> np.ndarray:
    """`log P(Binomial(n, j/n) = j)` for j = 0 .. n, float64[n + 1]."""

    def log_peak(j: int) -> float:
        log_choose = math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1)
        powers = sum(m * math.log(m / n) for m in (j, n - j) if m > 0)
        return log_choose + powers

    return np.array([log_peak(j) for j in range(n + 1)])


def binomial(below: Array, above: Array, n: int) -> Array:
    """Probabilities of a binomial count, without cancellation.

    Args:
        below: float[...], probability of success `F`.
        above: float[...], `1 - F`, given on its own so that both may be tiny.
        n: number of trials.

    Returns:
        float[..., n + 1].

    Example:
        >>> import jax.numpy as jnp
        >>> binomial(jnp.asarray(0.5), jnp.asarray(0.5), 2).round(6).tolist()
        [0.25, 0.5, 0.25]
    """
    if n == 0:
        return jnp.ones((*jnp.shape(below), 1), below.dtype)
    counts = jnp.arange(n + 1, dtype=below.dtype)
    tiny = jnp.finfo(below.dtype).tiny
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
    """Tails of the order statistics of n identical workers.

    Args:
        below: float[Q], `P(T <= t)` at Q times.
        above: float[Q], `P(T > t)`.
        n: number of workers.

    Returns:
        `(P(T_(k) > t), P(T_(k) <= t))`, float[Q, n] each, for k = 1 .. n. Their derivative in
        `above` is `n P(Binomial(n - 1, F) = k - 1)`, exact where automatic ones cancel.

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


def poisson_binomial(below: Array, above: Array) -> tuple[Array, Array]:
    """Tails of the order statistics of workers with laws of their own.

    Args:
        below: float[n, Q], `P(T_i <= t)` at Q times.
        above: float[n, Q], `P(T_i > t)`.

    Returns:
        `(P(T_(k) > t), P(T_(k) <= t))`, float[Q, n] each, for k = 1 .. n.

    Example:
        >>> import jax.numpy as jnp
        >>> below = jnp.asarray([[0.5], [0.25]])
        >>> poisson_binomial(below, 1 - below)[0].tolist()
        [[0.375, 0.875]]
    """
    n, n_times = below.shape

    def add_worker(counts: Array, worker: tuple[Array, Array]) -> tuple[Array, None]:
        done, still = worker
        shifted = jnp.pad(counts[:, :-1], ((0, 0), (1, 0)))
        return counts * still[:, None] + shifted * done[:, None], None

    start = jnp.zeros((n_times, n + 1), below.dtype).at[:, 0].set(1.0)
    counts, _ = jax.lax.scan(add_worker, start, (below, above))
    return _tails(counts)


def _tails(counts: Array) -> tuple[Array, Array]:
    """Sums of probabilities of counts from both ends, each free of cancellation."""
    late = jnp.cumsum(counts[..., :-1], axis=-1)
    done = jnp.flip(jnp.cumsum(jnp.flip(counts[..., 1:], -1), axis=-1), -1)
    return late, done
