"""Table, figures and report of the main job."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import clocks, problems, results
from asyncjax.results import plots, report
from asyncjax.results.tables import format_number
from experiments.common.parts import save
from experiments.compare.runs import Outcome, Settings

UNIT = "mean job of the fastest worker"
AXES = {
    "time": f"time [{UNIT}]",
    "computed": "gradients computed",
    "version": "server updates",
}
EVEN = 0.9  # of an even share: who hears every worker at least so much is called even
_TIMELINES = ("synchronous", "fastest half", "pure async", "shuffled async")
_ASGRAD = "Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)"
_WU = (
    "Wu, Magnússon, Feyzmahdavian, Johansson, 2022, Delay-adaptive step-sizes for asynchronous"
    " learning (arXiv 2202.08550)"
)
PAPERS = {
    "synchronous": "Chen, Pan, Monga, Bengio, Jozefowicz, 2016, Revisiting distributed synchronous"
    " SGD (arXiv 1604.00981)",
    "fastest half": "Dutta, Joshi, Ghosh, Dube, Nagpurkar, 2018, Slow and stale gradients can win"
    " the race (arXiv 1803.01113)",
    "pure async": _ASGRAD,
    "random async": "Koloskova, Stich, Jaggi, 2022, Sharper convergence guarantees for asynchronous"
    " SGD (arXiv 2206.08307)",
    "shuffled async": _ASGRAD,
    "buffered 8": "Nguyen and others, 2022, Federated learning with buffered asynchronous"
    " aggregation (arXiv 2106.06639)",
    "Adaptive 1": _WU,
    "Adaptive 2": _WU,
    "staleness scaled": "Xie, Koyejo, Gupta, 2019, Asynchronous federated optimization (arXiv"
    " 1903.03934)",
}


def to_target(settings: Settings, outcome: Outcome) -> results.Spread:
    """Simulated time to the target over seeds."""
    return _spread(
        results.time_to_target(outcome.time, outcome.accuracy, target=settings.target, above=True)
    )


def ranked(settings: Settings, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, first at the target first; who never reaches it by final accuracy, below."""

    def place(outcome: Outcome) -> tuple[float, float]:
        accuracy = float(np.median(np.nan_to_num(_at_horizon(settings, outcome, outcome.accuracy))))
        return float(to_target(settings, outcome).median), -accuracy

    return sorted(outcomes, key=place)


