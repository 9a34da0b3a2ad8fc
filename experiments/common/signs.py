"""What signs say of two methods with the same seeds: one is lower on every seed, or neither is."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.results import statistics


def apart(text: str, one: ArrayLike, other: ArrayLike) -> statistics.Condition:
    """The condition that one method is lower: its interval goes from the least seed to the most.

    Args:
        text: Of the condition.
        one: [S], positive numbers of a method by seed; infinity where it diverged.
        other: [S], those of another on the same seeds.

    Example:
        >>> apart("", [1.0, 2.0], [1.5, 2.5]).verdict, apart("", [1.0, 2.0], [0.5, 2.5]).verdict
        ('holds', 'no significant difference')
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.log(np.asarray(one, float)) - np.log(np.asarray(other, float))
    difference = np.nan_to_num(difference, nan=0.0, posinf=1e9, neginf=-1e9)
    share = float(np.mean((difference < 0) + (difference == 0) / 2))
    mean, low, high = (float(end(difference)) for end in (np.mean, np.min, np.max))
    size = statistics.Difference(mean, low, high, share, len(difference))
    return statistics.Condition(text, size)


def lower(
    first: str, than: str, column: str, text: str = "", **where: Any
) -> Callable[[Any, str, float], statistics.Condition]:
    """The condition of a `Claim` that a method is lower than another on every seed.

    Args:
        first: The method.
        than: The other.
        column: What is compared.
        text: Of the condition; empty: made of the names.
        **where: Which rows, as in `Result.select`.
    """

    def condition(result: Any, letter: str, level: float) -> statistics.Condition:
        del letter, level
        pair = (result.select(method=name, **where)[column] for name in (first, than))
        return apart(text or f"{first} below {than}", *pair)

    return condition
