"""How fast the error falls and where it stops: a bound for averages of the k fastest gradients.

    e_j <= A(k, b) + (1 - eta c)^j (e_0 - A(k, b)),     A(k, b) = eta L sigma^2 / (2 c k b)

for step size eta, smoothness L, strong convexity c and the variance sigma^2 of one sample's
gradient, when every update averages `k b` samples. A floor `A` is a function `(bound, k, load)`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from asyncjax.checks import real, whole, within

Floor = Callable[["ErrorBound", Any, Any], Any]


@dataclass(frozen=True)
class ErrorBound:
    """The constants of the bound, numbers; `simulation.estimate_error_bound` measures them.

    Attributes:
        step_size: Step size eta, with `0 < eta c < 1`.
        smoothness: Constant L, positive; a step size above 1/L is warned about.
        strong_convexity: Constant c, positive.
        noise_variance: `E |g - grad F|^2` of ONE sample's gradient, summed over coordinates.
        initial_error: `F(w_0) - F*`.
        floor: Function `(bound, k, load)` in place of the bound's own floor, None for that one.

    Example:
        >>> from asyncjax import stragglers
        >>> bound = stragglers.ErrorBound(0.1, 2.0, 0.5, 8.0, initial_error=10.0)
        >>> float(stragglers.error_floor(bound, 8, 8.0))
        0.025
        >>> round(bound.decay, 6)
        0.051293

    Reference:
        Bottou, Curtis, Nocedal, "Optimization methods for large-scale machine learning", SIAM
        Review 60 (2018).
    """

    step_size: float
    smoothness: float
    strong_convexity: float
    noise_variance: float
    initial_error: float
    floor: Floor | None = None

    def __post_init__(self) -> None:
        for name in ("step_size", "smoothness", "strong_convexity"):
            object.__setattr__(self, name, real(name, getattr(self, name), above=0))
        for name in ("noise_variance", "initial_error"):
            object.__setattr__(self, name, real(name, getattr(self, name), least=0))
        product = self.step_size * self.strong_convexity
        if product >= 1:
            raise ValueError(
                f"step_size must be less than 1 / strong_convexity, got a product of {product:g}"
            )
        if self.step_size * self.smoothness > 1 + 1e-12:
            warnings.warn(
                f"step_size should be at most 1 / smoothness = {1 / self.smoothness:g} for the "
                f"bound to hold, got {self.step_size:g}",
                stacklevel=3,
            )

    @property
    def decay(self) -> float:
        """Rate alpha at which the error above the floor falls, an update: `-log1p(-eta c)`."""
        return -math.log1p(-self.step_size * self.strong_convexity)


def error_floor(bound: ErrorBound, k: Any, load: Any = 1.0) -> Any:
    """Returns the error, float, below which the bound does not fall at a fixed `(k, load)`.

    Formula: `A(k, b) = eta L sigma^2 / (2 c k b)`, or what `bound.floor` says.

    Args:
        bound: The constants.
        k: How many answers an update averages, at least 1; numbers or arrays.
        load: Samples a worker, positive; broadcasts with `k`.

    Example:
        >>> from asyncjax import stragglers
        >>> bound = stragglers.ErrorBound(0.2, 1.0, 1.0, 40.0, 2.5)
        >>> stragglers.error_floor(bound, [1, 2, 4], 2.0).tolist()
        [2.0, 1.0, 0.5]
    """
    k, load = _options(k, load)
    floor = (bound.floor or with_replacement_floor)(bound, k, load)
    return within("floor", floor, least=0)


def _options(k: Any, load: Any) -> tuple[Any, Any]:
    """Reads what every floor is given; lists as arrays."""
    pair = within("k", k, least=1), within("load", load, above=0)
    k, load = (x if isinstance(x, jax.Array) else np.asarray(x) for x in pair)
    return k, load


def with_replacement_floor(bound: ErrorBound, k: Any, load: Any) -> Any:
    """Returns the bound's own floor, `eta L sigma^2 / (2 c k b)`: samples with replacement.

    Args:
        bound, k, load: As for `error_floor`.

    Example:
        >>> bound = ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0)
        >>> round(float(with_replacement_floor(bound, 1, 2)), 6)
        0.8
    """
    k, load = _options(k, load)
    scale = bound.step_size * bound.smoothness * bound.noise_variance
    return scale / (2 * bound.strong_convexity) / (k * load)


def finite_population_floor(n_workers: int, shard_size: int) -> Floor:
    """Returns the floor of samples drawn without replacement from `m = n_workers * shard_size`.

    Formula: `eta L sigma^2 / (2 c k b) * (m - k b) / (m - 1)`; 0 where all samples are used.

    Args:
        n_workers, shard_size: Workers, and samples that each holds; at least two in all.

    Example:
        >>> bound = ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0, finite_population_floor(3, 2))
        >>> [round(float(error_floor(bound, k, 2)), 6) for k in (1, 2, 3)]
        [0.64, 0.16, 0.0]
    """
    return _without_replacement(n_workers, shard_size, with_replacement_floor)


def quadratic_floor(n_workers: int, shard_size: int) -> Floor:
    """Returns the floor for well conditioned least squares, samples drawn without replacement.

    Formula: `eta sigma^2 / (4 k b) * (m - k b) / (m - 1)`, `m = n_workers * shard_size`: the
    stationary error on a quadratic with small `eta L`. The bound's own is larger by `2 L / c`.

    Args:
        n_workers, shard_size: As for `finite_population_floor`.

    Example:
        >>> bound = ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0, quadratic_floor(3, 2))
        >>> round(float(error_floor(bound, 1, 2)), 6)
        0.08
    """

    def floor(bound: ErrorBound, k: Any, load: Any) -> Any:
        return bound.step_size * bound.noise_variance / 4 / (k * load)

    return _without_replacement(n_workers, shard_size, floor)


def _without_replacement(n_workers: int, shard_size: int, floor: Floor) -> Floor:
    """A floor times `(m - k b) / (m - 1)`, by which the variance of a mean is lower."""
    m = whole("n_workers", n_workers) * whole("shard_size", shard_size)
    if m < 2:
        raise ValueError(f"n_workers * shard_size must be at least 2, got {m}")

    def lowered(bound: ErrorBound, k: Any, load: Any) -> Any:
        k, load = _options(k, load)
        used = k * load
        if not isinstance(used, Tracer) and np.any(used > m):
            raise ValueError(f"k * load must be at most the {m} samples, got {np.max(used)}")
        return floor(bound, k, load) * ((m - used) / (m - 1))

    return lowered
