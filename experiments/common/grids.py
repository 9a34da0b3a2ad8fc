"""Values of one knob: a grid grows while its best value is near an end, and then becomes finer.

Grids that grow by themselves end with different numbers of trials. Those that have fewer get values
between the ones that were tried, until all methods of a comparison have as many.
"""

import math
from collections.abc import Iterable
from itertools import pairwise


def wanted(
    tried: Iterable[float], best: float, *, factor: float, inside: int, most: int, least: int
) -> list[float]:
    """The values to try next: none once the best one lies inside and enough were tried.

    Args:
        tried: Positive values, all different.
        best: One of them.
        factor: From the last value to the next beyond it.
        inside: Values that must lie on either side of the best one.
        most: Values up to which the grid grows.
        least: Values that must be tried in all; more of them are put between the others.

    Example:
        >>> wanted([1.0, 2.0, 4.0], 4.0, factor=2.0, inside=1, most=9, least=6)
        [8.0]
        >>> wanted([1.0, 2.0, 4.0, 8.0], 4.0, factor=2.0, inside=1, most=9, least=5)
        [2.8284271247461903]
        >>> wanted([1.0, 2.0, 4.0, 8.0], 4.0, factor=2.0, inside=1, most=9, least=4)
        []
    """
    values = sorted(tried)
    place = values.index(best)
    ends = [values[0] / factor] if place < inside else []
    ends += [values[-1] * factor] if place >= len(values) - inside else []
    return ends[: max(0, most - len(values))] or between(values, best, least - len(values))


def between(tried: Iterable[float], best: float, count: int) -> list[float]:
    """So many new values, each half-way in the widest gap: of several that nearest to the best.

    Half-way is the geometric mean.

    Args:
        tried: Two or more positive values, all different.
        best: One of them.
        count: How many; none if it is not above 0.

    Example:
        >>> [round(value, 2) for value in between([1.0, 2.0, 4.0, 8.0], 4.0, 3)]
        [2.83, 5.66, 1.41]
    """

    def order(gap: tuple[float, float]) -> tuple[float, float]:
        distance = abs(math.log(math.sqrt(gap[0] * gap[1]) / best))
        return -round(math.log(gap[1] / gap[0]), 9), round(distance, 9)

    values, new = sorted(tried), []
    for _ in range(count):
        low, high = min(pairwise(values), key=order)
        new.append(math.sqrt(low * high))
        values = sorted([*values, new[-1]])
    return new
