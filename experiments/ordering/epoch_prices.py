"""What an epoch of a method costs, in epochs of another.

    price = median over rounds r of  seconds[r, method] / seconds[r, baseline]

Seconds are those of the processor, not of the clock on the wall, so that what else the machine does
counts little; with one thread the two are the same on a machine of one's own. Every round times
each method once, one right after the other; the first call of each, which compiles, is not counted.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True)
class Price:
    """A ratio of times.

    Attributes:
        median: Over the rounds.
        low: Lower quartile.
        high: Upper quartile.
    """

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """Median and quartiles, as in a table."""
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def prices(
    runs: Mapping[str, Callable[[], Any]], baseline: str, repeats: int = 7
) -> dict[str, Price]:
    """Times functions side by side.

    Args:
        runs: By name, functions of no argument that do the same number of epochs; what they return
            is waited for.
        baseline: The name whose price is 1.
        repeats: Rounds, at least 1.

    Returns:
        Prices by name, in the order of `runs`.

    Raises:
        ValueError: `baseline` is not in `runs`, or `repeats` is below 1.

    Example:
        >>> from experiments.ordering.epoch_prices import prices
        >>> found = prices({"once": lambda: sum(range(9)), "again": lambda: 0}, "once", 3)
        >>> found["once"].median, list(found)
        (1.0, ['once', 'again'])
    """
    if baseline not in runs:
        raise ValueError(f"baseline must be among {', '.join(runs)}, got {baseline!r}")
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    for run in runs.values():
        jax.block_until_ready(run())
    taken = {name: np.zeros(repeats) for name in runs}
    for turn in range(repeats):
        for name, run in runs.items():
            began = time.process_time()
            jax.block_until_ready(run())
            taken[name][turn] = time.process_time() - began
    found = {}
    for name, seconds in taken.items():
        low, median, high = np.quantile(seconds / taken[baseline], [0.25, 0.5, 0.75])
        found[name] = Price(float(median), float(low), float(high))
    return found
