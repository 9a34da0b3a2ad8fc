"""What was done when: jobs of workers, samples of rollouts, jobs of a cluster, its use, its prices.

In `timeline` and `rollout_timeline` a row is a worker or a slot. A bar is a job from its start to
its arrival, coloured by the delay of its gradient; where all delays are the same, the legend says
which. Work that is thrown away is grey and hatched, work still running at the end is pale. The row
above shows the updates of the server. In the three charts of a cluster a column is a slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import real, within
from asyncjax.results.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from asyncjax.traces import EventTrace

_SAMPLES = ("slot", "start", "end", "step", "fate", "step_begin", "step_end")
_BAR = 0.76  # height of a bar, in rows
_RUNNING: dict[str, Any] = {"facecolor": "#F2F2F2", "edgecolor": "#A8A8A8", "hatch": ""}
_LOST: dict[str, dict[str, Any]] = {
    "thrown away": {"facecolor": "#C8C8C8", "edgecolor": "#6E6E6E", "hatch": "////"},
    "cancelled": {"facecolor": "#F4DDD0", "edgecolor": "#D55E00", "hatch": "xxxx"},
    "still running": _RUNNING,
    "not trained": _RUNNING,
}
_ARRIVAL: dict[str, Any] = {
    "marker": ">",
    "color": style.MUTED,
    "markersize": 4.5,
    "linestyle": "none",
}
_END = "#D55E00"
_AFTER: dict[str, Any] = {"facecolor": "#FFFFFF99", "edgecolor": "#404040", "hatch": "////"}


def timeline(
    trace: EventTrace, *, until: float, title: str = "", unit: str = "unit of the trace"
) -> Figure:
    """A chart of the jobs of every worker from time 0 to `until`.

    Args:
        trace: Arrivals in service order, with their fields as NumPy (or JAX) arrays.
        until: Where the chart ends, in the unit of time of the trace.
        title: Above the chart.
        unit: Of time, in brackets below the axis.

    Returns:
        A matplotlib figure: the chart, and a colour bar where delays differ.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=4)
        >>> timeline(trace, until=3.0).axes[0].get_xlabel()
        'time [unit of the trace]'
    """
    until = real("until", until, above=0)
    if trace.start is None:
        raise ValueError(
            "trace does not record when jobs start (start is None), so no job can be drawn"
        )
    worker, start, time = map(np.asarray, (trace.worker, trace.start, trace.time))
    used, updates = np.asarray(trace.used, bool), time[np.asarray(trace.steps, bool)]
    updates = updates[updates <= until]
    lost = {"thrown away": (worker[~used], start[~used], time[~used])}
    if (jobs := trace.cancelled) is not None:
        lost["cancelled"] = (jobs.worker, jobs.start, jobs.time)
    if (jobs := trace.open_jobs) is not None:
        lost["still running"] = (jobs.worker, jobs.start, np.full(len(jobs.start), until))
    n_workers = int(worker.max()) + 1 if trace.n_workers is None else trace.n_workers
    bars = (worker[used], start[used], time[used])
    with style.drawing():
        figure, axes = _rows(n_workers, until, title, unit, ("updates", "worker"))
        axes.vlines(
            updates, -2.0, -1.0, color="black", linewidth=0.6 if updates.size > 150 else 0.9
        )
        delay = np.asarray(trace.delay)[used]
        _draw_jobs(figure, axes, until, bars, delay, ("delay", "updates"), lost)
    return figure


def rollout_timeline(
    trace: Any, *, until: float, title: str = "", unit: str = "unit of the trace"
) -> Figure:
    """A chart of slots that make samples, with the trainer's steps in the row above them.

    A bar runs from the start of a sample to its end and is coloured by its age at training. Samples
    not trained by the end of the trace are pale.

    Args:
        trace: A `RolloutTrace`.
        until: Where the chart ends, in the unit of time of the trace.
        title: Above the chart.
        unit: Of time, in brackets below the axis.

    Returns:
        A matplotlib figure: the chart, and a colour bar where ages differ.

    Example:
        >>> from asyncjax import rollouts
        >>> engine, rule = rollouts.Engine(2, 1.0), rollouts.admission.synchronous()
        >>> trace = rollouts.trace([3.0], engine, rule, batch=2, n_steps=4)
        >>> rollout_timeline(trace, until=9.0).axes[0].get_ylabel()
        'slot'
    """
    until = real("until", until, above=0)
    slot, start, end, step, fate, begin, finish = (
        np.asarray(getattr(trace, name)) for name in _SAMPLES
    )
    end = np.where(np.isnan(end), until, end)
    kinds = {"thrown away": fate == 3, "not trained": (fate == 1) | (fate == 2)}
    lost = {name: (slot[some], start[some], end[some]) for name, some in kinds.items()}
    trained, seen = step >= 0, begin < until
    bars = (slot[trained], start[trained], end[trained])
    age = (step - np.asarray(trace.start_version))[trained]
    with style.drawing():
        names = ("trainer", "slot")
        figure, axes = _rows(trace.generator_slots, until, title, unit, names)
        steps = (np.full(seen.sum(), -1.5), begin[seen], finish[seen])
        _add_bars(axes, steps, until, facecolors=style.MUTED)
        _draw_jobs(figure, axes, until, bars, age, ("age at training", "versions"), lost)
    return figure


def _rows(
    count: int, until: float, title: str, unit: str, names: tuple[str, str]
) -> tuple[Figure, Axes]:
    """A chart over time with so many rows and one above them; the names of that and of a row."""
    label = f"time [{unit}]" if unit else "time"
    height = min(max(1.6 + 0.17 * count, 2.6), 12.0)
    figure, axes = style.new_axes(6.6, height, title, label, names[1])
    axes.set_xlim(0.0, until)
    axes.set_ylim(count - 0.3, -2.3)
    rows = range(0, count, max(1, -(-count // 16)))
    axes.set_yticks([-1.5, *rows], [names[0], *map(str, rows)])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.axhline(-0.7, color=style.MUTED, linewidth=0.5)
    return figure, axes


def _draw_jobs(
    figure: Figure,
    axes: Axes,
    until: float,
    bars: tuple[np.ndarray, np.ndarray, np.ndarray],
    values: np.ndarray,
    names: tuple[str, str],
    lost: dict[str, tuple[Any, Any, Any]],
) -> None:
    """Bars (row, start and end of each), coloured by a value with a name and a unit; lost work."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm
    from matplotlib.patches import Patch

    seen, swatches = bars[1] < until, []
    row, start, end, value = (part[seen] for part in (*bars, values))
    # Delays have heavy tails; a root leaves colours for the many short ones.
    largest = int(value.max()) if value.size else 0
    scale = ScalarMappable(norm=PowerNorm(0.5, 0, max(largest, 1)), cmap="viridis_r")
    _add_bars(axes, (row, start, end), until, facecolors=scale.to_rgba(value))
    if value.size and value.min() == value.max():
        label = f"used, {names[0]} {largest:,} {names[1]} each"
        swatches = [Patch(label=label, facecolor=scale.to_rgba(value[:1])[0], linewidth=0)]
    elif value.size:
        style.add_colour_bar(figure, axes, scale, f"{names[0]} [{names[1]}]", 0, fraction=0.05)
    for name, jobs in lost.items():
        row, start, end = map(np.asarray, jobs)
        seen = start < until  # false for NaN: still in a queue
        if seen.any():
            _add_bars(
                axes, (row[seen], start[seen], end[seen]), until, **_LOST[name], linewidth=0.5
            )
            swatches.append(Patch(label=name, linewidth=0.5, **_LOST[name]))
    if swatches:
        style.add_legend_below(figure, swatches, [str(patch.get_label()) for patch in swatches])


