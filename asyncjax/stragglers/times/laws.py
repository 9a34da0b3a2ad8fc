"""Laws of times: a response time as a constant and at most two random parts, and their sum.

    T(load) = location + scale_1 U_1 + scale_2 U_2,     U_1, U_2 independent, of laws with scale 1

Two exponentials with rates `hi >= lo`, `x = (hi - lo) t`; nothing is singular at equal rates:

    P(T > t) = e^{-hi t} + hi t e^{-lo t} (1 - e^{-x}) / x

A gamma time of shape b and rate mu, and an exponential one of a smaller rate lam, in double
precision:

    P(T > t) = Q(b, mu t) + e^{-lam t} (1 - lam/mu)^{-b} P(b, (mu - lam) t)

with P and Q the regularised incomplete gamma functions. Any other two parts A and B, by quadrature
with panels between the quantiles of A and those of `t - B`; all terms are positive, so both tails
keep their relative accuracy:

    P(T > t)  = P(A > t) + integral_0^t f_A(y) P(B > t - y) dy
    P(T <= t) =            integral_0^t f_A(y) P(B <= t - y) dy

The time until k of n workers have finished is an integral over such chances, by composite
Gauss-Legendre quadrature whose panels begin and end at quantiles:

    integral_0^b f(t) dt  ~  sum over panels and nodes of weight * f(t)

With panels between quantiles whose log odds are evenly spaced, an order statistic of `n` draws is a
smooth step over several nodes, whatever the law. Nodes and weights carry no derivatives.

With `F_i = P(T_i <= t)` and `q_i = 1 - F_i`:

    P(T_(k) > t) = P(at most k - 1 have finished)
    identical     count ~ Binomial(n, F):   P(count = j) = C(n, j) F^j q^(n-j)
    otherwise     p_i[j] = p_{i-1}[j] q_i + p_{i-1}[j-1] F_i        (Poisson-binomial)

In single precision the binomial is written as its value at `F = j/n` times `exp(-D)`, where the
deviance `D` is computed from `j - n F`, so that no large logarithms cancel. The alternating sums of
textbooks are never used. Integrals are taken of the probabilities of counts and summed afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import softplus
from jax.scipy.special import gammainc, gammaincc, gammaln, ndtr
from scipy.special import xlogy

from asyncjax.clocks.clock import Clock
from asyncjax.stragglers.times.response_times import Response, check_plain

MOST_WORKERS = 10_000  # of one law, for a quadrature: it holds a number a worker at every node
MOST_OWN_LAWS = 2_000  # of laws of their own, where every worker adds panels too
Function = Callable[[Array, Array], Array]  # (x, shape), broadcast
Pair = tuple[Array, Array]
# Least nodes of a panel and its width in log odds, in single and in double precision.
_PANELS = {False: (16, 2.0), True: (20, 1.5)}
_CONVOLUTION = {False: (8, 3.0), True: (10, 2.5)}


@dataclass(frozen=True)
class UnitLaw:
    """A distribution on the positive numbers with scale 1; every function takes `(x, shape)`.

    Attributes:
        name: Name of the law.
        survival: `P(U > x)`.
        distribution: `P(U <= x)`, accurate where it is small.
        log_density: Logarithm of the density.
        quantile: `(log odds of p, normal quantile of p, shape) -> x` with `P(U <= x)` about p, for
            the ends of panels; it rises with p.
        cost: Rank of the price of an evaluation of `survival`.
        has_tail: Whether `P(U > x)` falls like `x^-shape`, else faster than any power.
    """

    name: str
    survival: Function
    distribution: Function
    log_density: Function
    quantile: Callable[[Array, Array, Array], Array]
    cost: int = 0
    has_tail: bool = False


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Part:
    """One random part, all of whose rows have one law."""

    law: UnitLaw = field(metadata={"static": True})
    shape: Array  # float[w], w = 1 for identical workers, else n
    scale: Array  # float[w], time units

    def both(self, t: Array) -> Pair:
        """`(P(T <= t), P(T > t))`, location left out."""
        x = t / self.scale
        return self.law.distribution(x, self.shape), self.law.survival(x, self.shape)


def _gamma_quantile(odds: Array, score: Array, shape: Array) -> Array:
    """Wilson and Hilferty's cube, and where it fails, the bound from `P(U <= x) <= x^a / a!`."""
    root = 1 - 1 / (9 * shape) + score / (3 * jnp.sqrt(shape))
    least = jnp.exp((gammaln(shape + 1) - softplus(-odds)) / shape)
    return jnp.maximum(shape * jnp.maximum(root, 0.0) ** 3, least)


