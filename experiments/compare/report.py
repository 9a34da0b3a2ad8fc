"""Figures and report of the main job."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots, report
from asyncjax.study import search as tuning
from experiments.common.parts import save
from experiments.compare.runs import Outcome, Settings
from experiments.compare.tables import UNIT, heard, other_targets, ranked, to_target, verdict

AXES = {
    "time": f"time [{UNIT}]",
    "computed": "gradients computed",
    "version": "server updates",
}
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


def write(
    settings: Settings,
    outcomes: Sequence[Outcome],
    made: results.Table,
    agreement: str = "",
) -> Path:
    """Draws all figures and writes the report.

    Args:
        settings: What was run.
        outcomes: What came out.
        made: The table of the answer.
        agreement: What the two sets of instances say together.

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
        verdict=" ".join([verdict(settings, outcomes), agreement]).strip(),
    )
    path = settings.output / "report.html"
    report.write(path, document)
    return path


def command(settings: Settings) -> str:
    """What makes the same numbers again: the command with every option that is not the default.

    Example:
        >>> command(Settings(set="B", instances=3))
        'python -m experiments.compare --set B --instances 3'
    """
    words = ["python -m experiments.compare"]
    usual = Settings()
    for field in fields(Settings):
        value = getattr(settings, field.name)
        apart = field.name in ("output", "threads", "commit")  # change no number
        if apart or value == getattr(usual, field.name):
            continue
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"--{field.name.replace('_', '-')} {shown}")
    return " ".join(words)


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
        "tuning": _tuning(settings, outcomes, styles),
    }


def _tuning(settings: Settings, outcomes: Sequence[Outcome], styles: Any) -> Any:
    """The score by step size, of every step that was tried."""
    series = []
    for one in outcomes:
        trials = sorted((t.settings["step"], np.exp(t.score)) for t in one.tuned.trials)
        steps, scores = np.array(trials).T
        series.append(plots.Series(one.method.name, steps, scores, scores, scores))
    label = f"time to {100 * settings.target:g} %\n(geometric mean, cut at {settings.horizon:g})"
    panel = plots.Panel("step size", series, log_x=True)
    return plots.panels([panel], y_label=label, log_y=True, styles=styles)


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
    label = f"simulated time to stay at {100 * settings.target:g} % test accuracy\n[{UNIT}]"
    return plots.bars(names, reached, x_label=label, styles=styles)


def _summary(settings: Settings) -> str:
    """What was compared."""
    return (
        f"{settings.n_workers} simulated workers, the slowest {settings.slowest:g} times slower"
        " than the fastest, each with its own skewed share of scikit-learn's handwritten digits."
        f" {settings.instances} instances, each with shards, workers and a first model of its own;"
        " every method gets the same instances, the same simulated time and as many trials of its"
        f" step size. Methods stand everywhere in the order in which they reach"
        f" {100 * settings.target:g} % test accuracy to stay there until the end."
    )


def _limits(settings: Settings) -> report.Section:
    return report.Section(
        "Setting and limits",
        f"- Network: one hidden layer of {settings.hidden} units; batches of {settings.batch}"
        " rows drawn by each worker from its own shard.\n"
        "- Shards: labels divided by a Dirichlet law with concentration"
        f" {settings.concentration:g}, regardless of speed.\n"
        f"- Times: gamma law with shape 4, means from 1 to {settings.slowest:g}, their logarithms"
        " uniform; communication is free.\n"
        "- One data set, one network, one law of speeds: the order of the methods is an"
        " observation, not a theorem. Times are simulated and say nothing about any machine.",
    )


def _illustration(pictures: dict[str, bytes], name: str, caption: str) -> report.Illustration:
    """A picture, with its narrow form where it has one."""
    return report.Illustration(pictures[name], caption, narrow=pictures.get(f"{name}_narrow"))


def _answer(
    made: results.Table, further: results.Table, figure: Callable[[str, str], report.Illustration]
) -> list[report.Section]:
    """The sections that answer the question: bars and table, then the curves."""
    return [
        report.Section(
            "The answer",
            "",
            figures=(
                figure(
                    "to_target",
                    "Simulated time to the target, to stay there until the end, median and"
                    " quartiles; shorter is better.",
                ),
            ),
            tables=(made, further),
        ),
        report.Section(
            "Against time, gradients and updates",
            "The same runs against three axes. A round of synchronous training is one server update"
            " for the gradients of many workers, so counted in updates it looks cheap; against time"
            " it waits for the slowest worker.",
            figures=(
                figure("accuracy", "Test accuracy, median and quartiles over instances."),
                figure("loss", "Training loss, median and quartiles over instances."),
            ),
        ),
    ]


def _sections(
    settings: Settings,
    outcomes: Sequence[Outcome],
    made: results.Table,
    pictures: dict[str, bytes],
) -> list[report.Section]:
    methods = "\n".join(f"- {o.method.name}: {o.method.text}" for o in outcomes)
    papers = dict.fromkeys(PAPERS[n] for o in outcomes if (n := o.method.name) in PAPERS)

    figure = partial(_illustration, pictures)
    return [
        *_answer(made, other_targets(settings, outcomes), figure),
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
            f"Every method tried {len(outcomes[0].tuned.trials)} step sizes on the same"
            f" {settings.tuning_instances} instances, none of which is reported, and was given the"
            " one that is first at the target, by the mean logarithm of the time, on validation"
            f" rows: {100 * settings.validation:g} % of the training rows, on which nobody trains."
            " The test rows, on which methods are shown, are not read. A grid grows"
            " where its best value is an end. For Adaptive 1 and 2 the value is the bound gamma',"
            " not the step taken.",
            figures=(figure("tuning", "Time to the target by step size, tuning instances."),),
            tables=(tuning.table({one.method.name: one.tuned for one in outcomes}),),
        ),
        _limits(settings),
        report.provenance(command(settings), list(papers)),
    ]
