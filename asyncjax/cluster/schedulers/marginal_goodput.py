"""Marginal goodput: the next unit goes where it helps a job most for what it takes up.

    time of a job = samples left / rate,     rate = W / (tau + (W/S) 2 g / (b F))
    worth of a step (a worker, a server, or both) = gain(time now, time after) / its dominant share

with the rate as if the job were spread over machines. Two gains are here: `time_saved`, the rule of
Peng, Bao, Chen, Wu and Guo, "Optimus: an efficient dynamic resource scheduler for deep learning
clusters" (EuroSys 2018), which measures rates where we know them; and `speed_gained`, the share of
the rest of a job that is done a slot, which finishes short jobs first and does far better where not
all can finish.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from asyncjax.checks import function
from asyncjax.cluster.machines_and_jobs import Jobs, Machines, Schedule
from asyncjax.cluster.schedulers.placement import Index, Placement
from asyncjax.cluster.schedulers.slot_rules import Held, Now, SlotRule, check_units, play_slots

Gain = Callable[[float, float], float]

_STEPS = ((1, 0), (0, 1), (1, 1))  # workers and servers that are added together


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

    Formula: the step with the largest `gain(time now, time after) / dominant share` goes first,
    where it fits, keeps `W <= F` and `W <= gamma S`, and gains anything; the lowest index on ties.

    Args:
        jobs: The jobs.
        machines: The machines.
        n_slots: T.
        gain: What a step is worth, `(slots before, slots after) -> float`: `speed_gained`,
            `time_saved` or another.

    Returns:
        The schedule; `admitted` are the jobs that got units, `payoff` is 0.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If jobs and machines make no sense or do not fit, or `gain` returns no number.

    Note:
        It knows the work that is left of every job; their utility and what they ask for
        (`jobs.asked`) are ignored by design. Since it divides
        anew in every slot, where rules of admission keep their word, it earns more than `pd_ors` on
        the preset `balanced`, also with a tuned price floor.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(2)
        >>> schedule = cluster.marginal_goodput(jobs, machines, n_slots=4, gain=time_saved)
        >>> cluster.check(schedule, jobs, machines)
        []

    Reference:
        Peng et al., EuroSys 2018, section 4.1.
    """
    function("gain", gain, "a function (slots before, slots after) -> float")

    def make_rule(jobs: Jobs, machines: Machines) -> SlotRule:
        check_units(jobs, machines, np.full(len(jobs.batch), np.inf))
        exchange = 2 * jobs.gradient / (jobs.link_across * jobs.batch)

        def worths(placement: Placement, job: Index, left: float) -> np.ndarray:
            """Worth of every step float64[3]; -inf for those that may not be."""
            workers, servers = int(placement.workers[job].sum()), int(placement.servers[job].sum())

            def time(workers: int, servers: int) -> float:
                return left * float(jobs.compute[job] / workers + exchange[job] / servers)

            found = np.full(len(_STEPS), -np.inf)
            for index, (more, helpers) in enumerate(_STEPS):
                after = workers + more, servers + helpers
                most = min(jobs.batch[job], jobs.workers_per_server[job] * after[1])
                if after[0] <= most:
                    use = more * jobs.worker[job] + helpers * jobs.server[job]
                    helps = _worth(gain, time(workers, servers), time(*after))
                    found[index] = helps / (use / placement.total).max()
            return found

        return lambda _, now: _divide(Placement(jobs, machines), now, worths)

    return play_slots(make_rule, jobs, machines, n_slots=n_slots)


def _worth(gain: Gain, before: float, after: float) -> float:
    """What a step is worth by a person's own rule."""
    worth = gain(before, after)
    is_number = isinstance(worth, float | int | np.floating) and not isinstance(worth, bool)
    if not is_number or np.isnan(worth):
        raise ValueError(
            f"gain must return a number, got {worth!r} for the times {before:g} and {after:g}"
        )
    return float(worth)


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
