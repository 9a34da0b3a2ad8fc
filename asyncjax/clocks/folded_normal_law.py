"""Folded normal clock: a normal number without its sign, and a shift.

    T = shift + |location + scale Z|,   Z ~ Normal(0, 1)

`location = scale = s, shift = 1` is the pattern |N(s, s)| + 1 in the public code of AsGrad
(Islamov, Safaryan and Alistarh, 2024), where the second number is the standard deviation; `location
= 0, shift = scale = s` is s + |N(0, s)|: a speed s, and noise that only delays.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.checks import within
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law, Parameters, Row
from asyncjax.clocks.parameters import Parameter, align, namespace
from asyncjax.clocks.rng import rounded, unit_normal


def _draw_folded(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    dtype = jnp.result_type(row["location"], row["scale"], row["shift"])
    normal = unit_normal(worker_key, first, count, dtype)
    return row["shift"] + jnp.abs(row["location"] + rounded(row["scale"] * rounded(normal)))


def _folding(parameters: Parameters) -> Parameter:
    """What folding adds to the mean, `E |N| - |location|`, without cancellation."""
    location, scale = parameters["location"], parameters["scale"]
    numpy = namespace(location, scale)
    ratio = abs(location) / scale
    if numpy is jnp:
        tail = jax.scipy.special.erfc(ratio / math.sqrt(2))
    else:
        tail = np.vectorize(math.erfc, otypes=[np.float64])(ratio / math.sqrt(2))
    density = math.sqrt(2 / math.pi) * numpy.exp(-(ratio**2) / 2)
    return scale * (density - ratio * tail)


def _mean_folded(parameters: Parameters) -> Parameter:
    return parameters["shift"] + (abs(parameters["location"]) + _folding(parameters))


def _variance_folded(parameters: Parameters) -> Parameter:
    added = _folding(parameters)  # E N^2 - (E |N|)^2 with E |N| = |location| + added
    return parameters["scale"] ** 2 - added * (2 * abs(parameters["location"]) + added)


FOLDED_NORMAL = Law(
    "folded_normal",
    _draw_folded,
    _mean_folded,
    _variance_folded,
    least=lambda parameters: parameters["shift"],
)


def folded_normal(location: Any, scale: Any, shift: Any = 0.0) -> Clock:
    """Makes a clock with folded normal times.

    Formula: `T = shift + |N|`, `N ~ Normal(location, scale^2)`. With the ratio `a = location /
    scale`, mean `shift + scale sqrt(2 / pi) exp(-a^2 / 2) + location erf(a / sqrt 2)` and variance
    `location^2 + scale^2 - (mean - shift)^2`.

    Args:
        location: Mean of the normal number before its sign is taken away; a number or `[n]`, time
            units.
        scale: Standard deviation of the normal number, positive; a number or `[n]`, time units.
        shift: Shortest time, at least 0; a number or `[n]`, time units.

    Returns:
        A clock. AsGrad's delay pattern |N(s, s)| + 1 is `folded_normal(s, s, shift=1.0)`, and
        s + |N(0, s)| is `folded_normal(0.0, s, shift=s)`.

    Raises:
        ValueError: If a scale is not positive, a shift is negative, or one is NaN or infinite.

    Example:
        >>> import numpy as np
        >>> from asyncjax import clocks
        >>> clock = clocks.folded_normal(location=0.0, scale=np.sqrt(np.pi / 2), shift=[0.0, 1.0])
        >>> clock.mean.round(12).tolist()
        [1.0, 2.0]

    Reference:
        Islamov, Safaryan, Alistarh (2024), arXiv 2310.20452: delay pattern of its public code.
    """
    return Clock(
        align(
            location=within("location", location),
            scale=within("scale", scale, above=0.0),
            shift=within("shift", shift, least=0.0),
        ),
        FOLDED_NORMAL,
    )
