"""Laws of times: a response time as a constant and at most two random parts, and their sum.

    T(load) = location + scale_1 U_1 + scale_2 U_2,     U_1, U_2 independent, of laws with scale 1

| clock | location | law of U |
|---|---|---|
| constant | its time | none |
| exponential, shifted_exponential | shift | exponential; a gamma under "additive" |
| gamma | 0 | gamma |
| lognormal, weibull | 0 | the same |
| pareto | smallest time | Lomax, `P(U > x) = (1 + x)^-tail` |

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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import softplus
from jax.scipy.special import gammainc, gammaincc, gammaln, ndtr

from asyncjax.clocks.clock import Clock
from asyncjax.stragglers.times.quadrature import (
    convolution_panels,
    gauss_legendre,
    is_double,
    normal_scores,
    split_panels,
)
from asyncjax.stragglers.times.response_times import Response, check_plain

MOST_WORKERS = 10_000  # of one law, for a quadrature: it holds a number a worker at every node
MOST_OWN_LAWS = 2_000  # of laws of their own, where every worker adds panels too
KNOWN = (
    "constant",
    "exponential",
    "shifted_exponential",
    "gamma",
    "lognormal",
    "weibull",
    "pareto",
)
Function = Callable[[Array, Array], Array]  # (x, shape), broadcast
Both = Callable[[Array], tuple[Array, Array]]  # t -> (P(T <= t), P(T > t))


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

    def both(self, t: Array) -> tuple[Array, Array]:
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


def part_quantiles(part: Part, at: np.ndarray) -> Array:
    """Quantiles, about, of one row of a part at log odds float[P]; float[P], time units."""
    odds, score = (jnp.asarray(x, part.scale.dtype) for x in (at, normal_scores(at)))
    return jax.lax.stop_gradient(part.scale * part.law.quantile(odds, score, part.shape))


def both_of(parts: tuple[Part, ...]) -> Both:
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


def _hypoexponential(t: Array, mean: Array, other: Array) -> tuple[Array, Array]:
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


def _gamma_and_exponential(first: Part, second: Part) -> Both:
    """Sum of a gamma and an exponential time, in closed form if the gamma's scale is less."""
    ratio = first.scale / second.scale
    power = -first.shape * jnp.log1p(-jnp.minimum(ratio, 0.9))
    is_closed = (ratio < 0.9) & (power < 300.0)  # where nothing overflows
    # what the formula is given where it is not used
    shape = jnp.where(is_closed, first.shape, 1.0)
    ratio = jnp.where(is_closed, ratio, 0.5)
    power = jnp.where(is_closed, power, 0.0)

    def closed(t: Array) -> tuple[Array, Array]:
        x = t / first.scale
        later = jnp.exp(power - ratio * x) * gammainc(shape, (1 - ratio) * x)
        above = jnp.clip(gammaincc(shape, x) + later, 0, 1)
        return 1 - above, above

    return lambda t: jax.lax.cond(is_closed, closed, convolution(first, second), t)


def convolution(first: Part, second: Part, limit: Array | None = None) -> Callable[..., Any]:
    """Sum of any two parts of scalar rows, by quadrature; the first is cut off at a limit.

    Without a limit a function of `t`; with one of `(t, t < limit)`: nodes follow the limit, which
    gives its derivative.
    """
    order, at = convolution_panels(first.scale.dtype)
    first_ends, second_ends = part_quantiles(first, at), part_quantiles(second, at)
    laws = second.law.distribution, second.law.survival

    def at_time(t: Array, is_before: Array) -> tuple[Array, Array]:
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

    def both(t: Array, is_before: Array | None = None) -> tuple[Array, Array]:
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
            ("times", Clock(times.parameters, times.law), "scale"),
            ("download", "upload"),
        )
    listed = [first, *((name, getattr(times, name), None) for name in links)]
    return [(name, clock, scaling) for name, clock, scaling in listed if clock is not None]


def is_deterministic(times: Response | Clock) -> bool:
    """Whether nothing is drawn: constant and recorded times only."""
    return all(clock.law.name in ("constant", "recorded") for _, clock, _ in pieces(times))


def check_times(times: Response | Clock) -> None:
    """Refuses response times whose completion cannot be computed, or not in bounded memory."""
    check_plain(times)
    if is_deterministic(times):
        return
    listed = pieces(times)
    advice = "sampled(times, key, n_rounds) records rounds of any clock"
    for name, clock, _ in listed:
        if clock.law.name not in KNOWN or clock.download is not None or clock.upload is not None:
            raise ValueError(
                f"{name} must be a plain clock of a law whose survival function is known "
                f"({', '.join(KNOWN)}), or all parts constant or recorded, got {clock.law.name}; "
                f"{advice}"
            )
    is_alike = all(clock.n_workers == 1 for _, clock, _ in listed)
    most, kind = (MOST_WORKERS, "one law") if is_alike else (MOST_OWN_LAWS, "laws of their own")
    if times.n_workers > most:
        raise ValueError(
            f"times must have at most {most} workers of {kind} for an expected completion, got"
            f" {times.n_workers}"
        )
    n_random = sum(clock.law.name != "constant" for _, clock, _ in listed)
    if n_random > 2:
        raise ValueError(f"times must have at most two random parts, got {n_random}; {advice}")


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
    if law in ("exponential", "shifted_exponential"):
        scale = rows["mean"] * time_by
        unit = GAMMA if scaling == "additive" else EXPONENTIAL
        shift = rows.get("shift", jnp.zeros_like(scale)) * shift_by
        return shift, Part(unit, jnp.ones_like(scale) * shape_by, scale)
    if law == "gamma":
        scale = rows["mean"] / rows["shape"] * time_by
        part = Part(GAMMA, rows["shape"] * shape_by, scale)
    elif law == "lognormal":
        scale = rows["mean"] * jnp.exp(-(rows["sigma"] ** 2) / 2) * time_by
        part = Part(LOGNORMAL, rows["sigma"], scale)
    else:
        part = Part(WEIBULL, rows["shape"], rows["scale"] * time_by)
    return jnp.zeros_like(part.scale), part
