"""Rules that divide the machines anew in every slot, and the loop that plays them.

A rule is a function `(held, now) -> held`: from what jobs held in the slot before, and from what is
known now, to what they hold in this slot. Jobs that are done hold nothing. Progress is real
progress (`throughput`). Everything is plain NumPy on the host: such rules place unit after unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asyncjax.checks import instance, shown
from asyncjax.cluster.checked_jobs import checked_cluster
from asyncjax.cluster.machines_and_jobs import Jobs, Machines, Schedule
from asyncjax.cluster.throughput import trained

_LEFT = 1e-9  # a job with at most this share of its samples left is done


class Held(NamedTuple):
    """Units that jobs hold in one slot: state and decision of a rule at once."""

    workers: np.ndarray  # int64[N, H]
    servers: np.ndarray  # int64[N, H]


class Now(NamedTuple):
    """What a rule knows at the start of a slot."""

    slot: int  # its number
    active: np.ndarray  # bool[N], jobs that have arrived and are not done
    ended: bool  # whether any job was done in the slot before
    remaining: np.ndarray  # float64[N], samples still to train
    attained: np.ndarray  # float64[N], service so far: workers held, summed over slots


SlotRule = Callable[[Held, Now], Held]

MOST_UNITS = 1_000_000  # in a slot; rules place them one by one


def play_slots(
    make_rule: Callable[[Jobs, Machines], SlotRule], jobs: Jobs, machines: Machines, *, n_slots: int
) -> Schedule:
    """Plays a rule slot by slot; refuses more than a million units that may stand in one slot.

    `make_rule` makes it for jobs and machines, which come checked, on the host. In the schedule
    `admitted` are the jobs that ever got a unit, and `payoff` is 0.

    Example:
        A rule that gives the first active job one worker and one server on machine 0:

        >>> import numpy as np
        >>> from asyncjax import cluster
        >>> def one_at_a_time(jobs, machines):
        ...     def rule(held, now):
        ...         units = np.zeros_like(held.workers)
        ...         units[np.argmax(now.active), 0] = now.active.any()
        ...         return Held(units, units)
        ...     return rule
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> schedule = play_slots(one_at_a_time, jobs, machines, n_slots=4)
        >>> schedule.workers.sum((1, 2)).tolist(), cluster.check(schedule, jobs, machines)
        ([4, 0, 0, 0], [])
    """
    jobs, machines = checked_cluster(jobs, machines, n_slots)
    check_units(jobs, machines, jobs.batch / jobs.workers_per_server)
    rule = make_rule(jobs, machines)
    shape = len(jobs.arrival), len(machines.capacity)
    held = Held(np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    workers = np.zeros((shape[0], n_slots, shape[1]), np.int32)
    servers = np.zeros_like(workers)
    remaining, attained = jobs.samples.copy(), np.zeros(shape[0])
    done = np.zeros(shape[0], bool)
    ended = False
    none = held
    for slot in range(n_slots):
        active = (jobs.arrival <= slot) & ~done
        held = rule(held, Now(slot, active, ended, remaining.copy(), attained.copy()))
        _check_held(held, none)
        workers[:, slot], servers[:, slot] = held
        remaining -= trained(*held, jobs)
        attained += held.workers.sum(-1)
        over = (remaining <= _LEFT * jobs.samples) & ~done
        ended, done = bool(over.any()), done | over
        held = Held(*(np.where(done[:, None], 0, units) for units in held))
    admitted = (workers + servers).any((1, 2))
    return Schedule(workers, servers, admitted, np.zeros(shape[0]))


def check_units(jobs: Jobs, machines: Machines, servers: np.ndarray) -> None:
    """Refuses demands so small that more than a million units may have to be placed in a slot.

    `servers` float64[N]: the most that a job may have, inf for as many as fit.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> jobs = jobs._replace(batch=jobs.batch + 10**9, worker=1e-9 * jobs.worker)
        >>> check_units(jobs, machines, np.zeros(4))
        Traceback (most recent call last):
        ...
        ValueError: worker must leave at most 1000000 units to place in a slot, got 4e+09
    """
    for name, demand, most in (
        ("worker", jobs.worker, jobs.batch),
        ("server", jobs.server, np.ceil(servers)),
    ):
        total = sum(
            min(float(limit), _fits(machines.capacity, row))
            for limit, row in zip(most, demand, strict=True)
        )
        total = min(total, _fits(machines.capacity, demand.min(0)))
        if total > MOST_UNITS:
            raise ValueError(
                f"{name} must leave at most {MOST_UNITS} units to place in a slot, got {total:.3g}"
            )


def _fits(capacity: np.ndarray, demand: np.ndarray) -> float:
    """How many units of a demand float64[R] all machines hold; inf if it takes nothing."""
    used = demand > 0
    if not used.any():
        return np.inf
    with np.errstate(over="ignore"):
        return float((capacity[:, used] / demand[used]).min(-1).sum())


def _check_held(held: object, like: Held) -> None:
    """Refuses what a rule of a person's own gives that is no units of these jobs and machines."""
    instance("held", held, Held, "a Held, as a rule returns it")
    assert isinstance(held, Held)  # checked above
    for name, units in held._asdict().items():
        if not isinstance(units, np.ndarray) or units.dtype.kind not in "iu":
            raise TypeError(f"{name} must be a NumPy array of integers, got {shown(units)}")
        if units.shape != like.workers.shape:
            raise ValueError(
                f"{name} must have the shape {like.workers.shape} of jobs and machines, got"
                f" {units.shape}"
            )
        if units.min() < 0:
            raise ValueError(f"{name} must be at least 0, got {units.min()}")
