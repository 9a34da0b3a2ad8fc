"""Report of the main job: the answer, curves, use of workers, staleness, choice of step sizes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots, report
from experiments.compare.runs import UNIT, Outcome, Settings
from experiments.part import save

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


def command(settings: Settings) -> str:
    """What makes the same numbers again: the command with every option that is not the default.

    Example:
        >>> command(Settings(set="B", instances=3))
        'python -m experiments.compare --set B --instances 3'
    """
    words = ["python -m experiments.compare"]
    for name, value in vars(settings).items():
        if name in ("output", "threads", "commit") or value == getattr(Settings(), name):
            continue  # the first three change no number
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"--{name.replace('_', '-')} {shown}")
    return " ".join(words)


def write(
    settings: Settings,
    outcomes: Sequence[Outcome],
    bars: report.Illustration,
    tables: Mapping[str, Sequence[results.Table]],
    answer: str,
) -> Path:
    """Draws all figures, writes them and the report into `output`.

    Args:
        settings: What was run.
        outcomes: What came out.
        bars: The figure of the answer.
        tables: Of the sections "answer", "claims" and "tuning".
        answer: In words.

    Returns:
        The report's path.
    """
    drawn = {"to_target": bars, **_figures(settings, outcomes)}
    for name, one in drawn.items():
        save(settings.output / f"{name}.png", one.figure)
    document = report.render(
        "Which way of training copes best with uneven workers?",
        f"{settings.n_workers} simulated workers, the slowest {settings.slowest:g} times slower"
        " than the fastest, each with its own skewed share of scikit-learn's handwritten digits."
        f" {settings.instances} instances, each with shards, workers and a first model of its own;"
        " every method gets the same instances, the same simulated time and as many trials of its"
        f" step size. Times are those after which a run stays at {100 * settings.target:g} % test"
        " accuracy until the end.",
        _sections(settings, outcomes, tables, drawn),
        verdict=answer,
    )
    report.write(path := settings.output / "report.html", document)
    return path


def _figures(settings: Settings, outcomes: Sequence[Outcome]) -> dict[str, report.Illustration]:
    """All but the bars; what has several panels has a narrow form, too."""
    styles = plots.assign_styles(outcome.method.name for outcome in outcomes)
    goal, delays = f"{100 * settings.target:g} %", {}
    drawn: dict[str, report.Illustration] = {}
    for one in outcomes:
        name = one.method.name
        delays[name] = one.trace.delay[one.trace.used]
        if name in _TIMELINES:
            bars = plots.timeline(one.trace, until=3.0 * settings.slowest, title=name, unit=UNIT)
            caption = f"The first moments: {name}."
            drawn[f"timeline_{name.replace(' ', '_')}"] = report.Illustration(bars, caption)

    def both(draw: Callable[..., Any], given: Any, caption: str, **more: Any) -> Any:
        columns = (3, 1) if draw is plots.panels else (3, 2)
        wide, narrow = (draw(given, columns=count, styles=styles, **more) for count in columns)
        return report.Illustration(wide, caption, narrow=narrow)

    shapes: dict[str, tuple[str, dict[str, Any]]] = {
        "accuracy": ("test accuracy", {"target": settings.target}),
        "loss": ("training loss", {"log_y": True}),
    }
    for values, (label, more) in shapes.items():
        curves = [_panel(settings, outcomes, values, *axis) for axis in AXES.items()]
        caption = f"{label.capitalize()}, median and quartiles over instances."
        drawn[values] = both(plots.panels, curves, caption, y_label=label, **more)
    caption = "Delays of the gradients used, in server updates."
    drawn["staleness"] = both(plots.staleness_histogram, delays, caption)
    tried = []
    for one in outcomes:
        trials = sorted((t.settings["step"], np.exp(t.score)) for t in one.tuned.trials)
        steps, scores = np.array(trials).T
        tried.append(plots.Series(one.method.name, steps, scores))
    label = f"time to {goal}\n(geometric mean, cut at {settings.horizon:g})"
    panel = plots.Panel("step size", tried, log_x=True)
    drawn["tuning"] = report.Illustration(
        plots.panels([panel], y_label=label, log_y=True, styles=styles),
        "Time to the target by step size, tuning instances.",
    )
    return drawn


def _panel(
    settings: Settings, outcomes: Sequence[Outcome], values: str, axis: str, label: str
) -> plots.Panel:
    """The curves of one measure against an axis."""
    series = []
    for one in outcomes:
        x = getattr(one, axis).astype(float)
        within = np.where(one.time <= settings.horizon, x, np.nan)
        grid = np.linspace(np.min(x[:, 0]), np.nanmin(np.nanmax(within, axis=1)), 150)
        series.append(
            results.series_over_seeds(
                one.method.name, x, getattr(one, values), grid, smaller_is_better=values == "loss"
            )
        )
    return plots.Panel(label, series, log_x=axis != "time")


def use_of_workers(settings: Settings, outcomes: Sequence[Outcome]) -> results.Table:
    """One row a method: each worker's share of the gradients that entered a step."""
    rows = {
        one.method.name: np.median([100 * s.used_by_worker / s.used for s in one.summaries], axis=0)
        for one in outcomes
    }
    workers = [results.Column(f"worker {at}", "%") for at in range(settings.n_workers)]
    return results.Table(
        [results.Column("method", right=False), *workers],
        [(name, *shares) for name, shares in rows.items()],
        "Share of the gradients that entered a step, by worker, the fastest first, median over"
        f" {settings.instances} instances; {100 / settings.n_workers:.3g} % each would be even. A"
        " method that is ahead while it hardly uses its slow workers solves another problem than"
        " the given: what such a worker alone holds is hardly learned.",
    )


