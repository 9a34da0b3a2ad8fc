"""Schedulers without prices, which divide the machines anew in every slot: rivals of PD-ORS.

All are reconstructions: the adaptation to workers and servers is our own. In their schedules
`admitted` are the jobs that got units, and `payoff` is 0. Only `fifo` goes by the workers that jobs
ask for (`jobs.asked`), never fewer, nor more than the batch; the others ignore that and the utility
of jobs by design, and choose the numbers themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from asyncjax.checks import real, shown, within
from asyncjax.cluster.jobs import Data, Jobs, Machines, Schedule
from asyncjax.cluster.schedulers.slot_rules import (
    Held,
    Index,
    Now,
    Placement,
    SlotRule,
    check_units,
    fixed_crews,
    play_slots,
)

Gain = Callable[[float, float], float]

_STEPS = ((1, 0), (0, 1), (1, 1))  # workers and servers that are added together


def fifo(jobs: Jobs, machines: Machines, *, n_slots: int, workers: Data | None = None) -> Schedule:
    """Schedules jobs in order of arrival with fixed numbers of workers, kept until they are done.

    Formula: job i runs `w = min(workers_i, F)` workers and `ceil(w / gamma)` servers; the first
    that does not fit blocks those behind it.

    Args:
        jobs, machines, n_slots: Jobs in order of arrival, machines, and the number of slots T.
        workers: int[N], what each job asks for; None for `jobs.asked`, which recorded jobs have:
            the GPUs of their table. For others `workloads.fixed_workers` draws some. The result
            depends wholly on it.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.fifo(jobs, machines, n_slots=4, workers=[2, 2, 2, 2])
        >>> schedule.workers[:2].sum(-1).tolist()
        [[2, 2, 2, 0], [0, 2, 2, 2]]
    """

    def make_rule(jobs: Jobs, machines: Machines) -> SlotRule:
        unknown = np.flatnonzero(jobs.asked == 0)
        if workers is None and unknown.size:
            raise ValueError(
                "workers must be given where jobs do not say how many they ask for (asked), got"
                f" None and nothing known of job {unknown[0]}"
            )
        crew, helpers = fixed_crews(jobs, jobs.asked if workers is None else workers)

        def rule(held: Held, now: Now) -> Held:
            placement = Placement(jobs, machines, held)
            for job in np.flatnonzero(now.active):
                waits = not held.servers[job].any()
                if waits and not placement.place(job, crew[job], helpers[job]):
                    break
            return placement.held

        return rule

    return play_slots(make_rule, jobs, machines, n_slots=n_slots)


def drf(jobs: Jobs, machines: Machines, *, n_slots: int) -> Schedule:
    """Schedules jobs by dominant resource fairness.

    Formula: repeat: one worker, with a server if needed, to the job with the smallest dominant
    share (lowest index on ties) that has fewer than F workers and for which there is room. The
    share is `max over r of what it holds of r / what all machines have of r`.

    Args:
        jobs, machines, n_slots: As in `fifo`.

    Returns:
        The schedule, as `fifo`.

    Note:
        What a job asks for (`jobs.asked`) is ignored by design, and so is its utility.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.drf(jobs, machines, n_slots=4)
        >>> round(cluster.total_utility(schedule, jobs), 3)
        14.668

    Reference:
        Ghodsi, Zaharia, Hindman, Konwinski, Shenker and Stoica, "Dominant resource fairness",
        NSDI 2011, Algorithm 1.
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


