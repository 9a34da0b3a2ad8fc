"""Pictures can be read: by the colour-blind, on a dark page, on a phone, and at their axes.

Colours are compared in OKLab, as most readers see them and as those see them who lack a kind of
cone (the matrices of Machado, Oliveira and Fernandes, 2009, of full severity), on white and after
the filter that reports put over figures on a dark page.
"""

import re
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from numpy.testing import assert_allclose

from asyncjax.results import plots, report
from asyncjax.results.metrics import median_and_spread
from asyncjax.results.plots.style import COLOURS, drawing, new_figure, set_log
from asyncjax.results.tables import Column, Table

METHODS = [f"method {index}" for index in range(9)]
EYES = {
    "most": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                 [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def linear(colours):
    """Light of colours [..., 3] as screens encode them."""
    values = np.asarray(colours, float)
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(light):
    """OKLab of linear sRGB (Ottosson, 2020)."""
    cones = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                      [0.2119034982, 0.6806995451, 0.1073969566],
                      [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
    axes = np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                     [1.9779984951, -2.4285922050, 0.4505937099],
                     [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip
    return np.cbrt(np.clip(light @ cones.T, 0.0, None)) @ axes.T


def nearest(colours, eye):
    """The smallest distance between two of the colours for a kind of reader."""
    seen = oklab(np.clip(linear(colours) @ np.asarray(EYES[eye]).T, 0.0, 1.0))
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)
    return float(np.min(apart + 9.0 * np.eye(len(seen))))


def contrast(one, other):
    """The ratio of WCAG 2, from 1 to 21."""
    high, low = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))[::-1]
    return (high + 0.05) / (low + 0.05)


def on_dark(colours):
    """What the filter of a dark report makes of colours [..., 3] (CSS filter effects, level 1)."""
    found = re.search(r"invert\(([\d.]+)\) hue-rotate\((\d+)deg\)", page())
    assert found
    share, turn = float(found[1]), np.radians(float(found[2]))
    turned = np.asarray(colours, float) * (1 - 2 * share) + share
    weights = np.array([0.213, 0.715, 0.072])
    sines = np.array([[-0.213, -0.715, 0.928], [0.143, 0.140, -0.283], [-0.787, 0.715, 0.072]])
    matrix = weights + np.cos(turn) * (np.eye(3) - weights) + np.sin(turn) * sines
    return np.clip(turned @ matrix.T, 0.0, 1.0)


def page():
    return report.render("t", "", [])


WHITE, USED = np.ones(3), np.array([to_rgb(colour) for colour in COLOURS])
OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9",
             "#7F7F7F", "#6B3E1D"]  # fmt: skip


@pytest.mark.parametrize("dark", [False, True])
def test_nine_colours_stay_apart_for_all_readers(dark):
    colours = on_dark(USED) if dark else USED
    assert nearest(colours, "most") > 0.13
    for eye in EYES:
        assert nearest(colours, eye) > 0.065
    ground = on_dark(WHITE) if dark else WHITE
    assert min(contrast(colour, ground) for colour in colours) > (3.0 if dark else 2.2)


def test_the_measure_tells_colours_that_are_mistaken():
    earlier = [to_rgb(colour) for colour in OKABE_ITO]  # with two blues and two greys
    assert min(nearest(earlier, eye) for eye in EYES) < 0.04


def test_one_of_nine_is_blue_and_near_colours_differ_in_their_dashes():
    lab = oklab(linear(USED))
    hue = np.degrees(np.arctan2(lab[:, 2], lab[:, 1])) % 360
    assert np.sum((hue > 200) & (hue < 290) & (np.hypot(lab[:, 1], lab[:, 2]) > 0.04)) == 1
    styles = list(plots.assign_styles(METHODS).values())
    for dash in {str(style.dash) for style in styles}:
        same = [to_rgb(style.colour) for style in styles if str(style.dash) == dash]
        assert len(same) <= 2
        assert all(nearest(same, eye) > 0.11 for eye in EYES if len(same) > 1)


def test_a_figure_on_a_dark_page_is_dark():
    text = page()
    dark = text[text.index("prefers-color-scheme: dark") :]
    assert "figure img { filter: invert" in dark[: dark.index("* {")]
    paper = re.search(r"--paper: (#[0-9a-f]{6})", dark)
    assert paper
    assert contrast(on_dark(WHITE), to_rgb(paper[1])) < 1.1  # white becomes the page
    assert contrast(on_dark(np.zeros(3)), to_rgb(paper[1])) > 10  # and ink is read on it
    blue = on_dark(to_rgb("#0072B2"))
    assert blue[2] > blue[1] > blue[0]  # hues stay


