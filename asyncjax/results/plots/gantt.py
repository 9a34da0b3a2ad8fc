"""Who computes what, when: the first moments of a trace, a row a worker, a bar a job.

A bar runs from the start of a job to its arrival at the server and is coloured by the delay of its
gradient; where all delays are the same, the legend says which. Work that is thrown away is grey and
hatched, work still running at the end is pale. Ticks in the row above the workers mark the updates
of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from asyncjax.checks import real, shown, whole
from asyncjax.results.arguments import numbers, text
from asyncjax.results.plots.style import MUTED, add_legend_below, drawing, new_figure, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

_FIELDS = ("time", "worker", "start", "used", "steps", "delay")  # [E] each
_SAMPLES = ("start", "end", "slot", "start_version", "step", "fate", "step_begin", "step_end")
_BAR = 0.76  # height of a bar, in rows
_WIDTH = 6.6  # inches of a chart with its colour bar
_KINDS: dict[str, dict[str, Any]] = {
    "thrown away": {"facecolor": "#C8C8C8", "edgecolor": "#6E6E6E", "hatch": "////"},
    "cancelled": {"facecolor": "#F4DDD0", "edgecolor": "#D55E00", "hatch": "xxxx"},
    "still running": {"facecolor": "#F2F2F2", "edgecolor": "#A8A8A8", "hatch": ""},
}


class Trace(Protocol):
    """The fields of a trace that are drawn, E arrivals in service order."""

    @property
    def time(self) -> Any:
        """Arrival of each gradient, float64[E]."""
        ...

    @property
    def worker(self) -> Any:
        """Who computed it, int[E]."""
        ...

    @property
    def start(self) -> Any:
        """When its job started, float64[E]."""
        ...

    @property
    def used(self) -> Any:
        """Whether the server used it, bool[E]."""
        ...

    @property
    def steps(self) -> Any:
        """Whether the server updated right after it, bool[E]."""
        ...

    @property
    def delay(self) -> Any:
        """Updates of the server while it was computed, int[E]."""
        ...

    @property
    def n_workers(self) -> int | None:
        """How many workers there are."""
        ...

    @property
    def cancelled(self) -> Any:
        """None, or jobs that were stopped: worker[K], start[K], time[K] (the end)."""
        ...

    @property
    def open_jobs(self) -> Any:
        """None, or jobs without an end: worker[C], start[C] (NaN where still in a queue)."""
        ...


def timeline(
    trace: Trace, *, until: float, title: str = "", unit: str = "unit of the trace"
) -> Figure:
    """A chart of the jobs of every worker from time 0 to `until`.

    Args:
        trace: Arrivals in service order, with their fields as NumPy (or JAX) arrays.
        until: Where the chart ends, in the unit of time of the trace.
        title: Above the chart.
        unit: Of time, in brackets below the axis.

    Returns:
        A matplotlib figure: the chart, and a colour bar where delays differ.

    Raises:
        TypeError: If `trace` has not the fields of a trace, or another argument is of another kind.
        ValueError: If `until` is not a positive finite number, or the fields of the trace are not
            of one length or do not say when jobs start.

    Example:
        >>> from types import SimpleNamespace
        >>> trace = SimpleNamespace(
        ...     time=[1.0, 2.0], worker=[0, 1], start=[0.0, 0.0], used=[True, True],
        ...     steps=[True, True], delay=[0, 1], n_workers=2, cancelled=None, open_jobs=None)
        >>> timeline(trace, until=3.0).axes[0].get_xlabel()
        'time [unit of the trace]'
    """
    until = real("until", until, above=0)
    text("title", title)
    text("unit", unit)
    n_workers = _check_trace(trace)
    with drawing():
        figure = new_figure(_WIDTH, min(max(1.6 + 0.17 * n_workers, 2.6), 12.0))
        axes = figure.subplots()
        scale, delays = _draw_used(axes, trace, until)
        swatches = [
            _swatch(name)
            for name, jobs in _grey_jobs(trace, until).items()
            if _draw_grey(axes, name, *jobs, until)
        ]
        _draw_updates(axes, trace, until)
        _dress(axes, n_workers, until, unit)
        if title:
            axes.set_title(title)
        swatches = [*_key(figure, axes, scale, delays, ("delay", "updates")), *swatches]
        if swatches:
            add_legend_below(figure, swatches, [str(one.get_label()) for one in swatches])
    return figure


def rollout_timeline(
    trace: Any, *, until: float, title: str = "", unit: str = "unit of the trace"
) -> Figure:
    """A chart of slots that make samples, with the trainer's steps in the row above them.

    A bar runs from the start of a sample to its end and is coloured by its age at training. Samples
    thrown away are grey and hatched, those not trained by the end of the trace pale.

    Args:
        trace: A `RolloutTrace`.
        until: Where the chart ends, in the unit of time of the trace.
        title: Above the chart.
        unit: Of time, in brackets below the axis.

    Returns:
        A matplotlib figure: the chart, and a colour bar where ages differ.

    Raises:
        TypeError: If `trace` has not the fields of a trace of rollouts, or another argument is of
            another kind.
        ValueError: If `until` is not a positive finite number.

    Example:
        >>> from asyncjax import rollouts
        >>> engine, rule = rollouts.Engine(2, 1.0), rollouts.admission.synchronous()
        >>> trace = rollouts.trace([3.0], engine, rule, batch=2, n_steps=4)
        >>> rollout_timeline(trace, until=9.0).axes[0].get_ylabel()
        'slot'
    """
    until = real("until", until, above=0)
    text("title", title)
    text("unit", unit)
    missing = [name for name in _SAMPLES if not hasattr(trace, name)]
    if missing:
        raise TypeError(f"trace must be a RolloutTrace, got {shown(trace)} without {missing[0]}")
    start, end = np.asarray(trace.start), np.asarray(trace.end)
    end = np.where(np.isnan(end), until, end)
    slot, step, count = np.asarray(trace.slot), np.asarray(trace.step), trace.generator_slots
    kinds = {
        "thrown away": np.asarray(trace.fate) == 3,
        "still running": (np.asarray(trace.fate) == 1) | (np.asarray(trace.fate) == 2),
    }
    with drawing():
        figure = new_figure(_WIDTH, min(max(1.6 + 0.17 * count, 2.6), 12.0))
        axes = figure.subplots()
        trained = (step >= 0) & (start < until)
        age = (step - np.asarray(trace.start_version))[trained]
        scale = _colours(age)
        rows = (slot[trained], start[trained], end[trained])
        _add_bars(axes, *rows, until, facecolors=scale.to_rgba(age))
        names = {"still running": "not trained"}
        swatches = [
            _swatch(name, names.get(name, name))
            for name, own in kinds.items()
            if _draw_grey(axes, name, slot[own], start[own], end[own], until)
        ]
        begin, finish = np.asarray(trace.step_begin), np.asarray(trace.step_end)
        seen = begin < until
        _add_bars(
            axes, np.full(seen.sum(), -1.5), begin[seen], finish[seen], until, facecolors=MUTED
        )
        _dress(axes, count, until, unit, ("trainer", "slot"))
        if title:
            axes.set_title(title)
        swatches = [*_key(figure, axes, scale, age, ("age at training", "versions")), *swatches]
        if swatches:
            add_legend_below(figure, swatches, [str(one.get_label()) for one in swatches])
    return figure


def _key(
    figure: Figure,
    axes: Axes,
    scale: ScalarMappable,
    values: np.ndarray,
    names: tuple[str, str],
) -> list[Any]:
    """What the colours mean: a bar with whole numbers, or an entry of the legend for one value.

    Args:
        figure: Gets the bar.
        axes: Beside them.
        scale: Of the colours.
        values: What was drawn; none: no key.
        names: What a colour is, and its unit.

    Returns:
        The entries of the legend.
    """
    from matplotlib.patches import Patch

    if not values.size:
        return []
    if values.min() == values.max():
        label = f"used, {names[0]} {int(values[0]):,} {names[1]} each"
        return [Patch(label=label, facecolor=scale.to_rgba(values[:1])[0], linewidth=0)]
    ticks = whole_ticks(0, int(values.max()))
    bar = figure.colorbar(scale, ax=axes, pad=0.015, fraction=0.05, aspect=30, ticks=ticks)
    bar.ax.set_yticklabels([f"{tick:,}" for tick in ticks])
    bar.set_label(f"{names[0]} [{names[1]}]")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return []


def _check_trace(trace: Any) -> int:
    """Refuses what is no trace that can be drawn; returns how many workers it has."""
    missing = [name for name in (*_FIELDS, "n_workers") if not hasattr(trace, name)]
    if missing:
        hint = ", take run.trace" if hasattr(trace, "records") else ""
        raise TypeError(
            f"trace must be a trace with {', '.join(_FIELDS)}{hint}, got {shown(trace)} without"
            f" {missing[0]}"
        )
    if trace.start is None:
        raise ValueError(
            "trace does not record when jobs start (start is None), so no job can be drawn"
        )
    n_arrivals = np.shape(trace.time)
    for name in _FIELDS:
        if name not in ("used", "steps"):
            numbers(f"trace.{name}", getattr(trace, name))
        if np.shape(getattr(trace, name)) != n_arrivals or len(n_arrivals) != 1:
            raise ValueError(
                "trace must have fields of one length [E], got time of shape"
                f" {n_arrivals} and {name} of {np.shape(getattr(trace, name))}"
            )
    if trace.n_workers is not None:
        return whole("trace.n_workers", trace.n_workers)
    if not n_arrivals[0]:
        raise ValueError("trace has no arrivals and does not say how many workers it has")
    return int(np.max(trace.worker)) + 1


def _draw_used(axes: Axes, trace: Trace, until: float) -> tuple[ScalarMappable, np.ndarray]:
    """Bars of gradients that were used, coloured by delay; the colours, and the delays drawn."""
    start = np.asarray(trace.start, dtype=np.float64)
    shown = np.asarray(trace.used, dtype=bool) & (start < until)
    delay = np.asarray(trace.delay)[shown]
    scale = _colours(delay)
    worker, time = np.asarray(trace.worker)[shown], np.asarray(trace.time, np.float64)[shown]
    _add_bars(axes, worker, start[shown], time, until, facecolors=scale.to_rgba(delay))
    return scale, delay


def _colours(delay: np.ndarray) -> ScalarMappable:
    """Colours of delays."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    largest = int(delay.max()) if delay.size else 0
    # Delays have heavy tails; a root leaves colours for the many short ones.
    return ScalarMappable(norm=PowerNorm(0.5, 0, max(largest, 1)), cmap="viridis_r")


