"""Weibull clock: from very irregular times to nearly constant ones by one shape.

    T = scale * E^(1 / shape),   E ~ Exp(1),   scale = mean / Gamma(1 + 1 / shape)

Shape 1 is exponential; below 1 a job that has lasted long will last longer still. The scale, not
the mean, is what the clock keeps, so that a draw needs no gamma function.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from asyncjax.checks import within
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law, Parameters, Row
from asyncjax.clocks.parameters import Parameter, align
from asyncjax.clocks.rng import rounded, unit_exponential


def _draw_weibull(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    shape, scale = row["shape"], row["scale"]
    dtype = jnp.result_type(shape, scale)
    inverse = 1 / shape.astype(dtype)
    units = unit_exponential(worker_key, first, count, dtype)
    return scale * jnp.exp(rounded(jnp.log(units) * inverse))


def _mean_factor(shape: Parameter) -> Parameter:
    """`Gamma(1 + 1 / shape)`, mean at scale 1."""
    if isinstance(shape, np.ndarray):
        return np.array([math.exp(math.lgamma(1 + 1 / value)) for value in shape.tolist()])
    return jnp.exp(gammaln(1 + 1 / shape))


def _mean_weibull(parameters: Parameters) -> Parameter:
    return parameters["scale"] * _mean_factor(parameters["shape"])


def _relative_variance(shape: float) -> float:
    """`Gamma(1 + 2x) / Gamma(1 + x)^2 - 1` with `x = 1 / shape`, on the host.

    For small `x` from the product of `1 + x^2 / (n (n + 2x))` over `n = 1, 2, ...`, in which
    nothing cancels; what lies beyond `n = 1000` is the Euler-Maclaurin estimate of its sum.
    """
    inverse = 1 / shape
    if inverse > 0.05:
        return math.expm1(math.lgamma(1 + 2 * inverse) - 2 * math.lgamma(1 + inverse))
    factors = np.arange(1.0, 1001.0)
    middle = 1000.5 + inverse
    tail = inverse**2 * (1 / middle - 1 / (12 * middle**3))
    return math.expm1(np.log1p(inverse**2 / (factors * (factors + 2 * inverse))).sum() + tail)


def _variance_weibull(parameters: Parameters) -> Parameter:
    shape, mean = parameters["shape"], _mean_weibull(parameters)
    if isinstance(shape, np.ndarray):
        return mean**2 * np.array([_relative_variance(value) for value in shape.tolist()])
    return mean**2 * jnp.expm1(gammaln(1 + 2 / shape) - 2 * gammaln(1 + 1 / shape))


WEIBULL = Law("weibull", _draw_weibull, _mean_weibull, _variance_weibull)


def weibull(shape: Any, mean: Any) -> Clock:
    """Makes a clock with Weibull times.

    Formula: `P(T > t) = exp(-(t / scale)^shape)`, `scale = mean / Gamma(1 + 1 / shape)`; variance
    `mean^2 (Gamma(1 + 2 / shape) / Gamma(1 + 1 / shape)^2 - 1)`.

    Args:
        shape: Shape of the law, positive; large is regular. A number or `[n]`.
        mean: Mean time of a job, positive; a number or `[n]`, time units.

    Returns:
        A clock.

    Raises:
        ValueError: If a shape or mean is zero, negative, NaN or infinite.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.weibull(shape=1.0, mean=[1.0, 3.0]).variance.round(12).tolist()
        [1.0, 9.0]
    """
    rows = align(shape=within("shape", shape, above=0.0), mean=within("mean", mean, above=0.0))
    scale = rows["mean"] / _mean_factor(rows["shape"])
    return Clock({"shape": rows["shape"], "scale": scale}, WEIBULL)
