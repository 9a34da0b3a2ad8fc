"""Nine methods on digits: what the main job measures.

An instance draws how labels are divided over the workers, how slow each worker is, and the first
model; its noise is the times from job to job and the rows of each. All runs of a method go through
one compiled program, twenty at a time: instances stand side by side, and a step size multiplies the
weights of a trace. (Every rule here is homogeneous in its step size: c times the step is c times
each weight.)

Steps are chosen by accuracies on validation rows, which nobody trains on; what is shown is accuracy
on test rows, which the choice never reads.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from asyncjax import clocks, problems, simulation, traces
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from experiments.common import reaching
from experiments.common.data import digits_problem
from experiments.common.methods import Method
from experiments.common.side_by_side import moved, raveled, side_by_side

ROLES = {"A": SET_A, "B": SET_B}
UNIT = "mean job of the fastest worker"
SLOTS = 48  # versions kept, at least: so that runs of a method share a compilation


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about three minutes of CPU time, on two threads."""

    output: Path = Path("output/compare")  # where report, figures and numbers go
    set: Literal["A", "B"] = "A"  # which instances are reported
    instances: int = 20  # reported
    tuning_instances: int = 5  # only to choose the step size
    trials: int = 4  # step sizes that every method tries in a round of tuning
    rounds: tuple[int, int] = (3, 6)  # least and most; further ones where a best step is at an edge
    steps: tuple[float, float] = (2.0**-6, 2.0)  # ends of the grid, which has 2 * trials values
    n_workers: int = 32
    slowest: float = 4.0  # mean time of the slowest worker; the fastest has 1
    horizon: float = 600.0  # simulated time that every method gets
    batch: int = 8  # rows of a gradient
    hidden: int = 32  # units of the network's hidden layer
    concentration: float = 0.3  # of the Dirichlet law of labels over workers; small is skewed
    validation: float = 0.25  # of the training rows, taken out; steps are tuned on these
    target: float = 0.90  # accuracy whose time and cost are reported, and tuned for
    levels: tuple[float, ...] = (0.8, 0.9, 0.93)  # further ones whose times are told
    records: int = 120  # points of a curve
    seed: int = 0
    threads: int = 2  # methods that are run at once
    commit: bool = False  # also write this set's rows where committed ones are


@dataclass(frozen=True)
class Outcome:
    """What one method did; arrays are NumPy, I instances and R records."""

    method: Method
    tuned: tuning.Tuned
    time: np.ndarray  # float64[I, R]
    computed: np.ndarray  # int64[I, R], gradients computed so far, also those never used
    version: np.ndarray  # int32[I, R]
    loss: np.ndarray  # float[I, R], NaN after the horizon
    accuracy: np.ndarray  # float[I, R], on test rows, NaN after the horizon
    trace: traces.EventTrace  # of the first reported instance
    summaries: tuple[traces.Summary, ...]  # of the reported instances
    seconds: float

    @property
    def step_size(self) -> float:
        """The step that was chosen."""
        return self.tuned.best.settings["step"]


@dataclass(frozen=True, eq=False)
class Field:
    """Instances, ready to be run.

    Attributes:
        instances: Their seeds.
        parts: The problem of each.
        joined: All of them side by side.
        clocks: The workers of each.
    """

    instances: tuple[Seeds, ...]
    parts: tuple[problems.Problem, ...]
    joined: problems.Problem
    clocks: tuple[clocks.Clock, ...]


def workers(settings: Settings, instance: Seeds) -> clocks.Clock:
    """Gamma-distributed times, the fastest worker first.

    Logarithms of the means are uniform between those of 1 and `slowest`, which are both there.
    """
    drawn = np.random.default_rng(instance.clock).uniform(size=max(settings.n_workers - 2, 0))
    powers = np.sort(np.concatenate([[0.0], drawn, [1.0]]))[: settings.n_workers]
    return clocks.gamma(4.0, settings.slowest**powers)


def field_of(settings: Settings, role: str, count: int) -> Field:
    """The first instances of a role: tuning ones are judged on validation rows, others on test."""
    drawn = protocol.seeds_of(settings.seed, role, count)
    parts = tuple(
        digits_problem(
            one,
            settings.n_workers,
            batch=settings.batch,
            hidden=settings.hidden,
            concentration=settings.concentration,
            validation=settings.validation,
            judged_on="validation" if role == TUNING else "test",
        )
        for one in drawn
    )
    speeds = tuple(workers(settings, one) for one in drawn)
    return Field(drawn, parts, side_by_side(parts), speeds)


