"""Clocks whose jobs are independent: exponential, gamma, lognormal and Pareto times.

    exponential          mean * E                               E ~ Exp(1)
    shifted_exponential  shift + mean * E
    gamma                mean / shape * G                       G ~ Gamma(shape, 1)
    lognormal            mean * exp(sigma (Z - sigma / 2))      Z ~ Normal(0, 1)
    pareto               mean (tail - 1) / tail * exp(E / tail)

Every law is a fixed random number times and plus its parameters, so durations can be differentiated
in the parameters. `mean` is always the mean (of the exponential part, for `shifted_exponential`).
The exponential and shifted exponential are the response times of Egger, Kas Hanna and Bitar (2023).

Note:
    Draws of `E` end at `-log(eps / 2)`: 16.6 in single precision, 36.7 in double.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from asyncjax.checks import within
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law, Parameters, Row
from asyncjax.clocks.parameters import Parameter, align, namespace
from asyncjax.clocks.rng import job_keys, rounded, unit_exponential, unit_normal
from asyncjax.clocks.unit_gamma import unit_gamma


def _draw_exponential(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    mean = row["mean"]
    return mean * unit_exponential(worker_key, first, count, mean.dtype)


def _mean(parameters: Parameters) -> Parameter:
    return parameters["mean"]


def _squared_mean(parameters: Parameters) -> Parameter:
    return parameters["mean"] ** 2


def _draw_shifted(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    dtype = jnp.result_type(row["shift"], row["mean"])
    return row["shift"] + rounded(row["mean"] * unit_exponential(worker_key, first, count, dtype))


def _draw_gamma(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    assert worker_key is not None
    dtype = jnp.result_type(row["shape"], row["mean"])
    shape = row["shape"].astype(dtype)
    units = jax.vmap(unit_gamma, in_axes=(0, None))(job_keys(worker_key, first, count), shape)
    return row["mean"] / shape * units


def _draw_lognormal(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    mean, sigma = row["mean"], row["sigma"]
    normal = unit_normal(worker_key, first, count, jnp.result_type(mean, sigma))
    return mean * jnp.exp(sigma * (rounded(normal) - sigma / 2))


def _variance_lognormal(parameters: Parameters) -> Parameter:
    mean, sigma = parameters["mean"], parameters["sigma"]
    return mean**2 * namespace(mean, sigma).expm1(sigma**2)


def _draw_pareto(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    mean, tail = row["mean"], row["tail"]
    dtype = jnp.result_type(mean, tail)
    inverse = 1 / tail  # a compiler divides an array by a number in more than one way
    units = unit_exponential(worker_key, first, count, dtype)
    return mean * (tail - 1) * inverse * jnp.exp(units * inverse)


def _variance_pareto(parameters: Parameters) -> Parameter:
    mean, tail = parameters["mean"], parameters["tail"]
    numpy = namespace(mean, tail)
    finite = tail > 2
    safe_tail = numpy.where(finite, tail, 3.0)
    return numpy.where(finite, mean**2 / (safe_tail * (safe_tail - 2)), numpy.inf)


EXPONENTIAL = Law("exponential", _draw_exponential, _mean, _squared_mean)
SHIFTED_EXPONENTIAL = Law(
    "shifted_exponential",
    _draw_shifted,
    mean=lambda parameters: parameters["shift"] + parameters["mean"],
    variance=_squared_mean,
    least=lambda parameters: parameters["shift"],
)
GAMMA = Law(
    "gamma",
    _draw_gamma,
    _mean,
    variance=lambda parameters: parameters["mean"] ** 2 / parameters["shape"],
)
LOGNORMAL = Law("lognormal", _draw_lognormal, _mean, _variance_lognormal)
PARETO = Law(
    "pareto",
    _draw_pareto,
    _mean,
    _variance_pareto,
    least=lambda parameters: parameters["mean"] * (1.0 - 1.0 / parameters["tail"]),
)


def exponential(mean: Any) -> Clock:
    """Makes a clock with exponential times.

    Formula: `P(T > t) = exp(-t / mean)`; variance `mean^2`.

    Args:
        mean: Mean time of a job, positive; a number or `[n]`, time units.

    Returns:
        A clock.

    Raises:
        ValueError: If a mean is zero, negative, NaN or infinite.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.exponential([1.0, 2.0]).variance.tolist()
        [1.0, 4.0]

    Reference:
        Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589: model of the response times.
    """
    return Clock(align(mean=within("mean", mean, above=0.0)), EXPONENTIAL)


def shifted_exponential(shift: Any, mean: Any) -> Clock:
    """Makes a clock with a smallest time and an exponential excess.

    Formula: `T = shift + mean * E`; total mean `shift + mean`, variance `mean^2`.

    Args:
        shift: Smallest time of a job, at least 0; a number or `[n]`, time units.
        mean: Mean of the excess, positive; a number or `[n]`, time units.

    Returns:
        A clock.

    Raises:
        ValueError: If a shift is negative, a mean is not positive, or one is NaN or infinite.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.shifted_exponential(shift=1.0, mean=[0.5, 2.0]).mean.tolist()
        [1.5, 3.0]

    Reference:
        Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589: model of the response times.
    """
    rows = align(shift=within("shift", shift, least=0.0), mean=within("mean", mean, above=0.0))
    return Clock(rows, SHIFTED_EXPONENTIAL)


def gamma(shape: Any, mean: Any) -> Clock:
    """Makes a clock with gamma times.

    Formula: scale `mean / shape`; variance `mean^2 / shape`; shape 1 is exponential.

    Args:
        shape: Shape of the law, positive; large is regular. A number or `[n]`.
        mean: Mean time of a job, positive; a number or `[n]`, time units.

    Returns:
        A clock. Gradients in `shape` are implicit ones (of the quantile function).

    Raises:
        ValueError: If a shape or mean is zero, negative, NaN or infinite.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.gamma(shape=4.0, mean=[1.0, 2.0]).variance.tolist()
        [0.25, 1.0]
    """
    rows = align(shape=within("shape", shape, above=0.0), mean=within("mean", mean, above=0.0))
    return Clock(rows, GAMMA)


def lognormal(mean: Any, sigma: Any) -> Clock:
    """Makes a clock with lognormal times.

    Formula: `log T ~ Normal(log(mean) - sigma^2 / 2, sigma^2)`; variance
    `mean^2 (exp(sigma^2) - 1)`.

    Args:
        mean: Mean time of a job, positive; a number or `[n]`, time units.
        sigma: Standard deviation of the logarithm, at least 0; a number or `[n]`.

    Returns:
        A clock.

    Raises:
        ValueError: If a mean is not positive, a sigma is negative, or one is NaN or infinite.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.lognormal(mean=[1.0, 2.0], sigma=0.5).mean.tolist()
        [1.0, 2.0]
    """
    rows = align(mean=within("mean", mean, above=0.0), sigma=within("sigma", sigma, least=0.0))
    return Clock(rows, LOGNORMAL)


def pareto(mean: Any, tail: Any) -> Clock:
    """Makes a clock with Pareto times: rare, very long ones.

    Formula: `P(T > t) = (x / t)^tail` for `t > x = mean (tail - 1) / tail`; variance
    `mean^2 / (tail (tail - 2))` for `tail > 2`, else infinite.

    Note:
        Single precision ends at the quantile `1 - 2^-24`. What lies beyond has the share
        `2^(-24 (1 - 1/tail))` of the mean: 0.4 % for tail 1.5, but 22 % for tail 1.1.

    Args:
        mean: Mean time of a job, positive; a number or `[n]`, time units.
        tail: Exponent of the tail, larger than 1; a number or `[n]`.

    Returns:
        A clock.

    Raises:
        ValueError: If a mean is not positive, a tail is at most 1, or one is NaN or infinite.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.pareto(mean=3.0, tail=[1.5, 3.0]).variance.tolist()
        [inf, 3.0]
    """
    rows = align(mean=within("mean", mean, above=0.0), tail=within("tail", tail, above=1.0))
    return Clock(rows, PARETO)
