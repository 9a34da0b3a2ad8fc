"""Plots of schedules: what is drawn and how it is labelled, on arrays small enough to count."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection, QuadMesh
from numpy.testing import assert_allclose

from asyncjax.results import plots

WORKERS = np.array([[[1, 0], [2, 2], [0, 0]], [[0, 0], [0, 0], [3, 0]], [[0, 0]] * 3])


def mesh(figure):
    (found,) = [x for x in figure.axes[0].collections if isinstance(x, QuadMesh)]
    cells = np.ma.asarray(found.get_array())
    return np.ma.getdata(cells), np.ma.getmaskarray(cells)


def draws(figure):
    return plots.png_bytes(figure, dpi=40).startswith(b"\x89PNG")


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: plots.schedule_chart([1, 2], arrival=[0], completion=[0]), "workers must be"),
        (lambda: plots.schedule_chart([[1]], arrival=[0, 1], completion=[0]), "workers must be"),
        (lambda: plots.utilisation_chart([0.5]), "shares must be"),
        (lambda: plots.utilisation_chart([[0.5]], names=["a", "b"]), "names must name the 1"),
        (lambda: plots.price_map([1.0]), "prices must be"),
        (lambda: plots.price_map([[0.0, 1.0]]), "positive and finite"),
        (lambda: plots.price_map([[1.0]], lowest=0.0), "lowest must be positive"),
    ],
)
def test_wrong_shapes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
