"""Numbers that compare runs: when a target is reached, medians over seeds, the best setting.

A method that never reaches a target keeps its rank in a comparison, as infinitely slow, and medians
over seeds count it so. A noisy loss may cross the target early by luck and leave it again: see
`stays`. Everything here is plain NumPy on the host, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import flag, real, whole


@dataclass(frozen=True, eq=False)
class Spread:
    """Median and quartiles of a set of samples, and how many of the samples were finite."""

    median: Any  # float64[...]
    low: Any  # float64[...], lower quartile
    high: Any  # float64[...], upper quartile
    reached: Any  # float64[...], share of finite samples, 0 to 1


@dataclass(frozen=True, eq=False)
class Series:
    """One named curve, perhaps with a band around it.

    Example:
        >>> Series("sgd", [0.0, 1.0], [2.0, 1.0]).low
        [2.0, 1.0]
    """

    name: str  # name of the method, for the legend
    x: ArrayLike  # float[R]
    median: ArrayLike  # float[R]
    low: ArrayLike = None  # pyright: ignore  # float[R], lower edge of the band; None: no band
    high: ArrayLike = None  # pyright: ignore  # float[R], upper edge of the band

    def __post_init__(self) -> None:
        for edge in ("low", "high"):
            if getattr(self, edge) is None:
                object.__setattr__(self, edge, self.median)
        fields = ("x", "median", "low", "high")
        shapes = {field: np.shape(getattr(self, field)) for field in fields}
        if len(shapes["x"]) != 1 or len(set(shapes.values())) != 1:
            raise ValueError(
                f"series {self.name!r} has shapes {shapes}; all four must be one-dimensional "
                "and of one length"
            )


class BestSetting(NamedTuple):
    """The best setting of a grid."""

    row: int  # its row in the scores
    at_edge: bool  # whether it is the first or the last, so that a better may lie outside


def time_to_target(
    axis: ArrayLike,
    values: ArrayLike,
    target: float,
    *,
    above: bool = False,
    interpolate: bool = False,
    stays: bool = False,
) -> Any:
    """First point of the axis at which the values reach a target, or reach it for good.

    `min {x_i : v_i <= target}` (`>=` when `above`), infinity when there is none. With `stays`,
    `min {x_i : v_j <= target for all j >= i}`.

    Args:
        axis: `[R]` or broadcastable to `values`: time, gradients or updates at each record,
            not decreasing along the last dimension.
        values: `[..., R]`: what was measured at each record. NaN never counts as reached.
        target: The value to reach.
        above: Reached means at or above the target (an accuracy) instead of at or below (a loss).
        interpolate: Place the crossing between two records by a straight line instead of at the
            later record. Only where the record before the crossing is finite.
        stays: Count the crossing after which every later record is at the target too. NaN counts
            as missed; records whose axis is NaN are left out, so put NaN there to end a run early.

    Returns:
        float64 `[...]` in the unit of the axis, infinity where the target is never reached.

    Example:
        >>> float(time_to_target([0.0, 1.0, 2.0], [4.0, 2.0, 1.0], 1.5, interpolate=True))
        1.5
        >>> float(time_to_target([0.0, 1.0, 2.0, 3.0], [4.0, 1.0, 2.0, 1.0], 1.5, stays=True))
        3.0
    """
    goal = real("target", target, finite=False)
    points, curve = _matched(axis, values)
    curve, goal = (-curve, -goal) if flag("above", above) else (curve, goal)
    if curve.shape[-1] == 0:
        return np.full(curve.shape[:-1], np.inf)[()]
    recorded = ~np.isnan(points)
    hit = (curve <= goal) & recorded
    if flag("stays", stays):
        missed_later = np.logical_or.accumulate((recorded & ~hit)[..., ::-1], axis=-1)[..., ::-1]
        hit &= ~missed_later
    first = hit.argmax(axis=-1)[..., None]
    at = np.take_along_axis(points, first, axis=-1)
    if flag("interpolate", interpolate):
        before = np.maximum(first - 1, 0)
        start = np.take_along_axis(points, before, axis=-1)
        old = np.take_along_axis(curve, before, axis=-1)
        new = np.take_along_axis(curve, first, axis=-1)
        between = (first > 0) & np.isfinite(old) & np.isfinite(new) & np.isfinite(start)
        drop = np.where(between, old - new, 1.0)
        share = np.where(between, old - goal, 1.0) / drop
        at = np.where(between, start + share * (at - start), at)
    return np.where(hit.any(axis=-1), at[..., 0], np.inf)[()]


def median_and_spread(samples: ArrayLike, *, smaller_is_better: bool = True) -> Spread:
    """Median and quartiles over the last dimension, with failures counted as the worst value.

    Quantile `q` of sorted `s_0 <= ... <= s_{S-1}` lies at position `q (S - 1)`, on the
    straight line between its two neighbours. A neighbour of positive weight that is infinite makes
    the quantile infinite; one of weight zero does not count. So the median is infinite as soon as
    half of an even number of samples, or more than half of an odd number, did not reach.

    Args:
        samples: `[..., S]`, one sample a seed. NaN (diverged) counts as the worst value.
        smaller_is_better: The worst value is plus infinity (times, losses); otherwise minus
            infinity (accuracies).

    Returns:
        A `Spread` of arrays `[...]`; `reached` is the share of finite samples.

    Example:
        >>> spread = median_and_spread([3.0, 1.0, float("inf")])
        >>> float(spread.median), float(spread.low), float(spread.high)
        (3.0, 2.0, inf)
    """
    data = np.asarray(samples, np.float64)
    if data.ndim == 0 or data.shape[-1] == 0:
        raise ValueError(f"samples has shape {data.shape}; it must hold at least one sample")
    worst = np.inf if flag("smaller_is_better", smaller_is_better) else -np.inf
    ordered = np.sort(np.where(np.isnan(data), worst, data), axis=-1)
    reached = np.isfinite(data).mean(axis=-1)
    low, median, high = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    return Spread(median=median, low=low, high=high, reached=reached[()])


def resample(
    axis: ArrayLike, values: ArrayLike, grid: ArrayLike, *, stepwise: bool = False
) -> np.ndarray:
    """Curves of several seeds, read off at common points.

    Args:
        axis: `[S, R]` (or `[R]`): where each seed was recorded, not decreasing. Records with a
            NaN here are left out, so seeds with fewer records may be padded.
        values: `[S, R]`: what was recorded.
        grid: `[G]`: the common points, in the unit of the axis.
        stepwise: Hold the last record until the next instead of a straight line between records.

    Returns:
        float64 `[S, G]`; NaN outside the range that a seed covers.

    Example:
        >>> resample([[0.0, 2.0]], [[4.0, 0.0]], [-1.0, 0.0, 1.0, 2.0, 3.0])
        array([[nan,  4.,  2.,  0., nan]])
    """
    points, curves = _matched(axis, values)
    if curves.ndim != 2:
        raise ValueError(f"values has shape {curves.shape}; it must be [seeds, records]")
    where = np.asarray(grid, np.float64)
    if where.ndim != 1:
        raise ValueError(f"grid has shape {where.shape}; it must be one-dimensional")
    result = np.full((curves.shape[0], where.size), np.nan)
    for seed in range(curves.shape[0]):
        recorded = ~np.isnan(points[seed])
        at, value = points[seed][recorded], curves[seed][recorded]
        if at.size:
            result[seed] = _read_off(at, value, where, stepwise)
    return result


def best_on_grid(scores: ArrayLike, *, smaller_is_better: bool = True) -> BestSetting:
    """The setting with the best median score over seeds, and whether the grid ends there.

    `argmin_g median_s scores[g, s]`, ties to the first. NaN and infinite scores count as the
    worst value, and a setting whose median is not finite never wins.

    Args:
        scores: `[G, S]` (or `[G]`): one row per setting, one column per seed.
        smaller_is_better: Losses and times (the default), or accuracies.

    Returns:
        `row` of the setting in the scores, and `at_edge`: True at either end of the grid.

    Raises:
        ValueError: No median is finite.

    Example:
        >>> best_on_grid([[3.0, 4.0], [1.0, 2.0], [float("nan"), 0.0]])
        BestSetting(row=1, at_edge=False)
    """
    table = np.asarray(scores, np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"scores has shape {table.shape}; it must be [settings, seeds]")
    if not flag("smaller_is_better", smaller_is_better):
        table = -table
    # An infinitely good score is no score: a loss of minus infinity has diverged too.
    medians = median_and_spread(np.where(np.isfinite(table), table, np.inf)).median
    if not np.isfinite(medians).any():
        raise ValueError(
            f"scores has no finite median in any of its {table.shape[0]} settings, "
            "so none is best; widen the grid"
        )
    index = int(np.argmin(medians))
    return BestSetting(index, at_grid_edge(index, len(medians)))


def at_grid_edge(index: int, n_settings: int) -> bool:
    """Whether a chosen setting is the first or last of its grid, so that a better may lie outside.

    Args:
        index: The chosen setting; `best_on_grid` says this of its choice.
        n_settings: How many settings the grid has.

    Returns:
        True at either end; a grid of one setting is all edge.

    Example:
        >>> at_grid_edge(0, 5), at_grid_edge(3, 5)
        (True, False)
    """
    n_settings = whole("n_settings", n_settings)
    index = whole("index", index, 0, n_settings - 1)
    return index in (0, n_settings - 1)


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

    A point that some seed does not cover is NaN: a median over the seeds that happen to last
    longest would be biased.

    Args:
        name: What the curve is called in a legend.
        axis, values, grid, stepwise: As in `resample`; NaN (diverged) counts as the worst value.
        smaller_is_better: Which infinity is the worst value.

    Returns:
        A `Series` of length G.

    Example:
        >>> curve = series_over_seeds("sgd", [0.0, 1.0], [[4.0, 2.0], [6.0, 4.0]], [0.0, 1.0, 2.0])
        >>> curve.median
        array([ 5.,  3., nan])
    """
    read = resample(axis, values, grid, stepwise=stepwise)
    points = np.broadcast_to(np.asarray(axis, np.float64), np.shape(values))
    covered = ~np.isnan(resample(points, np.zeros(points.shape), grid)).any(axis=0)
    spread = median_and_spread(read.T, smaller_is_better=smaller_is_better)
    low, median, high = (
        np.where(covered, part, np.nan) for part in (spread.low, spread.median, spread.high)
    )
    return Series(name, np.asarray(grid, np.float64), median, low, high)


