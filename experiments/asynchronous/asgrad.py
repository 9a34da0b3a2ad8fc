"""Does shuffled dispatch win, per update and per unit of time?

The setting of AsGrad, on data that anyone has. Logistic regression with the penalty 0.1 sum x^2 /
(1 + x^2); ten workers hold contiguous shards of rows sorted by label, so that each pulls to its own
minimum. Pure, random and shuffled dispatch, and two ways to undo pure's bias (Rescaled, whose steps
are in proportion to the worker's time, and a table of everyone's last gradient) face the same
workers under four laws of durations.

Measured is the norm of the full gradient, averaged over the last tenth of an axis: at 500 updates,
at the time in which pure makes 500 updates, and at the time in which the slowest rule does. An
instance draws its rows, which class the faster workers hold, the mean times and the first model.
All rules get as many trials of their step size, for every axis by itself, on instances that are not
shown, others for each of the two disjoint sets that are. A step size counts only if the objective,
too, has fallen to 0.3 of the first: very large steps throw the model out to where the penalty is
flat, and the gradient is small there though nothing has been learnt.

Controls: rows dealt at random, and all rows held by everyone. Combinations: shuffled dispatch with
delay-adaptive steps. Equal time over unevenness and horizon: `experiments.shuffled_map`.

Source: Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452), whose public code names the
four laws.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, steps, study, traces
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_number
from asyncjax.study import search
from asyncjax.study.methods import after, plain
from asyncjax.study.programs import records_of_cell
from asyncjax.study.protocol import SET_A, TUNING_OF, Seeds, seeds_of
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import sets
from experiments.common.data import rows_of

NAME = "asgrad"
TITLE = "Does shuffled dispatch win, per update and per unit of time?"
PAPERS = (
    "Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",
    "Mishchenko, Bach, Even, Woodworth, 2022, Asynchronous SGD beats minibatch SGD under arbitrary"
    " delays (arXiv 2206.07638)",
)
AXES = {  # what the step size is tuned for, and where that is
    "updates": "at equal updates",
    "time": "at the time of pure's updates",
    "long time": "at the time of the slowest rule's",
}
COSTS = ["time_of_updates", "utilisation"]
PENALTY = 0.1
FALLEN = 0.3  # of the first objective: where it must be for a step size to count
FAR = 30.0  # score of a step size whose objective has not fallen enough, and more
FLOOR = 1e-7  # norms below are rounding
SHARES = np.linspace(1 / 60, 1, 60)  # of an axis, at which curves are drawn
N_WORKERS, SLOWEST = 10, 10.0  # mean times (or parameters of a law) from 1 to the slowest
STEPS = search.log_range(2.0**-6, 2.0, 8)


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/asgrad")
    seed: int = 0
    n_updates: int = 500  # the reading per update
    rows: int = 240  # of an instance, half of each class
    records: int = 300  # points of a run
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = 8  # step sizes that a rule tries, for each axis
    rounds: tuple[int, int] = (2, 6)
    data: tuple[str, ...] = ("breast cancer", "digits")
    laws: tuple[str, ...] = ("fixed", "Poisson", "normal", "uniform")
    controls: tuple[str, ...] = ("random", "shared")  # "shared", which is costly, on the first data
    commit: bool = False  # also write the rows where committed ones are


# Scenes: data, how they are divided, how long jobs last.


@dataclass(frozen=True)
class Task:
    """A scene; called with seeds it makes an instance."""

    data: str
    law: str = "fixed"
    split: str = "sorted"  # "random": dealt at random; "shared": everyone holds all rows
    n_updates: int = 500
    rows: int = 240
    records: int = 300

    @property
    def name(self) -> str:
        """The task in words."""
        return f"{self.data}, {self.split}, whole shards, {self.law}"

    def __call__(self, seeds: Seeds) -> study.Scene:
        """An instance, until the slowest way of dispatch has made its updates."""
        ends = [self.costs(seeds, rule)["time_of_updates"] for rule in DISPATCHED.values()]
        places, clock = (float(self.n_updates), ends[0], max(ends)), self.clock(seeds)
        return study.Scene(
            self.problem(seeds),
            clock,
            horizon=places[-1],
            data=dict(zip(AXES, places, strict=True)),
            numbers={"times": np.asarray(clock.mean)},
            records=self.records,
        )

    def costs(self, seeds: Seeds, rule: Any) -> dict[str, float]:
        """When a rule has made its updates, and how busy its workers are until then."""
        key = jax.random.key(seeds.noise(0))
        trace = rule.trace(self.clock(seeds), n_updates=self.n_updates, key=key)
        busy = float(traces.summarize(trace).utilisation)
        return dict(zip(COSTS, (float(trace.end), busy), strict=True))

    def clock(self, seeds: Seeds) -> clocks.Clock:
        """Workers in the order of their mean times."""
        drawn = np.random.default_rng(seeds.clock).uniform(1.0, SLOWEST, N_WORKERS - 2)
        scale = np.sort([1.0, *drawn, SLOWEST])
        laws = {
            "fixed": clocks.constant(scale),
            "Poisson": clocks.poisson(scale),
            "normal": clocks.folded_normal(scale, scale, 1.0),
            "uniform": clocks.uniform(np.ones_like(scale), scale + 1.0),
        }
        if self.law not in laws:
            raise ValueError(f"law must be one of {', '.join(laws)}, got {self.law!r}")
        return laws[self.law]

    def problem(self, seeds: Seeds) -> problems.Problem:
        """Rows sorted by label, or not; digits 0 to 4 against 5 to 9, so each worker holds few."""
        features, labels = rows_of(self.data)
        generator = np.random.default_rng(seeds.data)
        sides = (labels >= 5 if self.data == "digits" else labels >= 1).astype(int)
        picked = []
        for side in generator.permutation(2):  # the first is that of the faster workers
            some = generator.permutation(np.flatnonzero(sides == side))[: self.rows // 2]
            picked.append(some[np.argsort(labels[some], kind="stable")])
        rows = np.concatenate(picked)
        if self.split == "random":
            rows = generator.permutation(rows)
        everyone = np.tile(np.arange(len(rows)), (N_WORKERS, 1)), np.full(N_WORKERS, len(rows))
        start = np.random.default_rng(seeds.model).normal(size=features.shape[1])
        problem = problems.logistic(
            features[rows].astype(np.float32),
            np.where(sides[rows] == 1, 1.0, -1.0).astype(np.float32),
            n_workers=N_WORKERS,
            nonconvex=PENALTY,
            shards=problems.Shards(*everyone) if self.split == "shared" else None,
            start=start.astype(np.float32),
        )
        return replace(problem, metrics_of=(("norm", NormOf(problem.objective_of)),))


@dataclass(frozen=True)
class NormOf:
    """The norm of the gradient of an objective, as a metric."""

    objective: Any

    def __call__(self, data: Any, model: jax.Array) -> jax.Array:
        """The norm at a model."""
        return optax.tree.norm(jax.grad(self.objective, argnums=1)(data, model))


def tasks(settings: Settings) -> list[Task]:
    """Laws of durations and controls, for every data set."""
    sizes = settings.n_updates, settings.rows, settings.records
    ways = [(law, "sorted") for law in settings.laws]
    ways += [("fixed", split) for split in settings.controls]
    every = [Task(data, *way, *sizes) for data in settings.data for way in ways]
    return [one for one in every if one.split != "shared" or one.data == settings.data[0]]


# Methods.


def rescaled(settings: search.Settings) -> optax.GradientTransformation:
    """Steps in proportion to the worker's mean time."""
    return steps.scale_by_worker_time(settings["times"])


