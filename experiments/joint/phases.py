"""Where do bias removal and a learned order gain more together? A map, and a rule of thumb.

The regression scene over how many times slower the old machines are, which share of the rows is
dealt by label (the old hold the one, the new the other), and how many rows a unit has, by which the
noise of a gradient falls. In each cell six arms are tuned alike and run on instances apart; what is
shown is the time of Rescaled steps with an order of each worker's own over that of the best of the
others, which is picked on the reported instances, so that the map errs against the pair.

A cell is written when it is measured; run it again with the same settings and it goes on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.result import Result
from asyncjax.study.statistics import OPEN, Difference
from experiments import part
from experiments.joint.arms import JOINT, MAPPED
from experiments.joint.scenes import table, trained
from experiments.joint.training import Plans, at_least, drawn, in_turn, watched
from experiments.joint.worlds import Scene, clock_of, world_of

NAME = "joint_map"
TITLE = "Where do bias removal and a learned order gain more together?"
PAPERS = ()
NOTE = FIRST_CROSSING
CLAIMS = ()
AXES = ("unevenness", "skew", "rows")
SHORT = {"synchronous": "sync", "reshuffled": "resh."}
TICKS = (0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5)


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/joint_map")
    seed: int = 0  # the part's own base is one more, so that no scene has its instances
    unevenness: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    skew: tuple[float, ...] = (0.0, 0.5, 1.0)
    rows: tuple[int, ...] = (1, 4, 16)  # of a unit: the noise of a gradient falls with its root
    horizon: float = 600.0
    level: float = 0.99
    tuning: int = 10  # instances
    instances: int = 10  # of each set
    trials: int = 4  # of an arm in a round
    rounds: tuple[int, int] = (2, 4)
    records: int = 300  # of a curve
    commit: bool = False  # also write the rows where committed ones are

    @property
    def base(self) -> int:
        """Base of all seeds."""
        return self.seed + 1


class Cell(NamedTuple):
    """A place of the map."""

    unevenness: float
    skew: float
    rows: int

    @property
    def name(self) -> str:
        """As a scene."""
        return f"{self.unevenness:g} times slower, {self.skew:.0%} by label, rows {self.rows}"


def cells_of(settings: Settings) -> tuple[Cell, ...]:
    """All cells; those of one unevenness follow each other, since they share clocks.

    Raises:
        ValueError: A number is out of range.
    """
    at_least(settings, tuning=1, instances=2, trials=2, records=40)
    for name, low, high in (("unevenness", 1, 1e3), ("skew", 0, 1), ("rows", 1, 1024)):
        values = getattr(settings, name)
        if not values or not all(low <= value <= high for value in values):
            raise ValueError(f"{name} must be numbers from {low} to {high:g}, got {values}")
    return tuple(Cell(*own) for own in product(settings.unevenness, settings.skew, settings.rows))


def study_of(settings: Settings) -> Result:
    """Measures the map.

    Raises:
        ValueError: A number is out of range.
    """
    same = replace(settings, output=Path(), unevenness=(), skew=(), rows=(), commit=False)
    made = {cell.name: partial(rows_of, same, cell) for cell in cells_of(settings)}
    return as_result(settings, in_turn(settings, made))


def as_result(settings: Settings, rows: Any) -> Result:
    """The rows of all cells."""
    facts = {"level": settings.level, "horizon": settings.horizon}
    return Result(rows, "value", facts, settings.seed, cut=("value",))


def rows_of(settings: Settings, cell: Cell) -> pd.DataFrame:
    """What all arms did in a cell."""
    own: dict[str, Any] = {"unevenness": cell.unevenness, "skew": cell.skew, "batch": cell.rows}
    scene = Scene(cell.name, horizon=settings.horizon, levels=(settings.level,), **own)
    worlds = [world_of(scene, instance) for instance in drawn(settings)]
    goals = tuple(map(str, scene.levels))
    rows = trained(settings, scene, worlds, plans_of(settings, cell.unevenness), MAPPED, goals)
    return pd.DataFrame(rows).drop(columns="tuned_for").assign(**cell._asdict())


@lru_cache(maxsize=1)
def plans_of(settings: Settings, unevenness: float) -> Plans:
    """Plans, which cells of one unevenness share."""
    scene = Scene("", unevenness=unevenness)
    crews = [(clock_of(scene, one), one.noise()) for one in drawn(settings)]
    return watched(crews, settings.horizon, settings.records)


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
    def significant(self) -> bool:
        """Whether the interval excludes 1."""
        return self.difference.significant

    @property
    def word(self) -> str:
        """What the instances say: gain, loss, or no significant difference."""
        if not self.significant:
            return OPEN
        return "gain" if self.difference.high < 0 else "loss"


Gains = Mapping[Cell, Gain]


def gains_of(result: Result, letter: str) -> dict[Cell, Gain]:
    """The gain of each cell on a set, against the arm that is the best of the others there."""
    others = [name for name in result.methods if name != JOINT.name]
    means = {name: np.log(result.values(name, letter)).mean(axis=1) for name in others}
    places: Any = result.rows[["scene", *AXES]].drop_duplicates().to_numpy().tolist()
    best: Any = pd.DataFrame(means)[others].idxmin(axis=1)
    return {
        Cell(*place): Gain(
            best[scene], result.difference(JOINT.name, best[scene], letter, where={"scene": scene})
        )
        for scene, *place in places
    }


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
        return (
            cell.unevenness >= self.unevenness and cell.skew >= self.skew and cell.rows <= self.rows
        )

    def right(self, gains: Gains) -> int:
        """In how many cells it says what the instances tell."""
        return sum(self.holds(cell) == (gain.word == "gain") for cell, gain in gains.items())


def rule_of(gains: Gains) -> Rule | None:
    """The rule of three bounds that is right in most cells, the widest of several.

    None where no cell has a gain.
    """
    if not any(gain.word == "gain" for gain in gains.values()):
        return None
    unevenness, skew, rows = (sorted(set(values)) for values in zip(*gains, strict=True))
    rules = (Rule(*bounds) for bounds in product(unevenness, skew, rows[::-1]))
    return max(rules, key=lambda rule: rule.right(gains))  # the first of several is the widest


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
    inside = [gain.difference.mean for cell, gain in other.items() if rule.holds(cell)]
    outside = [gain.difference.mean for cell, gain in other.items() if not rule.holds(cell)]
    bounds = [f"the slow half is at least {rule.unevenness:g} times slower"]
    if rule.skew > min(cell.skew for cell in gains):
        bounds.append(f"at least {rule.skew:.0%} of the rows are dealt by label")
    if rule.rows < max(cell.rows for cell in gains):
        bounds.append(f"a gradient has at most {rule.rows} row{'s' if rule.rows > 1 else ''}")
    elsewhere = f", elsewhere {math.exp(np.mean(outside)):.2f}" if outside else ""
    return (
        f"Take both together where {' and '.join(bounds)}: there they need"
        f" {math.exp(np.mean(inside)):.2f} of the time of the best other arm{elsewhere} (made on"
        f" set A, where it is right in {rule.right(gains)} of {len(gains)} cells; these figures are"
        f" those of set B, where it is right in {rule.right(other)})"
    )


def answer(result: Result) -> str:
    """The rule of thumb and how far the sets agree."""
    one, other = (gains_of(result, letter) for letter in result.sets)
    return f"{sentence(rule_of(one), one, other)}. {agreement(one, other)}."


def right(result: Result) -> dict[str, int]:
    """In how many cells of each set the rule of thumb is right, and of how many."""
    gains = {letter: gains_of(result, letter) for letter in result.sets}
    rule = rule_of(gains["A"])
    found = {letter: rule.right(own) if rule else 0 for letter, own in gains.items()}
    return found | {"cells": len(gains["A"])}


FACTS = {"right": right, "sentence": answer}


def map_table(result: Result) -> results.Table:
    """The ratio on both sets by skew and rows, with a star where it may be 1."""
    both = [gains_of(result, letter) for letter in result.sets]
    uneven, rows = sorted({cell.unevenness for cell in both[0]}), []
    for count, skew in sorted({(cell.rows, cell.skew) for cell in both[0]}):
        cells = []
        for value in uneven:
            picked = [gains[Cell(value, skew, count)] for gains in both]
            ratios = (f"{own.ratio:.2f}{'' if own.significant else '*'}" for own in picked)
            cells.append(f"{', '.join(ratios)} ({brief(picked[0].best)})")
        rows.append([f"{skew:.0%}", str(count), *cells])
    return table(
        ["rows dealt by label", "rows of a unit", *(f"{own:g} times slower" for own in uneven)],
        rows,
        "Both together over the best other arm (its name is that of set A), set A, set B; a"
        " star: the interval holds 1.",
        6,
    )


TABLES = {"map": map_table}


def brief(arm: str) -> str:
    """An arm's name in few letters."""
    for word, short in SHORT.items():
        arm = arm.replace(word, short)
    return arm


