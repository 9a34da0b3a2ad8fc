"""Recorded days on a cluster, and a job trained on the clock of its schedule.

Jobs of days of the Philly record (Jeon et al., ATC 2019; not part of this library): submissions,
GPUs and durations are real, and everything in `cluster.MADE_UP` is not: batches, servers, links,
demands and utilities. An instance is a day with one draw of what is made up. Sets A and B have
other days and other draws; rules with knobs are tuned alike on a further day. Then the largest job
that all rules finish is trained under each (`recorded_training`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import cluster, storage
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from experiments.cluster import recorded_report, tuned
from experiments.cluster.recorded_report import KNOBS, LATER, PUBLISHED
from experiments.cluster.recorded_training import (
    Training,
    trained,
    training_figure,
    training_table,
)
from experiments.cluster.rivals_report import LABELS
from experiments.cluster.rivals_runs import PD_ORS, ROLES
from experiments.common import numbers
from experiments.common.parts import Part, run_alone, sources, written

NAME = "cluster_recorded"
DAY = 86_400.0
# 8 GPUs, and vCPUs, GB of memory and of storage for 8 mean workers and their servers.
MACHINE = (8.0, 88.0, 272.0, 120.0)


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
    commit: bool = False  # also write experiments/numbers/cluster_recorded.json

    @property
    def n_slots(self) -> int:
        """Hours, T."""
        return 24 * self.days + self.after

    def days_of(self, role: str) -> tuple[int, ...]:
        """The first days of a role's instances."""
        every = {
            protocol.TUNING: self.past_days,
            protocol.SET_A: self.first_days,
            protocol.SET_B: self.other_days,
        }
        return every[role]


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


@dataclass(frozen=True)
class Drawn:
    """An instance: recorded jobs of a day, with one draw of what is made up."""

    table: cluster.JobTable
    jobs: cluster.Jobs


def drawn(settings: Settings, role: str) -> dict[protocol.Seeds, Drawn]:
    """The instances of a role: each of its days, as often as there are draws.

    Raises:
        FileNotFoundError: The table is missing.
        ValueError: A day has no jobs.
    """
    days = settings.days_of(role)
    some = protocol.seeds_of(settings.seed, role, settings.draws * len(days))
    tables = {day: read_days(settings, day) for day in days}
    made = {}
    for instance in some:
        table = tables[days[instance.number % len(days)]]
        jobs = cluster.recorded_workload(table, n_slots=settings.n_slots, seed=instance.data)
        made[instance] = Drawn(table, jobs)
    return made


def scheduler(
    settings: Settings, name: str, knobs: Mapping[str, Any], own: Drawn
) -> Callable[..., cluster.Schedule]:
    """A rule with its knobs set; jobs of FIFO run with the GPUs that were asked for.

    Raises:
        ValueError: The name is not that of a rule.
    """
    known = (PD_ORS, *PUBLISHED, *LATER)
    if name not in known:
        raise ValueError(f"rivals must be among {', '.join(known[1:])}, got {name!r}")
    if name == "fifo":
        return partial(cluster.fifo, workers=own.table.gpus)
    rule = tuned.scheduler(name, knobs) if knobs else cluster.SCHEDULERS[name]
    return partial(rule, parts=settings.parts) if name in (PD_ORS, "oasis") else rule


