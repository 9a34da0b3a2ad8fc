"""Where does shuffled dispatch get further than pure in the same time?

Workers of very different speed; the slow half alone holds one of two classes (AsGrad's setting).
Pure dispatch hears fast workers more often, so it ends at the optimum of another problem; shuffled
dispatch hears all alike, and so makes fewer updates in the same time. Both get the same trials of
their step size, for every unevenness and every horizon by itself, on instances that are not shown;
what is shown are two disjoint sets of instances. The map tells who is ahead, and where they cross.

Logistic regression of two classes with AsGrad's penalty, 0.1 sum x^2 / (1 + x^2), exact gradients
of small shards. Workers 0 to n - 1 are ordered by their mean times, which rise from 1 to the
unevenness; the faster half holds one class, the slower half the other. An instance draws the rows,
which class is whose, the mean times and the first model; its noise is the times from job to job.

What is measured is the gap f(x) - f*, mean over the last tenth of the time, f the mean over workers
and f* the lowest value that L-BFGS finds in float64. (AsGrad shows the norm of the gradient, which
is also small where a large step has thrown the model out to where the penalty is flat.)

A run that was stopped goes on where it was: every cell is kept in the output folder.

Source: Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, traces
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study import search
from asyncjax.study.protocol import TUNING_OF, Seeds
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import lanes, sets
from experiments.common.data import rows_of
from experiments.common.kept_rows import once
from experiments.common.methods import pure, server_with
from experiments.common.sets import SETS

NAME = "shuffled_map"
TITLE = "Where does shuffled dispatch get further than pure in the same time?"
PAPERS = ("Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",)
CLAIM = "shuffled dispatch is further than pure in the same time"
PENALTY = 0.1
FLOOR = 1e-7  # gaps below are rounding
MOMENTS = 10  # points over which a gap is averaged
METHODS = {"pure": pure, "shuffled": server_with(dispatch=traces.shuffled())}


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/shuffled_map")
    seed: int = 0
    data: tuple[str, ...] = ("breast cancer", "digits")
    unevenness: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)  # slowest over fastest mean time
    horizons: tuple[float, ...] = (40.0, 120.0, 360.0, 1080.0)  # mean jobs of the fastest worker
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = 4  # step sizes that a method tries in a round of tuning
    rounds: tuple[int, int] = (3, 6)
    steps: tuple[float, float] = (2.0**-5, 4.0)  # ends of the grid, which has 2 * trials values
    n_workers: int = 10
    rows: int = 240  # of an instance, half of each class
    window: float = 0.1  # share of the time over which a gap is averaged
    records: int = 540
    commit: bool = False  # also write rows and figures where the page is made from


def _further(**where: Any) -> list[Any]:
    """Shuffled's gap is below pure's in each cell with uneven workers."""
    return [less("shuffled", than="pure", each=True, unevenness=lambda u: u > 1, **where)]


CLAIMS = (
    Claim(CLAIM, _further(), "Islamov et al. 2024"),
    *(Claim(f"{CLAIM}, time {time:g}", _further(time=time)) for time in Settings().horizons),
    Claim(
        "pure is further at time 40",
        [less("pure", than="shuffled", each=True, time=40.0)],
    ),
)


def study_of(settings: Settings) -> Result:
    """Runs all cells that are missing: one row per run that is shown.

    Its gap is that at the time for which its step was chosen.
    """
    asked = replace(settings, output=Path(), data=(), unevenness=(), commit=False)
    keys = [(d, u, m) for d in settings.data for u in settings.unevenness for m in METHODS]
    tables = []
    for data, unevenness, method in keys:
        cell = partial(cell_rows, asked, data, unevenness, method)
        tables.append(once(settings.output / "cells", cell))
        words = f"{data}, unevenness {unevenness:g}, {method}"
        print(f"[{len(tables)}/{len(keys)}] {words}", flush=True)
    names = ("instances", "tuning_instances", "n_workers", "rows")
    facts = {name: getattr(settings, name) for name in names} | {"tuned apart": True}
    return Result(pd.concat(tables, ignore_index=True), "gap", facts, settings.seed)


def cell_rows(settings: Settings, data: str, unevenness: float, method: str) -> pd.DataFrame:
    """A method at one unevenness: for each set and horizon the chosen step, and the gaps."""
    field = field_of(settings, data)
    gaps = gaps_of(settings, field, method, unevenness)
    known: dict[tuple[int, float], np.ndarray] = {}

    def run(runs: list[tuple[int, float]]) -> None:
        """Runs instances with steps, all in one call, where that was not done before."""
        if missing := list(dict.fromkeys(one for one in runs if one not in known)):
            known.update(zip(missing, gaps(missing), strict=True))

    def scores(asked: Mapping[Any, Sequence[search.Settings]], _: int) -> dict[Any, Any]:
        """Mean logarithm of the gap at the time of a goal, on the tuning instances of its set."""
        runs = {
            pair: [
                [(at, s["step"]) for at in field.numbers(TUNING_OF[pair[1][0]])] for s in several
            ]
            for pair, several in asked.items()
        }
        run([one for several in runs.values() for group in several for one in group])
        return {
            pair: [np.mean([np.log(known[one][pair[1][1]]) for one in group]) for group in several]
            for pair, several in runs.items()
        }

    space = {"step": {"step": search.log_range(*settings.steps, 2 * settings.trials)}}
    goals = [*product(SETS.values(), range(len(settings.horizons)))]
    how = {"trials": settings.trials, "rounds": settings.rounds, "seed": settings.seed}
    roles = {(role, at): TUNING_OF[role] for role, at in goals}
    found = search.search(space, roles, scores, **how)
    steps = {goal: found["step", goal].best.settings["step"] for goal in goals}
    run([(at, step) for (role, _), step in steps.items() for at in field.numbers(role)])
    return pd.DataFrame(
        {
            "scene": f"{data}, unevenness {unevenness:g}",
            "set": letter,
            "instance": instance,
            "method": method,
            "tuned_for": f"time {time:g}",
            "data": data,
            "unevenness": unevenness,
            "time": time,
            "step": steps[role, at],
            "gap": known[number, steps[role, at]][at],
            "trials": len(found["step", (role, at)].trials),
            "at_edge": bool(found["step", (role, at)].edges),
        }
        for letter, role in SETS.items()
        for at, time in enumerate(settings.horizons)
        for instance, number in enumerate(field.numbers(role))
    )


@dataclass(frozen=True, eq=False)
class Drawn:
    """An instance: its rows by worker, its first model, its lowest value."""

    features: np.ndarray  # float32[rows, d], the rows of worker 0 first
    signs: np.ndarray  # float32[rows], -1 or 1
    start: np.ndarray  # float32[d]
    lowest: float

    def problem(self, n_workers: int) -> problems.Problem:
        """Logistic regression over contiguous shards of equal size."""
        how = {"n_workers": n_workers, "nonconvex": PENALTY, "start": self.start}
        return problems.logistic(self.features, self.signs, **how)


def drawn(settings: Settings, name: str, instance: Seeds) -> Drawn:
    """An instance; digits 0 to 4 are one class, and each worker holds few of them."""
    features, labels = rows_of(name)
    generator = np.random.default_rng(instance.data)
    class_of = (labels >= 5 if name == "digits" else labels >= 1).astype(int)
    picked = []
    for side in generator.permutation(2):  # the first is that of the faster half
        groups = [np.flatnonzero((class_of == side) & (labels == label)) for label in range(10)]
        groups = [generator.permutation(group) for group in groups if group.size]
        share = -(-(settings.rows // 2) // len(groups))
        picked += [groups[g][:share] for g in generator.permutation(len(groups))]
    rows = np.concatenate(picked)
    signs = np.where(class_of[rows] == 1, 1.0, -1.0)
    features = features[rows]
    start = np.random.default_rng(instance.model).normal(size=features.shape[1])
    lowest = min(minimum(features, signs, begin) for begin in (start, 0 * start))
    return Drawn(
        features.astype(np.float32), signs.astype(np.float32), start.astype(np.float32), lowest
    )


def value(features: np.ndarray, signs: np.ndarray, models: np.ndarray) -> np.ndarray:
    """The objective of models float[..., d], float64[...]; shards are of equal size."""
    scores = np.asarray(models, np.float64) @ np.asarray(features, np.float64).T
    squares = np.square(np.asarray(models, np.float64))
    losses = np.logaddexp(0.0, -signs * scores).mean(-1)
    return losses + PENALTY * (squares / (1.0 + squares)).sum(-1)


def minimum(features: np.ndarray, signs: np.ndarray, start: np.ndarray) -> float:
    """The lowest value found from a start, by L-BFGS in float64."""
    from scipy.optimize import minimize

    def graded(x: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = -signs / (1.0 + np.exp(np.clip(signs * (features @ x), -500, 500)))
        grad = slopes @ features / len(signs) + PENALTY * 2 * x / (1 + x**2) ** 2
        return float(value(features, signs, x)), grad

    options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9}
    return float(minimize(graded, start, jac=True, method="L-BFGS-B", options=options).fun)


def workers(settings: Settings, instance: Seeds, unevenness: float) -> clocks.Clock:
    """Gamma-distributed times, the fastest worker first; logarithms of the means are uniform.

    The means of an instance at one unevenness are powers of those at another.
    """
    powers = np.random.default_rng(instance.clock).uniform(size=max(settings.n_workers - 2, 0))
    powers = np.sort(np.concatenate([[0.0], powers, [1.0]]))[: settings.n_workers]
    return clocks.gamma(4.0, unevenness**powers)


@dataclass(frozen=True, eq=False)
class Field:
    """All instances of one data set: set A, set B, then those for tuning of each."""

    instances: tuple[Seeds, ...]
    drawn: tuple[Drawn, ...]
    joined: lanes.Field

    def numbers(self, role: str) -> list[int]:
        """Places of the instances of a role."""
        return sets.places(self.instances, role)


@lru_cache
def field_of(settings: Settings, data: str) -> Field:
    """The instances of a data set, side by side."""
    instances = sets.drawn(settings)
    every = tuple(drawn(settings, data, one) for one in instances)
    joined = lanes.field_of([one.problem(settings.n_workers) for one in every])
    return Field(instances, every, joined)


def gaps_of(
    settings: Settings, field: Field, method: str, unevenness: float
) -> Callable[[list[tuple[int, float]]], np.ndarray]:
    """A function of runs that returns their gaps at every horizon, float64[runs, horizons].

    A run is the number of an instance and a step size. Steps multiply the weights of a trace, so
    that all runs of all cells share one program.
    """
    every = traces.lasting(
        lambda n: [
            METHODS[method](workers(settings, one, unevenness), n, jax.random.key(one.noise()))
            for one in field.instances
        ],
        max(settings.horizons),
        multiple_of=settings.records,
    )
    width = 2 * settings.trials * settings.tuning_instances  # of every call: one compilation

    def lane(number: int, step: float) -> lanes.Lane:
        trace = every[number]._replace(weight=every[number].weight * np.float32(step))
        return lanes.Lane(number, trace, jax.random.key(0))  # gradients are exact

    def gaps(runs: list[tuple[int, float]]) -> np.ndarray:
        rows = []
        for begin in range(0, len(runs), width):
            some = runs[begin : begin + width]
            ran = lanes.replayed(
                field.joined,
                [lane(*run) for run in some + some[-1:] * (width - len(some))],
                optax.sgd,
                1.0,
                records=settings.records,
                gradients=1.5 * settings.n_workers * max(settings.horizons),  # of even workers
            )
            rows += [
                read_off(settings, field.drawn[number], models, time)
                for (number, _), models, time in zip(some, ran.models, ran.time, strict=False)
            ]
        return np.array(rows)

    return gaps


def read_off(settings: Settings, one: Drawn, models: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The gap of one run at every horizon, float64[H]; infinity where it has diverged.

    Args:
        settings: With the horizons and the window.
        one: The instance.
        models: float[R, d].
        time: float[R], of the records.
    """
    moments = np.linspace(1.0 - settings.window, 1.0, MOMENTS + 1)[1:]
    places = np.searchsorted(time, np.outer(settings.horizons, moments), side="right")
    models = np.concatenate([one.start[None], models])[places]  # [H, moments, d]
    with np.errstate(all="ignore"):
        gaps = value(one.features, one.signs, models).mean(-1) - one.lowest
    return np.where(np.isfinite(gaps), np.maximum(gaps, FLOOR), np.inf)


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
    opposite = sum({"shuffled", "pure"} <= winners for winners in words)
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
    heads = (f"time {time:g}, set {letter}" for time, letter in wide.columns)
    rows = [(*index, *cells) for index, *cells in wide.itertuples()]
    caption = (
        f"Shuffled's gap over pure's, geometric mean over {result.facts['instances']} instances and"
        " its 95 % interval; a star where the two do not differ significantly. Below 1 shuffled is"
        " ahead."
    )
    return part.table(("data", "slowest / fastest", *heads), rows, caption)