def _grey_jobs(trace: Trace, until: float) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Worker, start and end of the jobs that end in nothing, by kind."""
    lost = ~np.asarray(trace.used, dtype=bool)
    kinds = {
        "thrown away": (
            np.asarray(trace.worker)[lost],
            np.asarray(trace.start, np.float64)[lost],
            np.asarray(trace.time, np.float64)[lost],
        )
    }
    if trace.cancelled is not None:
        kinds["cancelled"] = (
            np.asarray(trace.cancelled.worker),
            np.asarray(trace.cancelled.start, np.float64),
            np.asarray(trace.cancelled.time, np.float64),
        )
    if trace.open_jobs is not None:
        start = np.asarray(trace.open_jobs.start, np.float64)
        end = np.full(start.shape, until)
        kinds["still running"] = (np.asarray(trace.open_jobs.worker), start, end)
    return kinds


def _draw_grey(
    axes: Axes,
    name: str,
    worker: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    until: float,
) -> bool:
    """Bars of one kind of lost work; False where there is none before `until`."""
    shown = start < until  # false for NaN: still in a queue
    if not shown.any():
        return False
    _add_bars(axes, worker[shown], start[shown], end[shown], until, **_KINDS[name], linewidth=0.5)
    return True


def _add_bars(
    axes: Axes, worker: np.ndarray, start: np.ndarray, end: np.ndarray, until: float, **look: Any
) -> None:
    """Rectangles in the rows of their workers."""
    from matplotlib.collections import PolyCollection

    end = np.minimum(end, until)
    top, bottom = worker - _BAR / 2, worker + _BAR / 2
    corners = [(start, top), (end, top), (end, bottom), (start, bottom)]
    shapes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    if "edgecolor" not in look:
        look = {"edgecolors": "white", "linewidths": 0.5, **look}
    axes.add_collection(PolyCollection(list(shapes), **look))


def _draw_updates(axes: Axes, trace: Trace, until: float) -> None:
    """A tick for every update of the server, in a row above the workers."""
    time = np.asarray(trace.time, np.float64)
    updates = time[np.asarray(trace.steps, dtype=bool) & (time <= until)]
    axes.vlines(updates, -2.0, -1.0, color="black", linewidth=0.6 if updates.size > 150 else 0.9)


def _dress(
    axes: Axes,
    n_workers: int,
    until: float,
    unit: str,
    names: tuple[str, str] = ("updates", "worker"),
) -> None:
    """Limits, ticks and labels."""
    axes.set_xlim(0.0, until)
    axes.set_ylim(n_workers - 0.3, -2.3)
    every = max(1, -(-n_workers // 16))
    rows = list(range(0, n_workers, every))
    axes.set_yticks([-1.5, *rows], [names[0], *map(str, rows)])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.axhline(-0.7, color=MUTED, linewidth=0.5)
    axes.set_xlabel(f"time [{unit}]" if unit else "time")
    axes.set_ylabel(names[1])


def _swatch(name: str, label: str | None = None) -> Any:
    """An entry of the legend."""
    from matplotlib.patches import Patch

    return Patch(label=name if label is None else label, linewidth=0.5, **_KINDS[name])
