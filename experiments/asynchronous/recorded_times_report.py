"""Tables, figures and numbers of the experiment on recorded times."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from experiments.asynchronous.recorded_times_runs import Settings, Workers
from experiments.common import on_grid
from experiments.common.on_grid import Outcome
from experiments.common.parts import Drawing, Part, written
from experiments.common.recordings import spread_of_jobs

Found = Mapping[str, Sequence[Outcome]]  # by the column of workers

CURVES = (  # the rules whose curves are drawn; all are in the tables
    "synchronous",
    "fastest half",
    "pure",
    "shuffled",
    "wait for n/2",
    "Rennala n/2",
    "Malenia 1.5",
    "table",
    "SSP 2",
)


def part(
    settings: Settings,
    found: Found,
    every: Sequence[Workers],
    smoothness: Mapping[int, float],
) -> Part:
    """Draws all figures and makes all tables.

    Args:
        settings: What was run.
        found: Outcomes by column of workers.
        every: The columns of workers.
        smoothness: L that Koloskova's rule was given, by number of workers.

    Returns:
        The part; its figures lie in `settings.output`.
    """
    horizons = {workers.name: workers.horizon for workers in every}
    made = {name: table(settings, name, horizons[name], own) for name, own in found.items()}
    named = (*settings.even, *settings.uneven)
    return written(
        settings.output,
        "recorded_times",
        "Which rule of the family is fastest on the recorded times of real workers?",
        figures(settings, horizons, found),
        (summary(settings, found), *made.values(), spread_of_jobs(named)),
        numbers(settings, made, found, every, smoothness),
    )


def to_target(settings: Settings, outcome: Outcome) -> results.Spread:
    """Simulated time to the target accuracy over the seeds."""
    times = results.time_to_target(
        outcome.time, outcome.accuracy, target=settings.target, above=True
    )
    return results.median_and_spread(times)


def summary(settings: Settings, found: Found) -> results.Table:
    """All columns side by side: time to the target."""
    percent = f"time to {100 * settings.target:g} %"
    names = [outcome.method.name for outcome in next(iter(found.values()))]
    rows = [
        (name, *(to_target(settings, outcomes[place]) for outcomes in found.values()))
        for place, name in enumerate(names)
    ]
    return results.Table(
        (
            results.Column("rule", right=False),
            *(results.Column(f"{percent}, {column}") for column in found),
        ),
        tuple(rows),
        f"Median (quartiles) over {settings.seeds} seeds, which start at different"
        " places of the recordings. The unit is the mean time of a recorded job. The"
        f" column with half of the workers times {settings.stress:g} is made up.",
    )


def table(
    settings: Settings, column: str, horizon: float, outcomes: Sequence[Outcome]
) -> results.Table:
    """One row a rule, with a star at a step that lies at the end of the grid."""
    caption = (
        f"Workers: {column}. Median (quartiles) over {settings.seeds} seeds after"
        f" {horizon:g} units of simulated time. 'Thrown away' is the share of delivered"
        " or cancelled gradients that never entered a step. Times are read off at the records, a"
        " few units apart. A star: the best step lies at the end of the grid. Delays are those of"
        " gradients on arrival; with a table the step uses older ones as well."
    )
    return on_grid.table(outcomes, target=settings.target, horizon=horizon, caption=caption)


def figures(settings: Settings, horizons: Mapping[str, float], found: Found) -> Iterator[Drawing]:
    """Bars of the time to the target, curves of some rules, and the choice of the step."""
    percent = f"{100 * settings.target:g} % test accuracy"
    for place, (column, outcomes) in enumerate(found.items()):
        names = [outcome.method.name for outcome in outcomes]
        label = f"simulated time to {percent} (workers: {column})"
        figure = plots.bars(names, [to_target(settings, one) for one in outcomes], x_label=label)
        yield (f"to_target_{place}", figure, f"Workers: {column}. Median and quartiles over seeds.")
        horizon = horizons[column]
        series = [curve(one, horizon) for one in outcomes if one.method.name in CURVES]
        if series:
            label = f"simulated time (workers: {column})"
            figure = plots.curves(series, x_label=label, y_label="training loss", log_y=True)
            yield (
                f"loss_{place}",
                figure,
                f"Workers: {column}. Training loss of some rules, median and quartiles.",
            )


def curve(outcome: Outcome, horizon: float) -> results.Series:
    """The training loss of a rule over time, up to the last record that every seed has."""
    last = np.max(np.where(outcome.time <= horizon, outcome.time, 0.0), axis=1).min()
    grid = np.linspace(outcome.time[:, 0].max(), last, 150)
    return results.series_over_seeds(outcome.method.name, outcome.time, outcome.loss, grid)


def numbers(
    settings: Settings,
    made: Mapping[str, results.Table],
    found: Found,
    every: Sequence[Workers],
    smoothness: Mapping[int, float],
) -> dict[str, Any]:
    """Everything in the tables and more, as plain values."""
    plain = asdict(settings)
    columns = {}
    for column, outcomes in found.items():
        labels = [one.label for one in made[column].columns]
        columns[column] = [
            {
                **{
                    label: on_grid.plain_value(value)
                    for label, value in zip(labels, row, strict=True)
                },
                "text": outcome.method.text,
                "step_size": outcome.step_size,
                "at_edge": outcome.at_edge,
                "tuning": outcome.tuning,
            }
            for row, outcome in zip(made[column].rows, outcomes, strict=True)
        ]
    return {
        "settings": plain | {"output": str(settings.output)},
        "columns": columns,
        "mean_times": {workers.name: workers.clocks[0].mean for workers in every},
        "smoothness": {str(n): value for n, value in smoothness.items()},
    }
