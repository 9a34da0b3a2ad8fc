"""Where do bias removal and a learned order gain more together? A map, and a rule of thumb.

The regression scene over how many times slower the old machines are, which share of the rows is
dealt by label (the old hold the one, the new the other), and how many rows a unit has, by which the
noise of a gradient falls. In each cell six arms are tuned alike, for each set on instances of its
own, and run on instances apart; what is shown is the time from which on a run stays at the target,
that of Rescaled steps with an order of each worker's own over that of the best of the
others, which is picked on the reported instances, so that the map errs against the pair.

A cell is written when it is measured; run it again with the same settings and it goes on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import OPEN, Difference
from asyncjax.study.result import Result
from experiments import part
from experiments.common import sets
from experiments.joint import training
from experiments.joint.scenes import rows_of
from experiments.joint.training import JOINT, MAPPED
from experiments.joint.worlds import Scene

NAME = "joint_map"
TITLE = "Where do bias removal and a learned order gain more together?"
PAPERS = ()
CLAIMS = ()
TICKS = (0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5)


@dataclass(frozen=True)
class Settings(training.Settings):
    """What is run."""

    output: Path = Path("output/joint_map")
    unevenness: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    skew: tuple[float, ...] = (0.0, 0.5, 1.0)
    rows: tuple[int, ...] = (1, 4, 16)  # of a unit: the noise of a gradient falls with its root
    horizon: float = 600.0
    level: float = 0.99
    trials: int = 4
    rounds: tuple[int, int] = (2, 4)
    records: int = 300
    tuning_instances: int = 5
    first: ClassVar[int] = 1


class Cell(NamedTuple):
    """A place of the map."""

    unevenness: float
    skew: float
    rows: int


def cells_of(settings: Settings) -> tuple[Cell, ...]:
    """All cells; those of one unevenness follow each other, since they share clocks."""
    return tuple(map(Cell._make, product(settings.unevenness, settings.skew, settings.rows)))


def study_of(settings: Settings) -> Result:
    """Measures the map."""
    same = replace(settings, output=Path(), unevenness=(), skew=(), rows=(), commit=False)
    makers = {}
    for cell in cells_of(settings):
        name = f"{cell.unevenness:g} times slower, {cell.skew:.0%} by label, rows {cell.rows}"
        makers[name] = partial(_rows_of, same, name, cell)
    facts = {"level": settings.level, "horizon": settings.horizon}
    return training.in_turn(settings, makers, facts)


def _rows_of(settings: Settings, name: str, cell: Cell) -> pd.DataFrame:
    ends = {"horizon": settings.horizon, "levels": (settings.level,)}
    scene = Scene(name, unevenness=cell.unevenness, skew=cell.skew, batch=cell.rows, **ends)
    rows = rows_of(settings, scene, MAPPED, ())
    return rows.drop(columns="tuned_for").assign(**cell._asdict())


class Gain(NamedTuple):
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
    def word(self) -> str:
        """What the instances say: gain, loss, or no significant difference."""
        if not self.difference.significant:
            return OPEN
        return "gain" if self.difference.high < 0 else "loss"


Gains = Mapping[Cell, Gain]


def gains_of(result: Result, letter: str) -> dict[Cell, Gain]:
    """The gain of each cell on a set, against the arm that is the best of the others there."""
    others = [name for name in result.methods if name != JOINT.name]
    means = {name: np.log(result.values(name, letter)).mean(axis=1) for name in others}
    best: Any = pd.DataFrame(means)[others].idxmin(axis=1)
    cells: Any = result.rows[["scene", *Cell._fields]].drop_duplicates()
    gains = {}
    for scene, *cell in cells.itertuples(index=False, name=None):
        apart = result.difference(JOINT.name, best[scene], letter, where={"scene": scene})
        gains[Cell(*cell)] = Gain(best[scene], apart)
    return gains


@dataclass(frozen=True)
class Rule:
    """Take both together where the unevenness and the skew are large and the rows few enough.

    Attributes:
        unevenness: At least.
        skew: At least.
        rows: At most.
    """

    unevenness: float
    skew: float
    rows: int

    def holds(self, cell: Cell) -> bool:
        """Whether it says that both together gain."""
        is_large = cell.unevenness >= self.unevenness and cell.skew >= self.skew
        return is_large and cell.rows <= self.rows

    def right(self, gains: Gains) -> int:
        """In how many cells it says what the instances tell."""
        return sum(self.holds(cell) == (gain.word == "gain") for cell, gain in gains.items())


def rule_of(gains: Gains) -> Rule | None:
    """The rule of three bounds that is right in most cells, the widest of several.

    None where no cell has a gain.
    """
    if not any(gain.word == "gain" for gain in gains.values()):
        return None
    unevenness, skew, rows = _axes(gains)
    rules = (Rule(*bounds) for bounds in product(unevenness, skew, rows[::-1]))
    return max(rules, key=lambda rule: rule.right(gains))  # the first of several is the widest


def _axes(gains: Gains) -> list[list[Any]]:
    """The values of each axis."""
    return [sorted(set(values)) for values in zip(*gains, strict=True)]


def agreement(one: Gains, other: Gains) -> str:
    """In how many cells two sets say the same, and whether any contradict each other."""
    same = sum(one[cell].word == other[cell].word for cell in one)
    against = sum({one[cell].word, other[cell].word} == {"gain", "loss"} for cell in one)
    return (
        f"Sets A and B say the same in {same} of {len(one)} cells;"
        f" in {against} one says gain and the other loss"
    )


def sentence(rule: Rule | None, gains: Gains, other: Gains) -> str:
    """The rule of thumb of one set, with what it is worth and how often it is right on another.

    Args:
        rule: As it was made.
        gains: What it was made on.
        other: On what it is evaluated.
    """
    if rule is None:
        return "In no cell are both together significantly faster than the best of the others"
    logs: dict[bool, list[float]] = {True: [], False: []}
    for cell, gain in other.items():
        logs[rule.holds(cell)].append(gain.difference.mean)
    _, skew, rows = _axes(gains)
    bounds = [f"the slow half is at least {rule.unevenness:g} times slower"]
    if rule.skew > skew[0]:
        bounds.append(f"at least {rule.skew:.0%} of the rows are dealt by label")
    if rule.rows < rows[-1]:
        bounds.append(f"a gradient has at most {_rows(rule.rows)}")
    elsewhere = f", elsewhere {math.exp(np.mean(logs[False])):.2f}" if logs[False] else ""
    return (
        f"Take both together where {' and '.join(bounds)}: there they need"
        f" {math.exp(np.mean(logs[True])):.2f} of the time of the best other arm{elsewhere} (made"
        f" on set A, where it is right in {rule.right(gains)} of {len(gains)} cells; these figures"
        f" are those of set B, where it is right in {rule.right(other)})"
    )


def _rows(count: int) -> str:
    return f"{count} row{'s' if count > 1 else ''}"


def answer(result: Result) -> str:
    """The rule of thumb and how far the sets agree."""
    one, other = (gains_of(result, letter) for letter in result.sets)
    return f"{sentence(rule_of(one), one, other)}. {agreement(one, other)}."


def right(result: Result) -> dict[str, int]:
    """In how many cells of each set the rule of thumb is right, and of how many."""
    gains = {letter: gains_of(result, letter) for letter in result.sets}
    rule = rule_of(gains["A"])
    right = {letter: rule.right(by_cell) if rule else 0 for letter, by_cell in gains.items()}
    return right | {"cells": len(gains["A"])}


FACTS = {"right": right, "sentence": answer}


def map_table(result: Result) -> results.Table:
    """The ratio on both sets by skew and rows, with a star where it may be 1."""
    both = [gains_of(result, letter) for letter in result.sets]
    (uneven, skews, counts), rows = _axes(both[0]), []
    for count, skew in product(counts, skews):
        cells = []
        for slower in uneven:
            gains = [by_cell[Cell(slower, skew, count)] for by_cell in both]
            ratios = (f"{g.ratio:.2f}{'' if g.difference.significant else '*'}" for g in gains)
            cells.append(f"{', '.join(ratios)} ({brief(gains[0].best)})")
        rows.append([f"{skew:.0%}", str(count), *cells])
    return part.table(
        ["rows dealt by label", "rows of a unit", *(f"{times:g} times slower" for times in uneven)],
        rows,
        "Both together over the best other arm (its name is that of set A), set A, set B; a"
        " star: the interval holds 1.",
        6,
    )


TABLES = {"map": map_table, "spread": sets.spread_of}


def brief(arm: str) -> str:
    """An arm's name in few letters."""
    return arm.replace("synchronous", "sync").replace("reshuffled", "resh.")