EXPONENTIAL = UnitLaw(
    "exponential",
    lambda x, shape: jnp.exp(-x),
    lambda x, shape: -jnp.expm1(-x),
    lambda x, shape: -x,
    lambda odds, score, shape: softplus(odds),
)
GAMMA = UnitLaw(
    "gamma",
    lambda x, shape: gammaincc(shape, x),
    lambda x, shape: gammainc(shape, x),
    lambda x, shape: (shape - 1) * jnp.log(x) - x - gammaln(shape),
    _gamma_quantile,
    cost=2,
)
LOGNORMAL = UnitLaw(
    "lognormal",
    lambda x, shape: ndtr(-jnp.log(x) / shape),
    lambda x, shape: ndtr(jnp.log(x) / shape),
    lambda x, shape: (
        -0.5 * (jnp.log(x) / shape) ** 2 - jnp.log(shape) - jnp.log(x) - 0.5 * jnp.log(2 * jnp.pi)
    ),
    lambda odds, score, shape: jnp.exp(shape * score),
    cost=1,
)
WEIBULL = UnitLaw(
    "weibull",
    lambda x, shape: jnp.exp(-(x**shape)),
    lambda x, shape: -jnp.expm1(-(x**shape)),
    lambda x, shape: jnp.log(shape) + (shape - 1) * jnp.log(x) - x**shape,
    lambda odds, score, shape: softplus(odds) ** (1 / shape),
    cost=1,
)
LOMAX = UnitLaw(
    "pareto",
    lambda x, shape: jnp.exp(-shape * jnp.log1p(x)),
    lambda x, shape: -jnp.expm1(-shape * jnp.log1p(x)),
    lambda x, shape: jnp.log(shape) - (shape + 1) * jnp.log1p(x),
    lambda odds, score, shape: jnp.expm1(softplus(odds) / shape),
    cost=1,
    has_tail=True,
)
UNIT_LAWS = EXPONENTIAL, GAMMA, LOGNORMAL, WEIBULL, LOMAX
KNOWN = "constant", "shifted_exponential", *(law.name for law in UNIT_LAWS)


def part_quantiles(part: Part, at: np.ndarray) -> Array:
    """Quantiles, about, of one row of a part at log odds float[P]; float[P], time units."""
    odds, score = (jnp.asarray(x, part.scale.dtype) for x in (at, normal_scores(at)))
    return jax.lax.stop_gradient(part.scale * part.law.quantile(odds, score, part.shape))


def both_of(parts: tuple[Part, ...]) -> Callable[..., Pair]:
    """Makes `t -> (P(T <= t), P(T > t))` of one or two parts of scalar rows, location left out."""
    if len(parts) == 1:
        return lambda t: parts[0].both(t)
    if all(part.law.name == "exponential" for part in parts):
        return lambda t: _hypoexponential(t, parts[0].scale, parts[1].scale)
    first, second = parts
    is_closed = first.law.name == "gamma" and second.law.name == "exponential"
    if is_closed and is_double(first.scale.dtype):
        return _gamma_and_exponential(first, second)
    return convolution(first, second)


def _mean_decay(x: Array) -> Array:
    """`(1 - e^{-x}) / x`, by its series where x is small."""
    is_small = x < 1e-2
    safe = jnp.where(is_small, 1.0, x)
    series = 1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6))))
    return jnp.where(is_small, series, -jnp.expm1(-safe) / safe)


def _hypoexponential(t: Array, mean: Array, other: Array) -> Pair:
    """`(P(T <= t), P(T > t))` of a sum of two exponentials with means float[], float[...] each."""
    rates = 1 / mean, 1 / other
    # sorted by a comparison, not by max and min, which halve derivatives at equal means
    is_first = rates[0] >= rates[1]
    hi, lo = jnp.where(is_first, *rates), jnp.where(is_first, *rates[::-1])
    above = jnp.exp(-hi * t) + hi * t * jnp.exp(-lo * t) * _mean_decay((hi - lo) * t)
    # Where T <= t is rare: t hi * integral_0^1 e^{-hi t (1 - v)} (1 - e^{-lo t v}) dv.
    small = jnp.where(hi * t < 1, t, 1 / hi)[..., None]
    nodes, weights = (jnp.asarray(part, above.dtype) for part in gauss_legendre(10))
    terms = jnp.exp(-hi * small * (1 - nodes)) * -jnp.expm1(-lo * small * nodes)
    rare = hi * small[..., 0] * (terms * weights).sum(-1)
    return jnp.where(hi * t < 1, rare, 1 - above), above


