"""Do all methods together beat plain choices, over workloads?

PD-ORS schedules workloads of their own jobs and machines; the largest job that fits is trained on
the clock of its crew, as a network and as a regression, in three ways: the full set of methods
(dispatch shuffled over the crew, step sizes that shrink for late gradients, coordinated orders),
the fitting set without the pairs that harm each other (arrival dispatch, Rescaled step sizes, an
order a worker), and plain choices (arrival dispatch, a constant step size, rows drawn with
replacement). All are tuned alike on other workloads, for each goal by itself, and shown on two
disjoint sets. A claim is that a set of methods is below all plain in every goal on both problems:
last losses, and times as shares of the schedule's time (one that never came counts as the whole).

A run that was stopped goes on where it was. `workloads_runs.py` has what is run.
"""

from functools import partial
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import MUTED, add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import FIRST_CROSSING, LEVELS
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.statistics import verdict
from experiments import part
from experiments.story.choices import CHOICES, FITTING, PLAIN
from experiments.story.choices import PAPERS as PAPERS
from experiments.story.workloads_runs import END, GOALS, Settings, measured

NAME = "story_workloads"
TITLE = "Do all methods together beat plain choices, over workloads?"
COMMAND = "python -m experiments.story.workloads --commit"
NOTE = FIRST_CROSSING
FULL = CHOICES[0]
ALL_CLAIM = "all methods together beat plain choices"
FITTING_CLAIM = "without the pairs that harm each other, they beat plain choices"
CLAIMS = (
    Claim(ALL_CLAIM, [less(FULL.name, than=PLAIN.name, each=True)]),
    Claim(FITTING_CLAIM, [less(FITTING.name, than=PLAIN.name, each=True)]),
)
SETS_OF_METHODS = (FULL.name, FITTING.name)
TICKS = (0.25, 0.5, 1.0, 2.0, 4.0)


def study_of(settings: Settings) -> Result:
    """Runs what is missing.

    Raises:
        ValueError: Too few workloads fit.
    """
    return as_result(settings, measured(settings, partial(print, flush=True)))


def as_result(settings: Settings, rows: Any) -> Result:
    """Rows with the sizes that they were made with."""
    own = ("jobs", "machines", "n_slots", "gradients", "batch")
    facts = {name: getattr(settings, name) for name in ("instances", "tuning_instances")}
    facts |= {name: getattr(settings.story, name) for name in own}
    return Result(rows, "value", facts, settings.seed, cut=("value",))


def heads(result: Result) -> dict[str, str]:
    """The goals that were run, as columns of a table."""
    return {
        goal: goal if goal == END else f"time to {goal}"
        for goal in result.rows["tuned_for"].unique()
    }


def condition_table(result: Result) -> results.Table:
    """The verdicts, and every condition."""
    rows = []
    for claim in CLAIMS:
        by_set = [result.conditions(claim, letter) for letter in result.sets]
        rows.append((claim.text, *map(verdict, by_set)))
        for same in zip(*by_set, strict=True):
            rows.append((f"- {same[0].text}", *(one.verdict for one in same)))
    return results.Table(
        (
            results.Column("claim, and its conditions", right=False),
            *(results.Column(f"set {letter}", right=False) for letter in result.sets),
        ),
        tuple(rows),
        f"By paired differences of logarithms over {result.facts['instances']} workloads a set; the"
        " conditions of a claim share its doubt of 5 %.",
    )


def _by_method(result: Result, *columns: results.Column) -> tuple[results.Column, ...]:
    names = ("problem, methods", "set")
    return (*(results.Column(name, right=False) for name in names), *columns)


def ratio_table(result: Result) -> results.Table:
    """Both sets of methods over all plain."""
    rows = []
    for methods in SETS_OF_METHODS:
        apart = result.ratio(methods, over=PLAIN.name, each=True)
        for (task, letter), own in apart.groupby(["scene", "set"], sort=False):
            ends = own.set_index("tuned_for")[["ratio", "low", "high"]].to_dict("index")
            texts = (
                "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**ends[goal])
                for goal in heads(result)
            )
            rows.append((f"{task}, {methods}", letter, *texts))
    return results.Table(
        _by_method(result, *map(results.Column, heads(result).values())),
        tuple(sorted(rows)),
        "Over all plain on the same workload: geometric mean and its 95 % interval. Below 1 the"
        " methods are ahead.",
    )


