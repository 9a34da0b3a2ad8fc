"""Putting units on machines one by one, round and round, as rules without prices do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from asyncjax.checks import shown
from asyncjax.cluster.checked_jobs import checked_jobs, host_floats
from asyncjax.cluster.machines_and_jobs import Data, Jobs, Machines
from asyncjax.cluster.schedulers.slot_rules import Held

Index = int | np.integer

_SLACK = 1e-9


class Placement:
    """Machines in one slot, with the units that stand on them.

    Attributes:
        left: float64[H, R], room.
        workers: int64[N, H], workers on each machine.
        servers: int64[N, H], servers.
        total: float64[R], capacity of all machines; at least the smallest positive number.
        pointer: The next machine, for `place_next` and `grow`.
    """

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

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.tiny(0)
        >>> fixed_crews(jobs, [1, 1, 9, 1])[0].tolist()
        [1, 1, 4, 1]
    """
    jobs = checked_jobs(jobs)
    asked = host_floats("workers", workers)
    if asked.shape != np.shape(jobs.arrival) or not _are_counts(asked):
        raise ValueError(
            f"workers must be one whole number of at least 1 for each of the {len(jobs.arrival)}"
            f" jobs, got {shown(workers)}"
        )
    crew = np.minimum(asked, jobs.batch).astype(np.int64)
    servers = np.ceil(crew / jobs.workers_per_server - 1e-9)
    if not (servers < 2**53).all():
        job = int(np.argmax(servers))
        raise ValueError(
            f"workers_per_server must leave fewer than 2**53 servers, got"
            f" {jobs.workers_per_server[job]:g} for job {job}"
        )
    return crew, servers.astype(np.int64)


def _are_counts(numbers: np.ndarray) -> bool:
    """Whether all are finite whole numbers of at least 1."""
    return bool((np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= 1)).all())


def _in_order(n_workers: int, n_servers: int) -> Iterator[bool]:
    """Kinds of units in the order in which they are placed; True is a server."""
    if n_servers == 0:
        yield from itertools.repeat(False, n_workers)
        return
    each, to_go = -(-n_workers // n_servers), n_workers
    for _ in range(n_servers):
        follow = min(each, to_go)
        yield True
        yield from itertools.repeat(False, follow)
        to_go -= follow
