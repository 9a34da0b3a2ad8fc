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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import clocks, traces
from asyncjax.study import protocol, search
from asyncjax.study.protocol import SETS, TUNING_OF, Seeds
from experiments.common import lanes, reaching
from experiments.common.data import digits_problem
from experiments.common.methods import Method

UNIT = "mean job of the fastest worker"
SLOTS = 48  # versions kept, at least: so that runs of a method share a compilation


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about three minutes of CPU time, on two threads."""

    output: Path = Path("output/compare")  # where report, figures and numbers go
    set: Literal["A", "B", "C"] = "A"  # which instances are reported
    instances: int = 20  # reported
    tuning_instances: int = 5  # of each set, only to choose the step size
    trials: int = 4  # step sizes that every method tries in a round of tuning
    rounds: tuple[int, int] = (3, 6)  # least and most; further ones where a best step is at an edge
    steps: tuple[float, float] = (2.0**-6, 2.0)  # ends of the grid, which has 2 * trials values
    n_workers: int = 32
    slowest: float = 4.0  # mean time of the slowest worker; the fastest has 1
    horizon: float = 600.0  # simulated time that every method gets
    pace: float = 1.0  # jobs of the fastest worker in a unit of time: room is made for as many
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
    tuned: search.Tuned
    time: np.ndarray  # float64[I, R]
    computed: np.ndarray  # int64[I, R], gradients computed so far, also those never used
    version: np.ndarray  # int32[I, R]
    loss: np.ndarray  # float[I, R], NaN after the horizon
    accuracy: np.ndarray  # float[I, R], on test rows, NaN after the horizon
    trace: traces.EventTrace  # of the first reported instance
    summaries: tuple[traces.Summary, ...]  # of the reported instances

    @property
    def step_size(self) -> float:
        """The step that was chosen."""
        return self.tuned.best.settings["step"]


@dataclass(frozen=True, eq=False)
class Field:
    """Instances, ready to be run: their seeds, problems, and workers."""

    instances: tuple[Seeds, ...]
    problems: lanes.Field
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
    parts = [
        digits_problem(
            one,
            settings.n_workers,
            batch=settings.batch,
            hidden=settings.hidden,
            concentration=settings.concentration,
            validation=settings.validation,
            judged_on="validation" if role in TUNING_OF.values() else "test",
        )
        for one in drawn
    ]
    return Field(drawn, lanes.field_of(parts), tuple(workers(settings, one) for one in drawn))


def traces_of(settings: Settings, method: Method, field: Field) -> list[traces.EventTrace]:
    """One trace an instance, all lasting to the horizon, with a multiple of the records' updates.

    The duration of job j of worker i is the same for all methods.
    """
    keys = [jax.random.key(instance.noise(0)) for instance in field.instances]
    pairs = [*zip(field.clocks, keys, strict=True)]
    return traces.lasting(
        lambda n: [method.trace(clock, n, key) for clock, key in pairs],
        settings.horizon,
        multiple_of=settings.records,
    )


def ran(
    settings: Settings,
    method: Method,
    field: Field,
    every: Sequence[traces.EventTrace],
    runs: Sequence[tuple[int, float]],
) -> lanes.Ran:
    """Runs a method on pairs of an instance's number and a step size: one compiled call."""
    gradients = settings.n_workers * settings.horizon * settings.pace  # were all the fastest
    most = 2 ** math.ceil(math.log2(gradients))

    def roomy(needed: Any) -> Any:
        room = {"waves": most, "updates": most, "slots": SLOTS}
        return replace(
            needed, **{name: max(getattr(needed, name), size) for name, size in room.items()}
        )

    def lane(number: int, step: float) -> lanes.Lane:
        trace = every[number]._replace(weight=every[number].weight * np.float32(step))
        return lanes.Lane(number, trace, jax.random.key(field.instances[number].noise(1)))

    return lanes.replayed(
        field.problems,
        [lane(*run) for run in runs],
        method.optimizer,
        1.0,
        records=settings.records,
        sizes=roomy,
        width=1 if every[0].n_arrivals == every[0].n_updates else None,
    )


def accuracies(settings: Settings, field: Field, runs: lanes.Ran) -> np.ndarray:
    """Accuracies of runs, float[K, R], NaN where `within` is not; the rows are one for all."""
    alike = reaching.slim(field.problems.parts[0])
    found = [reaching.accuracies(alike, jnp.asarray(models)) for models in runs.models]
    return np.where(within(settings, runs), np.array(found), np.nan)


