"""How much a method depends on its step size: final score against step size, one line a method.

A flat valley means that the step size need not be tuned. Settings at which the median seed diverged
have no score; they are crosses in a strip at the top. The setting a comparison uses is the large
marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import flag, shown, whole
from asyncjax.results.arguments import by_name, numbers, span, text
from asyncjax.results.metrics import best_on_grid, median_and_spread
from asyncjax.results.plots.style import (
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    styles: Mapping[str, LineStyle] | None = None,
) -> Figure:
    """Score against step size for every method, the chosen step size marked.

    Args:
        step_sizes: `[G]`, positive.
        scores: `[G, S]` (or `[G]`) by method: a row a step size, a column a seed; NaN where a
            run diverged.
        y_label: What the scores are.
        title: Above the plot.
        log_y: Logarithmic vertical axis.
        y_range: Lowest and highest value shown; by default all are.
        smaller_is_better: Losses and times (the default), or accuracies.
        chosen: Index of the marked step size by method; by default the best median.
        styles: Styles by name, to look the same as other plots.

    Returns:
        A matplotlib figure.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If there is no method, a step size is not positive or the shapes do not fit; if
            `chosen` names a method that is not there.

    Example:
        >>> figure = step_size_sensitivity(
        ...     [0.1, 1.0], {"sgd": [[2.0, 3.0], [1.0, 1.5]]}, y_label="final loss")
        >>> figure.axes[0].get_xlabel()
        'step size'
    """
    text("y_label", y_label)
    text("title", title)
    log_y = flag("log_y", log_y)
    smaller_is_better = flag("smaller_is_better", smaller_is_better)
    y_range = span("y_range", y_range)
    if log_y and y_range is not None and y_range[0] <= 0:
        raise ValueError(f"y_range must be positive where log_y is True, got {y_range}")
    sizes, given = _positive(step_sizes), by_name("scores", scores, "scores")
    data = {name: _table(name, values, sizes.size) for name, values in given.items()}
    if not data:
        raise ValueError("scores is empty; a plot needs at least one method")
    _check_chosen(chosen, data)
    looks = styles_for(data, styles)
    with drawing():
        figure = new_figure(WIDTH, 4.6)
        failed = {name: _failed(table) for name, table in data.items()}
        axes, top = _axes(figure, sizes, {n: f for n, f in failed.items() if f.any()}, looks)
        for name, table in data.items():
            marked = _marked(name, table, chosen, smaller_is_better)
            _draw(axes, name, sizes, table, marked, looks[name], log_y, smaller_is_better)
        axes.set(xlabel="step size", ylabel=y_label)
        top.set_title(title)
        if y_range is not None:
            axes.set_ylim(*y_range)
        set_log(axes.xaxis, True)
        set_log(axes.yaxis, log_y)
        add_grid(axes)
        add_legend_below(figure, *axes.get_legend_handles_labels())
    return figure


def _positive(step_sizes: ArrayLike) -> np.ndarray:
    """The step sizes as [G], checked."""
    sizes = numbers("step_sizes", step_sizes)
    if sizes.ndim != 1 or not sizes.size or not drawable(sizes, True).all():
        raise ValueError(
            f"step_sizes is {shown(step_sizes)}; it must be a list of positive numbers, 1e-100"
            " to 1e100"
        )
    return sizes


def _failed(table: np.ndarray) -> np.ndarray:
    """Which settings have no finite median."""
    return ~drawable(median_and_spread(table).median, False)


def _axes(
    figure: Figure,
    sizes: np.ndarray,
    failed: Mapping[str, np.ndarray],
    looks: Mapping[str, LineStyle],
) -> tuple[Axes, Axes]:
    """The axes of the scores and the topmost axes: a strip of crosses where anything diverged."""
    if not failed:
        axes = figure.subplots()
        return axes, axes
    height = 0.25 + 0.13 * len(failed)
    strip, axes = figure.subplots(2, 1, sharex=True, height_ratios=[height, 4.6 - height])
    for row, (name, lost) in enumerate(failed.items()):
        strip.plot(
            sizes[lost],
            np.full(lost.sum(), row),
            "x",
            color=looks[name].colour,
            markersize=5,
            markeredgewidth=1.5,
        )
    strip.set_ylim(len(failed) - 0.3, -0.7)
    strip.set_yticks([])
    strip.set_ylabel("diverged", rotation=0, ha="right", va="center")
    strip.tick_params(axis="x", which="both", length=0, labelbottom=False)
    strip.spines[["left", "bottom"]].set_visible(False)
    return axes, strip


def _table(name: str, values: ArrayLike, n_settings: int) -> np.ndarray:
    """The scores of a method as [G, S]."""
    table = numbers(f"scores[{name!r}]", values)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[0] != n_settings or table.shape[1] == 0:
        raise ValueError(
            f"scores[{name!r}] has shape {np.shape(values)}; it must have a row for each of the "
            f"{n_settings} step sizes"
        )
    return table


def _check_chosen(chosen: Mapping[str, int] | None, data: Mapping[str, np.ndarray]) -> None:
    """Refuses marks of methods that are not there, or of no step size."""
    if chosen is None:
        return
    for name, index in by_name("chosen", chosen, "places of step sizes").items():
        if name not in data:
            raise ValueError(f"chosen must name methods of scores, {list(data)}, got {name!r}")
        whole(f"chosen[{name!r}]", index, 0, len(data[name]) - 1)


def _marked(
    name: str, table: np.ndarray, chosen: Mapping[str, int] | None, smaller_is_better: bool
) -> int | None:
    """The setting to mark, None where all have diverged."""
    if chosen is not None:
        return chosen.get(name)
    try:
        return best_on_grid(table, smaller_is_better=smaller_is_better)
    except ValueError:
        return None


def _draw(
    axes: Axes,
    name: str,
    sizes: np.ndarray,
    table: np.ndarray,
    marked: int | None,
    look: LineStyle,
    log_y: bool,
    smaller_is_better: bool,
) -> None:
    """Line, band, marker and crosses of one method."""
    spread = median_and_spread(table, smaller_is_better=smaller_is_better)
    median, low, high = (
        np.where(drawable(part, log_y), part, np.nan)
        for part in (spread.median, spread.low, spread.high)
    )
    axes.fill_between(sizes, low, high, color=look.colour, alpha=0.14, linewidth=0)
    axes.plot(
        sizes,
        median,
        color=look.colour,
        linestyle=look.dash,
        marker="o",
        markersize=3.5,
        label=name,
    )
    if marked is not None:
        axes.plot(
            sizes[marked],
            median[marked],
            marker="D",
            markersize=8,
            color=look.colour,
            markeredgecolor="white",
            zorder=4,
        )
