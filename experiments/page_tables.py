"""Rows of tables that programs make of the committed numbers, for the pages that show them.

What a page may have of a part is here in one place, so that one test can say which rows of a page
no program makes (`experiments.uncompared`).
"""

from collections.abc import Callable, Iterable, Iterator

from asyncjax import results
from experiments.common import numbers
from experiments.diloco import pages as diloco_pages
from experiments.joint import pages as joint_pages
from experiments.joint.placed import pages as placed_pages
from experiments.matrix import claims as matrix_claims
from experiments.matrix import report as matrix_report
from experiments.matrix import straggler
from experiments.stragglers import times, training_report

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


def _stragglers() -> Made:
    yield from training_report.page_tables(numbers.load("straggler_training"))
    yield times.page_table(numbers.load("straggler_times"))


def _matrix() -> Made:
    full = matrix_report.full_table(numbers.load("matrix_full"))
    alone = straggler.table(numbers.load(straggler.NAME))
    return *matrix_report.all_tables(matrix_claims.kept()), full, alone


def _diloco() -> Made:
    made = diloco_pages.tables(numbers.load(diloco_pages.NAME))
    return [line for lines in made.values() for line in lines]


def _joint() -> Made:
    made = joint_pages.pages(numbers.load("joint"))
    made |= placed_pages.tables(numbers.load("joint_placed")["places"])
    return [line for lines in made.values() for line in lines]


MAKERS: tuple[Callable[[], Made], ...] = (
    _stragglers,
    _matrix,
    _diloco,
    _joint,
)
