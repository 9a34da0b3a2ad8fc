"""The look that all plots share: colours for everyone's eyes, line patterns, sizes, canvas.

Nine colours, of which one is blue, were searched for so that any two stay apart: for most readers
and for those who see no red, no green or no blue (Machado, Oliveira and Fernandes, 2009), on white
and where a report inverts its figures for a dark page. The first two are those of Okabe and Ito.
Figures are made without pyplot: nothing global is left behind, and no display is needed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncjax.checks import extra, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    "#0072B2",  # blue
    "#D55E00",  # vermilion
    "#89BB22",  # lime
    "#B59581",  # tan
    "#775160",  # mauve
    "#E77BF7",  # orchid
    "#06C2BA",  # turquoise
    "#711280",  # plum
    "#290C09",  # nearly black
)
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (1.2, 1.2)),
    (0, (9, 1.5, 1, 1.2, 1, 1.5)),
)
_MOST_COLUMNS, _LEGEND_MARGIN = 5, 0.1  # of a legend below; inches left and right of it, in all
WIDTH = 6.0  # inches of a figure of one panel; on a phone its letters can still be read
MUTED = "#595959"
_FEWEST_TICKS = 4  # that are labelled on a logarithmic axis
_BETWEEN = (  # multiples of powers of ten to label, the fewest first
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 3, 4, 5, 6, 7, 8, 9),
    tuple(half / 2 for half in range(2, 20)),
)
LARGEST = 1e100  # in size, of what is drawn; matplotlib's ticks overflow not far beyond it
GRID = "#DDDDDD"

_SETTINGS = Path(__file__).with_name("asyncjax.mplstyle")


@dataclass(frozen=True)
class LineStyle:
    """How one method is drawn in every plot."""

    colour: str  # a matplotlib colour
    dash: Any  # a matplotlib line style


def assign_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """A colour and a dash pattern for every name, in their order.

    Make one such mapping for a report and hand it to every plot, and a method looks the same
    everywhere.

    Args:
        names: The methods; a name that comes again keeps its first style.

    Returns:
        Styles by name, all different for up to 45 names.

    Example:
        >>> assign_styles(["sgd", "piag"])["piag"].colour
        '#D55E00'
    """
    return {
        name: LineStyle(COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)])
        for index, name in enumerate(dict.fromkeys(names))
    }


def styles_for(
    names: Iterable[str], given: Mapping[str, LineStyle] | None
) -> Mapping[str, LineStyle]:
    """The given styles, checked to cover all names, or new ones."""
    if given is None:
        return assign_styles(names)
    missing = [name for name in names if name not in given]
    if missing:
        raise ValueError(f"styles has no entry for {missing}; it must cover every name plotted")
    return given


@contextmanager
def drawing() -> Iterator[None]:
    """Applies the shared settings while a figure is made, and restores the caller's afterwards."""
    matplotlib = extra("matplotlib", "plots")
    settings = matplotlib.rc_params_from_file(_SETTINGS, use_default_template=False)
    with matplotlib.rc_context(settings):
        yield


def drawable(values: np.ndarray, log: bool) -> np.ndarray:
    """Says which numbers can be drawn; a loss beyond 1e100 has diverged as an infinite one has.

    Returns bool[...].
    """
    fits = np.abs(values) <= LARGEST  # not where NaN
    return fits & (values >= 1 / LARGEST) if log else fits