def crossing_table(result: Result) -> results.Table:
    """The crossing line."""
    wide = crossings(result).pivot(index="unevenness", columns=["data", "set"], values="crossing")
    times = result.rows["time"]

    def moment(time: float) -> str:
        if time == 0:
            return f"before {times.min():g}"
        return f"after {times.max():g}" if math.isinf(time) else f"{time:.3g}"

    heads = (f"{data}, set {letter}" for data, letter in wide.columns)
    rows = [(index, *map(moment, cells)) for index, *cells in wide.itertuples()]
    caption = (
        "The crossing line: from when on shuffled is ahead in the mean, in jobs of the fastest"
        " worker."
    )
    return part.table(("slowest / fastest", *heads), rows, caption, left=0)


def spread_table(result: Result) -> results.Table:
    """How far the steps of the two sets lie apart."""
    return sets.spread_table(sets.spread(result.rows, ("scene", "tuned_for")))


TABLES = {"ratios": ratio_table, "crossing": crossing_table, "spread": spread_table}
FACTS = {
    "crossings": seen_crossings,
    "cells": cells_won,
    "times": lambda result: list(result.rows["time"].unique()),
    "uneven": lambda result: [u for u in result.rows["unevenness"].unique() if u > 1],
}


def the_map(result: Result) -> Illustration:
    """The maps in one figure: one row per data set, a column a set of instances."""
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
        panels = rows.groupby(["data", "set"])
        for axes, ((data, letter), cells) in zip(grid.flat, panels, strict=True):
            _panel(axes, cells)
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


if __name__ == "__main__":
    part.main(NAME)
