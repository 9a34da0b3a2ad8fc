"""Which rules reach the true optimum, and which that of the fast workers?

Quadratics whose optima are known, and workers that are unequally fast. Worker i holds f_i(x) =
sum_j (a_ij x_j^2 / 2 - b_ij x_j) and takes s_i for a job, the times 1, ..., n dealt to the workers.
The model should go to the minimum of the mean of the f_i. A rule that lets fast workers count more
goes elsewhere: pure dispatch to the minimum of sum_i f_i / s_i, whatever the step size. Measured
are the distances to both points against time, and their floors against the step size. An instance
draws a_ij, b_ij and who has which time; gradients are exact. Two disjoint sets of instances are
reported; all rules get the same grid of step sizes. Rules and runs are in `bias_runs`.

Source of the question: Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452).
"""

import sys
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_number
from asyncjax.study import protocol
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.asynchronous.bias_runs import (
    GAP,
    NEVER,
    ROUNDING,
    TARGET,
    WINDOW,
    Settings,
    study_of,
)
from experiments.common.lanes import compile_quickly
from experiments.common.parts import Part, run_alone

__all__ = ["Settings", "study_of"]
NAME = "bias"
TITLE = "Which methods reach the true optimum, and which the optimum of the fast workers?"
PAPERS = ("Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",)
NEAR = 0.25  # share of the way between the optima that counts as being at one
FALLING = 2  # steps of the grid between the two floors that give the exponent
OPTIMUM = {"true": "true", "weighted": "speed-weighted"}
AT = (("pure", "weighted"), ("shuffled", "true"), ("Rescaled", "true"), ("table", "true"))
DEAF = ("Ringmaster, cancel", "fastest half")


def steps(result: Result) -> tuple[list[float], tuple[float, float]]:
    """The grid of step sizes; the least, and one that is 8 times as large where there is one."""
    grid = sorted(result.rows["step"].unique())
    return grid, (grid[0], grid[min(3, len(grid) - 1)])


def rules(result: Result) -> list[str]:
    """The rules that were run, in their order."""
    return [name for name in result.methods if name != GAP]


def claims(result: Result) -> list[Claim]:
    """The claims, at the smallest step size that was run."""
    low, high = steps(result)[1]

    def at(rule: str, point: str) -> Claim:
        text = f"{rule} is near the {OPTIMUM[point]} optimum"
        condition = less(rule, than=GAP, ratio=NEAR, column=point, text=text, step=low)
        return Claim(f"{rule} ends at the {OPTIMUM[point]} optimum", [condition], PAPERS[0])

    falls = less(
        "pure",
        than="pure",
        ratio=0.9,
        text="floor at the smaller step",
        step=low,
        beside={"step": high},
    )
    return [
        *(at(*pair) for pair in (*AT, ("random", "true"))),
        Claim("a step 8 times smaller brings pure nearer to the true optimum by a tenth", [falls]),
        Claim(
            "rules that never hear the slow end further from the truth than pure",
            [less("pure", than=DEAF, step=low)],
        ),
    ]


def middle(values: Any) -> float:
    """The least value by which half of all are there, one that was seen; infinity where none was.

    Example:
        >>> middle([4.0, 1.0, 3.0, float("inf")])
        3.0
    """
    found = protocol.reached(np.nan_to_num(values, nan=np.inf), NEVER).quartiles[1]
    return np.inf if found is None else found


def _shown(value: float) -> str:
    return "rounding" if value <= ROUNDING else format_number(value)


def _named(step: float) -> str:
    return f"1/{1 / step:g}" if step < 1 else f"{step:g}"


