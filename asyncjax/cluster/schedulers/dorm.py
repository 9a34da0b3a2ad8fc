"""Dorm: jobs keep what they hold; when something changes, a few are divided anew.

When a job ends or one has nothing, the share `resize` of the running jobs with the largest dominant
shares is taken down; they and the waiting ones grow, first up to a fair share less `slack`, then as
far as there is room. After Sun et al., "Towards distributed machine learning in
shared clusters: a dynamically-partitioned approach" (SMARTCOMP 2017); a reconstruction of our own.
"""

from __future__ import annotations

import numpy as np

from asyncjax.checks import real
from asyncjax.cluster.machines_and_jobs import Jobs, Machines, Schedule
from asyncjax.cluster.schedulers.placement import Placement
from asyncjax.cluster.schedulers.slot_rules import Held, Now, SlotRule, play_slots


def dorm(
    jobs: Jobs, machines: Machines, *, n_slots: int, resize: float = 0.1, slack: float = 0.1
) -> Schedule:
    """Schedules jobs with allocations that persist and are adjusted a little at a time.

    Formula: `n = max(1, ceil(resize max(1, running)))` running jobs are taken down; fair share
    `(1 - slack) / (arrived and unfinished)`.

    Args:
        jobs: The jobs.
        machines: The machines.
        n_slots: T.
        resize: Share of the running jobs that may be adjusted at once, from 0 to 1.
        slack: By how much of a fair share the first phase stays below it, from 0 to 1.

    Returns:
        The schedule; `admitted` are the jobs that got units, `payoff` is 0.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If jobs and machines make no sense or do not fit, or a share is outside 0 .. 1.

    Note:
        A job grows as far as there is room, up to its batch: what it asks for (`jobs.asked`) is
        ignored by design, and so is its utility.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.dorm(jobs, machines, n_slots=4)
        >>> round(cluster.total_utility(schedule, jobs), 3)
        14.668

    Reference:
        Sun et al., SMARTCOMP 2017.
    """
    resize = real("resize", resize, least=0, most=1)
    slack = real("slack", slack, least=0, most=1)

    def make_rule(jobs: Jobs, machines: Machines) -> SlotRule:
        size = (jobs.worker / np.maximum(machines.capacity.sum(0), np.finfo(float).tiny)).sum(-1)

        def rule(held: Held, now: Now) -> Held:
            holding = (held.workers + held.servers).any(-1)
            waiting = np.flatnonzero(now.active & ~holding)
            if not now.ended and waiting.size == 0:
                return held
            placement = Placement(jobs, machines, held)
            running = np.flatnonzero(now.active & holding)
            shares = np.array([placement.dominant_share(job) for job in running])
            n_adjusted = max(1, int(np.ceil(resize * max(1, running.size))))
            adjusted = running[np.argsort(-shares, kind="stable")][:n_adjusted]
            for job in adjusted:
                placement.clear(job)
            order = np.concatenate([adjusted, waiting])
            fair = (1 - slack) / max(1, now.active.sum())
            by_size = order[np.argsort(-size[order], kind="stable")]
            _grow(placement, order, by_size, fair)
            return placement.held

        return rule

    return play_slots(make_rule, jobs, machines, n_slots=n_slots)


def _grow(placement: Placement, order: np.ndarray, by_size: np.ndarray, fair: float) -> None:
    """Lets jobs grow to a fair share in one order, then as far as possible in another."""
    for jobs, share in ((order, fair), (by_size, np.inf)):
        for job in jobs:
            while placement.dominant_share(job) < share and placement.grow(job):
                pass