def traces_of(settings: Settings, method: Method, field: Field) -> list[traces.EventTrace]:
    """One trace an instance, all lasting to the horizon, with a multiple of the records' updates.

    The duration of job j of worker i is the same for all methods.
    """
    pairs = [
        (clock, jax.random.key(instance.noise(0)))
        for clock, instance in zip(field.clocks, field.instances, strict=True)
    ]
    return traces.lasting(
        lambda n: [method.trace(clock, n, key) for clock, key in pairs],
        settings.horizon,
        multiple_of=settings.records,
    )


@dataclass(frozen=True)
class Ran:
    """Runs at their records: models float[K, R, d] and the columns of the records, [K, R]."""

    models: np.ndarray
    time: np.ndarray
    computed: np.ndarray
    version: np.ndarray


def ran(
    settings: Settings,
    method: Method,
    field: Field,
    made: Sequence[traces.EventTrace],
    runs: Sequence[tuple[int, float]],
) -> Ran:
    """Runs a method on pairs of an instance's number and a step size: one compiled call."""
    single = made[0].n_arrivals == made[0].n_updates
    gradients = settings.n_workers * settings.horizon  # were all workers the fastest
    most = 2 ** math.ceil(math.log2(gradients))

    def roomy(own: Any) -> Any:
        return replace(own, waves=max(own.waves, most), slots=max(own.slots, SLOTS), copies=4)

    def at(number: int, step: float) -> traces.EventTrace:
        trace = moved(made[number], number, settings.n_workers)
        return trace._replace(weight=trace.weight * np.float32(step))

    records = simulation.sweep(
        replace(field.joined, metrics_of=(("model", raveled),)),
        [at(*run) for run in runs],
        method.optimizer,
        [1.0],
        keys=jnp.stack([jax.random.key(field.instances[number].noise(1)) for number, _ in runs]),
        record_every=made[0].n_updates // settings.records,
        width=1 if single else None,
        sizes=roomy,
    ).records
    starts = [ravel_pytree(field.parts[number].params)[0] for number, _ in runs]
    models = np.asarray(records.metrics["model"])[:, 0] + np.stack(starts)[:, None]
    count = len(runs)  # one run alone has columns without its axis
    columns = (getattr(records, name) for name in ("time", "computed", "version"))
    return Ran(models, *(np.asarray(column).reshape(count, -1) for column in columns))


def judged(
    settings: Settings, field: Field, numbers: Sequence[int], runs: Ran
) -> tuple[np.ndarray, np.ndarray]:
    """Training loss and accuracy of runs on instances of these numbers, float[K, R] each.

    NaN where the model is not finite or a record is after the horizon.
    """
    pairs = [(field.parts[n], jnp.asarray(m)) for n, m in zip(numbers, runs.models, strict=True)]
    # A loss is over the rows as one's own workers hold them; the accuracy is one for all.
    loss = np.array([reaching.losses(reaching.slim(part), models) for part, models in pairs])
    alike = reaching.slim(pairs[0][0])
    accuracy = np.array([reaching.accuracies(alike, models) for _, models in pairs])
    there = (runs.time <= settings.horizon) & np.isfinite(runs.models).all(-1)
    return np.where(there, loss, np.nan), np.where(there, accuracy, np.nan)


def score(settings: Settings, ran_at: np.ndarray, accuracy: np.ndarray) -> float:
    """What is tuned and what is shown: see `reaching.score`."""
    return reaching.score(settings.target, settings.horizon, ran_at, accuracy, stays=True)


