"""How stale the gradients of each method are: one small histogram a method, on one pair of axes.

The delay of a gradient is how many updates the server made while it was computed. Delays of uneven
workers have heavy tails (a mean of 30 and a maximum of 2000), so by default the axis is divided
at 1, 2, 4, 8, ... (a bar for 0, then one for each doubling).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import flag, whole
from asyncjax.results.arguments import by_name, text, whole_numbers
from asyncjax.results.plots.style import MUTED, LineStyle, add_grid, drawing, new_figure, styles_for
from asyncjax.results.tables import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LARGEST = 2**53  # of integers that are floats


def staleness_histogram(
    delays: Mapping[str, ArrayLike],
    *,
    title: str = "",
    doubling: bool = True,
    columns: int = 3,
    styles: Mapping[str, LineStyle] | None = None,
) -> Figure:
    """Histograms of delays, one a method, with mean and largest delay written in.

    Args:
        delays: Integers of at least 0 by method, any number each: the delay in updates of every
            gradient.
        title: Above all.
        doubling: Bars for 0, 1, 2-3, 4-7, ... (equally wide); otherwise bars of equal range.
        columns: How many histograms stand side by side, at most; 2 can be read on a phone.
        styles: Styles by name, to look the same as other plots.

    Returns:
        A matplotlib figure with an axes for each method.

    Raises:
        TypeError: If an argument is of another kind, or a delay is no integer.
        ValueError: If there is no method, a delay is negative, or `styles` misses a name.

    Example:
        >>> figure = staleness_histogram({"sgd": [0, 1, 5], "piag": [0, 0, 2]})
        >>> [axes.get_title("left") for axes in figure.axes]
        ['sgd', 'piag']
    """
    text("title", title)
    doubling = flag("doubling", doubling)
    columns = whole("columns", columns)
    given = by_name("delays", delays, "delays")
    if not given:
        raise ValueError("delays is empty; a plot needs at least one method")
    data = {
        name: whole_numbers(f"delays[{name!r}]", values).ravel() for name, values in given.items()
    }
    for name, values in data.items():
        if values.size and values.min() < 0:
            raise ValueError(f"delays[{name!r}] holds {values.min()}; a delay is at least 0")
        if values.size and values.max() > _LARGEST:
            raise ValueError(
                f"delays[{name!r}] holds {values.max()}; a delay is at most {_LARGEST:,}"
            )
    largest = max((int(values.max()) for values in data.values() if values.size), default=0)
    edges = _edges(largest, doubling)
    chosen = styles_for(data, styles)
    with drawing():
        columns = min(columns, len(data))
        rows = -(-len(data) // columns)
        figure = new_figure(3.1 * columns + 0.4, 1.75 * rows + 0.8)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for index, (name, values) in enumerate(data.items()):
            axes = grid[index // columns, index % columns]
            _draw(axes, values, edges, doubling, chosen[name].colour)
            axes.set_title(name, fontsize=10)
            if index + columns >= len(data):
                axes.tick_params(labelbottom=True)
        for spare in range(len(data), rows * columns):
            grid[spare // columns, spare % columns].remove()
        label = "delay [updates]" + (", bars begin at 0, 1, 2, 4, 8, ..." if doubling else "")
        figure.supxlabel(label, fontsize=10)
        figure.supylabel("share of gradients [%]", fontsize=10)
        if title:
            figure.suptitle(title, x=0.01, ha="left")
    return figure


def _edges(largest: int, doubling: bool) -> np.ndarray:
    """Where bars begin and end, in updates; the last lies beyond the largest delay."""
    if doubling:
        return np.concatenate([[0], 2 ** np.arange(int(largest).bit_length() + 1)])
    width = -(-(largest + 1) // 40)
    return np.arange(0, largest + width + 1, width)


def _draw(axes: Axes, values: np.ndarray, edges: np.ndarray, doubling: bool, colour: str) -> None:
    """One histogram with its note."""
    counts = np.histogram(values, bins=edges)[0]
    # The last bin of a histogram is closed on the right; no delay reaches its upper edge.
    shares = 100.0 * counts / max(values.size, 1)
    if doubling:
        places, widths = np.arange(counts.size), np.full(counts.size, 0.9)
        every = max(1, -(-counts.size // 7))
        axes.set_xticks(places[::every], [f"{edge:,}" for edge in edges[:-1][::every]])
        axes.set_xlim(-0.7, counts.size - 0.3)
    else:
        places, widths = edges[:-1] + np.diff(edges) / 2 - 0.5, np.diff(edges) * 0.95
    axes.bar(places, shares, width=widths, color=colour, linewidth=0)
    if values.size:
        mean = format_number(float(values.mean()))
        note = f"mean {mean}\nmax {format_number(int(values.max()))}"
    else:
        note = "no gradients"
    axes.text(
        0.98, 0.97, note, transform=axes.transAxes, ha="right", va="top", fontsize=9, color=MUTED
    )
    add_grid(axes, "y")
