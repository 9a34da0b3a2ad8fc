"""The story on many workloads: all methods together, those that fit together, and plain choices.

An instance is a workload of its own (jobs, machines), with shards, a first model and times of its
own. PD-ORS schedules it; the job that is trained is the largest on GPUs that it completes with a
crew of 4 to 48, and a workload without such a job is passed over, by its jobs alone. Both problems
of the story are trained on the clock of that crew, for as long as the schedule gives it.

Every arm gets the same trials of its step, its only knob, for each goal by itself, on instances
that are not shown. The goals are the loss at the end, the mean over the last tenth of the time, and
the times to 50, 80 and 95 % of the way from the first loss to the lowest of all plain.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import cluster, simulation, storage
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import LEVELS, SET_A, SET_B, TUNING, Seeds
from experiments.collection import fingerprint
from experiments.story import runs
from experiments.story.choices import (
    CHOICES,
    FITTING,
    PLAIN,
    Choice,
    Site,
    site_of,
    trace_of,
    updates_within,
)

ARMS: dict[str, Choice] = {one.name: one for one in (PLAIN, CHOICES[0], FITTING)}
SETS = {"A": SET_A, "B": SET_B}
END = "last loss"
GOALS = (END, *(f"{level:.0%}" for level in LEVELS))
LANES = 4  # steps in one call: one compilation serves all of an instance
PASSED_OVER = 8  # workloads for one that fits, at most


@dataclass(frozen=True)
class Settings:
    """What is run; what is done is kept in `output/cells`, and a second run goes on from it."""

    output: Path = Path("output/story_workloads")
    seed: int = 0
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = LANES  # step sizes that an arm tries in a round
    rounds: tuple[int, int] = (2, 4)
    steps: tuple[float, float] = (2.0**-7, 1.0)  # ends of the grid, which has 8 values
    story: runs.Settings = field(default_factory=runs.Settings)  # sizes of jobs and problems
    commit: bool = False  # also write the numbers where committed ones are


@dataclass(frozen=True)
class Played:
    """An instance that fits: the crew of one of its jobs."""

    instance: Seeds
    job: int
    site: Site


def played(settings: Settings, role: str, count: int) -> list[Played]:
    """The first instances of a role that fit.

    Raises:
        ValueError: Too few of the workloads fit.
    """
    found: list[Played] = []
    for instance in protocol.seeds_of(settings.seed, role, PASSED_OVER * count):
        own = settings.story
        jobs, machines = cluster.workloads.balanced(
            instance.data, n_jobs=own.jobs, n_slots=own.n_slots, n_machines=own.machines
        )
        schedule = cluster.pd_ors(jobs, machines, n_slots=own.n_slots)
        job = fitting_job(own, jobs, schedule)
        if job is not None:
            size = {"gradients": own.gradients, "shape": own.shape}
            found.append(Played(instance, job, site_of("PD-ORS", schedule, jobs, job, **size)))
        if len(found) == count:
            return found
    raise ValueError(f"instances must be workloads with a job that fits, got {len(found)} of them")


def fitting_job(
    settings: runs.Settings, jobs: cluster.Jobs, schedule: cluster.Schedule
) -> int | None:
    """The largest job on GPUs that is completed by 4 to `most_workers` workers, or none."""
    crews = np.asarray(schedule.workers).sum(-1).max(-1)
    fits = (cluster.completion(schedule, jobs) >= 0) & (np.asarray(jobs.worker)[:, 0] > 0)
    fits &= (crews >= 4) & (crews <= settings.most_workers)
    work = np.where(fits, jobs.samples * cluster.sample_times(jobs).inside, -1.0)
    return int(work.argmax()) if work.max() > 0 else None


class Trainer:
    """One arm on one instance; losses by step, those made before read from a file."""

    def __init__(self, settings: Settings, one: Played, task: str, arm: str) -> None:
        self.settings, self.one, self.task, self.arm = settings, one, task, arm
        name = f"{task}, {arm}, {one.instance.role} {one.instance.number}"
        own = settings.story
        facts = {n: v for n, v in vars(own).items() if n not in ("output", "seeds", "tuning_seeds")}
        self.mark = fingerprint(f"story_workloads, {name}", (settings.seed, sorted(facts.items())))
        self.path = settings.output / "cells" / f"{name}.json".replace(" ", "_")
        self.kept = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            kept = storage.load_json(self.path)
        except (FileNotFoundError, ValueError):
            kept = {}
        fits = kept.get("fingerprint") == self.mark
        return kept if fits else {"fingerprint": self.mark, "loss": {}}

    @cached_property
    def _made(self) -> tuple[simulation.ReplayPlan, Callable[..., np.ndarray], float]:
        """The plan, the training, and the first loss."""
        instance, site, choice = self.one.instance, self.one.site, ARMS[self.arm]
        seeds = (instance.data, instance.model)
        tasks = runs.tasks(self.settings.story, [self.one.job] * 2, seeds)
        task = next(own for own in tasks if own.name == self.task)
        longest = trace_of(choice, site, instance.noise())
        n_updates = min(updates_within(longest, site.budget), longest.n_updates)
        trace = trace_of(choice, site, instance.noise(), n_updates)
        plan = simulation.plan(trace, record_every=max(1, n_updates // self.settings.story.records))
        return plan, *runs.replayed(self.settings.story, task, choice, site)

    def losses(self, steps: Sequence[float]) -> np.ndarray:
        """Losses at the records, float64[steps, R]."""
        names = [f"{step:.9g}" for step in steps]
        missing = [float(own) for own in dict.fromkeys(names) if own not in self.kept["loss"]]
        for begin in range(0, len(missing), LANES):
            plan, train, first = self._made
            lanes = missing[begin : begin + LANES]
            lanes += lanes[-1:] * (LANES - len(lanes))
            found = train(plan, self.one.instance.noise() % 2**31, lanes)
            own = zip(lanes, found.tolist(), strict=True)
            self.kept["loss"] |= {f"{step:.9g}": loss for step, loss in own}
            self.kept |= {"time": runs.recorded(plan).tolist(), "first": first}
            storage.save_json(self.path, self.kept)
        return np.array([self.kept["loss"][name] for name in names], float)

    def last(self, steps: Sequence[float]) -> np.ndarray:
        """Losses at the end, float64[steps]; the first loss where a run ends above it."""
        losses = self.losses(steps)
        ends = runs.settled(np.array(self.kept["time"]), losses, self.one.site.budget)
        return np.where(ends < self.kept["first"], np.maximum(ends, 1e-9), self.kept["first"])

    def _means(self, steps: Sequence[float]) -> np.ndarray:
        """Losses averaged over a twentieth of the records, float64[steps, R - w + 1]."""
        losses = self.losses(steps)
        width = max(1, losses.shape[1] // 20)
        return np.lib.stride_tricks.sliding_window_view(losses, width, axis=1).mean(-1)

    def lowest(self, steps: Sequence[float]) -> float:
        """The lowest loss on the way; 0 where none is below the first."""
        means = self._means(steps)
        low = float(np.min(means, initial=np.inf, where=np.isfinite(means)))
        return low if low < self.kept["first"] else 0.0

    def times(self, steps: Sequence[float], best: float) -> np.ndarray:
        """Times to the levels as shares of the schedule's time, float64[steps, levels]; or inf."""
        means, time = self._means(steps), np.array(self.kept["time"]) / self.one.site.budget
        goals, late = protocol.targets(self.kept["first"], best), time[-means.shape[1] :]
        return np.array([[protocol.time_to(late, own, goal) for goal in goals] for own in means])