def line(name):
    x = np.linspace(1.0, 10.0, 12)
    return plots.Series(name, x, 1 / x, 0.9 / x, 1.1 / x)


def trace(delay=(0, 1, 0)):
    return SimpleNamespace(
        time=[1.0, 2.0, 3.0], worker=[0, 1, 0], start=[0.0, 0.0, 1.0], used=[True] * 3,
        steps=[True] * 3, delay=np.array(delay), n_workers=2, cancelled=None, open_jobs=None,
    )  # fmt: skip


LINES = [line(name) for name in METHODS]
PANELS = [plots.Panel(x, LINES, log_x=True) for x in ("time [s]", "gradients", "updates")]
SMALL = {
    "curves": lambda: plots.curves(LINES, x_label="x", y_label="y"),
    "stacked panels": lambda: plots.panels(PANELS, y_label="y", columns=1),
    "bars": lambda: plots.bars(METHODS, [median_and_spread([1.0, 2.0])] * 9, x_label="x"),
    "histograms": lambda: plots.staleness_histogram({n: [0, 3] for n in METHODS}, columns=2),
    "sensitivity": lambda: plots.step_size_sensitivity(
        [0.1, 1.0], {n: [2.0, 1.0] for n in METHODS}, y_label="y"
    ),
    "timeline": lambda: plots.timeline(trace(), until=3.0),
}


def smallest_letters(figure, width):
    """Pixels of the smallest letters where the figure is shown so wide."""
    shown = [
        text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()
    ]
    assert shown
    return min(t.get_fontsize() for t in shown) / 72 * width / figure.get_figwidth()


@pytest.mark.parametrize("name", SMALL)
def test_letters_can_be_read_on_a_phone(name):
    figure = SMALL[name]()
    plots.png_bytes(figure, dpi=30)
    assert smallest_letters(figure, 340.0) > 6.4


def test_side_by_side_they_could_not_and_are_not_shrunk_so_far():
    wide, narrow = plots.panels(PANELS, y_label="y"), plots.panels(PANELS, y_label="y", columns=1)
    assert smallest_letters(wide, 340.0) < 5
    assert len({axes.get_position().x0 for axes in narrow.axes}) == 1
    assert [axes.get_ylabel() for axes in narrow.axes] == ["y"] * 3
    both = report.Illustration(wide, "c", narrow=narrow)
    text = report.render("t", "", [report.Section("s", "", [both])])
    assert f"--inches: {wide.get_figwidth():.2f}; --narrow: {narrow.get_figwidth():.2f}" in text
    assert '<source media="(max-width: 45rem)" srcset="data:image/png;base64,' in text
    least = re.search(r"min-width: calc\(var\(--inches\) \* (\d+)px\)", text)
    assert least  # pixels an inch, beyond which a figure scrolls
    assert smallest_letters(wide, float(least[1]) * wide.get_figwidth()) > 6.9


def test_what_is_cut_says_so():
    table = Table([Column("a rather long heading")] * 9, [["a cell"] * 9])
    text = report.render("t", "", [report.Section("s", "", tables=[table])])
    assert text.count('<div class="scroll" tabindex="0" role="region"') == 1
    style = text[text.index(".scroll {") : text.index(".verdict") + 9999]
    assert "background-attachment: local, local, scroll, scroll" in style  # a shadow at the cut
    assert "::-webkit-scrollbar" in style
    assert "th:first-child, td:first-child { position: sticky" in style  # names stay in sight


def test_the_verdict_stands_right_below_the_heading():
    text = report.render("t", "Summary", [report.Section("s", "")], verdict="A\n wins <b>.")
    assert '<h1>t</h1>\n<p class="verdict">A wins &lt;b&gt;.</p>\n<p>Summary</p>' in text
    assert '<p class="verdict">' not in report.render("t", "Summary", [])


