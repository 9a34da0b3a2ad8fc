"""The tables and pictures of an answer; `report.txt.j2` and `page.html.j2` say where they stand.

Pictures are figures of matplotlib, drawn as `results.plots` draws, and stand in a page as SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from asyncjax import results
from asyncjax.clocks.log_reader.log import Log
from asyncjax.results import Spread, Table, plots
from asyncjax.results.plots import style
from asyncjax.terminal import plain
from asyncjax.whatif.bottleneck import Bottleneck
from asyncjax.whatif.comparing import SYNCHRONOUS, Comparison, Interval, Rule, trace_of
from asyncjax.whatif.describing import Description
from asyncjax.whatif.stationarity import Stationarity
from asyncjax.whatif.toys import ToyResult
from asyncjax.whatif.words import duration, percent, speed

MOST_WORKERS = 40
_SHOWN = 10  # workers whose jobs are drawn
_COLOURS = {"good": "#0072B2", "bad": "#D55E00", "base": "#8B9299", "empty": "#E9EBEE"}
PACE = (
    "Time of a gradient in periods of the log, over that in all of it; its second half over its"
    " first, and p, the probability of such a change by chance (less than 0.05 and a tenth: the log"
    " is not stationary). Time a gradient: in the last period; beside it where it should lie in"
    " what follows, a fifth as long as the log, nine times in ten, and so its gradients against"
    " those of synchronous rounds. Buffered rules take the time of the pure one."
)
SERVER = (
    "Gradients in updates a time unit, times those of synchronous rounds with the same server, by"
    " the time that it takes for a gradient; no interval. Level: the best rounds bring as many, but"
    " for a twentieth."
)
_LEFT = ("rule", "worker", "law", "verdict")  # columns of words


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of rows by heading."""
    columns = [results.Column(heading, right=heading not in _LEFT) for heading in rows[0]]
    return Table(columns, [tuple(row.values()) for row in rows])


def text_of(table: Table, headings: Sequence[str], caption: str = "") -> str:
    """A table for a terminal, of these columns alone."""
    places = [i for i, column in enumerate(table.columns) if column.heading in headings]
    rows = [tuple(row[i] for i in places) for row in table.rows]
    return results.as_text(Table([table.columns[i] for i in places], rows, caption))


def _unit(log: Log, unit: str) -> str:
    return f" [{unit}]" if log.unit == "seconds" else ""


def rule_table(comparison: Comparison, log: Log) -> Table:
    """One row per rule, the largest gain first."""
    rows, unit = [], _unit(log, "1/s") or " [per time unit]"
    for row in comparison.rows:
        rule, figures, gain = row
        level = row.is_told_apart or rule.name == SYNCHRONOUS
        rows.append(
            {
                "rule": rule.name,
                "times the gradients": f"{gain.value:.2f}",
                "interval": f"{gain.low:.2f}–{gain.high:.2f}{'' if level else ' ~'}",
                f"gradients{unit}": figures.gradients_per_time,
                f"updates{unit}": figures.updates_per_time,
                "idle": percent(figures.idle),
                "wasted": percent(figures.wasted),
                "staleness, mean": f"{figures.staleness_mean:.1f}",
                "99 %": int(figures.staleness_late),
                "longest": figures.staleness_longest,
                "least weight": f"{figures.heard.min():.2f}",
                "misplaced": percent(figures.misplaced),
            }
        )
    return _table(rows)


def server_table(bottleneck: Bottleneck, log: Log) -> Table:
    """One row per time of the server: what a rule that does not wait brings, and rounds."""
    return _table(
        [
            {
                "server": duration(at.server, log.unit),
                bottleneck.rule: f"{at.gain:.2f}",
                "server busy": percent(at.busy),
                "best rounds": f"{at.rounds_gain:.2f} ({at.rounds})",
                "level": "yes" if at.is_turned else "no",
            }
            for at in bottleneck.times
        ]
    )


def pace_table(stationarity: Stationarity, log: Log) -> Table:
    """One row per rule: the time of a gradient, by period, and in what follows."""
    rows = []

    def ends(interval: Interval) -> str:
        return "–" if np.isnan(interval.low) else f"{interval.low:.3g}–{interval.high:.3g}"

    for i, name in enumerate(stationarity.rules):
        p_value, pace = stationarity.p_values[i], stationarity.pace[i]
        parts = {
            f"{100 * period.begin:.0f} to {100 * period.end:.0f} %": f"{period.times[i]:.2f}"
            for period in stationarity.periods
        }
        rows.append(
            {
                "rule": name,
                **parts,
                "second half over first": f"{stationarity.halves[i]:.2f}",
                "p": "–" if np.isnan(p_value) else f"{p_value:.2g}",
                f"time a gradient{_unit(log, 's')}": pace.value,
                "in what follows": ends(pace),
                "times the gradients there": ends(stationarity.gain[i]),
            }
        )
    return _table(rows)