def _matched(axis: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Axis and values as float64 of one shape, checked."""
    curve, points = np.asarray(values, np.float64), np.asarray(axis, np.float64)
    if not curve.ndim or points.shape[-1:] != curve.shape[-1:]:
        raise ValueError(
            f"axis has shape {points.shape} and values {curve.shape}; "
            "their last dimensions must be equal"
        )
    points = np.broadcast_to(points, curve.shape)
    known = np.fmax.accumulate(points, axis=-1)
    if np.any(points < known):
        raise ValueError("axis decreases along its last dimension; records must be in order")
    return points, curve


def _quantile(ordered: np.ndarray, share: float) -> Any:
    """A quantile of sorted samples, in which an infinite neighbour of weight zero is ignored."""
    place = share * (ordered.shape[-1] - 1)
    below = int(np.floor(place))
    weight = place - below
    left = ordered[..., below]
    if weight == 0.0:
        return left[()]
    right = ordered[..., below + 1]
    finite = np.isfinite(left) & np.isfinite(right)
    with np.errstate(invalid="ignore"):  # minus and plus infinity together have no middle: NaN
        return np.where(finite, left + weight * (right - left), left + right)[()]


def _read_off(at: np.ndarray, value: np.ndarray, where: np.ndarray, stepwise: bool) -> np.ndarray:
    """One curve on the grid, NaN outside its range."""
    if not flag("stepwise", stepwise):
        return np.interp(where, at, value, left=np.nan, right=np.nan)
    last = np.searchsorted(at, where, side="right") - 1
    inside = (last >= 0) & (where <= at[-1])
    return np.where(inside, value[np.maximum(last, 0)], np.nan)
