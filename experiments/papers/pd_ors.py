"""Figures of PD-ORS: utility by machines, jobs and horizon, times, the optimum, rounding, links.

The full text of the paper was not at hand and its authors have no public code: sizes, ranges and
readings are recalled. Workloads are the preset `ranges`, which has the paper's ranges as they are
recalled, and beside it `balanced`, whose jobs can all finish where machines are free. Instances are
the same for all schedulers; every schedule is checked, and counted by what its units really train.

Source: Yu, Liu, Wu, Ji, Bentley 2021, PD-ORS (arXiv 2108.02917).
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import cluster, results, study
from asyncjax.cluster import slot_solver
from asyncjax.cluster.workloads import unit, whole_between
from asyncjax.results import plots
from asyncjax.study.protocol import SET_A, seeds_of
from experiments.cluster import playing
from experiments.cluster.optimum import best_utility
from experiments.cluster.playing import LABELS, LEAST, PD_ORS, PUBLISHED, SCHEDULERS, Scheduler
from experiments.papers.figure import RECALLED, Figure, Found, Numbers, Options, Paper

NAMES = (PD_ORS, *PUBLISHED)
RULES: Mapping[str, Scheduler] = {name: SCHEDULERS[name] for name in NAMES}
PRESETS = ("ranges", "balanced")
ARRIVAL, KIND, STEEPNESS = 0, 10, 11  # streams of `workloads.unit` that the presets draw from
SIZES = 20  # jobs of a small case come from tiny workloads so many seeds apart
FIRST, SECOND = (0.10, 0.55, 0.35), (0.30, 0.69, 0.01)  # without hurry, sensitive, critical
BURST = 0.23  # of all jobs of the Google pattern arrive in its second slot
DRAWS = 100  # random roundings of a slot
LOWEST = 1e-24  # the lowest price in single precision, as in PD-ORS
HULL, PLAIN = "hulls of whole units", "linear programme"
SPREAD = "PD-ORS, never on one machine"
OF_WHOLE, OF_SLOTS = "utility over deterministic", "slots solved by a draw"


@dataclass(frozen=True)
class Place(playing.Point):
    """A point whose jobs are changed: their mix, when they arrive, their links."""

    mix: tuple[float, ...] = ()  # shares without hurry, sensitive, critical; none: the preset's
    weights: tuple[float, ...] = ()  # of arrivals by slot; none: the preset's
    links: float = 0.0  # rate inside a machine over that across, which changes; 0: the preset's

    def __call__(self, seeds: study.Seeds) -> study.Scene:
        """An instance; a preset's own mix, weights or links give what the preset does."""
        scene = super().__call__(seeds)
        jobs, number = scene.data.jobs, np.arange(self.n_jobs)
        if self.mix:
            utility = jobs.utility.copy()
            utility[:, 1] = steepness(
                self.mix, *(unit(seeds.data, x, number) for x in (KIND, STEEPNESS))
            )
            jobs = jobs._replace(utility=utility)
        if self.weights:
            ends = np.cumsum(np.array(self.weights) / np.sum(self.weights))
            later = (ends <= unit(seeds.data, ARRIVAL, number)[:, None]).sum(-1)
            jobs = jobs._replace(arrival=np.sort(np.minimum(later, self.n_slots - 1)))
        if self.links:
            jobs = jobs._replace(link_across=jobs.link_inside / self.links)
        return replace(scene, data=scene.data._replace(jobs=jobs))


def steepness(mix: Sequence[float], kind: np.ndarray, draw: np.ndarray) -> np.ndarray:
    """Steepness of utilities: none, 0.01 to 1, or 4 to 6, by numbers in [0, 1)."""
    hurried = np.where(kind < mix[0] + mix[1], 0.01 + 0.99 * draw, 4 + 2 * draw)
    return np.where(kind < mix[0], 0.0, hurried)


def counted(options: Options, default: int, *, full: int = 20) -> Sequence[study.Seeds]:
    """The instances of a figure."""
    return seeds_of(options.seed, SET_A, 2 if options.quick else full if options.full else default)


Scenes = Sequence[Callable[[study.Seeds], study.Scene]]


