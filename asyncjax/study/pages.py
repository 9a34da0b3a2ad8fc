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
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from asyncjax.results import statistics
from asyncjax.results.statistics import FAILS, HOLDS, Condition
from asyncjax.results.templates import BEGIN, END, render
from asyncjax.study.result import Claim, Result
from asyncjax.study.summary import worded

__all__ = ["BEGIN", "END", "Ratio", "Verdict", "functions", "ratio", "ratios", "render", "verdict"]
__all__ += ["value"]


CHECK = ": a check of the code"  # ends the text of a verdict that is true of every run


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
    """What the sets say of one claim, or of several together: all their conditions are one family.

    Its text is what all sets say of the same conditions, with how many hold where only some do, and
    how many in each set where that differs: "in part (7 of 32; A 8, B 9)".

    Attributes:
        sets: Of instances.
        asked: Conditions as functions of a set and a level.
        told: Verdicts by set of claims without conditions.
        certain: Why all of it is true of every run; empty: it is not.
    """

    sets: tuple[str, ...]
    asked: Sequence[Callable[[str, float], Condition]]
    told: Sequence[Mapping[str, str]] = ()
    certain: str = ""

    @cached_property
    def judged(self) -> dict[str, tuple[Condition, ...]]:
        """The conditions in each set, by Holm's procedure."""
        return {s: statistics.holm([partial(one, s) for one in self.asked]) for s in self.sets}

    @cached_property
    def by_set(self) -> dict[str, str]:
        """The word of each set."""
        told = {s: [words[s] for words in self.told] for s in self.sets}
        return {
            s: statistics.together([*told[s], *(one.verdict for one in found)])
            for s, found in self.judged.items()
        }

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """What all sets say of each condition, open where they differ."""
        return statistics.shared([*self.judged.values()])

    def __str__(self) -> str:
        word = self.word if self.told else statistics.together(self.shared)
        if word == HOLDS:
            return word + (CHECK if self.certain else "")
        each = {s: sum(x.verdict == HOLDS for x in found) for s, found in self.judged.items()}
        count, of = self.shared.count(HOLDS), len(self.shared)
        if word == FAILS and of:
            return f"{word} ({self.shared.count(FAILS)} of {of} refuted)"
        if {*each.values()} == {count}:
            return f"{word} ({count} of {of})" if count else word
        return f"{word} ({count} of {of}; {', '.join(f'{s} {n}' for s, n in each.items())})"

    @property
    def word(self) -> str:
        """The verdict in a word; that of each set where they differ."""
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
    told = [one for one in claims if isinstance(one, Claim) and not one.conditions]
    asked = result.asked(*(one for one in claims if one not in told))
    certain = [one.certain if isinstance(one, Claim) else "" for one in claims]
    why = "; ".join(dict.fromkeys(certain)) if all(certain) else ""
    return Verdict(result.sets, asked, [result.verdict(one) for one in told], why)


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
