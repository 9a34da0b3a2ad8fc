"""Cluster: training jobs meet machines; who gets in, when, with how many workers, and where.

Jobs arrive one by one. A scheduler gives them workers and servers on machines, slot by slot; units
on one machine talk faster than units on several. Every schedule is checked by the same rules and
counted by the samples its units really train. After Yu, Liu, Wu, Ji and Bentley (2021), "Toward
efficient online scheduling for distributed machine learning systems", arXiv 2108.02917. It may
import `clocks` only.

| name | what it gives |
|---|---|
| `Jobs`, `Machines`, `Schedule` | what goes in and comes out, structs of arrays |
| `workloads` | jobs and machines from a seed: `balanced`, `local`, `ranges`, `tiny` |
| `pd_ors` | PD-ORS: admission and placement by prices that rise with the load |
| `oasis`, `drf`, `dorm`, `fifo` | its rivals, reconstructed |
| `least_attained`, `marginal_goodput` | later rivals |
| `SCHEDULERS` | all of them by name |
| `choose_floor`, `FloorChoice` | the price of an idle machine, learned from past workloads |
| `check` | whether a schedule is valid |
| `outcome`, `Outcome` | all that it achieves, in numbers |
| `progress`, `completion`, `total_utility` | one of them alone |
| `utilisation`, `resources_used` | how full the machines are |
| `sample_times`, `samples_trained` | how fast a job trains |
| `price`, `price_bounds`, `best_delays`, `crew` | prices and units of PD-ORS |
| `read_philly`, `read_tiresias`, `read_pollux`, `read_alibaba` | recorded jobs |
| `recorded_workload`, `JobTable`, `MADE_UP` | jobs for the schedulers from such a table |
| `clock_of` | the clock of a scheduled job, for `traces` and `simulation` |

What these give: `PriceBounds`, `Crew`.

Below: `schedulers`, for rules of your own, and the same rules as pure functions for `vmap`.

Example:
    >>> from asyncjax import cluster
    >>> jobs, machines = cluster.workloads.tiny(3)
    >>> for name in ("pd_ors", "oasis", "drf"):
    ...     schedule = cluster.SCHEDULERS[name](jobs, machines, n_slots=4)
    ...     wrong = cluster.check(schedule, jobs, machines)
    ...     print(name, wrong, round(cluster.total_utility(schedule, jobs), 1))
    pd_ors [] 79.9
    oasis [] 69.9
    drf [] 33.0
"""

from asyncjax.cluster import workloads as workloads
from asyncjax.cluster.jobs import (
    Crew as Crew,
    Jobs as Jobs,
    Machines as Machines,
    Schedule as Schedule,
    best_delays as best_delays,
    crew as crew,
    sample_times as sample_times,
    samples_trained as samples_trained,
)
from asyncjax.cluster.outcomes import (
    Outcome as Outcome,
    check as check,
    clock_of as clock_of,
    completion as completion,
    outcome as outcome,
    progress as progress,
    resources_used as resources_used,
    total_utility as total_utility,
    utilisation as utilisation,
)
from asyncjax.cluster.recorded_jobs import (
    MADE_UP as MADE_UP,
    JobTable as JobTable,
    read_alibaba as read_alibaba,
    read_philly as read_philly,
    read_pollux as read_pollux,
    read_tiresias as read_tiresias,
    recorded_workload as recorded_workload,
)
from asyncjax.cluster.resource_prices import (
    PriceBounds as PriceBounds,
    price as price,
    price_bounds as price_bounds,
)
from asyncjax.cluster.schedulers import SCHEDULERS as SCHEDULERS
from asyncjax.cluster.schedulers.arrival_schedulers import (
    FloorChoice as FloorChoice,
    choose_floor as choose_floor,
    oasis as oasis,
    pd_ors as pd_ors,
)
from asyncjax.cluster.schedulers.slot_schedulers import (
    dorm as dorm,
    drf as drf,
    fifo as fifo,
    least_attained as least_attained,
    marginal_goodput as marginal_goodput,
)
