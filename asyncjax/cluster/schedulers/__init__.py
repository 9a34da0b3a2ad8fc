"""Schedulers: PD-ORS, its rivals, and what a scheduler of your own is made of.

A scheduler is a function `(jobs, machines, *, n_slots) -> Schedule`, in the room's `__init__` and
in `SCHEDULERS`. Two loops play a rule:

| loop | rule: `SlotRule`, `ArrivalRule` |
|---|---|
| `play_slots` | `(held, now) -> held`, what jobs hold, anew in every slot; plain NumPy |
| `play_arrivals` | `(prices, room, job) -> allocation`, when a job arrives and for good; JAX |

The second kind is pure, so that many episodes can be played at once by `vmap`: `prepare` puts jobs,
machines and bounds of prices into one pytree for `pd_ors_episode` (with `pd_ors_settings`) and
`oasis_episode`; `schedule_of` brings the result to the host.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from asyncjax.cluster.jobs import Jobs, Machines, Schedule, checked_jobs
from asyncjax.cluster.resource_prices import (
    Episode as Episode,
    JobRow as JobRow,
    prepare as prepare,
)
from asyncjax.cluster.schedulers.arrival_schedulers import (
    Allocation as Allocation,
    ArrivalRule as ArrivalRule,
    PdOrsSettings as PdOrsSettings,
    oasis,
    oasis_episode as oasis_episode,
    pd_ors,
    pd_ors_episode as pd_ors_episode,
    pd_ors_settings as pd_ors_settings,
    play_arrivals as play_arrivals,
    schedule_of as schedule_of,
)
from asyncjax.cluster.schedulers.slot_schedulers import (
    Held as Held,
    Now as Now,
    SlotRule as SlotRule,
    dorm,
    drf,
    fifo,
    least_attained,
    marginal_goodput,
    play_slots as play_slots,
    speed_gained as speed_gained,
    time_saved as time_saved,
)
from asyncjax.cluster.workloads import fixed_workers


def _fifo(jobs: Jobs, machines: Machines, *, n_slots: int) -> Schedule:
    """FIFO with the workers that jobs ask for; seed 0 draws them for those that do not say."""
    asked = checked_jobs(jobs).asked
    workers = np.where(asked > 0, asked, fixed_workers(0, jobs))
    return fifo(jobs, machines, n_slots=n_slots, workers=workers)


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
