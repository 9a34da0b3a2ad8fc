"""The tables and pictures of an answer; `report.txt.j2` and `page.html.j2` say where they stand.

Pictures are figures of matplotlib, drawn as `results.plots` draws, and stand in a page as SVG.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from asyncjax.results import Column, Series, Spread, Table, as_html, as_text, plots
from asyncjax.results.plots import style
from asyncjax.traces.log_reader.log import Log
from asyncjax.whatif.comparing import SYNCHRONOUS, Comparison, Rule, RuleResult, trace_of
from asyncjax.whatif.describing import Description
from asyncjax.whatif.toys import ToyResult
from asyncjax.whatif.words import percent, speed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_WORKERS = 40
_SHOWN = 10  # workers whose jobs are drawn
_COLOURS = {"good": "#0072B2", "bad": "#D55E00", "base": "#8B9299", "empty": "#E9EBEE"}
_LEFT = ("rule", "worker", "law", "verdict")  # columns of words


def _table(rows: Sequence[Mapping[str, Any]], caption: str = "") -> Table:
    """A table of rows by heading."""
    columns = [Column(heading, right=heading not in _LEFT) for heading in rows[0]]
    return Table(columns, [tuple(row.values()) for row in rows], caption)


def text_of(table: Table, headings: Sequence[str], caption: str = "") -> str:
    """A table for a terminal, of these columns alone."""
    places = [i for i, column in enumerate(table.columns) if column.heading in headings]
    rows = [tuple(row[i] for i in places) for row in table.rows]
    return as_text(Table([table.columns[i] for i in places], rows, caption))


def html_of(table: Table) -> str:
    """A table for the page, without its caption."""
    return as_html(Table(table.columns, table.rows))


def _unit(log: Log, unit: str) -> str:
    return f" [{unit}]" if log.unit == "seconds" else ""


def rule_table(comparison: Comparison, log: Log) -> Table:
    """A row a rule, the largest gain first."""
    unit = _unit(log, "1/s") or " [per time unit]"
    return _table(
        [
            {
                "rule": row.rule.name,
                "times the gradients": f"{row.gain.value:.2f}",
                "interval": f"{row.gain.low:.2f}–{row.gain.high:.2f}"
                + ("" if row.is_told_apart or row.rule.name == SYNCHRONOUS else " ~"),
                f"gradients{unit}": row.figures.gradients_per_time,
                f"updates{unit}": row.figures.updates_per_time,
                "idle": percent(row.figures.idle),
                "wasted": percent(row.figures.wasted),
                "staleness, mean": f"{row.figures.staleness_mean:.1f}",
                "99 %": int(row.figures.staleness_late),
                "longest": row.figures.staleness_longest,
                "least heard": f"{row.figures.heard.min():.2f}",
                "misplaced": percent(row.figures.misplaced),
            }
            for row in comparison.rows
        ],
        "Times the gradients: gradients that enter an update, a time unit, over those of"
        " synchronous rounds, and the interval; ~ behind it: no significant difference to"
        " synchronous. Idle, wasted: shares of the workers' time. Staleness: updates between the"
        " model a gradient was computed at and the update it enters. Least heard: weight of the"
        " worker who counts least, over a fair share; 1 is fair. Misplaced: share of the weight"
        " that the wrong workers have; 0 is fair.",
    )


def lesson_table(lesson: ToyResult, log: Log) -> Table:
    """A row a rule, the soonest at the target first."""
    rows = []
    for place, row in enumerate(lesson.rows):
        value, low, high = lesson.speed_up(row.rule.name)
        no_difference = "no significant difference to the soonest"
        later = no_difference if row.rule.name in lesson.level else "later"
        edge = " (end of the grid)" if row.at_edge else ""
        rows.append(
            {
                "rule": row.rule.name,
                f"time to the target{_unit(log, 's')}": row.time,
                "as fast as synchronous": speed(value),
                "over seeds": speed(low) if high == 0 else f"{speed(low)}–{speed(high)}",
                "step size": "diverges" if row.step_size is None else f"{row.step_size:.3g}{edge}",
                "verdict": later if place else "soonest",
            }
        )
    return _table(rows, f"{lesson.task.text[0].upper()}{lesson.task.text[1:]}.")


def worker_table(description: Description) -> Table:
    """A row a worker, the slowest first."""
    figures, unit = description.figures, _unit(description.log, "s")
    verdicts = {1: "slow for good", -1: "fast for good", 0: ""}
    return _table(
        [
            {
                "worker": description.log.workers[place],
                "jobs": int(figures.jobs[place]),
                f"mean{unit}": float(figures.mean[place]),
                f"median{unit}": float(figures.median[place]),
                f"longest{unit}": float(figures.longest[place]),
                "variation": f"{figures.cv[place]:.2f}",
                "mean over the median worker's": f"{figures.relative[place]:.2f}",
                "verdict": verdicts[int(description.spread.for_good[place])],
            }
            for place in np.argsort(-figures.mean, kind="stable")
        ],
        "Variation: standard deviation over mean of the worker's own durations. Verdict: slow or"
        " fast for good where that is more than chance and more than a tenth.",
    )


def law_table(description: Description) -> Table:
    """A row a law, the best first."""
    return _table(
        [
            {
                "law": fit.name.replace("_", " "),
                "Kolmogorov distance, median worker": f"{fit.median_distance:.3f}",
                "worst worker": f"{np.max(fit.distance):.3f}",
                "p": "–" if np.isnan(fit.p_value) else f"{fit.p_value:.2g}",
            }
            for fit in description.fits
        ],
        "Distance: the largest difference between the share of durations up to a time and what the"
        " law says of it. p: how often durations of this law are as far from it.",
    )


def svg(figure: Figure, title: str) -> str:
    """A figure as an element of a page, with a title for those who cannot see it."""
    import matplotlib

    buffer, nothing = io.StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    settings = {"svg.fonttype": "none", "svg.hashsalt": title}  # letters stay letters
    with matplotlib.rc_context(settings):
        figure.savefig(buffer, format="svg", metadata={**nothing, "Title": title})
    drawn = buffer.getvalue()
    drawn = re.sub(r' id="[a-z]+(?:\.?[a-z0-9]+)*_\d+"', "", drawn[drawn.index("<svg") :])
    return drawn.replace("<svg ", '<svg role="img" ', 1).strip()


def _bars(
    names: Sequence[str],
    spreads: Sequence[Spread],
    colours: Sequence[str],
    numbers: Sequence[str],
    legend: Mapping[str, str],
    x_label: str,
) -> Figure:
    """Bars with whiskers against a line at 1, coloured by kind, each with its number in words."""
    styles = {
        name: plots.LineStyle(_COLOURS[kind], "-")
        for name, kind in zip(names, colours, strict=True)
    }
    figure = plots.bars(names, spreads, x_label=x_label, styles=styles)
    (axes,) = figure.axes
    for text, number in zip(axes.texts, numbers, strict=True):
        text.set_text(number)
    axes.axvline(1.0, color=style.MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
    _legend(figure, legend)
    return figure


def _legend(figure: Figure, legend: Mapping[str, str]) -> None:
    """What colours mean, below a figure."""
    from matplotlib.patches import Patch

    with style.drawing():
        patches = [Patch(facecolor=_COLOURS[kind], alpha=0.75) for kind in legend]
        style.add_legend_below(figure, patches, list(legend.values()))


def gains(comparison: Comparison) -> str:
    """Bars: gradients against synchronous rounds, coloured by how evenly workers are heard."""
    rows = comparison.leading

    def kind(row: RuleResult) -> str:
        return "base" if row.rule.name == SYNCHRONOUS else "good" if row.hears_all else "bad"

    numbers = [f"{row.gain.value:.2f}" for row in rows]
    figure = _bars(
        [row.rule.name for row in rows],
        [Spread(*row.gain, reached=1.0) for row in rows],
        [kind(row) for row in rows],
        numbers,
        {"good": "hears all alike", "bad": "hears fast workers more", "base": SYNCHRONOUS},
        "gradients, times those of synchronous rounds",
    )
    return svg(figure, f"Gradients against synchronous rounds: {_listed(rows, numbers)}")


def _listed(rows: Sequence[Any], numbers: Sequence[str]) -> str:
    pairs = zip(rows, numbers, strict=True)
    return ", ".join(f"{row.rule.name} {number}" for row, number in pairs)


def time_spent(comparison: Comparison) -> str:
    """Bars: the workers' time, useful, wasted, idle, a row a family."""
    rows = sorted(comparison.leading, key=lambda row: -row.figures.useful)
    useful = np.array([row.figures.useful for row in rows])
    ends = np.array([row.figures.busy for row in rows])
    with style.drawing():
        figure = style.new_figure(style.WIDTH, 1.2 + 0.38 * len(rows))
        axes = figure.subplots()
        places = np.arange(len(rows))
        axes.barh(places, 1.0, 0.62, color=_COLOURS["empty"])
        axes.barh(places, ends, 0.62, color=_COLOURS["bad"], alpha=0.75)
        axes.barh(places, useful, 0.62, color="white")
        axes.barh(places, useful, 0.62, color=_COLOURS["good"], alpha=0.75)
        numbers = [percent(share) for share in useful]
        for place, number in enumerate(numbers):
            axes.annotate(number, (1.0, place), (5, 0), textcoords="offset points", va="center")
        axes.set_yticks(places, [row.rule.name for row in rows])
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0.0, 1.1), xticks=np.linspace(0, 1, 5))
        axes.set_xlabel("share of the workers' time")
        axes.tick_params(axis="y", length=0)
    _legend(figure, {"good": "useful", "bad": "wasted", "empty": "idle, waiting"})
    return svg(figure, f"Useful share of the workers' time: {_listed(rows, numbers)}")


