"""Rows of tables that programs make of the committed numbers, for the pages that show them.

What a page may have of a part is here in one place, so that one test can say which rows of a page
no program makes (`experiments.uncompared`).
"""

from collections.abc import Callable, Iterable, Iterator

from asyncjax import results
from experiments.common import numbers
from experiments.ordering import (
    epoch_costs,
    herding_report,
    herding_runs,
    order_claims,
    ordered_networks_report,
)

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


def _ordering() -> Made:
    found, report = numbers.load("ordered_networks"), ordered_networks_report
    yield from (made(found["tasks"]) for made in (report.loss_table, report.price_table))
    yield from (made(found["tasks"]) for made in (report.time_table, report.size_table))
    yield report.verdict_table(report.main_claims(found["verdicts"]))
    convex = numbers.load("ordered_instances")
    yield from (order_claims.gap_table(convex), order_claims.convex_verdicts(convex))
    herding = numbers.load("herding")
    seeds, settings = herding_report.kept(herding["seeds"]), herding_runs.Settings()
    yield herding_report.claim_table(herding["claimed"])
    tables = (herding_report.single_table, herding_report.parallel_table)
    yield from (made(settings, seeds) for made in (*tables, herding_report.block_table))
    yield epoch_costs.tpu_table(numbers.load("tpu_costs")["tasks"])




MAKERS: tuple[Callable[[], Made], ...] = (
    _ordering,
)