class Played:
    """Outcomes by cluster, rule and instance, kept in a file with a mark of all sources."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.path = settings, settings.output / "played.json"
        kept = storage.load_json(self.path) if self.path.exists() else {}
        own = {k: v for k, v in asdict(settings).items() if k not in ("output", "commit")}
        self.mark = f"{sources()} {own}"
        self.known: dict[str, dict[str, float]] = (
            kept["known"] if kept.get("mark") == self.mark else {}
        )

    def __call__(
        self,
        n_machines: int,
        name: str,
        knobs: Mapping[str, Any],
        some: Mapping[protocol.Seeds, Drawn],
    ) -> list[dict[str, float]]:
        """What a rule achieves on instances; every schedule is checked.

        Raises:
            RuntimeError: A schedule breaks a rule.
        """
        found, before = [], len(self.known)
        for instance, own in some.items():
            key = f"{n_machines} {name} {dict(knobs)} {instance}"
            if key not in self.known:
                rule = scheduler(self.settings, name, knobs, own)
                schedule = _scheduled(self.settings, rule, own.jobs, n_machines)
                outcome = cluster.outcome(schedule, own.jobs, _machines(n_machines))
                self.known[key] = {
                    "utility": float(outcome.utility),
                    "completed": int(outcome.completed),
                    "slots": float(outcome.mean_slots_of_all),
                    "busy": float(outcome.utilisation[0]),
                }
            found.append(self.known[key])
        if len(self.known) > before:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            storage.save_json(self.path, {"mark": self.mark, "known": self.known})
            print(f"played {name} {dict(knobs)} on {n_machines} machines", flush=True)
        return found


def run(settings: Settings) -> Part:
    """Schedules the days on every cluster, trains one job, writes figures and numbers.

    Raises:
        FileNotFoundError: The table is missing.
        ValueError: A day has no jobs, or a name is not that of a rule.
        RuntimeError: A schedule breaks a rule.
    """
    found = numbers.rounded(measured(settings))
    if settings.commit:
        numbers.save(NAME, found, command="python -m experiments.cluster.recorded --commit")
    own = next(iter(drawn(settings, protocol.SET_A).values()))
    made = {
        LABELS[name]: _scheduled(
            settings, scheduler(settings, name, {}, own), own.jobs, settings.machines[-1]
        )
        for name in (PD_ORS, *settings.rivals)
    }
    job, curves = trained(settings.training, own.jobs, made, LABELS[PD_ORS])
    return written(
        settings.output,
        "cluster_traces",
        "Recorded days, and a job trained on its schedule's clock",
        (training_figure(job, curves),),
        (
            recorded_report.verdict_table(found),
            *(recorded_report.outcome_table(found, n_machines) for n_machines in found["clusters"]),
            recorded_report.trials_table(found),
            training_table(job, curves),
        ),
        found,
    )


def measured(settings: Settings) -> dict[str, Any]:
    """All numbers, as values for JSON; lists are over instances."""
    played = Played(settings)
    past = drawn(settings, protocol.TUNING)
    sets = {letter: drawn(settings, role) for letter, role in ROLES.items()}
    names = (PD_ORS, *settings.rivals)
    clusters = {}
    for n_machines in settings.machines:
        found = _tuned(played, n_machines, past, [name for name in names if name in KNOBS])
        clusters[str(n_machines)] = {
            "tuning": tuned.kept(found),
            **{
                letter: {
                    "published": {
                        name: _plain(played(n_machines, name, {}, own)) for name in names
                    },
                    "tuned": {
                        name: _plain(played(n_machines, name, one.best.settings, own))
                        for name, one in found.items()
                    },
                }
                for letter, own in sets.items()
            },
        }
    made = {
        "jobs": {
            letter: [len(one.table.submit) for one in own.values()] for letter, own in sets.items()
        },
        "gpu_days": {
            letter: [
                float((one.table.gpus * one.table.duration).sum() / DAY) for one in own.values()
            ]
            for letter, own in sets.items()
        },
        "made_up": list(cluster.MADE_UP),
        "clusters": clusters,
    }
    made["ratios"] = {
        n_machines: {letter: recorded_report.ratios(own[letter]) for letter in ROLES}
        for n_machines, own in clusters.items()
    }
    made["verdicts"] = {letter: recorded_report.verdicts(made, letter) for letter in ROLES}
    return made


def _plain(found: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Outcomes as lists over instances."""
    return {name: [one[name] for one in found] for name in found[0]}


def _tuned(
    played: Played,
    n_machines: int,
    past: Mapping[protocol.Seeds, Drawn],
    names: Sequence[str],
) -> dict[str, tuning.Tuned]:
    """Searches the knobs of rules on a cluster, on days of their own."""

    def evaluate(name: str, tried: Sequence[tuning.Settings], _: int) -> list[float]:
        return [
            -float(np.mean(_plain(played(n_machines, name, one, past))["utility"])) for one in tried
        ]

    spaces = {name: space for name, space in tuned.spaces().items() if name in names}
    trials = played.settings.trials
    return tuning.tune(spaces, evaluate, trials=trials, gradients=len(past))


def _machines(n_machines: int) -> cluster.Machines:
    """Machines that are all alike."""
    return cluster.Machines(np.tile(MACHINE, (n_machines, 1)))


def _scheduled(
    settings: Settings,
    rule: Callable[..., cluster.Schedule],
    jobs: cluster.Jobs,
    n_machines: int,
) -> cluster.Schedule:
    """A schedule that keeps the rules."""
    machines = _machines(n_machines)
    schedule = rule(jobs, machines, n_slots=settings.n_slots)
    wrong = cluster.check(schedule, jobs, machines)
    if wrong:
        raise RuntimeError(f"{n_machines} machines: {wrong[0]}")
    return schedule


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
