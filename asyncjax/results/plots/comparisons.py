"""Methods beside each other: curves, bars, histograms of delays, and scores against step sizes.

| plot | what stands for a method |
|---|---|
| `curves`, `panels` | a line, the median over seeds, in a band, the quartiles |
| `bars` | a bar, the median, with a whisker, the quartiles |
| `staleness_histogram` | a histogram of delays: updates while a gradient was computed |
| `step_size_sensitivity` | a line over step sizes; in a flat valley none need be tuned |

What is not finite (a run that has diverged, a stretch that some seed does not cover) or larger than
1e100 leaves a gap, and so does on a logarithmic axis what is not positive. A bar that is not
reached says so in words, a whisker with an arrow head goes on to infinity, and a step size at which
the median seed diverged is a cross in a strip at the top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import flag, real, shown, whole, within
from asyncjax.results.metrics import (
    Series,
    Spread,
    best_on_grid,
    median_and_spread,
    resample,
    series_over_seeds,
)
from asyncjax.results.plots import style
from asyncjax.results.tables import NOT_REACHED, format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from asyncjax.results.run import Run

_PANEL = 3.6  # inches that a panel is wide where several stand side by side


@dataclass(frozen=True, eq=False)
class Panel:
    """The curves of one panel and what they are drawn against."""

    x_label: str  # label of the axis, with its unit
    series: Sequence[Series]  # the curves
    log_x: bool = False  # whether the axis is logarithmic


def curves(
    series: Sequence[Series] | Mapping[str, Run],
    *,
    x_label: str = "time",
    y_label: str = "loss",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    y_range: tuple[float, float] | None = None,
    target: float | None = None,
    styles: Mapping[str, style.LineStyle] | None = None,
    same_end: bool = False,
) -> Figure:
    """One plot of curves with shaded bands, the legend below.

    Args:
        series: The curves, in the order of the legend. Or runs by name: their losses against time;
            of several runs (seeds) the median and the quartiles, until the first of them ends.
        x_label, y_label: What the axes show, with their units.
        title: Above the plot.
        log_x, log_y: Logarithmic axes.
        y_range: Lowest and highest value shown; by default all are.
        target: Draws a thin line at this value.
        styles: Styles by name, to look the same as other plots.
        same_end: Whether every curve is cut where the first of them ends.

    Returns:
        A matplotlib figure.

    Example:
        >>> line = Series("sgd", [0.0, 1.0], [2.0, 1.0], [1.5, 0.8], [2.5, 1.2])
        >>> figure = curves([line], x_label="time [s]", y_label="loss")
        >>> figure.axes[0].get_xlabel()
        'time [s]'
    """
    _check_values(log_y, y_range, target)
    lines = _losses_of(series) if isinstance(series, Mapping) else series
    if flag("same_end", same_end):
        lines = _with_one_end(lines)
    panel = Panel(x_label, lines, log_x)
    styles = style.styles_for(_names([panel]), styles)
    with style.drawing():
        figure, axes = style.new_axes(style.WIDTH, 3.8, title, x_label, y_label)
        _draw_panel(axes, panel, styles, log_y, y_range, target)
        _label_target(axes, target)
        style.add_legend_below(figure, *axes.get_legend_handles_labels())
    return figure


def _losses_of(runs: Mapping[str, Run]) -> list[Series]:
    """A curve for each run by name: the loss against time."""
    lines = []
    for name, run in runs.items():
        time, loss = (np.asarray(part, np.float64) for part in (run.records.time, run.records.loss))
        several = np.reshape(loss, (-1, loss.shape[-1]))
        times = np.broadcast_to(time, loss.shape).reshape(several.shape)
        grid = np.unique(times[times <= np.nanmax(times, axis=1).min()])
        lines.append(
            Series(name, times[0], several[0])
            if len(several) == 1
            else series_over_seeds(name, times, several, grid)
        )
    return lines


def _with_one_end(lines: Sequence[Series]) -> list[Series]:
    """Curves cut where the first of them ends, each with a point there."""

    def end(line: Series) -> float:
        return float(np.max(np.asarray(line.x)[np.isfinite(line.median)], initial=-np.inf))

    last = min(map(end, lines))
    cut = []
    for line in lines:
        x = np.asarray(line.x, np.float64)
        grid = np.append(x[x < last], last)
        parts = resample(np.tile(x, (3, 1)), np.stack([line.median, line.low, line.high]), grid)
        cut.append(Series(line.name, grid, *parts))
    return cut


def panels(
    parts: Sequence[Panel],
    *,
    y_label: str,
    title: str = "",
    log_y: bool = False,
    y_range: tuple[float, float] | None = None,
    target: float | None = None,
    columns: int | None = None,
    styles: Mapping[str, style.LineStyle] | None = None,
) -> Figure:
    """Several plots of curves side by side with one vertical axis, the legend below.

    Args:
        parts: The panels from left to right, then from top to bottom.
        y_label: What the vertical axis shows, with its unit.
        title: Above all panels.
        log_y, y_range, target, styles: As in `curves`.
        columns: How many stand side by side, at least 1; by default all. With 1 the panels are
            stacked, and the letters can be read on a phone.

    Returns:
        A matplotlib figure with an axes for each panel.

    Example:
        >>> line = Series("sgd", [0.0, 1.0], [2.0, 1.0], [1.5, 0.8], [2.5, 1.2])
        >>> figure = panels([Panel("time [s]", [line]), Panel("updates", [line])], y_label="loss")
        >>> [axes.get_xlabel() for axes in figure.axes]
        ['time [s]', 'updates']
    """
    _check_values(log_y, y_range, target)
    names = _names(parts)
    styles = style.styles_for(names, styles)
    columns = len(parts) if columns is None else min(whole("columns", columns), len(parts))
    with style.drawing():
        rows = -(-len(parts) // columns)
        width, height = max(_PANEL * columns, style.WIDTH), 3.5 if rows == 1 else 3.1 * rows
        figure = style.new_figure(width, height)
        grid = _grid(figure, len(parts), columns, sharey=True)
        handles: dict[str, Any] = {}
        for index, (axes, panel) in enumerate(zip(grid, parts, strict=True)):
            _draw_panel(axes, panel, styles, log_y, y_range, target)
            axes.set_xlabel(panel.x_label)
            axes.set_ylabel("" if index % columns else y_label)
            lines, labels = axes.get_legend_handles_labels()
            handles = {**dict(zip(labels, lines, strict=True)), **handles}
        _label_target(grid[-1], target)
        if title:
            figure.suptitle(title, x=0.01, ha="left")
        style.add_legend_below(figure, [handles[name] for name in names], names)
    return figure


def bars(
    names: Sequence[str],
    spreads: Sequence[Spread],
    *,
    x_label: str,
    title: str = "",
    log_x: bool = False,
    styles: Mapping[str, style.LineStyle] | None = None,
) -> Figure:
    """Horizontal bars with whiskers, the first name on top, each with its median written in.

    Args:
        names: The methods.
        spreads: For each, a `Spread` of single numbers.
        x_label: What the bars show, with its unit.
        title: Above the plot.
        log_x: Logarithmic axis; the medians are then points, for a bar has no honest beginning.
        styles: Styles by name, to look the same as other plots.

    Returns:
        A matplotlib figure.

    Example:
        >>> spread = Spread(median=2.0, low=1.0, high=3.0, reached=1.0)
        >>> figure = bars(["sgd"], [spread], x_label="time to target [s]")
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['2.00']
    """
    styles = style.styles_for(names, styles)
    with style.drawing():
        figure, axes = style.new_axes(style.WIDTH, 1.2 + 0.38 * len(names), title, x_label)
        limits = _limits(spreads, log_x)
        axes.set_xlim(*limits)
        for row, (name, spread) in enumerate(zip(names, spreads, strict=True)):
            _draw_bar(axes, row, spread, styles[name].colour, log_x, limits)
        axes.set_yticks(range(len(names)), list(names))
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        style.set_log(axes.xaxis, log_x)
        style.add_grid(axes, "x")
    return figure


def staleness_histogram(
    delays: Mapping[str, ArrayLike],
    *,
    title: str = "",
    columns: int = 3,
    styles: Mapping[str, style.LineStyle] | None = None,
) -> Figure:
    """Histograms of delays, one a method, with mean and largest delay written in.

    Delays of uneven workers have heavy tails (a mean of 30 and a maximum of 2000), so bars
    are those of 0, 1, 2-3, 4-7, ..., equally wide.

    Args:
        delays: Integers of at least 0 by method, any number each: the delay in updates of every
            gradient.
        title: Above all.
        columns: How many histograms stand side by side, at most; 2 can be read on a phone.
        styles: Styles by name, to look the same as other plots.

    Returns:
        A matplotlib figure with an axes for each method.

    Example:
        >>> figure = staleness_histogram({"sgd": [0, 1, 5], "piag": [0, 0, 2]})
        >>> [axes.get_title("left") for axes in figure.axes]
        ['sgd', 'piag']
    """
    columns = min(whole("columns", columns), len(_some("delays", delays, "method")))
    data = {
        name: within(f"delays[{name!r}]", np.asarray(values).ravel(), least=0, integer=True)
        for name, values in delays.items()
    }
    largest = max((int(values.max()) for values in data.values() if values.size), default=0)
    edges = np.append(0, 2 ** np.arange(largest.bit_length() + 1))  # updates
    styles = style.styles_for(data, styles)
    with style.drawing():
        figure = style.new_figure(3.1 * columns + 0.4, 1.75 * -(-len(data) // columns) + 0.8)
        grid = _grid(figure, len(data), columns, sharex=True, sharey=True)
        for axes, (name, values) in zip(grid, data.items(), strict=True):
            _draw_histogram(axes, values, edges, styles[name].colour)
            axes.set_title(name, fontsize=10)
        for axes in grid[-columns:]:
            axes.tick_params(labelbottom=True)
        figure.supxlabel("delay [updates], bars begin at 0, 1, 2, 4, 8, ...", fontsize=10)
        figure.supylabel("share of gradients [%]", fontsize=10)
        if title:
            figure.suptitle(title, x=0.01, ha="left")
    return figure


def step_size_sensitivity(
    step_sizes: ArrayLike,
    scores: Mapping[str, ArrayLike],
    *,
    y_label: str,
    title: str = "",
    log_y: bool = True,
    y_range: tuple[float, float] | None = None,
    smaller_is_better: bool = True,
    chosen: Mapping[str, int] | None = None,
    styles: Mapping[str, style.LineStyle] | None = None,
) -> Figure:
    """Score against step size for every method, the chosen step size marked.

    Args:
        step_sizes: `[G]`, positive.
        scores: `[G, S]` (or `[G]`) by method: one row per step size, one column per seed; NaN where
            a run diverged.
        y_label: What the scores are.
        title: Above the plot.
        log_y, y_range, styles: As in `curves`.
        smaller_is_better: Losses and times (the default), or accuracies.
        chosen: Index of the marked step size by method; by default the best median.

    Returns:
        A matplotlib figure.

    Example:
        >>> figure = step_size_sensitivity(
        ...     [0.1, 1.0], {"sgd": [[2.0, 3.0], [1.0, 1.5]]}, y_label="final loss")
        >>> figure.axes[0].get_xlabel()
        'step size'
    """
    _check_values(log_y, y_range)
    sizes = np.asarray(step_sizes, np.float64)
    if sizes.ndim != 1 or not sizes.size or not style.drawable(sizes, True).all():
        raise ValueError(
            f"step_sizes is {shown(step_sizes)}; it must be a list of positive numbers, 1e-100"
            " to 1e100"
        )
    spreads, marks = {}, {}
    for name, values in _some("scores", scores, "method").items():
        table = np.asarray(values, np.float64).reshape(len(sizes), -1)
        spreads[name] = median_and_spread(table, smaller_is_better=smaller_is_better)
        if chosen is None and np.isfinite(spreads[name].median).any():
            marks[name] = best_on_grid(table, smaller_is_better=smaller_is_better).row
    for name in chosen or ():
        if name not in spreads:
            raise ValueError(f"chosen must name methods of scores, {list(spreads)}, got {name!r}")
    marks = marks if chosen is None else chosen
    styles = style.styles_for(spreads, styles)
    failed = {name: ~style.drawable(spread.median, False) for name, spread in spreads.items()}
    with style.drawing():
        figure = style.new_figure(style.WIDTH, 4.6)
        axes, top = _with_strip(figure, sizes, {n: f for n, f in failed.items() if f.any()}, styles)
        for name, spread in spreads.items():
            _draw_scores(axes, name, sizes, spread, marks.get(name), styles[name], log_y)
        axes.set(xlabel="step size", ylabel=y_label)
        top.set_title(title)
        if y_range is not None:
            axes.set_ylim(*y_range)
        style.set_log(axes.xaxis, True)
        style.set_log(axes.yaxis, log_y)
        style.add_grid(axes)
        style.add_legend_below(figure, *axes.get_legend_handles_labels())
    return figure


def _check_values(log_y: bool, y_range: Any, target: float | None = None) -> None:
    """Refuses values that the vertical axis does not have."""
    if y_range is not None and (np.shape(y_range) != (2,) or not y_range[0] < y_range[1]):
        allowed = "(lowest, highest) with lowest < highest"
        raise ValueError(f"y_range must be {allowed}, got {shown(y_range)}")
    if target is not None:
        real("target", target)
    for name, value in {"y_range": y_range, "target": target}.items():
        if log_y and value is not None and np.min(value) <= 0:
            raise ValueError(f"{name} must be positive where log_y is True, got {value}")


def _some(name: str, values: Any, kind: str) -> Any:
    """What is to be drawn, if it is anything."""
    if not len(values):
        raise ValueError(f"{name} is empty; a plot needs at least one {kind}")
    return values


def _names(parts: Sequence[Panel]) -> list[str]:
    """Names of all series, each once, in the order they come."""
    lines = [line for panel in _some("parts", parts, "panel") for line in panel.series]
    return list(dict.fromkeys(line.name for line in _some("series", lines, "curve")))


def _grid(figure: Figure, count: int, columns: int, **shared: Any) -> list[Axes]:
    """So many axes, so many side by side."""
    cells = figure.subplots(-(-count // columns), columns, squeeze=False, **shared).ravel()
    for spare in cells[count:]:
        spare.remove()
    return list(cells[:count])


def _shown(values: ArrayLike, log: bool) -> np.ndarray:
    """Values with NaN where they cannot be drawn."""
    data = np.asarray(values, dtype=np.float64)
    return np.where(style.drawable(data, log), data, np.nan)


def _draw_panel(
    axes: Axes,
    panel: Panel,
    styles: Mapping[str, style.LineStyle],
    log_y: bool,
    y_range: tuple[float, float] | None,
    target: float | None,
) -> None:
    """Lines and bands of one panel."""
    for line in panel.series:
        look, x = styles[line.name], _shown(line.x, panel.log_x)
        low, median, high = (_shown(part, log_y) for part in (line.low, line.median, line.high))
        fits = np.isfinite(x + low + high).tolist()
        axes.fill_between(x, low, high, where=fits, color=look.colour, alpha=0.16, linewidth=0)
        axes.plot(x, median, color=look.colour, linestyle=look.dash, label=line.name)
    if target is not None:
        axes.axhline(target, color=style.MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    if y_range is not None:
        axes.set_ylim(*y_range)
    style.set_log(axes.xaxis, panel.log_x)
    style.set_log(axes.yaxis, log_y)
    axes.margins(x=0.01)
    style.add_grid(axes)


def _label_target(axes: Axes, target: float | None) -> None:
    """The word at the right end of the target's line, outside the plot."""
    if target is not None:
        looks: dict[str, Any] = {"color": style.MUTED, "fontsize": 8.5, "annotation_clip": False}
        _write(axes, "target", (1.0, target), 3, xycoords=("axes fraction", "data"), **looks)


