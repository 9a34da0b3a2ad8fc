"""Table, figures and report of the main job."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import clocks, problems, results
from asyncjax.results import plots, report
from experiments.common.parts import save
from experiments.compare.runs import Outcome, Settings

AXES = {
    "time": "simulated time [mean time of the fastest worker]",
    "computed": "gradients computed",
    "version": "server updates",
}


def table(settings: Settings, outcomes: Sequence[Outcome]) -> results.Table:
    """One row a method: time and gradients to the target, final loss, delays, use of workers."""
    percent = f"{100 * settings.target:g} %"
    columns = (
        results.Column("method", right=False),
        results.Column("step"),
        results.Column(f"time to {percent}"),
        results.Column(f"gradients to {percent}"),
        results.Column("final loss"),
        results.Column("final accuracy"),
        results.Column("mean delay"),
        results.Column("max delay"),
        results.Column("utilisation"),
        results.Column("thrown away"),
    )
    rows = []
    for outcome in outcomes:
        shared = {"target": settings.target, "above": True}
        rows.append(
            (
                outcome.method.name,
                outcome.step_size,
                _spread(results.time_to_target(outcome.time, outcome.accuracy, **shared)),
                _spread(results.time_to_target(outcome.computed, outcome.accuracy, **shared)),
                _spread(_at_horizon(settings, outcome, outcome.loss)),
                _spread(_at_horizon(settings, outcome, outcome.accuracy), smaller=False),
                _spread([summary.delay_mean for summary in outcome.summaries]),
                _spread([summary.delay_max for summary in outcome.summaries]),
                _spread([summary.utilisation for summary in outcome.summaries]),
                _spread([wasted(summary) for summary in outcome.summaries]),
            )
        )
    return results.Table(
        columns,
        tuple(rows),
        f"Median (quartiles) over {settings.seeds} seeds after {settings.horizon:g}"
        " units of simulated time; 'thrown away' is the share of delivered or"
        " cancelled gradients that never entered a step. Times are read off at the"
        f" records, about {settings.horizon / settings.records:.2g} units apart.",
    )


def heard(settings: Settings, outcomes: Sequence[Outcome]) -> results.Table:
    """One row a method: each worker's share of the gradients that entered a step."""
    columns = [results.Column("method", right=False)]
    columns += [results.Column(f"worker {worker}", "%") for worker in range(settings.n_workers)]
    rows = []
    for outcome in outcomes:
        shares = [100 * summary.used_by_worker / summary.used for summary in outcome.summaries]
        rows.append((outcome.method.name, *np.median(shares, axis=0)))
    return results.Table(
        tuple(columns),
        tuple(rows),
        "Who is heard: share of the gradients that entered a step, by worker, the fastest first,"
        f" median over {settings.seeds} seeds; {100 / settings.n_workers:.3g} % each would be even."
        " What a worker alone holds is learned at the rate at which he is heard, so a method that"
        " is ahead while its slow workers are hardly heard solves another problem than the given.",
    )


def wasted(summary: Any) -> float:
    """Share of delivered or cancelled gradients that entered no step."""
    lost = summary.thrown_away + summary.cancelled
    return lost / (summary.used + lost)


def plain_value(value: Any) -> Any:
    """A table cell for JSON."""
    if isinstance(value, results.Spread):
        return {name: float(getattr(value, name)) for name in ("median", "low", "high", "reached")}
    return value


def write(
    settings: Settings,
    outcomes: Sequence[Outcome],
    made: results.Table,
    problem: problems.Problem,
    clock: clocks.Clock,
) -> Path:
    """Draws all figures and writes the report.

    Returns:
        The report's path; the figures lie beside it.
    """
    styles = plots.assign_styles(outcome.method.name for outcome in outcomes)
    figures = {
        "loss": _panels(settings, outcomes, styles, "loss", "training loss", log_y=True),
        "accuracy": _panels(settings, outcomes, styles, "accuracy", "test accuracy", log_y=False),
        "to_target": _bars(settings, outcomes, styles),
        "staleness": plots.staleness_histogram(
            {o.method.name: o.trace.delay[o.trace.used] for o in outcomes}, styles=styles
        ),
        "tuning": plots.step_size_sensitivity(
            settings.step_sizes,
            {o.method.name: o.tuning for o in outcomes},
            y_label="training loss at the end",
            styles=styles,
        ),
    }
    timelines = {
        o.method.name: plots.timeline(o.trace, until=3.0 * settings.slowest, title=o.method.name)
        for o in outcomes
        if o.method.name in ("synchronous", "fastest half", "pure async", "shuffled async")
    }
    figures = {
        name: save(settings.output / f"{name}.png", drawn) for name, drawn in figures.items()
    }
    timelines = {
        name: save(settings.output / f"timeline_{name.replace(' ', '_')}.png", drawn)
        for name, drawn in timelines.items()
    }
    document = report.render(
        "Which way of training copes best with uneven workers?",
        _summary(settings, outcomes),
        _sections(settings, outcomes, made, figures, timelines, problem, clock),
    )
    path = settings.output / "report.html"
    report.write(path, document)
    return path


def _spread(values: Any, smaller: bool = True) -> results.Spread:
    return results.median_and_spread(values, smaller_is_better=smaller)


