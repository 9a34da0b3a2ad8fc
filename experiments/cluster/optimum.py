"""How near to the optimum does PD-ORS come, and why not nearer?

Tiny workloads, four jobs on two machines in four slots, have an exact optimum. All rules
play two disjoint sets of them, and PD-ORS under price floors that rise. Then one case is told
(fact `story`): the workload on which PD-ORS comes least near among the first forty seeds, which job
it admits, what that job blocks, and what becomes of it as the floor rises.

The optimum: for every job and slot at most one of its whole placements is chosen; a job is worth
its utility at the slot by whose end the samples that its placements really train reach all of them:

    max sum u_i(c - a_i) y[i, c],     sum_k x[i, t, k] <= sum_{c >= t} y[i, c],
    sum_{t, k} trained[i, k] x[i, t, k] >= V_i (1 - 1e-6) sum_c y[i, c],     sum_c y[i, c] <= 1,
    sum_{i, k} use[i, k, h, r] x[i, t, k] <= C[h, r],     all x and y are 0 or 1.

Source: Yu, Liu, Wu, Ji, Bentley, 2021.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, sparse

from asyncjax import cluster, results, study
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result
from asyncjax.study.scene import Records
from asyncjax.study.statistics import Condition, paired
from experiments import part
from experiments.cluster import playing
from experiments.cluster.playing import CHOOSING, LABELS, PD_ORS, SERVERS

NAME = "cluster_optimum"
TITLE = "How near to the optimum does PD-ORS come, and why not nearer?"
PAPERS = ("Yu, Liu, Wu, Ji, Bentley, 2021, PD-ORS",)
SLOTS, PARTS = 4, 8
FINER = 24  # parts of the second search that is told: thirds of a job are whole parts
NEAR, HALF, SELDOM = 0.7, 0.5, 0.05  # the rule of the claim, see `CLAIMS`
SHOWN = ("oasis", "least_attained", "marginal_goodput", "dorm")
SHOWN_FLOORS = (0.01, 0.3, 1.0)


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/cluster_optimum")
    seed: int = 0  # of the instances, below 256
    instances: int = 200  # of each set
    told: int = 17  # seed of the workload whose story is told
    floors: tuple[float, ...] = (1e-6, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    commit: bool = False  # write experiments/rows/cluster_optimum.csv.gz


def placements(
    jobs: cluster.Jobs, machines: cluster.Machines, job: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All that one job may hold in a slot: workers, servers int[K, H], samples trained float[K].

    Left out is what takes up as much as another placement, or more, and trains no more.
    """
    worker, server = np.asarray(jobs.worker[job]), np.asarray(jobs.server[job])
    choices = []
    for room in machines.capacity:
        most = [int(np.min(room[one > 0] / one[one > 0])) for one in (worker, server)]
        pairs = itertools.product(range(most[0] + 1), range(most[1] + 1))
        choices.append([(w, s) for w, s in pairs if (w * worker + s * server <= room).all()])
    every = np.array(list(itertools.product(*choices)))  # [K, H, 2]
    total = every.sum(1)
    most = np.minimum(jobs.batch[job], jobs.workers_per_server[job] * total[:, 1])
    every = every[(total[:, 0] > 0) & (total[:, 0] <= most)]
    one = cluster.Jobs(*(np.asarray(field)[job : job + 1] for field in jobs))
    got = cluster.samples_trained(every[None, :, :, 0], every[None, :, :, 1], one)[0]
    use = every[..., :1] * worker + every[..., 1:] * server  # [K, H, R]
    flat = use.reshape(len(every), -1)
    less = (flat[:, None] <= flat).all(-1) & (got[:, None] >= got)  # [k, l]: k beats l
    same = less & less.T
    order = np.arange(len(every))
    beaten = (less & (~same | (order[:, None] < order))).any(0)
    return every[~beaten, :, 0], every[~beaten, :, 1], got[~beaten]


