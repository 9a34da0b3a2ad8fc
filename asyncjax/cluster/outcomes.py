"""What a schedule achieves: progress, completion, utility and use of the machines.

A schedule is counted by the samples its units really train (`samples_trained`), never by what the
rule that made it promised. Everything here is plain NumPy in double precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.cluster.checked_jobs import checked_machines, checked_schedule
from asyncjax.cluster.machines_and_jobs import Jobs, Machines, Schedule
from asyncjax.cluster.throughput import trained
from asyncjax.cluster.utility import job_utility

ROUNDING = 1e-6  # share of the samples that may be missing


class Outcome(NamedTuple):
    """A schedule in numbers; `outcome` makes it.

    Attributes:
        utility: Total utility of the jobs that complete.
        completed: How many jobs do.
        admitted: How many were admitted.
        mean_slots: Mean slots from arrival to completion, both counted, of the jobs that complete;
            NaN if none does.
        median_slots: Their median. Rules that finish only short jobs look good here.
        mean_slots_of_all: Mean with every unfinished job set to `n_slots`: the honest figure.
        median_slots_of_all: Its median.
        utilisation: float64[R], share of each resource in use, over all slots and machines.
        wasted: Share of the used unit-slots that come after their job's completion, or belong to
            jobs that never complete.
    """

    utility: float
    completed: int
    admitted: int
    mean_slots: float
    median_slots: float
    mean_slots_of_all: float
    median_slots_of_all: float
    utilisation: np.ndarray  # float64[R]
    wasted: float


def progress(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """Computes how many samples each job has trained by the end of each slot.

    Formula: the sum over slots up to `t` of `W / (tau + (W/S) 2 g / (b F))`.

    Args:
        schedule: Any schedule.
        jobs: Its jobs.

    Returns:
        float64[N, T], samples; not cut where a job is done.

    Raises:
        TypeError: If `schedule` or `jobs` are of another kind.
        ValueError: If they make no sense, or do not fit.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> cluster.progress(schedule, jobs)[0].round(2).tolist()
        [14.48, 28.96, 43.45, 43.45]
    """
    return _progress(*checked_schedule(schedule, jobs))


def completion(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """Finds the slot in which each job completes.

    Formula: the first slot by whose end the progress reaches `V (1 - 1e-6)`.

    Args:
        schedule: Any schedule.
        jobs: Its jobs.

    Returns:
        int64[N], -1 for jobs that never complete.

    Raises:
        TypeError: If `schedule` or `jobs` are of another kind.
        ValueError: If they make no sense, or do not fit.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> float(jobs.samples[0]), cluster.completion(schedule, jobs).tolist()
        (31.0, [2, -1, -1, -1])
    """
    return _completion(*checked_schedule(schedule, jobs))


def total_utility(schedule: Schedule, jobs: Jobs) -> float:
    """Sums the utility of the jobs that complete.

    Formula: `sum of u_i(completion_i - a_i)`; a job that never completes adds nothing.

    Args:
        schedule: Any schedule.
        jobs: Its jobs.

    Returns:
        The sum.

    Raises:
        TypeError: If `schedule` or `jobs` are of another kind.
        ValueError: If they make no sense, or do not fit.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> round(cluster.total_utility(schedule, jobs), 2)
        9.47
    """
    schedule, jobs = checked_schedule(schedule, jobs)
    return _total_utility(_completion(schedule, jobs), jobs)


def utilisation(schedule: Schedule, jobs: Jobs, machines: Machines) -> np.ndarray:
    """Computes which share of each resource is in use in each slot.

    Formula: `sum over jobs and machines of (alpha w + beta s) / sum of C`.

    Args:
        schedule: Any schedule.
        jobs: Its jobs.
        machines: Its machines.

    Returns:
        float64[T, R]; 0 for a resource that no machine has. Slots after a completion count as used.

    Raises:
        TypeError: If `schedule`, `jobs` or `machines` are of another kind.
        ValueError: If they make no sense, or do not fit.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> cluster.utilisation(schedule, jobs, machines)[0].round(3).tolist()
        [0.273, 0.375]
    """
    return _utilisation(*_checked(schedule, jobs, machines))


def resources_used(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """Adds up what all units take up: the load of every machine.

    Args:
        schedule: Any schedule.
        jobs: Its jobs.

    Returns:
        float64[T, H, R].

    Raises:
        TypeError: If `schedule` or `jobs` are of another kind.
        ValueError: If they make no sense, or do not fit.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> cluster.resources_used(schedule, jobs)[0].tolist()
        [[2.0, 4.0], [1.0, 2.0]]
    """
    return taken_up(*checked_schedule(schedule, jobs))


def taken_up(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """Adds up what `resources_used` does, of what is known to fit; float64[T, H, R]."""
    workers, servers = (np.asarray(x, np.float64) for x in (schedule.workers, schedule.servers))
    return np.einsum("nth,nr->thr", workers, jobs.worker) + np.einsum(
        "nth,nr->thr", servers, jobs.server
    )


def outcome(schedule: Schedule, jobs: Jobs, machines: Machines) -> Outcome:
    """Sums up a schedule.

    Args:
        schedule: Any schedule.
        jobs: Its jobs.
        machines: Its machines.

    Returns:
        Utility, completions and their times with and without the unfinished, use of the machines.

    Raises:
        TypeError: If `schedule`, `jobs` or `machines` are of another kind.
        ValueError: If they make no sense, or do not fit.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> found = cluster.outcome(schedule, jobs, machines)
        >>> found.completed, found.mean_slots, found.mean_slots_of_all, round(found.wasted, 3)
        (1, 3.0, 3.75, 0.571)
    """
    schedule, jobs, machines = _checked(schedule, jobs, machines)
    ends, n_slots = _completion(schedule, jobs), schedule.workers.shape[1]
    slots = ends - jobs.arrival + 1
    finished, of_all = slots[ends >= 0], np.where(ends >= 0, slots, n_slots)
    units = (schedule.workers + schedule.servers).sum(-1)
    useful = np.arange(n_slots) <= ends[:, None]
    return Outcome(
        utility=_total_utility(ends, jobs),
        completed=int((ends >= 0).sum()),
        admitted=int(schedule.admitted.sum()),
        mean_slots=float(finished.mean()) if finished.size else float("nan"),
        median_slots=float(np.median(finished)) if finished.size else float("nan"),
        mean_slots_of_all=float(of_all.mean()),
        median_slots_of_all=float(np.median(of_all)),
        utilisation=_utilisation(schedule, jobs, machines).mean(0),
        wasted=float(1 - units[useful].sum() / max(units.sum(), 1)) if units.any() else 0.0,
    )


def _checked(schedule: Schedule, jobs: Jobs, machines: Machines) -> tuple[Schedule, Jobs, Machines]:
    """Reads a schedule with its jobs and machines."""
    schedule, jobs = checked_schedule(schedule, jobs)
    machines = checked_machines(machines, jobs.worker.shape[1])
    if schedule.workers.shape[2] != len(machines.capacity):
        raise ValueError(
            f"machines must be the {schedule.workers.shape[2]} of the schedule, got"
            f" {len(machines.capacity)}"
        )
    return schedule, jobs, machines


def _progress(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """Samples by the end of each slot, float64[N, T]."""
    return np.cumsum(trained(schedule.workers, schedule.servers, jobs), axis=1)


def _completion(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """Slots of completion, int64[N]; -1 for none."""
    done = _progress(schedule, jobs) >= (jobs.samples * (1 - ROUNDING))[:, None]
    return np.where(done.any(-1), done.argmax(-1), -1)


def _total_utility(ends: np.ndarray, jobs: Jobs) -> float:
    """Utility of the jobs that complete, from the slots int64[N] in which they do."""
    worth = job_utility(jobs.utility, ends - jobs.arrival)
    return float(np.where(ends >= 0, worth, 0.0).sum())


def _utilisation(schedule: Schedule, jobs: Jobs, machines: Machines) -> np.ndarray:
    """Shares in use, float64[T, R]."""
    total = machines.capacity.sum(0)
    used = taken_up(schedule, jobs).sum(1)
    return np.where(total > 0, used / np.where(total > 0, total, 1.0), 0.0)
