"""What a schedule achieves, whether it is valid, and the clocks that its jobs run on.

A schedule is counted by the samples its units really train (`samples_trained`), never by what the
rule that made it promised. A valid one, as every scheduler's output must be, has

    whole numbers >= 0;     sum_i alpha_i w + beta_i s <= C for every machine, resource and slot;
    sum_h w <= F;     sum_h w <= gamma sum_h s;     nothing before the arrival or unless admitted.

A job is done in the first slot by whose end it has trained all but a millionth of its samples.
Everything here is plain NumPy in double precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax import clocks
from asyncjax.checks import real, whole
from asyncjax.cluster.jobs import (
    Jobs,
    Machines,
    Schedule,
    checked_jobs,
    checked_machines,
    checked_schedule,
    job_utility,
    trained,
)

ROUNDING = 1e-6  # share of the samples that may be missing
_SLACK = 1e-6  # by which a valid schedule may exceed a limit


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
    utilisation: np.ndarray
    wasted: float


def progress(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """Computes how many samples each job has trained by the end of each slot.

    Formula: the sum over slots up to `t` of `W / (tau + (W/S) 2 g / (b F))`.

    Args:
        schedule: Any schedule.
        jobs: Its jobs.

    Returns:
        float64[N, T], samples; not cut where a job is done.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> cluster.progress(schedule, jobs)[0].round(2).tolist()
        [14.48, 28.96, 43.45, 43.45]
    """
    schedule, jobs = checked_schedule(schedule, jobs)
    return np.cumsum(trained(schedule.workers, schedule.servers, jobs), axis=1)


def completion(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """Finds the slot in which each job completes.

    Formula: the first slot by whose end the progress reaches `V (1 - 1e-6)`.

    Args:
        schedule, jobs: As in `progress`.

    Returns:
        int64[N], -1 for jobs that never complete.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> float(jobs.samples[0]), cluster.completion(schedule, jobs).tolist()
        (31.0, [2, -1, -1, -1])
    """
    return _ends(*checked_schedule(schedule, jobs))[0]


def total_utility(schedule: Schedule, jobs: Jobs) -> float:
    """Sums the utility of the jobs that complete.

    Formula: `sum of u_i(completion_i - a_i)`; a job that never completes adds nothing.

    Args:
        schedule, jobs: As in `progress`.

    Returns:
        The sum.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> round(cluster.total_utility(schedule, jobs), 2)
        9.47
    """
    return float(_ends(*checked_schedule(schedule, jobs))[1].sum())


def utilisation(schedule: Schedule, jobs: Jobs, machines: Machines) -> np.ndarray:
    """Computes which share of each resource is in use in each slot.

    Formula: `sum over jobs and machines of (alpha w + beta s) / sum of C`.

    Args:
        schedule, jobs: As in `progress`.
        machines: Its machines.

    Returns:
        float64[T, R]; 0 for a resource that no machine has. Slots after a completion count as used.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> cluster.utilisation(schedule, jobs, machines)[0].round(3).tolist()
        [0.273, 0.375]
    """
    return _shares(*_checked(schedule, jobs, machines))


def resources_used(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """Adds up what all units take up: the load of every machine.

    Args:
        schedule, jobs: As in `progress`.

    Returns:
        float64[T, H, R].

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> cluster.resources_used(schedule, jobs)[0].tolist()
        [[2.0, 4.0], [1.0, 2.0]]
    """
    return _load(*checked_schedule(schedule, jobs))


def outcome(schedule: Schedule, jobs: Jobs, machines: Machines) -> Outcome:
    """Sums up a schedule.

    Args:
        schedule, jobs, machines: As in `utilisation`.

    Returns:
        Utility, completions and their times with and without the unfinished, use of the machines.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> found = cluster.outcome(schedule, jobs, machines)
        >>> found.completed, found.mean_slots, found.mean_slots_of_all, round(found.wasted, 3)
        (1, 3.0, 3.75, 0.571)
    """
    schedule, jobs, machines = _checked(schedule, jobs, machines)
    (ends, worth), n_slots = _ends(schedule, jobs), schedule.workers.shape[1]
    slots = ends - jobs.arrival + 1
    finished, of_all = slots[ends >= 0], np.where(ends >= 0, slots, n_slots)
    units = (schedule.workers + schedule.servers).sum(-1)
    useful = np.arange(n_slots) <= ends[:, None]
    return Outcome(
        utility=float(worth.sum()),
        completed=int((ends >= 0).sum()),
        admitted=int(schedule.admitted.sum()),
        mean_slots=float(finished.mean()) if finished.size else float("nan"),
        median_slots=float(np.median(finished)) if finished.size else float("nan"),
        mean_slots_of_all=float(of_all.mean()),
        median_slots_of_all=float(np.median(of_all)),
        utilisation=_shares(schedule, jobs, machines).mean(0),
        wasted=float(1 - units[useful].sum() / max(units.sum(), 1)) if units.any() else 0.0,
    )


def check(schedule: Schedule, jobs: Jobs, machines: Machines) -> list[str]:
    """Lists every rule that a schedule breaks.

    Args:
        schedule, jobs, machines: As in `utilisation`.

    Returns:
        One line a violation: which rule, which job or machine, which slot, by how much. Empty if
        the schedule is valid.

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
    jobs = checked_jobs(jobs)
    machines = checked_machines(machines, jobs.worker.shape[1])
    schedule = Schedule(*(np.asarray(field) for field in schedule))
    n_slots = schedule.workers.shape[1] if schedule.workers.ndim == 3 else 1
    shape = (len(jobs.arrival), n_slots, len(machines.capacity))
    wrong = [
        f"shape: {name} is {value.shape}, and must be {allowed}"
        for name, value in schedule._asdict().items()
        if value.shape != (allowed := shape if name in ("workers", "servers") else shape[:1])
    ]
    if wrong:
        return wrong
    for name, units in (("workers", schedule.workers), ("servers", schedule.servers)):
        bad = ~np.isfinite(units) | (units < 0) | (units != np.floor(units))
        wrong += [
            f"whole numbers: job {i} has {units[i, t, h]} {name} in slot {t} on machine {h}"
            for i, t, h in np.argwhere(bad)
        ]
    excess = _load(schedule, jobs) - machines.capacity
    wrong += [
        f"capacity: machine {h} exceeds resource {r} in slot {t} by {excess[t, h, r]:g}"
        for t, h, r in np.argwhere(excess > _SLACK)
    ]
    workers, servers = schedule.workers.sum(-1), schedule.servers.sum(-1)
    units = (schedule.workers + schedule.servers).sum(-1)
    over = workers - jobs.batch[:, None]
    unserved = workers - jobs.workers_per_server[:, None] * servers
    early = np.arange(n_slots) < jobs.arrival[:, None]
    outside = ~schedule.admitted.astype(bool)[:, None]
    wrong += [
        f"batch: job {i} exceeds its batch in slot {t} by {over[i, t]:g} workers"
        for i, t in np.argwhere(over > 0)
    ]
    wrong += [
        f"servers: job {i} has {unserved[i, t]:g} workers too many for its servers in slot {t}"
        for i, t in np.argwhere(unserved > _SLACK)
    ]
    wrong += [
        f"before arrival: job {i} has {units[i, t]:g} units in slot {t}, and arrives in slot"
        f" {jobs.arrival[i]}"
        for i, t in np.argwhere((units != 0) & early)
    ]
    wrong += [
        f"admission: job {i} has {units[i, t]:g} units in slot {t}, and is not admitted"
        for i, t in np.argwhere((units != 0) & outside)
    ]
    return wrong