def test_a_report_says_how_it_was_made():
    import jax

    from asyncjax import __version__

    section = report.provenance("python -m job --seeds 3", ["A, 2020", "B,\n 2021"])
    for words in ("Made by: python -m job --seeds 3", f"asyncjax {__version__}", "numpy "):
        assert words in section.text
    assert f"jax {jax.__version__}" in section.text
    assert section.text.endswith("Papers:\n\n- A, 2020\n- B, 2021")
    assert "Papers" not in report.provenance("x").text


@pytest.mark.parametrize(
    ("low", "high"),
    [(1.1, 4.4), (0.029, 2.6), (0.82, 0.95), (30, 6000), (2e-6, 5e-6), (1, 1e6), (3, 9), (1, 9.9)],
)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_a_logarithmic_axis_has_four_labels_that_do_not_collide(low, high, axis):
    with drawing():
        figure = new_figure(3.6, 3.5)
        axes = figure.subplots()
        axes.plot([low, high], [low, high])
        set_log(axes.xaxis if axis == "x" else axes.yaxis, True)
    plots.png_bytes(figure, dpi=60)
    one = axes.xaxis if axis == "x" else axes.yaxis
    view = one.get_view_interval()
    seen = [
        (place, label)
        for place, label in zip(one.get_majorticklocs(), one.get_majorticklabels(), strict=True)
        if view[0] <= place <= view[1] and label.get_text()
    ]
    assert 4 <= len(seen) <= 9
    assert_allclose([place for place, _ in seen], sorted({place for place, _ in seen}))
    boxes = [label.get_window_extent() for _, label in seen]
    for box, after in pairwise(boxes):
        assert box.x1 <= after.x0 if axis == "x" else box.y1 <= after.y0


def test_a_timeline_of_one_delay_has_words_in_place_of_an_empty_scale():
    figure = plots.timeline(trace((0, 0, 0)), until=3.0, unit="s")
    assert len(figure.axes) == 1
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["used, delay 0 updates each"]
    bars = next(c for c in figure.axes[0].collections if isinstance(c, PolyCollection))
    (swatch,) = legend.get_patches()
    assert_allclose(swatch.get_facecolor(), np.asarray(bars.get_facecolor())[0])
    assert figure.axes[0].get_xlabel() == "time [s]"
    assert plots.timeline(trace(), until=3.0).axes[0].get_xlabel() == "time [unit of the trace]"


@pytest.mark.parametrize("largest", [1, 2, 3, 8, 222, 40_000])
def test_colours_of_delays_and_crews_count_whole_updates_and_workers(largest):
    delays = plots.timeline(trace((0, 1, largest)), until=3.0)
    crews = plots.schedule_chart([[1, largest]], arrival=[0], completion=[1])
    for bar, low in ((delays.axes[1], 0), (crews.axes[1], min(1, largest - 1))):
        plots.png_bytes(bar.figure, dpi=30)
        ticks = [float(t.get_text().replace(",", "")) for t in bar.get_yticklabels()]
        assert ticks == sorted({round(tick) for tick in ticks})
        assert (ticks[0], ticks[-1]) == (low, largest)
        assert_allclose(bar.get_yticks(), ticks)


def test_the_gantt_chart_names_jobs_and_tells_what_goes_on_after_completion():
    workers = [[2, 3, 3, 0], [0, 4, 0, 1], [0, 0, 2, 2]]
    chart = plots.schedule_chart(
        workers, arrival=[0, 1, 1], completion=[0, 1, -1], names=["resnet", "bert", "gpt"]
    )
    axes = chart.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["resnet", "bert", "gpt"]
    (hatched,) = (c for c in axes.collections if isinstance(c, PolyCollection) and c.get_hatch())
    cells = [
        (round(path.vertices[:4, 1].mean()), path.vertices[:, 0].min())
        for path in hatched.get_paths()
    ]
    assert cells == [(0, 1), (0, 2), (1, 3)]
    (legend,) = chart.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert words[:3] == ["arrives", "completes", "workers kept after completion"]
    assert "never completes" in words[3]
    plain = plots.schedule_chart([[1, 1]], arrival=[0], completion=[1])
    assert [text.get_text() for text in plain.axes[0].get_yticklabels()] == ["job 0"]
    assert [t.get_text() for t in plain.legends[0].get_texts()] == ["arrives", "completes"]
    unsorted = plots.schedule_chart([[0, 1], [1, 0]], arrival=[1, 0], completion=[1, 0])
    assert unsorted.axes[0].get_ylabel() == ""
