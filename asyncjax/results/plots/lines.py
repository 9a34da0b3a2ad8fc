"""Curves with shaded bands: the loss of every method against time, gradients or updates.

A line is a median over seeds, its band the quartiles. Points that are not finite (a run that has
diverged, a stretch that some seed does not cover) or larger than 1e100 leave a gap, and on a
logarithmic axis so do points at or below zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import flag, whole
from asyncjax.results.arguments import goal, several, span, text
from asyncjax.results.plots.style import (
    MUTED,
    WIDTH,
    LineStyle,
    add_grid,
    add_legend_below,
    drawable,
    drawing,
    new_figure,
    set_log,
    styles_for,
)
from asyncjax.results.series import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = 3.6  # inches that a panel is wide where several stand side by side


@dataclass(frozen=True, eq=False)
class Panel:
    """The curves of one panel and what they are drawn against.

    Attributes:
        x_label: Label of the axis, with its unit.
        series: The curves.
        log_x: Whether the axis is logarithmic.
    """

    x_label: str
    series: Sequence[Series]
    log_x: bool = False

    def __post_init__(self) -> None:
        text("x_label", self.x_label)
        several("series", self.series, Series, "curves (plots.Series)")
        flag("log_x", self.log_x)


def curves(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    y_range: tuple[float, float] | None = None,
    target: float | None = None,
    styles: Mapping[str, LineStyle] | None = None,
) -> Figure:
    """One plot of curves with shaded bands, the legend below.

    Args:
        series: The curves, in the order of the legend.
        x_label: What the horizontal axis shows, with its unit.
        y_label: What the vertical axis shows, with its unit.
        title: Above the plot.
        log_x: Logarithmic horizontal axis.
        log_y: Logarithmic vertical axis.
        y_range: Lowest and highest value shown; by default all are.
        target: Draws a thin line at this value.
        styles: Styles by name, to look the same as other plots.

    Returns:
        A matplotlib figure.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If there is no series, `styles` misses one, a range is not (lowest, highest) or
            cannot be drawn, or the target is not finite.

    Example:
        >>> line = Series("sgd", [0.0, 1.0], [2.0, 1.0], [1.5, 0.8], [2.5, 1.2])
        >>> figure = curves([line], x_label="time [s]", y_label="loss")
        >>> figure.axes[0].get_xlabel()
        'time [s]'
    """
    panel = Panel(x_label, series, log_x)
    y_range, target = _vertical(y_label, title, log_y, y_range, target)
    chosen = styles_for(_names([panel]), styles)
    with drawing():
        figure = new_figure(WIDTH, 3.8)
        axes = figure.subplots()
        _draw(axes, panel, chosen, log_y, y_range, target)
        _label_target(axes, target)
        axes.set_ylabel(y_label)
        if title:
            axes.set_title(title)
        add_legend_below(figure, *axes.get_legend_handles_labels())
    return figure


def panels(
    parts: Sequence[Panel],
    *,
    y_label: str,
    title: str = "",
    log_y: bool = False,
    y_range: tuple[float, float] | None = None,
    target: float | None = None,
    columns: int | None = None,
    styles: Mapping[str, LineStyle] | None = None,
) -> Figure:
    """Several plots of curves side by side with one vertical axis, the legend below.

    Args:
        parts: The panels from left to right, then from top to bottom.
        y_label: What the vertical axis shows, with its unit.
        title: Above all panels.
        log_y: Logarithmic vertical axis.
        y_range: Lowest and highest value shown; by default all are.
        target: Draws a thin line at this value.
        columns: How many stand side by side, at least 1; by default all. With 1 the panels are
            stacked, and the letters can be read on a phone.
        styles: Styles by name, to look the same as other plots.

    Returns:
        A matplotlib figure with an axes for each panel.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If there is no panel or no series, `styles` misses one, a range is not (lowest,
            highest) or cannot be drawn, or the target is not finite.

    Example:
        >>> line = Series("sgd", [0.0, 1.0], [2.0, 1.0], [1.5, 0.8], [2.5, 1.2])
        >>> figure = panels([Panel("time [s]", [line]), Panel("updates", [line])], y_label="loss")
        >>> [axes.get_xlabel() for axes in figure.axes]
        ['time [s]', 'updates']
    """
    if not several("parts", parts, Panel, "panels (plots.Panel)"):
        raise ValueError("parts is empty; a plot needs at least one panel")
    names = _names(parts)
    columns = None if columns is None else whole("columns", columns)
    y_range, target = _vertical(y_label, title, log_y, y_range, target)
    chosen = styles_for(names, styles)
    with drawing():
        side = min(len(parts), len(parts) if columns is None else columns)
        rows = -(-len(parts) // side)
        figure = new_figure(max(_PANEL * side, WIDTH), 3.5 if rows == 1 else 3.1 * rows)
        cells = figure.subplots(rows, side, sharey=True, squeeze=False)
        grid = cells.ravel()[: len(parts)]
        for spare in cells.ravel()[len(parts) :]:
            spare.remove()
        for axes, panel in zip(grid, parts, strict=True):
            _draw(axes, panel, chosen, log_y, y_range, target)
        _label_target(grid[-1], target)
        for axes in grid[::side]:
            axes.set_ylabel(y_label)
        if title:
            figure.suptitle(title, x=0.01, ha="left")
        handles = {}
        for axes in grid:
            found, labels = axes.get_legend_handles_labels()
            handles.update(
                {label: handles.get(label, h) for h, label in zip(found, labels, strict=True)}
            )
        add_legend_below(figure, [handles[name] for name in names], names)
    return figure


def _vertical(
    y_label: str, title: str, log_y: bool, y_range: Any, target: Any
) -> tuple[tuple[float, float] | None, float | None]:
    """The range and the target, read; texts and flags checked."""
    text("y_label", y_label)
    text("title", title)
    flag("log_y", log_y)
    limits, wanted = span("y_range", y_range), goal("target", target)
    if log_y and limits is not None and limits[0] <= 0:
        raise ValueError(f"y_range must be positive where log_y is True, got {limits}")
    if log_y and wanted is not None and wanted <= 0:
        raise ValueError(f"target must be positive where log_y is True, got {wanted}")
    return limits, wanted


def _names(parts: Sequence[Panel]) -> list[str]:
    """Names of all series, each once, in the order they come."""
    names = list(dict.fromkeys(line.name for panel in parts for line in panel.series))
    if not names:
        raise ValueError("series is empty; a plot needs at least one curve")
    return names


def _draw(
    axes: Axes,
    panel: Panel,
    styles: Mapping[str, LineStyle],
    log_y: bool,
    y_range: tuple[float, float] | None,
    target: float | None,
) -> None:
    """Lines and bands of one panel."""
    for line in panel.series:
        style = styles[line.name]
        x = _shown(line.x, panel.log_x)
        low, high = _shown(line.low, log_y), _shown(line.high, log_y)
        axes.fill_between(
            x,
            low,
            high,
            where=np.isfinite(x + low + high).tolist(),
            color=style.colour,
            alpha=0.16,
            linewidth=0,
        )
        axes.plot(
            x, _shown(line.median, log_y), color=style.colour, linestyle=style.dash, label=line.name
        )
    if target is not None:
        axes.axhline(target, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    if y_range is not None:
        axes.set_ylim(*y_range)
    set_log(axes.xaxis, panel.log_x)
    set_log(axes.yaxis, log_y)
    axes.margins(x=0.01)
    axes.set_xlabel(panel.x_label)
    add_grid(axes)


def _label_target(axes: Axes, target: float | None) -> None:
    """The word at the right end of the target's line, outside the plot."""
    if target is None:
        return
    axes.annotate(
        "target",
        xy=(1.0, target),
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        color=MUTED,
        fontsize=8.5,
        annotation_clip=False,
    )


def _shown(values: ArrayLike, log: bool) -> np.ndarray:
    """Values with NaN where they cannot be drawn."""
    data = np.asarray(values, dtype=np.float64)
    return np.where(drawable(data, log), data, np.nan)
