"""What a scheduler of a cluster did: jobs over slots, use of the machines, and prices.

    colour of job i in slot t      W_i,t, its workers
    height of resource r in slot t its share in use, of all machines together
    colour of machine h in slot t  the price there, on a logarithmic scale

Plain arrays come in, as `cluster` makes them; nothing is computed from jobs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import real
from asyncjax.results.arguments import numbers, several, text, whole_numbers
from asyncjax.results.plots.style import (
    LARGEST,
    MUTED,
    add_grid,
    add_legend_below,
    assign_styles,
    drawable,
    drawing,
    new_figure,
    require_matplotlib,
    whole_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_ARRIVAL: dict[str, Any] = {"marker": ">", "color": MUTED, "markersize": 4.5, "linestyle": "none"}
_END = "#D55E00"
_AFTER: dict[str, Any] = {"facecolor": "#FFFFFF99", "edgecolor": "#404040", "hatch": "////"}


def schedule_chart(
    workers: ArrayLike,
    *,
    arrival: ArrayLike,
    completion: ArrayLike,
    names: Sequence[str] = (),
    title: str = "",
) -> Figure:
    """A row for each job: when it arrives, runs and completes, coloured by its workers.

    A schedule may give a job workers in slots after the one in which it completes, where whole
    workers make more than it needs. These cells are hatched.

    Args:
        workers: int[N, T] or int[N, T, H], workers of each job in each slot (on each machine).
        arrival: int[N], slot of arrival.
        completion: int[N], slot of completion; -1 for jobs that never complete.
        names: N names of the jobs; by default "job 0", "job 1", ...
        title: Above the chart.

    Returns:
        A matplotlib figure: the chart, a colour bar of workers and a legend. A triangle marks an
        arrival, a bar at the end of a slot a completion; jobs that never complete are named in grey
        italics.

    Raises:
        TypeError: If an argument is of another kind; all three are made of integers.
        ValueError: If the shapes do not fit, there is no job or no slot, a count of workers is
            negative, a slot is not there, or there are not N names.

    Example:
        >>> figure = schedule_chart([[2, 4], [0, 3]], arrival=[0, 1], completion=[1, -1])
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['job 0', 'job 1']
    """
    text("title", title)
    units = whole_numbers("workers", workers)
    units = units.sum(-1) if units.ndim == 3 else units
    arrivals = whole_numbers("arrival", arrival)
    ends = whole_numbers("completion", completion)
    if units.ndim != 2 or not arrivals.shape == ends.shape == units.shape[:1]:
        raise ValueError(
            f"workers must be [N, T] or [N, T, H], and arrival and completion [N], got shapes "
            f"{np.shape(workers)}, {arrivals.shape} and {ends.shape}"
        )
    if not units.size:
        raise ValueError(f"workers must have a job and a slot, got shape {np.shape(workers)}")
    if units.min() < 0:
        raise ValueError(f"workers must be at least 0, got {units.min()}")
    for name, slots, least in (("arrival", arrivals, 0), ("completion", ends, -1)):
        if slots.min() < least or slots.max() >= units.shape[1]:
            wrong = slots.min() if slots.min() < least else slots.max()
            raise ValueError(
                f"{name} must be slots of {least} .. {units.shape[1] - 1}, got {wrong}"
            )
    n_jobs, n_slots = units.shape
    labels = several("names", names, str, "texts") or [f"job {job}" for job in range(n_jobs)]
    if len(labels) != n_jobs:
        raise ValueError(f"names must name the {n_jobs} jobs of workers, got {len(labels)} names")
    require_matplotlib()
    from matplotlib.ticker import MaxNLocator

    after = (np.arange(n_slots) > ends[:, None]) & (ends >= 0)[:, None] & (units > 0)
    with drawing():
        figure = new_figure(8.0, min(max(1.8 + 0.16 * n_jobs, 2.6), 12.0))
        axes = figure.subplots()
        largest = max(int(units.max()), 1)
        colours = _cells(axes, np.where(units > 0, units, np.nan), largest)
        _hatch(axes, after)
        rows = np.arange(n_jobs)
        axes.plot(arrivals, rows, **_ARRIVAL, clip_on=False)
        _completions(axes, ends)
        _job_names(axes, ends, labels)
        axes.set_xlim(0, n_slots)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("slot")
        if (np.diff(arrivals) >= 0).all():
            axes.set_ylabel("jobs, in order of arrival")
        if title:
            axes.set_title(title)
        _crew_bar(figure, axes, colours, largest)
        done = ends >= 0
        marks = _marks(bool(done.any()), bool((~done).any()), bool(after.any()))
        add_legend_below(figure, marks, [str(mark.get_label()) for mark in marks])
    return figure


def _completions(axes: Axes, ends: np.ndarray) -> None:
    """A bar at the end of the slot in which each job completes, int[N], -1 for never."""
    done = np.flatnonzero(ends >= 0)
    looks = {"color": _END, "lw": 2.5, "clip_on": False}
    axes.vlines(ends[done] + 1, done - 0.45, done + 0.45, **looks)


def _crew_bar(figure: Figure, axes: Axes, colours: Any, largest: int) -> None:
    """The colour bar of workers, labelled at whole ones: there is no half a worker."""
    ticks = whole_ticks(min(1, largest - 1), largest)
    bar = figure.colorbar(colours, ax=axes, pad=0.015, fraction=0.04, aspect=30, ticks=ticks)
    bar.ax.set_yticklabels([f"{tick:,}" for tick in ticks])
    bar.set_label("workers")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _hatch(axes: Axes, shown: np.ndarray) -> None:
    """Hatches over the cells of a chart of slots, bool[N, T]."""
    from matplotlib.collections import PolyCollection

    job, slot = np.nonzero(shown)
    if job.size:
        top, bottom, left, right = job - 0.5, job + 0.5, slot, slot + 1
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        boxes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
        axes.add_collection(PolyCollection(list(boxes), **_AFTER, linewidths=0.0))


def _marks(some_end: bool, some_do_not: bool, some_go_on: bool) -> list[Any]:
    """Entries of the legend for what a chart of jobs shows."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Any] = [Line2D([], [], label="arrives", **_ARRIVAL)]
    if some_end:
        looks = {"color": _END, "marker": "|", "markersize": 11, "markeredgewidth": 2.5}
        marks.append(Line2D([], [], label="completes", linestyle="none", **looks))
    if some_go_on:
        marks.append(Patch(label="workers kept after completion", linewidth=0.0, **_AFTER))
    if some_do_not:
        never = "name in grey italics: never completes"
        marks.append(Patch(label=never, facecolor="none", linewidth=0.0))
    return marks


