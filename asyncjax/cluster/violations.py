"""Whether a schedule keeps the rules of the model; every scheduler's output must.

whole numbers >= 0;     sum_i alpha_i w + beta_i s <= C for every machine, resource and slot;
sum_h w <= F;     sum_h w <= gamma sum_h s;     nothing before the arrival or unless admitted.
"""

from __future__ import annotations

import numpy as np

from asyncjax.checks import instance
from asyncjax.cluster.checked_jobs import checked_jobs, checked_machines, host_floats
from asyncjax.cluster.machines_and_jobs import Jobs, Machines, Schedule
from asyncjax.cluster.outcomes import taken_up

_SLACK = 1e-6


def check(schedule: Schedule, jobs: Jobs, machines: Machines) -> list[str]:
    """Lists every rule that a schedule breaks.

    Args:
        schedule: Any schedule of these jobs on these machines.
        jobs: Its jobs.
        machines: Its machines.

    Returns:
        One line a violation: which rule, which job or machine, which slot, by how much. Empty if
        the schedule is valid.

    Raises:
        TypeError: If an argument is of another kind, or units are not made of numbers.
        ValueError: If jobs and machines make no sense.

    Example:
        >>> import numpy as np
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> units = np.zeros((4, 4, 2), np.int32)
        >>> units[3, :, 0] = 1
        >>> schedule = cluster.Schedule(units, units, np.ones(4, bool), np.zeros(4))
        >>> cluster.check(schedule, jobs, machines)
        ['before arrival: job 3 has 2 units in slot 0, and arrives in slot 1']
    """
    instance("schedule", schedule, Schedule, "a cluster.Schedule")
    for name in ("workers", "servers"):
        host_floats(name, getattr(schedule, name))
    workers, servers = np.asarray(schedule.workers), np.asarray(schedule.servers)
    n_slots = workers.shape[1] if workers.ndim == 3 else 1
    jobs = checked_jobs(jobs)
    machines = checked_machines(machines, jobs.worker.shape[1])
    shape = (len(jobs.arrival), n_slots, len(machines.capacity))
    wrong = [
        f"shape: {name} is {value.shape}, and must be {allowed}"
        for name, value, allowed in (
            ("workers", workers, shape),
            ("servers", servers, shape),
            ("admitted", np.asarray(schedule.admitted), shape[:1]),
            ("payoff", np.asarray(schedule.payoff), shape[:1]),
        )
        if value.shape != allowed
    ]
    if wrong:
        return wrong
    return [
        *_units(workers, "workers"),
        *_units(servers, "servers"),
        *_capacity(schedule, jobs, machines),
        *_crews(workers.sum(-1), servers.sum(-1), jobs),
        *_presence((workers + servers).sum(-1), np.asarray(schedule.admitted), jobs),
    ]


def _units(units: np.ndarray, name: str) -> list[str]:
    """Units are whole numbers of at least 0."""
    bad = ~np.isfinite(units) | (units < 0) | (units != np.floor(units))
    return [
        f"whole numbers: job {i} has {units[i, t, h]} {name} in slot {t} on machine {h}"
        for i, t, h in np.argwhere(bad)
    ]


def _capacity(schedule: Schedule, jobs: Jobs, machines: Machines) -> list[str]:
    """Units fit on their machines."""
    excess = taken_up(schedule, jobs) - machines.capacity
    return [
        f"capacity: machine {h} exceeds resource {r} in slot {t} by {excess[t, h, r]:g}"
        for t, h, r in np.argwhere(excess > _SLACK)
    ]


def _crews(workers: np.ndarray, servers: np.ndarray, jobs: Jobs) -> list[str]:
    """No more workers than samples in a batch, nor than the servers can serve."""
    over = workers - jobs.batch[:, None]
    unserved = workers - jobs.workers_per_server[:, None] * servers
    return [
        *(
            f"batch: job {i} exceeds its batch in slot {t} by {over[i, t]:g} workers"
            for i, t in np.argwhere(over > 0)
        ),
        *(
            f"servers: job {i} has {unserved[i, t]:g} workers too many for its servers in slot {t}"
            for i, t in np.argwhere(unserved > _SLACK)
        ),
    ]


def _presence(units: np.ndarray, admitted: np.ndarray, jobs: Jobs) -> list[str]:
    """Only admitted jobs have units, and none before it arrives."""
    slots = np.arange(units.shape[1])
    early = (units != 0) & (slots < jobs.arrival[:, None])
    outside = (units != 0) & ~admitted.astype(bool)[:, None]
    return [
        *(
            f"before arrival: job {i} has {units[i, t]:g} units in slot {t}, and arrives in slot "
            f"{jobs.arrival[i]}"
            for i, t in np.argwhere(early)
        ),
        *(
            f"admission: job {i} has {units[i, t]:g} units in slot {t}, and is not admitted"
            for i, t in np.argwhere(outside)
        ),
    ]
