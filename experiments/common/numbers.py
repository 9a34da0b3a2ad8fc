"""Numbers cut to the digits that count: the last ones are those of a machine."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

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
