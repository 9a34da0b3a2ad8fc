"""Schedulers without prices, which divide the machines anew in every slot: rivals of PD-ORS.

A rule is a function `(held, now) -> held`: from what jobs held in the slot before, and from what is
known now, to what they hold in this slot. Jobs that are done hold nothing. Progress is real
progress (`samples_trained`). Everything is plain NumPy on the host: such rules put unit after unit
on machines, round and round (`Placement`).

All are reconstructions: the adaptation to workers and servers is our own. In their schedules
`admitted` are the jobs that got units, and `payoff` is 0. Only `fifo` goes by the workers that jobs
ask for (`jobs.asked`), never fewer, nor more than the batch; the others ignore that and the utility
of jobs by design, and choose the numbers themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from asyncjax.checks import real, shown, within
from asyncjax.cluster.jobs import Data, Jobs, Machines, Schedule, checked_cluster, trained

Index = int | np.integer

MOST_UNITS = 1_000_000  # in a slot; rules place them one by one
_LEFT = 1e-9  # a job with at most this share of its samples left is done
_SLACK = 1e-9
_STEPS = ((1, 0), (0, 1), (1, 1))  # workers and servers that are added together


class Held(NamedTuple):
    """Units that jobs hold in one slot: state and decision of a rule at once."""

    workers: np.ndarray  # int64[N, H]
    servers: np.ndarray  # int64[N, H]


class Now(NamedTuple):
    """What a rule knows at the start of a slot."""

    slot: int  # its number
    active: np.ndarray  # bool[N], jobs that have arrived and are not done
    ended: bool  # whether any job was done in the slot before
    remaining: np.ndarray  # float64[N], samples still to train
    attained: np.ndarray  # float64[N], service so far: workers held, summed over slots


SlotRule = Callable[[Held, Now], Held]
Gain = Callable[[float, float], float]


def play_slots(
    make_rule: Callable[[Jobs, Machines], SlotRule], jobs: Jobs, machines: Machines, *, n_slots: int
) -> Schedule:
    """Plays a rule slot by slot; refuses more than a million units that may stand in one slot.

    `make_rule` makes it for jobs and machines, which come checked, on the host. In the schedule
    `admitted` are the jobs that ever got a unit, and `payoff` is 0.

    Example:
        A rule that gives the first active job one worker and one server on machine 0:

        >>> import numpy as np
        >>> from asyncjax import cluster
        >>> def one_at_a_time(jobs, machines):
        ...     def rule(held, now):
        ...         units = np.zeros_like(held.workers)
        ...         units[np.argmax(now.active), 0] = now.active.any()
        ...         return Held(units, units)
        ...     return rule
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> schedule = play_slots(one_at_a_time, jobs, machines, n_slots=4)
        >>> schedule.workers.sum((1, 2)).tolist(), cluster.check(schedule, jobs, machines)
        ([4, 0, 0, 0], [])
    """
    jobs, machines = checked_cluster(jobs, machines, n_slots)
    check_units(jobs, machines, jobs.batch / jobs.workers_per_server)
    rule = make_rule(jobs, machines)
    shape = len(jobs.arrival), len(machines.capacity)
    held = Held(np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    workers = np.zeros((shape[0], n_slots, shape[1]), np.int32)
    servers = np.zeros_like(workers)
    remaining, attained = jobs.samples.copy(), np.zeros(shape[0])
    done = np.zeros(shape[0], bool)
    ended = False
    for slot in range(n_slots):
        active = (jobs.arrival <= slot) & ~done
        held = rule(held, Now(slot, active, ended, remaining.copy(), attained.copy()))
        np.copyto(workers[:, slot], held.workers, casting="same_kind")  # no fractions of units
        np.copyto(servers[:, slot], held.servers, casting="same_kind")
        remaining -= trained(*held, jobs)
        attained += held.workers.sum(-1)
        over = (remaining <= _LEFT * jobs.samples) & ~done
        ended, done = bool(over.any()), done | over
        held = Held(*(np.where(done[:, None], 0, units) for units in held))
    admitted = (workers + servers).any((1, 2))
    return Schedule(workers, servers, admitted, np.zeros(shape[0]))


def check_units(jobs: Jobs, machines: Machines, servers: np.ndarray) -> None:
    """Refuses demands so small that more than a million units may have to be placed in a slot.

    `servers` float64[N]: the most that a job may have, inf for as many as fit.
    """
    for name, demand, most in (
        ("worker", jobs.worker, jobs.batch),
        ("server", jobs.server, np.ceil(servers)),
    ):
        total = sum(
            min(float(limit), _fits(machines.capacity, row))
            for limit, row in zip(most, demand, strict=True)
        )
        total = min(total, _fits(machines.capacity, demand.min(0)))
        if total > MOST_UNITS:
            raise ValueError(
                f"{name} must leave at most {MOST_UNITS} units to place in a slot, got {total:.3g}"
            )


def _fits(capacity: np.ndarray, demand: np.ndarray) -> float:
    """How many units of a demand float64[R] all machines hold; inf if it takes nothing."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return float(np.where(demand > 0, capacity / demand, np.inf).min(-1).sum())


