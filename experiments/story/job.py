"""What is each place worth, from jobs and machines to curves, on one workload told in detail?

PD-ORS and two rivals schedule the same jobs on the same machines. Two jobs that all of them
complete are then trained in simulation, a logistic regression and a small network, on the clocks
that their schedules imply. The full set is PD-ORS's schedule, dispatch shuffled over the present
crew, step sizes that shrink for late gradients and coordinated example orders; then each of them is
replaced alone by a plain or another choice, and all of them together. Every choice gets the same
grid of step sizes, tuned on seeds that are not reported, and the time that its schedule needs for
the job. One workload claims nothing: `experiments.story.workloads` has more. `runs.py` and
`choices.py` have what is run.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import cluster, results
from asyncjax.results import plots
from asyncjax.results.plots.style import COLOURS, MUTED, add_grid, drawing, new_figure, set_log
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.result import Result
from experiments import part
from experiments.story.choices import CHOICES, PLAIN, Choice, site_of
from experiments.story.choices import PAPERS as PAPERS
from experiments.story.runs import (
    TRAINED,
    Outcome,
    Settings,
    chosen_jobs,
    scheduled,
    tasks,
    trained,
)

NAME = "story"
TITLE = "From jobs and machines to curves: every part switched off alone"
COMMAND = "python -m experiments.story --commit"
NOTE = FIRST_CROSSING
CLAIMS = ()
FULL = CHOICES[0]
NAMED = {"goodput": "marginal goodput", "waits for 4": "waits for 4 gradients"}
PLANNED = "synchronous, planned k"
DIGITS = {"network": 2, "logistic regression": 3}  # behind the point of the last loss
DRAWN = (  # whose curves are drawn, the first two with their quartiles
    "full set",
    "all plain",
    "dispatch: pure",
    "examples: drawn with replacement",
    "schedule: DRF",
    "schedule: marginal goodput",
    "synchronous, planned k",
    "all plain, schedule: DRF",
)


def study_of(settings: Settings) -> Result:
    """Schedules the jobs, trains two of them in every way.

    Raises:
        ValueError: A number or a name is out of range, or the workload has no two jobs that fit.
        RuntimeError: A schedule breaks a rule.
    """
    choices = chosen(settings)
    jobs, machines, made = scheduled(settings)
    outcomes = {name: cluster.outcome(own, jobs, machines) for name, own in made.items()}
    facts: dict[str, Any] = {
        "seeds": settings.seeds,
        "schedules": {
            name: {"utility": own.utility, "completed": own.completed}
            for name, own in outcomes.items()
        },
    }
    rows: list[dict[str, Any]] = []
    for task in tasks(settings, chosen_jobs(settings, jobs, made)):
        size = {"gradients": settings.gradients, "shape": settings.shape}
        sites = {name: site_of(name, own, jobs, task.job, **size) for name, own in made.items()}
        print(f"{task.name}: job {task.job}, {len(choices)} choices of training", flush=True)
        found = [trained(settings, task, one, sites[one.scheduler]) for one in choices]
        plain = next(own.tuned for own in found if own.choice is PLAIN)
        crews = {name: site.crews.tolist() for name, site in sites.items()}
        target = settings.slack * plain
        own = {"job": task.job, "label": task.label, "target": target, "crews": crews}
        facts[task.name] = own | {"curves": dict(curves(found))}
        rows += [row for one in found for row in rows_of(task.name, one, settings, target)]
    return Result(pd.DataFrame(rows), "final", facts, settings.seed, cut=())


def chosen(settings: Settings) -> list[Choice]:
    """The choices that are run, the full set first and all plain among them."""
    for name, least in (("seeds", 1), ("tuning_seeds", 1), ("gradients", 100), ("records", 10)):
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(settings, name)}")
    if not settings.shape >= 0:
        raise ValueError(f"shape must be at least 0, got {settings.shape}")
    for name in settings.trained or ("nothing",):
        if name not in TRAINED:
            raise ValueError(f"trained must be among {', '.join(TRAINED)}, got {name!r}")
    names = [choice.name for choice in CHOICES]
    unknown = [name for name in settings.choices if name not in names]
    if unknown:
        raise ValueError(f"choices must be among {', '.join(names)}, got {unknown[0]!r}")
    wanted = {FULL.name, PLAIN.name, *(settings.choices or names)}
    return [choice for choice in CHOICES if choice.name in wanted]


def rows_of(task: str, own: Outcome, settings: Settings, target: float) -> Iterator[dict[str, Any]]:
    """A row a seed: slots to the target and to completion, what was held, computed and reached."""
    for seed, reached in enumerate(own.reached(target).tolist()):
        yield {
            "scene": task,
            "set": "A",
            "instance": seed,
            "method": own.choice.name,
            "step": own.step_size,
            "awaited": own.awaited,
            "scheduler": own.site.scheduler,
            "to_target": reached,
            "held": own.site.held(reached),
            "final": float(own.final[seed]),
            "used": int(own.used[seed]),
            "computed": int(own.computed[seed]),
            "delay": float(own.delay[seed]),
            "longest": int(own.longest[seed]),
            "budget": own.site.budget,
            "gpu_slots": own.site.held(own.site.budget),
            "trials": len(settings.step_sizes),
            "at_edge": own.at_edge,
        }


def curves(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Median and quartiles of losses over time, of the choices that are drawn."""
    for own in outcomes:
        if own.choice.name in DRAWN:
            points = np.linspace(0.0, own.site.budget, 60)[1:]
            line = results.series_over_seeds(own.choice.name, own.time, own.loss, points)
            lines = {"time": points, "median": line.median, "low": line.low, "high": line.high}
            digits = {name: [float(f"{v:.4g}") for v in own] for name, own in lines.items()}
            yield own.choice.name, digits


