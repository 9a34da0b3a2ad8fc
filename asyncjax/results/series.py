"""A curve with its spread: the median over seeds and the quartiles around it.

For seeds `s` recorded at their own points, all are read off on one grid `x_g` and
`median_g = median_s v_s(x_g)`. A point that some seed does not cover is NaN: a median over the
seeds that happen to last longest would be biased.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import flag
from asyncjax.results.arguments import numbers, text
from asyncjax.results.metrics import median_and_spread, resample


@dataclass(frozen=True, eq=False)
class Series:
    """One named curve with a band around it; a plain line when low and high equal the median.

    Attributes:
        name: Name of the method, for the legend.
        x: float[R].
        median: float[R].
        low: float[R], lower edge of the band.
        high: float[R], upper edge of the band.
    """

    name: str
    x: ArrayLike  # float[R]
    median: ArrayLike  # float[R]
    low: ArrayLike  # float[R], lower edge of the band
    high: ArrayLike  # float[R], upper edge of the band

    def __post_init__(self) -> None:
        text("name", self.name)
        fields = ("x", "median", "low", "high")
        shapes = {field: numbers(field, getattr(self, field)).shape for field in fields}
        if len(shapes["x"]) != 1 or len(set(shapes.values())) != 1:
            raise ValueError(
                f"series {self.name!r} has shapes {shapes}; all four must be one-dimensional "
                "and of one length"
            )


def series_over_seeds(
    name: str,
    axis: ArrayLike,
    values: ArrayLike,
    grid: ArrayLike,
    *,
    stepwise: bool = False,
    smaller_is_better: bool = True,
) -> Series:
    """The median curve of several seeds with its quartiles, on a common grid.

    Args:
        name: What the curve is called in a legend.
        axis: `[S, R]` (or `[R]`): where each seed was recorded, not decreasing.
        values: `[S, R]`: what was recorded; NaN (diverged) counts as the worst value.
        grid: `[G]`: the common points.
        stepwise: Hold the last record until the next instead of a straight line.
        smaller_is_better: Which infinity is the worst value.

    Returns:
        A `Series` of length G, NaN where some seed has no records.

    Raises:
        TypeError: If `name` is no text, an array not made of real numbers, or a flag neither True
            nor False.
        ValueError: If the shapes do not fit or an axis decreases.

    Example:
        >>> curve = series_over_seeds("sgd", [0.0, 1.0], [[4.0, 2.0], [6.0, 4.0]], [0.0, 1.0, 2.0])
        >>> curve.median
        array([ 5.,  3., nan])
    """
    text("name", name)
    flag("smaller_is_better", smaller_is_better)
    read = resample(axis, values, grid, stepwise=stepwise)
    points = np.broadcast_to(numbers("axis", axis), np.shape(values))
    covered = ~np.isnan(resample(points, np.zeros(points.shape), grid)).any(axis=0)
    spread = median_and_spread(read.T, smaller_is_better=smaller_is_better)
    return Series(
        name=name,
        x=numbers("grid", grid),
        median=np.where(covered, spread.median, np.nan),
        low=np.where(covered, spread.low, np.nan),
        high=np.where(covered, spread.high, np.nan),
    )
