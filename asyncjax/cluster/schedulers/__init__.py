"""Schedulers: PD-ORS, its rivals, and what a scheduler of your own is made of.

A scheduler is a function `(jobs, machines, *, n_slots) -> Schedule`, in the room's `__init__` and
in `registry`. Two loops play a rule:

| loop | rule: `SlotRule`, `ArrivalRule` |
|---|---|
| `play_slots` | `(held, now) -> held`, what jobs hold, anew in every slot; plain NumPy |
| `play_arrivals` | `(prices, room, job) -> allocation`, when a job arrives and for good; JAX |

The second kind is pure, so that many episodes can be played at once by `vmap`: `prepare` puts jobs,
machines and bounds of prices into one pytree for `pd_ors_episode` (with `pd_ors_settings`) and
`oasis_episode`; `schedule_of` brings the result to the host.
"""

from asyncjax.cluster.resource_prices import Episode, JobRow, prepare
from asyncjax.cluster.schedulers.arrival_schedulers import (
    Allocation,
    ArrivalRule,
    PdOrsSettings,
    oasis_episode,
    pd_ors_episode,
    pd_ors_settings,
    play_arrivals,
    schedule_of,
)
from asyncjax.cluster.schedulers.slot_schedulers import (
    Held,
    Now,
    SlotRule,
    play_slots,
    speed_gained,
    time_saved,
)

__all__ = [
    "Allocation",
    "ArrivalRule",
    "Episode",
    "Held",
    "JobRow",
    "Now",
    "PdOrsSettings",
    "SlotRule",
    "oasis_episode",
    "pd_ors_episode",
    "pd_ors_settings",
    "play_arrivals",
    "play_slots",
    "prepare",
    "schedule_of",
    "speed_gained",
    "time_saved",
]
