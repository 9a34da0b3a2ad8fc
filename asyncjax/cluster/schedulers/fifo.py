"""FIFO: jobs in order of arrival, each with the workers its owner asked for; the first blocks."""

from __future__ import annotations

import numpy as np

from asyncjax.cluster.checked_jobs import checked_jobs
from asyncjax.cluster.machines_and_jobs import Data, Jobs, Machines, Schedule
from asyncjax.cluster.schedulers.placement import Placement, fixed_crews
from asyncjax.cluster.schedulers.slot_rules import Held, Now, SlotRule, play_slots


def fifo(jobs: Jobs, machines: Machines, *, n_slots: int, workers: Data | None = None) -> Schedule:
    """Schedules jobs in order of arrival with fixed numbers of workers, kept until they are done.

    Formula: job i runs `w = min(workers_i, F)` workers and `ceil(w / gamma)` servers.

    Args:
        jobs: The jobs.
        machines: The machines.
        n_slots: T.
        workers: int[N], what each job asks for; None for `jobs.asked`, which recorded jobs have:
            the GPUs of their table. For others `workloads.fixed_workers` draws some. The result
            depends wholly on it.

    Returns:
        The schedule; `admitted` are the jobs that got units, `payoff` is 0.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If jobs and machines make no sense or do not fit, `workers` is not one whole
            number of at least 1 for each job, or it is None where a job does not say what it asks
            for.

    Note:
        It is the one scheduler here that goes by what was asked for: a job never runs with fewer
        workers, nor with more than its batch. All others choose the numbers themselves.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> schedule.workers[:2].sum(-1).tolist()
        [[2, 2, 2, 0], [0, 2, 2, 2]]
    """
    crew, helpers = fixed_crews(jobs, _asked(jobs) if workers is None else workers)

    def make_rule(jobs: Jobs, machines: Machines) -> SlotRule:
        def rule(held: Held, now: Now) -> Held:
            placement = Placement(jobs, machines, held)
            for job in np.flatnonzero(now.active):
                waits = not held.servers[job].any()
                if waits and not placement.place(job, crew[job], helpers[job]):
                    break
            return placement.held

        return rule

    return play_slots(make_rule, jobs, machines, n_slots=n_slots)


def _asked(jobs: Jobs) -> Data:
    """What the jobs say that they ask for, int64[N]; all must say it."""
    asked = checked_jobs(jobs).asked
    unknown = np.flatnonzero(asked == 0)
    if unknown.size:
        raise ValueError(
            "workers must be given where jobs do not say how many they ask for (asked), got None"
            f" and nothing known of job {unknown[0]}"
        )
    return asked