def within(settings: Settings, runs: lanes.Ran) -> np.ndarray:
    """Where models are finite and records not after the horizon, bool[K, R]."""
    return (runs.time <= settings.horizon) & np.isfinite(runs.models).all(-1)


def score(settings: Settings, time: np.ndarray, accuracy: np.ndarray) -> float:
    """What is tuned and what is shown: see `reaching.score`."""
    return reaching.score(settings.target, settings.horizon, time, accuracy)


def rounds_of(
    settings: Settings, method: Method, field: Field, knob: search.Knob | None = None
) -> Iterator[search.Tuned]:
    """A method's search on tuning instances, as it is after each round."""
    space = {"step": knob or search.log_range(*settings.steps, 2 * settings.trials)}
    rates = [np.sum(1.0 / np.asarray(clock.mean)) for clock in field.clocks]
    gradients = round(settings.horizon * float(np.sum(rates)))  # of workers who never wait
    found, every = search.Tuned(space, (), gradients), traces_of(settings, method, field)
    tried, role = settings.trials, TUNING_OF[SETS[settings.set]]
    for turn in count():
        space, trials = search.propose(found, method.name, tried, settings.seed, turn, role)
        steps = [trial["step"] for trial in trials]
        runs = [(number, step) for step in steps for number in range(len(every))]
        done = ran(settings, method, field, every, runs)
        read = done.time, accuracies(settings, field, done)
        by_step = zip(*(np.split(column, len(steps)) for column in read), strict=True)
        scores = [score(settings, *columns) for columns in by_step]
        found = found.told(space, trials, scores, turn)
        yield found


def tuned_alike(
    settings: Settings, methods: Sequence[Method], told: Callable[[str], None] = print
) -> dict[str, search.Tuned]:
    """Tunes all methods, as `search.tune` over all of them would, several at once.

    A method's draws do not depend on the others; only when to stop does: all get another round as
    long as the best step of any is at an edge.
    """
    field = field_of(settings, TUNING_OF[SETS[settings.set]], settings.tuning_instances)
    return searched(settings, {one.name: rounds_of(settings, one, field) for one in methods}, told)


def searched(
    settings: Settings,
    searches: Mapping[str, Iterator[search.Tuned]],
    told: Callable[[str], None] = print,
) -> dict[str, search.Tuned]:
    """The ends of searches by method, which all get another round as long as one is at an edge."""
    least, most = settings.rounds
    found: dict[str, search.Tuned] = {}
    with ThreadPoolExecutor(settings.threads) as pool:
        for rounds in (least, *[1] * (most - least)):
            turns = searches.values()
            latest = pool.map(lambda search, n=rounds: [*islice(search, n)][-1], turns)
            for name, tuned in zip(searches, latest, strict=True):
                found[name], step = tuned, tuned.best.settings["step"]
                told(f"tuned {name:<17} {len(tuned.trials)} trials, step {step:.4g}")
            if not any(tuned.edges for tuned in found.values()):
                break
    return found


def reported(settings: Settings, method: Method, field: Field, tuned: search.Tuned) -> Outcome:
    """A tuned method on the instances that are shown.

    Raises:
        ValueError: It diverged at every step.
    """
    step = tuned.best.settings["step"]
    if not math.isfinite(tuned.best.score):
        tried = sorted(trial.settings["step"] for trial in tuned.trials)
        raise ValueError(f"{method.name} diverged at every step size tried: {tried}")
    every = traces_of(settings, method, field)
    runs = [(number, step) for number in range(len(every))]
    per_call = settings.trials * settings.tuning_instances  # as when tuning: the same program
    calls = [runs[at : at + per_call] for at in range(0, len(runs), per_call)]
    parts = [ran(settings, method, field, every, call) for call in calls]
    done = lanes.Ran(*map(np.concatenate, zip(*parts, strict=True)))
    # A loss is over the rows as one's own workers hold them; the accuracy is one for all.
    pairs = zip(map(reaching.slim, field.problems.parts), done.models, strict=True)
    loss = np.array([reaching.losses(part, jnp.asarray(models)) for part, models in pairs])
    return Outcome(
        method,
        tuned,
        *done[1:],
        loss=np.where(within(settings, done), loss, np.nan),
        accuracy=accuracies(settings, field, done),
        trace=every[0],
        summaries=tuple(map(traces.summarize, every)),
    )