def trained_jobs(result: Result) -> dict[str, Any]:
    """What is known of each job that was trained, by problem."""
    return {task: result.facts[task] for task in result.rows["scene"].unique()}


def answer(result: Result) -> str:
    """Who ends lower on this workload, the full set or all plain, by median and by seeds."""
    said = []
    for task in trained_jobs(result):
        full, plain = (
            result.select(scene=task, method=name)["final"].to_numpy()
            for name in (FULL.name, PLAIN.name)
        )
        said.append(
            f"{task}: the full set ends at {np.median(full):.3g}, all plain at"
            f" {np.median(plain):.3g}, lower on {int((plain < full).sum())} of {len(full)} seeds"
        )
    return f"{'; '.join(said)}. One workload; `experiments.story.workloads` has more."


def spread(values: Sequence[float], digits: int) -> str:
    """Median and quartiles.

    Example:
        >>> spread([3.84, 3.69, 4.0, math.inf, 3.7], 1), spread([math.inf] * 5, 1)
        ('3.8 (3.7–4.0)', 'not reached')
    """
    low, middle, high = np.percentile(values, [25, 50, 75], method="nearest")
    if not math.isfinite(middle):
        return "not reached"
    last = f"{high:.{digits}f}" if math.isfinite(high) else "never"
    return f"{middle:.{digits}f} ({low:.{digits}f}–{last})"


def short(value: float) -> str:
    """Three digits of a whole number; nothing where it is infinite.

    Example:
        >>> short(1016.0)
        '1,020'
    """
    return f"{float(f'{value:.3g}'):,.0f}" if math.isfinite(value) else ""


def choice_table(result: Result) -> results.Table:
    """What every choice did for both jobs."""
    jobs, rows = trained_jobs(result), []
    for choice in result.methods:
        both = [result.select(scene=task, method=choice) for task in jobs]
        name = NAMED.get(choice, choice)
        if choice == PLANNED:
            name += f" ({'; '.join(str(own['awaited'].iloc[0]) for own in both)})"
        cells = [name]
        for own, task in zip(both, jobs, strict=True):
            used, computed = (f"{int(own[key].median()):,}" for key in ("used", "computed"))
            cells += [
                spread(own["to_target"].tolist(), 1),
                short(float(np.median(own["held"]))),
                f"{used} of {computed}" if choice == PLANNED else used,
                spread(own["final"].tolist(), DIGITS[task]),
            ]
        rows.append(tuple(cells))
    heads = [results.Column("choice", right=False)]
    for task, own in jobs.items():
        heads.append(results.Column(f"{task}: slots to {own['target']:.2g}"))
        heads += map(results.Column, ("GPU-slots held", "gradients used", own["label"]))
    return results.Table(
        tuple(heads),
        tuple(rows),
        f"Median (quartiles) over {result.facts['seeds']} seeds. The target is a multiple of the"
        " loss at which all plain ends on the tuning seeds, reached when the mean of a tenth of the"
        " records is there. The loss is the mean over the last tenth of the time that the schedule"
        " needs. A slot that has begun counts as held.",
    )


