"""A job that a scheduler places: what is each part worth, and all together?

Machines of two generations, which no scheduler knows; jobs arrive; PD-ORS (choosing servers, its
floor tuned), DRF or marginal goodput places them. The schedule of one job is the clock on which it
trains a logistic regression whose shards lie at machines of either generation and differ in labels.
The full set: PD-ORS, whoever delivers is asked again, Rescaled steps, an order of each shard's own
(where the link is the limit: fastest (k, load) with one balance for all). Each part is replaced
alone, and all by plain choices. All knobs of all arms are tuned with equally many trials, for each
target and for the gap at the end, on instances that are not shown, others for each set.

    the full set beats plain choices     log T (full) - log T (all plain) below 0
    it beats every other set             the same against each arm with one part replaced
    a part is worth something            the same against the arms that replace this part, each
    PD-ORS earns more                    log utility (other) - log utility (PD-ORS) below 0

T is the time from which on a run stays at a target for as long as it has machines. Times that were
never reached count as the horizon, so differences of logs are shorter than they are. Last gaps are
not cut. A place is written when it is measured; run it again with the same
settings and it goes on.

Where a placed job trains.

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
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks, cluster, results, simulation, traces
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Difference
from asyncjax.study import summary
from asyncjax.study.protocol import TUNING_OF, Seeds, seeds_of
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.search import Settings as Setting, Tuned, log_range, tune
from asyncjax.traces.synchronous import Rounds, trace_of_rounds
from experiments import part
from experiments.common import sets
from experiments.common.forest import forest
from experiments.common.replays import shuffled_over
from experiments.joint import training
from experiments.joint.scenes import aim, ends, goals_of, ratio, seen, words
from experiments.joint.training import DRF, END, FULL, GOODPUT, PD_ORS, PLAIN, SHARDS, Arm
from experiments.joint.worlds import Scene, World, world_of

NAME = "joint_placed"
TITLE = "A job that a scheduler places: what is each part worth, and all together?"
PAPERS = ()
BEATS_PLAIN = "the full set beats plain choices"
BEATS_ALL = "the full set beats every set with one part replaced"
SHAPE, LINK_SHAPE = 16.0, 2.0  # of the gamma laws of computing and of exchange
SERVERS = (1, 2, 4)  # among which PD-ORS chooses, as factors


N_SLOTS, N_JOBS, N_MACHINES = 12, 12, 24
MOST = 8  # workers that any job may have
UNEVENNESS = 4.0  # how many times slower old machines compute


class Place(NamedTuple):
    """A cluster, its jobs, and what limits them.

    Attributes:
        name: In tables and files.
        exchange: Share of exchange in the time of a sample across machines, of every job.
        gradients: Into so many the samples of the trained job are divided.
    """

    name: str
    exchange: float
    gradients: int = 4000


PLACES = {
    Place("computing is the limit", exchange=0.2): training.COMPUTING,  # of the time of a sample
    Place("the link is the limit", exchange=0.9): training.LINKED,
}


@dataclass(frozen=True)
class Settings(training.Settings):
    """What is run."""

    output: Path = Path("output/joint_placed")
    floors: int = 10  # instances of each set on which its floor of PD-ORS is tuned
    trials: int = 6
    rounds: tuple[int, int] = (2, 8)
    records: int = 600
    levels: tuple[float, ...] = (0.9, 0.95, 0.98)
    first: ClassVar[int] = 3


# Workloads and schedules.


Workload = tuple[cluster.Jobs, cluster.Machines, np.ndarray]  # which machines are old, bool[H]


@lru_cache(maxsize=256)
def workload_of(place: Place, instance: Seeds, attempt: int = 0) -> Workload:
    """The jobs and machines of an instance, and which of these are old, bool[H].

    They are those of `workloads.balanced`, but with small crews, machines a sixth as large, and
    gradients of a size such that exchange across machines has the place's share of the time.
    """
    seed = int(np.random.default_rng([instance.data, attempt]).integers(2**31))
    split, sizes = 6, {"n_jobs": N_JOBS, "n_slots": N_SLOTS}
    jobs, machines = cluster.workloads.balanced(seed, n_machines=N_MACHINES // split, **sizes)
    slots = jobs.samples * cluster.sample_times(jobs).across / jobs.batch
    batch = np.full_like(jobs.batch, MOST)
    share = place.exchange / (1 - place.exchange)
    jobs = jobs._replace(
        batch=batch,
        gradient=share * jobs.compute * jobs.link_across * batch / (2 * jobs.workers_per_server),
        arrival=jobs.arrival // 2,  # all come in the first half
    )
    samples = np.floor(slots * MOST / cluster.sample_times(jobs).across)
    rng = np.random.default_rng([instance.clock, attempt])
    is_old = rng.permutation(N_MACHINES) < N_MACHINES // 2
    machines = cluster.Machines(np.repeat(machines.capacity / split, split, axis=0))
    return jobs._replace(samples=samples), machines, is_old


def schedulers(low: float | None) -> dict[str, Callable[..., cluster.Schedule]]:
    """All schedulers; PD-ORS chooses servers and has a floor `low`."""
    pd_ors = partial(cluster.pd_ors, servers=SERVERS, low=low)
    return {PD_ORS: pd_ors, DRF: cluster.drf, GOODPUT: cluster.marginal_goodput}


def floor_of(settings: Settings, place: Place, role: str) -> Tuned:
    """The floor of PD-ORS that earns most on the tuning instances of a set."""
    instances = seeds_of(settings.base, TUNING_OF[role], settings.floors)

    def utility(low: float, instance: Seeds) -> float:
        jobs, machines, _ = workload_of(place, instance)
        schedule = schedulers(low)[PD_ORS](jobs, machines, n_slots=N_SLOTS)
        return float(cluster.total_utility(schedule, jobs))

    def evaluate(name: str, tried: Sequence[Setting], _: int) -> list[float]:
        return [-float(np.mean([utility(one["low"], at) for at in instances])) for one in tried]

    spaces = {PD_ORS: {"low": log_range(1e-6, 1e-1, 11)}}
    how = {"role": TUNING_OF[role], "gradients": settings.floors}
    return tune(spaces, evaluate, trials=6, **how)[PD_ORS]


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
    place: Place, instance: Seeds, rules: Mapping[str, Callable[..., cluster.Schedule]]
) -> dict[str, Site]:
    """The sites of one job of an instance, by scheduler.

    It is the largest job on GPUs that every scheduler completes with each shard served in some
    slot. Where a workload has none another is drawn.

    Raises:
        RuntimeError: No such job in 20 workloads, or a schedule breaks a rule.
    """
    for attempt in range(20):
        jobs, machines, is_old = work = workload_of(place, instance, attempt)
        fits, schedules = jobs.worker[:, 0] > 0, {}
        for name, rule in rules.items():
            schedules[name] = schedule = rule(jobs, machines, n_slots=N_SLOTS)
            if wrong := cluster.check(schedule, jobs, machines):
                raise RuntimeError(f"{name}: {wrong[0]}")
            for kind in (is_old, ~is_old):
                workers = np.asarray(schedule.workers)[:, :, kind].sum(-1)
                taken = np.minimum(workers, SHARDS // 2).sum(-1)
                fits = fits & (taken >= SHARDS // 2)
            fits = fits & (cluster.completion(schedule, jobs) >= 0)
        if fits.any():
            size = jobs.samples * cluster.sample_times(jobs).across
            job = int(np.where(fits, size, -1.0).argmax())
            return {name: _site(place, work, plan, job) for name, plan in schedules.items()}
    raise RuntimeError(f"no job of {instance} is completed by all schedulers")


def _site(place: Place, work: Workload, schedule: cluster.Schedule, job: int) -> Site:
    jobs, _, is_old = work
    slots = slice(int(jobs.arrival[job]), int(cluster.completion(schedule, jobs)[job]) + 1)
    workers = np.asarray(schedule.workers)[job, slots]
    crews = workers.sum(-1).astype(np.int64)
    trained = cluster.samples_trained(schedule.workers, schedule.servers, jobs)[job, slots]
    power = np.concatenate([served(workers[:, kind].sum(-1)) for kind in (~is_old, is_old)])
    compute = float(jobs.compute[job])
    costs = np.where(trained > 0, crews / np.maximum(trained, 1e-9) - compute, 0.0)
    samples = float(jobs.samples[job]) / place.gradients
    exchange = samples * float(costs @ trained / trained.sum())
    new = (1 + 1 / UNEVENNESS) / 2
    times = samples * compute * np.repeat([new, new * UNEVENNESS], SHARDS // 2)
    rest = ((0, 0), (0, N_SLOTS + 1 - len(crews)))
    clock = clocks.with_speed(
        clocks.gamma(SHAPE, times),
        np.ones(N_SLOTS + 1),
        np.pad(power, rest, constant_values=1.0),
        repeats=False,
    )
    upload = clocks.gamma(LINK_SHAPE, np.full(SHARDS, exchange))
    return Site(
        clocks.communicating(clock, upload=upload),
        power,
        times,
        exchange,
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
    shards = SHARDS // 2
    power = np.zeros((shards, len(counts)))
    for slot, count in enumerate(counts):
        least = np.argsort((power[:, :slot] > 0).sum(1), kind="stable")[: int(min(count, shards))]
        power[least, slot] = max(1.0, count / shards)
    return power


# Traces of placed jobs.


def rounds_of(site: Site, k: int, load: int, seed: int) -> Rounds:
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
    return _rounds(*map(np.array, zip(*found, strict=True)))


def _rounds(worker: np.ndarray, response: np.ndarray, k: np.ndarray) -> Rounds:
    weight = np.where(np.arange(SHARDS) < k[:, None], 1 / k[:, None], 0.0)
    return Rounds(worker, response, k, weight)


def alike(several: Sequence[Rounds]) -> list[traces.EventTrace]:
    """Traces of equally many updates and arrivals, so that all share one program.

    What is added comes after the budget: rounds of one unit of time, of as many workers as are
    needed to make the numbers equal.
    """
    rounds = np.array([len(run.k) for run in several])
    arrivals = np.array([run.k.sum() for run in several])
    updates = int(rounds.max()) + 1
    while (
        (total := (arrivals + updates - rounds).max()) - arrivals > SHARDS * (updates - rounds)
    ).any():
        updates += 1 + updates // 20
    found = []
    for run in several:
        more, left = updates - len(run.k), int(total - run.k.sum())
        k = np.full(more, left // more) + (np.arange(more) < left % more)
        rest = _rounds(np.tile(np.arange(SHARDS), (more, 1)), np.ones((more, SHARDS)), k)
        found.append(trace_of_rounds(Rounds(*map(np.concatenate, zip(run, rest, strict=True)))))
    return found


def plans_of(
    arms: Sequence[Arm], noises: Sequence[int], sites: Sequence[Mapping[str, Site]], records: int
) -> Callable[[Arm, tuple[int, int], int], simulation.ReplayPlan]:
    """Plans of placed jobs by arm, setting (k, load) and job, made once; an arm's share programs.

    Args:
        arms: All that will ever be run.
        noises: Seeds of all times, one a job.
        sites: Where each job is, by scheduler.
        records: Points of a curve, about.
    """
    asked_of: dict[str, dict[str, None]] = {}  # schedulers, in their order
    for arm in arms:
        asked_of.setdefault(arm.asked, {})[arm.scheduler] = None
    jobs = range(len(sites))

    def trace(asked: str, load: int, at: int, name: str, n_updates: int, **rules: Any) -> Any:
        """That of a job without rounds, at a scheduler of that name."""
        if asked == training.TABLE:
            rules["collect"] = traces.table()
        elif asked == training.CREW:
            rules["dispatch"] = shuffled(at, name)
        clock, key = sites[at][name].clock, jax.random.key(noises[at])
        return traces.asynchronous(clock, load=float(load), key=key, n_updates=n_updates, **rules)

    @cache
    def shuffled(at: int, scheduler: str) -> traces.Dispatch:
        """Shuffled dispatch over the shards that are served in the present slot."""
        limit = 2 * length(training.PURE, 1) + SHARDS  # more jobs than are ever handed out

        def arrivals(rule: traces.Dispatch, _: int) -> traces.EventTrace:
            return trace(training.PURE, 1, at, scheduler, limit // 2, dispatch=rule)

        crews = [np.flatnonzero(present) for present in sites[at][scheduler].present.T]
        return shuffled_over(crews, noises[at], limit, arrivals)

    @cache
    def length(asked: str, load: int) -> int:
        """The most updates within the budget, of all jobs and schedulers."""
        every = [(at, name) for at in jobs for name in asked_of.get(asked, sites[0])]
        expected = max(sites[at][name].expected(load) for at, name in every)
        most = 0
        for at, name in every:
            run = trace(asked, load, at, name, int(1.3 * expected))
            within = np.asarray(run.time) <= sites[at][name].budget
            most = max(most, int((np.asarray(run.steps) & within).sum()))
        return most

    @cache
    def rounds(k: int, load: int) -> dict[tuple[str, int], traces.EventTrace]:
        """Traces of rounds by scheduler and job, all of one length."""
        every = [(name, at) for name in asked_of[training.ROUNDS] for at in jobs]
        several = [rounds_of(sites[at][name], k, load, noises[at]) for name, at in every]
        return dict(zip(every, alike(several), strict=True))

    @cache
    def plans(asked: str, k: int, load: int, scheduler: str) -> tuple[simulation.ReplayPlan, ...]:
        """A plan for each job, with equally many updates, all beyond its budget."""
        if asked == training.ROUNDS:
            several = [rounds(k, load)[scheduler, at] for at in jobs]
            most = several[0].n_updates
        else:
            most = length(asked, load)
            several = [trace(asked, load, at, scheduler, most + 1) for at in jobs]
        return training.planned(several, most, records)

    return lambda arm, setting, number: plans(arm.asked, *setting, arm.scheduler)[number]


# What is measured.


def study_of(settings: Settings) -> Result:
    """Measures both places."""
    same = replace(settings, output=Path(), commit=False)
    makers = {place.name: partial(rows_of, same, place, arms) for place, arms in PLACES.items()}
    return training.in_turn(settings, makers, {"settings": ["step", "k", "load"]})


def rows_of(settings: Settings, place: Place, arms: Sequence[Arm]) -> pd.DataFrame:
    """What all arms did at a place, and what their schedules earned and gave the trained job."""
    floors = {role: floor_of(settings, place, role) for role in settings.roles.values()}
    floors |= {TUNING_OF[role]: floor for role, floor in floors.items()}
    lows = {role: floor.best.settings["low"] for role, floor in floors.items()}
    sites = [sites_of(place, one, schedulers(lows[one.role])) for one in settings.drawn]
    worlds = [world_at(place, instance) for instance in settings.drawn]
    runs = training.Training(
        worlds,
        plans_of(arms, [world.noise for world in worlds], sites, settings.records),
        lambda arm, number: sites[number][arm.scheduler].budget,
        float(N_SLOTS),
        settings.trials,
    )

    def beside(arm: Arm, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
        site, role = sites[number][arm.scheduler], settings.drawn[number].role
        return {
            "held": np.nan if row["tuned_for"] == END else site.held(row["value"]),
            "scheduler": arm.scheduler,
            "utility": site.utility,
            "slots": site.budget,
            "gpu_slots": site.held(site.budget),
            "served": float(site.present.sum() / SHARDS),
            "floor": lows[role],
            "floor_at_edge": bool(floors[role].edges),
        }

    goals, gradients = (*map(str, settings.levels), END), dict.fromkeys(arms, place.gradients)
    return training.measured(settings, place.name, runs, goals, gradients, beside)


def world_at(place: Place, instance: Seeds) -> World:
    """What the job of an instance trains: the first four shards are those at new machines."""
    return world_of(Scene(place.name, unevenness=UNEVENNESS, skew=0.5), instance)


def arms_at(result: Result, place: str) -> list[str]:
    """The arms that were run at a place, in their order."""
    return list(result.select(scene=place)["method"].unique())


def claim(one: str) -> str:
    """What is claimed of a part."""
    return f"{one}: that of the full set beats each other"


def texts_of(result: Result, place: str) -> dict[str, list[str]]:
    """Claims of a place at each of its goals, and the arms that the full set is to beat."""
    parts: dict[str, list[str]] = {}
    for name in arms_at(result, place):
        if ": " in name:
            parts.setdefault(claim(name.split(": ")[0]), []).append(name)
    every = [name for names in parts.values() for name in names]
    return {BEATS_PLAIN: [PLAIN.name], BEATS_ALL: every, **parts}


def claims(result: Result) -> tuple[Claim, ...]:
    """Claims on the whole and on each part at every goal, and on what schedulers earn."""
    found = []
    for place, goal in goals_of(result):
        where: dict[str, Any] = {"scene": place, "tuned_for": goal}
        for text, names in texts_of(result, place).items():
            beaten = less(FULL.name, than=names, **where)
            found.append(Claim(f"{place}, {goal}: {text}", [beaten]))
        for rival in (DRF, GOODPUT) if goal == END else ():
            more = less(f"schedule: {rival}", than=FULL.name, column="utility", **where)
            found.append(Claim(f"{place}, {earns(rival)}", [more]))
    return tuple(found)


def earns(rival: str) -> str:
    """What is claimed of schedulers."""
    return f"{PD_ORS} earns more than {rival}"


def goals_at(result: Result, place: str) -> list[str]:
    """What was tuned for at a place."""
    return [goal for where, goal in goals_of(result) if where == place]


def over(result: Result, arm: str, letter: str, **where: Any) -> Difference:
    """The full set over an arm, in logs."""
    return result.difference(FULL.name, arm, letter, where=where)


def arm_table(place: str, result: Result) -> results.Table:
    """Mean slots to two targets and gaps of each arm, and the full set over it, both sets."""
    goals, rows = goals_at(result, place)[-3:], []
    for arm in arms_at(result, place):
        ats = [{"scene": place, "tuned_for": goal} for goal in goals]
        cells = [seen(result, arm, ".1f", **at) for at in ats]
        cells += [
            "; ".join(ratio(over(result, arm, letter, **at)) for letter in result.sets)
            if arm != FULL.name
            else ""
            for at in ats[1:]
        ]
        rows.append([arm, *cells])
    heads = [f"slots to {aim(goal)}" if goal != END else aim(goal) for goal in goals]
    return part.table(
        ["", *heads, *(f"full / this, {aim(goal)}" for goal in goals[1:])],
        rows,
        "Mean slots, set A, set B (> and a share: cut at the horizon), geometric mean gaps, and the"
        " full set over each other arm with 95 % intervals.",
    )


def claim_table(place: str, result: Result) -> results.Table:
    """Verdicts of both sets, a line a claim and a column a goal."""
    goals, said = goals_at(result, place), words(result, claims(result))
    rows = [
        [text, *(said[f"{place}, {goal}: {text}"] for goal in goals)]
        for text in texts_of(result, place)
    ]
    return part.table(["", *map(aim, goals)], rows, "Verdicts, set A, set B.", 1 + len(goals))


def schedule_table(result: Result) -> results.Table:
    """What schedulers earned, and what they gave the trained jobs; means of sets A and B."""
    forms = {"utility": ".0f", "slots": ".1f", "gpu_slots": ".0f", "served": ".1f"}
    by = ["scene", "scheduler", "set"]
    means = result.select(tuned_for=END).groupby(by, sort=False)[[*forms]].mean()
    rows, said = [], words(result, claims(result))
    for (place, scheduler), group in means.groupby(by[:2], sort=False):
        earned, *rest = (
            ", ".join(f"{x:{form}}" for x in group[name]) for name, form in forms.items()
        )
        rows.append([place, scheduler, earned, said.get(f"{place}, {earns(scheduler)}", ""), *rest])
    heads = ["place", "scheduler", "utility of all jobs", "PD-ORS earns more", "slots of the job"]
    heads += ["GPU-slots", "slots a shard is served"]
    return part.table(heads, rows, "Means, set A, set B.", 2)


TABLES = {
    **{f"arms, {place.name}": partial(arm_table, place.name) for place in PLACES},
    **{f"claims, {place.name}": partial(claim_table, place.name) for place in PLACES},
    "schedules": schedule_table,
    "spread": sets.spread_of,
    "tuning": summary.trial_table,
}


def parts_figure(result: Result) -> Illustration:
    """The full set over each other arm: time to the last target, and gap at the end."""
    panels: dict[str, Any] = {}
    for place in result.rows["scene"].unique():
        for goal in goals_at(result, place)[-2:]:
            where = {"scene": place, "tuned_for": goal}
            panels[f"{place}: {'' if goal == END else 'slots to '}{aim(goal)}"] = {
                f"set {letter}": {
                    arm: ends(over(result, arm, letter, **where))
                    for arm in arms_at(result, place)
                    if arm != FULL.name
                }
                for letter in result.sets
            }
    return Illustration(
        forest(panels, "full set over this; below 1 the full set is ahead"),
        "The full set over each other, ratios with intervals; below 1 the full set is ahead; both"
        " sets.",
    )


FIGURES = {"parts": parts_figure}
FACTS = {
    "chosen": lambda result: len(result.trials()),
    "levels": lambda result: [
        float(goal) for goal in result.rows["tuned_for"].unique() if goal != END
    ],
}


if __name__ == "__main__":
    part.main(NAME)
