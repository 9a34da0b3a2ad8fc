"""Pages made of rows: Markdown templates in which nobody types a number.

A template is filled in as `asyncjax.results.templates` says, with what a study found:

    Shuffled needs {{ ratio("shuffled", "pure").text }} of the time of pure,
    {{ value("gap", method="pure") | fixed(1) }} in the median.
    {% if verdict("shuffled faster than pure").word == "holds" %}So it pays.{% endif %}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from asyncjax.results import statistics
from asyncjax.results.templates import BEGIN, END, render
from asyncjax.study.result import Claim, Result
from asyncjax.study.summary import worded

__all__ = ["BEGIN", "END", "Ratio", "Verdict", "functions", "ratio", "ratios", "render", "verdict"]
__all__ += ["value"]


class Ratio(SimpleNamespace):
    """One method's value over another's: a row of `Result.ratio`.

    Attributes:
        value: Geometric mean.
        low: Lower end of its interval.
        high: Upper end.
        text: "0.82 (0.75 to 0.9)", with a star where the two do not differ significantly.
        significant: Whether the interval excludes 1.
        instances: How many.
        set: Of instances.
        cell: What it is of, such as the scene, in words; empty: of all.
    """


@dataclass(frozen=True)
class Verdict:
    """What the sets say of one claim, or of several together.

    Attributes:
        by_set: The word of each set.
    """

    by_set: Mapping[str, str]

    def __str__(self) -> str:
        return self.word

    @property
    def word(self) -> str:
        """The verdict; that of each set where they differ.

        Example:
            >>> Verdict({"A": "holds", "B": "in part"}).word
            'holds (A), in part (B)'
        """
        return worded(self.by_set)

    @property
    def A(self) -> str:
        """What set A says."""
        return self.by_set["A"]

    @property
    def B(self) -> str:
        """What set B says."""
        return self.by_set["B"]


def ratios(
    result: Result,
    first: str,
    second: str,
    *,
    set: str | None = None,
    column: str | None = None,
    level: float = 0.95,
    **where: Any,
) -> list[Ratio]:
    """The first method's value over the second's in each cell that `where` leaves, set by set.

    For the least and the largest: `ratios(...) | min(attribute="value")`.
    """
    rows = result.ratio(first, second, column, set, level, where, each=True)
    return [_ratio(result, row) for row in rows.to_dict("records")]


def ratio(
    result: Result,
    first: str,
    second: str,
    set: str = "A",
    *,
    column: str | None = None,
    level: float = 0.95,
    **where: Any,
) -> Ratio:
    """The first method's value over the second's; of several cells the geometric mean."""
    (row,) = result.ratio(first, second, column, set, level, where).to_dict("records")
    return _ratio(result, row)


def _ratio(result: Result, row: Mapping[str, Any]) -> Ratio:
    cell = ", ".join(str(row[name]) for name in result.cell if name in row)
    return Ratio(**row, value=row["ratio"], cell=cell)


def verdict(result: Result, *claims: Claim | str) -> Verdict:
    """What the sets say of a claim; of several together, it holds if all do."""
    found = [result.verdict(claim) for claim in claims]
    return Verdict(
        {one: statistics.together([words[one] for words in found]) for one in result.sets}
    )


STATISTICS: dict[str, Callable[[np.ndarray], float]] = {
    "median": lambda values: _seen(values, 0.5),
    "first quartile": lambda values: _seen(values, 0.25),
    "third quartile": lambda values: _seen(values, 0.75),
    "mean": lambda values: float(np.mean(values)),
    "geometric": lambda values: float(np.exp(np.mean(np.log(values)))),
    "least": lambda values: float(np.min(values)),
    "most": lambda values: float(np.max(values)),
    "sum": lambda values: float(np.sum(values)),
    "count": len,
    "share": lambda values: float((np.isfinite(values) & (values != False)).mean()),  # noqa: E712
}


def value(
    result: Result, column: str, how: str = "median", set: str | None = "A", **where: Any
) -> float:
    """One number of a column of the rows.

    Args:
        result: Of the study.
        column: What is read, as it is in the rows: not cut.
        how: "median", "first quartile", "third quartile" (each a value that was seen), "mean",
            "geometric", "least", "most", "sum", "count", or "share": of those that are finite and
            not False.
        set: Of instances; None: of all that `where` leaves.
        **where: Which rows.

    Raises:
        ValueError: No row fits, or `how` is none of these.
    """
    if how not in STATISTICS:
        raise ValueError(f"how must be one of {', '.join(STATISTICS)}, got {how!r}")
    rows = result.select(**({"set": set} if set else {}), **where)
    if rows.empty:
        raise ValueError(f"where must leave rows, got none for {where}")
    return STATISTICS[how](np.asarray(rows[column]))


def _seen(values: np.ndarray, share: float) -> float:
    """The least value by which that share of all are there, as in `protocol.reached`."""
    return float(np.sort(values)[math.ceil(share * len(values)) - 1])


def functions(result: Result, claims: Sequence[Claim] = ()) -> dict[str, Any]:
    """What a template of one study may name: `ratio`, `ratios`, `verdict`, `value`, `facts`.

    Args:
        result: The study; the functions need not be given it.
        claims: Those that `verdict` may name by their text.
    """
    by_text: dict[str, Any] = {claim.text: claim for claim in claims}
    of = {make.__name__: partial(make, result) for make in (ratio, ratios, value)}
    told = {"verdict": lambda *texts: verdict(result, *(by_text.get(text, text) for text in texts))}
    return {**of, **told, "facts": result.facts}