def _add_bars(axes: Axes, bars: tuple[Any, Any, Any], until: float, **look: Any) -> None:
    """Rectangles in their rows."""
    row, start, end = bars
    if "edgecolor" not in look:
        look = {"edgecolors": "white", "linewidths": 0.5, **look}
    _boxes(axes, start, np.minimum(end, until), row - _BAR / 2, row + _BAR / 2, **look)


def _boxes(
    axes: Axes, left: Any, right: Any, top: np.ndarray, bottom: np.ndarray, **look: Any
) -> None:
    """Many rectangles in one collection."""
    from matplotlib.collections import PolyCollection

    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    shapes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    axes.add_collection(PolyCollection(list(shapes), **look))


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

    Example:
        >>> figure = schedule_chart([[2, 4], [0, 3]], arrival=[0, 1], completion=[1, -1])
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['job 0', 'job 1']
    """
    units, arrivals, ends = map(np.asarray, (workers, arrival, completion))
    units = units.sum(-1) if units.ndim == 3 else units
    if units.ndim != 2 or not arrivals.shape == ends.shape == units.shape[:1]:
        raise ValueError(
            f"workers must be [N, T] or [N, T, H], and arrival and completion [N], got shapes "
            f"{np.shape(workers)}, {arrivals.shape} and {ends.shape}"
        )
    n_jobs, n_slots = units.shape
    within("arrival", arrivals, least=0, most=n_slots - 1, integer=True)
    within("completion", ends, least=-1, most=n_slots - 1, integer=True)
    labels = _labels(names, "job", "jobs of workers", n_jobs)
    largest, rows = max(int(units.max()), 1), np.arange(n_jobs)
    is_done = ends >= 0
    after = (np.arange(n_slots) > ends[:, None]) & is_done[:, None] & (units > 0)
    with style.drawing():
        from matplotlib.ticker import MaxNLocator

        height = min(max(1.8 + 0.16 * n_jobs, 2.6), 12.0)
        in_order = "jobs, in order of arrival" if (np.diff(arrivals) >= 0).all() else ""
        figure, axes = style.new_axes(8.0, height, title, "slot", in_order)
        colours = _cells(axes, np.where(units > 0, units, np.nan), largest)
        job, slot = np.nonzero(after)
        if job.size:
            _boxes(axes, slot, slot + 1, job - 0.5, job + 0.5, **_AFTER, linewidths=0.0)
        axes.plot(arrivals, rows, **_ARRIVAL, clip_on=False)
        last, done = ends[is_done] + 1, rows[is_done]
        axes.vlines(last, done - 0.45, done + 0.45, color=_END, lw=2.5, clip_on=False)
        _job_names(axes, ends, labels)
        axes.set_xlim(0, n_slots)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        style.add_colour_bar(figure, axes, colours, "workers", min(1, largest - 1), fraction=0.04)
        marks = _marks(bool(is_done.any()), bool((~is_done).any()), bool(job.size))
        style.add_legend_below(figure, marks, [str(mark.get_label()) for mark in marks])
    return figure


def _labels(names: Sequence[str], kind: str, of: str, count: int) -> list[str]:
    """The names, as many as there should be, or numbered ones."""
    labels = list(names) or [f"{kind} {index}" for index in range(count)]
    if len(labels) != count:
        raise ValueError(f"names must name the {count} {of}, got {len(labels)} names")
    return labels


def _marks(some_end: bool, some_do_not: bool, some_go_on: bool) -> list[Any]:
    """Entries of the legend for what a chart of jobs shows."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    never = "name in grey italics: never completes"
    looks = {"color": _END, "marker": "|", "markersize": 11, "markeredgewidth": 2.5}
    marks = (
        (True, Line2D([], [], label="arrives", **_ARRIVAL)),
        (some_end, Line2D([], [], label="completes", linestyle="none", **looks)),
        (some_go_on, Patch(label="workers kept after completion", linewidth=0.0, **_AFTER)),
        (some_do_not, Patch(label=never, facecolor="none", linewidth=0.0)),
    )
    return [mark for is_drawn, mark in marks if is_drawn]