def loss_table(result: Result) -> results.Table:
    """Last losses, and who arrives."""
    rows = []
    for (task, methods, letter), own in result.rows.groupby(["scene", "method", "set"]):
        values = {goal: of["value"].to_numpy() for goal, of in own.groupby("tuned_for")}
        shares = (f"{np.isfinite(values[goal]).mean():.0%}" for goal in GOALS[1:])
        spread = results.median_and_spread(values[END])
        rows.append((f"{task}, {methods}", letter, spread, *shares))
    columns = (END, *(f"reach {goal}" for goal in GOALS[1:]))
    return results.Table(
        _by_method(result, *map(results.Column, columns)),
        tuple(rows),
        "Median (quartiles) of the last loss, and the share of the runs that reach the levels.",
    )


def tuning_table(result: Result) -> results.Table:
    """Trials, gradients, what was chosen."""
    rows = []
    for (task, methods), own in result.trials().groupby(["scene", "method"]):
        steps = ", ".join(f"{step:.4g}" for step in own["step"])
        trials = f"{own['trials'].min()} to {own['trials'].max()}"
        most, edges = int(own["tuning_gradients"].max()), int(own["at_edge"].sum())
        rows.append((f"{task}, {methods}", steps, trials, most, edges))
    return results.Table(
        (
            results.Column("problem, methods", right=False),
            results.Column(f"step size for {', '.join(heads(result))}", right=False),
            results.Column("trials a goal"),
            results.Column("gradients a goal, at most"),
            results.Column("at an edge"),
        ),
        tuple(rows),
        f"Chosen on {result.facts['tuning_instances']} other workloads, for each goal by itself;"
        " for a goal all have as many trials.",
    )


TABLES = {
    "conditions": condition_table,
    "ratios": ratio_table,
    "losses": loss_table,
    "tuning": tuning_table,
}


def ratio_figure(result: Result) -> Illustration:
    """Both sets of methods over all plain, a dot an instance, a panel a problem."""
    tasks = list(result.rows["scene"].unique())
    with drawing():
        page = new_figure(8.0, 3.4)
        panels = page.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        for axes, task in zip(panels, tasks, strict=True):
            _dots(axes, result, task)
            axes.set_title(task)
        panels[0].set_ylabel("over all plain")
        page.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return Illustration(
        page, "Each set of methods over all plain, by workload; below 1 it is ahead."
    )


def _dots(axes: Any, result: Result, task: str) -> None:
    styles, goals = plots.assign_styles(list(SETS_OF_METHODS)), heads(result)
    for place, methods in enumerate(SETS_OF_METHODS):
        for shift, letter in ((-0.18, "A"), (0.18, "B")):
            ours, plain = (result.values(one, letter, scene=task) for one in (methods, PLAIN.name))
            for at, (_, ratio) in enumerate((ours / plain).iterrows()):
                axes.plot(
                    np.full(len(ratio), at + shift + 0.1 * (place - 0.5)),
                    ratio,
                    "os"[letter == "B"],
                    color=styles[methods].colour,
                    markersize=3.5,
                    label=f"{methods}, set {letter}" if at == 0 else None,
                )
    axes.axhline(1.0, color=MUTED, linewidth=0.9, zorder=0)
    axes.set_yscale("log")
    axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_yticks([], minor=True)
    axes.set_xticks(range(len(goals)), list(goals.values()))
    axes.tick_params(axis="x", labelsize=7)
    add_grid(axes, "y")


FACTS = {"levels": lambda _: LEVELS}
FIGURES = {"ratios": ratio_figure}


if __name__ == "__main__":
    part.main(NAME)
