"""Forest plots: one row per name, a dot with its interval a group."""

from collections.abc import Mapping, Sequence
from typing import Any

from asyncjax.results.plots import style

Ends = tuple[float, float, float]  # low, middle, high
Dots = Mapping[str, Mapping[str, Ends]]  # by group, by row


def forest(
    panels: Mapping[str, Dots],
    label: str,
    *,
    neutral: float | None = 1.0,
    log: bool = True,
    columns: int = 2,
    width: float = 10.0,
) -> Any:
    """A figure of panels with their titles.

    Args:
        panels: What is drawn; panels in one line of the figure mostly have the same rows.
        label: Below the panels.
        neutral: Where a line stands; None: nowhere.
        log: Whether the axis is logarithmic.
        columns: Panels in a line.
        width: Of the figure.
    """
    names = [
        list(dict.fromkeys(row for rows in dots.values() for row in rows))
        for dots in panels.values()
    ]
    groups = list(dict.fromkeys(group for dots in panels.values() for group in dots))
    lines = -(-len(panels) // columns)
    room = 0.1 + 0.12 * len(groups)
    with style.drawing():
        figure = style.new_figure(width, lines * (0.9 + room * max(map(len, names))))
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
        for at, (axes, (title, dots)) in enumerate(zip(grid, panels.items(), strict=False)):
            _panel(axes, dots, names[at], groups, neutral)
            style.set_log(axes.xaxis, log)
            alike = at % columns and names[at] == names[at - 1]
            axes.set_yticks(range(len(names[at])), [] if alike else names[at], fontsize=8)
            axes.set_title(title)
            axes.set_xlabel(label)
            style.add_grid(axes, "x")
        for axes in grid[len(panels) :]:
            axes.axis("off")
        known: dict[str, Any] = {}
        for axes in grid[: len(panels)]:
            known |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        style.add_legend_below(figure, list(known.values()), list(known))
    return figure


def _panel(
    axes: Any, dots: Dots, names: Sequence[str], groups: Sequence[str], neutral: float | None
) -> None:
    for group, rows in dots.items():
        place = groups.index(group)
        shift = 0.7 * ((place + 0.5) / len(groups) - 0.5)
        for row, (low, middle, high) in rows.items():
            at = names.index(row) + shift
            axes.plot([low, high], [at, at], color=style.COLOURS[place], lw=1.6, alpha=0.7)
            axes.plot(middle, at, "o", color=style.COLOURS[place], ms=4, label=group)
    if neutral is not None:
        axes.axvline(neutral, color=style.MUTED, lw=0.8, zorder=0)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