def swept(scenes: Scenes, rules: Mapping[str, Scheduler], seeds: Sequence[study.Seeds]) -> Numbers:
    """Utility and finished jobs of rules by scene and instance, [scenes][instances]."""
    runs: dict[str, Any] = {name: {"utility": [], "completed": []} for name in rules}
    for scene, (name, rule) in itertools.product(scenes, rules.items()):
        play: Any = playing.method(rule).run
        each = [play(scene(one), {}, one) for one in seeds]
        for field, rows in runs[name].items():
            rows.append([float(np.asarray(one[field])) for one in each])
    return runs


def means(runs: Numbers, name: str, field: str = "utility") -> np.ndarray:
    """The mean over instances, by scene."""
    return np.mean(runs[name][field], axis=1)


def line(name: str, x: Sequence[float], values: Any) -> results.Series:
    """The mean over the last axis and a band of one standard error."""
    values = np.asarray(values, float)
    middle, half = values.mean(-1), values.std(-1, ddof=1) / np.sqrt(values.shape[-1])
    return results.Series(name, np.asarray(x, float), middle, middle - half, middle + half)


def listed(values: Any, form: str = ".0f") -> str:
    """Numbers in a row."""
    return ", ".join(f"{value:{form}}" for value in np.ravel(values))


def draw_sweep(x_label: str, numbers: Numbers) -> Any:
    """Utility against what is swept, a line a scheduler, a panel a preset."""
    parts = []
    for title, runs in numbers["runs"].items():
        lines = [line(LABELS[one], numbers["x"], runs[one]["utility"]) for one in NAMES]
        parts.append(plots.Panel(f"{x_label}\n{title}", lines))
    return plots.panels(parts, y_label="total utility")


def most(runs: Numbers) -> str:
    """Where PD-ORS earns most, and how much more than the best of the others."""
    ours = means(runs, PD_ORS)
    share = ours / np.maximum(np.max([means(runs, one) for one in NAMES[1:]], axis=0), LEAST)
    count = f"{(share > 1).sum()} of {len(share)} places"
    return f"PD-ORS earns most in {count}, {share.min():.2f} to {share.max():.2f} times the next"


def found_sweep(x_label: str, why: str, numbers: Numbers) -> Found:
    """Mean utilities of all, and where PD-ORS leads."""
    words = [f"{x_label} {listed(numbers['x'])}"]
    for preset, runs in numbers["runs"].items():
        each = "; ".join(f"{LABELS[one]} {listed(means(runs, one))}" for one in NAMES)
        done = listed(means(runs, PD_ORS, "completed"))
        words.append(f"{preset}: {each}; of PD-ORS {done} jobs finish")
    lead = "; ".join(f"{preset}: {most(runs)}" for preset, runs in numbers["runs"].items())
    return Found(". ".join(words), f"in kind. {lead}.{why}")


# Utility.


def by_machines(options: Options) -> Numbers:
    """All schedulers, 10 to 100 machines, both presets."""
    x, seeds = (10, 100) if options.quick else (10, 30, 50, 70, 100), counted(options, 6)
    runs = {
        preset: swept([Place(50, 20, n, preset=preset) for n in x], RULES, seeds)
        for preset in PRESETS
    }
    return {"x": x, "runs": runs}


def by_jobs(options: Options) -> Numbers:
    """All schedulers, 10 to 50 jobs."""
    x = (10, 50) if options.quick else (10, 20, 30, 40, 50)
    scenes = [Place(n, 20, 100, preset="ranges") for n in x]
    return {"x": x, "runs": {"ranges": swept(scenes, RULES, counted(options, 4))}}


def by_horizon(options: Options) -> Numbers:
    """All schedulers, 20 to 80 slots."""
    x = (20, 40, 60, 80) if options.full else (20, 80)
    scenes = [Place(50, n, 100, preset="ranges") for n in x]
    return {"x": x, "runs": {"ranges": swept(scenes, RULES, counted(options, 2))}}


# Training times.


def times(options: Options) -> Numbers:
    """Which share of the jobs is done within so many slots of its arrival."""
    size = (50, 40, 20) if options.quick else (100, 80, 30)
    shares: dict[str, Any] = {}
    for preset in PRESETS:
        scenes = [Place(*size, preset=preset)(one) for one in counted(options, 3)]
        shares[preset] = {
            name: np.mean([finished(rule, one) for one in scenes], axis=0).tolist()
            for name, rule in RULES.items()
        }
    return {"shares": shares}


