"""Norms of the gradient at equal updates and at equal time, for all tasks and methods.

An instance draws its rows, which class the faster workers hold, the mean times and the first model;
its noise is the times from job to job and what dispatch draws.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import clocks, problems, storage, traces
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from experiments.asynchronous.asgrad_methods import DISPATCHED, combinations, compared
from experiments.common.lanes import Field, Lane, field_of, replayed
from experiments.common.methods import Method

AXES = ("updates", "time", "long time")
SETS = {"A": SET_A, "B": SET_B}
MOMENTS = 20  # points over which a value at a place of an axis is averaged
PENALTY = 0.1
FLOOR = 1e-7  # norms below are rounding
FAR = 30.0  # score of a step whose objective has not fallen enough, and more


@dataclass(frozen=True)
class Settings:
    """What is run; what is done is kept in `output`, and a second run goes on from there."""

    output: Path = Path("output/asgrad")
    seed: int = 0
    n_workers: int = 10
    n_updates: int = 500  # the reading per update
    rows: int = 240  # of an instance, half of each class
    slowest: float = 10.0  # mean time of the slowest worker (or the law's parameter)
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = 4  # steps that a rule tries in a round of tuning, for each axis
    rounds: tuple[int, int] = (2, 6)
    steps: tuple[float, float] = (2.0**-6, 2.0)  # ends of the first grid, of eight steps
    fallen: float = 0.3  # of the first objective: where it must be for a step to count
    batch: int | None = None  # rows of a gradient in tasks with mini-batches; None: no such task
    window: float = 0.1  # share of an axis over which a norm is averaged
    records: int = 300  # points of a curve; updates are a multiple of it
    data: tuple[str, ...] = ("breast cancer", "digits")
    delays: tuple[str, ...] = ("fixed", "Poisson", "normal", "uniform")
    controls: tuple[str, ...] = ("random", "shared")  # "shared", which is costly, on the first data
    commit: bool = False  # also write the numbers where committed ones are


@dataclass(frozen=True)
class Task:
    """One setting: data, how they are divided, how long jobs last, rows of a gradient."""

    data: str
    delays: str = "fixed"
    split: str = "sorted"  # "random": dealt at random; "shared": everyone holds all rows
    batch: int | None = None  # None: the whole shard

    @property
    def name(self) -> str:
        """The task in words."""
        rows = "whole shards" if self.batch is None else f"batches of {self.batch}"
        return f"{self.data}, {self.split}, {rows}, {self.delays}"


def tasks(settings: Settings) -> list[Task]:
    """All tasks: laws of durations, batches, controls, for every data set."""
    made = []
    for data in settings.data:
        made += [Task(data, delays) for delays in settings.delays]
        if settings.batch is not None:
            made.append(Task(data, batch=settings.batch))
        first = data == settings.data[0]
        made += [Task(data, split=s) for s in settings.controls if first or s != "shared"]
    return made


def methods(settings: Settings, task: Task, clock: clocks.Clock) -> tuple[Method, ...]:
    """What is compared: a table at fixed times only, adaptive steps there on the first data."""
    if task != Task(task.data):
        return compared()[:-1]
    return (*compared(), *(combinations(clock) if task.data == settings.data[0] else ()))


def workers(settings: Settings, delays: str, instance: Seeds) -> clocks.Clock:
    """The clock of a law: mean times (or the law's parameter) from 1 to the slowest, ascending."""
    n = settings.n_workers
    drawn = np.random.default_rng(instance.clock).uniform(1.0, settings.slowest, max(n - 2, 0))
    scale = np.sort(np.concatenate([[1.0], drawn, [settings.slowest]]))[:n]
    made = {
        "fixed": lambda: clocks.constant(scale),
        "Poisson": lambda: clocks.poisson(scale),
        "normal": lambda: clocks.folded_normal(scale, scale, 1.0),
        "uniform": lambda: clocks.uniform(np.ones_like(scale), scale + 1.0),
    }
    if delays not in made:
        raise ValueError(f"delays must be one of {', '.join(made)}, got {delays!r}")
    return made[delays]()


@lru_cache
def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised features with a column of ones, and labels: those of ten digits, or of two."""
    loaders = {"breast cancer": problems.breast_cancer, "digits": problems.digits}
    if name not in loaders:
        raise ValueError(f"data must be one of {', '.join(loaders)}, got {name!r}")
    data = loaders[name]()
    features = np.asarray(data.train_features, np.float64)
    spread = features.std(0)
    features = (features - features.mean(0)) / np.where(spread > 0, spread, 1.0)
    ones = np.ones((len(features), 1))
    return np.hstack([features, ones]), np.asarray(data.train_labels)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Rows of an instance in the order in which workers hold them, and where it starts."""

    features: np.ndarray  # float64[rows, d]
    signs: np.ndarray  # float64[rows], -1 or 1
    start: np.ndarray  # float64[d]


def drawn(settings: Settings, task: Task, instance: Seeds) -> Drawn:
    """Sorted by label, or not; digits 0 to 4 against 5 to 9, so each worker holds few of them."""
    features, labels = rows_of(task.data)
    generator = np.random.default_rng(instance.data)
    sides = (labels >= 5 if task.data == "digits" else labels >= 1).astype(int)
    picked = []
    for side in generator.permutation(2):  # the first is that of the faster workers
        own = generator.permutation(np.flatnonzero(sides == side))[: settings.rows // 2]
        picked.append(own[np.argsort(labels[own], kind="stable")])
    rows = np.concatenate(picked)
    if task.split == "random":
        rows = generator.permutation(rows)
    start = np.random.default_rng(instance.model).normal(size=features.shape[1])
    return Drawn(features[rows], np.where(sides[rows] == 1, 1.0, -1.0), start)


def problem_of(settings: Settings, task: Task, one: Drawn) -> problems.Problem:
    """Logistic regression with the penalty 0.1 sum x^2 / (1 + x^2)."""
    rows, n = len(one.signs), settings.n_workers
    shared = problems.Shards(np.tile(np.arange(rows), (n, 1)), np.full(n, rows))
    return problems.logistic(
        one.features.astype(np.float32),
        one.signs.astype(np.float32),
        n_workers=n,
        nonconvex=PENALTY,
        batch=None if task.batch is None else problems.cyclic(task.batch),
        shards=shared if task.split == "shared" else None,
        start=one.start.astype(np.float32),
    )


def value_and_norm(one: Drawn, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Objective and norm of its gradient of models float[..., d]; shards are of equal size."""
    with np.errstate(all="ignore"):
        models = np.asarray(models, np.float64)
        margins = one.signs * (models @ one.features.T)
        squares = models**2
        value = np.logaddexp(0.0, -margins).mean(-1) + PENALTY * (squares / (1 + squares)).sum(-1)
        slopes = -one.signs / (1.0 + np.exp(np.clip(margins, -500, 500)))
        gradient = slopes @ one.features / len(one.signs)
        gradient += PENALTY * 2 * models / (1 + squares) ** 2
        return value, np.linalg.norm(gradient, axis=-1)


class Bench:
    """The instances of a task: those for tuning first, then set A, then set B."""

    def __init__(self, settings: Settings, task: Task) -> None:
        """Draws the instances, and the places at which norms are read."""
        self.settings, self.task = settings, task
        counts = {TUNING: settings.tuning_instances, SET_A: settings.instances}
        counts[SET_B] = settings.instances
        self.instances = [
            one for role, n in counts.items() for one in protocol.seeds_of(settings.seed, role, n)
        ]
        self.drawn = [drawn(settings, task, one) for one in self.instances]
        self.field: Field = field_of([problem_of(settings, task, one) for one in self.drawn])
        self.clocks = [workers(settings, task.delays, one) for one in self.instances]
        self.keys = [jax.random.key(one.noise(0)) for one in self.instances]
        self.ends = np.array([self._ends(at) for at in range(len(self.instances))])

    def _ends(self, at: int) -> list[float]:
        """Places on the axes: updates, the time of pure's, the time of the slowest rule's."""
        settings, clock = self.settings, self.clocks[at]
        ends = [
            float(method.trace(clock, settings.n_updates, self.keys[at]).time[-1])
            for method in DISPATCHED
        ]
        return [float(settings.n_updates), ends[0], max(ends)]

    def numbers(self, role: str) -> list[int]:
        """Places of the instances of a role."""
        return [at for at, instance in enumerate(self.instances) if instance.role == role]

    def traces_of(self, method: Method) -> list[traces.EventTrace]:
        """One trace an instance, lasting to all places at which norms are read."""
        return traces.lasting(
            lambda n: [
                method.trace(clock, n, key)
                for clock, key in zip(self.clocks, self.keys, strict=True)
            ],
            self.ends[:, 2],
            multiple_of=self.settings.records,
        )

    def read(
        self,
        method: Method,
        made: Sequence[traces.EventTrace],
        step: float,
        numbers: Sequence[int],
        series: bool = False,
    ) -> np.ndarray:
        """Norm and share of the first objective, at every axis, float64[K, 2, 3].

        With `series` the norms on the way, float64[K, 3, 60], instead.
        """
        settings, lanes = self.settings, []
        for at in numbers:
            lanes.append(Lane(at, made[at], self.keys[at]))
        ran = replayed(
            self.field,
            lanes,
            method.optimizer,
            step,
            records=settings.records,
            gradients=1.5 * max(trace.n_arrivals for trace in made),
        )
        every = made[0].n_updates // settings.records
        updates = every * np.arange(1, settings.records + 1)
        found = []
        for at, models, time in zip(numbers, ran.models, ran.time, strict=True):
            one, ends = self.drawn[at], self.ends[at]
            way = np.concatenate([one.start[None], models])
            value, norm = value_and_norm(one, way)
            both = np.stack([norm, value / value[0]])
            axes = [updates if axis == "updates" else time for axis in AXES]
            if series:
                shares = np.linspace(1 / 60, 1, 60)
                found.append(
                    [
                        trailing_mean(a, norm, e * shares, settings.window)
                        for a, e in zip(axes, ends, strict=True)
                    ]
                )
                continue
            read = [
                [trailing_mean(a, own, [e], settings.window)[0] for own in both]
                for a, e in zip(axes, ends, strict=True)
            ]
            found.append(np.array(read).T)
        return np.array(found)


def trailing_mean(axis: Any, values: Any, points: Any, share: float) -> np.ndarray:
    """Mean of a step function over the last `share` of the way to each point.

    Args:
        axis: `[R]`: places of the records.
        values: `[R + 1]`: at the start and at each record; held until the next.
        points: `[P]`, within the records.
        share: Between 0 and 1.

    Returns:
        float64 `[P]`.
    """
    moments = np.linspace(1.0 - share, 1.0, MOMENTS + 1)[1:]
    places = np.searchsorted(axis, np.outer(points, moments), side="right")
    return np.asarray(values, np.float64)[places].mean(-1)


def tuned(
    settings: Settings, bench: Bench, method: Method, made: Sequence[traces.EventTrace]
) -> list[tuning.Tuned]:
    """The step of a method for each axis, on the tuning instances."""
    numbers = bench.numbers(TUNING)
    known: dict[float, np.ndarray] = {}

    def scores(chosen: Sequence[float]) -> np.ndarray:
        """Mean logarithm of the norm where the objective has fallen, [steps, 3]."""
        for step in chosen:
            if step not in known:
                norm, share = bench.read(method, made, step, numbers).transpose(1, 0, 2)
                with np.errstate(all="ignore"):
                    mean, worth = np.log(np.maximum(norm, FLOOR)).mean(0), share.mean(0)
                told = np.where(worth <= settings.fallen, mean, FAR + worth)
                known[step] = np.where(np.isfinite(mean + worth), told, np.inf)
        return np.array([known[step] for step in chosen])

    space = tuning.log_range(*settings.steps, 2 * settings.trials)
    rate = float(np.mean([len(made[at].worker) for at in numbers]))
    return [
        tuning.tune(
            {"step": {"step": space}},
            lambda _, trials, n, at=at: list(scores([one["step"] for one in trials])[:, at]),
            trials=settings.trials,
            gradients=round(rate * len(numbers)),
            seed=settings.seed,
            rounds=settings.rounds,
        )["step"]
        for at in range(len(AXES))
    ]


def cell(settings: Settings, bench: Bench, method: Method) -> dict[str, Any]:
    """A method in a task: for each axis the chosen step, and the norms of both sets."""
    made = bench.traces_of(method)
    chosen, size = tuned(settings, bench, method, made), settings.tuning_instances
    own = [one.best.settings["step"] for one in chosen]
    found = {
        step: {
            letter: np.concatenate(
                [bench.read(method, made, step, part) for part in _parts(bench.numbers(role), size)]
            )
            for letter, role in SETS.items()
        }
        for step in sorted(set(own))
    }
    shown, curves = bench.numbers(SET_A)[:size], []
    if bench.task == Task(bench.task.data):  # drawn for fixed times alone
        curves = [
            np.median(bench.read(method, made, step, shown, series=True)[:, at], 0).tolist()
            for at, step in enumerate(own)
        ]
    return {
        "steps": own,
        "at_edge": [bool(one.edges) for one in chosen],
        "trials": [len(one.trials) for one in chosen],
        "tuning_gradients": [len(one.trials) * one.gradients for one in chosen],
        "fell": [one.best.score < FAR for one in chosen],
        "norms": {
            letter: [
                np.maximum(found[step][letter][:, 0, at], FLOOR).tolist()
                for at, step in enumerate(own)
            ]
            for letter in SETS
        },
        "curves": curves,
        "times": bench.ends[bench.numbers(SET_A)].tolist(),
        "time_of_updates": [
            float(made[at].time[made[at].steps][settings.n_updates - 1])
            for at in bench.numbers(SET_A)
        ],
        "utilisation": [
            float(traces.summarize(made[at]).utilisation) for at in bench.numbers(SET_A)
        ],
    }


def _parts(numbers: Sequence[int], size: int) -> list[list[int]]:
    """Calls of one size, so that they share a program; sets are multiples of it."""
    if len(numbers) % size:
        raise ValueError(f"instances must be a multiple of tuning_instances = {size}")
    return [list(numbers[at : at + size]) for at in range(0, len(numbers), size)]


def run_tasks(settings: Settings, told: Callable[[str], None] = print) -> dict[str, Any]:
    """All cells by task and method; those that were done before are read."""
    folder = settings.output / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    every, found = tasks(settings), {}
    for place, task in enumerate(every, start=1):
        bench: Bench | None = None
        own: dict[str, Any] = {}
        clock = workers(settings, task.delays, protocol.seeds_of(0, SET_A, 1)[0])
        for method in methods(settings, task, clock):
            path = folder / f"{task.name}_{method.name}.json".replace(" ", "_").replace("/", "-")
            kept = storage.load_json(path) if path.exists() else {}
            if kept.get("settings") != identity(settings):
                bench = bench or Bench(settings, task)
                kept = {"settings": identity(settings), "cell": cell(settings, bench, method)}
                storage.save_json(path, kept)
            own[method.name] = kept["cell"]
        found[task.name] = own
        told(f"[{place}/{len(every)}] {task.name}")
    return found


def identity(settings: Settings) -> dict[str, Any]:
    """What a cell depends on, as it comes back from JSON."""
    apart = ("output", "commit", "data", "delays", "controls", "batch")
    facts = {name: value for name, value in asdict(settings).items() if name not in apart}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in facts.items()}