def dorm(
    jobs: Jobs, machines: Machines, *, n_slots: int, resize: float = 0.1, slack: float = 0.1
) -> Schedule:
    """Schedules jobs with allocations that persist and are adjusted a little at a time.

    When a job ends or one has nothing, the share `resize` of the running jobs with the largest
    dominant shares is taken down; they and the waiting ones grow, first up to a fair share less
    `slack`, then as far as there is room.

    Formula: `n = max(1, ceil(resize max(1, running)))` running jobs are taken down; fair share
    `(1 - slack) / (arrived and unfinished)`.

    Args:
        jobs, machines, n_slots: As in `fifo`.
        resize: Share of the running jobs that may be adjusted at once, from 0 to 1.
        slack: By how much of a fair share the first phase stays below it, from 0 to 1.

    Returns:
        The schedule, as `fifo`.

    Note:
        What a job asks for (`jobs.asked`) is ignored by design, and so is its utility.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.dorm(jobs, machines, n_slots=4)
        >>> round(cluster.total_utility(schedule, jobs), 3)
        14.668

    Reference:
        Sun et al., "Towards distributed machine learning in shared clusters: a
        dynamically-partitioned approach", SMARTCOMP 2017.
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
            for jobs_in_turn, share in ((order, fair), (by_size, np.inf)):
                for job in jobs_in_turn:
                    while placement.dominant_share(job) < share and placement.grow(job):
                        pass
            return placement.held

        return rule

    return play_slots(make_rule, jobs, machines, n_slots=n_slots)


def least_attained(
    jobs: Jobs,
    machines: Machines,
    *,
    n_slots: int,
    thresholds: Sequence[float] = (400.0,),
    workers: Data | None = None,
) -> Schedule:
    """Schedules the jobs first that have been served least.

    Jobs of a lower queue go before those of a higher one, and in a queue in order of arrival; the
    division is made anew in every slot, so a job can be put off. Short jobs finish early although
    nobody knows which are short.

    Formula: sort by (number of thresholds that `sum over slots of W` has passed, arrival); each
    takes its workers, if they fit, before the next.

    Args:
        jobs, machines, n_slots: As in `fifo`.
        thresholds: Ends of the queues, worker-slots, rising; none for order of arrival.
        workers: int[N], what each job asks for, all or nothing, such as `jobs.asked` of recorded
            ones; None to let each grow, up to its batch, as far as there is room.

    Returns:
        The schedule, as `fifo`.

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
        Gu, Chowdhury, Shin, Zhu, Jeon, Qian, Liu and Guo, "Tiresias: a GPU cluster manager for
        distributed deep learning", NSDI 2019, section 3, discretised two-dimensional LAS.
    """
    limits = within("thresholds", np.asarray(thresholds, np.float64))
    if limits.ndim != 1 or not (np.diff(limits) > 0).all() or not (limits > 0).all():
        raise ValueError(f"thresholds must be positive and rise, got {shown(thresholds)}")

    def make_rule(jobs: Jobs, machines: Machines) -> SlotRule:
        crews = None if workers is None else np.stack(fixed_crews(jobs, workers), axis=1).tolist()

        def rule(_: Held, now: Now) -> Held:
            placement = Placement(jobs, machines)
            queue = (now.attained[:, None] >= limits).sum(-1)
            waiting = np.flatnonzero(now.active)
            for job in waiting[np.argsort(queue[waiting], kind="stable")]:
                if crews is not None:
                    placement.place(job, *crews[job])
                    continue
                placement.pointer = 0
                while placement.grow(job):
                    pass
            return placement.held

        return rule

    return play_slots(make_rule, jobs, machines, n_slots=n_slots)


def time_saved(before: float, after: float) -> float:
    """Values a step by the slots it saves, as Optimus does: large jobs count most.

    Example:
        >>> time_saved(8.0, 4.0)
        4.0
    """
    return before - after


def speed_gained(before: float, after: float) -> float:
    """Values a step by the share of the rest of a job that it adds a slot: short jobs count most.

    Example:
        >>> speed_gained(8.0, 4.0)
        0.125
    """
    return 1 / after - 1 / before


def marginal_goodput(
    jobs: Jobs, machines: Machines, *, n_slots: int, gain: Gain = speed_gained
) -> Schedule:
    """Schedules by marginal gains: one worker and one server each, then unit by unit to the best.

    Formula: the step (a worker, a server, or both) with the largest `gain(time now, time after) /
    dominant share` goes first, where it fits, keeps `W <= F` and `W <= gamma S`, and gains
    anything; the lowest index on ties. The time of a job is `samples left / rate`, at the rate
    `W / (tau + (W/S) 2 g / (b F))` as if it were spread over machines.

    Args:
        jobs, machines, n_slots: As in `fifo`.
        gain: What a step is worth, `(slots before, slots after) -> float`: `speed_gained`, which
            finishes short jobs first and does far better where not all can finish; `time_saved`,
            the rule of Optimus, which measures rates where we know them; or another.

    Returns:
        The schedule, as `fifo`.

    Note:
        It knows the work that is left of every job; their utility and what they ask for
        (`jobs.asked`) are ignored by design. Since it divides anew in every slot, where rules of
        admission keep their word, it earns more than `pd_ors` on the preset `balanced`.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.marginal_goodput(jobs, machines, n_slots=4, gain=time_saved)
        >>> cluster.check(schedule, jobs, machines)
        []

    Reference:
        Peng, Bao, Chen, Wu and Guo, "Optimus: an efficient dynamic resource scheduler for deep
        learning clusters", EuroSys 2018, section 4.1.
    """

    def make_rule(jobs: Jobs, machines: Machines) -> SlotRule:
        check_units(jobs, machines, np.full(len(jobs.batch), np.inf))
        exchange = 2 * jobs.gradient / (jobs.link_across * jobs.batch)

        def worths(placement: Placement, job: Index, left: float) -> np.ndarray:
            """Worth of every step float64[3]; -inf for those that may not be."""
            workers, servers = int(placement.workers[job].sum()), int(placement.servers[job].sum())

            def time(workers: int, servers: int) -> float:
                return left * float(jobs.compute[job] / workers + exchange[job] / servers)

            worth = np.full(len(_STEPS), -np.inf)
            for step, (more, helpers) in enumerate(_STEPS):
                after = workers + more, servers + helpers
                most = min(jobs.batch[job], jobs.workers_per_server[job] * after[1])
                if after[0] <= most:
                    use = more * jobs.worker[job] + helpers * jobs.server[job]
                    times = time(workers, servers), time(*after)
                    worth[step] = gain(*times) / (use / placement.total).max()
            return worth

        return lambda _, now: _divide(Placement(jobs, machines), now, worths)

    return play_slots(make_rule, jobs, machines, n_slots=n_slots)


def _divide(
    placement: Placement, now: Now, worths: Callable[[Placement, Index, float], np.ndarray]
) -> Held:
    """Gives every active job a worker and its servers, then the best steps while any fits."""
    table = np.full((len(now.active), len(_STEPS)), -np.inf)
    for job in np.flatnonzero(now.active):
        servers = int(np.ceil(1 / placement.jobs.workers_per_server[job] - 1e-9))
        if placement.place_next(job, 1, servers):
            table[job] = worths(placement, job, now.remaining[job])
    full = np.zeros(table.shape, bool)
    while True:
        best = int(np.where(full, -np.inf, table).argmax())
        job, step = divmod(best, len(_STEPS))
        if full[job, step] or not table[job, step] > 0:
            return placement.held
        if placement.place_next(job, *_STEPS[step]):
            table[job] = worths(placement, job, now.remaining[job])
        else:
            full[job, step] = True
