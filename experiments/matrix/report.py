"""Numbers, tables, figures and report of the matrix.

Everything shown is a function of the numbers in `matrix.json`, so tables can be made again without
running anything.

    target of a pair (clock, problem)   the lowest loss of tuned synchronous SGD by half of the time
    speed-up of a cell                  time of synchronous SGD to the target / time of the method
    rank of a cell                      place by the final loss among the methods of the pair

All three are medians over seeds; rank 1 is best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import results, storage
from asyncjax.results import plots, report
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.tables import format_number
from experiments.common.parts import save
from experiments.matrix.methods import METHODS, REFERENCE
from experiments.matrix.runs import Settings
from experiments.matrix.tasks import PROBLEMS, Workers

Name = tuple[str, str, str]  # method, clock, problem
Row = dict[str, Any]  # what is known of a cell
LOSS_SPREAD = ("median", "low", "high")


def numbers_of(
    settings: Settings,
    cells: Sequence[tuple[Name, Mapping[str, Any]]],
    laws: Mapping[str, Workers],
) -> dict[str, Any]:
    """Everything that tables and figures show, as plain values.

    Args:
        settings: What was run, with all names.
        cells: Names and what `cells.measured` found.
        laws: The clocks that ran.

    Returns:
        `settings`, `versions`, `methods`, `clocks` and `problems` (pairs of name and text),
        `targets` and `cells`: rows with method, clock, problem, step_size, at_edge, final,
        computed, used, time_to_target, speed_up, rank and level (with the best of the pair).
    """
    found = dict(cells)
    rows: dict[Name, Row] = {name: _row(name, cell) for name, cell in cells}
    targets = []
    for clock in laws:
        for problem in settings.problems:
            target = _target(found[REFERENCE, clock, problem], settings.horizon)
            targets.append({"clock": clock, "problem": problem, "loss": target})
            own = [rows[method, clock, problem] for method in settings.methods]
            for row in own:
                cell = found[row["method"], clock, problem]
                row["time_to_target"] = float(np.median(_times_to(cell, target)))
            _compare(own)
    kept = {name: value for name, value in asdict(settings).items() if name != "output"}
    return {
        "settings": kept,
        "versions": {"jax": jax.__version__, "numpy": np.__version__},
        "device": jax.devices()[0].device_kind,
        "methods": [[name, METHODS[name].text] for name in settings.methods],
        "clocks": [[name, law.text] for name, law in laws.items()],
        "problems": [[name, PROBLEMS[name].text] for name in settings.problems],
        "targets": targets,
        "cells": list(rows.values()),
    }


def _row(name: Name, cell: Mapping[str, Any]) -> Row:
    method, clock, problem = name
    final = results.median_and_spread(cell["final"])
    return {
        "method": method,
        "clock": clock,
        "problem": problem,
        "step_size": cell["step_size"],
        "at_edge": cell["at_edge"],
        "final": {part: float(getattr(final, part)) for part in LOSS_SPREAD},
        "computed": float(np.median(cell["computed"])),
        "used": float(np.median(cell["used"])),
    }


def _target(cell: Mapping[str, Any], horizon: float) -> float:
    """The lowest loss by half of the time, median over seeds."""
    lowest = [
        np.nanmin(np.where(np.asarray(time) <= horizon / 2, loss, np.inf))
        for time, loss in zip(cell["time"], cell["loss"], strict=True)
    ]
    return float(np.median(lowest))


def _times_to(cell: Mapping[str, Any], target: float) -> list[float]:
    """Time to the target of each seed; infinity where it is not reached."""
    return [
        float(results.time_to_target(time, loss, target, interpolate=True))
        for time, loss in zip(cell["time"], cell["loss"], strict=True)
    ]


def _compare(rows: Sequence[Row]) -> None:
    """Adds speed-ups, ranks and who is level with the best, to the rows of one pair."""
    reference = next(row["time_to_target"] for row in rows if row["method"] == REFERENCE)
    finals = np.array([row["final"]["median"] for row in rows])
    winner = rows[int(np.argmin(finals))]
    for row, final in zip(rows, finals, strict=True):
        own = row["time_to_target"]
        reached = np.isfinite(own) and 0 < reference < np.inf
        row["speed_up"] = reference / max(own, 1e-9) if reached else -np.inf
        ties = int(np.sum(finals == final))
        row["rank"] = float(np.sum(finals < final) + 0.5 * (ties + 1))
        row["level"] = bool(row["final"]["low"] <= winner["final"]["high"])


def _names(numbers: Mapping[str, Any], what: str) -> list[str]:
    """Names of the methods, clocks or problems, in their order."""
    return [name for name, _ in numbers[what]]


def _of(numbers: Mapping[str, Any], method: str, **where: str) -> list[Row]:
    """The cells of a method, all or those of a clock or a problem."""
    return [
        row
        for row in numbers["cells"]
        if row["method"] == method and all(row[name] == value for name, value in where.items())
    ]


def _median(rows: Sequence[Row]) -> float:
    """Median speed-up; minus infinity where half of the cells do not reach their target."""
    speeds = [row["speed_up"] for row in rows]
    return float(results.median_and_spread(speeds, smaller_is_better=False).median)


def _speed(value: float) -> str:
    """A speed-up for a table."""
    return format_number(value, 2) if np.isfinite(value) else "-"


def _spread(rows: Sequence[Row]) -> str:
    """Median and quartiles of speed-ups."""
    own = results.median_and_spread([row["speed_up"] for row in rows], smaller_is_better=False)
    low, high = _speed(float(own.low)), _speed(float(own.high))
    return f"{_speed(float(own.median))} ({low} to {high})"


def _rank(rows: Sequence[Row]) -> float:
    return float(np.mean([row["rank"] for row in rows]))


def _ranked(numbers: Mapping[str, Any]) -> list[str]:
    """Methods, the best mean rank first."""
    return sorted(_names(numbers, "methods"), key=lambda name: _rank(_of(numbers, name)))


def clock_table(numbers: Mapping[str, Any]) -> results.Table:
    """A row a method: speed-up over synchronous SGD by clock, ranks, wins, and the worst place.

    Args:
        numbers: As in `matrix.json`.
    """
    columns = (
        results.Column("method", right=False),
        *(results.Column(name) for name in _names(numbers, "clocks")),
        results.Column("all (quartiles)"),
        results.Column("mean rank"),
        results.Column("best"),
        results.Column("level with best"),
        results.Column("worst place", right=False),
    )
    rows = []
    for method in _ranked(numbers):
        own = _of(numbers, method)
        last = max(own, key=lambda row: row["rank"])
        rows.append(
            (
                method,
                *(
                    _speed(_median(_of(numbers, method, clock=name)))
                    for name in _names(numbers, "clocks")
                ),
                _spread(own),
                f"{_rank(own):.1f}",
                sum(row["rank"] == 1.0 for row in own),
                sum(row["level"] for row in own),
                f"{last['rank']:.0f}. {last['clock']}; {last['problem']}",
            )
        )
    pairs, settings = len(numbers["clocks"]) * len(numbers["problems"]), numbers["settings"]
    return results.Table(
        columns,
        tuple(rows),
        "Speed-up: time of tuned synchronous SGD to the lowest loss that it has by"
        " half of the time, over the method's time to it; median over"
        f" {len(numbers['problems'])} problems, over all {pairs} pairs of clock and"
        " problem in the column 'all'; a dash: not reached within the time by half of"
        f" them. Rank: by the final training loss, among {len(numbers['methods'])}"
        " methods; 'best': pairs won; 'level': pairs in which its lower quartile is"
        f" below the winner's upper one. {settings['seeds']} seeds,"
        f" {settings['n_workers']} workers, {settings['horizon']:g} units of time, the"
        " mean time of a job being 1.",
    )


def problem_table(numbers: Mapping[str, Any]) -> results.Table:
    """A row a method: speed-up by problem, gradients, and how often the best step ends the grid.

    Args:
        numbers: As in `matrix.json`.
    """
    names = _names(numbers, "problems")
    columns = (
        results.Column("method", right=False),
        *(results.Column(name) for name in names),
        *(results.Column(f"rank, {name}") for name in names),
        results.Column("gradients computed"),
        results.Column("share used"),
        results.Column("steps at the end of the grid"),
    )
    rows, pairs = [], len(names) * len(numbers["clocks"])
    for method in _ranked(numbers):
        own = _of(numbers, method)
        by_problem = [_of(numbers, method, problem=name) for name in names]
        shares = [row["used"] / row["computed"] for row in own if row["computed"]]
        rows.append(
            (
                method,
                *(_speed(_median(part)) for part in by_problem),
                *(f"{_rank(part):.1f}" for part in by_problem),
                round(float(np.median([row["computed"] for row in own]))),
                f"{np.median(shares):.2f}" if shares else "n/a",
                sum(row["at_edge"] for row in own),
            )
        )
    return results.Table(
        columns,
        tuple(rows),
        f"Speed-up as above and mean rank by problem, over {len(numbers['clocks'])}"
        f" clocks. Gradients (of {numbers['settings']['batch']} rows) computed in the"
        " time, and the share of them that entered a step: medians over all pairs."
        f" The last column counts cells of {pairs} whose best step is the first or"
        " last of the grid.",
    )


def readme_table(numbers: Mapping[str, Any]) -> str:
    """The first table, without its last column, in Markdown, for the README.

    Args:
        numbers: As in `matrix.json`.
    """
    made = clock_table(numbers)
    rows = tuple(row[:-1] for row in made.rows)
    return results.as_markdown(results.Table(made.columns[:-1], rows))


def as_texts(numbers: Mapping[str, Any]) -> list[str]:
    """Both tables for a terminal."""
    return [results.as_text(make(numbers)) for make in (clock_table, problem_table)]


def heat_map(numbers: Mapping[str, Any]) -> Any:
    """Median speed-up by method and clock, colours on a logarithmic scale."""
    from matplotlib.colors import TwoSlopeNorm

    methods, laws = _ranked(numbers), _names(numbers, "clocks")
    values = np.array(
        [[_median(_of(numbers, method, clock=law)) for law in laws] for method in methods]
    )
    logs = np.log2(np.where(np.isfinite(values), np.maximum(values, 1e-3), np.nan))
    most = max(1.0, np.ceil(np.nanmax(np.abs(logs)))) if np.isfinite(logs).any() else 1.0
    with drawing():
        figure = new_figure(max(6.5, 2.6 + 0.95 * len(laws)), 1.5 + 0.3 * len(methods))
        axes = figure.subplots()
        axes.set_facecolor("#E4E4E4")
        colours = axes.pcolormesh(
            np.arange(len(laws) + 1) - 0.5,
            np.arange(len(methods) + 1) - 0.5,
            np.ma.masked_invalid(logs),
            norm=TwoSlopeNorm(0.0, -most, most),
            cmap="PuOr",
            edgecolor="white",
            linewidth=0.6,
        )
        for (row, column), value in np.ndenumerate(values):
            dark = abs(logs[row, column]) > 0.65 * most
            text = _speed(value) if np.isfinite(value) else "not\nreached"
            shade, size = "white" if dark else "black", 9 if np.isfinite(value) else 6
            axes.text(column, row, text, ha="center", va="center", color=shade, size=size)
        axes.set_xticks(range(len(laws)), [law.replace(" ", "\n") for law in laws])
        axes.set_yticks(range(len(methods)), methods)
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.tick_params(length=0)
        axes.set_title("Speed-up over tuned synchronous SGD, median over the problems")
        bar = figure.colorbar(colours, ax=axes, pad=0.015, fraction=0.04, aspect=30)
        ticks = np.arange(-np.floor(most), np.floor(most) + 1)
        bar.set_ticks(list(ticks), labels=[f"{2.0**tick:g}" for tick in ticks])
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


def rank_figure(numbers: Mapping[str, Any]) -> Any:
    """Every method's ranks: a point a pair, a bar at the mean."""
    methods, names = _ranked(numbers), _names(numbers, "problems")
    styles = plots.assign_styles(names)
    with drawing():
        figure = new_figure(8.0, 1.5 + 0.3 * len(methods))
        axes = figure.subplots()
        width = 0.6 / len(names)
        for place, method in enumerate(methods):
            for part, name in enumerate(names):
                own = [row["rank"] for row in _of(numbers, method, problem=name)]
                height = place + width * (part - (len(names) - 1) / 2)
                axes.scatter(
                    own,
                    np.full(len(own), height),
                    s=13,
                    alpha=0.75,
                    linewidth=0,
                    color=styles[name].colour,
                    label=name if place == 0 else None,
                )
            mean = _rank(_of(numbers, method))
            axes.plot([mean, mean], [place - 0.42, place + 0.42], color="black", linewidth=2)
        axes.set_yticks(range(len(methods)), methods)
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.set_xlabel(
            "rank by final training loss (1 is best); a point a clock, the bar is the mean"
        )
        axes.tick_params(axis="y", length=0)
        figure.legend(loc="outside upper center", ncols=len(names))
    return figure


