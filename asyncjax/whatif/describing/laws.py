"""Laws of durations, fitted to a row of them by maximum likelihood.

    constant             d = mean
    exponential          mean
    shifted_exponential  shift = (J min - mean) / (J - 1),  mean of the rest
    gamma                log(shape) - digamma(shape) = log(mean d) - mean(log d)
    lognormal            mean and deviation of log d
    weibull              sum d^k log d / sum d^k - 1/k = mean(log d),  k the shape
    two_speeds           two groups of log d as far apart as can be; how often they change

Every fit goes along the last axis of an array, so that many samples are fitted at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from asyncjax import clocks
from asyncjax.clocks import Clock

Parameters = dict[str, np.ndarray]  # by name, [...]

_NEWTON = 20  # steps, at most
_SMALL = 1e-12


class Family(NamedTuple):
    """A law with parameters.

    `fit` takes durations float64[..., J]; `cdf` and `log_density` durations [..., J] and parameters
    [..., 1]; `draw` a generator, a shape and parameters that broadcast to it.
    """

    name: str
    fit: Callable[[np.ndarray], Parameters]
    cdf: Callable[[np.ndarray, Parameters], np.ndarray]
    log_density: Callable[[np.ndarray, Parameters], np.ndarray]
    draw: Callable[[np.random.Generator, tuple[int, ...], Parameters], np.ndarray]
    clock: Callable[[Parameters], Clock]
    n_parameters: int


def _fit_exponential(x: np.ndarray) -> Parameters:
    return {"mean": x.mean(axis=-1)}


def _fit_shifted(x: np.ndarray) -> Parameters:
    jobs, mean, least = x.shape[-1], x.mean(axis=-1), x.min(axis=-1)
    shift = np.maximum((jobs * least - mean) / max(jobs - 1, 1), 0.0)
    return {"shift": shift, "mean": np.maximum(mean - shift, _SMALL * mean)}


def _fit_gamma(x: np.ndarray) -> Parameters:
    mean = x.mean(axis=-1)
    s = np.maximum(np.log(mean) - np.log(x).mean(axis=-1), _SMALL)
    shape = (3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    for _ in range(_NEWTON):
        value = np.log(shape) - special.digamma(shape) - s
        slope = 1 / shape - special.polygamma(1, shape)
        shape = np.maximum(shape - value / np.where(slope == 0, -1.0, slope), shape / 4)
    return {"shape": shape, "mean": mean}


def _fit_lognormal(x: np.ndarray) -> Parameters:
    logs = np.log(x)
    sigma = np.maximum(logs.std(axis=-1), _SMALL)
    return {"mean": np.exp(logs.mean(axis=-1) + sigma**2 / 2), "sigma": sigma}


def _fit_weibull(x: np.ndarray) -> Parameters:
    logs = np.log(x)
    apart = logs - logs.max(axis=-1, keepdims=True)  # powers of it do not overflow
    mean = apart.mean(axis=-1)
    shape = np.pi / np.sqrt(6) / np.maximum(logs.std(axis=-1), 1e-6)
    for _ in range(_NEWTON):
        powers = np.exp(shape[..., None] * apart)
        total = powers.sum(axis=-1)
        first = (powers * apart).sum(axis=-1) / total
        second = (powers * apart**2).sum(axis=-1) / total
        value = first - 1 / shape - mean
        slope = second - first**2 + 1 / shape**2
        step = value / slope
        shape = np.clip(shape - step, shape / 4, shape * 4)
        if np.all(np.abs(step) < 1e-10 * shape):
            break
    scale = np.exp(logs.max(axis=-1)) * np.exp(shape[..., None] * apart).mean(axis=-1) ** (
        1 / shape
    )
    return {"shape": shape, "mean": scale * np.exp(special.gammaln(1 + 1 / shape))}


def _scale(p: Parameters) -> np.ndarray:
    """The scale of a Weibull law."""
    return p["mean"] / np.exp(special.gammaln(1 + 1 / p["shape"]))


def _lognormal_z(x: np.ndarray, p: Parameters) -> np.ndarray:
    return (np.log(x) - np.log(p["mean"]) + p["sigma"] ** 2 / 2) / p["sigma"]


def _gamma_density(x: np.ndarray, p: Parameters) -> np.ndarray:
    k, rate = p["shape"], p["shape"] / p["mean"]
    return k * np.log(rate) - special.gammaln(k) + (k - 1) * np.log(x) - rate * x


def _shifted_density(x: np.ndarray, p: Parameters) -> np.ndarray:
    over = (x - p["shift"]) / p["mean"]
    return np.where(over >= 0, -np.log(p["mean"]) - over, -np.inf)


def _weibull_density(x: np.ndarray, p: Parameters) -> np.ndarray:
    over = np.log(x / _scale(p))
    return np.log(p["shape"]) + p["shape"] * over - np.log(x) - np.exp(p["shape"] * over)


FAMILIES = (
    Family(
        "exponential",
        _fit_exponential,
        lambda x, p: -np.expm1(-x / p["mean"]),
        lambda x, p: -np.log(p["mean"]) - x / p["mean"],
        lambda rng, shape, p: p["mean"] * rng.standard_exponential(shape),
        lambda p: clocks.exponential(**p),
        1,
    ),
    Family(
        "shifted_exponential",
        _fit_shifted,
        lambda x, p: -np.expm1(-np.maximum(x - p["shift"], 0.0) / p["mean"]),
        _shifted_density,
        lambda rng, shape, p: p["shift"] + p["mean"] * rng.standard_exponential(shape),
        lambda p: clocks.shifted_exponential(**p),
        2,
    ),
    Family(
        "gamma",
        _fit_gamma,
        lambda x, p: special.gammainc(p["shape"], p["shape"] / p["mean"] * x),
        _gamma_density,
        lambda rng, shape, p: rng.gamma(p["shape"], p["mean"] / p["shape"], shape),
        lambda p: clocks.gamma(**p),
        2,
    ),
    Family(
        "lognormal",
        _fit_lognormal,
        lambda x, p: special.ndtr(_lognormal_z(x, p)),
        lambda x, p: -np.log(x * p["sigma"] * np.sqrt(2 * np.pi)) - _lognormal_z(x, p) ** 2 / 2,
        lambda rng, shape, p: (
            p["mean"] * np.exp(p["sigma"] * (rng.standard_normal(shape) - p["sigma"] / 2))
        ),
        lambda p: clocks.lognormal(**p),
        2,
    ),
    Family(
        "weibull",
        _fit_weibull,
        lambda x, p: -np.expm1(-((x / _scale(p)) ** p["shape"])),
        _weibull_density,
        lambda rng, shape, p: _scale(p) * rng.standard_exponential(shape) ** (1 / p["shape"]),
        lambda p: clocks.weibull(**p),
        2,
    ),
)


def two_speeds(x: np.ndarray) -> tuple[Parameters, float]:
    """A worker that is fast for a while and slow for a while, float64[J].

    Returns:
        The parameters of `clocks.markov`, and the share of the variance of log durations that the
        two speeds explain.

    Example:
        >>> parameters, share = two_speeds(np.array([1.0, 1.0, 5.0, 5.0, 1.0, 1.0, 1.0, 5.0, 1.0]))
        >>> {name: round(float(value), 3) for name, value in parameters.items()}, share
        ({'fast': 1.0, 'slow': 5.0, 'to_slow': 0.4, 'to_fast': 0.667}, 1.0)
    """
    logs = np.sort(np.log(x))
    jobs, total = len(x), float(logs.var())
    if jobs < 2 or total < _SMALL:
        mean = x.mean()
        values = {"fast": mean, "slow": mean, "to_slow": 0.0, "to_fast": 1.0}
        return {name: np.asarray(value, float) for name, value in values.items()}, 0.0
    left = np.arange(1, jobs)
    sums = np.cumsum(logs)
    low, high = sums[:-1] / left, (sums[-1] - sums[:-1]) / (jobs - left)
    between = left * (jobs - left) / jobs**2 * (high - low) ** 2
    best = int(np.argmax(between))
    is_slow = np.log(x) > logs[best] + 1e-15
    before, after = is_slow[:-1], is_slow[1:]
    values = {
        "fast": x[~is_slow].mean(),
        "slow": x[is_slow].mean(),
        "to_slow": (~before & after).sum() / max(1, (~before).sum()),
        "to_fast": (before & ~after).sum() / max(1, before.sum()),
    }
    parameters = {name: np.asarray(value, float) for name, value in values.items()}
    return parameters, min(1.0, round(float(between[best]) / total, 12))
