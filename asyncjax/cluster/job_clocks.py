"""The clock of a scheduled job: from machines in slots to times of workers.

In slot t of its schedule the job has W_t workers, and a sample costs each of them

    rho_t = tau + (W_t/S_t) 2 g / (b_t F)     slots, exchange with the servers included,

with b_t the rate inside a machine or across machines, as its units stand. So worker i < W_t has the
power rho / rho_t in slot t, relative to the fastest slot's rho, and the others have none. Workers
that never stop then train exactly the samples that the schedule is counted by.
"""

from __future__ import annotations

import numpy as np

from asyncjax import clocks
from asyncjax.checks import real, whole
from asyncjax.cluster.checked_jobs import checked_schedule
from asyncjax.cluster.machines_and_jobs import Jobs, Schedule
from asyncjax.cluster.throughput import trained


def clock_of(schedule: Schedule, jobs: Jobs, job: int, *, samples: float = 1.0) -> clocks.Clock:
    """Makes the clock of a job as it is scheduled, so that its training can be simulated.

    Formula: a gradient of m samples is `m rho` of compute time, done at the power `rho / rho_t` in
    slot t.

    Args:
        schedule: Any schedule.
        jobs: Its jobs.
        job: Which of them.
        samples: m, samples of a gradient, positive; batch / workers for the job's own batch.

    Returns:
        A clock with as many workers as the job has in its largest slot; its times are slots, and
        time 0 is the start of the slot of arrival. After the last scheduled slot no gradient
        returns.

    Raises:
        TypeError: If `schedule` or `jobs` are of another kind, or `job` is no integer.
        ValueError: If there is no such job, it never trains, `samples` is not positive, or schedule
            and jobs do not fit.

    Note:
        Times of the links are part of the compute time: they depend on the slot, and a sample bears
        its share of the exchange. `timelines`, and all that simulates with clocks, follow the
        slots; `durations` are those of the fastest slot.

    Example:
        >>> from asyncjax import cluster, traces
        >>> jobs, machines = cluster.workloads.tiny(1)
        >>> schedule = cluster.pd_ors(jobs, machines, n_slots=4, parts=8)
        >>> schedule.workers[1].sum(-1).tolist(), float(jobs.samples[1])
        ([2, 0, 3, 0], 45.0)
        >>> clock = cluster.clock_of(schedule, jobs, 1)
        >>> trace = traces.asynchronous(clock, n_updates=45)
        >>> clock.n_workers, bool(2 < trace.time[-1] < 3)
        (3, True)
    """
    schedule, jobs = checked_schedule(schedule, jobs)
    index = whole("job", job, 0, len(jobs.arrival) - 1)
    samples = real("samples", samples, above=0)
    done = trained(schedule.workers, schedule.servers, jobs)[index]
    workers = schedule.workers[index].sum(-1)
    done, workers = (x[jobs.arrival[index] :] for x in (done, workers))
    if not done.any():
        raise ValueError(f"job must train in some slot, got job {job}, which never does")
    rate = np.where(done > 0, done / np.maximum(workers, 1), 0.0)  # samples a worker and slot
    present = np.arange(workers.max())[:, None] < workers
    power = np.append(present * rate / rate.max(), np.zeros((len(present), 1)), axis=1)
    compute = clocks.constant(np.full(len(present), samples / rate.max()))
    return clocks.with_speed(compute, np.ones(power.shape[1]), power, repeats=False)