def utilisation_chart(shares: ArrayLike, *, names: Sequence[str] = (), title: str = "") -> Figure:
    """Which share of each resource is in use, slot by slot.

    Args:
        shares: float[T, R], from 0 to 1.
        names: R names of the resources; numbers by default.
        title: Above the plot.

    Returns:
        A matplotlib figure with a stepped line for each resource.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If `shares` is not [T, R] or not finite or negative, or there are not R names.

    Example:
        >>> figure = utilisation_chart([[0.5, 0.2], [1.0, 0.1]], names=["GPU", "vCPU"])
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['GPU', 'vCPU']
    """
    text("title", title)
    values = numbers("shares", shares)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"shares must be [T, R] and not empty, got the shape {values.shape}")
    if not (drawable(values, False) & (values >= 0)).all():
        raise ValueError(
            f"shares must be at least 0 and finite, at most {LARGEST:g}, got {values.min():g} to"
            f" {values.max():g}"
        )
    labels = several("names", names, str, "texts") or [
        f"resource {index}" for index in range(values.shape[1])
    ]
    if len(labels) != values.shape[1]:
        raise ValueError(
            f"names must name the {values.shape[1]} resources of shares, got {len(labels)} names"
        )
    styles = assign_styles(labels)
    edges = np.arange(len(values) + 1)
    with drawing():
        figure = new_figure(8.0, 3.2)
        axes = figure.subplots()
        for label, line in zip(labels, values.T, strict=True):
            look = styles[label]
            steps = np.append(line, line[-1])
            axes.step(
                edges, steps, where="post", color=look.colour, linestyle=look.dash, label=label
            )
        axes.set_xlim(0, len(values))
        axes.set_ylim(0.0, max(1.02, 1.02 * float(values.max())))
        axes.set_xlabel("slot")
        axes.set_ylabel("share in use")
        add_grid(axes, "y")
        if title:
            axes.set_title(title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure


def price_map(
    prices: ArrayLike, *, unit: str = "price", lowest: float | None = None, title: str = ""
) -> Figure:
    """Prices on every machine in every slot, on a logarithmic scale.

    Args:
        prices: float[T, H], positive.
        unit: What is priced, for the colour bar.
        lowest: Where the scale begins; cheaper cells have its colour. By default the lowest price.
        title: Above the map.

    Returns:
        A matplotlib figure: a row for each machine, a column for each slot.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If `prices` is not [T, H], or not positive and finite, or `lowest` is not
            positive.

    Example:
        >>> figure = price_map([[1e-6, 1e-3], [1.0, 1e-6]], title="prices")
        >>> figure.axes[0].get_ylabel()
        'machine'
    """
    text("unit", unit)
    text("title", title)
    values = numbers("prices", prices)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"prices must be [T, H] and not empty, got the shape {values.shape}")
    if not drawable(values, True).all():
        raise ValueError(
            f"prices must be positive and finite, {1 / LARGEST:g} to {LARGEST:g}, got"
            f" {values.min():g} to {values.max():g}"
        )
    if lowest is not None:
        lowest = real("lowest", lowest, above=0)
        if lowest > LARGEST:
            raise ValueError(f"lowest must be positive and at most {LARGEST:g}, got {lowest:g}")
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    low = float(values.min()) if lowest is None else lowest
    norm = LogNorm(low, max(float(values.max()), 10 * low))
    n_slots, n_machines = values.shape
    with drawing():
        figure = new_figure(8.0, min(max(1.8 + 0.08 * n_machines, 2.8), 8.0))
        axes = figure.subplots()
        colours = axes.pcolormesh(
            np.arange(n_slots + 1),
            np.arange(n_machines + 1) - 0.5,
            values.T,
            norm=norm,
            cmap="magma_r",
        )
        axes.set_ylim(n_machines - 0.5, -0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("slot")
        axes.set_ylabel("machine")
        if title:
            axes.set_title(title)
        extend = "min" if values.min() < low else "neither"
        bar = figure.colorbar(colours, ax=axes, pad=0.015, fraction=0.05, aspect=25, extend=extend)
        bar.set_label(unit)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


def _cells(axes: Axes, values: np.ndarray, largest: int) -> Any:
    """A coloured cell for each job and slot; NaN stays white."""
    from matplotlib.colors import PowerNorm

    n_jobs, n_slots = values.shape
    edges = np.arange(n_slots + 1), np.arange(n_jobs + 1) - 0.5
    norm = PowerNorm(0.5, min(1, largest - 1), largest)  # a root: small crews are many
    return axes.pcolormesh(
        *edges, values, norm=norm, cmap="viridis_r", edgecolor="white", linewidth=0.3
    )


def _job_names(axes: Axes, ends: np.ndarray, names: Sequence[str]) -> None:
    """Names of the jobs, those of unfinished ones in grey italics."""
    n_jobs = len(ends)
    shown = list(range(0, n_jobs, max(1, -(-n_jobs // 60))))
    axes.set_yticks(shown, [names[job] for job in shown], fontsize=7 if n_jobs > 20 else 10)
    axes.tick_params(axis="y", length=0, pad=7)
    for job, label in zip(shown, axes.get_yticklabels(), strict=True):
        if ends[job] < 0:
            label.set_color("#9A9A9A")
            label.set_fontstyle("italic")
    axes.set_ylim(n_jobs - 0.3, -0.7)
