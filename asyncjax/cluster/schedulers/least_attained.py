"""Least attained service: whoever has been served least goes first, in a few queues.

    queue of a job = how many thresholds its workers, summed over slots, have passed

Jobs of a lower queue go before those of a higher one, and in a queue in order of arrival; the
division is made anew in every slot, so a job can be put off. Short jobs finish early although
nobody knows which are short. After Gu, Chowdhury, Shin, Zhu, Jeon, Qian, Liu and Guo, "Tiresias: a
GPU cluster manager for distributed deep learning" (NSDI 2019), discretised two-dimensional LAS; the
adaptation to workers and servers is our own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asyncjax.checks import shown, within
from asyncjax.cluster.checked_jobs import host_floats
from asyncjax.cluster.machines_and_jobs import Data, Jobs, Machines, Schedule
from asyncjax.cluster.schedulers.placement import Placement, fixed_crews
from asyncjax.cluster.schedulers.slot_rules import Held, Now, SlotRule, play_slots


def least_attained(
    jobs: Jobs,
    machines: Machines,
    *,
    n_slots: int,
    thresholds: Sequence[float] = (400.0,),
    workers: Data | None = None,
) -> Schedule:
    """Schedules the jobs first that have been served least.

    Formula: sort by (number of thresholds that `sum over slots of W` has passed, arrival); each
    takes its workers, if they fit, before the next.

    Args:
        jobs: The jobs.
        machines: The machines.
        n_slots: T.
        thresholds: Ends of the queues, worker-slots, rising; none for order of arrival.
        workers: int[N], what each job asks for, all or nothing, such as `jobs.asked` of recorded
            ones; None to let each grow, up to its batch, as far as there is room.

    Returns:
        The schedule; `admitted` are the jobs that got units, `payoff` is 0.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If jobs and machines make no sense or do not fit, thresholds do not rise, or
            `workers` is not one whole number of at least 1 for each job.

    Note:
        The paper's jobs run with the GPUs they ask for; here they are elastic unless `workers` is
        given, so `jobs.asked` is ignored by default; work left and utility are by design.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.least_attained(jobs, machines, n_slots=4, thresholds=[4.0])
        >>> cluster.check(schedule, jobs, machines)
        []

    Reference:
        Gu et al., NSDI 2019, section 3.
    """
    limits = within("thresholds", host_floats("thresholds", thresholds))
    if limits.ndim != 1 or not (np.diff(limits) > 0).all() or not (limits > 0).all():
        raise ValueError(f"thresholds must be positive and rise, got {shown(thresholds)}")
    crews = None if workers is None else fixed_crews(jobs, workers)

    def make_rule(jobs: Jobs, machines: Machines) -> SlotRule:
        def rule(_: Held, now: Now) -> Held:
            placement = Placement(jobs, machines)
            queue = (now.attained[:, None] >= limits).sum(-1)
            waiting = np.flatnonzero(now.active)
            for job in waiting[np.argsort(queue[waiting], kind="stable")]:
                if crews is not None:
                    placement.place(job, int(crews[0][job]), int(crews[1][job]))
                    continue
                placement.pointer = 0
                while placement.grow(job):
                    pass
            return placement.held

        return rule

    return play_slots(make_rule, jobs, machines, n_slots=n_slots)
