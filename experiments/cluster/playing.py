"""Schedulers as methods of a study: workloads of instances, knobs, what an episode earns.

Utility is better the higher it is, so "PD-ORS earns more than DRF" is
`earns_more("pd_ors", "drf")`: the rival's utility is below that of PD-ORS. Logarithms are compared,
and a schedule that earns less than one job of the least value counts as that (`earned`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from asyncjax import cluster, results, study
from asyncjax.study import search, statistics
from asyncjax.study.result import Claim, Less, Result, less
from asyncjax.study.scene import Records

Scheduler = Callable[..., cluster.Schedule]

PD_ORS = "pd_ors"
CHOOSING = "pd_ors choosing servers"
SERVERS = (1, 2, 4)  # factors on a job's own number, for the rule that chooses
LABELS = {
    PD_ORS: "PD-ORS",
    CHOOSING: "PD-ORS choosing servers",
    "oasis": "OASiS",
    "drf": "DRF",
    "dorm": "Dorm",
    "fifo": "FIFO",
    "least_attained": "least attained",
    "marginal_goodput": "marginal goodput",
    "marginal_time": "marginal time",
}
TUNED = ", tuned"  # end of the name of a method whose knobs were tuned
LEAST = 1.0  # utility below which a run counts as this: one job of the least value
SCHEDULERS: dict[str, Scheduler] = {**cluster.SCHEDULERS, "fifo": cluster.fifo}


class Workload(NamedTuple):
    """What a scheduler meets."""

    jobs: cluster.Jobs
    machines: cluster.Machines
    n_slots: int
    asked: np.ndarray | None = None  # workers that each job asks for, which FIFO gives it


@dataclass(frozen=True)
class Point:
    """A scene: one size of cluster and workload."""

    n_jobs: int
    n_slots: int
    n_machines: int
    load: float = 1.0  # factor of the samples of all jobs
    preset: str = "balanced"

    def __call__(self, seeds: study.Seeds) -> study.Scene:
        """An instance."""
        make = getattr(cluster.workloads, self.preset)
        jobs, machines = make(
            seeds.data, n_jobs=self.n_jobs, n_slots=self.n_slots, n_machines=self.n_machines
        )
        jobs = jobs._replace(samples=np.floor(self.load * jobs.samples))
        asked = cluster.workloads.fixed_workers(seeds.data, jobs)
        return study.Scene(data=Workload(jobs, machines, self.n_slots, asked))


def method(rule: Scheduler, space: Mapping[str, search.Knob] | None = None) -> study.Method:
    """A scheduler; its knobs, if any, are arguments of it."""
    return study.Method(run=partial(_played, rule), space=space or {})


def _played(
    rule: Scheduler, scene: study.Scene, settings: search.Settings, seeds: study.Seeds
) -> Records:
    """One episode, whose schedule is checked."""
    own = scene.data
    asked = {"workers": own.asked} if rule is cluster.fifo else {}
    schedule = rule(own.jobs, own.machines, n_slots=own.n_slots, **settings, **asked)
    if wrong := cluster.check(schedule, own.jobs, own.machines):
        raise RuntimeError(f"{seeds}: {wrong[0]}")
    found = cluster.outcome(schedule, own.jobs, own.machines)
    return {
        "earned": max(float(found.utility), LEAST),
        "utility": found.utility,
        "completed": found.completed,
        "slots": found.median_slots_of_all,
        "mean_slots": found.mean_slots_of_all,
        "wasted": found.wasted,
        "busy": found.utilisation[0],
    }


def _least_attained(*workload: Any, threshold: float, n_slots: int) -> cluster.Schedule:
    return cluster.least_attained(*workload, thresholds=(threshold,), n_slots=n_slots)


def tunable(*names: str) -> dict[str, study.Method]:
    """Schedulers that have a knob, with their spaces; none named: all."""
    low = search.log_range(1e-6, 1e-1, 11)
    share = search.Knob((0.05, 0.1, 0.2, 0.4), least=1e-3, most=1.0)
    split = search.Knob((0.1, 0.2, 0.3, 0.45), least=0.02, most=0.98)
    threshold = search.log_range(25.0, 6400.0, 9)
    every = {
        PD_ORS: method(cluster.pd_ors, {"low": low}),
        CHOOSING: method(partial(cluster.pd_ors, servers=SERVERS), {"low": low}),
        "oasis": method(cluster.oasis, {"low": low, "split": split}),
        "dorm": method(cluster.dorm, {"resize": share, "slack": share}),
        "least_attained": method(_least_attained, {"threshold": threshold}),
    }
    return {name: one for name, one in every.items() if not names or name in names}


def _numbers(*columns: str) -> Callable[[Records, study.Scene], Mapping[str, float]]:
    return partial(_taken, columns)


def _taken(columns: tuple[str, ...], records: Records, _: study.Scene) -> Mapping[str, float]:
    return {name: float(np.asarray(records[name])) for name in columns}


def _minus_mean_utility(numbers: Sequence[Mapping[str, float]], _: Any) -> float:
    return -float(np.mean([one["utility"] for one in numbers]))


def measure(*columns: str) -> study.Measure:
    """Utility, and some other columns; what is tuned is its mean."""
    return study.Measure(_numbers("earned", "utility", *columns), "earned", _minus_mean_utility)


def played(
    settings: Any, scenes: Mapping[str, Any], methods: Mapping[str, Any], *columns: str, **how: Any
) -> Any:
    """Rows of schedulers as they are, on both sets unless `how` says otherwise.

    Args:
        settings: Of the part: `output`, `seed`, `instances`.
        scenes: By name.
        methods: By name.
        *columns: What else is told of an episode.
        **how: For `study.compare`.
    """
    found = study.compare(
        scenes,
        methods,
        trials=1,
        measure=measure(*columns),
        path=settings.output,
        seed=settings.seed,
        **{"instances": settings.instances, "tuned_over": study.TunedOver.UNTUNED, **how},
    )
    return found.rows


def tuned(
    settings: Any, scenes: Mapping[str, Any], methods: Mapping[str, Any], *columns: str
) -> Any:
    """Rows of schedulers tuned alike in each scene: `settings.trials` a round, two rounds or more.

    Their names end in `TUNED`. Columns `trials`, `episodes` and `at_edge` say how; rows of the set
    "tuning" are the trials.
    """
    found = study.compare(
        scenes,
        methods,
        trials=2 * settings.trials,
        rounds=(2, 6),
        instances=settings.instances,
        tuning_instances=settings.tuning_instances,
        measure=measure(*columns),
        path=settings.output,
        seed=settings.seed,
    )
    rows = found.rows
    trials = found.trials().set_index(["scene", "method"])["trials"]
    keys = list(zip(rows["scene"], rows["method"], strict=True))
    rows["trials"] = [int(trials[key]) for key in keys]
    rows["episodes"] = rows["trials"] * settings.tuning_instances
    edges = tuple(found.facts["at an edge"])
    rows["at_edge"] = [
        any(edge.startswith(f"{method}, {scene}:") for edge in edges) for scene, method in keys
    ]
    rows["method"] += TUNED
    return rows


def joined(*parts: Any) -> Any:
    """Rows together, without times of this machine; what was not tuned is at no edge."""
    rows = pd.concat(parts, ignore_index=True)
    rows = rows.drop(columns=["horizon", "seconds", "processor_seconds"], errors="ignore")
    if "at_edge" in rows:
        rows["at_edge"] = rows["at_edge"].eq(True)
        rows[["trials", "episodes"]] = rows[["trials", "episodes"]].astype("Int64")
    return rows


def earns_more(ours: str, rival: str, text: str = "", **where: Any) -> Less:
    """The condition that one rule earns more than another."""
    return less(rival, than=ours, text=text or f"more than {rival}", **where)


def ratio(result: Result, ours: str, rival: str, letter: str, **where: Any) -> Mapping[str, Any]:
    """One rule's utility over another's, of one set: `ratio`, `low`, `high`."""
    return result.ratio(ours, over=rival, set=letter, where=where).iloc[0]


def ratio_text(result: Result, ours: str, rival: str, letter: str, **where: Any) -> str:
    """The same with its interval of 95 %, with fewer digits from 5 and from 10 on."""
    if ours == rival:
        return "1"
    found = ratio(result, ours, rival, letter, **where)
    ends = [found[name] for name in ("ratio", "low", "high")]
    if ends[0] < 5:
        texts = [f"{end:.2f}" for end in ends]
    else:
        texts = [f"{end:.1f}" if end < 10 else f"{end:.0f}" for end in ends]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def mean(result: Result, name: str, letter: str, column: str = "utility", **where: Any) -> float:
    """A method's mean over the instances of a set."""
    return float(result.select(method=name, set=letter, **where)[column].mean())


