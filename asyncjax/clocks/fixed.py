"""Clocks without chance: constant times, and times recorded from real workers.

    constant   T_ij = compute_i
    recorded   T_ij = durations[i, j mod k]

Constant unequal speeds are the setting of AsGrad's experiments (Islamov, Safaryan and Alistarh,
2024); recorded times replay what real workers did, job by job.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from asyncjax.checks import within
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law, Row
from asyncjax.clocks.parameters import align, as_floats
from asyncjax.clocks.rng import job_indices


def _draw_constant(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    return jnp.broadcast_to(row["compute"], (count,))


def _draw_recorded(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    durations = row["durations"]
    return durations[job_indices(first, count) % durations.shape[0]]


CONSTANT = Law(
    "constant",
    _draw_constant,
    mean=lambda parameters: parameters["compute"],
    variance=lambda parameters: 0.0 * parameters["compute"],
    is_random=False,
    least=lambda parameters: parameters["compute"],
)
RECORDED = Law(
    "recorded",
    _draw_recorded,
    mean=lambda parameters: parameters["durations"].mean(axis=1),
    variance=lambda parameters: parameters["durations"].var(axis=1),
    is_random=False,
    least=lambda parameters: parameters["durations"].min(axis=1),
)


def constant(compute: Any) -> Clock:
    """Makes a clock whose jobs always last the same.

    Formula: `T_ij = compute_i`.

    Args:
        compute: Time of one job, positive; a number or `[n]`, time units.

    Returns:
        A clock that needs no key.

    Raises:
        ValueError: If a time is zero, negative, NaN or infinite.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.constant([1.0, 2.0]).durations(None, 3).tolist()
        [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]

    Reference:
        Islamov, Safaryan, Alistarh (2024), arXiv 2310.20452: speeds 1, ..., n in its public code.
    """
    return Clock(align(compute=within("compute", compute, above=0.0)), CONSTANT)


def recorded(durations: Any) -> Clock:
    """Makes a clock that replays recorded times, from the beginning again when they end.

    Formula: `T_ij = durations[i, j mod k]`.

    Args:
        durations: Times `[n, k]`, positive, time units.

    Returns:
        A clock that needs no key. Its mean and variance are those of the recorded times.

    Raises:
        ValueError: If `durations` is not two-dimensional, is empty, or holds a time that is zero,
            negative, NaN or infinite.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.recorded([[1.0, 2.0], [3.0, 5.0]]).durations(None, 3).tolist()
        [[1.0, 2.0, 1.0], [3.0, 5.0, 3.0]]
    """
    array = as_floats(within("durations", durations, above=0.0))
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            "durations must be a non-empty array [workers, jobs], got an array of shape"
            f" {array.shape}"
        )
    return Clock({"durations": array}, RECORDED)
