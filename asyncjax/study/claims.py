"""Claims: what somebody says of methods, as conditions on the rows of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncjax import checks
from asyncjax.study.statistics import Condition

Where = Mapping[str, Any]  # column -> value, list of values, or function of a column to a mask


@dataclass(frozen=True)
class Less:
    """A part of a claim: that one method's value is below another's; `less` makes it.

    Attributes:
        first: The method of which little is claimed.
        than: The other, or several: a condition each; empty: every other method.
        ratio: Bound of first over second.
        column: What is compared; None: what the study compares.
        each: One condition for each cell (a scene, or what was tuned for in it) that `where`
            leaves, instead of one for their mean.
        text: Of the table; empty: made of the names.
        where: Which rows.
        beside: Columns in which the second's rows are others.
        arriving: A cell in which neither comes by its horizon, in a set, is no condition there.
    """

    first: str
    than: tuple[str, ...]
    ratio: float = 1.0
    column: str | None = None
    each: bool = False
    text: str = ""
    where: Where = field(default_factory=dict)
    beside: Where = field(default_factory=dict)
    arriving: bool = False


def less(
    first: str,
    than: str | Sequence[str] = (),
    *,
    ratio: float = 1.0,
    column: str | None = None,
    each: bool = False,
    text: str = "",
    beside: Where | None = None,
    arriving: bool = False,
    **where: Any,
) -> Less:
    """The condition that one method's value is below so many times another's.

    Args:
        first: A method.
        than: Another, or several: one condition each. Empty: every other method.
        ratio: Bound of first over second; 1 is "the first is lower".
        column: What is compared; None: what the study compares.
        each: One condition for each cell that `where` leaves, instead of one for their mean.
        text: What it says, for tables; empty: made of the names.
        beside: Columns in which the second's rows differ, such as `{"scene": "even"}`.
        arriving: Leave out cells in which neither method comes in any run of a set, or one was not
            run.
        **where: Which rows: a column is a value, one of a list, or what a function of it says.

    Returns:
        The condition, for a `Claim`.

    Example:
        >>> less("pure", than="synchronous", scene=["spread", "straggler"]).than
        ('synchronous',)
    """
    names = (than,) if isinstance(than, str) else tuple(than)
    bound = checks.real("ratio", ratio, above=0)
    return Less(first, names, bound, column, each, text, where, beside or {}, arriving)


Asked = Less | Callable[[Any, str, float], Condition]  # (result, set, level) -> condition


@dataclass(frozen=True, eq=False)
class Claim:
    """What somebody says of methods, as conditions on rows.

    Attributes:
        text: In words.
        conditions: `less(...)`s; or functions `(result, set, level) -> Condition`, where a claim
            is of another form. None: the verdict is `facts["verdicts"][text]`, by set, put there by
            the program that ran the study, where rows do not hold what it followed from.
        source: Who claims it.
        level: Of each condition's interval; None: 1 - 0.05 / how many they are.
    """

    text: str
    conditions: Sequence[Asked] = ()
    source: str = ""
    level: float | None = None
