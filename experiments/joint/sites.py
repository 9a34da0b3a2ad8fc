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

In a *round* every shard that is served begins a gradient of `load` rows at the same version, and
the server steps with the k fastest, or with all if fewer are served. A round that has begun ends,
also where its slot does before. `traces.synchronous` asks all n workers, also the absent ones, and
would wait until a slot serves k of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import NamedTuple

import jax
import numpy as np

from asyncjax import clocks, cluster, simulation, traces
from asyncjax.cluster import Jobs, Machines, Schedule
from asyncjax.study.protocol import Seeds
from asyncjax.traces.rounds import Rounds, trace_of_rounds
from experiments.common.replays import shuffled_over
from experiments.joint.arms import CREW, DRF, GOODPUT, PD_ORS, PURE, ROUNDS, SHARDS, TABLE, Arm

SHAPE, LINK_SHAPE = 16.0, 2.0  # of the gamma laws of computing and of exchange
SERVERS = (1, 2, 4)  # among which PD-ORS chooses, as factors


@dataclass(frozen=True)
class Place:
    """A cluster, its jobs, and what limits them.

    Attributes:
        name: In tables and files.
        exchange: Share of exchange in the time of a sample across machines, of every job.
        unevenness: How many times slower old machines compute.
        n_slots, n_jobs, n_machines: Sizes.
        most: Workers that any job may have.
        gradients: Into so many the samples of the trained job are divided.
    """

    name: str
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

    Args:
        site: The job on its schedule.
        seed: Of the permutations, and of the durations that decide how many jobs a slot sees.
        limit: More jobs than are ever handed out.
    """

    def arrivals(rule: traces.Dispatch, end: int) -> traces.EventTrace:
        del end
        key = jax.random.key(seed)
        return traces.asynchronous(site.clock, dispatch=rule, n_updates=limit // 2, key=key)

    return shuffled_over([np.flatnonzero(own) for own in site.present.T], seed, limit, arrivals)


class Awaited(NamedTuple):
    """Rounds within a budget."""

    worker: np.ndarray  # int[R, SHARDS], by response time
    response: np.ndarray  # float64[R, SHARDS], inf for those who are not served
    k: np.ndarray  # int[R]


def rounds_of(site: Site, k: int, load: int, seed: int) -> Awaited:
    """The rounds that begin within the budget of a site.

    Args:
        site: The job on its schedule.
        k: Gradients that a step waits for, where so many are served.
        load: Factor on computing.
        seed: Of all times.
    """
    rng, now, waited = np.random.default_rng(seed), 0.0, 0.0
    found = []
    while now < site.budget:
        power = site.power[:, int(now)]
        if not power.any():
            waited += np.floor(now) + 1 - now
            now = np.floor(now) + 1
            continue
        compute = load * site.compute * rng.gamma(SHAPE, 1 / SHAPE, SHARDS)
        link = site.exchange * rng.gamma(LINK_SHAPE, 1 / LINK_SHAPE, SHARDS)
        with np.errstate(divide="ignore"):
            response = waited + compute / power + link
        order, count = np.argsort(response, kind="stable"), min(k, int((power > 0).sum()))
        found.append((order, response[order], count))
        now, waited = now + response[order[count - 1]] - waited, 0.0
    worker, response, counts = (np.array(own) for own in zip(*found, strict=True))
    return Awaited(worker, response, counts)


def alike(made: Sequence[Awaited]) -> list[traces.EventTrace]:
    """Traces of equally many updates and arrivals, so that all share one program.

    What is added comes after the budget: rounds of one unit of time, of as many workers as are
    needed to make the numbers equal.
    """
    rounds = np.array([len(own.k) for own in made])
    arrivals = np.array([own.k.sum() for own in made])
    updates = int(rounds.max()) + 1
    while True:
        total = int((arrivals + updates - rounds).max())
        if (total <= arrivals + SHARDS * (updates - rounds)).all():
            break
        updates += 1 + updates // 20
    return [_filled(own, updates, total) for own in made]


def _filled(made: Awaited, updates: int, total: int) -> traces.EventTrace:
    more, left = updates - len(made.k), total - int(made.k.sum())
    extra = np.full(more, left // more) + (np.arange(more) < left % more)
    k = np.concatenate([made.k, extra])
    worker = np.concatenate([made.worker, np.tile(np.arange(SHARDS), (more, 1))])
    response = np.concatenate([made.response, np.ones((more, SHARDS))])
    weight = np.where(np.arange(SHARDS) < k[:, None], 1 / k[:, None], 0.0)
    return trace_of_rounds(Rounds(worker, response, k, weight))


class Plans:
    """Plans of placed jobs, made once; all of an arm and a setting share programs.

    Args:
        arms: All that will ever be run.
        noises: Seeds of all times, one a job.
        sites: Where each job is, by scheduler.
        records: Points of a curve, about.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        noises: Sequence[int],
        sites: Sequence[Mapping[str, Site]],
        records: int,
    ) -> None:
        self.schedulers: dict[str, list[str]] = {}
        for arm in arms:
            names = self.schedulers.setdefault(arm.asked, [])
            names += [arm.scheduler] * (arm.scheduler not in names)
        self.noises, self.sites, self.records = noises, sites, records
        self.length, self.plans = cache(self._length), cache(self._plans)
        self.rounds, self.shuffled = cache(self._rounds), cache(self._shuffled)

    def plan(self, arm: Arm, setting: tuple[int, int], number: int) -> simulation.ReplayPlan:
        """That of an arm with some k and load for job `number`."""
        return self.plans(arm.asked, *setting, arm.scheduler)[number]

    def trace(
        self, asked: str, load: int, number: int, scheduler: str, n_updates: int
    ) -> traces.EventTrace:
        """The trace of job `number` without rounds, with so many updates."""
        clock, key = self.sites[number][scheduler].clock, jax.random.key(self.noises[number])
        rule = partial(traces.asynchronous, clock, load=float(load), key=key)
        if asked == TABLE:
            rule = partial(rule, collect=traces.table())
        elif asked == CREW:
            rule = partial(rule, dispatch=self.shuffled(number, scheduler))
        return rule(n_updates=n_updates)

    def _shuffled(self, number: int, scheduler: str) -> traces.Dispatch:
        limit = 2 * self.length(PURE, 1) + SHARDS
        return crew_shuffled(self.sites[number][scheduler], self.noises[number], limit)

    def _length(self, asked: str, load: int) -> int:
        """The most updates within the budget, of all jobs and schedulers."""
        names = self.schedulers.get(asked, list(self.sites[0]))
        every = [(at, name) for at in range(len(self.sites)) for name in names]
        expected = max(self.sites[at][name].expected(load) for at, name in every)
        most = 0
        for at, name in every:
            made = self.trace(asked, load, at, name, n_updates=int(1.3 * expected))
            within = np.asarray(made.time) <= self.sites[at][name].budget
            most = max(most, int((np.asarray(made.steps) & within).sum()))
        return most

    def _plans(
        self, asked: str, k: int, load: int, scheduler: str
    ) -> tuple[simulation.ReplayPlan, ...]:
        """A plan for each job, with equally many updates, all beyond its budget."""
        if asked == ROUNDS:
            made = self.rounds(k, load)[scheduler]
            most = made[0].n_updates
        else:
            most = self.length(asked, load)
            places = range(len(self.sites))
            made = [self.trace(asked, load, at, scheduler, n_updates=most + 1) for at in places]
        every = max(1, most // self.records)
        return tuple(simulation.plan(own, record_every=every, width=1) for own in made)

    def _rounds(self, k: int, load: int) -> dict[str, list[traces.EventTrace]]:
        """Traces of rounds by scheduler, all of one length."""
        names, jobs = self.schedulers[ROUNDS], list(zip(self.noises, self.sites, strict=True))
        made = alike(
            [rounds_of(sites[name], k, load, noise) for name in names for noise, sites in jobs]
        )
        return {name: made[at * len(jobs) : (at + 1) * len(jobs)] for at, name in enumerate(names)}
