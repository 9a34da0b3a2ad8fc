"""Every scheduler of the room by name, each as the tests of the contract and comparisons run it.

SCHEDULERS[name](jobs, machines, n_slots=T)  ->  Schedule
"""

from collections.abc import Callable
from functools import partial

from asyncjax.cluster.attained_service import least_attained
from asyncjax.cluster.bounded_resizing import dorm
from asyncjax.cluster.dominant_resource import drf
from asyncjax.cluster.first_come import fifo
from asyncjax.cluster.goodput import marginal_goodput, time_saved
from asyncjax.cluster.machines_and_jobs import Jobs, Machines, Schedule
from asyncjax.cluster.primal_dual import pd_ors
from asyncjax.cluster.split_cluster import oasis
from asyncjax.cluster.workloads import fixed_workers


def _fifo(jobs: Jobs, machines: Machines, *, n_slots: int) -> Schedule:
    """FIFO with the workers that seed 0 draws."""
    return fifo(jobs, machines, n_slots=n_slots, workers=fixed_workers(0, jobs))


SCHEDULERS: dict[str, Callable[..., Schedule]] = {
    "pd_ors": pd_ors,
    "oasis": oasis,
    "drf": drf,
    "dorm": dorm,
    "fifo": _fifo,
    "least_attained": least_attained,
    "marginal_goodput": marginal_goodput,
    "marginal_time": partial(marginal_goodput, gain=time_saved),
}
