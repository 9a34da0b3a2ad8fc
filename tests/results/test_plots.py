"""Every plot on small data, and of runs that went wrong: what is drawn, and how it is labelled."""

import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import optax
import pytest
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from numpy.testing import assert_allclose, assert_array_equal

from asyncjax import clocks, problems, results, simulation, traces
from asyncjax.results import plots
from asyncjax.results.metrics import median_and_spread
from asyncjax.results.plots.style import COLOURS, drawing

INF, NAN = np.inf, np.nan
METHODS = [f"method {index}" for index in range(9)]


def line(name, scale=1.0):
    x = np.linspace(1.0, 10.0, 12)
    return plots.Series(name, x, scale / x, 0.9 * scale / x, 1.1 * scale / x)


def draws(figure):
    return plots.png_bytes(figure, dpi=40).startswith(b"\x89PNG")


def legend_texts(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_curves():
    series = [line(name, 1.0 + index) for index, name in enumerate(METHODS)]
    figure = plots.curves(
        series, x_label="time [s]", y_label="loss", title="Loss", log_y=True, target=0.5
    )
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time [s]", "loss")
    assert axes.get_title("left") == "Loss"
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    assert len(axes.lines) == len(METHODS) + 1  # and the target
    assert len(axes.collections) == len(METHODS)
    assert legend_texts(figure) == METHODS
    assert [text.get_text() for text in axes.texts] == ["target"]
    assert_allclose(np.asarray(axes.lines[2].get_ydata()), series[2].median)
    assert draws(figure)


def test_curves_leave_gaps_where_nothing_can_be_drawn():
    bad = plots.Series(
        "bad", [1.0, 2.0, 3.0, 4.0], [1.0, -1.0, NAN, INF], [1.0] * 4, [1.0, 1.0, 1.0, INF]
    )
    shown = plots.curves([bad], x_label="x", y_label="y", log_y=True, log_x=True, y_range=(0.1, 2))
    assert_array_equal(np.asarray(shown.axes[0].lines[0].get_ydata()), [1.0, NAN, NAN, NAN])
    assert shown.axes[0].get_ylim() == (0.1, 2.0)
    linear = plots.curves([bad], x_label="x", y_label="y")
    assert_array_equal(np.asarray(linear.axes[0].lines[0].get_ydata()), [1.0, -1.0, NAN, NAN])


def test_panels_share_the_vertical_axis_and_one_legend():
    first, second = [line("a"), line("b", 3.0)], [line("b", 3.0), line("c", 100.0)]
    figure = plots.panels(
        [plots.Panel("time [s]", first), plots.Panel("updates", second, log_x=True)],
        y_label="loss",
        title="Two",
        target=1.0,
    )
    left, right = figure.axes
    assert [axes.get_xlabel() for axes in figure.axes] == ["time [s]", "updates"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", ""]
    assert left.get_ylim() == right.get_ylim()
    assert (left.get_xscale(), right.get_xscale()) == ("linear", "log")
    assert legend_texts(figure) == ["a", "b", "c"]
    assert left.lines[1].get_color() == right.lines[0].get_color()
    assert draws(figure)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
@pytest.mark.parametrize("length", [1, 25, 60, 150])
def test_the_legend_of_panels_lies_inside_the_saved_figure(count, length):
    names = [f"{index} {'w' * length}" for index in range(count)]
    parts = [plots.Panel(x, [line(name) for name in names]) for x in ("time [s]", "updates")]
    figure = plots.panels(parts, y_label="loss")
    assert draws(figure)
    box, (width, height) = figure.legends[0].get_window_extent(), figure.bbox.size
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= width
    assert box.y1 <= height
    assert legend_texts(figure) == names
    # And it leaves the panels room: the labels of the axis are above it.
    for axes in figure.axes:
        assert axes.get_tightbbox().y0 >= box.y1 - 1
        assert axes.get_window_extent().height > 0.4 * height


def test_styles_are_distinct_and_shared():
    styles = plots.assign_styles([f"m{index}" for index in range(45)])
    assert len({(style.colour, str(style.dash)) for style in styles.values()}) == 45
    assert len({plots.assign_styles(METHODS)[name].colour for name in METHODS}) == len(COLOURS)
    figure = plots.curves([line("m7")], x_label="x", y_label="y", styles=styles)
    assert figure.axes[0].lines[0].get_color() == styles["m7"].colour


def test_staleness_histogram():
    delays = {"a": np.array([0, 1, 2, 3, 4, 7, 8, 8]), "b": np.array([0, 0]), "c": np.zeros(0, int)}
    figure = plots.staleness_histogram({**delays, "d": [1]}, title="Delays")
    assert [axes.get_title("left") for axes in figure.axes] == ["a", "b", "c", "d"]
    # Bars: 0 | 1 | 2-3 | 4-7 | 8-15, in percent.
    heights = [[patch.get_height() for patch in axes.patches] for axes in figure.axes]
    assert_allclose(heights[0], [12.5, 12.5, 25.0, 25.0, 25.0])
    assert_allclose(heights[1], [100.0, 0.0, 0.0, 0.0, 0.0])
    notes = [axes.texts[0].get_text() for axes in figure.axes]
    assert notes == ["mean 4.12\nmax 8", "mean 0\nmax 0", "no gradients", "mean 1.00\nmax 1"]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert figure.get_supxlabel().startswith("delay [updates]")
    assert draws(figure)


def small_trace(**changes):
    fields = {
        "time": np.array([1.0, 2.0, 3.0, 4.0, 9.0]),
        "worker": np.array([0, 1, 0, 2, 1], np.int32),
        "start": np.array([0.0, 0.0, 1.0, 0.0, 7.0]),
        "used": np.array([True, True, True, False, True]),
        "steps": np.array([True, False, True, False, True]),
        "delay": np.array([0, 1, 0, 2, 5], np.int32),
        "n_workers": 3,
        "cancelled": None,
        "open_jobs": None,
    }
    return SimpleNamespace(**{**fields, **changes})


def shapes(axes):
    """Start, end and row of every bar, a list a collection."""
    found = []
    for collection in axes.collections:
        if isinstance(collection, PolyCollection) and not isinstance(collection, LineCollection):
            boxes = [path.vertices for path in collection.get_paths()]
            found.append(
                [(box[:, 0].min(), box[:, 0].max(), round(box[:4, 1].mean(), 6)) for box in boxes]
            )
    return found


def test_timeline():
    figure = plots.timeline(small_trace(), until=5.0, title="First")
    axes, bar = figure.axes
    assert axes.get_xlabel() == "time [unit of the trace]"
    assert axes.get_ylabel() == "worker"
    assert axes.get_xlim() == (0.0, 5.0)
    assert bar.get_ylabel() == "delay [updates]"
    used, lost = shapes(axes)
    assert used == [(0.0, 1.0, 0.0), (0.0, 2.0, 1.0), (1.0, 3.0, 0.0)]
    assert lost == [(0.0, 4.0, 2.0)]
    ticks = [item for item in axes.collections if isinstance(item, LineCollection)]
    assert [path.vertices[0, 0] for path in ticks[0].get_paths()] == [1.0, 3.0]
    assert legend_texts(figure) == ["thrown away"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["updates", "0", "1", "2"]
    assert draws(figure)


def test_timeline_of_cancelled_open_and_late_work():
    trace = small_trace(
        cancelled=SimpleNamespace(worker=[2, 2], start=[4.0, 6.0], time=[4.5, 7.0]),
        open_jobs=SimpleNamespace(worker=[0, 1], start=[3.0, NAN]),
    )
    figure = plots.timeline(trace, until=5.0)
    _, lost, cancelled, running = shapes(figure.axes[0])
    assert lost == [(0.0, 4.0, 2.0)]
    assert cancelled == [(4.0, 4.5, 2.0)]
    assert running == [(3.0, 5.0, 0.0)]  # the queued job is not drawn
    assert legend_texts(figure) == ["thrown away", "cancelled", "still running"]
    cut = plots.timeline(trace, until=8.0)  # a job that arrives later ends at the edge
    assert shapes(cut.axes[0])[0][-1] == (7.0, 8.0, 1.0)
    assert draws(figure)


def test_timeline_with_nothing_used():
    assert draws(plots.timeline(small_trace(used=np.zeros(5, bool)), until=5.0))


def test_bars():
    samples = [[1.0, 2.0, 3.0], [INF, INF, INF], [1.0, INF, INF], [4.0, 5.0, INF]]
    spreads = [median_and_spread(row) for row in samples]
    for log_x in (False, True):
        figure = plots.bars(list("abcd"), spreads, x_label="time [s]", title="T", log_x=log_x)
        (axes,) = figure.axes
        assert axes.get_xlabel() == "time [s]"
        assert [text.get_text() for text in axes.get_yticklabels()] == list("abcd")
        assert [text.get_text() for text in axes.texts] == [
            "2.00",
            "not reached",
            "not reached (33% of the seeds did)",
            "5.00",
        ]
        assert len(axes.patches) == (0 if log_x else 2)
        assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first name on top
        # Bar a: whisker and two caps; bar d: whisker, one cap, one arrow head; points when log.
        assert len(axes.lines) == (8 if log_x else 6)
        assert draws(figure)


def test_step_size_sensitivity():
    sizes = [0.01, 0.1, 1.0]
    scores = {
        "a": [[3.0, 3.2], [1.0, 1.2], [NAN, NAN]],
        "b": [[5.0, 5.0], [4.0, 4.0], [3.0, 3.0]],
    }
    figure = plots.step_size_sensitivity(sizes, scores, y_label="loss", title="S")
    strip, axes = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step size", "loss")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert len(axes.lines) == 4  # a line and a mark each
    assert_array_equal(np.asarray(axes.lines[0].get_ydata()), [3.1, 1.1, NAN])
    assert [float(np.asarray(axes.lines[i].get_xdata())[0]) for i in (1, 3)] == [0.1, 1.0]
    assert strip.get_ylabel() == "diverged"
    assert_array_equal(np.asarray(strip.lines[0].get_xdata()), [1.0])
    assert legend_texts(figure) == ["a", "b"]
    assert draws(figure)


def test_step_size_sensitivity_choices():
    figure = plots.step_size_sensitivity(
        [0.1, 1.0], {"a": [1.0, 2.0]}, y_label="loss", chosen={"a": 1}, log_y=False
    )
    (axes,) = figure.axes  # nothing diverged: no strip
    assert_array_equal(np.asarray(axes.lines[1].get_xdata()), [1.0])
    higher = plots.step_size_sensitivity(
        [0.1, 1.0], {"a": [0.5, 0.9]}, y_label="accuracy", smaller_is_better=False
    )
    assert_array_equal(np.asarray(higher.axes[0].lines[1].get_xdata()), [1.0])
    lost = plots.step_size_sensitivity([0.1, 1.0], {"a": [NAN, NAN]}, y_label="loss")
    assert len(lost.axes[-1].lines) == 1  # no mark
    assert draws(lost)


def test_plots_leave_no_global_state():
    before = dict(mpl.rcParams)
    pyplot_loaded = "matplotlib.pyplot" in sys.modules
    plots.curves([line("a")], x_label="x", y_label="y")
    with pytest.raises(ValueError, match="must be restored"), drawing():
        raise ValueError("must be restored")
    assert dict(mpl.rcParams) == before
    assert ("matplotlib.pyplot" in sys.modules) == pyplot_loaded


def test_png_bytes_are_reproducible():
    first, second = (
        plots.png_bytes(plots.curves([line("a")], x_label="x", y_label="y"), dpi=40)
        for _ in range(2)
    )
    assert first == second


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[plots\] @ git'):
        plots.curves([line("a")], x_label="x", y_label="y")


CURVES = {
    "one record": ([1.0], [2.0]),
    "no record": ([], []),
    "nothing but NaN": ([1.0, 2.0], [NAN, NAN]),
    "no place": ([NAN, NAN], [1.0, 2.0]),
    "began at the optimum": ([0.0], [0.0]),
    "below zero": ([-1.0, -2.0], [-1.0, -2.0]),
    "diverged in float64": ([1.0, 2.0, 3.0], [1.0, 1e300, INF]),
    "as small as can be": ([1e-320], [1e-320]),
    "one place": ([1.0, 1.0], [1.0, 2.0]),
}


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("case", CURVES)
def test_curves_of_runs_that_went_wrong_are_drawn(case, log):
    x, y = (np.asarray(part, float) for part in CURVES[case])
    line = plots.Series("a", x, y, y, y)
    figure = plots.curves([line], x_label="x", y_label="y", log_x=log, log_y=log, target=1.0)
    assert draws(figure)


def test_what_is_too_large_to_draw_leaves_a_gap():
    y = np.array([1.0, 1e99, 1e101, -1e300, INF])
    line = plots.Series("a", np.arange(5.0), y, y, y)
    shown = np.asarray(plots.curves([line], x_label="x", y_label="y").axes[0].lines[0].get_ydata())
    np.testing.assert_array_equal(shown, [1.0, 1e99, NAN, NAN, NAN])


@pytest.mark.parametrize("log_x", [False, True])
def test_bars_of_what_is_no_bar_are_drawn(log_x):
    samples = [[NAN], [INF], [-INF], [-1.0, -2.0], [0.0], [1.0, INF], [1e300], [1e-310]]
    names = [str(one) for one in samples]
    spreads = [results.median_and_spread(one) for one in samples]
    assert draws(plots.bars(names, spreads, x_label="t", log_x=log_x))
    for name, spread in zip(names, spreads, strict=True):
        assert draws(plots.bars([name], [spread], x_label="t", log_x=log_x))


@pytest.mark.parametrize("log_y", [False, True])
def test_settings_that_all_failed_are_crosses(log_y):
    scores = {"nan": [NAN], "inf": [INF], "huge": [1e308], "below": [-1.0], "fine": [1.0]}
    figure = plots.step_size_sensitivity([0.1], scores, y_label="y", log_y=log_y)
    crosses = figure.axes[0].lines
    assert len(crosses) == 3  # nan, inf, huge
    assert draws(figure)


@pytest.mark.slow
def test_a_run_of_one_record_is_drawn():
    problem = problems.least_squares(np.eye(3), [1.0, 2.0, 3.0], n_workers=3)
    trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=1)
    run = simulation.replay(problem, trace, optax.sgd(0.1), record_every=1)
    loss = np.asarray(run.records.loss)
    assert len(loss) == 1
    line = plots.Series("a", run.records.time, loss, loss, loss)
    assert draws(plots.curves([line], x_label="time", y_label="loss", log_y=True))
    assert draws(plots.timeline(run.trace, until=1.0))


WORKERS = np.array([[[1, 0], [2, 2], [0, 0]], [[0, 0], [0, 0], [3, 0]], [[0, 0]] * 3])


def mesh(figure):
    (found,) = [x for x in figure.axes[0].collections if isinstance(x, QuadMesh)]
    cells = np.ma.asarray(found.get_array())
    return np.ma.getdata(cells), np.ma.getmaskarray(cells)


def test_the_chart_of_a_schedule():
    figure = plots.schedule_chart(
        WORKERS, arrival=[0, 1, 1], completion=[1, -1, -1], title="three jobs"
    )
    axes = figure.axes[0]
    cells, hidden = mesh(figure)
    assert_allclose(cells[~hidden], [1, 4, 3])  # machines are summed
    assert (~hidden).tolist() == [[True, True, False], [False, False, True], [False] * 3]
    (arrivals,) = axes.lines
    assert_allclose(np.asarray(arrivals.get_xdata()), [0, 1, 1])
    (ends,) = [x for x in axes.collections if isinstance(x, LineCollection)]
    (bar,) = ends.get_segments()
    assert_allclose(np.asarray(bar)[:, 0], 2)  # the end of slot 1
    assert [x.get_fontstyle() for x in axes.get_yticklabels()] == ["normal", "italic", "italic"]
    assert (axes.get_xlabel(), axes.get_title("left")) == ("slot", "three jobs")
    assert draws(figure)
    flat = plots.schedule_chart(WORKERS.sum(-1), arrival=[0, 1, 1], completion=[1, -1, -1])
    assert_allclose(mesh(flat)[0], cells)


def test_a_schedule_without_workers_is_drawn():
    assert draws(plots.schedule_chart(np.zeros((2, 3)), arrival=[0, 0], completion=[-1, -1]))


def test_utilisation_is_stepped_over_whole_slots():
    figure = plots.utilisation_chart([[0.5, 0.1], [0.25, 1.0]], names=["GPU", "vCPU"])
    axes = figure.axes[0]
    first, second = axes.lines
    assert_allclose(np.asarray(first.get_xdata()), [0, 1, 2])
    assert_allclose(np.asarray(first.get_ydata()), [0.5, 0.25, 0.25])
    assert first.get_drawstyle() == "steps-post"
    assert (first.get_color(), second.get_label()) != (second.get_color(), "")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["GPU", "vCPU"]
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] >= 1
    assert draws(figure)
    assert plots.utilisation_chart([[0.5]]).axes[0].lines[0].get_label() == "resource 0"


def test_prices_have_a_logarithmic_scale():
    prices = np.array([[1e-20, 1e-3, 1.0], [1e-2, 1e-2, 1e-2]])
    figure = plots.price_map(prices, unit="a GPU")
    (map_,) = [x for x in figure.axes[0].collections if isinstance(x, QuadMesh)]
    assert_allclose(np.asarray(map_.get_array()), prices.T)  # machines down, slots across
    assert map_.get_clim() == (1e-20, 1.0)
    assert [axes.get_ylabel() for axes in figure.axes] == ["machine", "a GPU"]
    assert draws(figure)
    assert draws(plots.price_map(np.full((2, 2), 3.0)))  # one price everywhere
    cut = plots.price_map(prices, lowest=1e-2)
    (map_,) = [x for x in cut.axes[0].collections if isinstance(x, QuadMesh)]
    assert map_.get_clim() == (1e-2, 1.0)


def test_a_trace_without_arrivals_is_drawn():
    names = ("time", "worker", "start", "used", "steps", "delay")
    assert draws(plots.timeline(small_trace(**{name: np.zeros(0) for name in names}), until=1.0))


def test_runs_by_name_are_drawn_as_losses_against_time():
    records = SimpleNamespace(time=np.arange(3.0), loss=np.array([3.0, 2.0, 1.0]))
    seeds = SimpleNamespace(time=np.arange(3.0), loss=np.array([[3.0, 2.0, 1.0], [5.0, 4.0, 3.0]]))
    runs = {"one": SimpleNamespace(records=records), "two": SimpleNamespace(records=seeds)}
    axes = plots.curves(runs).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "loss")
    drawn = [line.get_ydata().tolist() for line in axes.lines]
    assert drawn == [[3.0, 2.0, 1.0], [4.0, 3.0, 2.0]]


