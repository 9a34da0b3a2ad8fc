"""Who earns most on recorded days? And a job trained on the clock of its schedule.

Jobs of days of the Philly record (Jeon et al., ATC 2019; not part of this library): submissions,
GPUs and durations are real, and everything in `cluster.MADE_UP` is not: batches, servers, links,
demands and utilities. An instance is a day with one draw of what is made up. Sets A and B have
other days and other draws; rules with knobs are tuned alike on a further day. Then the largest job
that all rules finish, a small regression, is trained on the clock of each schedule, with as many
workers as it gives: synchronous steps that wait for the smallest crew, or one step a gradient.

Source: Yu, Liu, Wu, Ji, Bentley, 2021; the record of Jeon et al., 2019.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, cluster, problems, results, simulation, study, traces
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study import protocol
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.cluster import playing
from experiments.cluster.playing import LABELS, PD_ORS, TUNED, earns_more

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
class Training:
    """How one job is trained."""

    seed: int = 0
    gradients: int = 2000  # that train the job; each has so many of its samples
    step_size: float = 0.03
    late_step_size: float = 0.004  # without waiting


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
    begins, ends = first_day * DAY, (first_day + settings.days) * DAY
    asked = np.array([label not in settings.leave_out for label in table.label])
    asked &= (table.submit >= begins) & (table.submit < ends)
    if not asked.any():
        raise ValueError(
            f"first_day must have jobs that are not left out, got {first_day} and"
            f" {settings.days} days"
        )
    labels = tuple(np.array(table.label)[asked].tolist())
    return cluster.JobTable(
        table.submit[asked] - begins, table.duration[asked], table.gpus[asked], labels, table.source
    )


def rules(settings: Settings) -> dict[str, Callable[..., cluster.Schedule]]:
    """PD-ORS and its rivals; jobs of FIFO run with the GPUs that were asked for.

    Raises:
        ValueError: A name is not that of a rule.
    """
    known = (PD_ORS, *PUBLISHED, *LATER)
    if unknown := [name for name in settings.rivals if name not in known]:
        raise ValueError(f"rivals must be among {', '.join(known[1:])}, got {unknown[0]!r}")
    return {
        name: partial(playing.SCHEDULERS[name], parts=settings.parts)
        if name in PARTED
        else playing.SCHEDULERS[name]
        for name in (PD_ORS, *settings.rivals)
    }


def study_of(settings: Settings) -> Result:
    """Schedules the days on every cluster, and trains one job.

    Raises:
        FileNotFoundError: The table is missing.
        ValueError: A day has no jobs, or a name is not that of a rule.
        RuntimeError: A schedule breaks a rule.
    """
    known = rules(settings)
    scenes = {f"{n} machines": Days(replace(settings, commit=False), n) for n in settings.machines}
    searched = {
        name: playing.method(known[name], one.space) if name in PARTED else one
        for name, one in playing.tunable(*KNOBS).items()
        if name in known
    }
    published = {name: playing.method(rule) for name, rule in known.items()}
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
    """A job of the first instance of A on the last cluster, trained under each of its schedules.

    It is the largest that all rules finish; or that PD-ORS does, where none is finished by all.
    """
    [first] = protocol.seeds_of(settings.seed, protocol.SET_A, 1)
    workload = Days(settings, settings.machines[-1])(first).data
    jobs = workload.jobs
    schedules = {
        LABELS[name]: playing.scheduled(rule, workload) for name, rule in rules(settings).items()
    }
    ends = {name: cluster.completion(one, jobs) for name, one in schedules.items()}
    done = np.all([end >= 0 for end in ends.values()], axis=0)
    done = done if done.any() else ends[LABELS[PD_ORS]] >= 0
    gpu_slots = np.where(done, jobs.samples * cluster.sample_times(jobs).inside, -1.0)
    job = int(gpu_slots.argmax())
    curves = []
    for name, schedule in schedules.items():
        if ends[name][job] >= 0:
            slots = int(ends[name][job] - jobs.arrival[job]) + 1
            curves += [
                {"scheduler": name, "completion": slots, **curve}
                for curve in _curves(settings.training, schedule, jobs, job)
            ]
    return {"job": job, "curves": curves}


def _curves(
    settings: Training, schedule: cluster.Schedule, jobs: cluster.Jobs, job: int
) -> Iterator[dict[str, Any]]:
    """Trains a job on its clock; all its samples are so many gradients.

    Of each way: `workers` in the largest slot, gradients `awaited` in a step and `used`, and of
    every record the `loss` and the `time` in slots after arrival.
    """
    samples = float(jobs.samples[job]) / settings.gradients
    clock = cluster.clock_of(schedule, jobs, job, samples=samples)
    crews = np.asarray(schedule.workers)[job].sum(-1)
    ways = {
        "synchronous": (int(crews[crews > 0].min()), settings.step_size),
        "asynchronous": (1, settings.late_step_size),
    }
    for training, (awaited, step_size) in ways.items():
        trace = _trace(clock, training, awaited, settings.gradients // awaited)
        records = simulation.replay(
            _problem(settings.seed),
            trace,
            optax.sgd(step_size),
            record_every=max(1, trace.n_updates // 50),
            key=jax.random.key(settings.seed),
        ).records
        yield {
            "training": training,
            "workers": clock.n_workers,
            "awaited": awaited,
            "used": int(np.asarray(trace.used).sum()),
            "loss": np.asarray(records.loss, float).tolist(),
            "time": np.asarray(records.time, float).tolist(),
        }


def _trace(clock: clocks.Clock, training: str, awaited: int, n_updates: int) -> traces.EventTrace:
    """So many updates, or as many as the schedule has time for."""
    try:
        if training == "synchronous":
            return traces.synchronous(clock, k=awaited, n_updates=n_updates)
        return traces.asynchronous(clock, n_updates=n_updates)
    except traces.StalledError as stalled:
        if stalled.trace is None:
            raise
        return stalled.trace


@cache
def _problem(seed: int) -> problems.Problem:
    """Linear regression; every worker draws its rows from all of them."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((512, 20)).astype(np.float32)
    targets = features @ rng.standard_normal(20).astype(np.float32)
    targets += 0.1 * rng.standard_normal(512).astype(np.float32)

    rows, goals = jnp.asarray(features), jnp.asarray(targets)

    def half_square(params: jax.Array, rows: jax.Array, goals: jax.Array) -> jax.Array:
        return 0.5 * ((rows @ params - goals) ** 2).mean()

    def gradient(params: jax.Array, worker: Any, job: Any, key: jax.Array) -> Any:
        drawn = jax.random.randint(key, (8,), 0, 512)
        return jax.value_and_grad(half_square)(params, rows[drawn], goals[drawn])

    return problems.from_gradient(
        jnp.zeros(20), gradient, objective=lambda x: half_square(x, rows, goals)
    )


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


