"""Plots of results; every function returns a matplotlib figure and shows nothing.

Needs matplotlib: extra `plots`. It is imported when a figure is made.

In a notebook, a cell that ends in a figure shows it once a backend is loaded: `import
matplotlib.pyplot as plt; plt.switch_backend(plt.get_backend())` in an earlier cell.
"""

from asyncjax.results.metrics import Series
from asyncjax.results.plots.comparisons import (
    Panel,
    bars,
    curves,
    panels,
    staleness_histogram,
    step_size_sensitivity,
)
from asyncjax.results.plots.schedules import (
    price_map,
    rollout_timeline,
    schedule_chart,
    timeline,
    utilisation_chart,
)
from asyncjax.results.plots.style import LineStyle, assign_styles, png_bytes, svg_text

__all__ = [
    "LineStyle",
    "Panel",
    "Series",
    "assign_styles",
    "bars",
    "curves",
    "panels",
    "png_bytes",
    "price_map",
    "rollout_timeline",
    "schedule_chart",
    "staleness_histogram",
    "step_size_sensitivity",
    "svg_text",
    "timeline",
    "utilisation_chart",
]