def new_figure(width: float, height: float) -> Figure:
    """An empty figure with a canvas that draws to memory; call it inside `drawing`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_axes(
    width: float, height: float, title: str = "", x_label: str = "", y_label: str = ""
) -> tuple[Figure, Axes]:
    """A figure of one plot, with its title and labels; call it inside `drawing`."""
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    return figure, axes


def set_log(axis: Any, on: bool) -> None:
    """Makes an axis (`axes.xaxis` or `axes.yaxis`) logarithmic, or leaves it.

    Powers of ten are labelled, in plain numbers where those are short. Where fewer than four of
    them are in view, so are numbers between, as few as make four labels.
    """
    if not on:
        return
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    set_scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    set_scale("log")
    if not np.isfinite(axis.get_minpos()) and min(axis.get_view_interval()) <= 0:
        axis.set_view_interval(0.1, 1.0, ignore=True)  # nothing positive to show
    low, high = sorted(axis.get_view_interval())
    plain = low >= 5e-4 and high <= 2e5
    if low > 0 and high / low < 1e5:
        places = log_ticks(low, high)
        if places is not None:
            axis.set_major_locator(FixedLocator(places))
            plain = True
    if plain:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def log_ticks(low: float, high: float) -> list[float] | None:
    """Where to label a logarithmic axis from `low` to `high`; None: powers of ten are enough."""
    from matplotlib.ticker import MaxNLocator

    places: list[float] = []
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    for steps in _BETWEEN:
        places = [float(f"{step}e{power}") for power in powers for step in steps]
        places = [place for place in places if low <= place <= high]
        if len(places) >= _FEWEST_TICKS:
            return None if steps == (1,) else places
    for most in (5, 7, 9, 12):  # intervals
        even = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        places = [float(f"{place:.12g}") for place in even if low <= place <= high]
        if len(places) >= _FEWEST_TICKS:
            break
    return places


def whole_ticks(low: int, high: int) -> list[int]:
    """Whole numbers on a colour bar whose scale is a root: both ends, and about four between."""
    even = low + (high - low) * np.linspace(0.0, 1.0, 6)[1:-1] ** 2
    between = {round(float(f"{place:.1g}")) for place in even}
    return sorted({low, high, *(place for place in between if low < place < high)})


def add_legend_below(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """A legend of as few rows as fit the figure's width, which grows for a name wider than it."""
    rows = -(-len(names) // _MOST_COLUMNS)
    while True:
        columns = -(-len(names) // rows)
        legend = figure.legend(handles, names, loc="outside lower center", ncols=columns)
        width = legend.get_window_extent().width / figure.dpi + _LEGEND_MARGIN
        if width <= figure.get_figwidth() or columns == 1:
            break
        legend.remove()
        rows += 1
    figure.set_size_inches(max(width, figure.get_figwidth()), figure.get_figheight() + 0.22 * rows)


def add_colour_bar(
    figure: Figure, axes: Axes, colours: Any, label: str, whole: int | None = None, **looks: Any
) -> None:
    """A bar beside the axes that says what colours mean; `whole`: labelled at integers from it."""
    if whole is not None:
        looks |= {"aspect": 30, "ticks": whole_ticks(whole, int(colours.norm.vmax))}
    bar = figure.colorbar(colours, ax=axes, pad=0.015, **looks)
    if whole is not None:
        bar.ax.set_yticklabels([f"{tick:,}" for tick in looks["ticks"]])
    bar.set_label(label)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def add_grid(axes: Axes, which: str = "both") -> None:
    """Thin lines behind the data at the major ticks."""
    axes.grid(True, axis=which, color=GRID, linewidth=0.7)  # pyright: ignore[reportArgumentType]


def png_bytes(figure: Figure, dpi: int = 150) -> bytes:
    r"""A figure as PNG, with no date or program name inside.

    Args:
        figure: The figure.
        dpi: Points an inch.

    Returns:
        The bytes of the file.

    Example:
        >>> with drawing():
        ...     png_bytes(new_figure(1.0, 1.0))[:4]
        b'\x89PNG'
    """
    dpi = whole("dpi", dpi, most=int(65535 / max(figure.get_size_inches())))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def svg_text(figure: Figure, title: str) -> str:
    """A figure as an SVG element that can stand in an HTML page; its letters stay letters.

    Args:
        figure: The figure.
        title: What it shows, in words, for those who cannot see it.

    Returns:
        The element: no date, no program name, and nothing outside it is used.

    Example:
        >>> with drawing():
        ...     svg_text(new_figure(1.0, 1.0), "an empty figure")[:15]
        '<svg role="img"'
    """
    import matplotlib

    buffer, nothing = io.StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", metadata={**nothing, "Title": title})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]+"', "<g", text)  # the next figure of a page has these names too
    return text.replace("<svg ", '<svg role="img" ', 1).strip()