def bounded(settings: search.Settings) -> optax.GradientTransformation:
    """Mishchenko's rule: the step falls as n / delay once the delay exceeds n."""
    return steps.scale_by_staleness("concurrency", n_workers=settings["n_workers"])


def adaptive(settings: search.Settings) -> optax.GradientTransformation:
    """Adaptive 1; it remembers more delays than there are."""
    rule = steps.scale_by_adaptive_1(settings["step"], max_delay=512)
    return optax.chain(rule, optax.scale(-1.0))


DISPATCHED = {
    "pure": traces.Rule(),  # whoever delivers gets the next job
    "random": traces.Rule(dispatch=traces.uniformly()),
    "shuffled": traces.Rule(dispatch=traces.shuffled()),  # along random permutations
}
METHODS = {
    **{name: study.Method(rule, plain) for name, rule in DISPATCHED.items()},
    "Rescaled": study.Method(DISPATCHED["pure"], after(rescaled)),
    "table": study.Method(traces.Rule(collect=traces.table()), plain),
    "shuffled, Adaptive 1": study.Method(DISPATCHED["shuffled"], adaptive),
    "shuffled, n/delay": study.Method(DISPATCHED["shuffled"], after(bounded)),
}


def methods(settings: Settings, task: Task) -> list[str]:
    """What is compared: a table at fixed times only, adaptive steps there on the first data."""
    count = 7 if task.data == settings.data[0] else 5
    return list(METHODS)[: count if is_fixed(task) else 4]


def is_fixed(task: Task) -> bool:
    """Whether durations are fixed and rows sorted."""
    return (task.law, task.split) == ("fixed", "sorted")


# What is measured.