def _sections(
    settings: Settings,
    outcomes: Sequence[Outcome],
    tables: Mapping[str, Sequence[results.Table]],
    drawn: Mapping[str, report.Illustration],
) -> list[report.Section]:
    papers = dict.fromkeys(PAPERS[one.method.name] for one in outcomes)
    timelines = [one for name, one in drawn.items() if name.startswith("timeline")]
    return [
        report.Section("The answer", "", [drawn["to_target"]], tables["answer"]),
        *(report.Section("Claims", "", (), [one]) for one in tables["claims"]),
        report.Section(
            "Against time, gradients and updates",
            "The same runs against three axes. A round of synchronous training is one server update"
            " for the gradients of many workers, so counted in updates it looks cheap; against time"
            " it waits for the slowest worker.",
            [drawn["accuracy"], drawn["loss"]],
        ),
        report.Section("Use of workers", "", (), [use_of_workers(settings, outcomes)]),
        report.Section(
            "The methods", "\n".join(f"- {o.method.name}: {o.method.text}" for o in outcomes)
        ),
        report.Section(
            "Staleness",
            "With one job handed out per arrival, the mean delay is the number of open jobs less"
            " one whatever the rule; rules differ in the tail.",
            [drawn["staleness"]],
        ),
        report.Section(
            "Who works when",
            "A bar is a job, from its start to its arrival; worker 0 is the fastest.",
            timelines,
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
            [drawn["tuning"]],
            tables["tuning"],
        ),
        report.Section(
            "Setting and limits",
            f"- Network: one hidden layer of {settings.hidden} units; batches of {settings.batch}"
            " rows drawn by each worker from its own shard.\n"
            "- Shards: labels divided by a Dirichlet law with concentration"
            f" {settings.concentration:g}, regardless of speed.\n"
            f"- Times: gamma law with shape 4, means from 1 to {settings.slowest:g}, their"
            " logarithms uniform; communication is free.\n"
            "- One data set, one network, one law of speeds: the order of the methods is an"
            " observation, not a theorem. Times are simulated and say nothing about any machine.",
        ),
        report.provenance(command(settings), list(papers)),
    ]
