"""Timing side by side: all contestants in turn, several rounds, medians and spread of ratios."""

import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import jax
import numpy as np


def seconds(
    contestants: Mapping[str, Callable[[], Any]],
    repeats: int,
    timer: Callable[[], float] = time.perf_counter,
) -> dict[str, np.ndarray]:
    """Times contestants in turn, so that a disturbance meets all of them alike.

    Args:
        contestants: Functions of no argument by name; each is called once before, to warm up.
        repeats: Rounds.
        timer: `time.process_time` for seconds of processor time, where the machine is shared.

    Returns:
        Seconds by name, float64[repeats].
    """
    for run in contestants.values():
        jax.block_until_ready(run())
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            began = timer()
            jax.block_until_ready(run())
            taken[name].append(timer() - began)
    return {name: np.array(values) for name, values in taken.items()}


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> str:
    """Median of the rounds' ratios, with quartiles."""
    low, median, high = np.quantile(numerator / denominator, [0.25, 0.5, 0.75])
    return f"{median:.2f} ({low:.2f}-{high:.2f})"


def setting() -> str:
    """Device and versions, one line."""
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("jax", "jaxlib", "optax", "flax", "numpy")
    )
    device = jax.devices()[0]
    kind = device.device_kind if device.platform != "cpu" else f"CPU ({platform.machine()})"
    return f"{time.strftime('%Y-%m-%d')}, {kind}, Python {platform.python_version()}, {packages}"