def main_table(result: Result) -> results.Table:
    """Medians of both sets, rule by rule."""
    rows, (low, high) = [], steps(result)[1]

    def both(rule: str, column: str, **where: Any) -> list[float]:
        frames = [result.select(method=rule, set=letter, **where) for letter in result.sets]
        return [middle(frame[column].to_numpy(float)) for frame in frames]

    for rule in rules(result):
        asked = (("true", low), ("weighted", low), ("true", high))
        medians = [" / ".join(map(_shown, both(rule, point, step=at))) for point, at in asked]
        shares = result.facts["rules"][rule]["shares"]
        times = both(rule, "within", within=lambda time: ~np.isnan(time))
        said = ["never" if np.isinf(time) else format_number(time) for time in times]
        share = f"{shares[0]:.2f}, {shares[-1]:.2f}"
        rows.append((rule, *medians, exponent(result, rule), share, " / ".join(said)))
    own = result.facts
    gaps = [middle(result.values(GAP, letter).to_numpy()[0]) for letter in result.sets]
    heads = (
        f"to true, step {_named(low)}",
        f"to speed-weighted, step {_named(low)}",
        f"to true, step {_named(high)}",
        "falls like step to the power",
        "share of gradients from fastest, slowest",
        f"time to stay within {TARGET:g}",
    )
    return results.Table(
        (results.Column("rule", right=False), *map(results.Column, heads)),
        tuple(rows),
        f"Distance of the model after {own['n_updates']:,} updates, mean over the last"
        f" {100 * WINDOW:g} %, median over {own['instances']} instances of set A / of set B; the"
        f" two optima lie {gaps[0]:.2f} / {gaps[-1]:.2f} apart. The time has the step size of the"
        f" grid that was best on {own['tuning_instances']} further instances.",
    )


def floors(result: Result, rule: str) -> np.ndarray:
    """Distances to the true optimum, set A, float[step sizes, instances]."""
    rows = result.select(method=rule, set="A")
    return rows.pivot(index="step", columns="instance", values="true").to_numpy()


def floor_table(result: Result) -> results.Table:
    """Floors of the distance to the true optimum by step size, medians of set A."""
    rows = [
        (rule, *(_shown(value) if np.isfinite(value) else "diverged" for value in medians))
        for rule in rules(result)
        for medians in [np.median(floors(result, rule), axis=1)]
    ]
    heads = [f"step {_named(step)}" for step in steps(result)[0]]
    return results.Table(
        (results.Column("rule", right=False), *map(results.Column, heads)),
        tuple(rows),
        "Floor of the distance to the true optimum by step size, median over set A.",
    )


def exponent(result: Result, rule: str) -> str:
    """How the floor depends on small steps, over set A; rounding where it is."""
    grid, medians = steps(result)[0], np.median(floors(result, rule), axis=1)
    if len(grid) <= FALLING:
        return ""
    low, high = medians[0], medians[FALLING]
    if not min(low, high) > ROUNDING:
        return "rounding"
    return f"{np.log(high / low) / np.log(grid[FALLING] / grid[0]):.2f}"


TABLES = {"rules": main_table, "floors": floor_table}
FACTS = {
    "least gap": lambda result: float(result.values(GAP, "A").to_numpy().min()),
    "steps": lambda result: list(steps(result)[1]),
}


def against_time(result: Result) -> Illustration:
    """Distances to both optima against time."""
    own, panels = result.facts, []
    grid = np.linspace(own["horizon"] / 60, own["horizon"], 60)
    for point, name in OPTIMUM.items():
        curves = {rule: np.array(own["rules"][rule]["curves"][point]) for rule in rules(result)}
        series = [results.Series(rule, grid, way, way, way) for rule, way in curves.items()]
        label = f"time [job of the fastest worker],\nto the {name} optimum"
        panels.append(plots.Panel(label, series))
    figure = plots.panels(
        panels,
        y_label="distance of the model",
        log_y=True,
        y_range=(1e-3, 3.0),
        styles=plots.assign_styles(rules(result)),
    )
    return Illustration(
        figure,
        "Distance to the true and to the speed-weighted optimum, step size"
        f" {own['curve_step']:g} for all, mean over the last tenth of the time, median over set A."
        " Lines that leave at the bottom go on to rounding.",
    )


def against_steps(result: Result) -> Illustration:
    """Floors against the step size."""
    figure = plots.step_size_sensitivity(
        steps(result)[0],
        {rule: floors(result, rule) for rule in rules(result)},
        y_label="floor of the distance to the true optimum",
        y_range=(1e-4, 3.0),
        chosen={},
        styles=plots.assign_styles(rules(result)),
    )
    return Illustration(
        figure,
        "Floor of the distance to the true optimum against the step size, set A. Where a bias is"
        " left the floor stays; rules whose line is missing reach rounding.",
    )


FIGURES = {"time": against_time, "floors": against_steps}


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, figures, verdicts."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    compile_quickly()
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