def _write(axes: Axes, text: str, at: tuple[float, float], right: float, **looks: Any) -> None:
    """A text some points to the right of a place."""
    axes.annotate(text, at, (right, 0), textcoords="offset points", va="center", **looks)


def _limits(spreads: Sequence[Spread], log_x: bool) -> tuple[float, float]:
    """The range of the axis, with room at the right for the numbers."""
    ends = np.array([[spread.low, spread.median, spread.high] for spread in spreads], np.float64)
    visible = ends[style.drawable(ends, True)]
    if not visible.size:
        return (0.1, 1.0) if log_x else (0.0, 1.0)
    low, high = float(visible.min()), float(visible.max())
    if not log_x:
        return 0.0, high * 1.22
    room = max(np.log10(high / low), 0.3)
    return low / 10 ** (0.06 * room), high * 10 ** (0.16 * room)


def _draw_bar(
    axes: Axes,
    row: int,
    spread: Spread,
    colour: str,
    log_x: bool,
    limits: tuple[float, float],
) -> None:
    """One bar (or point), its whisker and its text."""
    ends = np.array([spread.median, spread.low, spread.high], np.float64)
    (median, low, high), (fits, low_fits, high_fits) = ends.tolist(), style.drawable(ends, log_x)
    if not fits:
        note = NOT_REACHED if not np.isfinite(median) else format_number(median)
        if spread.reached > 0 and not np.isfinite(median):
            note += f" ({round(100 * float(spread.reached))}% of the seeds did)"
        _write(axes, note, (limits[0], row), 5, color=style.MUTED, fontsize=10, style="italic")
        return
    if log_x:
        axes.plot([median], [row], "o", color=colour, markersize=7, zorder=3)
    else:
        axes.barh([row], [median], height=0.62, color=colour, alpha=0.75, linewidth=0)
    begin, end = (
        low if low_fits else limits[0],
        high if style.drawable(ends, False)[2] else limits[1],
    )
    looks: dict[str, Any] = {"color": "black", "zorder": 2.5}
    axes.plot([begin, end], [row, row], linewidth=1.3, **looks)
    for edge, is_drawn in ((low, low_fits), (high, high_fits)):
        if is_drawn:
            axes.plot([edge], [row], "|", markersize=7, **looks)
    if not np.isfinite(high):
        axes.plot([end], [row], ">", markersize=6, clip_on=False, **looks)
    _write(axes, format_number(median), (end, row), 9, fontsize=10, annotation_clip=False)


