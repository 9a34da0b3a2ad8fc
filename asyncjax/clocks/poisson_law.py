"""Poisson clock: whole numbers of time units.

    T = max(least, N),   N ~ Poisson(rate)

A duration is positive, so the zeros become `least`. Poisson(s) is a delay pattern in the public
code of AsGrad (Islamov, Safaryan and Alistarh, 2024).
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
from asyncjax.clocks.rng import job_keys, open_uniform, rounded


def _further(weights: tuple[Array, Array], step: Array, mode: Array, rate: Array) -> Any:
    """Weights of the counts `mode + step` and `mode - step`, that of `mode` being 1."""
    up, down = weights
    ahead, behind = (mode + step).astype(rate.dtype), (mode - step + 1).astype(rate.dtype)
    return rounded(up * rounded(rate / ahead)), rounded(down * rounded(behind / rate))


def _draw_poisson(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    """Inverts the distribution function, outwards from the mode: no gamma function is needed."""
    assert worker_key is not None
    dtype = jnp.result_type(row["rate"], row["least"])
    rate = jax.lax.stop_gradient(row["rate"]).astype(dtype)
    mode = jnp.floor(rate).astype(jnp.int32)
    one, negligible = jnp.ones((), dtype), jnp.finfo(dtype).eps / 1024

    def add(carry: tuple[Array, Any, Array]) -> tuple[Array, Any, Array]:
        step, weights, total = carry
        weights = _further(weights, step, mode, rate)
        return step + 1, weights, total + weights[0] + weights[1]

    def matters(weights: tuple[Array, Array]) -> Array:
        return weights[0] + weights[1] > negligible

    begin = jnp.int32(1), (one, one)
    *_, total = jax.lax.while_loop(lambda carry: matters(carry[1]), add, (*begin, one))

    def take(carry: tuple[Array, Any, Array, Array]) -> tuple[Array, Any, Array, Array]:
        step, weights, rest, _ = carry
        weights = _further(weights, step, mode, rate)
        above = rest - weights[0]
        below = above - weights[1]
        offset = jnp.where(above < 0, step, jnp.where(below < 0, -step, 0))
        return step + 1, weights, below, offset

    def is_left(carry: tuple[Array, Any, Array, Array]) -> Array:
        return (carry[2] >= 0) & matters(carry[1])

    def one_count(key: Array) -> Array:
        rest = rounded(open_uniform(key, (), dtype) * total) - 1
        return mode + jax.lax.while_loop(is_left, take, (*begin, rest, jnp.int32(0)))[3]

    counts = jax.vmap(one_count)(job_keys(worker_key, first, count)).astype(dtype)
    return jnp.maximum(jnp.where(jnp.isnan(rate), rate, counts), row["least"])


def _host_moments(rate: float, least: float) -> tuple[float, float]:
    """Sums over all counts within 40 standard deviations: (mean, variance)."""
    reach = 40 * math.sqrt(rate) + 60
    mode, end = math.floor(rate), math.floor(rate + reach)
    begin = max(0, math.floor(rate - reach))
    above = np.cumprod(rate / np.arange(mode + 1, end + 1))
    below = np.cumprod(np.arange(mode, begin, -1) / rate)[::-1]
    weights = np.concatenate([below, [1.0], above])
    share = weights / weights.sum()
    times = np.maximum(np.arange(begin, end + 1), least)
    mean = (share * times).sum()
    return mean, (share * (times - mean) ** 2).sum()


def _traced_moments(rate: Array, least: Array) -> tuple[Array, Array]:
    """The same, summed outwards from the mode until the weights are negligible."""
    rate, least = jnp.broadcast_arrays(rate, least)
    mode = jnp.floor(rate).astype(jnp.int32)
    one = jnp.ones_like(rate)

    def moments(step: Array) -> Array:
        """Weight, first and second moment about the mode of the clipped count `mode + step`."""
        excess = jnp.maximum(mode + step, least) - mode
        return jnp.stack([one, excess, excess**2])

    def add(carry: tuple[Array, Any, Array]) -> tuple[Array, Any, Array]:
        step, weights, sums = carry
        up, down = _further(weights, step, mode, rate)
        return step + 1, (up, down), sums + up * moments(step) + down * moments(-step)

    def matters(carry: tuple[Array, Any, Array]) -> Array:
        return (carry[1][0] + carry[1][1] > jnp.finfo(rate.dtype).eps / 1024).any()

    start = jnp.int32(1), (one, one), moments(jnp.int32(0))
    *_, (total, once, twice) = jax.lax.while_loop(matters, add, start)
    return mode + once / total, twice / total - (once / total) ** 2


def _moments(parameters: Parameters) -> tuple[Parameter, Parameter]:
    rate, least = parameters["rate"], parameters["least"]
    if namespace(rate, least) is jnp:
        return _traced_moments(jnp.asarray(rate), jnp.asarray(least))
    rows = [_host_moments(*row) for row in zip(rate.tolist(), least.tolist(), strict=True)]
    mean, variance = np.array(rows).T
    return mean, variance


POISSON = Law(
    "poisson",
    _draw_poisson,
    mean=lambda parameters: _moments(parameters)[0],
    variance=lambda parameters: _moments(parameters)[1],
    least=lambda parameters: parameters["least"],
)


def poisson(rate: Any, least: Any = 1.0) -> Clock:
    """Makes a clock with Poisson times, none of them shorter than `least`.

    Formula: `T = max(least, N)`, `N ~ Poisson(rate)`; with `least = 1`, mean `rate + exp(-rate)`.

    Note:
        Mean and variance are those of `T`, not of `N`: sums over the counts `N`, accurate to
        rounding. A draw costs about `sqrt(rate)` operations and is not differentiable in the
        rate.

    Args:
        rate: Mean of the Poisson number, positive; a number or `[n]`, time units.
        least: Shortest time, positive; a number or `[n]`, time units.

    Returns:
        A clock. AsGrad's delay pattern Poisson(s) is `poisson(s)`.

    Raises:
        ValueError: If a rate or `least` is zero, negative, NaN or infinite.

    Example:
        >>> import jax
        >>> from asyncjax import clocks
        >>> clock = clocks.poisson(rate=[0.5, 20.0])
        >>> clock.mean.round(3).tolist()
        [1.107, 20.0]
        >>> bool((clock.durations(jax.random.key(0), 50) >= 1.0).all())
        True

    Reference:
        Islamov, Safaryan, Alistarh (2024), arXiv 2310.20452: delay pattern of its public code.
    """
    rows = align(rate=within("rate", rate, above=0.0), least=within("least", least, above=0.0))
    return Clock(rows, POISSON)
