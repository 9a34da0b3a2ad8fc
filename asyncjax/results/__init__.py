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

from asyncjax.results import plots as plots, report as report
from asyncjax.results.metrics import (
    BestSetting as BestSetting,
    Series as Series,
    Spread as Spread,
    at_grid_edge as at_grid_edge,
    best_on_grid as best_on_grid,
    median_and_spread as median_and_spread,
    resample as resample,
    series_over_seeds as series_over_seeds,
    time_to_target as time_to_target,
)
from asyncjax.results.run import (
    Costs as Costs,
    PolicyRecords as PolicyRecords,
    Records as Records,
    Run as Run,
    Source as Source,
)
from asyncjax.results.saved_runs import load as load, save as save
from asyncjax.results.tables import (
    Column as Column,
    Table as Table,
    as_html as as_html,
    as_markdown as as_markdown,
    as_text as as_text,
)