def _at_horizon(settings: Settings, outcome: Outcome, values: np.ndarray) -> np.ndarray:
    """The last value within the horizon, float[S]; NaN where the run had diverged."""
    last = np.sum(outcome.time <= settings.horizon, axis=1) - 1
    return values[np.arange(len(values)), last]


def _panels(
    settings: Settings,
    outcomes: Sequence[Outcome],
    styles: Any,
    values: str,
    y_label: str,
    *,
    log_y: bool,
) -> Any:
    parts = []
    for axis, label in AXES.items():
        series = []
        for outcome in outcomes:
            x = getattr(outcome, axis).astype(float)
            within = np.where(outcome.time <= settings.horizon, x, np.nan)
            grid = np.linspace(np.min(x[:, 0]), np.nanmin(np.nanmax(within, axis=1)), 150)
            series.append(
                results.series_over_seeds(
                    outcome.method.name,
                    x,
                    getattr(outcome, values),
                    grid,
                    smaller_is_better=values == "loss",
                )
            )
        parts.append(plots.Panel(label, series, log_x=axis != "time"))
    target = settings.target if values == "accuracy" else None
    return plots.panels(parts, y_label=y_label, log_y=log_y, target=target, styles=styles)


def _bars(settings: Settings, outcomes: Sequence[Outcome], styles: Any) -> Any:
    names = [outcome.method.name for outcome in outcomes]
    reached = [
        _spread(results.time_to_target(o.time, o.accuracy, target=settings.target, above=True))
        for o in outcomes
    ]
    label = f"simulated time to {100 * settings.target:g} % test accuracy"
    return plots.bars(names, reached, x_label=label, styles=styles)


def _summary(settings: Settings, outcomes: Sequence[Outcome]) -> str:
    medians = {
        o.method.name: float(
            _spread(
                results.time_to_target(o.time, o.accuracy, target=settings.target, above=True)
            ).median
        )
        for o in outcomes
    }
    ranked = sorted(medians, key=lambda name: medians[name])
    places = ", ".join(
        f"{name} {medians[name]:.3g}" if np.isfinite(medians[name]) else f"{name} not reached"
        for name in ranked
    )
    return (
        f"{settings.n_workers} simulated workers, the slowest {settings.slowest:g} times slower"
        " than the fastest, each with its own skewed share of scikit-learn's handwritten digits."
        " Every method gets the same simulated time, the same workers and the same grid of step"
        " sizes.\n\n"
        f"Simulated time to {100 * settings.target:g} % test accuracy, median over"
        f" {settings.seeds} seeds, best first: {places}."
    )


def _limits(settings: Settings) -> report.Section:
    return report.Section(
        "Setting and limits",
        f"- Network: one hidden layer of {settings.hidden} units; batches of {settings.batch}"
        " rows drawn by each worker from its own shard.\n"
        "- Shards: labels divided by a Dirichlet law with concentration"
        f" {settings.concentration:g}, regardless of speed.\n"
        f"- Times: gamma law with shape 4, means from 1 to {settings.slowest:g} in geometric"
        " steps; communication is free.\n"
        "- One data set, one network, one law of speeds: the order of the methods is an"
        " observation, not a theorem. Times are simulated and say nothing about any machine.",
    )


def _sections(
    settings: Settings,
    outcomes: Sequence[Outcome],
    made: results.Table,
    figures: dict[str, Any],
    timelines: dict[str, Any],
    problem: problems.Problem,
    clock: clocks.Clock,
) -> list[report.Section]:
    edges = [o.method.name for o in outcomes if o.at_edge]
    edge_note = (
        f"The chosen step lies at the end of the grid for: {', '.join(edges)}; a wider grid may"
        " serve them better."
        if edges
        else "No chosen step lies at the end of the grid."
    )
    figure = report.Illustration
    methods = "\n".join(f"- {o.method.name}: {o.method.text}" for o in outcomes)
    return [
        report.Section(
            "Result",
            "The same runs against three axes. Against server updates the synchronous rounds look"
            " best, since each of their steps averages many gradients; against time they wait for"
            " the slowest worker.",
            figures=(
                figure(figures["loss"], "Training loss, median and quartiles over seeds."),
                figure(figures["accuracy"], "Test accuracy, median and quartiles over seeds."),
                figure(figures["to_target"], "Simulated time to the target, median and quartiles."),
            ),
            tables=(made, heard(settings, outcomes)),
        ),
        report.Section("The methods", methods),
        report.Section(
            "Staleness",
            "With one job handed out per arrival, the mean delay is the number of open jobs less"
            " one whatever the rule; rules differ in the tail.",
            figures=(
                figure(figures["staleness"], "Delays of the gradients used, in server updates."),
            ),
        ),
        report.Section(
            "Who works when",
            "A bar is a job, from its start to its arrival; worker 0 is the fastest.",
            figures=tuple(
                figure(picture, f"The first moments: {name}.")
                for name, picture in timelines.items()
            ),
        ),
        report.Section(
            "Choice of the step size",
            f"Each method's step was chosen on the same {len(settings.step_sizes)} values by the"
            f" final training loss on {settings.tuning_seeds} seeds that are not reported."
            f" {edge_note} For Adaptive 1 and 2 the value is the bound gamma', not the step taken.",
            figures=(figure(figures["tuning"], "Final training loss by step size, tuning seeds."),),
        ),
        _limits(settings),
    ]
