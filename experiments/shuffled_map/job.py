"""Where does shuffled dispatch get further than pure in the same time?

Workers of very different speed; the slow half alone holds one of two classes (AsGrad's setting).
Pure dispatch hears fast workers more often, so it ends at the optimum of another problem; shuffled
dispatch hears all alike, and so makes fewer updates in the same time. Both get the same trials of
their step size, for every unevenness and every horizon by itself, on instances that are not shown;
what is shown are two disjoint sets of instances. The map tells who is ahead, and where they cross.

A run that was stopped goes on where it was: every cell is kept in the output folder.

Source: Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452).
"""

import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common.parts import Part, run_alone
from experiments.shuffled_map.runs import Settings, run_cells

NAME = "shuffled_map"
TITLE = "Where does shuffled dispatch get further than pure in the same time?"
PAPERS = ("Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",)
COMMAND = "python -m experiments.shuffled_map --commit"
CLAIM = "shuffled dispatch is further than pure in the same time"


def _further(**where: Any) -> list[Any]:
    """Shuffled's gap is below pure's in each cell with uneven workers."""
    return [less("shuffled", than="pure", each=True, unevenness=lambda u: u > 1, **where)]


CLAIMS = (
    Claim(CLAIM, _further(), "Islamov et al. 2024", level=0.95),
    *(
        Claim(f"{CLAIM}, time {time:g}", _further(time=time), level=0.95)
        for time in Settings().horizons
    ),
    Claim(
        "pure is further at time 40",
        [less("pure", than="shuffled", each=True, time=40.0)],
        level=0.95,
    ),
)


def study_of(settings: Settings) -> Result:
    """Runs all cells that are missing."""
    return as_rows(settings, run_cells(settings, partial(print, flush=True)))


def as_rows(settings: Settings, cells: Mapping[str, Any]) -> Result:
    """A row a run that is shown: its gap at the time for which its step was chosen."""
    rows = [
        {
            "scene": f"{data}, unevenness {unevenness}",
            "set": letter,
            "instance": instance,
            "method": method,
            "tuned_for": f"time {time:g}",
            "data": data,
            "unevenness": float(unevenness),
            "time": time,
            "step": cell["steps"][at],
            "gap": gap,
            "trials": cell["trials"][at],
            "at_edge": cell["at_edge"][at],
        }
        for data, by_unevenness in cells.items()
        for unevenness, by_method in by_unevenness.items()
        for method, cell in by_method.items()
        for letter in cell["gaps"]
        for at, time in enumerate(settings.horizons)
        for instance, gap in enumerate(cell["gaps"][letter][at])
    ]
    names = ("instances", "tuning_instances", "n_workers", "rows")
    facts = {name: getattr(settings, name) for name in names}
    return Result(pd.DataFrame(rows), "gap", facts, settings.seed)


def apart(result: Result) -> Any:
    """Shuffled's gap over pure's in every cell and set, with `data`, `unevenness` and `time`."""
    cells = result.rows[[*result.cell, "data", "unevenness", "time"]].drop_duplicates()
    return result.ratio("shuffled", over="pure", each=True).merge(cells)


def crossings(result: Result) -> Any:
    """From when on shuffled is ahead: `data`, `unevenness`, `set`, `crossing`.

    Between two times on a straight line in their logarithm; 0 where it is ahead at all of them,
    infinity where pure is ahead at the last.
    """
    found = [
        (*key, crossing(list(rows["time"]), list(np.log(rows["ratio"]))))
        for key, rows in apart(result).groupby(["data", "unevenness", "set"])
    ]
    return pd.DataFrame(found, columns=["data", "unevenness", "set", "crossing"])


def crossing(times: Sequence[float], means: Sequence[float]) -> float:
    """From when on the means stay below 0.

    Example:
        >>> crossing([10.0, 100.0, 1000.0], [2.0, 1.0, -1.0])
        316.22776601683796
        >>> crossing([10.0, 100.0], [-2.0, -1.0]), crossing([10.0, 100.0], [1.0, 2.0])
        (0.0, inf)
    """
    last = max((at for at, mean in enumerate(means) if mean >= 0), default=-1)
    if last < 0:
        return 0.0
    if last == len(means) - 1:
        return math.inf
    low, high = np.log(times[last]), np.log(times[last + 1])
    share = means[last] / (means[last] - means[last + 1])
    return float(np.exp(low + share * (high - low)))


def cells_won(result: Result) -> dict[str, int]:
    """How many cells each method wins in all sets, and in how many the sets disagree."""
    rows = apart(result)
    ahead = np.where(rows["ratio"] < 1, "shuffled", "pure")
    rows["ahead"] = np.where(rows["significant"], ahead, "neither")
    words = [set(cell["ahead"]) for _, cell in rows.groupby(result.cell)]
    count = {name: words.count({name}) for name in ("shuffled", "pure", "neither")}
    opposite = sum({"shuffled", "pure"} <= own for own in words)
    split = len(words) - sum(count.values())
    return {**count, "all": len(words), "one set only": split, "opposite": opposite}


def seen_crossings(result: Result) -> dict[str, float]:
    """The first and the last crossing that was seen where workers are uneven."""
    rows = crossings(result).query("unevenness > 1 and 0 < crossing < inf")
    return {"first": rows["crossing"].min(), "last": rows["crossing"].max()}


