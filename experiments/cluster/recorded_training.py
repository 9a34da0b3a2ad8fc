"""A job of a schedule, trained on the schedule's clock: a small regression.

As many workers as the schedule gives it; synchronous steps that wait for the smallest crew, or one
step a gradient.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, cluster, problems, results, simulation, traces
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Result
from experiments.cluster.playing import columns


@dataclass(frozen=True)
class Training:
    """How one job is trained."""

    seed: int = 0
    gradients: int = 2000  # that train the job; each has so many of its samples
    step_size: float = 0.03
    late_step_size: float = 0.004  # without waiting


class Curve(NamedTuple):
    """A job's training under one scheduler, synchronous or not."""

    scheduler: str
    training: str
    workers: int  # in the largest slot
    awaited: int  # gradients in a step
    completion: int  # slots from arrival to the end of that in which the schedule completes it
    used: int  # gradients
    loss: list[float]  # a record each
    time: list[float]  # slots after arrival


def trained(
    settings: Training,
    jobs: cluster.Jobs,
    made: Mapping[str, cluster.Schedule],
    first: str,
) -> tuple[int, list[Curve]]:
    """Trains the largest job that all rules finish (or the first does), under all that finish it.

    Args:
        settings: How it is trained.
        jobs: Of the workload.
        made: Schedules by name.
        first: Name of the rule whose jobs count where none is finished by all.
    """
    ends = {name: cluster.completion(schedule, jobs) for name, schedule in made.items()}
    done = np.all([end >= 0 for end in ends.values()], axis=0)
    done = done if done.any() else ends[first] >= 0
    gpu_slots = np.where(done, jobs.samples * cluster.sample_times(jobs).inside, -1.0)
    job = int(gpu_slots.argmax())
    curves = []
    for name, schedule in made.items():
        if ends[name][job] >= 0:
            slots = int(ends[name][job] - jobs.arrival[job]) + 1
            curves += _curves(settings, name, schedule, jobs, job, slots)
    return job, curves


def _curves(
    settings: Training,
    name: str,
    schedule: cluster.Schedule,
    jobs: cluster.Jobs,
    job: int,
    slots: int,
) -> list[Curve]:
    """Trains a job on its clock; all its samples are so many gradients."""
    samples = float(jobs.samples[job]) / settings.gradients
    clock = cluster.clock_of(schedule, jobs, job, samples=samples)
    crews = np.asarray(schedule.workers)[job].sum(-1)
    fewest = int(crews[crews > 0].min())
    problem = _problem(settings)
    found = []
    for training, awaited in (("synchronous", fewest), ("asynchronous", 1)):
        trace = _trace(clock, training, awaited, settings.gradients // awaited)
        done = simulation.replay(
            problem,
            trace,
            optax.sgd(settings.step_size if training == "synchronous" else settings.late_step_size),
            record_every=max(1, trace.n_updates // 50),
            key=jax.random.key(settings.seed),
        )
        loss, times = (
            np.asarray(x, float).tolist() for x in (done.records.loss, done.records.time)
        )
        used = int(np.asarray(trace.used).sum())
        found.append(Curve(name, training, clock.n_workers, awaited, slots, used, loss, times))
    return found


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


def _problem(settings: Training) -> problems.Problem:
    """Linear regression; every worker draws its rows from all of them."""
    rng = np.random.default_rng(settings.seed)
    features = rng.standard_normal((512, 20)).astype(np.float32)
    targets = features @ rng.standard_normal(20).astype(np.float32)
    targets += 0.1 * rng.standard_normal(512).astype(np.float32)

    rows, goals = jnp.asarray(features), jnp.asarray(targets)

    def half_square(params: jax.Array, rows: jax.Array, goals: jax.Array) -> jax.Array:
        return 0.5 * ((rows @ params - goals) ** 2).mean()

    def gradient(params: jax.Array, worker: Any, job: Any, key: jax.Array) -> Any:
        own = jax.random.randint(key, (8,), 0, 512)
        return jax.value_and_grad(half_square)(params, rows[own], goals[own])

    return problems.from_gradient(
        jnp.zeros(20), gradient, objective=lambda x: half_square(x, rows, goals)
    )


def training_table(result: Result) -> results.Table:
    """One job trained under each rule."""
    heads = (
        "most workers",
        "awaited",
        "schedule completes after slots",
        "gradients used",
        "trained after slots",
        "loss",
    )
    names = ("scheduler", "training", "workers", "awaited", "completion", "used")
    return results.Table(
        columns("scheduler", "training", *heads, left=2),
        [
            (*(curve[name] for name in names), curve["time"][-1], curve["loss"][-1])
            for curve in result.facts["curves"]
        ],
        f"Job {result.facts['job']} trained on the clocks of its schedules, on the smallest"
        " cluster. Synchronous steps wait for as many gradients as the smallest crew gives.",
    )


def training_figure(result: Result) -> Illustration:
    """Loss of the job against slots."""
    panels = []
    for training in ("synchronous", "asynchronous"):
        lines = []
        for curve in result.facts["curves"]:
            if curve["training"] == training:
                time, loss = np.array(curve["time"]), np.array(curve["loss"])
                lines.append(results.Series(curve["scheduler"], time, loss, loss, loss))
        panels.append(plots.Panel(f"slots after arrival, {training}", lines))
    figure = plots.panels(panels, y_label="loss", log_y=True)
    caption = f"Job {result.facts['job']} trained on the clocks of its schedules."
    return Illustration(figure, caption)