def schedule_table(result: Result) -> results.Table:
    """What each schedule is worth, and what it gives to the jobs."""
    rows = []
    for name, own in result.facts["schedules"].items():
        cells = [NAMED.get(name, name), f"{own['utility']:.0f} ({own['completed']})"]
        for task, job in trained_jobs(result).items():
            ran = result.select(scene=task, scheduler=name).head(1)
            crews = " ".join(map(str, job["crews"][name]))
            ends = [f"{one.budget:.1f}; {short(one.gpu_slots)}" for one in ran.itertuples()]
            cells.append("; ".join([crews, *ends]))
        rows.append(tuple(cells))
    rest = "crews by slot, slots to completion, GPU-slots"
    names = ("total utility (jobs finished)", *(f"{own}: {rest}" for own in trained_jobs(result)))
    return results.Table(
        tuple(results.Column(name, right=False) for name in ("scheduler", *names)),
        tuple(rows),
        "The same jobs on the same machines.",
    )


TABLES = {"choices": choice_table, "schedules": schedule_table}


def case_figure(result: Result) -> Illustration:
    """Crews, curves where the run has just been made, slots to the target; a column a job."""
    jobs = trained_jobs(result)
    drawn = any(own.get("curves") for own in jobs.values())
    heights = [1.0, *([2.2] if drawn else []), 0.15 * len(result.methods)]
    with drawing():
        figure = new_figure(8.0, 2.2 * sum(heights))
        grid = figure.subplots(len(heights), len(jobs), squeeze=False, height_ratios=heights)
        for column, (task, job) in enumerate(jobs.items()):
            _crews(grid[0, column], job, column == 0)
            if drawn:
                _curves(grid[1, column], task, job)
            _reached(grid[-1, column], result.select(scene=task), task, column == 0)
        if drawn:
            handles = grid[1, 0].get_legend_handles_labels()
            figure.legend(*handles, loc="outside lower center", ncols=3)
    return Illustration(
        figure,
        "Crews under three schedulers, training on the clocks of these crews, and slots to the"
        " target in the colours of the schedulers, median and quartiles.",
    )


def _crews(axes: Any, job: Mapping[str, Any], legend: bool) -> None:
    """Workers over slots, a line for each scheduler."""
    styles = plots.assign_styles(list(job["crews"]))
    for name, crews in job["crews"].items():
        style = {"color": styles[name].colour, "linestyle": styles[name].dash}
        heights = [*crews, 0]
        label = NAMED.get(name, name)
        axes.step(np.arange(len(heights)), heights, where="post", label=label, **style)
    axes.set_ylim(0, None)
    axes.set_title(f"crew of job {job['job']}")
    axes.set_xlabel("slots after arrival")
    axes.set_ylabel("workers")
    add_grid(axes, "y")
    if legend:
        axes.legend(loc="upper right", fontsize=8)


def _curves(axes: Any, task: str, job: Mapping[str, Any]) -> None:
    """Medians of losses, with the quartiles of two; the target is dotted."""
    styles = plots.assign_styles(DRAWN)
    for name, own in job["curves"].items():
        style, bold = styles[name], name in DRAWN[:2]
        if bold:
            ends = (own["time"], own["low"], own["high"])
            axes.fill_between(*ends, color=style.colour, alpha=0.16, linewidth=0)
        look = {"color": style.colour, "linestyle": style.dash, "lw": 2.2 if bold else 1.0}
        axes.plot(own["time"], own["median"], label=name, **look)
    axes.axhline(job["target"], color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
    set_log(axes.yaxis, True)
    add_grid(axes)
    axes.set_title(task)
    axes.set_xlabel("slots (hours) after arrival")
    axes.set_ylabel(job["label"])


def _reached(axes: Any, rows: Any, task: str, named: bool) -> None:
    """Slots to the target of every choice, median and quartiles."""
    longest, names = rows["budget"].max(), list(rows["method"].unique())
    for at, name in enumerate(names):
        own = rows[rows["method"] == name]
        ends = results.median_and_spread(own["to_target"].to_numpy())
        colour = COLOURS[("PD-ORS", "DRF", "goodput").index(own["scheduler"].iloc[0])]
        if not np.isfinite(ends.median):
            axes.text(0.3, at, "not reached", va="center", fontsize=8, color=MUTED, style="italic")
            continue
        if at == 0:
            axes.axvline(ends.median, color=MUTED, lw=0.8, zorder=0)
        axes.plot([ends.low, min(ends.high, longest)], [at, at], color=colour, lw=2.0)
        axes.plot(ends.median, at, "o", color=colour, markersize=5)
    axes.set_xlim(0, longest)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names if named else [""] * len(names), fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_title(task)
    axes.set_xlabel("slots (hours) to the target")
    add_grid(axes, "x")


FIGURES = {"case": case_figure}


if __name__ == "__main__":
    part.main(NAME)
