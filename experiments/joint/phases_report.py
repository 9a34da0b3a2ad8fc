"""The map as a figure and tables, and the rule of thumb that is computed from it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from itertools import product
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.study.protocol import FIRST_CROSSING, reached, restricted
from asyncjax.study.statistics import OPEN, Difference, paired
from experiments.common.parts import Part, written
from experiments.joint.arms import JOINT
from experiments.joint.phases_runs import ARMS, Cell
from experiments.joint.scenes_runs import SETS

Found = Mapping[Cell, Mapping[str, Any]]
SHORT = {"synchronous": "sync", "reshuffled": "resh."}


@dataclass(frozen=True)
class Gain:
    """Both together beside the best of the others, in one cell.

    Attributes:
        best: The arm of the lowest mean log time among the others.
        difference: Log time of both together less that of the best.
    """

    best: str
    difference: Difference

    @property
    def ratio(self) -> float:
        """Time of both together over that of the best; below 1 is a gain."""
        return math.exp(self.difference.mean)

    @property
    def is_gain(self) -> bool:
        """Whether the interval lies below 1."""
        return self.difference.high < 0

    @property
    def word(self) -> str:
        """What the instances say: gain, loss, or no significant difference."""
        if not self.difference.significant:
            return OPEN
        return "gain" if self.is_gain else "loss"


def gain_of(own: Mapping[str, Any], role: str) -> Gain:
    """The gain of a cell on one set, against the arm that is the best of the others there."""
    horizon = own["asked"]["horizon"]
    logs = {
        arm: np.log(restricted(one["times"][role], horizon)) for arm, one in own["arms"].items()
    }
    joint = logs.pop(JOINT.name)
    best = min(logs, key=lambda arm: logs[arm].mean())
    return Gain(best, paired(joint, logs[best]))


@dataclass(frozen=True)
class Rule:
    """Take both together where the unevenness and the skew are large and the rows few enough.

    Attributes:
        unevenness: At least.
        skew: At least.
        rows: At most.
        right: Cells in which it says what the instances tell.
        cells: All cells.
    """

    unevenness: float
    skew: float
    rows: int
    right: int
    cells: int

    def holds(self, cell: Cell) -> bool:
        """Whether it says that both together gain."""
        return (
            cell.unevenness >= self.unevenness and cell.skew >= self.skew and cell.rows <= self.rows
        )


def rule_of(gains: Mapping[Cell, Gain]) -> Rule | None:
    """The rule of three bounds that is right in most cells, the widest of several.

    None where no cell has a gain.
    """
    if not any(gain.is_gain for gain in gains.values()):
        return None
    axes = [sorted({getattr(cell, axis) for cell in gains}) for axis in ("unevenness", "skew")]
    rows = sorted({cell.rows for cell in gains}, reverse=True)
    found = []
    for bounds in product(*axes, rows):
        rule = Rule(*bounds, right=0, cells=len(gains))
        found.append(Rule(*bounds, right=right(rule, gains), cells=len(gains)))
    return max(found, key=lambda rule: rule.right)  # the first of several is the widest


def right(rule: Rule, gains: Mapping[Cell, Gain]) -> int:
    """In how many cells a rule says what the instances tell."""
    return sum(rule.holds(cell) == gain.is_gain for cell, gain in gains.items())


def agreement(one: Mapping[Cell, Gain], other: Mapping[Cell, Gain]) -> str:
    """In how many cells two sets say the same, and whether any contradict each other."""
    same = sum(one[cell].word == other[cell].word for cell in one)
    against = sum({one[cell].word, other[cell].word} == {"gain", "loss"} for cell in one)
    return (
        f"Sets A and B say the same in {same} of {len(one)} cells; in {against} one says gain"
        " and the other loss"
    )


def sentence(rule: Rule | None, gains: Mapping[Cell, Gain], other: Mapping[Cell, Gain]) -> str:
    """The rule of thumb of one set, with what it is worth and how often it is right on another.

    Args:
        rule: As it was made.
        gains: What it was made on.
        other: What it is judged on.
    """
    if rule is None:
        return "In no cell are both together told to be faster than the best of the others"
    inside = [gain.difference.mean for cell, gain in other.items() if rule.holds(cell)]
    outside = [gain.difference.mean for cell, gain in other.items() if not rule.holds(cell)]
    bounds = [f"the slow half is at least {rule.unevenness:g} times slower"]
    if rule.skew > min(cell.skew for cell in gains):
        bounds.append(f"at least {rule.skew:.0%} of the rows are dealt by label")
    if rule.rows < max(cell.rows for cell in gains):
        bounds.append(f"a gradient has at most {rule.rows} row{'s' if rule.rows > 1 else ''}")
    told = (
        f"Take both together where {' and '.join(bounds)}: there they need"
        f" {math.exp(np.mean(inside)):.2f} of the time of the best other arm"
    )
    if outside:
        told += f", elsewhere {math.exp(np.mean(outside)):.2f}"
    return (
        f"{told} (made on set A, where it is right in {rule.right} of {rule.cells} cells; these"
        f" figures are those of set B, where it is right in {right(rule, other)})"
    )


def crossings(gains: Mapping[Cell, Gain]) -> dict[tuple[float, int], float | None]:
    """The least unevenness from which on the mean ratio stays below 1, by skew and rows.

    Between two places of the map it is found on the line through their logs. None: at no place.
    """
    found: dict[tuple[float, int], float | None] = {}
    for skew, rows in sorted({(cell.skew, cell.rows) for cell in gains}):
        line = sorted(
            (math.log(cell.unevenness), gain.difference.mean)
            for cell, gain in gains.items()
            if (cell.skew, cell.rows) == (skew, rows)
        )
        found[skew, rows] = None
        for place in reversed(range(len(line))):
            at, value = line[place]
            if value >= 0:
                if place + 1 < len(line):
                    after, lower = line[place + 1]
                    share = value / (value - lower)
                    found[skew, rows] = math.exp(at + share * (after - at))
                break
        else:
            found[skew, rows] = math.exp(line[0][0])
    return found


def part(settings: Any, found: Found) -> Part:
    """Draws the map and makes the tables."""
    gains = {role: {cell: gain_of(own, role) for cell, own in found.items()} for role in SETS}
    told = told_of(gains)
    print(told)
    return written(
        settings.output,
        "joint_map",
        "Where do bias removal and a learned order gain more together?",
        (
            (
                "ratio",
                map_figure(gains[SETS[0]]),
                "Time of both together over that of the best other arm, set A; bold: told apart"
                " from 1, line: where the mean crosses 1.",
            ),
        ),
        (
            rule_table(told, gains[SETS[0]]),
            cell_table(found, gains),
        ),
        numbers(settings, found, gains),
        note=FIRST_CROSSING,
    )


def told_of(gains: Mapping[str, Mapping[Cell, Gain]]) -> str:
    """The rule of thumb and how far the sets agree."""
    one, other = (gains[role] for role in SETS)
    return f"{sentence(rule_of(one), one, other)}. {agreement(one, other)}"


def rule_table(told: str, gains: Mapping[Cell, Gain]) -> results.Table:
    """The rule of thumb, and the crossing line."""
    rows: list[tuple[Any, ...]] = [(told, "", "")]
    for (skew, count), at in crossings(gains).items():
        where = "nowhere" if at is None else f"{at:.2f}"
        rows.append((f"from which unevenness on, {skew:.0%} by label", count, where))
    return results.Table(
        (
            results.Column("rule of thumb", right=False),
            results.Column("rows of a unit", format=str),
            results.Column("crossing", format=str),
        ),
        tuple(rows),
    )


def cell_table(found: Found, gains: Mapping[str, Mapping[Cell, Gain]]) -> results.Table:
    """All cells and sets: the best other arm, both together over it, all other means."""
    arms = [arm.name for arm in ARMS]
    rows = []
    for cell, own in found.items():
        for role in SETS:
            gain = gains[role][cell]
            apart = gain.difference
            means = [
                reached(own["arms"][arm]["times"][role], own["asked"]["horizon"]).restricted_mean
                for arm in arms
            ]
            ends = f"{gain.ratio:.2f} ({math.exp(apart.low):.2f} to {math.exp(apart.high):.2f})"
            rows.append((*astuple(cell), role, float(np.mean(own["bias"][role])), gain.best, ends))
            rows[-1] += tuple(means)
    return results.Table(
        (
            results.Column("unevenness"),
            results.Column("skew", format=str),
            results.Column("rows"),
            results.Column("instances", right=False),
            results.Column("bias"),
            results.Column("best other", right=False),
            results.Column("both / best other"),
            *(results.Column(arm) for arm in arms),
        ),
        tuple(rows),
    )


def map_figure(gains: Mapping[Cell, Gain]) -> Any:
    """A panel for each number of rows: skew over unevenness."""
    uneven = sorted({cell.unevenness for cell in gains})
    skews = sorted({cell.skew for cell in gains})
    counts = sorted({cell.rows for cell in gains})
    most = max(0.1, *(abs(gain.difference.mean) for gain in gains.values()))
    with drawing():
        figure = new_figure(1.2 + 3.1 * len(counts), 1.3 + 0.75 * len(skews))
        grid = figure.subplots(1, len(counts), squeeze=False, sharey=True)[0]
        shown: Any = None
        for axes, count in zip(grid, counts, strict=True):
            picked = [[gains[Cell(u, s, count)] for u in uneven] for s in skews]
            logs = np.array([[gain.difference.mean for gain in row] for row in picked])
            shown = axes.imshow(
                logs, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto"
            )
            for y, row in enumerate(picked):
                for x, gain in enumerate(row):
                    weight = "bold" if gain.difference.significant else "normal"
                    strong = abs(gain.difference.mean) > 0.65 * most
                    colour = "white" if strong else "black"
                    axes.text(
                        x, y + 0.1, f"{gain.ratio:.2f}", ha="center", weight=weight, color=colour
                    )
                    axes.text(x, y - 0.25, brief(gain.best), ha="center", fontsize=6, color=colour)
            if min(logs.shape) > 1 and logs.min() < 0 < logs.max():
                axes.contour(logs, levels=[0.0], colors="black", linewidths=1.2, alpha=0.5)
            axes.set_xticks(range(len(uneven)), [f"{value:g}" for value in uneven])
            axes.set_yticks(range(len(skews)), [f"{value:.0%}" for value in skews])
            axes.set_title(f"{count} row{'s' if count > 1 else ''} a unit")
            axes.set_xlabel("times slower")
        grid[0].set_ylabel("rows dealt by label")
        bar = figure.colorbar(shown, ax=list(grid), shrink=0.9)
        ticks = [value for value in (0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5)]
        ticks = [value for value in ticks if abs(math.log(value)) <= most]
        bar.set_ticks([math.log(value) for value in ticks], labels=[f"{v:g}" for v in ticks])
    return figure


def brief(arm: str) -> str:
    """An arm's name in few letters."""
    for word, short in SHORT.items():
        arm = arm.replace(word, short)
    return arm


def numbers(
    settings: Any, found: Found, gains: Mapping[str, Mapping[Cell, Gain]]
) -> dict[str, Any]:
    """What the tables are made of, as plain values."""
    return {
        "level": settings.level,
        **summary(gains),
        "cells": [{**asdict(cell), **own} for cell, own in found.items()],
    }


def summary(gains: Mapping[str, Mapping[Cell, Gain]]) -> dict[str, Any]:
    """What follows from the cells."""
    rule = rule_of(gains[SETS[0]])
    return {
        "rule": None if rule is None else asdict(rule),
        "right": {role: 0 if rule is None else right(rule, gains[role]) for role in SETS},
        "sentence": told_of(gains),
        "crossings": [[*place, at] for place, at in crossings(gains[SETS[0]]).items()],
    }
