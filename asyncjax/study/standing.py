"""Where methods of one's own stand: in which scenes they win and lose, in a sentence and a table.

In each scene the rival is the built-in method of the least time in set A; the ratio to it is
measured in set B, which had no part in choosing it. A scene is won or lost where the interval of
the ratio excludes 1; the scenes share a doubt of 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asyncjax import results
from asyncjax.study.result import Result

CHOSEN_ON, MEASURED_ON = "A", "B"
DOUBT = 0.05
SHOWN = 3  # scenes that a sentence names


class Against(NamedTuple):
    """A method and its rival in a scene."""

    scene: str
    rival: str
    ratio: float  # of times; below 1 the method is faster
    low: float
    high: float


def against_best(result: Result, name: str, rivals: Sequence[str]) -> tuple[Against, ...]:
    """A method beside the best rival of each scene."""
    scenes = list(result.rows["scene"].unique())
    level = 1 - DOUBT / len(scenes)
    found = []
    for scene in scenes:
        where = {"scene": scene}
        means = {
            rival: float(np.log(result.values(rival, CHOSEN_ON, **where).to_numpy()).mean())
            for rival in rivals
        }
        best = min(means, key=lambda rival: means[rival])
        apart = result.difference(name, best, MEASURED_ON, where=where, level=level)
        found.append(Against(scene, best, *map(math.exp, (apart.mean, apart.low, apart.high))))
    return tuple(found)


def never(result: Result, name: str) -> bool:
    """Whether no run of a method came to its target by the horizon."""
    rows = result.rows[(result.rows["method"] == name) & (result.rows["set"] != "tuning")]
    return "horizon" in rows and not (rows[result.compared] <= rows["horizon"]).any()


def sentence_of(result: Result, name: str, rivals: Sequence[str]) -> str:
    """Where a method wins and loses against the best rival of each scene."""
    found = against_best(result, name, rivals)
    count = f"{len(found)} scene{'s' if len(found) > 1 else ''}"
    if never(result, name):
        return f"{name} never reaches the target, so it loses in all {count}."
    won = sorted((one for one in found if one.high < 1), key=lambda one: one.ratio)
    lost = sorted((one for one in found if one.low > 1), key=lambda one: -one.ratio)
    said = [
        f"{name} wins in {len(won)} of {count}{_listed(won)}",
        f"loses in {len(lost)}{_listed(lost)}",
        f"and does not differ significantly in {len(found) - len(won) - len(lost)}"
        " from the fastest of the others there",
    ]
    return ", ".join(said) + "."


def _listed(found: Sequence[Against]) -> str:
    """The clearest of them in brackets."""
    if not found:
        return ""
    told = [f"{one.scene}: {one.ratio:.2g} times as long as {one.rival}" for one in found[:SHOWN]]
    more = [f"{len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return f" ({'; '.join([*told, *more])})"


def table_of(result: Result, name: str, rivals: Sequence[str]) -> results.Table:
    """A row a scene: the best rival and the ratio to it."""
    rows = [
        (one.scene, one.rival, f"{one.ratio:.2g} ({one.low:.2g} to {one.high:.2g})", _word(one))
        for one in sorted(against_best(result, name, rivals), key=lambda one: one.ratio)
    ]
    heads = ("scene", "fastest of the others", "time over its", "")
    return results.Table(
        tuple(results.Column(head, right=head.startswith("time")) for head in heads),
        tuple(rows),
        f"{name} beside the fastest of the others in each scene, which set {CHOSEN_ON} chose; the"
        f" ratio of times with its interval is that of set {MEASURED_ON}.",
    )


def _word(one: Against) -> str:
    if one.high < 1:
        return "wins"
    return "loses" if one.low > 1 else "no significant difference"