class Placement:
    """Machines in one slot: room `left` float64[H, R], and the units there, int64[N, H]."""

    def __init__(self, jobs: Jobs, machines: Machines, held: Held | None = None) -> None:
        self.jobs = jobs
        self.left, self.pointer = machines.capacity.copy(), 0
        self.total = np.maximum(machines.capacity.sum(0), np.finfo(float).tiny)
        shape = len(jobs.arrival), len(machines.capacity)
        self.workers, self.servers = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        if held is not None:
            self.workers, self.servers = held.workers.copy(), held.servers.copy()
            self.left -= held.workers.T @ jobs.worker + held.servers.T @ jobs.server

    @property
    def held(self) -> Held:
        """What jobs hold."""
        return Held(self.workers, self.servers)

    def dominant_share(self, job: Index) -> float:
        """Largest share of a resource of all machines that a job holds."""
        workers, servers = self.workers[job].sum(), self.servers[job].sum()
        use = workers * self.jobs.worker[job] + servers * self.jobs.server[job]
        return float((use / self.total).max())

    def place(self, job: Index, n_workers: int, n_servers: int, start: int = 0) -> bool:
        """Places all units or none: each server, then its workers, on the next machines with room.

        `start` is the first machine to try; after each unit, the one after the unit's.
        """
        before = self.left.copy(), self.workers[job].copy(), self.servers[job].copy()
        pointer = start
        for is_server in _in_order(n_workers, n_servers):
            machine = self._put(job, is_server, pointer)
            if machine is None:
                self.left, self.workers[job], self.servers[job] = before
                return False
            pointer = machine + 1
        return True

    def place_next(self, job: Index, n_workers: int, n_servers: int) -> bool:
        """Places all units or none from the next machine on, which moves on by one if they fit."""
        placed = self.place(job, n_workers, n_servers, self.pointer)
        self.pointer = (self.pointer + placed) % len(self.left)
        return placed

    def grow(self, job: Index) -> bool:
        """Adds one worker, with servers if those there cannot serve it; none beyond the batch."""
        workers, servers = self.workers[job].sum(), self.servers[job].sum()
        needed = np.ceil((workers + 1) / self.jobs.workers_per_server[job] - _SLACK)
        helpers = int(max(needed - servers, 0))
        return bool(workers < self.jobs.batch[job]) and self.place_next(job, 1, helpers)

    def clear(self, job: Index) -> None:
        """Takes a job down."""
        use = np.outer(self.workers[job], self.jobs.worker[job])
        self.left += use + np.outer(self.servers[job], self.jobs.server[job])
        self.workers[job], self.servers[job] = 0, 0

    def _put(self, job: Index, is_server: bool, pointer: int) -> int | None:
        """Puts one unit on the first machine with room, cyclically; returns it."""
        unit = self.jobs.server[job] if is_server else self.jobs.worker[job]
        fits = (self.left + _SLACK >= unit).all(-1)
        n_machines = len(fits)
        ahead = np.roll(fits, -(pointer % n_machines))
        step = int(ahead.argmax())
        if not ahead[step]:
            return None
        machine = (pointer + step) % n_machines
        self.left[machine] -= unit
        (self.servers if is_server else self.workers)[job, machine] += 1
        return machine


def fixed_crews(jobs: Jobs, workers: Data) -> tuple[np.ndarray, np.ndarray]:
    """Reads how many workers jobs ask for, and adds the servers that they need.

    Formula: `w = min(workers, F)` and `ceil(w / gamma)`, int64[N] each.
    """
    asked = np.asarray(workers, np.float64)
    counts = np.isfinite(asked) & (asked == np.floor(asked)) & (asked >= 1)
    if asked.shape != jobs.arrival.shape or not counts.all():
        raise ValueError(
            f"workers must be one whole number of at least 1 for each of the {len(jobs.arrival)}"
            f" jobs, got {shown(workers)}"
        )
    crew = np.minimum(asked, jobs.batch).astype(np.int64)
    servers = np.ceil(crew / jobs.workers_per_server - _SLACK)
    return crew, np.minimum(servers, 2**53).astype(np.int64)  # so many fit nowhere


def _in_order(n_workers: int, n_servers: int) -> Iterator[bool]:
    """Kinds of units in the order in which they are placed; True is a server."""
    each = -(-n_workers // n_servers) if n_servers else n_workers
    for _ in range(max(n_servers, 1)):
        if n_servers:
            yield True
        follow = min(each, n_workers)
        yield from itertools.repeat(False, follow)
        n_workers -= follow


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
