"""Who earns most on recorded days? And a job trained on the clock of its schedule.

Jobs of days of the Philly record (Jeon et al., ATC 2019; not part of this library): submissions,
GPUs and durations are real, and everything in `cluster.MADE_UP` is not: batches, servers, links,
demands and utilities. An instance is a day with one draw of what is made up. Sets A and B have
other days and other draws; rules with knobs are tuned alike on a further day, for each set on draws
of its own. Then the largest job that all rules finish, a small regression, is trained on the clock
of each schedule, with as many workers as it gives: synchronous steps that wait for the smallest
crew, or one step a gradient.

Source: Yu, Liu, Wu, Ji, Bentley, 2021; the record of Jeon et al., 2019.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import cluster, problems, results, simulation, study, traces
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study import protocol
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.cluster import playing
from experiments.cluster.playing import LABELS, PD_ORS, PUBLISHED, TUNED, earns_more
from experiments.common.replays import until_stalled

NAME = "cluster_recorded"
TITLE = "Recorded days, and a job trained on its schedule's clock"
PAPERS = (
    "Yu, Liu, Wu, Ji, Bentley, 2021, PD-ORS",
    "Jeon et al., 2019, Analysis of large-scale multi-tenant GPU clusters",
)
DAY = 86_400.0
# 8 GPUs, and vCPUs, GB of memory and of storage for 8 mean workers and their servers.
MACHINE = (8.0, 88.0, 272.0, 120.0)
LATER = ("marginal_goodput", "least_attained")
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
    past_days: tuple[int, ...] = (6,)  # on which rules are tuned, for both sets
    draws: int = 4  # of what is made up, for each day of a set
    past_draws: int = 5  # for each past day and set
    trials: int = 4  # settings that a rule tries in a round of tuning
    leave_out: tuple[str, ...] = ("6214e9",)  # a virtual cluster with bursts of equal one-GPU jobs
    after: int = 12  # hours after the day in which jobs may end
    machines: tuple[int, ...] = (40, 12)  # of each cluster; on the last one a job is trained
    rivals: tuple[str, ...] = (*PUBLISHED, *LATER)  # besides PD-ORS
    parts: int = 20
    gradients: int = 2000  # that train one job; each has so many of its samples
    step_size: float = 0.03
    late_step_size: float = 0.004  # without waiting
    commit: bool = False  # also write experiments/rows/cluster_recorded.csv.gz

    @property
    def instances(self) -> int:
        """Of each set: each of its days, as often as there are draws."""
        return self.draws * len(self.first_days)

    @property
    def tuning_instances(self) -> int:
        """The same of the days on which rules are tuned for a set."""
        return self.past_draws * len(self.past_days)


def day_of(settings: Settings, n_machines: int, seeds: study.Seeds) -> study.Scene:
    """A scene: recorded jobs of a day, with a draw of what is made up, on machines all alike.

    Raises:
        FileNotFoundError: The table is missing.
        ValueError: The day has no jobs.
    """
    shown = {protocol.SET_A: settings.first_days, protocol.SET_B: settings.other_days}
    days = shown.get(seeds.role, settings.past_days)
    table, n_slots = read_day(settings, days[seeds.number % len(days)]), 24 + settings.after
    jobs = cluster.recorded_workload(table, n_slots=n_slots, seed=seeds.data)
    machines = cluster.Machines(np.tile(MACHINE, (n_machines, 1)))
    return study.Scene(data=playing.Workload(jobs, machines, n_slots, table.gpus))


@cache
def read_day(settings: Settings, day: int) -> cluster.JobTable:
    """Jobs submitted on a day, without the virtual clusters left out.

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
    asked = (table.submit >= day * DAY) & (table.submit < (day + 1) * DAY)
    asked &= ~np.isin(table.label, settings.leave_out)
    if not asked.any():
        raise ValueError(f"days must have jobs that are not left out, got {day}")
    labels = tuple(np.array(table.label)[asked].tolist())
    submit = table.submit[asked] - day * DAY
    return cluster.JobTable(submit, table.duration[asked], table.gpus[asked], labels, table.source)


