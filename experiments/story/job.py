"""What is each place worth, from jobs and machines to curves, on one workload told in detail?

PD-ORS and two rivals schedule the same jobs on the same machines. Two jobs that all of them
complete are then trained in simulation, a logistic regression and a small network, on the clocks
that their schedules imply. The full set is PD-ORS's schedule, dispatch shuffled over the present
crew, step sizes that shrink for late gradients and coordinated example orders; then each of them is
replaced alone by a plain or another choice, and all of them together. Every choice gets the same
grid of step sizes, tuned on seeds that are not reported, and the time that its schedule needs for
the job. One workload claims nothing: `experiments.story.workloads` has more. `training.py` has what
is chosen and how it is trained.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import checks, cluster, results
from asyncjax.results import plots
from asyncjax.results.plots.style import MUTED, add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.result import Result
from experiments import part
from experiments.story import training
from experiments.story.training import CHOICES, FULL, PAPERS as PAPERS, PLAIN, TRAINED, Settings

NAME = "story"
TITLE = "From jobs and machines to curves: every part switched off alone"
COMMAND = "python -m experiments.story --commit"
CLAIMS = ()
SCHEDULERS = {
    "PD-ORS": cluster.pd_ors,
    "DRF": cluster.drf,
    "goodput": cluster.marginal_goodput,
}
NAMED = {"goodput": "marginal goodput", "waits for 4": "waits for 4 gradients"}
PLANNED = "synchronous, planned k"
DIGITS = {"network": 2, "logistic regression": 3}  # behind the point of the last loss


def study_of(settings: Settings) -> Result:
    """Schedules the jobs, trains two of them in every way.

    Raises:
        ValueError: A number or a name is out of range, or the workload has no two jobs that fit.
        RuntimeError: A schedule breaks a rule.
    """
    choices = chosen(settings)
    jobs, machines, schedules = scheduled(settings)
    outcomes = {name: cluster.outcome(one, jobs, machines) for name, one in schedules.items()}
    facts: dict[str, Any] = {
        "seeds": settings.seeds,
        "schedules": {
            name: {"utility": one.utility, "completed": one.completed}
            for name, one in outcomes.items()
        },
    }
    rows: list[pd.DataFrame] = []
    for task, job in zip(TRAINED, chosen_jobs(settings, jobs, schedules), strict=True):
        if task not in settings.trained:
            continue
        sites = {name: training.site_of(settings, schedules[name], jobs, job) for name in schedules}
        print(f"{task}: job {job}, {len(choices)} choices of training", flush=True)
        ran, target = dict[str, pd.DataFrame](), None
        for one in sorted(choices, key=lambda one: one is not PLAIN):  # which sets the target
            site = sites[one.scheduler]
            ran[one.name], target = training.trained(settings, task, one, site, target)
        rows += [ran[one.name] for one in choices]
        crews = {name: site.crews.tolist() for name, site in sites.items()}
        facts[task] = {"job": job, "target": target, "crews": crews}
    return Result(pd.concat(rows, ignore_index=True), "final", facts, settings.seed, cut=())


def chosen(settings: Settings) -> list[training.Choice]:
    """The choices that are run, the full set first and all plain among them."""
    for name, least in (("seeds", 1), ("tuning_seeds", 1), ("gradients", 100), ("records", 10)):
        checks.whole(name, getattr(settings, name), least)
    checks.real("shape", settings.shape, least=0)
    names = [choice.name for choice in CHOICES]
    for name, known in (("trained", TRAINED), ("choices", names)):
        if unknown := [one for one in getattr(settings, name) if one not in known]:
            raise ValueError(f"{name} must be among {', '.join(known)}, got {unknown[0]!r}")
    wanted = {FULL.name, PLAIN.name, *(settings.choices or names)}
    return [choice for choice in CHOICES if choice.name in wanted]


def scheduled(
    settings: Settings,
) -> tuple[cluster.Jobs, cluster.Machines, dict[str, cluster.Schedule]]:
    """Lets every scheduler play the same workload.

    Raises:
        RuntimeError: A schedule breaks a rule.
    """
    jobs, machines = training.workload(settings, settings.seed)
    schedules = {
        name: rule(jobs, machines, n_slots=settings.n_slots) for name, rule in SCHEDULERS.items()
    }
    for name, schedule in schedules.items():
        if wrong := cluster.check(schedule, jobs, machines):
            raise RuntimeError(f"{name}: {wrong[0]}")
    return jobs, machines, schedules


def chosen_jobs(
    settings: Settings, jobs: cluster.Jobs, schedules: dict[str, cluster.Schedule]
) -> list[int]:
    """The two largest jobs that fit under all schedules, the larger one first.

    Raises:
        ValueError: There are no two.
    """
    fits = training.fitting(settings, jobs, *schedules.values())
    if len(fits) < 2:
        raise ValueError(
            "seed must give two jobs that all schedulers complete with 4 to"
            f" {settings.most_workers} workers, got {settings.seed}, which gives {len(fits)}"
        )
    return fits[:2]


def trained_jobs(result: Result) -> dict[str, Any]:
    """What is known of each job that was trained, by problem."""
    return {task: result.facts[task] for task in result.rows["scene"].unique()}


def answer(result: Result) -> str:
    """Who ends lower on this workload, the full set or all plain, by median and by seeds."""
    said = []
    for task in trained_jobs(result):
        full, plain = (
            result.select(scene=task, method=one.name)["final"].to_numpy() for one in (FULL, PLAIN)
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
    rows = []
    for choice, both in result.rows.groupby("method", sort=False):
        planned = choice == PLANNED
        awaited = "; ".join(map(str, both.groupby("scene", sort=False)["awaited"].first()))
        rows.append([f"{NAMED.get(choice, choice)}" + planned * f" ({awaited})"])
        for task, of_job in both.groupby("scene", sort=False):
            middle = of_job[["held", "used", "computed"]].median()
            rows[-1] += [
                spread(of_job["to_target"], 1),
                short(middle["held"]),
                f"{int(middle['used']):,}" + planned * f" of {int(middle['computed']):,}",
                spread(of_job["final"], DIGITS[task]),
            ]
    heads = ["choice"]
    for task, job in trained_jobs(result).items():
        heads += [f"{task}: slots to {job['target']:.2g}", "GPU-slots held", "gradients used"]
        heads.append(TRAINED[task])
    caption = (
        f"Median (quartiles) over {result.facts['seeds']} seeds. The target is a multiple of the"
        " loss at which all plain ends on the tuning seeds, reached when the mean of a tenth of the"
        " records stays there. The loss is the mean over the last tenth of the time that the"
        " schedule needs. A slot that has begun counts as held."
    )
    return part.table(heads, rows, caption)


def schedule_table(result: Result) -> results.Table:
    """What each schedule is worth, and what it gives to the jobs."""
    jobs, rows = trained_jobs(result), []
    for name, worth in result.facts["schedules"].items():
        rows.append([NAMED.get(name, name), f"{worth['utility']:.0f} ({worth['completed']})"])
        for task, job in jobs.items():
            ran = result.select(scene=task, scheduler=name).head(1)
            crews = " ".join(map(str, job["crews"][name]))
            ends = [f"{one.budget:.1f}; {short(one.gpu_slots)}" for one in ran.itertuples()]
            rows[-1].append("; ".join([crews, *ends]))
    rest = "crews by slot, slots to completion, GPU-slots"
    heads = ["scheduler", "total utility (jobs finished)", *(f"{task}: {rest}" for task in jobs)]
    return part.table(heads, rows, "The same jobs on the same machines.", left=len(heads))


TABLES = {"choices": choice_table, "schedules": schedule_table}


def case_figure(result: Result) -> Illustration:
    """Crews, and slots to the target; one column per job."""
    jobs = trained_jobs(result)
    heights = [1.0, 0.15 * len(result.methods)]
    with drawing():
        figure = new_figure(8.0, 2.2 * sum(heights))
        grid = figure.subplots(2, len(jobs), squeeze=False, height_ratios=heights)
        for (above, below), (task, job) in zip(grid.T, jobs.items(), strict=True):
            _crews(above, job)
            _reached(below, result.select(scene=task), task)
        grid[0, 0].legend(loc="upper right", fontsize=8)
        for axes in grid[1, 1:]:
            axes.set_yticklabels([])
    return Illustration(
        figure,
        "Crews under three schedulers, training on the clocks of these crews, and slots to the"
        " target in the colours of the schedulers, median and quartiles.",
    )


STYLES = plots.assign_styles(SCHEDULERS)


def _crews(axes: Any, job: dict[str, Any]) -> None:
    """Workers over slots, a line for each scheduler."""
    for name, crews in job["crews"].items():
        look = {"color": STYLES[name].colour, "linestyle": STYLES[name].dash}
        axes.step(
            range(len(crews) + 1), [*crews, 0], where="post", label=NAMED.get(name, name), **look
        )
    axes.set_ylim(0, None)
    axes.set_title(f"crew of job {job['job']}")
    axes.set_xlabel("slots after arrival")
    axes.set_ylabel("workers")
    add_grid(axes, "y")


def _reached(axes: Any, rows: Any, task: str) -> None:
    """Slots to the target of every choice, median and quartiles."""
    longest, names = rows["budget"].max(), list(rows["method"].unique())
    for at, (_, runs) in enumerate(rows.groupby("method", sort=False)):
        ends = results.median_and_spread(runs["to_target"].to_numpy())
        colour = STYLES[runs["scheduler"].iloc[0]].colour
        if not np.isfinite(ends.median):
            axes.text(0.3, at, "not reached", va="center", fontsize=8, color=MUTED, style="italic")
            continue
        if at == 0:
            axes.axvline(ends.median, color=MUTED, lw=0.8, zorder=0)
        axes.plot([ends.low, min(ends.high, longest)], [at, at], color=colour, lw=2.0)
        axes.plot(ends.median, at, "o", color=colour, markersize=5)
    axes.set_xlim(0, longest)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_title(task)
    axes.set_xlabel("slots (hours) to the target")
    add_grid(axes, "x")


FIGURES = {"case": case_figure}


if __name__ == "__main__":
    part.main(NAME)
