"""Rules that divide the machines anew in every slot, the loop that plays them, and placement.

A rule is a function `(held, now) -> held`: from what jobs held in the slot before, and from what is
known now, to what they hold in this slot. Jobs that are done hold nothing. Progress is real
progress (`throughput`). Everything is plain NumPy on the host: such rules put unit after unit on
machines, round and round (`Placement`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from asyncjax.checks import shown
from asyncjax.cluster.jobs import Data, Jobs, Machines, Schedule, checked_cluster
from asyncjax.cluster.throughput import trained

Index = int | np.integer

MOST_UNITS = 1_000_000  # in a slot; rules place them one by one
_LEFT = 1e-9  # a job with at most this share of its samples left is done
_SLACK = 1e-9


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
    for slot in range(n_slots):
        active = (jobs.arrival <= slot) & ~done
        held = rule(held, Now(slot, active, ended, remaining.copy(), attained.copy()))
        np.copyto(workers[:, slot], held.workers, casting="same_kind")  # no fractions of units
        np.copyto(servers[:, slot], held.servers, casting="same_kind")
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
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return float(np.where(demand > 0, capacity / demand, np.inf).min(-1).sum())


class Placement:
    """Machines in one slot: room `left` float64[H, R], and the units there, int64[N, H]."""

    def __init__(self, jobs: Jobs, machines: Machines, held: Held | None = None) -> None:
        self.jobs = jobs
        self.left, self.pointer = machines.capacity.copy(), 0
        self.total = np.maximum(machines.capacity.sum(0), np.finfo(float).tiny)
        shape = len(jobs.arrival), len(machines.capacity)
        self.workers, self.servers = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        if held is not None:
            self.workers, self.servers = held.workers.copy(), held.servers.copy()
            self.left -= held.workers.T @ jobs.worker + held.servers.T @ jobs.server

    @property
    def held(self) -> Held:
        """What jobs hold."""
        return Held(self.workers, self.servers)

    def dominant_share(self, job: Index) -> float:
        """Largest share of a resource of all machines that a job holds."""
        workers, servers = self.workers[job].sum(), self.servers[job].sum()
        use = workers * self.jobs.worker[job] + servers * self.jobs.server[job]
        return float((use / self.total).max())

    def place(self, job: Index, n_workers: int, n_servers: int, start: int = 0) -> bool:
        """Places all units or none: each server, then its workers, on the next machines with room.

        `start` is the first machine to try; after each unit, the one after the unit's.
        """
        before = self.left.copy(), self.workers[job].copy(), self.servers[job].copy()
        pointer = start
        for is_server in _in_order(n_workers, n_servers):
            machine = self._put(job, is_server, pointer)
            if machine is None:
                self.left, self.workers[job], self.servers[job] = before
                return False
            pointer = machine + 1
        return True

    def place_next(self, job: Index, n_workers: int, n_servers: int) -> bool:
        """Places all units or none from the next machine on, which moves on by one if they fit."""
        placed = self.place(job, n_workers, n_servers, self.pointer)
        self.pointer = (self.pointer + placed) % len(self.left)
        return placed

    def grow(self, job: Index) -> bool:
        """Adds one worker, with servers if those there cannot serve it; none beyond the batch."""
        workers, servers = self.workers[job].sum(), self.servers[job].sum()
        needed = np.ceil((workers + 1) / self.jobs.workers_per_server[job] - _SLACK)
        helpers = int(max(needed - servers, 0))
        return bool(workers < self.jobs.batch[job]) and self.place_next(job, 1, helpers)

    def clear(self, job: Index) -> None:
        """Takes a job down."""
        use = np.outer(self.workers[job], self.jobs.worker[job])
        self.left += use + np.outer(self.servers[job], self.jobs.server[job])
        self.workers[job], self.servers[job] = 0, 0

    def _put(self, job: Index, is_server: bool, pointer: int) -> int | None:
        """Puts one unit on the first machine with room, cyclically; returns it."""
        unit = self.jobs.server[job] if is_server else self.jobs.worker[job]
        fits = (self.left + _SLACK >= unit).all(-1)
        n_machines = len(fits)
        ahead = np.roll(fits, -(pointer % n_machines))
        step = int(ahead.argmax())
        if not ahead[step]:
            return None
        machine = (pointer + step) % n_machines
        self.left[machine] -= unit
        (self.servers if is_server else self.workers)[job, machine] += 1
        return machine


def fixed_crews(jobs: Jobs, workers: Data) -> tuple[np.ndarray, np.ndarray]:
    """Reads how many workers jobs ask for, and adds the servers that they need.

    Formula: `w = min(workers, F)` and `ceil(w / gamma)`, int64[N] each.
    """
    asked = np.asarray(workers, np.float64)
    counts = np.isfinite(asked) & (asked == np.floor(asked)) & (asked >= 1)
    if asked.shape != jobs.arrival.shape or not counts.all():
        raise ValueError(
            f"workers must be one whole number of at least 1 for each of the {len(jobs.arrival)}"
            f" jobs, got {shown(workers)}"
        )
    crew = np.minimum(asked, jobs.batch).astype(np.int64)
    servers = np.ceil(crew / jobs.workers_per_server - _SLACK)
    return crew, np.minimum(servers, 2**53).astype(np.int64)  # so many fit nowhere


def _in_order(n_workers: int, n_servers: int) -> Iterator[bool]:
    """Kinds of units in the order in which they are placed; True is a server."""
    each = -(-n_workers // n_servers) if n_servers else n_workers
    for _ in range(max(n_servers, 1)):
        if n_servers:
            yield True
        follow = min(each, n_workers)
        yield from itertools.repeat(False, follow)
        n_workers -= follow
