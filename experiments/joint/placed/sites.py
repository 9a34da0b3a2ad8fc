"""Where a placed job trains: workloads, schedules, and the clock that a schedule implies.

Machines are of two generations, half of each, which no scheduler knows. The rows of the job that
is trained lie in eight shards, four at machines of either generation, and cannot be moved across.
In slot t the schedule gives the job c_t workers of a generation. They take the c_t of its four
shards that were served in the fewest slots so far; more than four share the shards, which then go
c_t / 4 times as fast. A gradient of m samples costs

    m tau f L     computing, f the slowness of the generation, L the load
    m x           exchange, x = mean over slots of (W_t / S_t) 2 g / (b_t F), by samples trained,

as in `cluster.clock_of`, but that only computing is slower at old machines, that a load multiplies
only computing, and that the exchange is the mean over slots. The mean of 1/f is 1.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import numpy as np

from asyncjax import clocks, cluster, traces
from asyncjax.cluster import Jobs, Machines, Schedule
from asyncjax.study.protocol import Seeds

SHARDS = 8  # four of either generation
SHAPE, LINK_SHAPE = 16.0, 2.0  # of the gamma laws of computing and of exchange
SERVERS = (1, 2, 4)  # among which PD-ORS chooses, as factors
PD_ORS, DRF, GOODPUT = "PD-ORS", "DRF", "marginal goodput"


@dataclass(frozen=True)
class Place:
    """A cluster, its jobs, and what limits them.

    Attributes:
        name: In tables and files.
        text: What it is, for the report.
        exchange: Share of exchange in the time of a sample across machines, of every job.
        unevenness: How many times slower old machines compute.
        n_slots, n_jobs, n_machines: Sizes.
        most: Workers that any job may have.
        gradients: Into so many the samples of the trained job are divided.
    """

    name: str
    text: str
    exchange: float
    unevenness: float = 4.0
    n_slots: int = 12
    n_jobs: int = 12
    n_machines: int = 24
    most: int = 8
    gradients: int = 4000


class Workload(NamedTuple):
    """Jobs, machines, and which machines are old."""

    jobs: Jobs
    machines: Machines
    is_old: np.ndarray  # bool[H]


@lru_cache(maxsize=256)
def workload_of(place: Place, instance: Seeds, attempt: int = 0) -> Workload:
    """The jobs of an instance.

    They are those of `workloads.balanced`, but with small crews, machines a sixth as large, and
    gradients of a size such that exchange across machines has the place's share of the time.
    """
    seed = int(np.random.default_rng([instance.data, attempt]).integers(2**31))
    split, few = 6, place.n_machines // 6
    jobs, machines = cluster.workloads.balanced(
        seed, n_jobs=place.n_jobs, n_slots=place.n_slots, n_machines=few
    )
    slots = jobs.samples * cluster.sample_times(jobs).across / jobs.batch
    batch = np.full_like(jobs.batch, place.most)
    ratio = place.exchange / (1 - place.exchange)
    jobs = jobs._replace(
        batch=batch,
        gradient=ratio * jobs.compute * jobs.link_across * batch / (2 * jobs.workers_per_server),
        arrival=jobs.arrival // 2,  # all come in the first half
    )
    samples = np.floor(slots * place.most / cluster.sample_times(jobs).across)
    rng = np.random.default_rng([instance.clock, attempt])
    is_old = rng.permutation(place.n_machines) < place.n_machines // 2
    capacity = np.repeat(machines.capacity / split, split, axis=0)
    return Workload(jobs._replace(samples=samples), Machines(capacity), is_old)


def schedulers(low: float | None) -> dict[str, Callable[..., Schedule]]:
    """All schedulers; PD-ORS chooses servers and has a floor `low`."""
    return {
        PD_ORS: partial(cluster.pd_ors, servers=SERVERS, low=low),
        DRF: cluster.drf,
        GOODPUT: cluster.marginal_goodput,
    }


def utility_of(place: Place, instance: Seeds, rule: Callable[..., Schedule]) -> float:
    """What a scheduler earns with the jobs of an instance."""
    jobs, machines, _ = workload_of(place, instance)
    return float(cluster.total_utility(rule(jobs, machines, n_slots=place.n_slots), jobs))


@dataclass(frozen=True, eq=False)
class Site:
    """A job on its schedule; slots count from the slot of its arrival.

    After the budget all shards are served again, so that traces can be equally long.
    """

    clock: clocks.Clock
    power: np.ndarray  # float64[SHARDS, T], of a shard's computing; 0 where it is not served
    compute: np.ndarray  # float64[SHARDS], slots that a gradient of load 1 computes at power 1
    exchange: float  # slots that a gradient is exchanged, in the mean
    crews: np.ndarray  # int64[T], workers
    budget: float  # slots, until the schedule takes the machines away
    gpus: float  # that a worker holds
    utility: float  # of all jobs of the schedule

    @property
    def present(self) -> np.ndarray:
        """Which shards are served, bool[SHARDS, T]."""
        return self.power > 0

    def expected(self, load: float) -> float:
        """About how many gradients of a load arrive within the budget, if nobody waits."""
        power = np.where(self.present, self.power, 1.0)
        times = load * self.compute[:, None] / power + self.exchange
        return float((self.present / times).sum())

    def held(self, time: float) -> float:
        """GPU-slots held up to a time, a slot that has begun counts whole; inf: up to the end."""
        return self.gpus * float(self.crews[: int(np.ceil(min(time, self.budget)))].sum())


def sites_of(
    place: Place, instance: Seeds, rules: Mapping[str, Callable[..., Schedule]]
) -> dict[str, Site]:
    """The sites of one job of an instance, by scheduler.

    It is the largest job on GPUs that every scheduler completes with each shard served in some
    slot. Where a workload has none another is drawn.

    Raises:
        RuntimeError: No such job in 20 workloads, or a schedule breaks a rule.
    """
    for attempt in range(20):
        work = workload_of(place, instance, attempt)
        made = {}
        for name, rule in rules.items():
            made[name] = rule(work.jobs, work.machines, n_slots=place.n_slots)
            if wrong := cluster.check(made[name], work.jobs, work.machines):
                raise RuntimeError(f"{name}: {wrong[0]}")
        job = _chosen(work, list(made.values()))
        if job is not None:
            return {name: _site(place, work, own, job) for name, own in made.items()}
    raise RuntimeError(f"no job of {instance} is completed by all schedulers")


def _chosen(work: Workload, made: Sequence[Schedule]) -> int | None:
    fits = work.jobs.worker[:, 0] > 0
    for schedule in made:
        workers = np.asarray(schedule.workers)
        for machines in (work.is_old, ~work.is_old):
            taken = np.minimum(workers[:, :, machines].sum(-1), SHARDS // 2).sum(-1)
            fits = fits & (taken >= SHARDS // 2)
        fits = fits & (cluster.completion(schedule, work.jobs) >= 0)
    size = work.jobs.samples * cluster.sample_times(work.jobs).across
    return int(np.where(fits, size, -1.0).argmax()) if fits.any() else None


def _site(place: Place, work: Workload, schedule: Schedule, job: int) -> Site:
    jobs = work.jobs
    slots = slice(int(jobs.arrival[job]), int(cluster.completion(schedule, jobs)[job]) + 1)
    workers = np.asarray(schedule.workers)[job, slots]
    crews = workers.sum(-1).astype(np.int64)
    trained = cluster.samples_trained(schedule.workers, schedule.servers, jobs)[job, slots]
    by_kind = np.stack([workers[:, ~work.is_old].sum(-1), workers[:, work.is_old].sum(-1)])
    power = np.concatenate([served(counts) for counts in by_kind])
    compute = float(jobs.compute[job])
    costs = np.where(trained > 0, crews / np.maximum(trained, 1e-9) - compute, 0.0)
    exchange = float(costs @ trained / trained.sum())
    samples = float(jobs.samples[job]) / place.gradients
    new = (1 + 1 / place.unevenness) / 2
    slow = np.repeat([new, new * place.unevenness], SHARDS // 2)
    times = samples * compute * slow
    clock = clocks.with_speed(
        clocks.gamma(SHAPE, times),
        np.ones(place.n_slots + 1),
        np.pad(power, ((0, 0), (0, place.n_slots + 1 - len(crews))), constant_values=1.0),
        repeats=False,
    )
    upload = clocks.gamma(LINK_SHAPE, np.full(SHARDS, samples * exchange))
    return Site(
        clocks.communicating(clock, upload=upload),
        power,
        times,
        samples * exchange,
        crews,
        float(len(crews)),
        float(jobs.worker[job, 0]),
        float(cluster.total_utility(schedule, jobs)),
    )


def served(counts: np.ndarray) -> np.ndarray:
    """Power of the four shards of a generation, float64[4, T], from its workers in each slot.

    Example:
        >>> served(np.array([2, 3, 6])).T.tolist()
        [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0], [1.5, 1.5, 1.5, 1.5]]
    """
    own = SHARDS // 2
    power = np.zeros((own, len(counts)))
    for slot, count in enumerate(counts):
        least = np.argsort((power[:, :slot] > 0).sum(1), kind="stable")[: int(min(count, own))]
        power[least, slot] = max(1.0, count / own)
    return power


def crew_shuffled(site: Site, seed: int, limit: int) -> traces.Dispatch:
    """Shuffled dispatch over the shards that are served in the present slot.

    The sequence is made slot by slot: a job handed out in a slot goes to a shard served then.

    Args:
        site: The job on its schedule.
        seed: Of the permutations, and of the durations that decide how many jobs a slot sees.
        limit: More jobs than are ever handed out.
    """
    rng, sequence = np.random.default_rng(seed), np.zeros(0, np.int64)
    crews = [np.flatnonzero(site.present[:, slot]) for slot in range(site.present.shape[1])]
    starts = [
        slot
        for slot, crew in enumerate(crews)
        if len(crew) and (slot == 0 or not np.array_equal(crew, crews[slot - 1]))
    ]
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        own = crews[start]
        more = -(-(limit - len(sequence)) // len(own))
        drawn = np.concatenate([sequence, *(rng.permutation(own) for _ in range(more))])
        rule = traces.given(drawn[:limit].tolist())
        if end is None:
            return rule
        made = traces.asynchronous(
            site.clock, dispatch=rule, n_updates=limit // 2, key=jax.random.key(seed)
        )
        sequence = drawn[: int((np.asarray(made.time) < end).sum())]
    raise RuntimeError("a schedule that completes a job has a slot with workers")