def lesson_table(lesson: ToyResult, log: Log) -> Table:
    """One row per rule, the soonest at the target first."""
    rows = []
    for place, row in enumerate(lesson.rows):
        value, low, high = lesson.speed_up(row.rule.name)
        step = "diverges" if row.step_size is None else f"{row.step_size:.3g}"
        is_level = row.rule.name in lesson.level
        other = "no significant difference to the soonest" if is_level else "later"
        rows.append(
            {
                "rule": row.rule.name,
                f"time to the target{_unit(log, 's')}": row.time,
                "as fast as synchronous": speed(value),
                "over seeds": f"{speed(low)}–{speed(high)}" if high else speed(low),
                "step size": step + " (end of the grid)" * (row.at_edge and step != "diverges"),
                "verdict": other if place else "soonest",
            }
        )
    return _table(rows)


def worker_table(description: Description) -> Table:
    """One row per worker, the slowest first."""
    figures, unit, rows = description.figures, _unit(description.log, "s"), []
    for i in np.argsort(-figures.mean, kind="stable"):
        rows.append(
            {
                "worker": description.log.workers[i],
                "jobs": int(figures.jobs[i]),
                f"mean{unit}": float(figures.mean[i]),
                f"median{unit}": float(figures.median[i]),
                f"longest{unit}": float(figures.longest[i]),
                "variation": f"{figures.cv[i]:.2f}",
                "mean over the median worker's": f"{figures.relative[i]:.2f}",
                "verdict": ("", "slow for good", "fast for good")[description.spread.for_good[i]],
            }
        )
    return _table(rows)


def law_table(description: Description) -> Table:
    """A row a law, the best first."""
    rows = []
    for fit in description.fits:
        distances = {
            "Kolmogorov distance, median worker": f"{fit.median_distance:.3f}",
            "worst worker": f"{np.max(fit.distance):.3f}",
        }
        p_value = "–" if np.isnan(fit.p_value) else f"{fit.p_value:.2g}"
        rows.append({"law": fit.name.replace("_", " "), **distances, "p": p_value})
    return _table(rows)


def _bars(rows: Any, spreads: Any, looks: Any, legend: Mapping[str, str], x_label: str) -> Any:
    """Bars of rules with whiskers against a line at 1; `looks` are colours and numbers in words."""
    names = [row.rule.name for row in rows]
    colours = [plots.LineStyle(_COLOURS[kind], "-") for kind, _ in looks]
    styles = dict(zip(names, colours, strict=True))
    figure = plots.bars(names, spreads, x_label=x_label, styles=styles)
    (axes,) = figure.axes
    for text, (_, number) in zip(axes.texts, looks, strict=True):
        text.set_text(number)
    axes.axvline(1.0, color=style.MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
    _legend(figure, legend)
    return figure


def _legend(figure: Any, legend: Mapping[str, str]) -> None:
    """What colours mean, below a figure."""
    from matplotlib.patches import Patch

    with style.drawing():
        patches = [Patch(facecolor=_COLOURS[kind], alpha=0.75) for kind in legend]
        style.add_legend_below(figure, patches, list(legend.values()))


def _listed(rows: Sequence[Any], numbers: Sequence[str]) -> str:
    pairs = zip(rows, numbers, strict=True)
    return ", ".join(f"{row.rule.name} {number}" for row, number in pairs)


def gains(comparison: Comparison) -> str:
    """Bars: gradients against synchronous rounds, coloured by how evenly workers count."""
    rows = comparison.leading
    numbers = [f"{row.gain.value:.2f}" for row in rows]
    kinds = ["good" if row.hears_all else "bad" for row in rows]
    kinds[[row.rule.name for row in rows].index(SYNCHRONOUS)] = "base"
    legend = {"good": "hears all alike", "bad": "hears fast workers more", "base": SYNCHRONOUS}
    label = "gradients, times those of synchronous rounds"
    spreads = [Spread(*row.gain, reached=1.0) for row in rows]
    figure = _bars(rows, spreads, list(zip(kinds, numbers, strict=True)), legend, label)
    title = f"Gradients against synchronous rounds: {_listed(rows, numbers)}"
    return plots.svg_text(figure, title)


def soonest(lesson: ToyResult) -> str:
    """Bars: how much sooner than synchronous rounds each rule is at the target."""
    ratios = np.array([lesson.speed_up(row.rule.name) for row in lesson.rows])
    finite = ratios[np.isfinite(ratios[:, 0]), 0]
    largest = 1.3 * finite.max(initial=1.0)  # whiskers end there
    spreads, looks = [], []
    for row, (value, low, high) in zip(lesson.rows, ratios.tolist(), strict=True):
        height = min(value, largest) if value else np.inf
        end = high if high <= largest else np.inf
        spreads.append(Spread(height, min(low, largest), end, reached=0.0))
        number = speed(value) if value else "not at the target in time"
        looks.append(("good" if row.rule.name in lesson.level else "base", number))
    legend = {"good": "soonest, or no significant difference to it", "base": "later"}
    label = "times as fast as synchronous rounds"
    figure = _bars(lesson.rows, spreads, looks, legend, label)
    numbers = _listed(lesson.rows, [speed(value) for value in ratios[:, 0]])
    title = f"Speed-up to the target, {lesson.task.name}: {numbers}"
    return plots.svg_text(figure, title)


def _canvas(names: Sequence[str], x_label: str) -> tuple[Any, Any]:
    """A figure with one row per name, and its axes."""
    figure = style.new_figure(style.WIDTH, 1.1 + 0.3 * len(names))
    axes = figure.subplots()
    axes.set(xlabel=x_label, ylim=(len(names) - 0.4, -0.6))
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def time_spent(comparison: Comparison) -> str:
    """Bars: the workers' time, useful, wasted, idle, one row per family."""
    rows = sorted(comparison.leading, key=lambda row: -row.figures.useful)
    numbers, begin = [percent(row.figures.useful) for row in rows], np.zeros(len(rows))
    with style.drawing():
        figure, axes = _canvas([row.rule.name for row in rows], "share of the workers' time")
        for kind, name in (("good", "useful"), ("bad", "wasted"), ("empty", "idle")):
            shares = np.array([getattr(row.figures, name) for row in rows])
            axes.barh(range(len(rows)), shares, 0.62, begin, color=_COLOURS[kind], alpha=0.75)
            begin += shares
        for place, number in enumerate(numbers):
            axes.annotate(number, (1.0, place), (5, 0), textcoords="offset points", va="center")
        axes.set(xlim=(0.0, 1.1), xticks=np.linspace(0, 1, 5))
    _legend(figure, {"good": "useful", "bad": "wasted", "empty": "idle, waiting"})
    return plots.svg_text(figure, f"Useful share of the workers' time: {_listed(rows, numbers)}")


def _ranked(log: Log, most: int, sign: int) -> np.ndarray:
    """Workers by the median of their durations; of many some, evenly from all ranks."""
    order = np.argsort([sign * np.median(row) for row in log.durations], kind="stable")
    return order[np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)]


