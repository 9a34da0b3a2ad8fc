"""How near does PD-ORS come to the optimum, and why not nearer?

Tiny workloads, four jobs on two machines in four slots, have an exact optimum (`exact`). All rules
play two disjoint sets of them, and PD-ORS under price floors that rise. Then one case is told: the
workload on which PD-ORS comes least near among the first forty seeds, which job it admits, what
that job blocks, and what becomes of it as the floor rises.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import cluster, results
from asyncjax.results import plots
from asyncjax.study import protocol
from asyncjax.study.statistics import Condition, paired, verdict
from experiments.cluster.exact import best_utility
from experiments.cluster.rivals_report import LABELS, ordered
from experiments.cluster.rivals_runs import ROLES
from experiments.cluster.tuned import CHOOSING, SERVERS
from experiments.common import numbers
from experiments.common.parts import Drawing, Part, run_alone, written

NAME = "cluster_optimum"
CLAIM = "PD-ORS comes near the optimum"
SLOTS, PARTS = 4, 8
FINER = 24  # parts of the second search that is told: thirds of a job are whole parts
NEAR, HALF, SELDOM = 0.7, 0.5, 0.05  # the rule of the claim, see `conditions`
DOUBT = 0.05

Workload = tuple[cluster.Jobs, cluster.Machines]


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/cluster_optimum")
    seed: int = 0  # of the instances, below 256
    sets: tuple[str, ...] = ("A", "B")
    instances: int = 200  # of each set
    told: int = 17  # seed of the workload whose story is told
    floors: tuple[float, ...] = (1e-6, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    commit: bool = False  # write experiments/numbers/cluster_optimum.json
    committed: bool = False  # measure nothing: tables and verdict of the committed numbers


def rules(settings: Settings) -> dict[str, Callable[..., cluster.Schedule]]:
    """All that is played, by name."""
    priced = {"pd_ors": cluster.pd_ors, "oasis": cluster.oasis}
    every = {**cluster.SCHEDULERS, **{n: partial(r, parts=PARTS) for n, r in priced.items()}}
    choosing = partial(cluster.pd_ors, parts=PARTS, servers=SERVERS)
    return {"pd_ors": every.pop("pd_ors"), CHOOSING: choosing, **every}


def at_floor(low: float | None) -> Callable[..., cluster.Schedule]:
    """PD-ORS at a floor; None for the literal one."""
    return partial(cluster.pd_ors, parts=PARTS, low=low)


def measured(settings: Settings) -> dict[str, Any]:
    """All numbers, as values for JSON; lists are over instances."""
    sets = {}
    for name in settings.sets:
        drawn = protocol.seeds_of(settings.seed, ROLES[name], settings.instances)
        made = [cluster.workloads.tiny(instance.data) for instance in drawn]
        optimum = np.array([best_utility(*one, SLOTS) for one in made])
        sets[name] = {
            "optimum": optimum.tolist(),
            "ratio": {n: _ratios(rule, made, optimum) for n, rule in rules(settings).items()},
            "floors": [_ratios(at_floor(low), made, optimum) for low in settings.floors],
        }
    return {"floors": list(settings.floors), "sets": sets, "story": story(settings)}


def _ratios(
    rule: Callable[..., cluster.Schedule], made: Sequence[Workload], optimum: np.ndarray
) -> list[float]:
    """Utility over the optimum of every workload."""
    return (np.array([_utility(rule, one) for one in made]) / optimum).tolist()


def _utility(rule: Callable[..., cluster.Schedule], one: Workload) -> float:
    return cluster.total_utility(rule(*one, n_slots=SLOTS), one[0])


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
    rows = []
    for job in range(len(jobs.arrival)):
        others = np.arange(len(jobs.arrival)) != job
        rest = cluster.Jobs(*(np.asarray(field)[others] for field in jobs))
        admitted = np.flatnonzero(others)[play(rest, machines).admitted]
        let_in = [int(other) for other in admitted if not schedule.admitted[other]]
        rows.append(
            {
                "arrival": int(jobs.arrival[job]),
                "best_worth": _alone(jobs, machines, job),
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
            "utility": earned.tolist(),
            "ratio": (earned / optimum).tolist(),
        }
    return {
        "seed": settings.told,
        "literal_floor": bounds.low,
        "optimum": optimum,
        "jobs": rows,
        "busy": _busy(schedule, jobs, machines),
        "floors": floors,
        "searches": searches,
    }


def _alone(jobs: cluster.Jobs, machines: cluster.Machines, job: int) -> float:
    """What a job is worth if it has the machines to itself."""
    one = cluster.Jobs(*(np.asarray(field)[job : job + 1] for field in jobs))
    return best_utility(one, machines, SLOTS)


def _busy(
    schedule: cluster.Schedule, jobs: cluster.Jobs, machines: cluster.Machines
) -> list[float]:
    """Share of the scarcest resource that is in use in every slot."""
    return cluster.utilisation(schedule, jobs, machines).max(1).tolist()


def conditions(own: Mapping[str, Any]) -> tuple[Condition, ...]:
    """The claim of one set: near in the mean, and seldom far from it.

    It is near if the mean ratio to the optimum is above 0.7, and it is seldom far if fewer than one
    case in twenty is below a half; both by intervals, which share a doubt of 5 %.
    """
    ratio = np.asarray(own["ratio"]["pd_ors"], float)
    level = 1 - DOUBT / 2
    mean = paired(np.full_like(ratio, NEAR), ratio, level=level)
    far = paired(ratio < HALF, np.full_like(ratio, SELDOM), level=level)
    return (
        Condition(f"the mean is above {NEAR:g} of the optimum", mean),
        Condition(f"fewer than {SELDOM:g} of the cases are below {HALF:g}", far),
    )


def run(settings: Settings) -> Part:
    """Plays and solves all cases, or reads the committed numbers; writes tables and figures.

    Raises:
        ValueError: A name is not that of a set.
        FileNotFoundError: Committed numbers are asked for, and there are none.
    """
    wrong = [name for name in settings.sets if name not in ROLES]
    if wrong or not settings.sets:
        raise ValueError(f"sets must be among {', '.join(ROLES)}, got {settings.sets}")
    if settings.committed:
        found = numbers.load(NAME)
    else:
        found = numbers.rounded(measured(settings))
        if settings.commit:
            numbers.save(NAME, found, command="python -m experiments.cluster.optimum --commit")
    verdicts = {name: verdict(conditions(own)) for name, own in found["sets"].items()}
    return written(
        settings.output,
        NAME,
        "How near to the optimum does PD-ORS come, and why not nearer?",
        (_figure(found),),
        (
            _ratio_table(found),
            _rule_table(found),
            _jobs_table(found["story"]),
            _story_table(found["story"]),
        ),
        {**found, "verdicts": {name: {CLAIM: own} for name, own in verdicts.items()}},
    )


def _ratio_table(found: Mapping[str, Any]) -> results.Table:
    """Ratios to the optimum of every rule, and of PD-ORS at every floor."""
    rows = []
    for name, own in found["sets"].items():
        every = {LABELS[n]: ratios for n, ratios in ordered(own["ratio"], LABELS).items()}
        pairs = zip(found["floors"], own["floors"], strict=True)
        every |= {f"PD-ORS, floor {low:g}": ratios for low, ratios in pairs}
        for rule, ratios in every.items():
            values = np.asarray(ratios, float)
            middle = (values.mean(), float(np.median(values)), values.min())
            rows.append((name, rule, *middle, f"{(values < HALF).mean():.0%}", values.max()))
    heads = ("mean", "median", "lowest", f"below {HALF:g}", "highest")
    return results.Table(
        (
            results.Column("set", right=False),
            results.Column("rule", right=False),
            *(results.Column(head) for head in heads),
        ),
        tuple(rows),
        "Total utility over the exact optimum, tiny workloads.",
    )


def _rule_table(found: Mapping[str, Any]) -> results.Table:
    """The claim, condition by condition."""
    rows = []
    for name, own in found["sets"].items():
        made = conditions(own)
        rows += [(name, one.text, one.verdict) for one in made]
        rows.append((name, f"{CLAIM}: together", verdict(made)))
    heads = ("set", "condition", "verdict")
    columns = tuple(results.Column(head, right=False) for head in heads)
    return results.Table(columns, tuple(rows), "The claim by its rule.")


def _jobs_table(told: Mapping[str, Any]) -> results.Table:
    """The jobs of the case that is told."""
    rows = [
        (
            number,
            job["arrival"],
            job["best_worth"],
            "yes" if job["admitted"] else "no",
            job["end"] if job["end"] >= 0 else None,
            ", ".join(map(str, job["blocks"])) or "none",
        )
        for number, job in enumerate(told["jobs"])
    ]
    return results.Table(
        (
            results.Column("job"),
            results.Column("arrives in slot"),
            results.Column("worth, alone on the machines"),
            results.Column("admitted", right=False),
            results.Column("ends in slot"),
            results.Column("would be admitted without it", right=False),
        ),
        tuple(rows),
        f"Workload tiny({told['seed']}) at the literal floor {told['literal_floor']:.2g}; share of"
        " the scarcest resource in use, by slot: "
        + ", ".join(f"{share:.2f}" for share in told["busy"])
        + ".",
    )


def _story_table(told: Mapping[str, Any]) -> results.Table:
    """What becomes of that case as the floor rises."""
    searches = dict(sorted(told["searches"].items(), key=lambda pair: int(pair[0])))
    rows = []
    for index, low in enumerate(told["floors"]):
        row: list[Any] = [f"{low:.2g}"]
        for own in searches.values():
            row.append(", ".join(map(str, own["admitted"][index])) or "none")
            row += [own["utility"][index], own["ratio"][index]]
        rows.append(tuple(row))
    columns = [results.Column("price floor")]
    for parts in searches:
        columns += [
            results.Column(f"admitted, {parts} parts", right=False),
            results.Column(f"utility, {parts} parts"),
            results.Column(f"of the optimum, {parts} parts"),
        ]
    return results.Table(
        tuple(columns),
        tuple(rows),
        f"The same workload under floors that rise; the optimum is {told['optimum']:.1f}. In few"
        " parts a job is promised a later end than it really has, and is refused too early.",
    )


def _figure(found: Mapping[str, Any]) -> Drawing:
    """Ratio to the optimum against the floor: both sets, and the case that is told."""
    lows, lines = np.asarray(found["floors"], float), []
    for name, own in found["sets"].items():
        ratios = np.asarray(own["floors"], float)
        middle = ratios.mean(1)
        half = ratios.std(1, ddof=1) / np.sqrt(ratios.shape[1]) if ratios.shape[1] > 1 else 0
        label = f"set {name}, mean"
        lines.append(results.Series(label, lows, middle, middle - half, middle + half))
    told = found["story"]
    for parts, search in sorted(told["searches"].items(), key=lambda pair: int(pair[0])):
        own = np.asarray(search["ratio"], float)[1:]
        name = f"tiny({told['seed']}), {parts} parts"
        lines.append(results.Series(name, lows, own, own, own))
    figure = plots.panels(
        [plots.Panel("price floor", lines, log_x=True)], y_label="utility over the optimum"
    )
    return "", figure, "Utility of PD-ORS over the exact optimum, against the price floor."


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