def finished(rule: Scheduler, scene: study.Scene) -> np.ndarray:
    """The share of the jobs done within 1 .. T slots, float[T].

    Raises:
        RuntimeError: The schedule breaks a rule.
    """
    jobs, machines, n_slots, _ = scene.data
    schedule = playing.scheduled(rule, scene.data)
    if wrong := cluster.check(schedule, jobs, machines):
        raise RuntimeError(wrong[0])
    ends = cluster.completion(schedule, jobs)
    slots = np.where(ends < 0, n_slots + 1, ends - jobs.arrival + 1)
    return (slots[:, None] <= np.arange(1, n_slots + 1)).mean(0)


def draw_times(numbers: Numbers) -> Any:
    """The share of jobs done against slots, a panel a preset."""
    parts = []
    for preset, shares in numbers["shares"].items():
        x = np.arange(1, len(shares[PD_ORS]) + 1)
        lines = [results.Series(LABELS[one], x, *[np.array(shares[one])] * 3) for one in NAMES]
        parts.append(plots.Panel(f"slots since arrival\n{preset}", lines))
    return plots.panels(parts, y_label="share of the jobs that are done")


def slots_of(share: Sequence[float]) -> tuple[float, float, float]:
    """Mean and median slots with unfinished jobs set to T, and the median of the finished."""
    done, n_slots = np.asarray(share), len(share)
    mean = n_slots - done[:-1].sum()
    half = [1 + int(np.searchsorted(done, 0.5 * x)) for x in (1, max(done[-1], 1e-9))]
    return float(mean), float(min(half[0], n_slots)), float(half[1])


def found_times(numbers: Numbers) -> Found:
    """Median and mean times with the unfinished, and the medians of those that finish."""
    words, near = [], []
    for preset, shares in numbers["shares"].items():
        each = {name: slots_of(shares[name]) for name in NAMES}
        texts = (
            f"{LABELS[one]} {mean:.0f}, {median:.0f}, {of_done:.0f} ({shares[one][-1]:.2f})"
            for one, (mean, median, of_done) in each.items()
        )
        words.append(f"{preset}: {'; '.join(texts)}")
        least = min(NAMES, key=lambda one: each[one][0])
        near.append(f"the least mean time on {preset} is that of {LABELS[least]}")
    head = "slots: mean and median with unfinished jobs set to T, median of the finished (share)"
    return Found(f"{head}. {'. '.join(words)}", f"in kind: {', '.join(near)}")


# The optimum.


