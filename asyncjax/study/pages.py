"""Pages made of rows: Markdown templates in which nobody types a number.

A template is Markdown with `{{ ... }}` where something measured stands, read by jinja2. There is no
arithmetic in it, a name that is not there is an error, and a number needs a format:

    Shuffled needs {{ ratio("shuffled", "pure").text }} of the time of pure,
    {{ value("gap", method="pure") | fixed(1) }} in the median.
    {% if verdict("shuffled faster than pure").word == "holds" %}So it pays.{% endif %}

| filter | a number as |
|---|---|
| `fixed(1)` | so many decimals, `never` for what is infinite |
| `short(3)` | so many significant digits |
| `percent(0)` | a percentage |
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from asyncjax import checks
from asyncjax.results.tables import format_number
from asyncjax.study import statistics
from asyncjax.study.result import Claim, Result
from asyncjax.study.summary import worded

BEGIN, END = "\x01", "\x02"  # what was filled in stands between these, where that is asked for


def render(
    path: str | os.PathLike[str], namespace: Mapping[str, Any], *, marked: bool = False
) -> str:
    """A template as the page it stands for.

    Args:
        path: The template.
        namespace: What it may name: functions and plain values.
        marked: Put the marks `BEGIN` and `END` around all that is filled in.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The template reckons.
        jinja2.UndefinedError: It names what is not there.
        TypeError: A number has no format.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "page.md.j2"
        ...     _ = path.write_text("It takes {{ time | fixed(1) }} s.")
        ...     render(path, {"time": 2.0})
        'It takes 2.0 s.'
    """
    jinja2 = checks.extra("jinja2", "study")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: f"{BEGIN}{_plain(value)}{END}" if marked else _plain(value),
    )
    environment.filters |= {"fixed": fixed, "short": short, "percent": percent}
    text = Path(path).read_text(encoding="utf-8")
    signs = (jinja2.nodes.Add, jinja2.nodes.Sub, jinja2.nodes.Mul, jinja2.nodes.Div)
    signs += (jinja2.nodes.FloorDiv, jinja2.nodes.Mod, jinja2.nodes.Pow)
    for node in environment.parse(text).find_all(signs):
        raise ValueError(f"{path} must not reckon, got arithmetic in line {node.lineno}")
    return environment.from_string(text).render(namespace)


def _plain(value: Any) -> str:
    """What a template may print."""
    if value is None or isinstance(value, bool | float | np.generic):
        raise TypeError(f"{value!r} must have a format on a page, such as `| fixed(1)`")
    return format(value, ",") if isinstance(value, int) else str(value)


def fixed(value: float, decimals: int = 1) -> str:
    """A number with so many decimals; `never` for what is infinite.

    Example:
        >>> fixed(1234.56), fixed(float("inf"))
        ('1,234.6', 'never')
    """
    return f"{value:,.{decimals}f}" if math.isfinite(value) else "never"


def short(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, as in tables."""
    return format_number(float(value), digits)


def percent(value: float, decimals: int = 0) -> str:
    """A share in percent, without the sign.

    Example:
        >>> percent(0.256)
        '26'
    """
    return f"{100 * value:.{decimals}f}"


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
    rows = result.ratio(first, second, column, set, level, where)
    return _ratio(result, rows.to_dict("records")[0])


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