def workers(log: Log) -> str:
    """One row per worker: quantiles of its durations, the slowest on top."""
    order = _ranked(log, MOST_WORKERS, -1)
    rows = [np.quantile(log.durations[i], [0.05, 0.25, 0.5, 0.75, 0.95]) for i in order]
    low, begin, middle, end, high = np.transpose(rows)
    places, unit = range(len(order)), "seconds" if log.unit == "seconds" else "units of the log"
    with style.drawing():
        names = [_short(log.workers[i]) for i in order]
        figure, axes = _canvas(names, f"duration of a job, {unit}")
        axes.hlines(places, low, high, color="black", linewidth=1.3)
        axes.barh(places, end - begin, 0.5, begin, color=_COLOURS["good"], zorder=2)
        axes.plot(middle, places, "o", color="white", markeredgecolor="black", zorder=3)
        axes.set_xlim(0.0, None)
    return plots.svg_text(figure, f"Durations of {len(order)} workers, the slowest on top")


def _short(name: str, most: int = 18) -> str:
    name = plain(name if len(name) <= most else f"{name[: most - 1]}…")
    return name.replace("$", r"\$")  # else matplotlib reads a formula


def timeline(log: Log, comparison: Comparison, rule: Rule) -> str:
    """The first moments of a rule: one row per worker, the fastest on top, one bar per job."""
    until = 3.5 / comparison.reference.figures.updates_per_time  # some synchronous rounds
    trace = trace_of(rule, log.durations, until, jax.random.key(0), 8)
    order = _ranked(log, _SHOWN, 1)
    place = np.full(len(log.workers), len(order) + 1)  # below the picture
    place[order] = np.arange(len(order))

    def moved(jobs: Any) -> Any:
        return None if jobs is None else jobs._replace(worker=place[jobs.worker])

    others = {"cancelled": moved(trace.cancelled), "open_jobs": moved(trace.open_jobs)}
    shown = moved(trace)._replace(n_workers=len(order), **others)
    unit = "s" if log.unit == "seconds" else ""
    figure = plots.timeline(shown, until=until, unit=unit)
    names = ["updates", *(_short(log.workers[i]) for i in order)]
    figure.axes[0].set_yticks([-1.5, *range(len(order))], names)
    return plots.svg_text(figure, f"Who works when: {rule.name}")


def curves(lesson: ToyResult, log: Log) -> str:
    """Loss against time of synchronous rounds and the two soonest rules, of one seed."""
    rules = list(dict.fromkeys([SYNCHRONOUS, *(row.rule.name for row in lesson.rows)]))[:3]
    rows = [lesson.of(name) for name in rules]
    losses = np.concatenate([row.curve_loss[np.isfinite(row.curve_loss)] for row in rows])
    low, high = min(float(losses.min()), lesson.target), float(np.quantile(losses, 0.995))
    room = 0.03 * max(high - low, 1e-12)
    series = [plots.Series(row.rule.name, row.curve_time, *[row.curve_loss] * 3) for row in rows]
    look = {"x_label": f"time{_unit(log, 's')}", "y_range": (low - room, high + room)}
    figure = plots.curves(series, y_label="loss", target=lesson.target, **look)
    title = f"Loss against time, {lesson.task.name}, one seed: {', '.join(rules)}"
    return plots.svg_text(figure, title)