def trailing_mean(axis: Any, values: Any, points: Any, share: float = 0.1) -> np.ndarray:
    """Mean of a step function over the last `share` of the way to each point.

    Args:
        axis: `[R]`: places of the records, the first at 0.
        values: `[R]`: each held until the next record.
        points: `[P]`.
        share: Between 0 and 1.
    """
    moments = np.outer(points, np.linspace(1.0 - share, 1.0, 21)[1:])
    places = np.searchsorted(axis, moments, side="right") - 1
    return np.asarray(values, np.float64)[places].mean(-1)


@dataclass(frozen=True)
class Reading:
    """Norm and share of the first objective at the end of an axis."""

    axis: str

    def __call__(self, records: Mapping[str, Any], scene: study.Scene) -> Mapping[str, float]:
        """The numbers of a run."""
        loss = np.asarray(records["loss"])
        columns = records["norm"], loss / loss[0]
        norm, share = (self.at(values, records, scene, [1.0])[0] for values in columns)
        return {"norm": float(np.maximum(norm, FLOOR)), "left": float(share)}

    def at(self, values: Any, records: Any, scene: study.Scene, shares: Any) -> np.ndarray:
        """Trailing means of a column at shares of the axis."""
        column = records["version" if self.axis == "updates" else "time"]
        return trailing_mean(column, values, scene.data[self.axis] * np.asarray(shares))


def score(numbers: Sequence[Mapping[str, float]], scenes: Sequence[study.Scene]) -> float:
    """The mean logarithm of the norm, where the objective has fallen."""
    norm = np.mean(np.log([one["norm"] for one in numbers]))
    left = np.mean([one["left"] for one in numbers])
    if not np.isfinite(norm + left):
        return np.inf
    return float(norm if left <= FALLEN else FAR + left)


READINGS = {axis: Reading(axis) for axis in AXES}
MEASURES = {axis: study.Measure(of, "norm", score) for axis, of in READINGS.items()}


def study_of(settings: Settings) -> Result:
    """Compares the rules in all tasks."""
    compared = [_compared(settings, task) for task in tasks(settings)]
    names = ("n_updates", "instances", "tuning_instances")
    facts: dict[str, Any] = {name: getattr(settings, name) for name in names}
    facts["tuned apart"] = True
    facts["curves"] = {rows["data"].iloc[0]: ways for rows, ways in compared if ways}
    return Result(pd.concat([rows for rows, _ in compared]), "norm", facts, settings.seed, cut=())


def _compared(settings: Settings, task: Task) -> tuple[Any, Any]:
    """The rows of a task; and where durations are fixed, curves by rule and axis."""
    names = methods(settings, task)
    same = ("trials", "rounds", "instances", "tuning_instances", "seed")
    result = study.compare(
        {task.name: task},
        {name: METHODS[name] for name in names},
        space={"step": STEPS},
        measure=MEASURES,
        path=settings.output,
        **{name: getattr(settings, name) for name in same},
    )
    tried = [
        result.select(set=TUNING_OF[role]).assign(set=letter) for letter, role in sets.SETS.items()
    ]
    by = ["set", "method", "tuned_for"]
    trials: Any = pd.concat(tried).groupby(by).size() // settings.tuning_instances
    rows = result.select(set=[*sets.SETS]).join(trials.rename("trials"), on=by)
    rows = rows.assign(data=task.data, split=task.split, law=task.law)
    costs = pd.DataFrame(
        {"set": letter, "instance": at, "method": name, **task.costs(seeds, METHODS[name].rule)}
        for letter, role in sets.SETS.items()
        for at, seeds in enumerate(seeds_of(settings.seed, role, settings.instances))
        for name in names
    )
    rows = rows.merge(costs, "left")
    shown = names[:5] if is_fixed(task) else []
    return rows, {name: _curves(settings, task, name, rows) for name in shown}


def _curves(settings: Settings, task: Task, method: str, rows: Any) -> dict[str, list[float]]:
    """For each axis the norm on the way, with the step size that is best at its end; medians."""
    seeds = seeds_of(settings.seed, SET_A, settings.tuning_instances)
    scenes, found = [task(one) for one in seeds], {}
    for axis, reading in READINGS.items():
        shown = rows[(rows["method"] == method) & (rows["tuned_for"] == axis)]
        step = shown.loc[shown["set"] == "A", "step"].iloc[0]
        runs = records_of_cell(METHODS[method], {"step": step}, scenes, seeds)
        ways = [reading.at(r["norm"], r, s, SHARES) for r, s in zip(runs, scenes, strict=True)]
        found[axis] = np.median(ways, axis=0).tolist()
    return found


# What is claimed and shown.