def _gamma_and_exponential(first: Part, second: Part) -> Callable[..., Pair]:
    """Sum of a gamma and an exponential time, in closed form if the gamma's scale is less."""
    ratio = first.scale / second.scale
    power = -first.shape * jnp.log1p(-jnp.minimum(ratio, 0.9))
    is_closed = (ratio < 0.9) & (power < 300.0)  # where nothing overflows
    # what the formula is given where it is not used
    shape = jnp.where(is_closed, first.shape, 1.0)
    ratio = jnp.where(is_closed, ratio, 0.5)
    power = jnp.where(is_closed, power, 0.0)

    def closed(t: Array) -> Pair:
        x = t / first.scale
        later = jnp.exp(power - ratio * x) * gammainc(shape, (1 - ratio) * x)
        above = jnp.clip(gammaincc(shape, x) + later, 0, 1)
        return 1 - above, above

    return lambda t: jax.lax.cond(is_closed, closed, convolution(first, second), t)


def convolution(first: Part, second: Part, limit: Array | None = None) -> Callable[..., Pair]:
    """Sum of two parts, a function of `t`; with a limit on the first of `(t, t < limit)`."""
    order, at = convolution_panels(first.scale.dtype)
    first_ends, second_ends = part_quantiles(first, at), part_quantiles(second, at)
    laws = second.law.distribution, second.law.survival

    def at_time(t: Array, is_before: Array) -> Pair:
        tiny, most, after, share = jnp.finfo(t.dtype).tiny, t, 0.0, 1.0
        if limit is not None:
            most = jnp.where(is_before, t, limit)
            after = jnp.where(is_before, 0.0, jnp.maximum(t - limit, 0.0))
            share = most / jax.lax.stop_gradient(most)
        zero = jnp.zeros((1,), t.dtype)
        ends = [zero, first_ends, most + after - second_ends, most[None] / 2, most[None]]
        ends = jnp.sort(jnp.clip(jnp.concatenate(ends), 0, most))
        y, rest, weight = (share * part for part in split_panels(ends, most, order))
        x = jnp.maximum(y / first.scale, tiny)
        left = jnp.maximum((rest + after) / second.scale, tiny)
        mass = weight / first.scale * jnp.exp(first.law.log_density(x, first.shape))
        stopped = first.law.survival(most / first.scale, first.shape)
        below, above = ((mass * law(left, second.shape)).sum() for law in laws)
        if limit is None:
            return below, stopped + above
        last = jnp.maximum(after / second.scale, tiny)
        below_last, above_last = (stopped * law(last, second.shape) for law in laws)
        return below + below_last, above + above_last

    def both(t: Array, is_before: Array | None = None) -> Pair:
        before = jnp.ones(t.shape, bool) if is_before is None else is_before
        values = jax.vmap(at_time)(t.ravel(), before.ravel())
        below, above = (jnp.clip(value, 0, 1).reshape(t.shape) for value in values)
        return below, above

    return both


def pieces(times: Response | Clock) -> list[tuple[str, Clock, str | None]]:
    """Lists the parts of response times: argument name, clock, and how it grows with the load."""
    if isinstance(times, Response):
        first, links = ("compute", times.compute, times.scaling), ("communicate",)
    else:
        first, links = (
            ("times", Clock(times.parameters, times.law, phases=times.phases), "scale"),
            ("download", "upload"),
        )
    listed = [first, *((name, getattr(times, name), None) for name in links)]
    return [(name, clock, scaling) for name, clock, scaling in listed if clock is not None]


def is_deterministic(times: Response | Clock) -> bool:
    """Whether nothing is drawn: constant and recorded times only."""
    return all(
        clock.law.name in ("constant", "recorded") and not clock.phases
        for _, clock, _ in pieces(times)
    )


