"""Do all methods together beat plain choices, over workloads?

An instance is a workload of its own (jobs, machines), with shards, a first model and times of its
own. PD-ORS schedules it; the job that is trained is the largest on GPUs that it completes with a
crew of 4 to 48, and a workload without such a job is passed over, by its jobs alone. Both problems
of the story are trained on the clock of that crew, for as long as the schedule gives it, in three
ways: the full set of methods (dispatch shuffled over the crew, step sizes that shrink for late
gradients, coordinated orders), the fitting set without the pairs that harm each other (arrival
dispatch, Rescaled step sizes, an order a worker), and plain choices (arrival dispatch, a constant
step size, rows drawn with replacement).

Every arm gets the same trials of its step, its only knob, for each goal by itself, for each of the
two disjoint sets that are shown on instances of its own. The goals are the loss at the end, the
mean over the last tenth of the time, and the times from which on a run stays 50, 80 and 95 % of the
way from the first loss to the lowest of all plain, as shares of the schedule's time (one that never
came counts as the whole). A claim is that a set of methods is below all plain in every goal on both
problems.

A run that was stopped goes on where it was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import cluster, results, simulation
from asyncjax.results import plots
from asyncjax.results.plots.style import MUTED, add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import verdict
from asyncjax.study import protocol, search
from asyncjax.study.protocol import LEVELS, SETS, TUNING_OF, Seeds
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common.kept_rows import arrays_once
from experiments.common.replays import recorded
from experiments.story import training
from experiments.story.training import FITTING, FULL, PAPERS as PAPERS, PLAIN, Site

NAME = "story_workloads"
TITLE = "Do all methods together beat plain choices, over workloads?"
ALL_CLAIM = "all methods together beat plain choices"
FITTING_CLAIM = "without the pairs that harm each other, they beat plain choices"
CLAIMS = (
    Claim(ALL_CLAIM, [less(FULL.name, than=PLAIN.name, each=True)]),
    Claim(FITTING_CLAIM, [less(FITTING.name, than=PLAIN.name, each=True)]),
)
ARMS = {one.name: one for one in (PLAIN, FULL, FITTING)}
SETS_OF_METHODS = (FULL.name, FITTING.name)
END = "last loss"
GOALS = (END, *(f"{level:.0%}" for level in LEVELS))
HEADS = (END, *(f"time to {goal}" for goal in GOALS[1:]))
LANES = 4  # steps in one call: one compilation serves all of an instance
PASSED_OVER = 8  # workloads for one that fits, at most
TICKS = (0.25, 0.5, 1.0, 2.0, 4.0)


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
    story: training.Settings = field(default_factory=training.Settings)  # of jobs and problems
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
    story, fit = settings.story, list[Played]()
    for instance in protocol.seeds_of(settings.seed, role, PASSED_OVER * count):
        jobs, machines = training.workload(story, instance.data)
        schedule = cluster.pd_ors(jobs, machines, n_slots=story.n_slots)
        for job in training.fitting(story, jobs, schedule)[:1]:
            fit.append(Played(instance, job, training.site_of(story, schedule, jobs, job)))
        if len(fit) == count:
            return fit
    raise ValueError(f"instances must be workloads with a job that fits, got {len(fit)} of them")


@lru_cache(maxsize=64)
def _ready(
    story: training.Settings, one: Played, task: str, arm: str
) -> tuple[simulation.ReplayPlan, training.Train, float]:
    """The plan of an arm on an instance, its training, and the first loss."""
    site, choice, noise = one.site, ARMS[arm], one.instance.noise()
    longest = training.trace_of(choice, site, noise)
    n_updates = min(training.updates_within(longest, site.budget), longest.n_updates)
    trace = training.trace_of(choice, site, noise, n_updates)
    plan = simulation.plan(trace, record_every=max(1, n_updates // story.records))
    seeds = (one.instance.data, one.instance.model)
    return plan, *training.replayed(story, task, choice, site, seeds)


def _losses(
    story: training.Settings, one: Played, task: str, arm: str, steps: Sequence[float]
) -> dict[str, np.ndarray]:
    """Losses float64[steps, R] with the times of the records, and the first loss."""
    plan, train, first = _ready(story, one, task, arm)
    loss = train(plan, one.instance.noise() % 2**31, steps)
    return {"loss": loss, "time": recorded(plan), "first": np.array(first)}


class Trainer:
    """One arm on one instance; losses by step, those made before read from files."""

    def __init__(self, settings: Settings, one: Played, task: str, arm: str) -> None:
        self.folder, self.budget = settings.output / "cells", one.site.budget
        self.make = partial(_losses, settings.story, one, task, arm)
        self.known: dict[float, np.ndarray] = {}
        self.time, self.first = np.empty(0), np.inf

    def losses(self, steps: Sequence[float]) -> np.ndarray:
        """Losses at the records, float64[steps, R]."""
        steps = [float(f"{step:.9g}") for step in steps]
        missing = [step for step in dict.fromkeys(steps) if step not in self.known]
        for begin in range(0, len(missing), LANES):
            lanes = missing[begin : begin + LANES]
            full = [*lanes, *lanes[-1:] * (LANES - len(lanes))]
            cell = arrays_once(self.folder, partial(self.make, full))
            self.known |= zip(full, cell["loss"], strict=True)
            self.time, self.first = cell["time"], float(cell["first"])
        return np.array([self.known[step] for step in steps], float)

    def last(self, steps: Sequence[float]) -> np.ndarray:
        """Losses at the end, float64[steps]; the first loss where a run ends above it."""
        losses = self.losses(steps)
        ends = training.settled(self.time, losses, self.budget)
        return np.where(ends < self.first, np.maximum(ends, 1e-9), self.first)

    def _means(self, steps: Sequence[float]) -> np.ndarray:
        """Losses averaged over a twentieth of the records, float64[steps, R - w + 1]."""
        losses = self.losses(steps)
        width = max(1, losses.shape[1] // 20)
        return np.lib.stride_tricks.sliding_window_view(losses, width, axis=1).mean(-1)

    def lowest(self, steps: Sequence[float]) -> float:
        """The lowest loss on the way; 0 where none is below the first."""
        means = self._means(steps)
        low = float(np.min(means, initial=np.inf, where=np.isfinite(means)))
        return low if low < self.first else 0.0

    def times(self, steps: Sequence[float], best: float) -> np.ndarray:
        """From when on runs stay at levels, shares of the time, float64[steps, levels]; or inf."""
        means = self._means(steps)
        late = self.time[-means.shape[1] :] / self.budget
        goals = protocol.targets(self.first, best)
        stays = [results.time_to_target(late, means, goal, stays=True) for goal in goals]
        return np.stack(stays, axis=-1)


def study_of(settings: Settings) -> Result:
    """Tunes all arms on both problems and runs them on both sets: one row per run and a goal.

    Raises:
        ValueError: Too few workloads fit.
    """
    known = [
        (
            letter,
            played(settings, TUNING_OF[SETS[letter]], settings.tuning_instances),
            played(settings, SETS[letter], settings.instances),
        )
        for letter in "AB"
    ]
    rows: list[dict[str, Any]] = []
    for task in settings.story.trained:
        for letter, past, shown in known:
            tuned = _tuned(settings, past, task)
            for at, one in enumerate(shown):
                head = {"scene": task, "set": letter, "instance": at}
                rows += [head | row for row in _reported(settings, one, task, tuned)]
                print(f"{task}, set {letter}: {at + 1} of {len(shown)}", flush=True)
                jax.clear_caches()  # shapes differ from instance to instance
    return as_result(settings, pd.DataFrame(rows))


def as_result(settings: Settings, rows: Any) -> Result:
    """Rows with the numbers of instances that they were made with."""
    facts = {name: getattr(settings, name) for name in ("instances", "tuning_instances")}
    return Result(rows, "value", facts | {"tuned apart": True}, settings.seed, cut=("value",))


Tuned = dict[str, dict[str, search.Tuned]]  # by goal and arm


def _tuned(settings: Settings, sites: Sequence[Played], task: str) -> Tuned:
    """The search of every arm for every goal; a step that was tried for one serves all."""
    space = search.log_range(*settings.steps, 8)
    trainers = {arm: [Trainer(settings, one, task, arm) for one in sites] for arm in ARMS}
    best = [trainer.lowest(space.values) for trainer in trainers[PLAIN.name]]

    def scores(goal: str, arm: str, trials: Sequence[search.Settings], _: int) -> list[float]:
        steps = [one["step"] for one in trials]
        if goal == END:
            return np.mean(
                [np.log(trainer.last(steps)) for trainer in trainers[arm]], axis=0
            ).tolist()
        every = []
        for trainer, low in zip(trainers[arm], best, strict=True):
            cut = np.minimum(trainer.times(steps, low)[:, GOALS.index(goal) - 1], 1.0)
            # Of runs that do not arrive, the lower loss is the better one.
            every.append(np.log(cut) + 1e-3 * np.log(trainer.last(steps) / trainer.first))
        return np.mean(every, axis=0).tolist()

    tuned = {}
    for goal in GOALS:
        tuned[goal] = search.tune(
            {arm: {"step": space} for arm in ARMS},
            partial(scores, goal),
            trials=settings.trials,
            gradients=settings.story.gradients * len(sites),
            seed=settings.seed,
            role=sites[0].instance.role,
            rounds=settings.rounds,
        )
        print(f"{task}: tuned for {goal}", flush=True)
    return tuned


def _reported(settings: Settings, one: Played, task: str, tuned: Tuned) -> Iterator[dict[str, Any]]:
    """Last losses and times of all arms on an instance, with how they were tuned."""
    best = 0.0
    for arm in ARMS:  # all plain is the first, and tells how far there is to go
        steps = [tuned[goal][arm].best.settings["step"] for goal in GOALS]
        trainer = Trainer(settings, one, task, arm)
        ends = trainer.last(steps)
        best = trainer.lowest(steps) if arm == PLAIN.name else best
        times = trainer.times(steps, best)
        for at, goal in enumerate(GOALS):
            found = tuned[goal][arm]
            yield {
                "method": arm,
                "tuned_for": goal,
                "step": steps[at],
                "value": float(times[at, at - 1] if at else ends[0]),
                "horizon": 1.0 if at else np.inf,
                "trials": len(found.trials),
                "tuning_gradients": len(found.trials) * found.gradients,
                "at_edge": bool(found.edges),
                "crew": one.site.n_workers,
            }


def condition_table(result: Result) -> results.Table:
    """The verdicts, and every condition."""
    rows = []
    for claim in CLAIMS:
        by_set = [result.conditions(claim, letter) for letter in result.sets]
        rows.append((claim.text, *map(verdict, by_set)))
        for same in zip(*by_set, strict=True):
            rows.append((f"- {same[0].text}", *(one.verdict for one in same)))
    caption = (
        f"By paired differences of logarithms over {result.facts['instances']} workloads a set; the"
        " conditions of a claim share its doubt of 5 %."
    )
    heads = ("claim, and its conditions", *(f"set {letter}" for letter in result.sets))
    return part.table(heads, rows, caption, left=len(heads))


def _by_goal(cells: pd.DataFrame, heads: Sequence[str], caption: str) -> results.Table:
    """The column `cell` of rows: a row a problem, method and set, a column a goal."""
    named = cells.assign(name=cells["scene"] + ", " + cells["method"])
    wide = named.pivot(index=["name", "set"], columns="tuned_for", values="cell")[[*GOALS]]
    rows = wide.reset_index().itertuples(index=False)
    return part.table(("problem, methods", "set", *heads), rows, caption, left=2)


def ratio_table(result: Result) -> results.Table:
    """Both sets of methods over all plain."""
    ratios = [
        result.ratio(name, over=PLAIN.name, each=True).assign(method=name)
        for name in SETS_OF_METHODS
    ]
    cells = pd.concat(ratios)
    ends = cells[["ratio", "low", "high"]].itertuples(index=False)
    cells["cell"] = ["{:.2f} ({:.2f} to {:.2f})".format(*each) for each in ends]
    caption = (
        "Over all plain on the same workload: geometric mean and its 95 % interval. Below 1 the"
        " methods are ahead."
    )
    return _by_goal(cells, HEADS, caption)


def loss_table(result: Result) -> results.Table:
    """Last losses, and who arrives."""

    def told(values: Any) -> Any:
        if values.name[-1] == END:
            return results.median_and_spread(values.to_numpy())
        return f"{np.isfinite(values).mean():.0%}"

    by = ["scene", "method", "set", "tuned_for"]
    cells = result.rows.groupby(by)["value"].apply(told).rename("cell").reset_index()
    heads = (END, *(f"stay at {goal}" for goal in GOALS[1:]))
    caption = (
        "Median (quartiles) of the last loss, and the share of the runs that stay at the levels."
    )
    return _by_goal(cells, heads, caption)


def tuning_table(result: Result) -> results.Table:
    """Trials, gradients, what was chosen."""
    by = ["scene", "method", "set"]
    chosen = result.rows.drop_duplicates([*by, "tuned_for"]).groupby(by)
    rows = [
        (
            f"{task}, {method}",
            letter,
            ", ".join(f"{step:.4g}" for step in group["step"]),
            f"{group['trials'].min()} to {group['trials'].max()}",
            int(group["tuning_gradients"].max()),
            int(group["at_edge"].sum()),
        )
        for (task, method, letter), group in chosen
    ]
    heads = ("problem, methods", "set", f"step size for {', '.join(GOALS)}", "trials a goal")
    caption = (
        f"Chosen on {result.facts['tuning_instances']} other workloads a set, for each goal by"
        " itself; for a goal all have as many trials."
    )
    return part.table((*heads, "gradients a goal, at most", "at an edge"), rows, caption, left=3)


TABLES = {
    "conditions": condition_table,
    "ratios": ratio_table,
    "losses": loss_table,
    "tuning": tuning_table,
}


def ratio_figure(result: Result) -> Illustration:
    """Both sets of methods over all plain, a dot an instance, a panel a problem."""
    tasks = list(result.rows["scene"].unique())
    with drawing():
        page = new_figure(8.0, 3.4)
        panels = page.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        for axes, task in zip(panels, tasks, strict=True):
            _dots(axes, result, task)
            axes.set_title(task)
        panels[0].set_ylabel("over all plain")
        page.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return Illustration(
        page, "Each set of methods over all plain, by workload; below 1 it is ahead."
    )


def _dots(axes: Any, result: Result, task: str) -> None:
    styles = plots.assign_styles(SETS_OF_METHODS)
    for place, name in enumerate(SETS_OF_METHODS):
        for shift, letter, marker in ((-0.18, "A", "o"), (0.18, "B", "s")):
            ours, plain = (result.values(one, letter, scene=task) for one in (name, PLAIN.name))
            for at, ratio in enumerate((ours / plain).to_numpy()):
                axes.plot(
                    np.full(len(ratio), at + shift + 0.1 * (place - 0.5)),
                    ratio,
                    marker,
                    color=styles[name].colour,
                    markersize=3.5,
                    label=None if at else f"{name}, set {letter}",
                )
    axes.axhline(1.0, color=MUTED, linewidth=0.9, zorder=0)
    axes.set_yscale("log")
    axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_yticks([], minor=True)
    axes.set_xticks(range(len(HEADS)), HEADS)
    axes.tick_params(axis="x", labelsize=7)
    add_grid(axes, "y")


FACTS = {"levels": lambda _: LEVELS}
FIGURES = {"ratios": ratio_figure}


if __name__ == "__main__":
    part.main(NAME)