def _lower(first: str, second: str, axis: str, **where: Any) -> Claim:
    condition = less(first, than=second, each=True, tuned_for=axis, **where)
    return Claim(f"{first} below {second} {AXES[axis]}", [condition], "Islamov et al. 2024")


FIXED = {"data": "breast cancer", "law": "fixed", "split": "sorted"}
CLAIMS = (
    *(_lower("shuffled", "pure", axis, split="sorted") for axis in AXES),
    *(
        _lower(*pair, axis, split="sorted")
        for axis in ("time", "long time")
        for pair in (("random", "pure"), ("Rescaled", "shuffled"))
    ),
    _lower("shuffled, Adaptive 1", "shuffled", "updates", **FIXED),
    _lower("shuffled, n/delay", "shuffled", "updates", **FIXED),
    Claim(
        "pure below shuffled where all hold all rows",
        [less("pure", than="shuffled", each=True, tuned_for="time", split="shared")],
    ),
)


PAIRS = (("shuffled", "pure"), ("Rescaled", "shuffled"))


def spans(result: Result) -> dict[str, Any]:
    """Ratios over the tasks with sorted shards, by pair, axis and set: least and largest."""
    found: dict[str, Any] = {}
    for pair in PAIRS:
        axes = found[" over ".join(pair)] = {axis: {} for axis in AXES}
        rows = result.ratio(*pair, each=True, where={"split": "sorted"})
        for (axis, letter), cells in rows.groupby(["tuned_for", "set"]):
            ratio, told = cells["ratio"], cells.loc[cells["significant"], "ratio"]
            text = f"{ratio.min():.2f} to {ratio.max():.2f}"
            ahead, behind = int((told < 1).sum()), int((told > 1).sum())
            axes[axis][letter] = {"text": text, "ahead": ahead, "behind": behind}
    return found


FACTS = {"spans": spans}


def norm_table(result: Result, label: str = "scene", **where: Any) -> results.Table:
    """Norms and costs, medians of set A: a row a task and rule."""
    rows, chosen = [], result.select(set="A", **where)
    for key, cell in chosen.groupby([label, "method"], sort=False):
        norms = cell.groupby("tuned_for")["norm"].median().map(format_number)
        (first, *rest), (time, busy) = norms[[*AXES]], cell[COSTS].median()
        rows.append((*key, first, round(time), *rest, f"{busy:.2f}"))
    name = "task" if label == "scene" else f"{label}, fixed times"
    heads = (name, "rule", f"at {result.facts['n_updates']} updates", "time of these")
    return part.table(
        (*heads, "at pure's time", "at the long time", "utilisation"),
        rows,
        "Norm of the full gradient, median over the instances of set A, mean over the last tenth of"
        " the axis; the step size is chosen for each axis by itself, on other instances.",
        left=2,
    )


def ratio_table(result: Result) -> results.Table:
    """Shuffled's norm over pure's, and Rescaled's over shuffled's, with intervals, set by set."""
    rows, columns = [], [(axis, letter) for axis in AXES for letter in result.sets]
    for pair in PAIRS:
        for task, cell in result.ratio(*pair, each=True).groupby("scene", sort=False):
            text = cell.set_index(["tuned_for", "set"])["text"]
            rows.append((" over ".join(pair), task, *(text[column] for column in columns)))
    return part.table(
        ("norms", "task", *(f"{axis}, set {letter}" for axis, letter in columns)),
        rows,
        "Geometric mean and its 95 % interval; a star where the two do not differ significantly.",
        left=2,
    )


TABLES = {
    "fixed times": lambda result: norm_table(result, "data", law="fixed", split="sorted"),
    "norms": norm_table,
    "ratios": ratio_table,
    "spread": lambda result: sets.spread_table(sets.spread(result.rows, ("scene", "tuned_for"))),
}


def curves(result: Result) -> Illustration:
    """Norms on the way at fixed times: one row per data set, a column an axis."""
    panels = []
    for data, rules in result.facts["curves"].items():
        for axis, end in zip(AXES, ("updates", "pure's time", "the long time"), strict=True):
            ways = {name: np.array(by_axis[axis]) for name, by_axis in rules.items()}
            series = [results.Series(name, SHARES, way) for name, way in ways.items()]
            panels.append(plots.Panel(f"share of {end}, {data}", series))
    look: Any = {"log_y": True, "y_range": (3e-3, 3.0), "columns": len(AXES)}
    return Illustration(
        plots.panels(panels, y_label="norm of the full gradient", **look),
        f"Sorted shards, fixed times: medians of {result.facts['tuning_instances']} instances of"
        " set A. In every panel the step size is the one that is best at its right end.",
    )


FIGURES = {"curves": curves}


if __name__ == "__main__":
    part.main(NAME, quick=True)