def map_figure(result: Result) -> Illustration:
    """A panel for each number of rows: skew over unevenness, set A."""
    gains = gains_of(result, "A")
    uneven, skews, counts = _axes(gains)
    most = max(0.1, *(abs(gain.difference.mean) for gain in gains.values()))
    with drawing():
        figure = new_figure(1.2 + 3.1 * len(counts), 1.3 + 0.75 * len(skews))
        grid = figure.subplots(1, len(counts), squeeze=False, sharey=True)[0]
        shown: Any = None
        for axes, count in zip(grid, counts, strict=True):
            picked = [[gains[Cell(u, s, count)] for u in uneven] for s in skews]
            logs = np.array([[gain.difference.mean for gain in row] for row in picked])
            look: Any = {"origin": "lower", "cmap": "RdBu_r", "aspect": "auto"}
            shown = axes.imshow(logs, vmin=-most, vmax=most, **look)
            for (y, x), mean in np.ndenumerate(logs):
                gain = picked[y][x]
                ink = {"ha": "center", "color": "white" if abs(mean) > 0.65 * most else "black"}
                weight = "bold" if gain.difference.significant else "normal"
                axes.text(x, y + 0.1, f"{gain.ratio:.2f}", weight=weight, **ink)
                axes.text(x, y - 0.25, brief(gain.best), fontsize=6, **ink)
            if min(logs.shape) > 1 and logs.min() < 0 < logs.max():
                axes.contour(logs, levels=[0.0], colors="black", linewidths=1.2, alpha=0.5)
            axes.set_xticks(range(len(uneven)), [f"{value:g}" for value in uneven])
            axes.set_yticks(range(len(skews)), [f"{value:.0%}" for value in skews])
            axes.set(title=f"{_rows(count)} a unit", xlabel="times slower")
        grid[0].set_ylabel("rows dealt by label")
        bar = figure.colorbar(shown, ax=list(grid), shrink=0.9)
        ticks = [value for value in TICKS if abs(math.log(value)) <= most]
        bar.set_ticks([math.log(value) for value in ticks], labels=[f"{v:g}" for v in ticks])
    return Illustration(
        figure,
        "Time of both together over that of the best other arm, set A; bold: significantly"
        " different from 1, line: where the mean crosses 1.",
    )


FIGURES = {"ratio": map_figure}


if __name__ == "__main__":
    part.main(NAME)
