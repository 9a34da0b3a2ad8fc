"""Quadrature of the time until k of n workers have finished: panels, and chances at their nodes.

    integral_0^b f(t) dt  ~  sum over panels and nodes of weight * f(t)

With panels between quantiles whose log odds are evenly spaced, an order statistic of `n` draws is a
smooth step over several nodes wherever it lies, whatever the law. Panels are laid out in `log t`,
since both tails of most laws are smooth there; the first one, from 0, in `t`. Nodes and weights
carry no derivatives: an integral over a fixed range is differentiated under the integral sign.

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
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import xlogy

Pair = tuple[Array, Array]
Triple = tuple[Array, Array, Array]
# Least nodes of a panel and its width in log odds, in single and in double precision.
_PANELS = {False: (16, 2.0), True: (20, 1.5)}
_CONVOLUTION = {False: (8, 3.0), True: (10, 2.5)}


@cache
def gauss_legendre(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1), float64[order] each."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return (nodes + 1) / 2, weights / 2


def is_double(dtype: np.dtype) -> bool:
    """Whether a type holds more than single precision, so that more nodes pay."""
    return bool(jnp.finfo(dtype).eps < 1e-10)


def panel_levels(dtype: np.dtype, n_workers: int, width: float | None = None) -> np.ndarray:
    """Log odds `log(p / (1 - p))` of the quantiles at which panels end, float64[P], evenly spaced.

    Above the last one `n P(T > t)` is less than the rounding of `dtype`; below the first one the
    probability that any of `n` workers has finished is a millionth.
    """
    width = _PANELS[is_double(dtype)][1] if width is None else width
    spread = math.log(n_workers)
    below, above = 14.0 + spread, 3.0 - math.log(jnp.finfo(dtype).eps) + spread
    return np.linspace(-below, above, math.ceil((below + above) / width) + 1)


def nodes_a_panel(dtype: np.dtype, n_workers: int) -> int:
    """Nodes a panel: enough to follow the step of an order statistic of many workers."""
    return max(_PANELS[is_double(dtype)][0], math.ceil(2 * math.sqrt(n_workers)))


def convolution_panels(dtype: np.dtype) -> tuple[int, np.ndarray]:
    """Nodes a panel of the convolution of two laws, and the log odds of its ends, float64[P]."""
    order, width = _CONVOLUTION[is_double(dtype)]
    return order, panel_levels(dtype, 1, width)


def normal_scores(at: np.ndarray) -> np.ndarray:
    """Standard normal quantiles at log odds, float64[P], accurate in both tails."""
    normal = NormalDist()
    return np.array([math.copysign(normal.inv_cdf(1 / (1 + math.exp(abs(x)))), x) for x in at])


def log_panels(ends: Array, order: int) -> tuple[Array, Array]:
    """Nodes and weights on `[0, ends[-1]]`, float[P * order] each, for ends of panels float[P].

    The first panel, up to `ends[0]`, is laid out in `t`, all others in `log t`.
    """
    ends = jax.lax.stop_gradient(ends)
    nodes, weights = (jnp.asarray(part, ends.dtype) for part in gauss_legendre(order))
    logs = jnp.log(ends)
    widths = jnp.diff(logs)[:, None]
    t = jnp.exp(logs[:-1, None] + widths * nodes)
    first, first_weights = ends[0] * nodes, ends[0] * weights
    return (
        jnp.concatenate([first, t.ravel()]),
        jnp.concatenate([first_weights, (t * widths * weights).ravel()]),
    )


def split_panels(ends: Array, total: Array, order: int) -> tuple[Array, Array, Array]:
    """Nodes y, `total - y` and weights on `[0, total]` for what varies on many scales at both ends.

    Ends of panels are float[P], results float[(P - 1) * order]. Panels of the lower half are laid
    out in `log y`, those of the upper half in `log(total - y)`, the outermost two in `y` itself.
    """
    ends, total = jax.lax.stop_gradient((ends, total))
    nodes, weights = (jnp.asarray(part, ends.dtype) for part in gauss_legendre(order))
    low, high = ends[:-1, None], ends[1:, None]
    is_lower = low + high < total
    start = jnp.where(is_lower, low, total - high)  # distance from the nearer end
    width = high - low
    is_plain = (start <= 0) | (width <= 0)
    log_width = jnp.log1p(width / jnp.where(is_plain, total, start))
    growing = start * jnp.exp(log_width * nodes)
    near = jnp.where(is_plain, start + width * nodes, growing)
    weight = jnp.where(is_plain, width, log_width * growing) * weights
    far = total - near
    return (
        jnp.where(is_lower, near, far).ravel(),
        jnp.where(is_lower, far, near).ravel(),
        weight.ravel(),
    )


@cache
def _log_chooses(n: int) -> np.ndarray:
    """`log C(n, j)` for j = 0 .. n, float64[n + 1]."""
    logs = np.array([math.lgamma(j + 1) for j in range(n + 1)])
    return logs[n] - logs - logs[::-1]


@cache
def _log_peaks(n: int) -> np.ndarray:
    """`log P(Binomial(n, j/n) = j)` for j = 0 .. n, float64[n + 1]."""
    counts = np.arange(n + 1)
    return _log_chooses(n) + (xlogy(counts, counts / n) + xlogy(n - counts, (n - counts) / n))


def binomial(below: Array, above: Array, n: int) -> Array:
    """`P(count = j)` for j = 0 .. n without cancellation, float[..., n + 1].

    `below`, `above` float[...]: the chances that one worker has and has not finished.
    """
    if n == 0:
        return jnp.ones((*jnp.shape(below), 1), below.dtype)
    counts = jnp.arange(n + 1, dtype=below.dtype)
    tiny = jnp.finfo(below.dtype).tiny
    if is_double(below.dtype):
        log_below, log_above = (jnp.log(jnp.maximum(x, tiny))[..., None] for x in (below, above))
        return jnp.exp(_log_chooses(n) + counts * log_below + (n - counts) * log_above)
    done = jnp.maximum(n * below[..., None], tiny)
    open_ = jnp.maximum(n * above[..., None], tiny)
    excess = jnp.where(below[..., None] < 0.5, counts - done, open_ - (n - counts))

    def deviance(count: Array, difference: Array, expected: Array) -> Array:
        ratio = jnp.maximum(difference / expected, -1 + count / (2 * expected))
        return jnp.where(count > 0, count * jnp.log1p(jnp.where(count > 0, ratio, 0)), 0)

    total = deviance(counts, excess, done) + deviance(n - counts, -excess, open_)
    return jnp.exp(jnp.asarray(_log_peaks(n), below.dtype) - total)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def identical(below: Array, above: Array, n: int) -> Pair:
    """`(P(T_(k) > t), P(T_(k) <= t))` for k = 1 .. n of n identical workers, float[..., n] each.

    `below`, `above` float[...]: `P(T <= t)` and `P(T > t)` of one worker at every time.
    """
    return tails(binomial(below, above, n))


@identical.defjvp
def _identical_jvp(n: int, primals: Pair, tangents: Pair) -> tuple[Pair, Pair]:
    slope = n * binomial(*primals, n - 1) * tangents[1][..., None]
    return identical(*primals, n), (slope, -slope)


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def identical_integrals(weight: Array, below: Array, above: Array, n: int) -> Array:
    """Integrals of `P(T_(k) > t)` over time for k = 1 .. n of n identical workers, float[n].

    `weight`, `below`, `above` float[Q]: the node's weight, and one worker's chances there.
    """
    return integrals(weight, binomial(below, above, n))


@identical_integrals.defjvp
def _identical_integrals_jvp(n: int, primals: Triple, tangents: Triple) -> Pair:
    weight, below, above = primals
    slope = n * (weight * tangents[2]) @ binomial(below, above, n - 1)
    counts = binomial(below, above, n)
    return integrals(weight, counts), slope + integrals(tangents[0], counts)


def integrals(weight: Array, counts: Array) -> Array:
    """Integrals of `P(T_(k) > t)`, k = 1 .. n, float[n]: weights float[Q], counts [Q, n + 1]."""
    return jnp.cumsum((weight @ counts)[:-1])


def tails(counts: Array) -> Pair:
    """Sums of probabilities of counts [..., n + 1] from both ends, each free of cancellation."""
    late = jnp.cumsum(counts[..., :-1], axis=-1)
    done = jnp.flip(jnp.cumsum(jnp.flip(counts[..., 1:], -1), axis=-1), -1)
    return late, done


def poisson_binomial(below: Array, above: Array) -> Array:
    """Probabilities of how many workers have finished, float[Q, n + 1], from float[n, Q] each."""
    n, n_times = below.shape

    def add_worker(counts: Array, worker: Pair) -> tuple[Array, None]:
        done, still = worker
        shifted = jnp.pad(counts[:, :-1], ((0, 0), (1, 0)))
        return counts * still[:, None] + shifted * done[:, None], None

    start = jnp.zeros((n_times, n + 1), below.dtype).at[:, 0].set(1.0)
    return jax.lax.scan(add_worker, start, (below, above))[0]
