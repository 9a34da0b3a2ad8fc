"""DRF: dominant resource fairness, with the machines divided anew in every slot.

    dominant share of a job = max over r of what it holds of r / what all machines have of r

The job with the smallest share gets the next worker, until nobody can grow. After Ghodsi, Zaharia,
Hindman, Konwinski, Shenker and Stoica, "Dominant resource fairness" (NSDI 2011); the adaptation to
workers and servers is our own.
"""

from __future__ import annotations

import numpy as np

from asyncjax.cluster.machines_and_jobs import Jobs, Machines, Schedule
from asyncjax.cluster.schedulers.placement import Placement
from asyncjax.cluster.schedulers.slot_rules import Held, Now, SlotRule, play_slots


def drf(jobs: Jobs, machines: Machines, *, n_slots: int) -> Schedule:
    """Schedules jobs by dominant resource fairness.

    Formula: repeat: one worker, with a server if needed, to the job with the smallest dominant
    share (lowest index on ties) that has fewer than F workers and for which there is room.

    Args:
        jobs: The jobs.
        machines: The machines.
        n_slots: T.

    Returns:
        The schedule; `admitted` are the jobs that got units, `payoff` is 0.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If jobs and machines make no sense or do not fit.

    Note:
        A job grows as far as fairness and its batch allow: what it asks for (`jobs.asked`) is
        ignored by design, and so is its utility.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.drf(jobs, machines, n_slots=4)
        >>> round(cluster.total_utility(schedule, jobs), 3)
        14.668

    Reference:
        Ghodsi et al., NSDI 2011, Algorithm 1.
    """

    def make_rule(jobs: Jobs, machines: Machines) -> SlotRule:
        def rule(_: Held, now: Now) -> Held:
            placement = Placement(jobs, machines)
            shares = np.where(now.active, 0.0, np.inf)
            while np.isfinite(shares).any():
                job = int(shares.argmin())
                grown = placement.grow(job)
                shares[job] = placement.dominant_share(job) if grown else np.inf
            return placement.held

        return rule

    return play_slots(make_rule, jobs, machines, n_slots=n_slots)