def rules(settings: Settings) -> dict[str, Callable[..., cluster.Schedule]]:
    """PD-ORS and its rivals; jobs of FIFO run with the GPUs that were asked for.

    Raises:
        ValueError: A name is not that of a rule.
    """
    names = playing.named("rivals", settings.rivals, (*PUBLISHED, *LATER))
    every = {name: playing.SCHEDULERS[name] for name in names}
    parted = {name: every[name] for name in PARTED if name in every}
    return every | {n: partial(rule, parts=settings.parts) for n, rule in parted.items()}


def study_of(settings: Settings) -> Result:
    """Schedules the days on every cluster, and trains one job.

    Raises:
        FileNotFoundError: The table is missing.
        ValueError: A day has no jobs, or a name is not that of a rule.
        RuntimeError: A schedule breaks a rule.
    """
    known, same = rules(settings), replace(settings, commit=False)
    scenes = {f"{n} machines": partial(day_of, same, n) for n in settings.machines}
    searched = playing.tunable(*known, parts=settings.parts)
    rows = playing.joined(
        playing.played(settings, COLUMNS, scenes, known),
        playing.tuned(settings, COLUMNS, scenes, searched),
    )
    days = sorted((*settings.first_days, *settings.other_days))
    tables = [read_day(settings, day) for day in days]
    facts = {
        "tuned apart": True,
        "jobs": [len(one.submit) for one in tables],
        "gpu_days": [float((one.gpus * one.duration).sum() / DAY) for one in tables],
    }
    return Result(rows, "earned", facts | trained(settings), settings.seed)