def _draw_histogram(axes: Axes, values: np.ndarray, edges: np.ndarray, colour: str) -> None:
    """One histogram with its note."""
    counts = np.histogram(values, bins=edges)[0]
    # The last bin of a histogram is closed on the right; no delay reaches its upper edge.
    shares = 100.0 * counts / max(values.size, 1)
    centres, every = np.arange(counts.size), max(1, -(-counts.size // 7))
    axes.set_xticks(centres[::every], [f"{edge:,}" for edge in edges[:-1][::every]])
    axes.set_xlim(-0.7, counts.size - 0.3)
    axes.bar(centres, shares, width=0.9, color=colour, linewidth=0)
    note = "no gradients"
    if values.size:
        mean = format_number(float(values.mean()))
        note = f"mean {mean}\nmax {format_number(int(values.max()))}"
    looks: dict[str, Any] = {"ha": "right", "va": "top", "fontsize": 9, "color": style.MUTED}
    axes.text(0.98, 0.97, note, transform=axes.transAxes, **looks)
    style.add_grid(axes, "y")


def _with_strip(
    figure: Figure,
    sizes: np.ndarray,
    failed: Mapping[str, np.ndarray],
    styles: Mapping[str, style.LineStyle],
) -> tuple[Axes, Axes]:
    """The axes of the scores and the topmost axes: a strip of crosses where anything diverged."""
    if not failed:
        axes = figure.subplots()
        return axes, axes
    height = 0.25 + 0.13 * len(failed)
    strip, axes = figure.subplots(2, 1, sharex=True, height_ratios=[height, 4.6 - height])
    for row, (name, lost) in enumerate(failed.items()):
        looks: dict[str, Any] = {"color": styles[name].colour, "ms": 5, "mew": 1.5}
        strip.plot(sizes[lost], np.full(lost.sum(), row), "x", **looks)
    strip.set_ylim(len(failed) - 0.3, -0.7)
    strip.set_yticks([])
    strip.set_ylabel("diverged", rotation=0, ha="right", va="center")
    strip.tick_params(axis="x", which="both", length=0, labelbottom=False)
    strip.spines[["left", "bottom"]].set_visible(False)
    return axes, strip


def _draw_scores(
    axes: Axes,
    name: str,
    sizes: np.ndarray,
    spread: Spread,
    mark: int | None,
    line: style.LineStyle,
    log_y: bool,
) -> None:
    """Line, band and marker of one method."""
    low, median, high = (_shown(part, log_y) for part in (spread.low, spread.median, spread.high))
    look: dict[str, Any] = {"color": line.colour}
    axes.fill_between(sizes, low, high, alpha=0.14, linewidth=0, **look)
    axes.plot(sizes, median, linestyle=line.dash, marker="o", ms=3.5, label=name, **look)
    if mark is not None:
        axes.plot(sizes[mark], median[mark], marker="D", ms=8, mec="white", zorder=4, **look)
