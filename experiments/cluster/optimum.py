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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import linalg, optimize

from asyncjax import cluster, results, study
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Condition, paired
from asyncjax.study.result import Claim, Result
from asyncjax.study.scene import Records
from experiments import part
from experiments.cluster import playing
from experiments.cluster.playing import CHOOSING, PD_ORS, SERVERS

NAME = "cluster_optimum"
TITLE = "How near to the optimum does PD-ORS come, and why not nearer?"
PAPERS = ("Yu, Liu, Wu, Ji, Bentley, 2021, PD-ORS",)
SLOTS, PARTS = 4, 8
FINER = 24  # parts of the second search that is told: thirds of a job are whole parts
NEAR, HALF, SELDOM = 0.7, 0.5, 0.05  # the rule of the claim, see `CLAIMS`
SHOWN = (PD_ORS, CHOOSING, "floor 0.01", "floor 0.3", "floor 1", "oasis", "least_attained")
SHOWN += ("marginal_goodput", "dorm")


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
    got = cluster.samples_trained(every[None, ..., 0], every[None, ..., 1], _only(jobs, [job]))[0]
    use = every[..., :1] * worker + every[..., 1:] * server  # [K, H, R]
    flat = use.reshape(len(every), -1)
    less = (flat[:, None] <= flat).all(-1) & (got[:, None] >= got)  # [k, l]: k beats l, or is it
    beaten = (less & ~np.tril(less.T)).any(0)  # of equals the first stays
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
    gains, blocks, most, held = [], [], [], []
    for job, arrival in enumerate(np.asarray(jobs.arrival)):
        value, steepness, due = np.asarray(jobs.utility[job], float)
        workers, servers, got = placements(jobs, machines, job)
        n_ends, n_placements = n_slots - int(arrival), len(got)
        hurry = np.exp(np.clip(steepness * (np.arange(n_ends) - due), -700, 700))
        gains += [value / (1 + hurry), np.zeros(n_ends * n_placements)]
        runs = np.kron(np.eye(n_ends), np.ones(n_placements))
        runs = np.hstack([-np.triu(np.ones((n_ends, n_ends))), runs])
        once = np.append(np.ones(n_ends), np.zeros(n_ends * n_placements))
        needed = np.full(n_ends, float(jobs.samples[job]) * (1 - 1e-6))
        blocks.append(np.vstack([runs, once, np.append(needed, -np.tile(got, n_ends))]))
        most += [0.0] * n_ends + [1.0, 0.0]
        use = workers[..., None] * jobs.worker[job] + servers[..., None] * jobs.server[job]
        taken = np.kron(np.eye(n_ends), use.reshape(n_placements, -1).T)
        held.append(np.pad(taken, ((int(arrival) * machines.capacity.size, 0), (n_ends, 0))))
    of_jobs: Any = linalg.block_diag(*blocks)
    matrix = np.vstack([of_jobs, np.hstack(held)])
    limit: Any = np.append(most, np.tile(machines.capacity.ravel(), n_slots))
    found = optimize.milp(
        -np.concatenate(gains),
        constraints=optimize.LinearConstraint(matrix, -np.inf, limit),  # typed as numbers
        integrality=np.ones(matrix.shape[1]),
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


def rules(settings: Settings) -> dict[str, playing.Scheduler]:
    """All that is played, by name."""
    pd_ors = partial(cluster.pd_ors, parts=PARTS)
    every: dict[str, playing.Scheduler] = {PD_ORS: pd_ors}
    every |= {CHOOSING: partial(pd_ors, servers=SERVERS)} | cluster.SCHEDULERS
    every |= {PD_ORS: pd_ors, "oasis": partial(cluster.oasis, parts=PARTS)}
    return every | {f"floor {low:g}": partial(pd_ors, low=low) for low in settings.floors}


def _over_optimum(records: Records, scene: study.Scene) -> Mapping[str, float]:
    best = scene.numbers["optimum"]
    return {"ratio": float(np.asarray(records["utility"])) / best, "optimum": best}


def study_of(settings: Settings) -> Result:
    """Plays and solves all cases, and tells one."""
    play = partial(playing.played, settings, (), {"tiny": tiny}, rules(settings))
    rows = play(measure=study.Measure(_over_optimum, "ratio"), tuning_instances=1)
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
    for job, end in enumerate(cluster.completion(schedule, jobs).tolist()):
        others = np.arange(len(jobs.arrival)) != job
        admitted = np.flatnonzero(others)[play(_only(jobs, others), machines).admitted]
        let_in = admitted[~schedule.admitted[admitted]].tolist()
        told.append(
            {
                "best_worth": best_utility(_only(jobs, ~others), machines, SLOTS),
                "admitted": bool(schedule.admitted[job]),
                "end": end,
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
        "jobs": told,
        "busy": cluster.utilisation(schedule, jobs, machines).max(1).tolist(),
        "searches": searches,
    }


def _only(jobs: cluster.Jobs, which: Any) -> cluster.Jobs:
    """Some of the jobs."""
    return cluster.Jobs(*(np.asarray(field)[which] for field in jobs))


def _ratios(result: Result, rule: str, letter: str) -> np.ndarray:
    return result.select(method=rule, set=letter)["ratio"].to_numpy()


def near(result: Result, letter: str, level: float) -> Condition:
    """The mean ratio of PD-ORS to the optimum is above 0.7."""
    ratio = _ratios(result, PD_ORS, letter)
    mean = paired(np.zeros_like(ratio), ratio, level=level)
    return Condition(f"the mean is above {NEAR:g} of the optimum", mean, -NEAR)


def seldom_far(result: Result, letter: str, level: float) -> Condition:
    """Fewer than one case in twenty is below a half of the optimum."""
    ratio = _ratios(result, PD_ORS, letter)
    far = paired(ratio < HALF, np.zeros_like(ratio), level=level)
    return Condition(f"fewer than {SELDOM:g} of the cases are below {HALF:g}", far, SELDOM)


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

    def text(result: Result, rule: str, set: str) -> str:
        ratio = _ratios(result, rule, set)
        return f"{ratio.mean():.2f}, {np.median(ratio):.2f}, {ratio.min():.2f}"

    def below(result: Result, rule: str, set: str) -> str:
        return f"{100 * (_ratios(result, rule, set) < HALF).mean():.0f} %"

    columns = playing.in_sets(result, {"mean, median, lowest": text, "below 0.5": below})
    rows = playing.lines([name for name in SHOWN if name in result.methods], columns)
    for row in rows:
        row[0] = f"PD-ORS, {row[0]}" if row[0].startswith("floor") else row[0]
    caption = "Total utility over the exact optimum, tiny workloads."
    return part.table(("rule", *columns), rows, caption)


def story_table(result: Result) -> results.Table:
    """What becomes of that case as the floor rises; jobs are counted from 0."""
    told, heads = result.facts["story"], ["price floor"]
    rows = [[f"{low:.2g}"] for low in (told["literal_floor"], *result.facts["floors"])]
    for parts in (PARTS, FINER):
        one = told["searches"][str(parts)]
        heads += [f"admitted, {parts} parts", f"of the optimum, {parts} parts"]
        for row, admitted, ratio in zip(rows, one["admitted"], one["ratio"], strict=True):
            row += [", ".join(map(str, admitted)) or "none", f"{ratio:.2f}"]
    caption = (
        f"The workload tiny({told['seed']}) under floors that rise; jobs are counted from 0. In few"
        " parts a job is promised a later end than it really has, and is refused too early."
    )
    return part.table(heads, rows, caption)


TABLES = {"conditions": condition_table, "ratios": ratio_table, "story": story_table}


def floor_figure(result: Result) -> Illustration:
    """Ratio to the optimum against the floor: both sets, and the case that is told."""
    floors, told = result.facts["floors"], result.facts["story"]
    lows, lines = np.asarray(floors, float), []
    for letter in result.sets:
        ratios = np.array([_ratios(result, f"floor {low:g}", letter) for low in floors])
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
FACTS = {
    "below_half": lambda result: {
        letter: float((_ratios(result, PD_ORS, letter) < HALF).mean()) for letter in result.sets
    },
}


if __name__ == "__main__":
    part.main(NAME)