def best_utility(jobs: cluster.Jobs, machines: cluster.Machines, n_slots: int) -> float:
    """The optimum, by an integer programme that HiGHS solves to a relative gap of 1e-6.

    Raises:
        RuntimeError: The solver gives up.

    Example:
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> round(best_utility(jobs, machines, 4), 3)
        36.513
    """
    gain: list[float] = []
    rows: list[dict[int, float]] = []
    most: list[float] = []
    room = {
        at: {} for at in itertools.product(range(n_slots), *map(range, machines.capacity.shape))
    }
    for job, arrival in enumerate(np.asarray(jobs.arrival)):
        slots = range(int(arrival), n_slots)
        ends = {slot: len(gain) + index for index, slot in enumerate(slots)}
        gain += _worth(jobs, job, np.array(slots) - arrival).tolist()
        workers, servers, got = placements(jobs, machines, job)
        use = workers[..., None] * jobs.worker[job] + servers[..., None] * jobs.server[job]
        needed = dict.fromkeys(ends.values(), float(jobs.samples[job]) * (1 - 1e-6))
        for slot in slots:
            first = len(gain)
            gain += [0.0] * len(got)
            chosen = range(first, len(gain))
            while_it_runs = {ends[end]: -1.0 for end in slots if end >= slot}
            rows.append({**dict.fromkeys(chosen, 1.0), **while_it_runs})
            needed.update(zip(chosen, (-got).tolist(), strict=True))
            for h, r in np.ndindex(*machines.capacity.shape):
                taken = zip(chosen, use[:, h, r].tolist(), strict=True)
                room[slot, h, r].update({column: units for column, units in taken if units})
        rows += [dict.fromkeys(ends.values(), 1.0), needed]
        most += [0.0] * len(slots) + [1.0, 0.0]
    for (_, h, r), row in room.items():
        rows.append(row)
        most.append(float(machines.capacity[h, r]))
    return _solved(np.array(gain), rows, most)


def _worth(jobs: cluster.Jobs, job: int, delays: np.ndarray) -> np.ndarray:
    """Utility of completing after so many slots."""
    value, steepness, due = np.asarray(jobs.utility[job], float)
    return value / (1 + np.exp(np.clip(steepness * (delays - due), -700, 700)))


def _solved(gain: np.ndarray, rows: list[dict[int, float]], most: list[float]) -> float:
    """The largest gain of binary variables under `rows <= most`."""
    entries = [(k, column, value) for k, row in enumerate(rows) for column, value in row.items()]
    index, columns, values = zip(*entries, strict=True)
    matrix = sparse.csr_array((values, (index, columns)), shape=(len(rows), len(gain)))
    limit: Any = np.array(most)  # scipy takes arrays, its types say float
    found = optimize.milp(
        -gain,
        constraints=optimize.LinearConstraint(matrix, -np.inf, limit),
        integrality=np.ones(len(gain)),
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 1e-6},
    )
    if found.status != 0:
        raise RuntimeError(f"the integer programme was not solved: {found.message}")
    return -float(found.fun)


def tiny(seeds: study.Seeds) -> study.Scene:
    """A tiny workload and the largest utility that any schedule of it has."""
    jobs, machines = cluster.workloads.tiny(seeds.data)
    workload = playing.Workload(jobs, machines, SLOTS)
    return study.Scene(data=workload, numbers={"optimum": best_utility(jobs, machines, SLOTS)})


def floor(low: float) -> str:
    """PD-ORS at a floor, as a method."""
    return f"floor {low:g}"


def rules(settings: Settings) -> dict[str, study.Method]:
    """All that is played, by name."""
    pd_ors = partial(cluster.pd_ors, parts=PARTS)
    priced: dict[str, Callable[..., Any]] = {
        PD_ORS: pd_ors,
        CHOOSING: partial(pd_ors, servers=SERVERS),
        "oasis": partial(cluster.oasis, parts=PARTS),
    }
    at_floors = {floor(low): partial(pd_ors, low=low) for low in settings.floors}
    every = {**priced, **{n: r for n, r in cluster.SCHEDULERS.items() if n not in priced}}
    return {name: playing.method(rule) for name, rule in {**every, **at_floors}.items()}


def _over_optimum(records: Records, scene: study.Scene) -> Mapping[str, float]:
    best = scene.numbers["optimum"]
    return {"ratio": float(np.asarray(records["utility"])) / best, "optimum": best}


