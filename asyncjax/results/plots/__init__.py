"""Plots of results; every function returns a matplotlib figure and shows nothing.

Needs matplotlib: extra `plots`. It is imported when a figure is made.

In a notebook, a cell that ends in a figure shows it once a backend is loaded: `import
matplotlib.pyplot as plt; plt.switch_backend(plt.get_backend())` in an earlier cell.
"""

from asyncjax.results.metrics import Series as Series
from asyncjax.results.plots.comparisons import (
    Panel as Panel,
    bars as bars,
    curves as curves,
    panels as panels,
    staleness_histogram as staleness_histogram,
    step_size_sensitivity as step_size_sensitivity,
)
from asyncjax.results.plots.schedules import (
    price_map as price_map,
    rollout_timeline as rollout_timeline,
    schedule_chart as schedule_chart,
    timeline as timeline,
    utilisation_chart as utilisation_chart,
)
from asyncjax.results.plots.style import (
    LineStyle as LineStyle,
    assign_styles as assign_styles,
    png_bytes as png_bytes,
    svg_text as svg_text,
)
