"""Families of laws of a duration: their parameters by maximum likelihood, and their densities.

    exponential          mean
    shifted_exponential  shift = (J min - mean) / (J - 1),  mean of the rest
    gamma                log(shape) - digamma(shape) = log(mean d) - mean(log d)
    lognormal            mean and deviation of log d
    pareto               least = min d,  tail = 1 / mean(log(d / least))
    weibull              sum d^k log d / sum d^k - 1/k = mean(log d),  k the shape

Fits go along the last axis, so that many samples are fitted at once. Everything is plain float64 on
the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

Parameters = dict[str, Any]  # arrays by name, [...], the arguments of the factory in `clocks`
_NEWTON = 20  # steps, at most
_SMALL = 1e-12
_LEAST_TAIL = 1.01  # of a Pareto law: its mean must exist


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


def _fit_pareto(x: np.ndarray) -> Parameters:
    least = x.min(axis=-1)
    excess = np.maximum(np.log(x).mean(axis=-1) - np.log(least), _SMALL)
    tail = np.maximum(1 / excess, _LEAST_TAIL)
    return {"mean": least * tail / (tail - 1), "tail": tail}


def _fit_weibull(x: np.ndarray) -> Parameters:
    logs = np.log(x)
    apart = logs - logs.max(axis=-1, keepdims=True)  # powers of it do not overflow
    shape = np.pi / np.sqrt(6) / np.maximum(logs.std(axis=-1), 1e-6)
    for _ in range(_NEWTON):
        powers = np.exp(shape[..., None] * apart)
        total = powers.sum(axis=-1)
        first = (powers * apart).sum(axis=-1) / total
        second = (powers * apart**2).sum(axis=-1) / total
        step = (first - 1 / shape - apart.mean(axis=-1)) / (second - first**2 + 1 / shape**2)
        shape = np.clip(shape - step, shape / 4, shape * 4)
        if np.all(np.abs(step) < 1e-10 * shape):
            break
    power = np.exp(shape[..., None] * apart).mean(axis=-1) ** (1 / shape)
    scale = np.exp(logs.max(axis=-1)) * power
    return {"shape": shape, "mean": scale * special.gamma(1 + 1 / shape)}


FITS: dict[str, Callable[[np.ndarray], Parameters]] = {
    "exponential": _fit_exponential,
    "shifted_exponential": _fit_shifted,
    "gamma": _fit_gamma,
    "lognormal": _fit_lognormal,
    "pareto": _fit_pareto,
    "weibull": _fit_weibull,
}


def log_density(name: str, x: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Logarithm of the density of a family at durations float64[J]; -inf outside its range."""
    p = {key: float(value) for key, value in parameters.items()}
    mean, logs = p["mean"], np.log(x)
    if name in ("exponential", "shifted_exponential"):
        excess = x - p.get("shift", 0.0)
        return np.where(excess >= 0, -excess / mean - np.log(mean), -np.inf)
    if name == "gamma":
        shape, scale = p["shape"], mean / p["shape"]
        return (shape - 1) * logs - x / scale - special.gammaln(shape) - shape * np.log(scale)
    if name == "lognormal":
        sigma = p["sigma"]
        apart = (logs - np.log(mean) + sigma**2 / 2) / sigma
        return -(apart**2) / 2 - logs - np.log(sigma * np.sqrt(2 * np.pi))
    if name == "pareto":
        tail = p["tail"]
        least = mean * (1 - 1 / tail)
        inside = np.log(tail) + tail * np.log(least) - (tail + 1) * logs
        return np.where(x >= least, inside, -np.inf)
    shape = p["shape"]
    apart = logs - np.log(mean / special.gamma(1 + 1 / shape))
    return np.log(shape) + shape * apart - logs - np.exp(shape * apart)