def study_of(settings: Settings) -> Result:
    """Plays and solves all cases, and tells one."""
    rows = study.compare(
        {"tiny": tiny},
        rules(settings),
        trials=1,
        tuning_instances=1,
        instances=settings.instances,
        measure=study.Measure(_over_optimum, "ratio"),
        path=settings.output,
        seed=settings.seed,
        tuned_over=study.TunedOver.UNTUNED,
    ).rows
    facts = {"floors": list(settings.floors), "story": story(settings)}
    return Result(playing.joined(rows), "ratio", facts, settings.seed)


def story(settings: Settings) -> dict[str, Any]:
    """One workload: its jobs, what each blocks at the literal floor, and what floors do.

    A job blocks another if that is admitted where the job never comes. Bounds of prices stay those
    of all jobs, so nothing but room and load differs.
    """
    jobs, machines = cluster.workloads.tiny(settings.told)
    bounds = cluster.price_bounds(jobs, machines, n_slots=SLOTS)
    play = partial(cluster.pd_ors, n_slots=SLOTS, parts=PARTS, low=bounds.low, high=bounds.high)
    schedule = play(jobs, machines)
    optimum = best_utility(jobs, machines, SLOTS)
    told = []
    for job in range(len(jobs.arrival)):
        others = np.arange(len(jobs.arrival)) != job
        admitted = np.flatnonzero(others)[play(_only(jobs, others), machines).admitted]
        let_in = [int(other) for other in admitted if not schedule.admitted[other]]
        told.append(
            {
                "arrival": int(jobs.arrival[job]),
                "best_worth": best_utility(_only(jobs, ~others), machines, SLOTS),
                "admitted": bool(schedule.admitted[job]),
                "end": int(cluster.completion(schedule, jobs)[job]),
                "payoff": float(schedule.payoff[job]),
                "blocks": let_in if schedule.admitted[job] else [],
            }
        )
    floors, searches = [bounds.low, *settings.floors], {}
    for parts in (PARTS, FINER):
        schedules = [play(jobs, machines, low=low, parts=parts) for low in floors]
        earned = np.array([cluster.total_utility(one, jobs) for one in schedules])
        searches[str(parts)] = {
            "admitted": [np.flatnonzero(one.admitted).tolist() for one in schedules],
            "ratio": (earned / optimum).tolist(),
        }
    return {
        "seed": settings.told,
        "literal_floor": bounds.low,
        "optimum": optimum,
        "jobs": told,
        "busy": cluster.utilisation(schedule, jobs, machines).max(1).tolist(),
        "floors": floors,
        "searches": searches,
    }


def _only(jobs: cluster.Jobs, which: np.ndarray) -> cluster.Jobs:
    """Some of the jobs."""
    return cluster.Jobs(*(np.asarray(field)[which] for field in jobs))


def _ratios(result: Result, rule: str, letter: str) -> np.ndarray:
    return result.select(method=rule, set=letter)["ratio"].to_numpy()


def near(result: Result, letter: str, level: float) -> Condition:
    """The mean ratio of PD-ORS to the optimum is above 0.7."""
    ratio = _ratios(result, PD_ORS, letter)
    mean = paired(np.full_like(ratio, NEAR), ratio, level=level)
    return Condition(f"the mean is above {NEAR:g} of the optimum", mean)


def seldom_far(result: Result, letter: str, level: float) -> Condition:
    """Fewer than one case in twenty is below a half of the optimum."""
    ratio = _ratios(result, PD_ORS, letter)
    far = paired(ratio < HALF, np.full_like(ratio, SELDOM), level=level)
    return Condition(f"fewer than {SELDOM:g} of the cases are below {HALF:g}", far)


CLAIMS = (Claim("PD-ORS comes near the optimum", [near, seldom_far], "Yu et al. 2021"),)


def condition_table(result: Result) -> results.Table:
    """The claim, condition by condition."""
    rows = [
        (letter, one.text, one.verdict)
        for letter in result.sets
        for one in result.conditions(CLAIMS[0], letter)
    ]
    return part.table(("set", "condition", "verdict"), rows, "The claim by its rule.", left=3)