def soonest(lesson: ToyResult) -> str:
    """Bars: how much sooner than synchronous rounds each rule is at the target."""
    ratios = [lesson.speed_up(row.rule.name) for row in lesson.rows]
    largest = 1.3 * max([*(r[0] for r in ratios if math.isfinite(r[0])), 1.0])  # whiskers end there
    spreads, numbers = [], []
    for value, low, high in ratios:
        there = math.inf if value == 0 else min(value, largest)
        spreads.append(Spread(there, min(low, largest), high if high <= largest else math.inf, 0.0))
        numbers.append(speed(value) if value else "not at the target in time")
    figure = _bars(
        [row.rule.name for row in lesson.rows],
        spreads,
        ["good" if row.rule.name in lesson.level else "base" for row in lesson.rows],
        numbers,
        {"good": "soonest, or no significant difference to it", "base": "later"},
        "times as fast as synchronous rounds",
    )
    title = _listed(lesson.rows, [speed(value) for value, _, _ in ratios])
    return svg(figure, f"Speed-up to the target, {lesson.task.name}: {title}")


def _ranked(log: Log, most: int, *, slowest_first: bool) -> np.ndarray:
    """Workers by the median of their durations; of many some, evenly from all ranks."""
    sign = -1 if slowest_first else 1
    order = np.argsort([sign * np.median(row) for row in log.durations], kind="stable")
    if len(order) > most:
        order = order[np.linspace(0, len(order) - 1, most).round().astype(int)]
    return order


