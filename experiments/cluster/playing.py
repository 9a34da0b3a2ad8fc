"""Schedulers as methods of a study: workloads of instances, knobs, what an episode earns.

Utility is better the higher it is, so "PD-ORS earns more than DRF" is
`earns_more("pd_ors", "drf")`: the rival's utility is below that of PD-ORS. Logarithms are compared,
and a schedule that earns less than one job of the least value counts as that (`earned`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from asyncjax import cluster, results, study
from asyncjax.study import search
from asyncjax.study.result import TRIALS, Less, Result, less
from asyncjax.study.scene import Records
from experiments import part
from experiments.common.sets import spread, spread_table

Scheduler = Callable[..., cluster.Schedule]
Text = Callable[..., str]  # what a table says of a method: (result, name, rows)

PD_ORS = "pd_ors"
CHOOSING = "pd_ors choosing servers"
SERVERS = (1, 2, 4)  # factors on a job's own number, for the rule that chooses
PUBLISHED = ("oasis", "drf", "dorm", "fifo")
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
TUNED_RIVALS = tuple(name + TUNED for name in ("oasis", "dorm", "least_attained"))
KNOBS = {"low": "floor"} | {name: name for name in ("split", "resize", "slack", "threshold")}
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


def named(option: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """PD-ORS and the schedulers of an option.

    Raises:
        ValueError: A name is not known.
    """
    known = [*known]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{option} must be among {', '.join(known)}, got {unknown[0]!r}")
    return [*dict.fromkeys((PD_ORS, *names))]


def method(rule: Scheduler, space: Mapping[str, search.Knob] | None = None) -> study.Method:
    """A scheduler; its knobs, if any, are arguments of it."""
    return study.Method(run=partial(_played, rule), space=space or {})


def _played(
    rule: Scheduler, scene: study.Scene, settings: search.Settings, seeds: study.Seeds
) -> Records:
    """One episode, whose schedule is checked."""
    jobs, machines, *_ = scene.data
    schedule = scheduled(rule, scene.data, **settings)
    if wrong := cluster.check(schedule, jobs, machines):
        raise RuntimeError(f"{seeds}: {wrong[0]}")
    outcome = cluster.outcome(schedule, jobs, machines)
    return {
        "earned": max(float(outcome.utility), LEAST),
        "utility": outcome.utility,
        "completed": outcome.completed,
        "slots": outcome.median_slots_of_all,
        "mean_slots": outcome.mean_slots_of_all,
        "wasted": outcome.wasted,
        "busy": outcome.utilisation[0],
    }


def scheduled(rule: Scheduler, workload: Workload, **settings: Any) -> cluster.Schedule:
    """The schedule of a rule; FIFO gives the workers that are asked for."""
    asked = {"workers": workload.asked} if rule is cluster.fifo else {}
    return rule(*workload[:2], n_slots=workload.n_slots, **settings, **asked)


def _least_attained(*workload: Any, threshold: float, n_slots: int) -> cluster.Schedule:
    return cluster.least_attained(*workload, thresholds=(threshold,), n_slots=n_slots)


def tunable(*names: str, **arguments: Any) -> dict[str, study.Method]:
    """Schedulers that have a knob, with their spaces; none named: all.

    Args:
        *names: Which.
        **arguments: Of those that solve by prices, such as `parts`.
    """
    low = search.log_range(1e-6, 1e-1, 11)
    share = search.Knob((0.05, 0.1, 0.2, 0.4), least=1e-3, most=1.0)
    split = search.Knob((0.1, 0.2, 0.3, 0.45), least=0.02, most=0.98)
    threshold = search.log_range(25.0, 6400.0, 9)
    pd_ors, oasis = (partial(one, **arguments) for one in (cluster.pd_ors, cluster.oasis))
    every = {
        PD_ORS: method(pd_ors, {"low": low}),
        CHOOSING: method(partial(pd_ors, servers=SERVERS), {"low": low}),
        "oasis": method(oasis, {"low": low, "split": split}),
        "dorm": method(cluster.dorm, {"resize": share, "slack": share}),
        "least_attained": method(_least_attained, {"threshold": threshold}),
    }
    return {name: one for name, one in every.items() if not names or name in names}


def _taken(columns: tuple[str, ...], records: Records, _: study.Scene) -> Mapping[str, float]:
    return {name: float(np.asarray(records[name])) for name in columns}


def _minus_mean_utility(numbers: Sequence[Mapping[str, float]], _: Any) -> float:
    return -float(np.mean([one["utility"] for one in numbers]))


def played(
    settings: Any, columns: Iterable[str], scenes: Mapping[str, Any], rules: Any, **how: Any
) -> Any:
    """Rows of schedulers as they are, on both sets unless `how` says otherwise.

    Args:
        settings: Of the part: `output`, `seed`, `instances`.
        columns: What is told of an episode beside what it earns.
        scenes: By name.
        rules: By name.
        **how: For `study.compare`.
    """
    methods = {name: method(rule) for name, rule in rules.items()}
    plain = {"trials": 1, "tuned_over": study.TunedOver.UNTUNED}
    return _compared(settings, columns, scenes, methods, plain | how).rows


def _compared(
    settings: Any, columns: Iterable[str], scenes: Mapping[str, Any], methods: Any, how: Any
) -> Result:
    """A study of utility and some other columns; what is tuned is the mean utility."""
    taken = partial(_taken, ("earned", "utility", *columns))
    how = {"measure": study.Measure(taken, "earned", _minus_mean_utility)} | how
    how = {"instances": settings.instances, "path": settings.output, "seed": settings.seed} | how
    return study.compare(scenes, methods, **how)


def tuned(settings: Any, columns: Iterable[str], scenes: Mapping[str, Any], methods: Any) -> Any:
    """Rows of schedulers tuned alike in each scene: `settings.trials` a round, two rounds or more.

    Their names end in `TUNED`. Columns `trials`, `episodes` and `at_edge` say how; rows of the sets
    `TRIALS` are the trials.
    """
    how = {"trials": 2 * settings.trials, "rounds": (2, 6)}
    how["tuning_instances"] = settings.tuning_instances
    result = _compared(settings, columns, scenes, methods, how)
    trials = result.trials()
    cell = [name for name in ("scene", "method", "set") if name in trials]
    rows = result.rows.merge(trials[[*cell, "trials"]], how="left", on=cell)
    rows["episodes"] = rows["trials"] * settings.tuning_instances
    edges = {re.sub(": .* of ", ": ", edge) for edge in result.facts["at an edge"]}
    rows["at_edge"] = (rows["scene"] + ", set " + rows["set"] + ": " + rows["method"]).isin(edges)
    rows["method"] += TUNED
    return rows


def joined(*parts: Any) -> Any:
    """Rows of the sets, without times of this machine; what was not tuned is at no edge."""
    rows: Any = pd.concat(parts)
    rows = rows[~rows["set"].isin(TRIALS)].reset_index(drop=True)
    rows = rows.drop(columns=["horizon", "seconds", "processor_seconds"], errors="ignore")
    if "at_edge" in rows:
        rows["at_edge"] = rows["at_edge"].eq(True)
        rows[["trials", "episodes"]] = rows[["trials", "episodes"]].astype("Int64")
    return rows


def earns_more(ours: str, rivals: Iterable[str], *scenes: str, text: str = "") -> list[Less]:
    """The conditions that one rule earns more than others, one a scene and rival.

    Args:
        ours: The rule.
        rivals: The others.
        *scenes: Where.
        text: Of a condition, in which `{scene}` and `{rival}` are filled in.
    """
    text = text or "{scene}: more than {rival}"
    return [
        less(
            rival,
            than=ours,
            text=text.format(scene=scene, rival=rival.removesuffix(TUNED)),
            scene=scene,
        )
        for scene in scenes
        for rival in rivals
    ]


# What tables say of a method in a place: functions of the result, its name, and the rows.


def ratio_text(result: Result, ours: str, rival: str, set: str, **where: Any) -> str:
    """One rule's utility over another's with its interval; fewer digits from 5 and 10 on."""
    if ours == rival:
        return "1"
    ends = result.ratio(ours, over=rival, set=set, where=where)[["ratio", "low", "high"]].iloc[0]
    large = ends["ratio"] >= 5
    texts = [f"{end:.{int(end < 10) if large else 2}f}" for end in ends]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def over(ours: str) -> Text:
    """A rule's utility over the method's."""
    return lambda result, name, **where: ratio_text(result, ours, name, **where)


def told(form: str, *columns: str) -> Text:
    """Means of columns over instances, in such a form; none named: of the utility."""

    def text(result: Result, name: str, **where: Any) -> str:
        rows = result.select(method=name, **where)
        return form.format(*(rows[column].mean() for column in columns or ("utility",)))

    return text


def worth(result: Result, name: str, **where: Any) -> str:
    """Mean utility and its standard error."""
    utility = result.select(method=name, **where)["utility"]
    return f"{utility.mean():.0f} ({utility.sem():.0f})"


def chosen(result: Result, name: str, **where: Any) -> str:
    """The settings that tuning found."""
    knobs = result.select(method=name, **where).reindex(columns=[*KNOBS]).iloc[0].dropna()
    return ", ".join(
        f"{KNOBS[knob]} {value:{',.0f' if value >= 100 else '.2g'}}"
        for knob, value in knobs.items()
    )


def label(name: str) -> str:
    """A method in tables."""
    plain = name.removesuffix(TUNED)
    return LABELS.get(plain, plain) + name.removeprefix(plain)


def met(result: Result, names: Iterable[str], scene: str) -> list[str]:
    """Those methods that were run in a scene, in the order given."""
    there = set(result.select(scene=scene)["method"])
    return [name for name in names if name in there]


def in_sets(
    result: Result, texts: Mapping[str, Text], sets: Iterable[str] = "", **where: Any
) -> dict[str, Text]:
    """Columns of a table by their heads, once a set, or of some: functions of a method."""
    return {
        f"{letter}: {head}": partial(text, result, set=letter, **where)
        for letter in sets or result.sets
        for head, text in texts.items()
    }


def lines(names: Iterable[str], columns: Mapping[str, Text]) -> list[list[str]]:
    """A row a method: its label, and what every column says of it."""
    return [[label(name), *(text(name) for text in columns.values())] for name in names]


def trials_table(result: Result) -> results.Table:
    """Trials and episodes of every tuned rule, what was chosen, and whether it is at an edge."""
    cells = result.rows.dropna(subset="trials").drop_duplicates(["scene", "method", "set"])
    rows = [
        [
            *(row.scene, label(row.method), row.set),
            chosen(result, row.method, scene=row.scene, set=row.set),
            *(int(row.trials), int(row.episodes), bool(row.at_edge)),
        ]
        for row in cells.sort_values(["scene", "method"], kind="stable").itertuples()
    ]
    caption = (
        "Tuned alike, for each set on instances of its own that are not shown elsewhere; the others"
        " have no knob."
    )
    heads = ("scene", "rule", "set", "chosen", "trials", "episodes", "at an edge")
    return part.table(heads, rows, caption, left=4)


def apart_table(result: Result) -> results.Table:
    """How far apart the values lie that the two sets chose, by rule and knob."""
    factors = {
        f"{label(name)}, {said}": pair
        for knob, said in KNOBS.items()
        if knob in result.rows
        for name, pair in spread(result.rows, ["scene"], knob).items()
    }
    return spread_table(factors, "value of a knob")
