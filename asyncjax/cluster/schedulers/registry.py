"""Every scheduler of the room by name, each as the tests of the contract and comparisons run it.

REGISTRY[name](jobs, machines, n_slots=T)  ->  Schedule
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from asyncjax.cluster.jobs import Jobs, Machines, Schedule, checked_jobs
from asyncjax.cluster.schedulers import slot_schedulers as slots
from asyncjax.cluster.schedulers.arrival_schedulers import oasis, pd_ors
from asyncjax.cluster.workloads import fixed_workers


def _fifo(jobs: Jobs, machines: Machines, *, n_slots: int) -> Schedule:
    """FIFO with the workers that jobs ask for; seed 0 draws them for those that do not say."""
    asked = checked_jobs(jobs).asked
    workers = np.where(asked > 0, asked, fixed_workers(0, jobs))
    return slots.fifo(jobs, machines, n_slots=n_slots, workers=workers)


REGISTRY: dict[str, Callable[..., Schedule]] = {
    "pd_ors": pd_ors,
    "oasis": oasis,
    "drf": slots.drf,
    "dorm": slots.dorm,
    "fifo": _fifo,
    "least_attained": slots.least_attained,
    "marginal_goodput": slots.marginal_goodput,
    "marginal_time": partial(slots.marginal_goodput, gain=slots.time_saved),
}
