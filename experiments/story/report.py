"""Tables, the page of pictures and the report of the story: schedule, crews, curves."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import cluster, results
from asyncjax.results import plots, report
from asyncjax.results.plots.style import COLOURS, MUTED, add_grid, drawing, new_figure, set_log
from experiments.common.parts import Drawing, Part, section
from experiments.story.choices import PAPERS as PAPERS
from experiments.story.runs import Outcome, Task

# Of the choices, those whose curves are drawn; all are in the tables.
DRAWN = (
    "full set",
    "all plain",
    "dispatch: pure",
    "examples: drawn with replacement",
    "schedule: DRF",
    "schedule: marginal goodput",
    "synchronous, planned k",
    "all plain, schedule: DRF",
)
BOLD = ("full set", "all plain")  # with their quartiles


def tables(
    tasks: Sequence[Task],
    found: Mapping[str, Sequence[Outcome]],
    targets: Mapping[str, float],
    outcomes: Mapping[str, cluster.Outcome],
) -> tuple[results.Table, ...]:
    """One table a job, one of the schedules."""
    return (
        *(_choices(task, found[task.name], targets[task.name]) for task in tasks),
        _schedules(tasks, found, outcomes),
    )


def in_words(tasks: Sequence[Task], found: Mapping[str, Sequence[Outcome]]) -> str:
    """Who ends lower on this workload, the full set or all plain, by median and by seeds."""
    said = []
    for task in tasks:
        ends = {own.choice.name: own.final for own in found[task.name]}
        full, plain = (ends[name] for name in BOLD)
        said.append(
            f"{task.name}: the full set ends at {np.median(full):.3g}, all plain at"
            f" {np.median(plain):.3g}, lower on {int((plain < full).sum())} of {len(full)} seeds"
        )
    return f"{'; '.join(said)}. One workload; `experiments.story.workloads` has more."


def _choices(task: Task, outcomes: Sequence[Outcome], target: float) -> results.Table:
    heads = (
        "step",
        "awaited",
        "slots (hours) to target",
        "GPU-slots held to target",
        "slots to completion",
        "gradients computed",
        "used",
        "final loss",
        "mean delay",
        "longest",
    )
    rows = []
    for own in outcomes:
        reached = own.reached(target)
        rows.append(
            (
                own.choice.name,
                own.step_size,
                own.awaited,
                results.median_and_spread(reached),
                results.median_and_spread([own.site.held(time) for time in reached]),
                own.site.budget,
                int(np.median(own.computed)),
                int(np.median(own.used)),
                results.median_and_spread(own.final),
                float(np.median(own.delay)),
                int(np.max(own.longest)),
            )
        )
    return results.Table(
        (results.Column(task.name, right=False), *(results.Column(head) for head in heads)),
        tuple(rows),
        f"Job {task.job}, {task.label}; median (quartiles) over {len(outcomes[0].final)} seeds."
        f" The target, {target:.3g}, is a multiple of the loss at which all plain ends on the"
        " tuning seeds. 'Final' is the mean over the last tenth of the time that the schedule"
        " needs. The target is reached when the mean of a tenth of the records is there. A slot"
        " that has begun counts as held.",
    )


def _schedules(
    tasks: Sequence[Task],
    found: Mapping[str, Sequence[Outcome]],
    outcomes: Mapping[str, cluster.Outcome],
) -> results.Table:
    heads = [results.Column("total utility"), results.Column("jobs finished")]
    for task in tasks:
        heads += [
            results.Column(f"job {task.job}: workers in each slot", right=False),
            results.Column("slots to completion"),
            results.Column("GPU-slots held"),
        ]
    rows = []
    for name, outcome in outcomes.items():
        row: list[Any] = [name, outcome.utility, outcome.completed]
        for task in tasks:
            sites = [own.site for own in found[task.name] if own.site.scheduler == name]
            if sites:
                crews = " ".join(str(crew) for crew in sites[0].crews)
                row += [crews, sites[0].budget, sites[0].held(sites[0].budget)]
            else:
                row += [None, None, None]
        rows.append(tuple(row))
    return results.Table(
        (results.Column("scheduler", right=False), *heads),
        tuple(rows),
        "The same jobs on the same machines.",
    )


def numbers(
    tasks: Sequence[Task],
    found: Mapping[str, Sequence[Outcome]],
    targets: Mapping[str, float],
    outcomes: Mapping[str, cluster.Outcome],
) -> dict[str, Any]:
    """Everything in the tables and the curves as plain values; arguments as in `tables`."""
    return {
        "schedules": {
            name: {"utility": own.utility, "completed": own.completed}
            for name, own in outcomes.items()
        },
        "jobs": {
            task.name: {
                "job": task.job,
                "target": targets[task.name],
                "choices": {
                    own.choice.name: {
                        "scheduler": own.site.scheduler,
                        "crews": own.site.crews.tolist(),
                        "budget": own.site.budget,
                        "gpu_slots": own.site.held(own.site.budget),
                        "step_size": own.step_size,
                        "at_edge": own.at_edge,
                        "awaited": own.awaited,
                        "to_target": own.reached(targets[task.name]).tolist(),
                        "final": own.final.tolist(),
                        "used": own.used.tolist(),
                        "computed": own.computed.tolist(),
                        "delay": own.delay.tolist(),
                        "longest": own.longest.tolist(),
                        "time": own.time.tolist(),
                        "loss": own.loss.tolist(),
                    }
                    for own in found[task.name]
                },
            }
            for task in tasks
        },
    }


def drawing_of(
    schedule: cluster.Schedule,
    jobs: cluster.Jobs,
    tasks: Sequence[Task],
    found: Mapping[str, Sequence[Outcome]],
    targets: Mapping[str, float],
) -> Drawing:
    """The story on one page: schedule, crews, curves."""
    numbers = " and ".join(str(task.job) for task in tasks)
    chart = plots.schedule_chart(
        schedule.workers,
        arrival=jobs.arrival,
        completion=cluster.completion(schedule, jobs),
        title=f"1. PD-ORS gives jobs workers, slot by slot; jobs {numbers} are trained below",
    )
    page = stacked([chart, _curves(tasks, found, targets), _times(tasks, found, targets)])
    caption = (
        "Schedule of PD-ORS, crews under three schedulers, training on the clocks of these crews"
        " (medians over seeds; quartiles of two), and slots to the target, the dotted line, in"
        " the colours of the schedulers."
    )
    return "", page, caption


def _curves(
    tasks: Sequence[Task],
    found: Mapping[str, Sequence[Outcome]],
    targets: Mapping[str, float],
) -> Any:
    """Crews above, curves below, a column for each job."""
    with drawing():
        figure = new_figure(8.0, 7.4)
        grid = figure.subplots(2, len(tasks), squeeze=False, height_ratios=[1.0, 2.2])
        styles = plots.assign_styles(DRAWN)
        for column, task in enumerate(tasks):
            _crews(grid[0, column], task, found[task.name], column == 0)
            axes = grid[1, column]
            for own in found[task.name]:
                if own.choice.name in DRAWN:
                    _curve(axes, own, styles[own.choice.name])
            axes.axhline(targets[task.name], color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
            set_log(axes.yaxis, True)
            add_grid(axes)
            axes.set_title(f"3. {task.name}")
            axes.set_xlabel("slots (hours) after arrival")
            axes.set_ylabel(task.label)
        figure.legend(*grid[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _times(
    tasks: Sequence[Task],
    found: Mapping[str, Sequence[Outcome]],
    targets: Mapping[str, float],
) -> Any:
    """Slots to the target of every choice, a column for each job."""
    with drawing():
        figure = new_figure(8.0, 1.0 + 0.2 * len(found[tasks[0].name]))
        grid = figure.subplots(1, len(tasks), squeeze=False)[0]
        for axes, task in zip(grid, tasks, strict=True):
            _reached(axes, found[task.name], targets[task.name], axes is grid[0])
            axes.set_title(f"4. {task.name}")
    return figure


def _reached(axes: Any, outcomes: Sequence[Outcome], target: float, named: bool) -> None:
    """Slots to the target of every choice, median and quartiles."""
    longest = max(own.site.budget for own in outcomes)
    for row, own in enumerate(outcomes):
        spread = results.median_and_spread(own.reached(target))
        colour = COLOURS[("PD-ORS", "DRF", "goodput").index(own.site.scheduler)]
        if not np.isfinite(spread.median):
            axes.text(0.3, row, "not reached", va="center", fontsize=8, color=MUTED, style="italic")
            continue
        axes.plot([spread.low, min(spread.high, longest)], [row, row], color=colour, lw=2.0)
        axes.plot(spread.median, row, "o", color=colour, markersize=5)
    axes.axvline(
        results.median_and_spread(outcomes[0].reached(target)).median, color=MUTED, lw=0.8, zorder=0
    )
    axes.set_xlim(0, longest)
    axes.set_ylim(len(outcomes) - 0.4, -0.6)
    axes.set_yticks(
        range(len(outcomes)), [own.choice.name if named else "" for own in outcomes], fontsize=8
    )
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("slots (hours) to the dotted loss")
    add_grid(axes, "x")


def _crews(axes: Any, task: Task, outcomes: Sequence[Outcome], legend: bool) -> None:
    """Workers over slots, a line for each scheduler."""
    sites = {own.site.scheduler: own.site for own in outcomes}
    styles = plots.assign_styles(["PD-ORS", "DRF", "goodput"])
    for name, site in sites.items():
        heights = np.append(site.crews, 0)
        axes.step(
            np.arange(len(heights)),
            heights,
            where="post",
            label="marginal goodput" if name == "goodput" else name,
            color=styles[name].colour,
            linestyle=styles[name].dash,
        )
    axes.set_ylim(0, None)
    axes.set_title(f"2. crew of job {task.job}")
    axes.set_xlabel("slots after arrival")
    axes.set_ylabel("workers")
    add_grid(axes, "y")
    if legend:
        axes.legend(loc="upper right", fontsize=8)


def _curve(axes: Any, own: Outcome, style: Any) -> None:
    """Median and quartiles of a choice's loss."""
    points = np.linspace(0.0, own.site.budget, 60)[1:]
    line = results.series_over_seeds(own.choice.name, own.time, own.loss, points)
    bold = own.choice.name in BOLD
    if bold:
        axes.fill_between(points, line.low, line.high, color=style.colour, alpha=0.16, linewidth=0)
    axes.plot(
        points,
        line.median,
        color=style.colour,
        linestyle=style.dash,
        label=line.name,
        lw=2.2 if bold else 1.0,
    )


def stacked(figures: Sequence[Any], dpi: int = 150) -> bytes:
    """Figures below one another as one PNG."""
    from matplotlib.image import imread

    pictures = [imread(io.BytesIO(plots.png_bytes(figure, dpi))) for figure in figures]
    width = max(picture.shape[1] for picture in pictures)
    height = sum(picture.shape[0] for picture in pictures)
    with drawing():
        page = new_figure(width / dpi, height / dpi)
        page.set_layout_engine("none")
        below = height
        for picture in pictures:
            below -= picture.shape[0]
            page.figimage(picture, 0, below)
    return plots.png_bytes(page, dpi)


def write(path: Path, part: Part) -> None:
    """Writes the report of the part."""
    summary = (
        "Jobs and machines go through a scheduler; the crews that it gives a job are a clock; a"
        " clock and a dispatch rule make a trace; step rules and example orders make a curve of"
        " it. The full set has a method for each place, and each is replaced alone. All choices"
        " are tuned on the same grid, on seeds that are not reported."
    )
    sections = [section(replace(part, title="The story"))]
    report.write(path, report.render(part.title, summary, sections))
