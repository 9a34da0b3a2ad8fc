"""Clocks whose jobs are independent, and those without chance.

    constant             compute                                the same for every job
    recorded             durations[i, j mod k]                  what real workers did, job by job
    exponential          mean * E                               E ~ Exp(1)
    shifted_exponential  shift + mean * E
    gamma                mean / shape * G                       G ~ Gamma(shape, 1)
    lognormal            mean * exp(sigma (Z - sigma / 2))      Z ~ Normal(0, 1)
    pareto               mean (tail - 1) / tail * exp(E / tail)
    weibull              scale * E^(1 / shape)                  scale = mean / Gamma(1 + 1 / shape)
    uniform              low + (high - low) U                   U ~ Uniform(0, 1)
    folded_normal        shift + |location + scale Z|
    poisson              max(least, N)                          N ~ Poisson(rate)

Most laws are a fixed random number times and plus their parameters, so durations can be
differentiated in the parameters. `mean` is always the mean (of the exponential part, for
`shifted_exponential`). The exponential and shifted exponential are the response times of Egger, Kas
Hanna and Bitar (2023), arXiv 2304.08589. Unequal constants, `uniform(1, s + 1)`, `folded_normal(s,
s, shift=1)` (the second s is the standard deviation) and `poisson(s)` are the speeds and delay
patterns in the public code of AsGrad (Islamov, Safaryan and Alistarh, 2024), arXiv 2310.20452.

Note:
    Draws of `E` end at `-log(eps / 2)`: 16.6 in single precision, 36.7 in double.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import Array
from jax.scipy.special import gammaln

from asyncjax.checks import within
from asyncjax.clocks import rng
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import (
    Law,
    Parameter,
    Parameters,
    Row,
    align,
    as_floats,
    check_order,
    namespace,
    parameter,
)


def _draw_constant(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    return jnp.broadcast_to(row["compute"], (count,))


def _draw_recorded(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    durations = row["durations"]
    return durations[rng.job_indices(first, count) % durations.shape[0]]


CONSTANT = Law(
    "constant",
    _draw_constant,
    mean=parameter("compute"),
    variance=lambda parameters: 0.0 * parameters["compute"],
    is_random=False,
    least=parameter("compute"),
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
    """Returns a clock whose jobs always last the same, `T_ij = compute_i`; it needs no key.

    Unequal constants are the speeds in the public code of AsGrad (arXiv 2310.20452).

    Args:
        compute: Time of one job, positive; a number or `[n]`, time units.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.constant([1.0, 2.0]).durations(None, 3).tolist()
        [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    return Clock(align(compute=within("compute", compute, above=0.0)), CONSTANT)


def recorded(durations: Any) -> Clock:
    """Returns a clock that replays recorded times, again and again; it needs no key.

    Formula: `T_ij = durations[i, j mod k]`.

    Args:
        durations: Times `[n, k]`, positive, time units.

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


def _draw_exponential(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    return row["mean"] * rng.unit_exponential(worker_key, first, count, row["mean"].dtype)


def _squared_mean(parameters: Parameters) -> Parameter:
    return parameters["mean"] ** 2


def _draw_shifted(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    dtype = jnp.result_type(row["shift"], row["mean"])
    return row["shift"] + rng.rounded(
        row["mean"] * rng.unit_exponential(worker_key, first, count, dtype)
    )


def _draw_gamma(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    dtype = jnp.result_type(row["shape"], row["mean"])
    shape = row["shape"].astype(dtype)
    units = jax.vmap(rng.unit_gamma, in_axes=(0, None))(
        rng.job_keys(worker_key, first, count), shape
    )
    return row["mean"] / shape * units


def _draw_lognormal(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    mean, sigma = row["mean"], row["sigma"]
    normal = rng.unit_normal(worker_key, first, count, jnp.result_type(mean, sigma))
    return mean * jnp.exp(sigma * (rng.rounded(normal) - sigma / 2))


def _variance_lognormal(parameters: Parameters) -> Parameter:
    mean, sigma = parameters["mean"], parameters["sigma"]
    return mean**2 * namespace(mean, sigma).expm1(sigma**2)


def _draw_pareto(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    mean, tail = row["mean"], row["tail"]
    dtype = jnp.result_type(mean, tail)
    inverse = 1 / tail  # a compiler divides an array by a number in more than one way
    units = rng.unit_exponential(worker_key, first, count, dtype)
    return mean * (tail - 1) * inverse * jnp.exp(units * inverse)


def _variance_pareto(parameters: Parameters) -> Parameter:
    mean, tail = parameters["mean"], parameters["tail"]
    numpy = namespace(mean, tail)
    finite = tail > 2
    safe_tail = numpy.where(finite, tail, 3.0)
    return numpy.where(finite, mean**2 / (safe_tail * (safe_tail - 2)), numpy.inf)


EXPONENTIAL = Law("exponential", _draw_exponential, parameter("mean"), _squared_mean)
SHIFTED_EXPONENTIAL = Law(
    "shifted_exponential",
    _draw_shifted,
    mean=lambda parameters: parameters["shift"] + parameters["mean"],
    variance=_squared_mean,
    least=parameter("shift"),
)
GAMMA = Law(
    "gamma",
    _draw_gamma,
    parameter("mean"),
    variance=lambda parameters: parameters["mean"] ** 2 / parameters["shape"],
)
LOGNORMAL = Law("lognormal", _draw_lognormal, parameter("mean"), _variance_lognormal)
PARETO = Law(
    "pareto",
    _draw_pareto,
    parameter("mean"),
    _variance_pareto,
    least=lambda parameters: parameters["mean"] * (1.0 - 1.0 / parameters["tail"]),
)


def exponential(mean: Any) -> Clock:
    """Returns a clock with exponential times (Egger et al. 2023, arXiv 2304.08589).

    Formula: `P(T > t) = exp(-t / mean)`; variance `mean^2`.

    Args:
        mean: Mean time of a job, positive; a number or `[n]`, time units.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.exponential([1.0, 2.0]).variance.tolist()
        [1.0, 4.0]
    """
    return Clock(align(mean=within("mean", mean, above=0.0)), EXPONENTIAL)


def shifted_exponential(shift: Any, mean: Any) -> Clock:
    """Returns a clock with a smallest time and an exponential excess (Egger et al. 2023).

    Formula: `T = shift + mean * E`; total mean `shift + mean`, variance `mean^2`.

    Args:
        shift: Smallest time of a job, at least 0; a number or `[n]`, time units.
        mean: Mean of the excess, positive; a number or `[n]`, time units.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.shifted_exponential(shift=1.0, mean=[0.5, 2.0]).mean.tolist()
        [1.5, 3.0]
    """
    rows = align(shift=within("shift", shift, least=0.0), mean=within("mean", mean, above=0.0))
    return Clock(rows, SHIFTED_EXPONENTIAL)


def gamma(shape: Any, mean: Any) -> Clock:
    """Returns a clock with gamma times.

    Formula: scale `mean / shape`; variance `mean^2 / shape`; shape 1 is exponential. Gradients in
    `shape` are implicit ones (of the quantile function).

    Args:
        shape: Shape of the law, positive; large is regular. A number or `[n]`.
        mean: Mean time of a job, positive; a number or `[n]`, time units.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.gamma(shape=4.0, mean=[1.0, 2.0]).variance.tolist()
        [0.25, 1.0]
    """
    rows = align(shape=within("shape", shape, above=0.0), mean=within("mean", mean, above=0.0))
    return Clock(rows, GAMMA)


def lognormal(mean: Any, sigma: Any) -> Clock:
    """Returns a clock with lognormal times.

    Formula: `log T ~ Normal(log(mean) - sigma^2 / 2, sigma^2)`.

    Args:
        mean: Mean time of a job, positive; a number or `[n]`, time units.
        sigma: Standard deviation of the logarithm, at least 0; a number or `[n]`.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.lognormal(mean=[1.0, 2.0], sigma=0.5).mean.tolist()
        [1.0, 2.0]
    """
    rows = align(mean=within("mean", mean, above=0.0), sigma=within("sigma", sigma, least=0.0))
    return Clock(rows, LOGNORMAL)


def pareto(mean: Any, tail: Any) -> Clock:
    """Returns a clock with Pareto times: rare, very long ones.

    Formula: `P(T > t) = (x / t)^tail` for `t > x = mean (tail - 1) / tail`; variance
    `mean^2 / (tail (tail - 2))` for `tail > 2`, else infinite.

    Note:
        Single precision ends at the quantile `1 - 2^-24`. What lies beyond has the share
        `2^(-24 (1 - 1/tail))` of the mean: 0.4 % for tail 1.5, but 22 % for tail 1.1.

    Args:
        mean: Mean time of a job, positive; a number or `[n]`, time units.
        tail: Exponent of the tail, larger than 1; a number or `[n]`.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.pareto(mean=3.0, tail=[1.5, 3.0]).variance.tolist()
        [inf, 3.0]
    """
    rows = align(mean=within("mean", mean, above=0.0), tail=within("tail", tail, above=1.0))
    return Clock(rows, PARETO)


def _draw_weibull(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    dtype = jnp.result_type(row["shape"], row["scale"])
    inverse = 1 / row["shape"].astype(dtype)
    units = rng.unit_exponential(worker_key, first, count, dtype)
    return row["scale"] * jnp.exp(rng.rounded(jnp.log(units) * inverse))


def _mean_factor(shape: Parameter) -> Parameter:
    """`Gamma(1 + 1 / shape)`, mean at scale 1."""
    if isinstance(shape, np.ndarray):
        return np.array([math.exp(math.lgamma(1 + 1 / value)) for value in shape.tolist()])
    return jnp.exp(gammaln(1 + 1 / shape))


def _mean_weibull(parameters: Parameters) -> Parameter:
    return parameters["scale"] * _mean_factor(parameters["shape"])


def _relative_variance(shape: float) -> float:
    """`Gamma(1 + 2x) / Gamma(1 + x)^2 - 1` with `x = 1 / shape`, on the host."""
    inverse = 1 / shape  # small: the product of 1 + x^2 / (n (n + 2x)), in which nothing cancels
    if inverse > 0.05:
        return math.expm1(math.lgamma(1 + 2 * inverse) - 2 * math.lgamma(1 + inverse))
    factors = np.arange(1.0, 1001.0)
    middle = 1000.5 + inverse  # beyond n = 1000 the Euler-Maclaurin estimate
    tail = inverse**2 * (1 / middle - 1 / (12 * middle**3))
    return math.expm1(np.log1p(inverse**2 / (factors * (factors + 2 * inverse))).sum() + tail)


def _variance_weibull(parameters: Parameters) -> Parameter:
    shape, mean = parameters["shape"], _mean_weibull(parameters)
    if isinstance(shape, np.ndarray):
        return mean**2 * np.array([_relative_variance(value) for value in shape.tolist()])
    return mean**2 * jnp.expm1(gammaln(1 + 2 / shape) - 2 * gammaln(1 + 1 / shape))


WEIBULL = Law("weibull", _draw_weibull, _mean_weibull, _variance_weibull)


def weibull(shape: Any, mean: Any) -> Clock:
    """Returns a clock with Weibull times.

    Formula: `P(T > t) = exp(-(t / scale)^shape)`, `scale = mean / Gamma(1 + 1 / shape)`; variance
    `mean^2 (Gamma(1 + 2 / shape) / Gamma(1 + 1 / shape)^2 - 1)`.

    Args:
        shape: Shape of the law, positive; large is regular. A number or `[n]`.
        mean: Mean time of a job, positive; a number or `[n]`, time units.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.weibull(shape=1.0, mean=[1.0, 3.0]).variance.round(12).tolist()
        [1.0, 9.0]
    """
    rows = align(shape=within("shape", shape, above=0.0), mean=within("mean", mean, above=0.0))
    # The scale, not the mean, is what the clock keeps: a draw needs no gamma function.
    scale = rows["mean"] / _mean_factor(rows["shape"])
    return Clock({"shape": rows["shape"], "scale": scale}, WEIBULL)


def _draw_uniform(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    units = rng.unit_uniform(worker_key, first, count, jnp.result_type(row["low"], row["high"]))
    return row["low"] + rng.rounded((row["high"] - row["low"]) * units)


UNIFORM = Law(
    "uniform",
    _draw_uniform,
    mean=lambda parameters: (parameters["low"] + parameters["high"]) / 2,
    variance=lambda parameters: (parameters["high"] - parameters["low"]) ** 2 / 12,
    least=parameter("low"),
)


def uniform(low: Any, high: Any) -> Clock:
    """Returns a clock with uniform times, as AsGrad's delay pattern (arXiv 2310.20452).

    Formula: `T ~ Uniform(low, high)`; mean `(low + high) / 2`, variance `(high - low)^2 / 12`.

    Args:
        low, high: Shortest time, at least 0, and longest; numbers or `[n]`, time units.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.uniform(low=1.0, high=[2.0, 7.0]).variance.tolist()
        [0.08333333333333333, 3.0]
    """
    rows = align(low=within("low", low, least=0.0), high=within("high", high, above=0.0))
    check_order(low=rows["low"], high=rows["high"])
    return Clock(rows, UNIFORM)


def _draw_folded(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    dtype = jnp.result_type(row["location"], row["scale"], row["shift"])
    normal = rng.unit_normal(worker_key, first, count, dtype)
    return row["shift"] + jnp.abs(row["location"] + rng.rounded(row["scale"] * rng.rounded(normal)))


def _folding(parameters: Parameters) -> Parameter:
    """What folding adds to the mean, `E |N| - |location|`, without cancellation."""
    location, scale = parameters["location"], parameters["scale"]
    numpy = namespace(location, scale)
    ratio = abs(location) / scale
    special = jax.scipy.special if numpy is jnp else scipy.special
    tail = special.erfc(ratio / math.sqrt(2))
    density = math.sqrt(2 / math.pi) * numpy.exp(-(ratio**2) / 2)
    return scale * (density - ratio * tail)


def _mean_folded(parameters: Parameters) -> Parameter:
    return parameters["shift"] + (abs(parameters["location"]) + _folding(parameters))


def _variance_folded(parameters: Parameters) -> Parameter:
    added = _folding(parameters)  # E N^2 - (E |N|)^2 with E |N| = |location| + added
    return parameters["scale"] ** 2 - added * (2 * abs(parameters["location"]) + added)


FOLDED_NORMAL = Law(
    "folded_normal", _draw_folded, _mean_folded, _variance_folded, least=parameter("shift")
)


def folded_normal(location: Any, scale: Any, shift: Any = 0.0) -> Clock:
    """Returns a clock with folded normal times, as AsGrad's delay pattern (arXiv 2310.20452).

    Formula: `T = shift + |N|`, `N ~ Normal(location, scale^2)`.

    Args:
        location: Mean of the normal number; a number or `[n]`, time units.
        scale: Standard deviation of the normal number, positive; a number or `[n]`, time units.
        shift: Shortest time, at least 0; a number or `[n]`, time units.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.folded_normal(location=0.0, scale=1.0, shift=[0.0, 1.0]).mean.round(3).tolist()
        [0.798, 1.798]
    """
    rows = align(
        location=within("location", location),
        scale=within("scale", scale, above=0.0),
        shift=within("shift", shift, least=0.0),
    )
    return Clock(rows, FOLDED_NORMAL)


def _further(weights: tuple[Array, Array], step: Array, mode: Array, rate: Array) -> Any:
    """Weights of the counts `mode + step` and `mode - step`, that of `mode` being 1."""
    up, down = weights
    ahead, behind = (mode + step).astype(rate.dtype), (mode - step + 1).astype(rate.dtype)
    return rng.rounded(up * rng.rounded(rate / ahead)), rng.rounded(
        down * rng.rounded(behind / rate)
    )


def _draw_poisson(row: Row, worker_key: Array | None, first: Array, count: int) -> Array:
    """Inverts the distribution function, outwards from the mode: no gamma function is needed."""
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
        rest = rng.rounded(rng.open_uniform(key, (), dtype) * total) - 1
        return mode + jax.lax.while_loop(is_left, take, (*begin, rest, jnp.int32(0)))[3]

    counts = jax.vmap(one_count)(rng.job_keys(worker_key, first, count)).astype(dtype)
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
    least=parameter("least"),
)


def poisson(rate: Any, least: Any = 1.0) -> Clock:
    """Returns a clock with Poisson times, none of them shorter than `least`.

    AsGrad's delay pattern (arXiv 2310.20452) Poisson(s) is `poisson(s)`.

    Formula: `T = max(least, N)`, `N ~ Poisson(rate)`; with `least = 1`, mean `rate + exp(-rate)`.
    Mean and variance are those of `T`. A draw costs about `sqrt(rate)` operations and is not
    differentiable in the rate.

    Args:
        rate: Mean of the Poisson number, positive; a number or `[n]`, time units.
        least: Shortest time, positive; a number or `[n]`, time units.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.poisson(rate=[0.5, 20.0]).mean.round(3).tolist()
        [1.107, 20.0]
    """
    rows = align(rate=within("rate", rate, above=0.0), least=within("least", least, above=0.0))
    return Clock(rows, POISSON)