def measured(settings: Settings, told: Callable[[str], None]) -> pd.DataFrame:
    """Tunes all arms on both problems and runs them on both sets: a row a run and a goal."""
    settings.output.joinpath("cells").mkdir(parents=True, exist_ok=True)
    counts = {TUNING: settings.tuning_instances, SET_A: settings.instances}
    counts[SET_B] = settings.instances
    sites = {role: played(settings, role, count) for role, count in counts.items()}
    told(", ".join(f"{len(own)} workloads, {role}" for role, own in sites.items()))
    rows: list[dict[str, Any]] = []
    for task in settings.story.trained:
        tuned = _tuned(settings, sites[TUNING], task, told)
        for letter, role in SETS.items():
            for place, one in enumerate(sites[role]):
                head = {"scene": task, "set": letter, "instance": place}
                crew = {"crew": int(one.site.n_workers)}
                rows += [head | own | crew for own in _reported(settings, one, task, tuned)]
                told(f"{task}, {role}: {place + 1} of {len(sites[role])}")
                jax.clear_caches()  # shapes differ from instance to instance
    return pd.DataFrame(rows)


def _tuned(
    settings: Settings, sites: Sequence[Played], task: str, told: Callable[[str], None]
) -> dict[str, dict[str, tuning.Tuned]]:
    """The search of every arm for every goal; a step that was tried for one serves all."""
    space = tuning.log_range(*settings.steps, 8)
    trainers = {arm: [Trainer(settings, one, task, arm) for one in sites] for arm in ARMS}
    best = [own.lowest(space.values) for own in trainers[PLAIN.name]]
    told(f"{task}: the lowest losses of all plain are known")

    def scores(arm: str, steps: Sequence[float], goal: str) -> list[float]:
        if goal == END:
            every = [np.log(own.last(steps)) for own in trainers[arm]]
        else:
            at = GOALS.index(goal) - 1
            pairs = zip(trainers[arm], best, strict=True)
            cut = [np.minimum(own.times(steps, low)[:, at], 1.0) for own, low in pairs]
            # Of runs that do not arrive, the lower loss is the better one.
            ends = [np.log(own.last(steps) / own.kept["first"]) for own in trainers[arm]]
            every = [np.log(c) + 1e-3 * e for c, e in zip(cut, ends, strict=True)]
        return np.mean(every, axis=0).tolist()

    def search(goal: str) -> dict[str, tuning.Tuned]:
        return tuning.tune(
            {arm: {"step": space} for arm in ARMS},
            lambda arm, trials, n: scores(arm, [one["step"] for one in trials], goal),
            trials=settings.trials,
            gradients=settings.story.gradients * len(sites),
            seed=settings.seed,
            rounds=settings.rounds,
        )

    by_goal = {}
    for goal in GOALS:
        by_goal[goal] = search(goal)
        told(f"{task}: tuned for {goal}")
    return {arm: {goal: own[arm] for goal, own in by_goal.items()} for arm in ARMS}


def _reported(
    settings: Settings, one: Played, task: str, tuned: dict[str, dict[str, tuning.Tuned]]
) -> Iterator[dict[str, Any]]:
    """Last losses and times of all arms on an instance, with how they were tuned."""
    best = 0.0
    for arm in ARMS:  # all plain is the first, and tells how far there is to go
        steps = [tuned[arm][goal].best.settings["step"] for goal in GOALS]
        own = Trainer(settings, one, task, arm)
        ends = own.last(steps)
        best = own.lowest(steps) if arm == PLAIN.name else best
        times = own.times(steps, best)
        for at, goal in enumerate(GOALS):
            search = tuned[arm][goal]
            yield {
                "method": arm,
                "tuned_for": goal,
                "step": steps[at],
                "value": float(ends[0] if goal == END else times[at, at - 1]),
                "horizon": np.inf if goal == END else 1.0,
                "trials": len(search.trials),
                "tuning_gradients": len(search.trials) * search.gradients,
                "at_edge": bool(search.edges),
            }