def _cells(axes: Axes, values: np.ndarray, largest: int) -> ScalarMappable:
    """A coloured cell for each job and slot; NaN stays white."""
    from matplotlib.colors import PowerNorm

    n_jobs, n_slots = values.shape
    edges = np.arange(n_slots + 1), np.arange(n_jobs + 1) - 0.5
    norm = PowerNorm(0.5, min(1, largest - 1), largest)  # a root: small crews are many
    looks: dict[str, Any] = {"cmap": "viridis_r", "edgecolor": "white", "linewidth": 0.3}
    return axes.pcolormesh(*edges, values, norm=norm, **looks)


def _job_names(axes: Axes, ends: np.ndarray, names: Sequence[str]) -> None:
    """Names of the jobs, those of unfinished ones in grey italics."""
    n_jobs = len(ends)
    shown = list(range(0, n_jobs, max(1, -(-n_jobs // 60))))
    axes.set_yticks(shown, [names[job] for job in shown], fontsize=7 if n_jobs > 20 else 10)
    axes.tick_params(axis="y", length=0, pad=7)
    for job, label in zip(shown, axes.get_yticklabels(), strict=True):
        if ends[job] < 0:
            label.set(color="#9A9A9A", fontstyle="italic")
    axes.set_ylim(n_jobs - 0.3, -0.7)


def utilisation_chart(shares: ArrayLike, *, names: Sequence[str] = (), title: str = "") -> Figure:
    """Which share of each resource is in use, slot by slot.

    Args:
        shares: float[T, R], from 0 to 1.
        names: R names of the resources; numbers by default.
        title: Above the plot.

    Returns:
        A matplotlib figure with a stepped line for each resource.

    Example:
        >>> figure = utilisation_chart([[0.5, 0.2], [1.0, 0.1]], names=["GPU", "vCPU"])
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['GPU', 'vCPU']
    """
    values = np.asarray(shares, np.float64)
    labels = _labels(names, "resource", "resources of shares", values.shape[1])
    styles = style.assign_styles(labels)
    edges = np.arange(len(values) + 1)
    with style.drawing():
        figure, axes = style.new_axes(8.0, 3.2, title, "slot", "share in use")
        for label, line in zip(labels, values.T, strict=True):
            steps, look = np.append(line, line[-1]), styles[label]
            looks: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "label": label}
            axes.step(edges, steps, where="post", **looks)
        axes.set_xlim(0, len(values))
        axes.set_ylim(0.0, max(1.02, 1.02 * float(values.max())))
        style.add_grid(axes, "y")
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

    Example:
        >>> figure = price_map([[1e-6, 1e-3], [1.0, 1e-6]], title="prices")
        >>> figure.axes[0].get_ylabel()
        'machine'
    """
    values = np.asarray(prices, np.float64)
    if not style.drawable(values, True).all():
        raise ValueError(
            f"prices must be positive and finite, {1 / style.LARGEST:g} to {style.LARGEST:g}, got"
            f" {values.min():g} to {values.max():g}"
        )
    low = float(values.min()) if lowest is None else real("lowest", lowest, above=0)
    n_slots, n_machines = values.shape
    with style.drawing():
        from matplotlib.colors import LogNorm
        from matplotlib.ticker import MaxNLocator

        height = min(max(1.8 + 0.08 * n_machines, 2.8), 8.0)
        figure, axes = style.new_axes(8.0, height, title, "slot", "machine")
        norm = LogNorm(low, max(float(values.max()), 10 * low))
        edges = np.arange(n_slots + 1), np.arange(n_machines + 1) - 0.5
        colours = axes.pcolormesh(*edges, values.T, norm=norm, cmap="magma_r")
        axes.set_ylim(n_machines - 0.5, -0.5)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        extend = "min" if values.min() < low else "neither"
        style.add_colour_bar(figure, axes, colours, unit, fraction=0.05, aspect=25, extend=extend)
    return figure
