"""What comes out of runs that went wrong or hardly ran is drawn, or refused in a sentence."""

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, results, simulation, traces
from asyncjax.results import plots
from tests.inputs.table import is_sentence

INF, NAN = np.inf, np.nan


def draws(figure: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where it cannot lay out or scale
        return plots.png_bytes(figure, dpi=30).startswith(b"\x89PNG")


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
def test_curves_of_runs_that_went_wrong_are_drawn(case: str, log: bool) -> None:
    x, y = (np.asarray(part, float) for part in CURVES[case])
    line = plots.Series("a", x, y, y, y)
    figure = plots.curves([line], x_label="x", y_label="y", log_x=log, log_y=log, target=1.0)
    assert draws(figure)


def test_what_is_too_large_to_draw_leaves_a_gap() -> None:
    y = np.array([1.0, 1e99, 1e101, -1e300, INF])
    line = plots.Series("a", np.arange(5.0), y, y, y)
    shown = np.asarray(plots.curves([line], x_label="x", y_label="y").axes[0].lines[0].get_ydata())
    np.testing.assert_array_equal(shown, [1.0, 1e99, NAN, NAN, NAN])


@pytest.mark.parametrize("log_x", [False, True])
def test_bars_of_what_is_no_bar_are_drawn(log_x: bool) -> None:
    samples = [[NAN], [INF], [-INF], [-1.0, -2.0], [0.0], [1.0, INF], [1e300], [1e-310]]
    names = [str(one) for one in samples]
    spreads = [results.median_and_spread(one) for one in samples]
    assert draws(plots.bars(names, spreads, x_label="t", log_x=log_x))
    for name, spread in zip(names, spreads, strict=True):
        assert draws(plots.bars([name], [spread], x_label="t", log_x=log_x))


@pytest.mark.parametrize("log_y", [False, True])
def test_settings_that_all_failed_are_crosses(log_y: bool) -> None:
    scores = {"nan": [NAN], "inf": [INF], "huge": [1e308], "below": [-1.0], "fine": [1.0]}
    figure = plots.step_size_sensitivity([0.1], scores, y_label="y", log_y=log_y)
    crosses = figure.axes[0].lines
    assert len(crosses) == 3  # nan, inf, huge
    assert draws(figure)


@pytest.mark.slow
def test_a_run_of_one_record_is_drawn_and_a_run_is_no_trace() -> None:
    problem = problems.least_squares(np.eye(3), [1.0, 2.0, 3.0], n_workers=3)
    trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=1)
    run = simulation.replay(problem, trace, optax.sgd(0.1), record_every=1)
    loss = np.asarray(run.records.loss)
    assert len(loss) == 1
    line = plots.Series("a", run.records.time, loss, loss, loss)
    assert draws(plots.curves([line], x_label="time", y_label="loss", log_y=True))
    assert draws(plots.timeline(run.trace, until=1.0))
    with pytest.raises(TypeError, match=r"trace must be a trace .*, take run\.trace, got Run\("):
        plots.timeline(run, until=1.0)  # type: ignore[arg-type]


def test_a_trace_without_arrivals_is_drawn_where_the_workers_are_known() -> None:
    fields: dict[str, Any] = {
        "time": np.zeros(0),
        "worker": np.zeros(0, int),
        "start": np.zeros(0),
        "used": np.zeros(0, bool),
        "steps": np.zeros(0, bool),
        "delay": np.zeros(0, int),
        "n_workers": 2,
        "cancelled": None,
        "open_jobs": None,
    }
    trace: Any = SimpleNamespace(**fields)
    assert draws(plots.timeline(trace, until=1.0))
    trace.n_workers = None
    with pytest.raises(ValueError, match="trace has no arrivals and does not say how many"):
        plots.timeline(trace, until=1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: plots.staleness_histogram({"a": np.array([2**62])}),
        lambda: plots.price_map([[5e-324]]),
        lambda: plots.price_map([[1.0]], lowest=1e300),
        lambda: plots.utilisation_chart([[1e308]]),
        lambda: plots.step_size_sensitivity([1e-300, 1.0], {"a": [1.0, 2.0]}, y_label="y"),
    ],
)
def test_what_matplotlib_cannot_scale_is_refused_in_a_sentence(call: Any) -> None:
    with pytest.raises(ValueError, match=r"must|at most") as told:
        call()
    assert is_sentence(told.value)
