"""Composite Gauss-Legendre quadrature whose panels begin and end at quantiles.

    integral_0^b f(t) dt  ~  sum over panels and nodes of weight * f(t)

With panels between quantiles whose log odds are evenly spaced, an order statistic of `n` draws is a
smooth step over several nodes wherever it lies, whatever the law. Panels are laid out in `log t`,
since both tails of most laws are smooth there; the first one, from 0, in `t`. Nodes and weights
carry no derivatives: an integral over a fixed range is differentiated under the integral sign.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# Least nodes of a panel and its width in log odds, in single and in double precision.
_PANELS = {False: (16, 2.0), True: (20, 1.5)}
_CONVOLUTION = {False: (8, 3.0), True: (10, 2.5)}


@cache
def gauss_legendre(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1), float64[order] each.

    Example:
        >>> nodes, weights = gauss_legendre(3)
        >>> round(float(weights @ nodes**5), 12)
        0.166666666667
    """
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return (nodes + 1) / 2, weights / 2


def is_double(dtype: np.dtype) -> bool:
    """Whether a type holds more than single precision, so that more nodes pay."""
    return bool(jnp.finfo(dtype).eps < 1e-10)


def panel_levels(dtype: np.dtype, n_workers: int, width: float | None = None) -> np.ndarray:
    """Log odds `log(p / (1 - p))` of the quantiles at which panels end, float64[P], evenly spaced.

    Above the last one `n P(T > t)` is less than the rounding of `dtype`; below the first one the
    probability that any of `n` workers has finished is a millionth.

    Example:
        >>> len(panel_levels(np.dtype("float32"), 10))
        20
    """
    width = _PANELS[is_double(dtype)][1] if width is None else width
    spread = math.log(n_workers)
    below, above = 14.0 + spread, 3.0 - math.log(jnp.finfo(dtype).eps) + spread
    return np.linspace(-below, above, math.ceil((below + above) / width) + 1)


def nodes_a_panel(dtype: np.dtype, n_workers: int) -> int:
    """Nodes a panel: enough to follow the step of an order statistic of many workers.

    Example:
        >>> [nodes_a_panel(np.dtype("float32"), n) for n in (10, 256)]
        [16, 32]
    """
    return max(_PANELS[is_double(dtype)][0], math.ceil(2 * math.sqrt(n_workers)))


def convolution_panels(dtype: np.dtype) -> tuple[int, np.ndarray]:
    """Nodes a panel of the convolution of two laws, and the log odds of its ends, float64[P]."""
    order, width = _CONVOLUTION[is_double(dtype)]
    return order, panel_levels(dtype, 1, width)


def normal_scores(at: np.ndarray) -> np.ndarray:
    """Standard normal quantiles at log odds, float64[P], accurate in both tails.

    Example:
        >>> normal_scores(np.array([-2.0, 0.0, 2.0])).round(4).tolist()
        [-1.179, 0.0, 1.179]
    """
    normal = NormalDist()
    return np.array([math.copysign(normal.inv_cdf(1 / (1 + math.exp(abs(x)))), x) for x in at])


def log_panels(ends: Array, order: int) -> tuple[Array, Array]:
    """Nodes and weights on `[0, ends[-1]]`, float[P * order] each, for ends of panels float[P].

    The first panel, up to `ends[0]`, is laid out in `t`, all others in `log t`.

    Example:
        >>> import jax.numpy as jnp
        >>> t, weight = log_panels(jnp.asarray([0.1, 1.0, 8.0]), 12)
        >>> round(float(weight @ t), 3)
        32.0
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

    Example:
        >>> import jax.numpy as jnp
        >>> y, rest, weight = split_panels(jnp.asarray([0.0, 0.1, 1.0, 3.0]), jnp.asarray(3.0), 12)
        >>> round(float(weight @ (y * rest)), 3)
        4.5
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