def worth(result: Result, name: str, letter: str, **where: Any) -> str:
    """Mean utility and its standard error."""
    own = result.select(method=name, set=letter, **where)["utility"]
    return f"{own.mean():.0f} ({own.sem():.0f})"


def label(name: str) -> str:
    """A method in tables."""
    plain = name.removesuffix(TUNED)
    return LABELS.get(plain, plain) + name.removeprefix(plain)


def chosen(result: Result, name: str, **where: Any) -> str:
    """The settings that tuning found."""
    knobs = result.select(method=name, **where)[knobs_of(result)].iloc[0].dropna()
    return ", ".join(
        f"{'floor' if knob == 'low' else knob} {value:{',.0f' if value >= 100 else '.2g'}}"
        for knob, value in knobs.items()
    )


def knobs_of(result: Result) -> list[str]:
    """The columns of settings."""
    names = ("low", "split", "resize", "slack", "threshold")
    return [name for name in names if name in result.rows]


def counted_verdicts(result: Result, claims: Sequence[Claim], caption: str) -> results.Table:
    """What each set says of every claim, and how many of its conditions hold."""
    rows, known = [], result.verdicts(claims)
    for claim in (claim for claim in claims if claim.text in known):
        row = [claim.text]
        for letter, word in result.verdict(claim).items():
            found = result.conditions(claim, letter)
            held = sum(one.verdict == statistics.HOLDS for one in found)
            row.append(f"{word} ({held} of {len(found)})")
        rows.append(tuple(row))
    heads = ("claim (conditions that hold)", *(f"set {letter}" for letter in result.sets))
    return results.Table(columns(*heads, left=3), rows, caption)


def trials_table(result: Result) -> results.Table:
    """Trials and episodes of every tuned rule, what was chosen, and whether it is at an edge."""
    cells = result.rows[result.rows["trials"].notna()].drop_duplicates(["scene", "method"])
    return results.Table(
        columns("scene", "rule", "chosen", "trials", "episodes", "at an edge", left=3),
        [
            (
                row["scene"],
                label(row["method"]),
                chosen(result, row["method"], scene=row["scene"]),
                int(row["trials"]),
                int(row["episodes"]),
                "yes" if row["at_edge"] else "no",
            )
            for _, row in cells.iterrows()
        ],
        "Tuned alike, on instances that are not shown elsewhere; the others have no knob.",
    )


def columns(*heads: str, left: int = 1) -> tuple[results.Column, ...]:
    """Heads of a table, of which the first are of words."""
    return tuple(results.Column(head, right=at >= left) for at, head in enumerate(heads))