def check_times(times: Response | Clock) -> None:
    """Refuses response times whose completion cannot be computed, or not in bounded memory."""
    check_plain(times)
    if is_deterministic(times):
        return
    clocks = [clock for _, clock, _ in pieces(times)]
    random = [clock.law.name for clock in clocks if clock.law.name != "constant"]
    random += ["phases" for clock in clocks if clock.phases]
    has_links = any(clock.download is not None or clock.upload is not None for clock in clocks)
    if has_links or len(random) > 2 or not set(random) <= set(KNOWN):
        raise ValueError(
            "times must have at most two random parts, of laws whose survival function is known "
            f"({', '.join(KNOWN)}), or be constant or recorded, got {', '.join(random)}; "
            "sampled(times, key, n_rounds) records rounds of any clock"
        )
    is_alike = all(clock.n_workers == 1 for clock in clocks)
    most, kind = (MOST_WORKERS, "one law") if is_alike else (MOST_OWN_LAWS, "laws of their own")
    if times.n_workers > most:
        raise ValueError(
            f"times must have at most {most} workers of {kind} for an expected completion, got"
            f" {times.n_workers}"
        )


def part_at(clock: Clock, scaling: str | None, load: Array) -> tuple[Array, Part | None]:
    """Writes one clock at a load, float[], as a location float[w] and a random part."""
    rows = {name: jnp.asarray(value) for name, value in clock.parameters.items()}
    law = clock.law.name
    shift_by = 1.0 if scaling is None else load
    time_by = load if scaling == "scale" else 1.0
    shape_by = load if scaling == "additive" else 1.0
    if law == "constant":
        return rows["compute"] * shift_by, None
    if law == "pareto":
        least = rows["mean"] * (rows["tail"] - 1) / rows["tail"] * time_by
        return least, Part(LOMAX, rows["tail"], least)
    if law in ("exponential", "shifted_exponential", "gamma"):
        shape = rows.get("shape", jnp.ones_like(rows["mean"]))
        unit = GAMMA if "shape" in rows or scaling == "additive" else EXPONENTIAL
        part = Part(unit, shape * shape_by, rows["mean"] / shape * time_by)
        return rows.get("shift", jnp.zeros_like(part.scale)) * shift_by, part
    if law == "lognormal":
        scale = rows["mean"] * jnp.exp(-(rows["sigma"] ** 2) / 2) * time_by
        part = Part(LOGNORMAL, rows["sigma"], scale)
    else:
        part = Part(WEIBULL, rows["shape"], rows["scale"] * time_by)
    return jnp.zeros_like(part.scale), part


@cache
def gauss_legendre(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1), float64[order] each."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return (nodes + 1) / 2, weights / 2


def is_double(dtype: np.dtype) -> bool:
    """Whether a type holds more than single precision, so that more nodes pay."""
    return bool(jnp.finfo(dtype).eps < 1e-10)


def panel_levels(dtype: np.dtype, n_workers: int, width: float | None = None) -> np.ndarray:
    """Log odds of the quantiles at which panels end, float64[P], evenly spaced."""
    # above the last n P(T > t) is less than rounding; below the first no worker has finished
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


def log_panels(ends: Array, order: int) -> Pair:
    """Nodes and weights, float[P * order], up to `ends[-1]`; all but the first in log t."""
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
    """Nodes y, `total - y` and weights, float[(P - 1) * order], for panels in log of both."""
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
    """`P(count = j)` for j = 0 .. n, float[..., n + 1], of one worker's chances float[...]."""
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
    """`(P(T_(k) > t), P(T_(k) <= t))` for k = 1 .. n of n identical workers, float[..., n] each."""
    return tails(binomial(below, above, n))


@identical.defjvp
def _identical_jvp(n: int, primals: Pair, tangents: Pair) -> tuple[Pair, Pair]:
    slope = n * binomial(*primals, n - 1) * tangents[1][..., None]
    return identical(*primals, n), (slope, -slope)


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def identical_integrals(weight: Array, below: Array, above: Array, n: int) -> Array:
    """Integrals of `P(T_(k) > t)` over time for k = 1 .. n of n identical workers, float[n]."""
    return integrals(weight, binomial(below, above, n))


@identical_integrals.defjvp
def _identical_integrals_jvp(n: int, primals: tuple[Array, ...], tangents: Any) -> Pair:
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