def answer(result: Result) -> str:
    """The verdict of both sets in words, what the cells say, and when the two cross."""
    words = " and ".join(dict.fromkeys(result.verdict(CLAIMS[0]).values()))
    won, seen = cells_won(result), seen_crossings(result)
    return (
        f"That {CLAIM}: {words}. Of {won['all']} cells shuffled is ahead in {won['shuffled']} in"
        f" both sets, pure in {won['pure']}, neither in {won['neither']}; {won['one set only']}"
        f" differ significantly in one set only, {won['opposite']} of them in opposite ways. They"
        f" cross between time {seen['first']:.3g} and {seen['last']:.3g} where workers are uneven."
    )


def ratio_table(result: Result) -> results.Table:
    """Shuffled's gap over pure's in every cell, set by set."""
    wide = apart(result).pivot(index=["data", "unevenness"], columns=["time", "set"], values="text")
    wide = wide.sort_index(axis=1)
    return results.Table(
        (
            results.Column("data", right=False),
            results.Column("slowest / fastest"),
            *(results.Column(f"time {time:g}, set {letter}") for time, letter in wide.columns),
        ),
        tuple((*index, *cells) for index, *cells in wide.itertuples()),
        f"Shuffled's gap over pure's, geometric mean over {result.facts['instances']} instances and"
        " its 95 % interval; a star where the two do not differ significantly. Below 1 shuffled is"
        " ahead.",
    )


def crossing_table(result: Result) -> results.Table:
    """The crossing line."""
    wide = crossings(result).pivot(index="unevenness", columns=["data", "set"], values="crossing")
    times = result.rows["time"]

    def moment(time: float) -> str:
        if time == 0:
            return f"before {times.min():g}"
        return f"after {times.max():g}" if math.isinf(time) else f"{time:.3g}"

    return results.Table(
        (
            results.Column("slowest / fastest"),
            *(results.Column(f"{data}, set {letter}") for data, letter in wide.columns),
        ),
        tuple((index, *map(moment, cells)) for index, *cells in wide.itertuples()),
        "The crossing line: from when on shuffled is ahead in the mean, in jobs of the fastest"
        " worker.",
    )


def step_table(result: Result) -> results.Table:
    """The steps that were chosen, from how many trials."""
    rows = result.select(set="A", instance=0)
    heads = ("data", "slowest / fastest", "dispatch", "steps, by time", "trials", "at an edge")
    return results.Table(
        tuple(results.Column(head, right=head not in ("data", "dispatch")) for head in heads),
        tuple(
            (
                *key,
                ", ".join(f"{step:.3g}" for step in cell["step"]),
                f"{cell['trials'].min()} to {cell['trials'].max()}",
                int(cell["at_edge"].sum()),
            )
            for key, cell in rows.groupby(["data", "unevenness", "method"])
        ),
        f"Steps chosen on {result.facts['tuning_instances']} other instances, for each time by"
        " itself.",
    )


TABLES = {"ratios": ratio_table, "crossing": crossing_table, "steps": step_table}
FACTS = {
    "crossings": seen_crossings,
    "cells": cells_won,
    "times": lambda result: list(result.rows["time"].unique()),
    "uneven": lambda result: [u for u in result.rows["unevenness"].unique() if u > 1],
}


def the_map(result: Result) -> Illustration:
    """The maps in one figure: a row a data set, a column a set of instances."""
    caption = (
        "Gap of shuffled over gap of pure at equal time, geometric mean over"
        f" {result.facts['instances']} instances: blue where shuffled is ahead, red where pure is,"
        " grey numbers where the instances do not tell. The line is where they cross."
    )
    rows = apart(result)
    names = list(rows["data"].unique())
    with drawing():
        figure = new_figure(9.0, 3.3 * len(names) + 0.3)
        grid = figure.subplots(
            len(names), len(result.sets), squeeze=False, sharex=True, sharey=True
        )
        for (data, letter), axes in zip(
            ((data, letter) for data in names for letter in result.sets), grid.flat, strict=True
        ):
            _panel(axes, rows[(rows["data"] == data) & (rows["set"] == letter)])
            axes.set_title(f"{data}, set {letter}")
        for axes in grid[-1]:
            axes.set_xlabel("slowest over fastest mean time")
        for axes in grid[:, 0]:
            axes.set_ylabel("time [job of the fastest worker]")
    return Illustration(figure, caption)


def _panel(axes: Any, rows: Any) -> None:
    """The ratios of one data set and set of instances, with the line where they are 1."""
    wide = rows.pivot(index="time", columns="unevenness")
    cells, limit = np.log(wide["ratio"].to_numpy()), np.log(12.0)
    axes.pcolormesh(cells, cmap="RdBu_r", vmin=-limit, vmax=limit, alpha=0.75)
    for (y, x), significant in np.ndenumerate(wide["significant"].to_numpy(bool)):
        axes.text(
            x + 0.5,
            y + 0.5,
            f"{np.exp(cells[y, x]):.2g}",
            color="black" if significant else "grey",
            style="normal" if significant else "italic",
            ha="center",
            va="center",
            zorder=4,
        )
    if cells.min() < 0 < cells.max() and min(cells.shape) > 1:
        y, x = (np.arange(size) + 0.5 for size in cells.shape)
        axes.contour(x, y, cells, levels=[0.0], colors="black", linewidths=1.8, zorder=2)
    for ticks, labels in ((axes.set_xticks, wide["ratio"].columns), (axes.set_yticks, wide.index)):
        ticks(np.arange(len(labels)) + 0.5, [f"{label:g}" for label in labels])


FIGURES = {"map": the_map}


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, the map, the answer."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