class Bench:
    """Tuning and reported instances, on which methods are tuned and run.

    What was computed once is kept: further rounds of tuning begin where the last one ended.
    """

    def __init__(self, settings: Settings) -> None:
        """Draws the instances."""
        self.settings = settings
        self.tuning = field_of(settings, TUNING, settings.tuning_instances)
        self.reported = field_of(settings, ROLES[settings.set], settings.instances)
        self.seconds: dict[str, float] = {}
        self._made: dict[str, list[traces.EventTrace]] = {}
        self._scores: dict[tuple[str, float], float] = {}

    def gradients(self) -> int:
        """Gradients that a trial may compute: those of workers who never wait."""
        rates = [np.sum(1.0 / np.asarray(clock.mean)) for clock in self.tuning.clocks]
        return round(self.settings.horizon * float(np.sum(rates)))

    def tune(self, method: Method, rounds: int) -> tuning.Tuned:
        """The method after so many rounds of tuning."""
        settings, began = self.settings, time.perf_counter()
        space = {"step": tuning.log_range(*settings.steps, 2 * settings.trials)}

        def evaluate(_: str, trials: Sequence[tuning.Settings], gradients: int) -> list[float]:
            del gradients  # every trial has the same simulated time
            return self._evaluated(method, [trial["step"] for trial in trials])

        spaces = {method.name: space}
        found = tuning.tune(
            spaces,
            evaluate,
            trials=settings.trials,
            gradients=self.gradients(),
            seed=settings.seed,
            rounds=(rounds, rounds),
        )
        self._count(method, began)
        return found[method.name]

    def _evaluated(self, method: Method, steps: Sequence[float]) -> list[float]:
        settings, field, count = self.settings, self.tuning, self.settings.tuning_instances
        if not all((method.name, step) in self._scores for step in steps):
            if method.name not in self._made:
                self._made[method.name] = traces_of(settings, method, field)
            runs = [(number, step) for step in steps for number in range(count)]
            done = ran(settings, method, field, self._made[method.name], runs)
            _, accuracy = judged(settings, field, [number for number, _ in runs], done)
            for place, step in enumerate(steps):
                own = slice(place * count, (place + 1) * count)
                found = score(settings, done.time[own], accuracy[own])
                self._scores[method.name, step] = found
        return [self._scores[method.name, step] for step in steps]

    def run(self, method: Method, tuned: tuning.Tuned) -> Outcome:
        """Runs a tuned method on the reported instances.

        Raises:
            ValueError: It diverged at every step.
        """
        settings, field, began = self.settings, self.reported, time.perf_counter()
        step = tuned.best.settings["step"]
        if not math.isfinite(tuned.best.score):
            tried = sorted(trial.settings["step"] for trial in tuned.trials)
            raise ValueError(f"{method.name} diverged at every step size tried: {tried}")
        made = traces_of(settings, method, field)
        numbers = range(settings.instances)
        per_call = settings.trials * settings.tuning_instances  # as when tuning: the same program
        calls = [numbers[at : at + per_call] for at in range(0, len(numbers), per_call)]
        parts = [ran(settings, method, field, made, [(n, step) for n in call]) for call in calls]
        done = Ran(*(np.concatenate(each) for each in zip(*map(_columns, parts), strict=True)))
        loss, accuracy = judged(settings, field, numbers, done)
        return Outcome(
            method=method,
            tuned=tuned,
            time=done.time,
            computed=done.computed,
            version=done.version,
            loss=loss,
            accuracy=accuracy,
            trace=made[0],
            summaries=tuple(traces.summarize(trace) for trace in made),
            seconds=self._count(method, began),
        )

    def _count(self, method: Method, began: float) -> float:
        spent = self.seconds.get(method.name, 0.0) + time.perf_counter() - began
        self.seconds[method.name] = spent
        return spent


def _columns(one: Ran) -> tuple[np.ndarray, ...]:
    return one.models, one.time, one.computed, one.version


def tuned_alike(
    bench: Bench, methods: Sequence[Method], told: Callable[[str], None] = print
) -> dict[str, tuning.Tuned]:
    """Tunes all methods, as `tuning.tune` over all of them would, several at once.

    A method's draws do not depend on the others; only when to stop does: all get another round as
    long as the best step of any is at an edge.
    """
    least, most = bench.settings.rounds
    found: dict[str, tuning.Tuned] = {}
    with ThreadPoolExecutor(bench.settings.threads) as pool:
        for rounds in range(least, most + 1):
            tuned = pool.map(lambda method, n=rounds: bench.tune(method, n), methods)
            for method, own in zip(methods, tuned, strict=True):
                found[method.name] = own
                step = own.best.settings["step"]
                told(f"tuned {method.name:<17} {len(own.trials)} trials, step {step:.4g}")
            if not any(own.edges for own in found.values()):
                break
    return found