def workers(log: Log) -> str:
    """A row a worker: quantiles of its durations, the slowest on top."""
    order = _ranked(log, MOST_WORKERS, slowest_first=True)
    boxes = []
    for i in order:
        quantiles = np.quantile(log.durations[i], [0.05, 0.25, 0.5, 0.75, 0.95])
        names = ("whislo", "q1", "med", "q3", "whishi")
        boxes.append({**dict(zip(names, quantiles, strict=True)), "label": _short(log.workers[i])})
    with style.drawing():
        figure = style.new_figure(style.WIDTH, 1.0 + 0.25 * len(order))
        axes = figure.subplots()
        look = {"facecolor": _COLOURS["good"], "alpha": 0.75, "linewidth": 0}
        axes.bxp(
            boxes,
            positions=np.arange(len(order)),
            orientation="horizontal",
            showfliers=False,
            patch_artist=True,
            boxprops=look,
            medianprops={"color": "black", "linewidth": 2.0},
        )
        axes.set(ylim=(len(order) - 0.4, -0.6), xlim=(0.0, None))
        unit = "seconds" if log.unit == "seconds" else "units of the log"
        axes.set_xlabel(f"duration of a job, {unit}")
        axes.tick_params(axis="y", length=0)
    return svg(figure, f"Durations of {len(order)} workers, the slowest on top")


def _short(name: str, most: int = 18) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def timeline(log: Log, comparison: Comparison, rule: Rule) -> str:
    """The first moments of a rule: a row a worker, the fastest on top, a bar a job."""
    until = 3.5 / comparison.reference.figures.updates_per_time  # some synchronous rounds
    trace = trace_of(rule, log.durations, until, jax.random.key(0), n_updates=8)
    order = _ranked(log, _SHOWN, slowest_first=False)
    place = np.full(len(log.workers), len(order) + 1)  # below the picture
    place[order] = np.arange(len(order))

    def moved(jobs: Any) -> Any:
        return None if jobs is None else jobs._replace(worker=place[jobs.worker])

    figure = plots.timeline(
        moved(trace)._replace(
            n_workers=len(order), cancelled=moved(trace.cancelled), open_jobs=moved(trace.open_jobs)
        ),
        until=until,
        unit="s" if log.unit == "seconds" else "",
    )
    names = ["updates", *(_short(log.workers[i]) for i in order)]
    figure.axes[0].set_yticks([-1.5, *range(len(order))], names)
    return svg(figure, f"Who works when: {rule.name}")


def curves(lesson: ToyResult) -> str:
    """Loss against time of synchronous rounds and the two soonest rules, of one seed."""
    rules = list(dict.fromkeys([SYNCHRONOUS, *(row.rule.name for row in lesson.rows)]))[:3]
    rows = [lesson.of(name) for name in rules]
    losses = np.concatenate([row.curve_loss[np.isfinite(row.curve_loss)] for row in rows])
    low, high = min(float(losses.min()), lesson.target), float(np.quantile(losses, 0.995))
    room = 0.03 * max(high - low, 1e-12)
    figure = plots.curves(
        [Series(row.rule.name, row.curve_time, *[row.curve_loss] * 3) for row in rows],
        x_label="time",
        y_label="loss",
        y_range=(low - room, high + room),
        target=lesson.target,
    )
    return svg(figure, f"Loss against time, {lesson.task.name}, one seed: {', '.join(rules)}")
