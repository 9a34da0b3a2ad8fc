"""Uniform clock: every time between two bounds is as likely as any other.

    T = low + (high - low) U,   U ~ Uniform(0, 1)

`low = 1, high = s + 1` is the pattern U(0, s) + 1 in the public code of AsGrad (Islamov, Safaryan
and Alistarh, 2024).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from asyncjax.checks import within
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law, Row
from asyncjax.clocks.parameters import align, check_order
from asyncjax.clocks.rng import rounded, unit_uniform


def _draw_uniform(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    units = unit_uniform(worker_key, first, count, jnp.result_type(row["low"], row["high"]))
    return row["low"] + rounded((row["high"] - row["low"]) * units)


UNIFORM = Law(
    "uniform",
    _draw_uniform,
    mean=lambda parameters: (parameters["low"] + parameters["high"]) / 2,
    variance=lambda parameters: (parameters["high"] - parameters["low"]) ** 2 / 12,
    least=lambda parameters: parameters["low"],
)


def uniform(low: Any, high: Any) -> Clock:
    """Makes a clock with uniform times.

    Formula: `T ~ Uniform(low, high)`; mean `(low + high) / 2`, variance `(high - low)^2 / 12`.

    Args:
        low: Shortest time, at least 0; a number or `[n]`, time units.
        high: Longest time, larger than `low`; a number or `[n]`, time units.

    Returns:
        A clock. AsGrad's delay pattern U(0, s) + 1 is `uniform(1.0, s + 1.0)`.

    Raises:
        ValueError: If `low` is negative, `high` is not larger than `low`, or one is NaN or
            infinite.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.uniform(low=1.0, high=[2.0, 7.0]).variance.tolist()
        [0.08333333333333333, 3.0]

    Reference:
        Islamov, Safaryan, Alistarh (2024), arXiv 2310.20452: delay pattern of its public code.
    """
    rows = align(low=within("low", low, least=0.0), high=within("high", high, above=0.0))
    check_order(low=rows["low"], high=rows["high"])
    return Clock(rows, UNIFORM)
