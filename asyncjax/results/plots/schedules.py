"""What a scheduler of a cluster did: jobs over slots, use of the machines, and prices.

    colour of job i in slot t      W_i,t, its workers
    height of resource r in slot t its share in use, of all machines together
    colour of machine h in slot t  the price there, on a logarithmic scale

Plain arrays come in, as `cluster` makes them; nothing is computed from jobs here.
"""

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
    assign_styles,
    drawable,
    drawing,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def schedule_chart(
    workers: ArrayLike,
    *,
    arrival: ArrayLike,
    completion: ArrayLike,
    title: str = "",
) -> "Figure":
    """A row for each job: when it arrives, runs and completes, coloured by its workers.

    Args:
        workers: int[N, T] or int[N, T, H], workers of each job in each slot (on each machine).
        arrival: int[N], slot of arrival.
        completion: int[N], slot of completion; -1 for jobs that never complete.
        title: Above the chart.

    Returns:
        A matplotlib figure: the chart and a colour bar of workers. A triangle marks an arrival, a
        bar at the end of a slot a completion; jobs that never complete are named in grey italics.

    Raises:
        TypeError: If an argument is of another kind; all three are made of integers.
        ValueError: If the shapes do not fit, there is no job or no slot, a count of workers is
            negative, or a slot is not there.

    Example:
        >>> figure = schedule_chart([[2, 4], [0, 3]], arrival=[0, 1], completion=[1, -1])
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['0', '1']
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
    with drawing():
        figure = new_figure(8.0, min(max(1.8 + 0.16 * n_jobs, 2.6), 12.0))
        axes = figure.subplots()
        colours = _cells(axes, np.where(units > 0, units, np.nan), max(int(units.max()), 1))
        rows = np.arange(n_jobs)
        axes.plot(arrivals, rows, ">", color=MUTED, markersize=3.5, linestyle="none", clip_on=False)
        done = ends >= 0
        axes.vlines(
            ends[done] + 1,
            rows[done] - 0.45,
            rows[done] + 0.45,
            color="#D55E00",
            lw=2.0,
            clip_on=False,
        )
        _job_names(axes, ends)
        axes.set_xlim(0, n_slots)
        axes.set_xlabel("slot")
        axes.set_ylabel("job, in order of arrival")
        if title:
            axes.set_title(title)
        bar = figure.colorbar(colours, ax=axes, pad=0.015, fraction=0.04, aspect=30)
        bar.set_label("workers")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


def utilisation_chart(shares: ArrayLike, *, names: Sequence[str] = (), title: str = "") -> "Figure":
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
) -> "Figure":
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


def _cells(axes: "Axes", values: np.ndarray, largest: int) -> Any:
    """A coloured cell for each job and slot; NaN stays white."""
    from matplotlib.colors import PowerNorm

    n_jobs, n_slots = values.shape
    edges = np.arange(n_slots + 1), np.arange(n_jobs + 1) - 0.5
    norm = PowerNorm(0.5, 0, largest)  # a root leaves colours for the many small crews
    return axes.pcolormesh(
        *edges, values, norm=norm, cmap="viridis_r", edgecolor="white", linewidth=0.3
    )


def _job_names(axes: "Axes", ends: np.ndarray) -> None:
    """Numbers of the jobs, those of unfinished ones in grey italics."""
    n_jobs = len(ends)
    shown = list(range(0, n_jobs, max(1, -(-n_jobs // 60))))
    axes.set_yticks(shown, [str(job) for job in shown], fontsize=7 if n_jobs > 20 else 9)
    axes.tick_params(axis="y", length=0, pad=7)
    for job, label in zip(shown, axes.get_yticklabels(), strict=True):
        if ends[job] < 0:
            label.set_color("#9A9A9A")
            label.set_fontstyle("italic")
    axes.set_ylim(n_jobs - 0.3, -0.7)
