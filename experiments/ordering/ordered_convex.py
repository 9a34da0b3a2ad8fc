"""Do coordinated example orders train faster? Logistic regression, the whole grid of steps.

Gaussian rows with 1, 8 and 64 workers, labels from a logistic model; mortgage applications (HMDA)
with four workers, units of 16 rows, momentum 0.9, as in the public scripts of CD-GraB. The minimum
is found by Newton's method in float64, so gaps f - f* are exact. Every order runs with every step
on three seeds; its own best is chosen on two others. "Full gradient" is gradient descent with as
many steps of that size, which no noise of an order limits: random reshuffling is limited by noise
where its gap is ten times that one or more, by optimisation where at most twice. Kept are means
over seeds. One set of seeds and no instances, so there are no verdicts: these are those of
`ordered_instances`.

Source: Cooper et al. 2023, CD-GraB (arXiv 2302.00845).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.result import Result
from experiments import part
from experiments.common import numbers
from experiments.ordering.herding import CD_GRAB, table
from experiments.ordering.herding_runs import BASELINE, COORDINATED, EXACT, PROJECTED
from experiments.ordering.ordered_convex_runs import (
    Outcome,
    Settings,
    double_methods,
    finer,
    full_gradient,
    gaussian_rows,
    methods,
    mortgage,
    train,
)

NAME = "ordered_convex"
TITLE = "Do coordinated example orders train faster? Logistic regression"
PAPERS = (CD_GRAB,)
NOTE = FIRST_CROSSING
GRID, DOUBLE, BEST, SCALING, HMDA = "grid", "two units", "two units, best", "scaling", "mortgages"
CLAIMS = ()
CLOSE, FAR = 2.0, 10.0  # times the gap of the full gradient: limited by optimisation, by noise
NOISE, OPTIMISATION, BOTH = "noise", "optimisation", "both"
DIGITS = 4  # of numbers in rows
EXACT_TWO, STALE_TWO = f"{COORDINATED}, 2 units", f"{PROJECTED}, 2 units"


def study_of(settings: Settings) -> Result:
    """Runs everything; without HMDA where its package is missing.

    Raises:
        ValueError: Sizes do not fit together, or a count is below 1.
    """
    if settings.full:
        settings = replace(
            settings,
            double=tuple(m for m, _ in settings.sizes if m > 1),
            step_sizes=tuple(map(finer, settings.step_sizes)),
            seeds=10,
            mortgage_seeds=10,
            mortgage_steps=finer(settings.mortgage_steps),
        )
    checked(settings)
    rows = [*mortgages(settings)] if settings.mortgage else []
    return as_result(settings, [*gaussian(settings), *rows])


def checked(settings: Settings) -> None:
    """Refuses what would fail after minutes.

    Raises:
        ValueError: As in `study_of`.
    """
    if len(settings.step_sizes) != len(settings.sizes):
        raise ValueError(
            f"step_sizes must have a grid for each of the {len(settings.sizes)} sizes, got"
            f" {len(settings.step_sizes)}"
        )
    for m, n in settings.sizes:
        if m < 1 or n < 2 or n % 2:
            raise ValueError(f"sizes must be m of at least 1 and even n, got m = {m}, n = {n}")
        if settings.scaling_rows % (2 * m):
            raise ValueError(
                "scaling_rows must be a multiple of 2 m for all m of sizes, got"
                f" {settings.scaling_rows} for m = {m}"
            )
    for name in ("epochs", "seeds", "tuning_seeds", "mortgage_epochs", "mortgage_seeds"):
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(settings, name)}")


def as_result(settings: Settings, rows: Sequence[Any]) -> Result:
    """Rows of means over seeds, and what they were made with."""
    names = ("epochs", "seeds", "tuning_seeds", "target", "scaling_rows", "mortgage_seeds")
    frame = pd.DataFrame(numbers.rounded(list(rows), DIGITS))
    frame.insert(1, "set", "A")
    return Result(frame, "gap", {name: getattr(settings, name) for name in names}, settings.seed)


def gaussian(settings: Settings) -> Iterator[dict[str, Any]]:
    """The rows of all runs on Gaussian rows."""
    known: dict[tuple[int, int], list[Outcome]] = {}
    grids = list(zip(settings.sizes, settings.step_sizes, strict=True))
    for (m, n), steps in grids:
        rows = gaussian_rows(settings, m * n)
        found = methods(m, n, settings.dim)
        double = double_methods(m, n, settings.dim) if m in settings.double else []
        known[m, n] = train(settings, rows, m, found + double, steps)
        full = full_gradient(rows, steps, n * settings.epochs)[:, settings.tuning_seeds :]
        yield from of_grid(f"m = {m}", known[m, n], full)
    rows = gaussian_rows(settings, settings.scaling_rows)
    for (m, _), steps in grids:
        n = settings.scaling_rows // m
        found = [method for method in methods(m, n, settings.dim) if method.name != "GraB"]
        names = [method.label for method in found]
        outcomes = known[m, n] if (m, n) in known else train(settings, rows, m, found, steps)
        for one in (one for one in outcomes if one.label in names):
            epochs = float(np.median(one.reached(settings.target)))
            yield {
                **{"scene": f"m = {m}", "study": SCALING, "method": one.label, "gap": best(one)},
                **{"epochs": epochs, "server_steps": epochs * one.steps_per_epoch},
            }


def of_grid(scene: str, outcomes: Sequence[Outcome], full: np.ndarray) -> Iterator[dict[str, Any]]:
    """Rows of every step: gaps, what limits D-RR; with two units a step how the stale form ends.

    Args:
        scene: Its name.
        outcomes: Of all methods.
        full: The gap of the full gradient, float[steps, seeds].
    """
    gaps = {one.label: geometric(one.last) for one in outcomes}
    limits = [limit_of(*pair) for pair in zip(gaps[BASELINE], geometric(full), strict=True)]
    ours = COORDINATED if COORDINATED in gaps else EXACT  # the same with one worker
    for one in outcomes:
        double = "units" in one.label
        for at, step in enumerate(one.step_sizes):
            own = gaps[one.label][at]
            row = {"scene": scene, "method": one.label, "step": step, "gap": own}
            if double:
                yield row | {"study": DOUBLE, "over_exact": own / gaps[EXACT_TWO][at]}
                continue
            gain = {"gain": gaps[BASELINE][at] / own, "limit": limits[at]}
            yield row | {"study": GRID} | (gain if one.label == ours else {})
        if double:
            yield {"scene": scene, "study": BEST, "method": one.label, "gap": best(one)}


def mortgages(settings: Settings) -> Iterator[dict[str, Any]]:
    """The rows of HMDA; none where its package is missing."""
    try:
        outcomes, cost = mortgage(settings)
    except (ImportError, FileNotFoundError) as missing:
        print(f"HMDA is left out: {missing}")
        return
    last = {one.label: float(np.median(one.last[one.chosen()])) for one in outcomes}
    for label, gap in last.items():
        row = {"scene": HMDA, "study": HMDA, "method": label, "gap": gap}
        yield row | {"gain": last[BASELINE] / gap, "price": cost[label][0]}


def geometric(gaps: np.ndarray) -> np.ndarray:
    """Geometric means over seeds, the last axis."""
    return np.exp(np.mean(np.log(gaps), axis=-1))


def best(outcome: Outcome) -> float:
    """The mean gap at the step that was best on other seeds."""
    return float(geometric(outcome.last)[outcome.chosen()])


def limit_of(baseline: float, full: float) -> str:
    """What limits random reshuffling: noise, or the optimisation the full gradient needs as well.

    Example:
        >>> limit_of(1.0, 0.05), limit_of(1.0, 0.2), limit_of(1.0, 0.6)
        ('noise', 'both', 'optimisation')
    """
    if baseline >= FAR * full:
        return NOISE
    return OPTIMISATION if baseline <= CLOSE * full else BOTH


def gains(result: Result) -> Any:
    """The rows of CD-GraB on the grid; with one worker of pair balance, which it is there."""
    rows = result.select(study=GRID)
    return rows[rows["gain"].notna()]


def _shown(rows: Any, columns: dict[str, str], text: str) -> results.Table:
    """A table of some columns, without those of which nothing is known."""
    frame = rows.reindex(columns=list(columns)).rename(columns=columns)
    return table(frame.dropna(axis="columns", how="all") if len(frame) else frame, text, left=2)


def grid_table(result: Result) -> results.Table:
    """The whole grid, one unit of each worker in a step."""
    heads = {"scene": "workers", "limit": "D-RR is limited by", "step": "step"}
    heads |= {"gap": "gap of CD-GraB", "gain": "D-RR / CD-GraB"}
    facts = result.facts
    return _shown(
        gains(result),
        heads,
        f"f - f* after {facts['epochs']} epochs at one step for both, geometric means of"
        f" {facts['seeds']} seeds. D-RR is limited by noise if its gap is at least {FAR:g} times"
        f" that of gradient descent with as many steps of that size, by optimisation if at most"
        f" {CLOSE:g} times. With one worker CD-GraB is pair balance.",
    )


def double_table(result: Result) -> results.Table:
    """The whole grid, two units of each worker in a step: the stale form."""
    heads = {"scene": "workers", "method": "method", "step": "step", "gap": "gap"}
    return _shown(
        result.select(study=DOUBLE, method=STALE_TWO),
        heads | {"over_exact": "over exact CD-GraB"},
        "Two units of each worker in a step, half as many steps. By projections all m pairs of a"
        " step are decided from one running sum (the stale form), and no gradient of a unit is"
        " formed.",
    )


def scaling_table(result: Result) -> results.Table:
    """Epochs and server steps to a gap, with m n fixed."""
    heads = {"method": "method", "scene": "workers", "gap": "gap at the end"}
    heads |= {"epochs": "epochs to the target", "server_steps": "server steps to it"}
    facts = result.facts
    return _shown(
        result.select(study=SCALING),
        heads,
        f"m n = {facts['scaling_rows']}. Gap at the end: at the best step for it. Target: a gap of"
        f" {facts['target']:g}, at the step that is there first on the tuning seeds; median of the"
        " seeds. With m = 1 CD-GraB is pair balance.",
    )


def mortgage_table(result: Result) -> results.Table:
    """HMDA at the chosen steps."""
    heads = {"method": "method", "price": "time of an epoch", "gap": "gap at the end"}
    text = (
        "HMDA: time of an epoch on this CPU in those of D-RR, and the last gap of D-RR over that of"
        f" each method at its best step; medians of {result.facts['mortgage_seeds']} seeds."
    )
    return _shown(result.select(study=HMDA), heads | {"gain": "D-RR / this"}, text)


TABLES = {
    "grid": grid_table,
    "two units": double_table,
    "scaling": scaling_table,
    "mortgages": mortgage_table,
}


def fewer(result: Result) -> dict[str, float]:
    """How many times fewer server steps to the target with most workers than with one."""
    rows = result.select(study=SCALING)
    first, last = rows["scene"].iloc[0], rows["scene"].iloc[-1]
    rows = rows[np.isfinite(rows["server_steps"])]
    steps = rows.set_index(["method", "scene"])["server_steps"]
    pairs = {BASELINE: (BASELINE, BASELINE), COORDINATED: (EXACT, COORDINATED)}
    return {
        name: float(steps[one, first] / steps[many, last])
        for name, (one, many) in pairs.items()
        if (one, first) in steps and (many, last) in steps
    }


FACTS = {"fewer": fewer}


def answer(result: Result) -> str:
    """How many times lower CD-GraB ends where D-RR is limited by noise."""
    rows = gains(result)
    found = rows.loc[rows["limit"] == NOISE, "gain"]
    if found.empty:
        return "D-RR is limited by noise at no step."
    ends = f"{found.min():.1f} to {found.max():.0f}"
    return f"Where D-RR is limited by noise, CD-GraB ends {ends} times lower at the same step."


def grid_figure(result: Result) -> Illustration:
    """What CD-GraB gains at each step, a line a number of workers; dots: noise limits."""
    lines = {
        str(scene): own[["step", "gain"]].to_numpy(float).T
        for scene, own in gains(result).groupby("scene", sort=False)
    }
    page = plots.curves(
        [results.Series(name, x, y, y, y) for name, (x, y) in lines.items()],
        x_label="step",
        y_label="gap of D-RR / gap of CD-GraB",
        title="",
        log_x=True,
        log_y=True,
    )
    noisy = gains(result)[gains(result)["limit"] == NOISE]
    page.axes[0].plot(noisy["step"], noisy["gain"], "ko", markersize=4)
    text = (
        "Last gap of D-RR over that of CD-GraB at the same step, Gaussian rows; dots: D-RR is"
        " limited by noise."
    )
    return Illustration(page, text)


FIGURES = {"grid": grid_figure}


if __name__ == "__main__":
    part.main(NAME)
