"""The look that all plots share: colours told apart by everyone, line patterns, sizes, canvas.

Colours are those of Okabe and Ito (made for the colour-blind) without their yellow, which is hard
to see on white, plus a grey and a dark brown. Each comes with a dash pattern of its own, so that
curves stay apart in print. Figures are made without pyplot: nothing global is left behind, and no
display is needed.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncjax.checks import shown, whole
from asyncjax.results.arguments import by_name, several, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    "#0072B2",  # blue
    "#D55E00",  # vermilion
    "#009E73",  # green
    "#CC79A7",  # pink
    "#000000",  # black
    "#E69F00",  # orange
    "#56B4E9",  # sky
    "#7F7F7F",  # grey
    "#6B3E1D",  # brown
)
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (1.2, 1.2)))
MUTED = "#595959"
LARGEST = 1e100  # in size, of what is drawn; matplotlib's ticks overflow not far beyond it
GRID = "#DDDDDD"

_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titlelocation": "left",
    "axes.labelsize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.axisbelow": True,
    "axes.grid": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "figure.titlesize": 12.0,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "hatch.linewidth": 0.6,
    "lines.linewidth": 1.7,
}


@dataclass(frozen=True)
class LineStyle:
    """How one method is drawn in every plot.

    Attributes:
        colour: A matplotlib colour.
        dash: A matplotlib line style.
    """

    colour: str
    dash: Any  # a matplotlib line style

    def __post_init__(self) -> None:
        text("colour", self.colour)


def assign_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """A colour and a dash pattern for every name, in their order.

    Make one such mapping for a report and hand it to every plot, and a method looks the same
    everywhere.

    Args:
        names: The methods; a name that comes again keeps its first style.

    Returns:
        Styles by name, all different for up to 36 names.

    Raises:
        TypeError: If a name is no text.

    Example:
        >>> assign_styles(["sgd", "piag"])["piag"].colour
        '#D55E00'
    """
    if isinstance(names, str) or not isinstance(names, Iterable) or hasattr(names, "dtype"):
        raise TypeError(f"names must be a list of texts, got {shown(names)}")
    unique = list(dict.fromkeys(several("names", list(names), str, "texts")))
    return {
        name: LineStyle(
            colour=COLOURS[index % len(COLOURS)],
            dash=DASHES[index % len(DASHES)],
        )
        for index, name in enumerate(unique)
    }


def styles_for(
    names: Iterable[str], given: Mapping[str, LineStyle] | None
) -> Mapping[str, LineStyle]:
    """The given styles, checked to cover all names, or new ones.

    Example:
        >>> sorted(styles_for(["sgd"], None))
        ['sgd']
    """
    names = list(names)
    if given is None:
        return assign_styles(names)
    styles = by_name("styles", given, "styles")
    missing = [name for name in names if name not in styles]
    if missing:
        raise ValueError(f"styles has no entry for {missing}; it must cover every name plotted")
    for name in names:
        _check_style(name, styles[name])
    return styles


def _check_style(name: str, style: Any) -> None:
    """Refuses what is no style, or one that cannot be drawn."""
    if not isinstance(style, LineStyle):
        raise TypeError(f"styles[{name!r}] must be a LineStyle, got {shown(style)}")
    require_matplotlib()
    from matplotlib.colors import is_color_like
    from matplotlib.lines import Line2D

    if not is_color_like(style.colour):
        raise ValueError(f"styles[{name!r}] must have a colour that exists, got {style.colour!r}")
    try:
        Line2D([], [], linestyle=style.dash)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"styles[{name!r}] must have a dash of matplotlib, got {shown(style.dash)}"
        ) from error


@contextmanager
def drawing() -> Iterator[None]:
    """Applies the shared settings while a figure is made, and restores the caller's afterwards.

    Example:
        >>> with drawing():
        ...     figure = new_figure(4.0, 3.0)
        >>> figure.get_size_inches()
        array([4., 3.])
    """
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(rc=_SETTINGS):
        yield


def require_matplotlib() -> None:
    """Says what to install where matplotlib is missing.

    Example:
        >>> require_matplotlib()
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib, which is not installed: pip install "asyncjax[plots]"'
        ) from error


def drawable(values: np.ndarray, log: bool) -> np.ndarray:
    """Says which numbers can be drawn; a loss beyond 1e100 has diverged as an infinite one has.

    Returns bool[...].

    Example:
        >>> drawable(np.array([0.0, 1.0, 1e200, np.nan]), True).tolist()
        [False, True, False, False]
    """
    fits = np.abs(values) <= LARGEST  # not where NaN
    return fits & (values >= 1 / LARGEST) if log else fits


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure with a canvas that draws to memory; call it inside `drawing`.

    Example:
        >>> with drawing():
        ...     len(new_figure(4.0, 3.0).axes)
        0
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def set_log(axis: Any, on: bool) -> None:
    """Makes an axis (`axes.xaxis` or `axes.yaxis`) logarithmic, or leaves it.

    Powers of ten are labelled, in plain numbers where those are short; a range of less than a
    decade or two holds too few of them, so 2 and 5 times a power are labelled as well.

    Example:
        >>> with drawing():
        ...     axes = new_figure(4.0, 3.0).subplots()
        >>> set_log(axes.xaxis, True)
        >>> axes.get_xscale()
        'log'
    """
    if not on:
        return
    from matplotlib.ticker import FuncFormatter, NullFormatter

    set_scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    set_scale("log")
    if not np.isfinite(axis.get_minpos()) and min(axis.get_view_interval()) <= 0:
        axis.set_view_interval(0.1, 1.0, ignore=True)  # nothing positive to show
    low, high = sorted(axis.get_view_interval())
    if low >= 5e-4 and high <= 2e5:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    few = low > 0 and high / low < 50

    def between(value: float, _: object) -> str:
        return f"{value:,g}" if f"{value:.0e}"[0] in "25" else ""

    axis.set_minor_formatter(FuncFormatter(between) if few else NullFormatter())


def add_grid(axes: "Axes", which: str = "both") -> None:
    """Thin lines behind the data at the major ticks.

    Example:
        >>> with drawing():
        ...     axes = new_figure(4.0, 3.0).subplots()
        >>> add_grid(axes, "y")
    """
    axes.grid(True, axis=which, color=GRID, linewidth=0.7)  # pyright: ignore[reportArgumentType]


def png_bytes(figure: "Figure", dpi: int = 150) -> bytes:
    r"""A figure as PNG, with no date or program name inside.

    Args:
        figure: The figure.
        dpi: Points an inch.

    Returns:
        The bytes of the file.

    Raises:
        TypeError: If `figure` is no figure of matplotlib, or `dpi` no integer.
        ValueError: If `dpi` is below 1, or so large that a side has more than 65,535 points.

    Example:
        >>> with drawing():
        ...     png_bytes(new_figure(1.0, 1.0))[:4]
        b'\x89PNG'
    """
    if not hasattr(figure, "savefig") or not hasattr(figure, "get_size_inches"):
        raise TypeError(f"figure must be a matplotlib figure, got {shown(figure)}")
    dpi = whole("dpi", dpi, most=int(65535 / max(figure.get_size_inches())))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
