"""Values of one knob: a grid grows while its best value is near an end, and then becomes finer.

Grids that grow by themselves end with different numbers of trials. Those that have fewer get values
between the ones that were tried, until all methods of a comparison have as many.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any


def tuned(
    run: Callable[[Any, list[tuple[str, float]]], Iterable[Any]],
    first: Mapping[Any, Sequence[float]],
    cells: Sequence[str],
    best: Callable[[Mapping[float, Any]], float],
    *,
    inside: int,
    extensions: int,
) -> dict[Any, dict[str, dict[float, Any]]]:
    """Tries values until all methods have as many in a cell, and all best ones lie inside.

    Methods that have tried fewer values than another get some between theirs; where a best one is
    near an end then, its grid grows, and all are made level again.

    Args:
        run: What a method comes to in pairs of cell and value, in their order.
        first: By method the values to begin with, ascending, two or more; a grid grows by the
            factor from the first to the second.
        cells: In which values are tuned by themselves.
        best: Of what was tried in a cell, by value, the best value.
        inside: Values that must lie on either side of the best one.
        extensions: Values by which a grid grows at most.

    Returns:
        What came by method, cell and value.

    Example:
        >>> run = lambda name, pairs: [abs(value - 3.0) for _, value in pairs]
        >>> best = lambda tried: min(tried, key=tried.get)
        >>> first = {"a": (1.0, 2.0), "b": (2.0, 4.0, 8.0)}
        >>> found = tuned(run, first, [""], best, inside=1, extensions=5)
        >>> {name: sorted(by_cell[""]) for name, by_cell in found.items()}
        {'a': [1.0, 2.0, 4.0], 'b': [1.0, 2.0, 4.0, 8.0]}
    """
    tried: dict[Any, dict[str, dict[float, Any]]] = {
        name: {cell: {} for cell in cells} for name in first
    }
    behind, least = list(first), dict.fromkeys(cells, 0)
    while behind:
        for name in behind:
            grid, known = first[name], tried[name]
            pairs = [(cell, value) for cell in cells for value in grid if not known[cell]]
            while pairs := pairs or [
                (cell, value)
                for cell in cells
                for value in wanted(
                    known[cell],
                    best(known[cell]),
                    factor=grid[1] / grid[0],
                    inside=inside,
                    most=len(grid) + extensions,
                    least=least[cell],
                )
            ]:
                for (cell, value), score in zip(pairs, run(name, pairs), strict=True):
                    known[cell][value] = score
                pairs = []
        counts = {name: {cell: len(known[cell]) for cell in cells} for name, known in tried.items()}
        least = {cell: max(count[cell] for count in counts.values()) for cell in cells}
        behind = [name for name in first if counts[name] != least]
    return tried


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
