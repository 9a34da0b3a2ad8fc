"""Laws of times: distributions with scale 1, and the distribution of one part or the sum of two.

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

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import softplus
from jax.scipy.special import gammainc, gammaincc, gammaln, ndtr

from asyncjax.stragglers.times.quadrature import (
    convolution_panels,
    gauss_legendre,
    is_double,
    normal_scores,
    split_panels,
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
    """Makes `t -> (P(T <= t), P(T > t))` of one or two parts of scalar rows, location left out.

    Example:
        >>> import jax.numpy as jnp
        >>> part = Part(EXPONENTIAL, jnp.ones(()), jnp.ones(()))
        >>> [round(float(value), 4) for value in both_of((part, part))(jnp.asarray(1.0))]
        [0.2642, 0.7358]
    """
    if len(parts) == 1:
        return lambda t: _one(parts[0], t)
    if all(part.law.name == "exponential" for part in parts):
        return lambda t: hypoexponential(t, parts[0].scale, parts[1].scale)
    first, second = parts
    is_closed = first.law.name == "gamma" and second.law.name == "exponential"
    if is_closed and is_double(first.scale.dtype):
        return _gamma_and_exponential(first, second)
    return _convolution(first, second)


def _one(part: Part, t: Array) -> tuple[Array, Array]:
    x = t / part.scale
    return part.law.distribution(x, part.shape), part.law.survival(x, part.shape)


def _mean_decay(x: Array) -> Array:
    """`(1 - e^{-x}) / x`, by its series where x is small."""
    is_small = x < 1e-2
    safe = jnp.where(is_small, 1.0, x)
    series = 1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6))))
    return jnp.where(is_small, series, -jnp.expm1(-safe) / safe)


def hypoexponential(t: Array, mean: Array, other: Array) -> tuple[Array, Array]:
    """`(P(T <= t), P(T > t))` of a sum of two exponentials with means float[], float[...] each.

    Example:
        >>> import jax.numpy as jnp
        >>> below, above = hypoexponential(jnp.asarray(1.0), jnp.asarray(1.0), jnp.asarray(0.5))
        >>> round(float(above), 6), round(float(2 * jnp.exp(-1.0) - jnp.exp(-2.0)), 6)
        (0.600424, 0.600424)
    """
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

    return lambda t: jax.lax.cond(is_closed, closed, _convolution(first, second), t)


def _convolution(first: Part, second: Part) -> Both:
    """Sum of any two parts of scalar rows, by quadrature."""
    order, at = convolution_panels(first.scale.dtype)
    first_ends, second_ends = part_quantiles(first, at), part_quantiles(second, at)

    def at_time(t: Array) -> tuple[Array, Array]:
        zero = jnp.zeros((1,), t.dtype)
        ends = jnp.concatenate([zero, first_ends, t - second_ends, t[None] / 2, t[None]])
        y, rest, weight = split_panels(jnp.sort(jnp.clip(ends, 0, t)), t, order)
        tiny = jnp.finfo(t.dtype).tiny
        x = jnp.maximum(y / first.scale, tiny)
        rest = jnp.maximum(rest / second.scale, tiny)
        mass = weight / first.scale * jnp.exp(first.law.log_density(x, first.shape))
        late = first.law.survival(t / first.scale, first.shape)
        return (
            (mass * second.law.distribution(rest, second.shape)).sum(),
            late + (mass * second.law.survival(rest, second.shape)).sum(),
        )

    def both(t: Array) -> tuple[Array, Array]:
        below, above = jax.vmap(at_time)(t.ravel())
        return jnp.clip(below, 0, 1).reshape(t.shape), jnp.clip(above, 0, 1).reshape(t.shape)

    return both