def write(
    settings: Settings,
    cells: Sequence[tuple[Name, Mapping[str, Any]]],
    laws: Mapping[str, Workers],
) -> dict[str, Any]:
    """Writes `matrix.json`, two figures and `report.html`."""
    numbers = numbers_of(settings, cells, laws)
    storage.save_json(settings.output / "matrix.json", numbers)
    figures = {"matrix_speed_up": heat_map(numbers), "matrix_ranks": rank_figure(numbers)}
    drawn = {name: save(settings.output / f"{name}.png", own) for name, own in figures.items()}
    write_report(settings.output / "report.html", numbers, drawn)
    return numbers


def write_report(path: Path, numbers: Mapping[str, Any], drawn: Mapping[str, Any]) -> None:
    """Writes the report, one HTML file."""
    settings = numbers["settings"]
    counts = len(numbers["methods"]), len(numbers["clocks"]), len(numbers["problems"])
    summary = (
        f"{counts[0]} methods, {counts[1]} laws of speeds, {counts[2]} problems;"
        f" {settings['n_workers']} simulated workers. Every cell gets {settings['horizon']:g}"
        " units of simulated time, in which the mean job takes 1, and the same"
        f" {len(settings['step_sizes'])} step sizes; the best is chosen by the final training loss"
        f" on {settings['tuning_seeds']} seeds and reported on {settings['seeds']} others."
    )

    def listed(name: str) -> str:
        return "\n".join(f"- {key}: {text}" for key, text in numbers[name])

    sections = [
        report.Section(
            "Result by clock",
            "",
            figures=(
                report.Illustration(
                    drawn["matrix_speed_up"],
                    "Median speed-up over tuned synchronous SGD; grey: half of the problems'"
                    " targets not reached.",
                ),
                report.Illustration(drawn["matrix_ranks"], "Ranks in all pairs."),
            ),
            tables=(clock_table(numbers),),
        ),
        report.Section("Result by problem", "", tables=(problem_table(numbers),)),
        report.Section("Methods", listed("methods")),
        report.Section("Clocks", listed("clocks")),
        report.Section("Problems", listed("problems")),
        report.Section(
            "Limits",
            "- Only the step size is tuned; other knobs are as written above.\n"
            "- Gradients of traces draw their rows with replacement, those of policies without.\n"
            "- Records lie about a thirtieth of the time apart, those of most policies four"
            " updates; the final loss is that of the last record within the time.\n"
            "- Small problems and few seeds: neighbours in rank are often level. Times are"
            " simulated.",
        ),
    ]
    title = "Every method on every clock and problem, tuned alike"
    report.write(path, report.render(title, summary, sections))
