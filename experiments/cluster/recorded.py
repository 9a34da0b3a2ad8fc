"""Who earns most on recorded days? And a job trained on the clock of its schedule.

Jobs of days of the Philly record (Jeon et al., ATC 2019; not part of this library): submissions,
GPUs and durations are real, and everything in `cluster.MADE_UP` is not: batches, servers, links,
demands and utilities. An instance is a day with one draw of what is made up. Sets A and B have
other days and other draws; rules with knobs are tuned alike on a further day. Then the largest job
that all rules finish is trained under each (`recorded_training`).

Source: Yu, Liu, Wu, Ji, Bentley, 2021; the record of Jeon et al., 2019.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import cluster, results, study
from asyncjax.study import protocol
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.cluster import playing, recorded_training
from experiments.cluster.playing import LABELS, PD_ORS, TUNED, earns_more, label
from experiments.cluster.recorded_training import Training
from experiments.common.parts import Part, run_alone

NAME = "cluster_recorded"
TITLE = "Recorded days, and a job trained on its schedule's clock"
PAPERS = (
    "Yu, Liu, Wu, Ji, Bentley, 2021, PD-ORS",
    "Jeon et al., 2019, Analysis of large-scale multi-tenant GPU clusters",
)
DAY = 86_400.0
# 8 GPUs, and vCPUs, GB of memory and of storage for 8 mean workers and their servers.
MACHINE = (8.0, 88.0, 272.0, 120.0)
PUBLISHED = ("oasis", "drf", "dorm", "fifo")
LATER = ("marginal_goodput", "least_attained")
KNOBS = (PD_ORS, "oasis", "dorm", "least_attained")  # rules that are tuned, too
PARTED = (PD_ORS, "oasis")  # rules that divide a job into parts
COLUMNS = ("completed", "mean_slots", "busy")


@dataclass(frozen=True)
class Settings:
    """What is run; what was played is kept in `output`, and a second run goes on from it."""

    output: Path = Path("output/cluster_traces")
    seed: int = 0  # of all that is made up, below 256
    table: Path = Path("../shared/traces/philly_week.csv")
    first_days: tuple[int, ...] = (0, 2, 4)  # of set A, from Monday
    other_days: tuple[int, ...] = (1, 3, 5)  # of set B
    past_days: tuple[int, ...] = (6,)  # on which rules are tuned
    draws: int = 4  # of what is made up, for each day
    trials: int = 4  # settings that a rule tries in a round of tuning
    days: int = 1  # of an instance
    leave_out: tuple[str, ...] = ("6214e9",)  # a virtual cluster with bursts of equal one-GPU jobs
    after: int = 12  # hours after the last day in which jobs may end
    machines: tuple[int, ...] = (40, 12)  # of each cluster; on the last one a job is trained
    rivals: tuple[str, ...] = (*PUBLISHED, *LATER)  # besides PD-ORS
    parts: int = 20
    training: Training = field(default_factory=Training)
    commit: bool = False  # also write experiments/rows/cluster_recorded.csv.gz

    @property
    def n_slots(self) -> int:
        """Hours, T."""
        return 24 * self.days + self.after

    @property
    def instances(self) -> int:
        """Of each set: each of its days, as often as there are draws."""
        return self.draws * len(self.first_days)

    @property
    def tuning_instances(self) -> int:
        """The same of the days on which rules are tuned."""
        return self.draws * len(self.past_days)

    def days_of(self, role: str) -> tuple[int, ...]:
        """The first days of a role's instances."""
        every = {
            protocol.TUNING: self.past_days,
            protocol.SET_A: self.first_days,
            protocol.SET_B: self.other_days,
        }
        return every[role]


@dataclass(frozen=True)
class Days:
    """A scene: recorded jobs of days, with draws of what is made up, on machines all alike."""

    settings: Settings
    n_machines: int

    def __call__(self, seeds: study.Seeds) -> study.Scene:
        """An instance.

        Raises:
            FileNotFoundError: The table is missing.
            ValueError: A day has no jobs.
        """
        days = self.settings.days_of(seeds.role)
        table = read_days(self.settings, days[seeds.number % len(days)])
        n_slots = self.settings.n_slots
        jobs = cluster.recorded_workload(table, n_slots=n_slots, seed=seeds.data)
        machines = cluster.Machines(np.tile(MACHINE, (self.n_machines, 1)))
        return study.Scene(data=playing.Workload(jobs, machines, n_slots, table.gpus))


@cache
def read_days(settings: Settings, first_day: int) -> cluster.JobTable:
    """Jobs submitted from a day on, without the virtual clusters left out.

    Raises:
        FileNotFoundError: The table is missing.
        ValueError: No job is left.
    """
    if not settings.table.exists():
        raise FileNotFoundError(
            f"the recorded jobs are not at {settings.table}; they are no part of the library, and"
            " --table names another place"
        )
    table = cluster.read_philly(settings.table)
    own = np.array([label not in settings.leave_out for label in table.label])
    begins, ends = first_day * DAY, (first_day + settings.days) * DAY
    own &= (table.submit >= begins) & (table.submit < ends)
    if not own.any():
        raise ValueError(
            f"first_day must have jobs that are not left out, got {first_day} and"
            f" {settings.days} days"
        )
    labels = tuple(label for label, kept in zip(table.label, own, strict=True) if kept)
    return cluster.JobTable(
        table.submit[own] - begins, table.duration[own], table.gpus[own], labels, table.source
    )