def ratio_table(result: Result) -> results.Table:
    """Utility over the optimum: of some rules, and of PD-ORS at some floors."""
    labels = {
        **{name: LABELS[name] for name in (PD_ORS, CHOOSING)},
        **{floor(low): f"PD-ORS, {floor(low)}" for low in SHOWN_FLOORS},
        **{name: LABELS[name] for name in SHOWN},
    }
    rows = []
    for rule in (rule for rule in labels if rule in result.methods):
        rows.append([labels[rule]])
        for ratio in (_ratios(result, rule, letter) for letter in result.sets):
            rows[-1].append(f"{ratio.mean():.2f}, {np.median(ratio):.2f}, {ratio.min():.2f}")
            rows[-1].append(f"{100 * (ratio < HALF).mean():.0f} %")
    heads = [f"{s}: {h}" for s in result.sets for h in ("mean, median, lowest", "below 0.5")]
    caption = "Total utility over the exact optimum, tiny workloads."
    return part.table(("rule", *heads), rows, caption)


def job_table(result: Result) -> results.Table:
    """The jobs of the case that is told."""
    told = result.facts["story"]
    rows = [
        (
            number,
            job["arrival"],
            job["best_worth"],
            job["end"] if job["end"] >= 0 else None,
            job["admitted"],
            ", ".join(map(str, job["blocks"])) or "none",
        )
        for number, job in enumerate(told["jobs"])
    ]
    heads = ("job", "arrives in slot", "worth, alone on the machines", "ends in slot", "admitted")
    caption = f"Workload tiny({told['seed']}) at the literal floor {told['literal_floor']:.2g}."
    return part.table((*heads, "would be admitted without it"), rows, caption, left=0)


def story_table(result: Result) -> results.Table:
    """What becomes of that case as the floor rises; jobs are counted from 0."""
    told = result.facts["story"]
    searches = [told["searches"][str(parts)] for parts in (PARTS, FINER)]
    rows = []
    for at, low in enumerate(told["floors"]):
        rows.append([f"{low:.2g}"])
        for one in searches:
            rows[-1].append(", ".join(map(str, one["admitted"][at])) or "none")
            rows[-1].append(f"{one['ratio'][at]:.2f}")
    pairs = [
        f"{what}, {n} parts" for n in (PARTS, FINER) for what in ("admitted", "of the optimum")
    ]
    caption = (
        f"The workload tiny({told['seed']}) under floors that rise; jobs are counted from 0. In few"
        " parts a job is promised a later end than it really has, and is refused too early."
    )
    return part.table(("price floor", *pairs), rows, caption)


TABLES = {
    "conditions": condition_table,
    "ratios": ratio_table,
    "jobs": job_table,
    "story": story_table,
}


def floor_figure(result: Result) -> Illustration:
    """Ratio to the optimum against the floor: both sets, and the case that is told."""
    floors, told = result.facts["floors"], result.facts["story"]
    lows, lines = np.asarray(floors, float), []
    for letter in result.sets:
        ratios = np.array([_ratios(result, floor(low), letter) for low in floors])
        middle, half = ratios.mean(1), ratios.std(1, ddof=1) / np.sqrt(ratios.shape[1])
        name = f"set {letter}, mean"
        lines.append(results.Series(name, lows, middle, middle - half, middle + half))
    for parts in (PARTS, FINER):
        ratio = np.asarray(told["searches"][str(parts)]["ratio"], float)[1:]
        lines.append(results.Series(f"tiny({told['seed']}), {parts} parts", lows, *[ratio] * 3))
    panel = plots.Panel("price floor", lines, log_x=True)
    return Illustration(
        plots.panels([panel], y_label="utility over the optimum"),
        "Utility of PD-ORS over the exact optimum, against the price floor.",
    )


FIGURES = {"floors": floor_figure}
FACTS: Mapping[str, Any] = {
    "below_half": lambda result: {
        letter: float((_ratios(result, PD_ORS, letter) < HALF).mean()) for letter in result.sets
    },
}


if __name__ == "__main__":
    part.main(NAME)