def map_figure(result: Result) -> Illustration:
    """A panel for each number of rows: skew over unevenness, set A."""
    gains = gains_of(result, "A")
    uneven, skews, counts = (sorted(set(values)) for values in zip(*gains, strict=True))
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
                weight = "bold" if gain.significant else "normal"
                axes.text(x, y + 0.1, f"{gain.ratio:.2f}", weight=weight, **ink)
                axes.text(x, y - 0.25, brief(gain.best), fontsize=6, **ink)
            if min(logs.shape) > 1 and logs.min() < 0 < logs.max():
                axes.contour(logs, levels=[0.0], colors="black", linewidths=1.2, alpha=0.5)
            axes.set_xticks(range(len(uneven)), [f"{value:g}" for value in uneven])
            axes.set_yticks(range(len(skews)), [f"{value:.0%}" for value in skews])
            axes.set_title(f"{count} row{'s' if count > 1 else ''} a unit")
            axes.set_xlabel("times slower")
        grid[0].set_ylabel("rows dealt by label")
        bar = figure.colorbar(shown, ax=list(grid), shrink=0.9)
        ticks = [value for value in TICKS if abs(math.log(value)) <= most]
        bar.set_ticks([math.log(value) for value in ticks], labels=[f"{v:g}" for v in ticks])
    return Illustration(
        figure,
        "Time of both together over that of the best other arm, set A; bold: told apart from 1,"
        " line: where the mean crosses 1.",
    )


FIGURES = {"ratio": map_figure}


if __name__ == "__main__":
    part.main(NAME)
