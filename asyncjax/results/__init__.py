"""Results: runs, metrics, tables, plots, the report.

| name | what it is |
|---|---|
| `Run`, `Records`, `PolicyRecords`, `Costs`, `Source` | what a simulation returns |
| `save`, `load` | a run on disk, without pickle |
| `time_to_target`, `median_and_spread`, `resample`, `Spread` | numbers that compare runs |
| `best_on_grid`, `BestSetting`, `at_grid_edge` | the best setting; was the grid wide enough? |
| `Series`, `series_over_seeds` | a curve with a band |
| `Table`, `Column`, `as_text`, `as_markdown`, `as_html` | tables |
| `plots` | figures, each a function |
| `report` | one HTML page of figures and tables |
"""

from asyncjax.results import plots, report
from asyncjax.results.metrics import (
    BestSetting,
    Series,
    Spread,
    at_grid_edge,
    best_on_grid,
    median_and_spread,
    resample,
    series_over_seeds,
    time_to_target,
)
from asyncjax.results.run import Costs, PolicyRecords, Records, Run, Source
from asyncjax.results.saved_runs import load, save
from asyncjax.results.tables import Column, Table, as_html, as_markdown, as_text

__all__ = [
    "BestSetting",
    "Column",
    "Costs",
    "PolicyRecords",
    "Records",
    "Run",
    "Series",
    "Source",
    "Spread",
    "Table",
    "as_html",
    "as_markdown",
    "as_text",
    "at_grid_edge",
    "best_on_grid",
    "load",
    "median_and_spread",
    "plots",
    "report",
    "resample",
    "save",
    "series_over_seeds",
    "time_to_target",
]