def test_seeds_with_times_of_their_own_are_drawn_until_the_first_of_them_ends():
    time = np.array([[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]])
    records = SimpleNamespace(time=time, loss=np.array([[4.0, 2.0, 1.0], [6.0, 4.0, 0.0]]))
    (line,) = plots.curves({"both": SimpleNamespace(records=records)}).axes[0].lines
    assert np.asarray(line.get_xdata()).tolist() == [0.0, 1.0, 2.0]
    assert np.asarray(line.get_ydata()).tolist() == [5.0, 3.5, 2.5]


def test_curves_with_the_same_end_have_a_point_there():
    soon = plots.Series("soon", [0.0, 3.0, 5.0], [4.0, 1.0, NAN])  # diverged after 3
    late = plots.Series("late", [0.0, 2.0, 4.0], [8.0, 6.0, 2.0], [7.0, 5.0, 1.0], [9.0, 7.0, 3.0])
    lines = plots.curves([soon, late], same_end=True).axes[0].lines
    assert [np.asarray(line.get_xdata()).tolist() for line in lines] == [[0.0, 3.0], [0, 2, 3]]
    assert [np.asarray(line.get_ydata()).tolist() for line in lines] == [[4.0, 1.0], [8, 6, 4]]
    assert [line.get_xdata()[-1] for line in plots.curves([soon, late]).axes[0].lines] == [5, 4]
    nothing = plots.Series("nothing", [0.0, 1.0], [NAN, INF])
    assert draws(plots.curves([soon, nothing], same_end=True))
