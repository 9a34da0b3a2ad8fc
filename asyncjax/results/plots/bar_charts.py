"""One number a method, with its spread: time or gradients to the target.

A bar is a median over seeds, its whisker the quartiles. A method whose median never reaches the
target has no bar and says so; a whisker with an arrow head goes on to infinity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from asyncjax.checks import flag
from asyncjax.results.arguments import several, text
from asyncjax.results.metrics import Spread
from asyncjax.results.plots.style import (
    MUTED,
    WIDTH,
    LineStyle,
    add_grid,
    drawable,
    drawing,
    new_figure,
    set_log,
    styles_for,
)
from asyncjax.results.tables import NOT_REACHED, format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def bars(
    names: Sequence[str],
    spreads: Sequence[Spread],
    *,
    x_label: str,
    title: str = "",
    log_x: bool = False,
    styles: Mapping[str, LineStyle] | None = None,
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

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If there are no names, or not as many spreads, a spread is of several
            numbers, or `styles` misses a name.

    Example:
        >>> spread = Spread(median=2.0, low=1.0, high=3.0, reached=1.0)
        >>> figure = bars(["sgd"], [spread], x_label="time to target [s]")
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['2.00']
    """
    text("x_label", x_label)
    text("title", title)
    flag("log_x", log_x)
    several("names", names, str, "texts")
    several("spreads", spreads, Spread, "spreads (results.Spread)")
    if not names or len(names) != len(spreads):
        raise ValueError(
            f"names has {len(names)} entries and spreads {len(spreads)}; "
            "both must have the same number, at least one"
        )
    for index, spread in enumerate(spreads):
        if np.ndim(spread.median) or np.ndim(spread.low) or np.ndim(spread.high):
            raise ValueError(
                f"spreads[{index}] must be of single numbers, got shape {np.shape(spread.median)}"
            )
    chosen = styles_for(names, styles)
    with drawing():
        figure = new_figure(WIDTH, 1.2 + 0.38 * len(names))
        axes = figure.subplots()
        limits = _limits(spreads, log_x)
        axes.set_xlim(*limits)
        for row, (name, spread) in enumerate(zip(names, spreads, strict=True)):
            _draw(axes, row, spread, chosen[name].colour, log_x, limits)
        axes.set_yticks(range(len(names)), list(names))
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(x_label)
        if title:
            axes.set_title(title)
        set_log(axes.xaxis, log_x)
        add_grid(axes, "x")
    return figure


def _limits(spreads: Sequence[Spread], log_x: bool) -> tuple[float, float]:
    """The range of the axis, with room at the right for the numbers."""
    ends = np.array([[spread.low, spread.median, spread.high] for spread in spreads], np.float64)
    shown = ends[drawable(ends, True)]
    if not shown.size:
        return (0.1, 1.0) if log_x else (0.0, 1.0)
    low, high = float(shown.min()), float(shown.max())
    if not log_x:
        return 0.0, high * 1.22
    room = max(np.log10(high / low), 0.3)
    return low / 10 ** (0.06 * room), high * 10 ** (0.16 * room)


def _draw(
    axes: Axes,
    row: int,
    spread: Spread,
    colour: str,
    log_x: bool,
    limits: tuple[float, float],
) -> None:
    """One bar (or point), its whisker and its text."""
    median, low, high = float(spread.median), float(spread.low), float(spread.high)
    if not np.isfinite(median) or not drawable(np.array(median), log_x):
        note = NOT_REACHED if not np.isfinite(median) else format_number(median)
        if spread.reached > 0 and not np.isfinite(median):
            note += f" ({round(100 * float(spread.reached))}% of the seeds did)"
        axes.annotate(
            note,
            (limits[0], row),
            (5, 0),
            textcoords="offset points",
            va="center",
            color=MUTED,
            fontsize=10,
            style="italic",
        )
        return
    if log_x:
        axes.plot([median], [row], "o", color=colour, markersize=7, zorder=3)
    else:
        axes.barh([row], [median], height=0.62, color=colour, alpha=0.75, linewidth=0)
    begin = low if drawable(np.array(low), log_x) else limits[0]
    end = high if drawable(np.array(high), False) else limits[1]
    axes.plot([begin, end], [row, row], color="black", linewidth=1.3, zorder=2.5)
    for edge in (low, high):
        if drawable(np.array(edge), log_x):
            axes.plot([edge], [row], "|", color="black", markersize=7, zorder=2.5)
    if not np.isfinite(high):
        axes.plot([end], [row], ">", color="black", markersize=6, clip_on=False, zorder=2.5)
    axes.annotate(
        format_number(median),
        (end, row),
        (9, 0),
        textcoords="offset points",
        va="center",
        fontsize=10,
        annotation_clip=False,
    )