def table(settings: Settings, outcomes: Sequence[Outcome]) -> results.Table:
    """One row a method: time and gradients to the target, final loss, delays, use of workers.

    The first at the target stands first.
    """
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
    for outcome in ranked(settings, outcomes):
        shared = {"target": settings.target, "above": True}
        rows.append(
            (
                outcome.method.name,
                outcome.step_size,
                to_target(settings, outcome),
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
    best_first = ranked(settings, outcomes)
    drawn = _figures(settings, best_first, styles)
    for outcome in outcomes:
        if (name := outcome.method.name) in _TIMELINES:
            picture = plots.timeline(
                outcome.trace, until=3.0 * settings.slowest, title=name, unit=UNIT
            )
            drawn[f"timeline_{name.replace(' ', '_')}"] = picture
    figures = {
        name: save(settings.output / f"{name}.png", drawing) for name, drawing in drawn.items()
    }
    document = report.render(
        "Which way of training copes best with uneven workers?",
        _summary(settings),
        _sections(settings, best_first, made, figures),
        verdict=verdict(settings, outcomes),
    )
    path = settings.output / "report.html"
    report.write(path, document)
    return path


def verdict(settings: Settings, outcomes: Sequence[Outcome]) -> str:
    """The answer in words, from the numbers: who is first, by how much, who is not told apart."""
    best_first = ranked(settings, outcomes)
    spreads = {one.method.name: to_target(settings, one) for one in best_first}
    first = best_first[0]
    name, spread = first.method.name, spreads[first.method.name]
    goal = f"{100 * settings.target:g} % test accuracy"
    if not np.isfinite(spread.median):
        accuracy = float(np.median(_at_horizon(settings, first, first.accuracy)))
        return (
            f"No way of training reaches {goal} within {settings.horizon:g} units of simulated"
            f" time; {name} comes closest, with {100 * accuracy:.3g} %."
        )
    words = [
        f"{_capital(name)} is first at {goal}, after {_number(spread.median)} units of simulated"
        f" time (quartiles {_number(spread.low)} to {_number(spread.high)}; a unit is the"
        f" {UNIT})."
    ]
    waits = spreads.get("synchronous")
    if waits is not None and name != "synchronous" and np.isfinite(waits.median):
        ratio = float(waits.median) / float(spread.median)
        words.append(f"Synchronous rounds need {_number(waits.median)}: {ratio:.2g} times as long.")
    close = [n for n, own in spreads.items() if n != name and own.low <= spread.high]
    if close:
        words.append(f"Not told apart from it (quartiles overlap): {_listed(close, spreads)}.")
    missed = [n for n, own in spreads.items() if not np.isfinite(own.median)]
    if missed:
        words.append(f"Not reached within {settings.horizon:g} units: {', '.join(missed)}.")
    return " ".join([*words, *_fairness(settings, best_first, spreads)])


def _fairness(
    settings: Settings, best_first: Sequence[Outcome], spreads: dict[str, results.Spread]
) -> list[str]:
    """What the first one's speed may cost: how little it hears a worker, and who hears all."""
    least = {
        one.method.name: float(
            np.median([s.n_workers * min(s.used_by_worker) / s.used for s in one.summaries])
        )
        for one in best_first
    }
    first = best_first[0].method.name
    if least[first] >= EVEN:
        return []
    words = f"It hears its least heard worker {least[first]:.2g} times as often as an even share"
    even = [n for n in least if least[n] >= EVEN and np.isfinite(spreads[n].median)]
    if even:
        words += (
            "; the first of those that hear all alike is"
            f" {even[0]}, after {_number(spreads[even[0]].median)}"
        )
    return [words + "."]


def command(settings: Settings) -> str:
    """What makes the same numbers again: the command with every option that is not the default.

    Example:
        >>> command(Settings(seeds=3, step_sizes=(0.1, 0.2)))
        'python -m experiments.compare --seeds 3 --step-sizes 0.1 0.2'
    """
    words = ["python -m experiments.compare"]
    usual = Settings()
    for field in fields(Settings):
        value = getattr(settings, field.name)
        if field.name == "output" or value == getattr(usual, field.name):
            continue
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"--{field.name.replace('_', '-')} {shown}")
    return " ".join(words)


def _capital(name: str) -> str:
    """A name at the beginning of a sentence."""
    return name[:1].upper() + name[1:]


def _number(value: Any) -> str:
    """A number in a sentence."""
    return format_number(float(value))


def _listed(names: Sequence[str], spreads: dict[str, results.Spread]) -> str:
    """Names with their medians, in a sentence."""
    return ", ".join(
        f"{name} ({_number(spreads[name].median)})"
        if np.isfinite(spreads[name].median)
        else f"{name} (median not reached)"
        for name in names
    )


def _figures(settings: Settings, outcomes: Sequence[Outcome], styles: Any) -> dict[str, Any]:
    """Every figure but the timelines, those of several panels twice: wide, and narrow."""
    delays = {o.method.name: o.trace.delay[o.trace.used] for o in outcomes}
    loss, accuracy = (_panels(settings, outcomes, values) for values in ("loss", "accuracy"))
    shown = {"y_label": "training loss", "log_y": True, "styles": styles}
    judged = {"y_label": "test accuracy", "target": settings.target, "styles": styles}
    return {
        "to_target": _bars(settings, outcomes, styles),
        "accuracy": plots.panels(accuracy, **judged),
        "accuracy_narrow": plots.panels(accuracy, columns=1, **judged),
        "loss": plots.panels(loss, **shown),
        "loss_narrow": plots.panels(loss, columns=1, **shown),
        "staleness": plots.staleness_histogram(delays, styles=styles),
        "staleness_narrow": plots.staleness_histogram(delays, columns=2, styles=styles),
        "tuning": plots.step_size_sensitivity(
            settings.step_sizes,
            {o.method.name: o.tuning for o in outcomes},
            y_label="training loss at the end",
            styles=styles,
        ),
    }


def _spread(values: Any, smaller: bool = True) -> results.Spread:
    return results.median_and_spread(values, smaller_is_better=smaller)


def _at_horizon(settings: Settings, outcome: Outcome, values: np.ndarray) -> np.ndarray:
    """The last value within the horizon, float[S]; NaN where the run had diverged."""
    last = np.sum(outcome.time <= settings.horizon, axis=1) - 1
    return values[np.arange(len(values)), last]


def _panels(settings: Settings, outcomes: Sequence[Outcome], values: str) -> list[plots.Panel]:
    """The curves of one measure, a panel an axis."""
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
    return parts


def _bars(settings: Settings, outcomes: Sequence[Outcome], styles: Any) -> Any:
    names = [outcome.method.name for outcome in outcomes]
    reached = [to_target(settings, outcome) for outcome in outcomes]
    label = f"simulated time to {100 * settings.target:g} % test accuracy\n[{UNIT}]"
    return plots.bars(names, reached, x_label=label, styles=styles)


def _summary(settings: Settings) -> str:
    """What was compared."""
    return (
        f"{settings.n_workers} simulated workers, the slowest {settings.slowest:g} times slower"
        " than the fastest, each with its own skewed share of scikit-learn's handwritten digits."
        " Every method gets the same simulated time, the same workers and the same grid of step"
        f" sizes. Methods stand everywhere in the order in which they reach"
        f" {100 * settings.target:g} % test accuracy, medians over {settings.seeds} seeds."
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


def _illustration(pictures: dict[str, bytes], name: str, caption: str) -> report.Illustration:
    """A picture, with its narrow form where it has one."""
    return report.Illustration(pictures[name], caption, narrow=pictures.get(f"{name}_narrow"))


def _answer(
    made: results.Table, figure: Callable[[str, str], report.Illustration]
) -> list[report.Section]:
    """The sections that answer the question: bars and table, then the curves."""
    return [
        report.Section(
            "The answer",
            "",
            figures=(
                figure(
                    "to_target",
                    "Simulated time to the target, median and quartiles; shorter is better.",
                ),
            ),
            tables=(made,),
        ),
        report.Section(
            "Against time, gradients and updates",
            "The same runs against three axes. A round of synchronous training is one server update"
            " for the gradients of many workers, so counted in updates it looks cheap; against time"
            " it waits for the slowest worker.",
            figures=(
                figure("accuracy", "Test accuracy, median and quartiles over seeds."),
                figure("loss", "Training loss, median and quartiles over seeds."),
            ),
        ),
    ]


def _sections(
    settings: Settings,
    outcomes: Sequence[Outcome],
    made: results.Table,
    pictures: dict[str, bytes],
) -> list[report.Section]:
    edges = [o.method.name for o in outcomes if o.at_edge]
    edge_note = (
        f"The chosen step lies at the end of the grid for: {', '.join(edges)}; a wider grid may"
        " serve them better."
        if edges
        else "No chosen step lies at the end of the grid."
    )
    methods = "\n".join(f"- {o.method.name}: {o.method.text}" for o in outcomes)
    papers = dict.fromkeys(PAPERS[n] for o in outcomes if (n := o.method.name) in PAPERS)

    figure = partial(_illustration, pictures)
    return [
        *_answer(made, figure),
        report.Section("Who is heard", "", tables=(heard(settings, outcomes),)),
        report.Section("The methods", methods),
        report.Section(
            "Staleness",
            "With one job handed out per arrival, the mean delay is the number of open jobs less"
            " one whatever the rule; rules differ in the tail.",
            figures=(figure("staleness", "Delays of the gradients used, in server updates."),),
        ),
        report.Section(
            "Who works when",
            "A bar is a job, from its start to its arrival; worker 0 is the fastest.",
            figures=tuple(
                figure(f"timeline_{name.replace(' ', '_')}", f"The first moments: {name}.")
                for name in (o.method.name for o in outcomes)
                if name in _TIMELINES
            ),
        ),
        report.Section(
            "Choice of the step size",
            f"Each method's step was chosen on the same {len(settings.step_sizes)} values by the"
            f" final training loss on {settings.tuning_seeds} seeds that are not reported."
            f" {edge_note} For Adaptive 1 and 2 the value is the bound gamma', not the step taken.",
            figures=(figure("tuning", "Final training loss by step size, tuning seeds."),),
        ),
        _limits(settings),
        report.provenance(command(settings), list(papers)),
    ]