def rules(settings: Settings) -> dict[str, Callable[..., cluster.Schedule]]:
    """PD-ORS and its rivals; jobs of FIFO run with the GPUs that were asked for.

    Raises:
        ValueError: A name is not that of a rule.
    """
    known = (PD_ORS, *PUBLISHED, *LATER)
    if unknown := [name for name in settings.rivals if name not in known]:
        raise ValueError(f"rivals must be among {', '.join(known[1:])}, got {unknown[0]!r}")
    made = {name: playing.SCHEDULERS[name] for name in (PD_ORS, *settings.rivals)}
    return made | {
        name: partial(made[name], parts=settings.parts) for name in PARTED if name in made
    }


def study_of(settings: Settings) -> Result:
    """Schedules the days on every cluster, and trains one job.

    Raises:
        FileNotFoundError: The table is missing.
        ValueError: A day has no jobs, or a name is not that of a rule.
        RuntimeError: A schedule breaks a rule.
    """
    made, kept = rules(settings), replace(settings, commit=False)
    scenes = {f"{n} machines": Days(kept, n) for n in settings.machines}
    searched = {
        name: playing.method(made[name], one.space) if name in PARTED else one
        for name, one in playing.tunable(*KNOBS).items()
        if name in made
    }
    published = {name: playing.method(rule) for name, rule in made.items()}
    rows = playing.joined(
        playing.played(settings, scenes, published, *COLUMNS),
        playing.tuned(settings, scenes, searched, *COLUMNS).query("set != 'tuning'"),
    )
    return Result(rows, "earned", {**days_told(settings), **trained(settings)}, settings.seed)


def days_told(settings: Settings) -> dict[str, Any]:
    """How many jobs each day of the sets has, how many GPU-days they ask for, what is made up."""
    days = sorted((*settings.first_days, *settings.other_days))
    tables = [read_days(settings, day) for day in days]
    return {
        "jobs": [len(one.submit) for one in tables],
        "gpu_days": [float((one.gpus * one.duration).sum() / DAY) for one in tables],
        "made_up": list(cluster.MADE_UP),
    }


def trained(settings: Settings) -> dict[str, Any]:
    """A job of the first instance of A on the last cluster, trained under each of its schedules."""
    [first] = protocol.seeds_of(settings.seed, protocol.SET_A, 1)
    own = Days(settings, settings.machines[-1])(first).data
    made = {}
    for name, rule in rules(settings).items():
        asked = {"workers": own.asked} if rule is cluster.fifo else {}
        made[LABELS[name]] = rule(own.jobs, own.machines, n_slots=own.n_slots, **asked)
    job, curves = recorded_training.trained(settings.training, own.jobs, made, LABELS[PD_ORS])
    return {"job": job, "curves": [curve._asdict() for curve in curves]}


def _more(rivals: tuple[str, ...], end: str = "") -> list[Any]:
    """A condition a cluster and rival."""
    return [
        earns_more(PD_ORS + end, rival + end, f"{scene}: more than {rival}", scene=scene)
        for scene in ("12 machines", "40 machines")
        for rival in rivals
    ]


CLAIMS = (
    Claim(
        "on recorded days PD-ORS earns more than OASiS, DRF, Dorm and FIFO",
        _more(PUBLISHED),
        "Yu et al. 2021",
    ),
    Claim("on recorded days PD-ORS earns more than later schedulers", _more(LATER)),
    Claim(
        "on recorded days, tuned alike, PD-ORS earns more than OASiS, Dorm and least attained",
        _more(KNOBS[1:], TUNED),
    ),
)


def verdict_table(result: Result) -> results.Table:
    """What the numbers of each set say of every claim."""
    caption = "A condition a cluster and rival; the conditions of a claim share its doubt of 5 %."
    return playing.counted_verdicts(result, CLAIMS, caption)


def outcome_table(scene: str, result: Result) -> results.Table:
    """What every rule achieves on one cluster, both sets."""
    there = set(result.select(scene=scene)["method"])
    rows = []
    for end in ("", TUNED):
        for name in (PD_ORS, *PUBLISHED, *LATER):
            if (rule := name + end) not in there:
                continue
            row = [label(rule)]
            for s in result.sets:
                utility, finished = (
                    playing.mean(result, rule, s, column, scene=scene)
                    for column in ("utility", "completed")
                )
                row.append(f"{utility:,.0f} ({finished:.0f})")
                row.append(playing.ratio_text(result, PD_ORS + end, rule, s, scene=scene))
            for column, decimals in (("mean_slots", 1), ("busy", 2)):
                value = playing.mean(result, rule, "A", column, scene=scene)
                row.append(f"{value:.{decimals}f}")
            rows.append(tuple(row))
    heads = [f"{s}: {h}" for s in result.sets for h in ("utility (finished)", "PD-ORS / it")]
    last = ("A: mean slots, unfinished set to T", "A: GPUs in use")
    jobs = result.facts["jobs"]
    return results.Table(
        playing.columns("scheduler", *heads, *last),
        rows,
        f"Days of {min(jobs)} to {max(jobs)} recorded jobs on {scene} of 8 GPUs; tuned rules beside"
        " tuned PD-ORS. Utilities are made up.",
    )


TABLES = {
    "claims": verdict_table,
    "40 machines": partial(outcome_table, "40 machines"),
    "12 machines": partial(outcome_table, "12 machines"),
    "trials": playing.trials_table,
    "training": recorded_training.training_table,
}
FIGURES = {"training": recorded_training.training_figure}
FACTS: Mapping[str, Any] = {
    "least": lambda result: {name: min(result.facts[name]) for name in ("jobs", "gpu_days")},
    "most": lambda result: {name: max(result.facts[name]) for name in ("jobs", "gpu_days")},
}


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, the figure, verdicts."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