def outcome_table(scene: str, result: Result) -> results.Table:
    """What every rule achieves on one cluster, both sets."""
    rows, heads = [], []
    for end in ("", TUNED):
        names = [name + end for name in (PD_ORS, *PUBLISHED, *LATER)]
        texts = {"utility (finished)": _finished, "PD-ORS / it": playing.over(PD_ORS + end)}
        columns = playing.in_sets(result, texts, scene=scene)
        for head, column, form in (
            ("A: mean slots, unfinished set to T", "mean_slots", ".1f"),
            ("A: GPUs in use", "busy", ".2f"),
        ):
            where = {"set": "A", "scene": scene}
            columns.append(playing.Column(head, playing.told(form, column), where))
        rows += playing.lines(result, playing.met(result, names, scene), columns)
        heads = [one.head for one in columns]
    jobs = result.facts["jobs"]
    caption = (
        f"Days of {min(jobs)} to {max(jobs)} recorded jobs on {scene} of 8 GPUs; tuned rules beside"
        " tuned PD-ORS. Utilities are made up."
    )
    return part.table(("scheduler", *heads), rows, caption)


def _finished(result: Result, rule: str, **where: Any) -> str:
    """Mean utility, and how many jobs are finished."""
    utility = playing.mean(result, rule, **where)
    return f"{utility:,.0f} ({playing.mean(result, rule, 'completed', **where):.0f})"


def training_table(result: Result) -> results.Table:
    """One job trained under each rule."""
    heads = {
        "scheduler": "scheduler",
        "training": "training",
        "workers": "most workers",
        "awaited": "awaited",
        "completion": "schedule completes after slots",
        "used": "gradients used",
    }
    rows = [
        (*(curve[name] for name in heads), curve["time"][-1], curve["loss"][-1])
        for curve in result.facts["curves"]
    ]
    caption = (
        f"Job {result.facts['job']} trained on the clocks of its schedules, on the smallest"
        " cluster. Synchronous steps wait for as many gradients as the smallest crew gives."
    )
    return part.table((*heads.values(), "trained after slots", "loss"), rows, caption, left=2)


VERDICTS = "A condition a cluster and rival; the conditions of a claim share its doubt of 5 %."
TABLES = {
    "claims": partial(playing.counted_verdicts, CLAIMS, VERDICTS),
    "40 machines": partial(outcome_table, "40 machines"),
    "12 machines": partial(outcome_table, "12 machines"),
    "trials": playing.trials_table,
    "training": training_table,
}


def training_figure(result: Result) -> Illustration:
    """Loss of the job against slots."""
    panels = []
    for training in ("synchronous", "asynchronous"):
        lines = []
        for curve in result.facts["curves"]:
            if curve["training"] == training:
                time, loss = np.array(curve["time"]), np.array(curve["loss"])
                lines.append(results.Series(curve["scheduler"], time, *[loss] * 3))
        panels.append(plots.Panel(f"slots after arrival, {training}", lines))
    figure = plots.panels(panels, y_label="loss", log_y=True)
    caption = f"Job {result.facts['job']} trained on the clocks of its schedules."
    return Illustration(figure, caption)


FIGURES = {"training": training_figure}
FACTS: Mapping[str, Any] = {
    "least": lambda result: {name: min(result.facts[name]) for name in ("jobs", "gpu_days")},
    "most": lambda result: {name: max(result.facts[name]) for name in ("jobs", "gpu_days")},
}


if __name__ == "__main__":
    part.main(NAME)