def small(n_jobs: int, n_slots: int, seeds: study.Seeds) -> study.Scene:
    """Jobs of tiny workloads on two machines, arriving in the first half, and their optimum."""
    parts = [cluster.workloads.tiny(SIZES * seeds.data + i) for i in range(-(-n_jobs // 4))]
    fields = zip(*(one.jobs for one in parts), strict=True)
    jobs = cluster.Jobs(*(np.concatenate(each)[:n_jobs] for each in fields))
    draws = unit(seeds.data, ARRIVAL, np.arange(n_jobs))
    jobs = jobs._replace(arrival=np.sort(whole_between(draws, 0, n_slots // 2)))
    asked = cluster.workloads.fixed_workers(seeds.data, jobs)
    workload = playing.Workload(jobs, parts[0].machines, n_slots, asked)
    return study.Scene(
        data=workload, numbers={"optimum": best_utility(*workload[:2], n_slots=n_slots)}
    )


def optimum(options: Options) -> Numbers:
    """PD-ORS and OASiS over the optimum, by jobs and by slots."""
    seeds, places = counted(options, 6), {"jobs": (2, 4, 6, 8), "slots": (6, 10)}
    if options.quick or options.full:  # ten jobs take HiGHS minutes
        places = {"jobs": (2, 6) if options.quick else (2, 4, 6, 8, 10), "slots": (6, 10)}
    fixed, rules = (10 if options.full else 6), {name: RULES[name] for name in NAMES[:3]}
    known: dict[str, Any] = {}
    for axis, x in places.items():
        ratios: dict[str, Any] = {name: [] for name in rules}
        for n in x:
            scenes = [small(*((n, 10) if axis == "jobs" else (fixed, n)), one) for one in seeds]
            for name, rule in rules.items():
                ratios[name].append([earned(rule, x) / x.numbers["optimum"] for x in scenes])
        known[axis] = {"x": x, "ratios": ratios}
    return {"fixed": (fixed, 10), "places": known}


def earned(rule: Scheduler, scene: study.Scene, **settings: Any) -> float:
    """Total utility."""
    schedule = playing.scheduled(rule, scene.data, **settings)
    return cluster.total_utility(schedule, scene.data.jobs)


def draw_optimum(numbers: Numbers) -> Any:
    """The share of the optimum against jobs and slots."""
    parts = []
    for axis, known in numbers["places"].items():
        lines = [line(LABELS[one], known["x"], known["ratios"][one]) for one in NAMES[:3]]
        fixed = numbers["fixed"]
        title = f"{fixed[1]} slots" if axis == "jobs" else f"{fixed[0]} jobs"
        parts.append(plots.Panel(f"{axis}\n{title}", lines))
    return plots.panels(parts, y_label="utility over the optimum", y_range=(0, 1.02))


def found_optimum(numbers: Numbers) -> Found:
    """Means, and the optimum over PD-ORS."""
    words, every = [], []
    for axis, known in numbers["places"].items():
        shares = {one: np.mean(known["ratios"][one], axis=1) for one in NAMES[:3]}
        every += [*shares[PD_ORS]]
        each = "; ".join(f"{LABELS[one]} {listed(x, '.2f')}" for one, x in shares.items())
        words.append(f"{axis} {listed(known['x'])}: {each}")
    ends = 1 / np.array([max(every), min(every)])
    near = f"in kind: the optimum is {ends[0]:.2f} to {ends[1]:.2f} times PD-ORS"
    return Found(
        f"of the optimum, means. {'. '.join(words)}",
        f"{near}, and the more the fuller the machines: as on tiny workloads"
        " (docs/experiments/cluster_optimum.md) a small job let in at a price near nothing blocks"
        " larger ones",
    )


# The gain before rounding, and rounding.


def spread_slots(point: Place, seeds: study.Seeds) -> dict[str, Any]:
    """Slots in which PD-ORS spreads a job, by field; the load of others is taken off the room."""
    jobs, machines, n_slots, _ = point(seeds).data
    schedule = cluster.pd_ors(jobs, machines, n_slots=n_slots)
    units = np.stack([schedule.workers, schedule.servers])  # [2, N, T, H]
    job, slot = np.nonzero((units.sum(0) > 0).sum(-1) > 1)
    demand = np.stack([jobs.worker, jobs.server])[:, job]  # [2, K, R]
    held = np.einsum("kph,kpr->phr", units[:, job, slot], demand)
    load = cluster.resources_used(schedule, jobs)[slot] - held
    bounds = cluster.price_bounds(jobs, machines, n_slots=n_slots)
    low = max(float(bounds.low), LOWEST)
    return {
        "price": np.asarray(cluster.price(load, machines.capacity, low, bounds.high)),
        "room": machines.capacity - load,
        "unit": demand.swapaxes(0, 1),
        "wanted": units[:, job, slot].sum(-1).T,
        "ratio": jobs.workers_per_server[job],
        "batch": jobs.batch[job],
    }


def feasible(key: jax.Array, problem: Any, gains: jax.Array, points: int) -> jax.Array:
    """Whether one of many random roundings of a slot fits, covers and runs, bool[gains]."""
    room, demand, wanted = problem["room"], problem["unit"], problem["wanted"]
    solved = slot_solver.slot_cost(problem["price"], room, *demand, *wanted, hull_points=points)
    exact = jnp.stack([solved.workers, solved.servers])
    chance = jax.random.uniform(key, (DRAWS, *exact.shape))

    def one(gain: jax.Array) -> jax.Array:
        drawn = jnp.floor(gain * exact + chance)  # up with the chance of its fraction
        used = jnp.einsum("dkh,kr->dhr", drawn, demand)
        workers, servers = drawn.sum(-1).T
        runs = workers <= jnp.minimum(problem["batch"], problem["ratio"] * servers)
        covers = (workers >= wanted[0]) & (servers >= wanted[1])
        fits = (used <= room + slot_solver.room_slack(room.dtype)).all((1, 2))
        return (fits & covers & runs).any()

    return jax.vmap(one)(gains)


def gain(options: Options) -> Numbers:
    """PD-ORS with random rounding by the gain on fractions before it."""
    gains = (0.9, 1.0, 1.2) if options.quick else (0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)
    key, seeds = jax.random.key(options.seed), counted(options, 6)
    point = Place(50, 20, 30, preset="ranges")
    each, crowded = [spread_slots(point, one) for one in seeds], [point(one) for one in seeds]
    slots = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
    slots = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), slots)
    keys = jax.random.split(key, len(slots["batch"]))
    known: dict[str, Any] = {OF_WHOLE: {}, OF_SLOTS: {}}
    whole = [earned(cluster.pd_ors, one) for one in crowded]
    for name, hull in ((HULL, True), (PLAIN, False)):
        rule = partial(cluster.pd_ors, hull=hull, draws=DRAWS, key=key)
        shares = [[earned(rule, x, scale=g) for x in crowded] for g in gains]
        known[OF_WHOLE][name] = (np.array(shares) / np.maximum(whole, LEAST)).tolist()
        test = jax.jit(jax.vmap(partial(feasible, points=32 * hull), in_axes=(0, 0, None)))
        known[OF_SLOTS][name] = np.asarray(test(keys, slots, jnp.array(gains)), float).T.tolist()
    return {"gains": gains, "known": known}


def draw_gain(numbers: Numbers) -> Any:
    """Two panels: utility, slots with a feasible draw."""
    titles = {
        OF_WHOLE: "utility over that with\ndeterministic rounding",
        OF_SLOTS: f"share of slots with a\nfeasible draw among {DRAWS}",
    }
    parts = []
    for kind, title in titles.items():
        known = numbers["known"][kind]
        lines = [line(one, numbers["gains"], known[one]) for one in (HULL, PLAIN)]
        parts.append(plots.Panel(f"gain G\n{title}", lines))
    return plots.panels(parts, y_label="ratio or share", y_range=(0, 1.2))


def found_gain(numbers: Numbers) -> Found:
    """What the gain does, and what rounding does."""
    gains, words, known = numbers["gains"], [], numbers["known"]
    for kind in (OF_WHOLE, OF_SLOTS):
        each = (f"{one} {listed(np.mean(known[kind][one], axis=1), '.2f')}" for one in known[kind])
        words.append(f"{kind}: {'; '.join(each)}")
    shares = {one: np.mean(x, axis=1) for one, x in known[OF_SLOTS].items()}
    best = " and ".join(f"{gains[int(np.argmax(x))]:g} ({one})" for one, x in shares.items())
    moved = max(float(np.ptp(np.mean(x, axis=1))) for x in known[OF_WHOLE].values())
    n_slots = len(known[OF_SLOTS][HULL][0])
    return Found(
        f"G = {listed(gains, 'g')}. {'. '.join(words)}; {n_slots} slots",
        f"in kind: most slots have a feasible draw at G = {best}; utility moves by {moved:.2f} at"
        " most, because what no draw solves is rounded deterministically here",
    )


# Mixes of jobs, links, arrivals.


def mixes(options: Options) -> Numbers:
    """Both mixes of jobs."""
    x, seeds = (30,) if options.quick else (30, 100), counted(options, 6)
    runs = {
        title: swept([Place(50, 20, n, preset="ranges", mix=mix) for n in x], RULES, seeds)
        for title, mix in ((shares_of(FIRST), FIRST), (shares_of(SECOND), SECOND))
    }
    return {"x": x, "runs": runs}


def shares_of(mix: Sequence[float]) -> str:
    """A mix in percent."""
    return " / ".join(f"{100 * x:.0f}" for x in mix) + " %"


def locality(options: Options) -> Numbers:
    """PD-ORS, the same without the one-machine case, and OASiS, by the ratio of links."""
    x = (1, 10) if options.quick else (1, 2, 5, 10, 20, 50)
    spread = {SPREAD: partial(cluster.pd_ors, inside=False)}
    rules = {PD_ORS: RULES[PD_ORS]} | spread | {"oasis": RULES["oasis"]}
    runs = {
        preset: swept(
            [Place(50, 20, 30, preset=preset, links=n) for n in x], rules, counted(options, 6)
        )
        for preset in ("ranges", "local")
    }
    return {"x": x, "runs": runs}


def over_ours(runs: Numbers, name: str) -> np.ndarray:
    """A rule's utility over that of PD-ORS, float[scenes, instances]."""
    return np.array(runs[name]["utility"]) / np.maximum(runs[PD_ORS]["utility"], LEAST)


def draw_locality(numbers: Numbers) -> Any:
    """What others have of PD-ORS's utility."""
    parts = []
    for preset, runs in numbers["runs"].items():
        names = {SPREAD: SPREAD, "oasis": LABELS["oasis"]}
        lines = [line(text, numbers["x"], over_ours(runs, one)) for one, text in names.items()]
        parts.append(plots.Panel(f"link inside / across\n{preset}", lines, log_x=True))
    return plots.panels(parts, y_label="utility over PD-ORS's")


def found_locality(numbers: Numbers) -> Found:
    """PD-ORS over the two, and whether its lead grows."""
    words, grows = [], []
    for preset, runs in numbers["runs"].items():
        ours = means(runs, PD_ORS)
        more = {one: ours / np.maximum(means(runs, one), LEAST) for one in (SPREAD, "oasis")}
        words.append(
            f"{preset}: PD-ORS {listed(ours)}; over itself never on one machine"
            f" {listed(more[SPREAD], '.2f')}; over OASiS {listed(more['oasis'], '.2f')}"
        )
        up = all(x[-1] > x[0] for x in more.values())
        pays = f"one machine pays at {(more[SPREAD] > 1.01).sum()} of {len(ours)} ratios"
        grows.append(f"{'grows' if up else 'does not grow'} with it on {preset}, where {pays}")
    text = f"ratio {listed(numbers['x'])}. {'. '.join(words)}"
    return Found(text, f"in kind: the lead {'; it '.join(grows)}")


def pattern(path: Path) -> tuple[float, ...]:
    """Jobs by slot: the second column of a CSV file with a header."""
    return tuple(np.loadtxt(path, delimiter=",", skiprows=1, usecols=1).tolist())


def arrivals(options: Options) -> Numbers:
    """The second mix under alternating arrivals, a burst, and the pattern of a file."""
    x, size, seeds = ((10, 30, 50) if options.full else (10, 30)), (100, 75), counted(options, 2)
    size = (40, 30) if options.quick else size
    even = np.ones(size[1])
    even[1] = BURST / (1 - BURST) * (size[1] - 1)
    weights = {"alternating": (), "burst": tuple(even.tolist())}
    if options.data is not None:
        weights[options.data.name] = pattern(options.data)[: size[1]]
    runs = {}
    for title, each in weights.items():
        place = Place(*size, 1, preset="ranges", mix=SECOND, weights=each)
        runs[title] = swept([replace(place, n_machines=n) for n in x], RULES, seeds)
    return {"x": x, "runs": runs}


def _figure(name: str, functions: tuple[Any, Any, Any], there: str, here: str, reading: str) -> Any:
    """A figure whose setting and reading are recalled."""
    measure, draw, found = functions
    alt = f"PD-ORS: {there}"
    return Figure(name, f"{there} ({RECALLED})", here, f"{reading} ({RECALLED})", measure, draw,
                  found, alt)  # fmt: skip


def _sweep(measure: Any, x_label: str, why: str = "") -> tuple[Any, Any, Any]:
    """The functions of a sweep over schedulers."""
    return measure, partial(draw_sweep, x_label), partial(found_sweep, x_label, why)


FULL = " The ranges are recalled and over-full: with 20 slots about a quarter of the jobs can end."
MORE = "PD-ORS earns most everywhere, and the more so the"

PAPER = Paper(
    "pd_ors",
    "Toward Efficient Online Scheduling for Distributed Machine Learning Systems (PD-ORS)",
    "Yu et al. 2021, [arXiv 2108.02917](https://arxiv.org/abs/2108.02917)",
    (
        _figure(
            "machines",
            _sweep(by_machines, "machines", FULL),
            "total utility against 10 to 100 machines, 50 jobs, 20 slots",
            "as there on `ranges`, and on `balanced`; six instances",
            f"{MORE} more machines there are",
        ),
        _figure(
            "jobs",
            _sweep(by_jobs, "jobs", FULL),
            "total utility against 10 to 50 jobs, 100 machines, 20 slots",
            "as there on `ranges`, four instances",
            f"{MORE} more jobs there are",
        ),
        _figure(
            "horizon",
            _sweep(by_horizon, "slots"),
            "total utility against a horizon of 20 to 80 slots, 50 jobs, 100 machines",
            "as there on `ranges`, two instances; jobs arrive over the whole horizon",
            "PD-ORS earns most at every horizon",
        ),
        _figure(
            "times",
            (times, draw_times, found_times),
            "training times by scheduler, unfinished jobs set to T, 100 jobs, 80 slots,"
            " 30 machines",
            "as there on `ranges`, and on `balanced`; three instances; the whole distribution",
            "PD-ORS has the least median time",
        ),
        _figure(
            "optimum",
            (optimum, draw_optimum, found_optimum),
            "the offline optimum (Gurobi) over PD-ORS, against jobs up to 10 and slots",
            "two machines with two resources (`tiny`), to 8 jobs and 10 slots, exact by HiGHS,"
            " six instances; four resources and more machines have too many placements",
            "the ratio stays near 1, far below the proved bound",
        ),
        _figure(
            "gain",
            (gain, draw_gain, found_gain),
            "the gain G_delta on the fractions before randomised rounding",
            f"{DRAWS} draws a slot, G = 0.8 to 1.2, on `ranges`, 50 jobs, 20 slots, 30 machines,"
            " six instances; and the slots in which PD-ORS spreads a job, at their prices",
            "best near G = 1: less leaves slots uncovered, more does not fit",
        ),
        _figure(
            "mixes",
            _sweep(mixes, "machines"),
            f"utility under two mixes without hurry / sensitive / critical, {shares_of(FIRST)} and"
            f" {shares_of(SECOND)}",
            "as there on `ranges`, 50 jobs, 20 slots, 30 and 100 machines, six instances",
            "PD-ORS earns most under both",
        ),
        _figure(
            "locality",
            (locality, draw_locality, found_locality),
            "PD-ORS and OASiS by how much faster links inside a machine are",
            "links across slowed to 1 / 1 to 1 / 50 of those inside, `ranges` and `local`, 50 jobs,"
            " 20 slots, 30 machines, six instances; besides PD-ORS that never uses one machine",
            "the lead over OASiS, whose workers and servers stand apart, grows with the ratio",
        ),
        _figure(
            "arrivals",
            _sweep(arrivals, "machines"),
            f"utility against machines with the arrivals of the Google trace, {shares_of(SECOND)}",
            "100 jobs, 75 slots on `ranges`, two instances; alternating arrivals; a burst of"
            f" {BURST:.0%} in the second slot; and those of `--data`, a CSV file whose second"
            " column is jobs by slot: here the pattern tabulated in pengyanghua/DL2 (trace.py)",
            "PD-ORS earns most, as with drawn arrivals",
        ),
    ),
    (
        ("drawings of the model and of placements", "they show no numbers."),
        ("the proved bound as a curve", "it holds ln(U / L), 60 to 110 here: it tells nothing."),
        ("optimum on the paper's machines", "too many placements for an exact programme here."),
        ("Google's trace itself", "terabytes; its arrivals by slot are read with `--data`."),
    ),
    "The full text was not at hand and no public code of PD-ORS is known: sizes, ranges, mixes and"
    " readings are recalled, and rivals are reconstructed from their papers. `ranges` has the"
    " ranges as they are recalled; too few of its jobs can end, so one of them or the slot must be"
    " recalled wrongly. Jobs of `balanced` have the work of 1 to 8 slots. Means and standard"
    " errors over instances that all schedulers share. Rounding is deterministic unless said.",
)
