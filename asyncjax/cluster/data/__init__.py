"""Data: workloads made from a seed, and jobs that real clusters recorded.

| name | what it gives |
|---|---|
| `workloads` | jobs and machines from an integer seed |
| `read_philly`, `read_tiresias`, `read_pollux`, `read_alibaba`, `read_jobs` | a `JobTable` |
| `recorded_workload` | jobs from such a table; what it makes up is listed in `MADE_UP` |
| `read_profiles`, `read_arrivals`, `profiled_workload` | jobs that train measured models |
"""

from asyncjax.cluster.data import workloads
from asyncjax.cluster.data.job_tables import (
    JobTable,
    read_alibaba,
    read_arrivals,
    read_jobs,
    read_philly,
    read_pollux,
    read_tiresias,
)
from asyncjax.cluster.data.recorded_jobs import (
    MADE_UP,
    Profiles,
    profiled_workload,
    read_profiles,
    recorded_workload,
)

__all__ = [
    "MADE_UP",
    "JobTable",
    "Profiles",
    "profiled_workload",
    "read_alibaba",
    "read_arrivals",
    "read_jobs",
    "read_philly",
    "read_pollux",
    "read_profiles",
    "read_tiresias",
    "recorded_workload",
    "workloads",
]
