"""Numbers as they are written: cut to the digits that count, or a median with its quartiles."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results

DIGITS = 6


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """The same mappings and lists, every float cut to so many digits, arrays as lists.

    Args:
        value: Mappings with text keys, lists, tuples, numbers, text, None, arrays.
        digits: That count, from the first that is not 0.

    Example:
        >>> rounded({"loss": np.float32(0.1), "times": (2 / 3, np.inf)}, 3)
        {'loss': 0.1, 'times': [0.667, inf]}
    """
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if not isinstance(value, float) and hasattr(value, "__array__"):
        return rounded(np.asarray(value).tolist(), digits)
    number = float(value)
    return float(f"{number:.{digits}g}") if math.isfinite(number) else number


def spread(values: Sequence[float], digits: int = 2, sign: str = "") -> str:
    """Median (quartiles); "-" where one was not measured.

    Example:
        >>> spread([2.0, 1.0, 3.0]), spread([0.0, -0.5, 0.5], 1, "+"), spread([1.0, np.nan])
        ('2.00 (1.50 to 2.50)', '+0.0 (-0.2 to 0.2)', '-')
    """
    if np.isnan(values).any():
        return "-"
    seen = results.median_and_spread(np.asarray(values, float))
    low, middle, high = (float(end) for end in (seen.low, seen.median, seen.high))
    return f"{middle:{sign}z.{digits}f} ({low:z.{digits}f} to {high:z.{digits}f})"