def clock_of(schedule: Schedule, jobs: Jobs, job: int, *, samples: float = 1.0) -> clocks.Clock:
    """Makes the clock of a job as it is scheduled, so that its training can be simulated.

    Formula: in slot t, with W workers, S servers and links of rate b, a sample costs each worker
    `rho_t = tau + (W/S) 2 g / (b F)` slots, the exchange included. A gradient of m samples is
    `m rho` of compute time with the fastest slot's rho; worker i < W has the power `rho / rho_t`
    in slot t, the others none. Workers that never stop train what the schedule is counted by.

    Args:
        schedule, jobs: As in `progress`.
        job: Which of them.
        samples: m, samples of a gradient, positive; batch / workers for the job's own batch.

    Returns:
        A clock with as many workers as the job has in its largest slot; its times are slots, and
        time 0 is the start of the slot of arrival. After the last scheduled slot no gradient
        returns.

    Note:
        `timelines`, and all that simulates with clocks, follow the slots; `durations` are those of
        the fastest slot.

    Example:
        >>> from asyncjax import cluster, traces
        >>> jobs, machines = cluster.workloads.tiny(1)
        >>> schedule = cluster.pd_ors(jobs, machines, n_slots=4, parts=8)
        >>> schedule.workers[1].sum(-1).tolist()
        [2, 0, 3, 0]
        >>> trace = traces.asynchronous(cluster.clock_of(schedule, jobs, 1), n_updates=45)
        >>> bool(2 < trace.time[-1] < 3)
        True
    """
    schedule, jobs = checked_schedule(schedule, jobs)
    index = whole("job", job, 0, len(jobs.arrival) - 1)
    samples = real("samples", samples, above=0)
    done = trained(schedule.workers, schedule.servers, jobs)[index, jobs.arrival[index] :]
    workers = schedule.workers[index, jobs.arrival[index] :].sum(-1)
    if not done.any():
        raise ValueError(f"job must train in some slot, got job {job}, which never does")
    rate = np.where(done > 0, done / np.maximum(workers, 1), 0.0)  # samples a worker and slot
    present = np.arange(workers.max())[:, None] < workers
    power = np.append(present * rate / rate.max(), np.zeros((len(present), 1)), axis=1)
    compute = clocks.constant(np.full(len(present), samples / rate.max()))
    return clocks.with_speed(compute, np.ones(power.shape[1]), power, repeats=False)


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


def _ends(schedule: Schedule, jobs: Jobs) -> tuple[np.ndarray, np.ndarray]:
    """Slots of completion int64[N], -1 for none, and what they are worth float64[N]."""
    done = np.cumsum(trained(schedule.workers, schedule.servers, jobs), axis=1)
    complete = done >= (jobs.samples * (1 - ROUNDING))[:, None]
    ends = np.where(complete.any(-1), complete.argmax(-1), -1)
    return ends, np.where(ends >= 0, job_utility(jobs.utility, ends - jobs.arrival), 0.0)


def _load(schedule: Schedule, jobs: Jobs) -> np.ndarray:
    """What all units take up, float64[T, H, R]."""
    workers, servers = (np.asarray(x, np.float64) for x in (schedule.workers, schedule.servers))
    return np.einsum("nth,nr->thr", workers, jobs.worker) + np.einsum(
        "nth,nr->thr", servers, jobs.server
    )


def _shares(schedule: Schedule, jobs: Jobs, machines: Machines) -> np.ndarray:
    """Shares of the resources in use, float64[T, R]."""
    total = machines.capacity.sum(0)
    return _load(schedule, jobs).sum(1) / np.where(total > 0, total, np.inf)
