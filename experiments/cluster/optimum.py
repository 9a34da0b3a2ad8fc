"""How near to the optimum does PD-ORS come, and why not nearer?

Tiny workloads, four jobs on two machines in four slots, have an exact optimum (`exact`). All rules
play two disjoint sets of them, and PD-ORS under price floors that rise. Then one case is told
(fact `story`): the workload on which PD-ORS comes least near among the first forty seeds, which job
it admits, what that job blocks, and what becomes of it as the floor rises.

Source: Yu, Liu, Wu, Ji, Bentley, 2021.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import cluster, results, study
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result
from asyncjax.study.scene import Records
from asyncjax.study.statistics import Condition, paired
from experiments import part
from experiments.cluster import playing
from experiments.cluster.exact import best_utility
from experiments.cluster.playing import CHOOSING, LABELS, PD_ORS, SERVERS
from experiments.common.parts import Part, run_alone

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


def tiny(seeds: study.Seeds) -> study.Scene:
    """A tiny workload and the largest utility that any schedule of it has."""
    jobs, machines = cluster.workloads.tiny(seeds.data)
    own = playing.Workload(jobs, machines, SLOTS)
    return study.Scene(data=own, numbers={"optimum": best_utility(jobs, machines, SLOTS)})


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
        found = [play(jobs, machines, low=low, parts=parts) for low in floors]
        earned = np.array([cluster.total_utility(own, jobs) for own in found])
        searches[str(parts)] = {
            "admitted": [np.flatnonzero(own.admitted).tolist() for own in found],
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
    return results.Table(
        playing.columns("set", "condition", "verdict", left=3), rows, "The claim by its rule."
    )


def ratio_table(result: Result) -> results.Table:
    """Utility over the optimum: of some rules, and of PD-ORS at some floors."""
    labels = {
        **{name: LABELS[name] for name in (PD_ORS, CHOOSING)},
        **{floor(low): f"PD-ORS, {floor(low)}" for low in SHOWN_FLOORS},
        **{name: LABELS[name] for name in SHOWN},
    }
    rows = []
    for rule in (rule for rule in labels if rule in result.methods):
        row = [labels[rule]]
        for own in (_ratios(result, rule, letter) for letter in result.sets):
            row.append(f"{own.mean():.2f}, {np.median(own):.2f}, {own.min():.2f}")
            row.append(f"{100 * (own < HALF).mean():.0f} %")
        rows.append(tuple(row))
    heads = [f"{s}: {h}" for s in result.sets for h in ("mean, median, lowest", "below 0.5")]
    return results.Table(
        playing.columns("rule", *heads),
        rows,
        "Total utility over the exact optimum, tiny workloads.",
    )


def job_table(result: Result) -> results.Table:
    """The jobs of the case that is told."""
    told = result.facts["story"]
    rows = [
        (
            number,
            job["arrival"],
            job["best_worth"],
            job["end"] if job["end"] >= 0 else None,
            "yes" if job["admitted"] else "no",
            ", ".join(map(str, job["blocks"])) or "none",
        )
        for number, job in enumerate(told["jobs"])
    ]
    heads = ("job", "arrives in slot", "worth, alone on the machines", "ends in slot")
    words = playing.columns("admitted", "would be admitted without it", left=2)
    return results.Table(
        (*playing.columns(*heads, left=0), *words),
        rows,
        f"Workload tiny({told['seed']}) at the literal floor {told['literal_floor']:.2g}.",
    )


def story_table(result: Result) -> results.Table:
    """What becomes of that case as the floor rises; jobs are counted from 0."""
    told = result.facts["story"]
    rows = []
    for index, low in enumerate(told["floors"]):
        row = [f"{low:.2g}"]
        for parts in (PARTS, FINER):
            own = told["searches"][str(parts)]
            row.append(", ".join(map(str, own["admitted"][index])) or "none")
            row.append(f"{own['ratio'][index]:.2f}")
        rows.append(tuple(row))
    pairs = [
        f"{what}, {n} parts" for n in (PARTS, FINER) for what in ("admitted", "of the optimum")
    ]
    return results.Table(
        playing.columns("price floor", *pairs),
        rows,
        f"The workload tiny({told['seed']}) under floors that rise; jobs are counted from 0. In few"
        " parts a job is promised a later end than it really has, and is refused too early.",
    )


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
        label = f"set {letter}, mean"
        lines.append(results.Series(label, lows, middle, middle - half, middle + half))
    for parts in (PARTS, FINER):
        own = np.asarray(told["searches"][str(parts)]["ratio"], float)[1:]
        name = f"tiny({told['seed']}), {parts} parts"
        lines.append(results.Series(name, lows, own, own, own))
    return Illustration(
        plots.panels(
            [plots.Panel("price floor", lines, log_x=True)], y_label="utility over the optimum"
        ),
        "Utility of PD-ORS over the exact optimum, against the price floor.",
    )


FIGURES = {"floors": floor_figure}
FACTS: Mapping[str, Any] = {
    "below_half": lambda result: {
        letter: float((_ratios(result, PD_ORS, letter) < HALF).mean()) for letter in result.sets
    },
}


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, the figure, the verdict."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