def trained(settings: Settings) -> dict[str, Any]:
    """A job of the first instance of A on the last cluster, trained under each of its schedules.

    It is the largest that all rules finish; or that PD-ORS does, where none is finished by all. All
    its samples are so many gradients. Of each way: `workers` in the largest slot, gradients
    `awaited` in a step and `used`, and of every record the `loss` and the `time` in slots after
    arrival.
    """
    [first] = protocol.seeds_of(settings.seed, protocol.SET_A, 1)
    workload = day_of(settings, settings.machines[-1], first).data
    jobs = workload.jobs
    schedules = {
        LABELS[name]: playing.scheduled(rule, workload) for name, rule in rules(settings).items()
    }
    ends = {name: cluster.completion(one, jobs) for name, one in schedules.items()}
    done = np.all([end >= 0 for end in ends.values()], axis=0)
    done = done if done.any() else ends[LABELS[PD_ORS]] >= 0
    gpu_slots = np.where(done, jobs.samples * cluster.sample_times(jobs).inside, -1.0)
    job = int(gpu_slots.argmax())
    samples, curves = float(jobs.samples[job]) / settings.gradients, []
    for name in (name for name, end in ends.items() if end[job] >= 0):
        clock = cluster.clock_of(schedules[name], jobs, job, samples=samples)
        crews = np.asarray(schedules[name].workers)[job].sum(-1)
        k = int(crews[crews > 0].min())
        for training, make, awaited, step_size in (
            ("synchronous", partial(traces.synchronous, k=k), k, settings.step_size),
            ("asynchronous", traces.asynchronous, 1, settings.late_step_size),
        ):
            trace = until_stalled(make, clock, n_updates=settings.gradients // awaited)
            every, key = max(1, trace.n_updates // 50), jax.random.key(0)
            optimizer = optax.sgd(step_size)
            run = simulation.replay(_problem(), trace, optimizer, record_every=every, key=key)
            curves.append(
                {
                    "scheduler": name,
                    "completion": int(ends[name][job] - jobs.arrival[job]) + 1,
                    "training": training,
                    "workers": clock.n_workers,
                    "awaited": awaited,
                    "used": int(np.asarray(trace.used).sum()),
                    "loss": np.asarray(run.records.loss, float).tolist(),
                    "time": np.asarray(run.records.time, float).tolist(),
                }
            )
    return {"job": job, "curves": curves}


@cache
def _problem() -> problems.Problem:
    """Linear regression; every worker draws its rows from all of them."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((512, 20)).astype(np.float32)
    targets = features @ rng.standard_normal(20).astype(np.float32)
    targets += 0.1 * rng.standard_normal(512).astype(np.float32)
    rows, goals = jnp.asarray(features), jnp.asarray(targets)

    def half_square(params: jax.Array, which: Any = slice(None)) -> jax.Array:
        return 0.5 * ((rows[which] @ params - goals[which]) ** 2).mean()

    def gradient(params: jax.Array, worker: Any, job: Any, key: jax.Array) -> Any:
        return jax.value_and_grad(half_square)(params, jax.random.randint(key, (8,), 0, 512))

    return problems.from_gradient(jnp.zeros(20), gradient, objective=half_square)


FEW_AND_MANY = ("12 machines", "40 machines")
CLAIMS = (
    Claim(
        "on recorded days PD-ORS earns more than OASiS, DRF, Dorm and FIFO",
        earns_more(PD_ORS, PUBLISHED, *FEW_AND_MANY),
        "Yu et al. 2021",
    ),
    Claim(
        "on recorded days PD-ORS earns more than later schedulers",
        earns_more(PD_ORS, LATER, *FEW_AND_MANY),
    ),
    Claim(
        "on recorded days, tuned alike, PD-ORS earns more than OASiS, Dorm and least attained",
        earns_more(PD_ORS + TUNED, playing.TUNED_RIVALS, *FEW_AND_MANY),
    ),
)


def outcome_table(scene: str, result: Result) -> results.Table:
    """What every rule achieves on one cluster, both sets."""
    rows, columns = [], {}
    of_first = {
        "mean slots, unfinished set to T": playing.told("{:.1f}", "mean_slots"),
        "GPUs in use": playing.told("{:.2f}", "busy"),
    }
    finished = playing.told("{:,.0f} ({:.0f})", "utility", "completed")
    for end in ("", TUNED):
        texts = {"utility (finished)": finished, "PD-ORS / it": playing.over(PD_ORS + end)}
        columns = playing.in_sets(result, texts, scene=scene)
        columns |= playing.in_sets(result, of_first, "A", scene=scene)
        names = [name + end for name in (PD_ORS, *PUBLISHED, *LATER)]
        rows += playing.lines(playing.met(result, names, scene), columns)
    jobs = result.facts["jobs"]
    caption = (
        f"Days of {min(jobs)} to {max(jobs)} recorded jobs on {scene} of 8 GPUs; tuned rules beside"
        " tuned PD-ORS. Utilities are made up."
    )
    return part.table(("scheduler", *columns), rows, caption)


def training_table(result: Result) -> results.Table:
    """One job trained under each rule."""
    names = ["scheduler", "training", "workers", "awaited", "completion", "used"]
    rows = [
        (*(curve[name] for name in names), curve["time"][-1], curve["loss"][-1])
        for curve in result.facts["curves"]
    ]
    heads = ("scheduler", "training", "most workers", "awaited", "schedule completes after slots")
    caption = (
        f"Job {result.facts['job']} trained on the clocks of its schedules, on the smallest"
        " cluster. Synchronous steps wait for as many gradients as the smallest crew gives."
    )
    heads += ("gradients used", "trained after slots", "loss")
    return part.table(heads, rows, caption, left=2)


TABLES = {
    **{scene: partial(outcome_table, scene) for scene in FEW_AND_MANY[::-1]},
    "trials": playing.trials_table,
    "spread": playing.apart_table,
    "training": training_table,
}


def training_figure(result: Result) -> Illustration:
    """Loss of the job against slots."""
    curves = result.facts["curves"]
    panels = []
    for training in ("synchronous", "asynchronous"):
        lines = [
            results.Series(curve["scheduler"], curve["time"], *[curve["loss"]] * 3)
            for curve in curves
            if curve["training"] == training
        ]
        panels.append(plots.Panel(f"slots after arrival, {training}", lines))
    figure = plots.panels(panels, y_label="loss", log_y=True)
    caption = f"Job {result.facts['job']} trained on the clocks of its schedules."
    return Illustration(figure, caption)


FIGURES = {"training": training_figure}

if __name__ == "__main__":
    part.main(NAME)
