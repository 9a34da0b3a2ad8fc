"""Rows of tables that programs make of the committed numbers, for the pages that show them.

What a page may have of a part is here in one place, so that one test can say which rows of a page
no program makes (`experiments.uncompared`).
"""

from collections.abc import Callable, Iterable, Iterator

from asyncjax import results
from experiments.common import numbers

Made = Iterable[results.Table | str]


def rows() -> set[str]:
    """Every row, as pages have it but for bold type."""
    return {plain(row) for maker in MAKERS for row in _rows(maker())}


def plain(row: str) -> str:
    """A row without bold type.

    Example:
        >>> plain("| **PD-ORS** | **687** (28) |")
        '| PD-ORS | 687 (28) |'
    """
    return row.replace("**", "")


def _rows(made: Made) -> Iterator[str]:
    for one in made:
        text = one if isinstance(one, str) else results.as_markdown(one)
        yield from (line for line in text.splitlines() if line.startswith("|"))


)
