"""Every rule of the family on recorded workers: tuned alike, then run on two sets of instances.

An instance draws how labels are divided over the workers, the first model, which recording of its
column, which of its workers (and who of them holds which shard), and where in the recording it
begins. Its noise is the rows of each gradient and what a dispatch rule draws.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from asyncjax import clocks, problems, storage, traces
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from asyncjax.study.result import Result
from experiments.asynchronous.recorded_times_rules import LOCAL_STEPS, Rule, rules_of
from experiments.common import reaching
from experiments.common.lanes import Field, Lane, Ran, field_of, replayed
from experiments.common.recordings import EVEN, UNEVEN, read_recordings
from experiments.common.skewed_digits import digits_problem

SETS = {"A": SET_A, "B": SET_B}


@dataclass(frozen=True)
class Settings:
    """What is run; what is done is kept in `output`, and a second run goes on from there."""

    output: Path = Path("output/recorded_times")
    seed: int = 0
    even: tuple[str, ...] = EVEN  # recordings or files; one column, an instance draws one of them
    uneven: tuple[str, ...] = UNEVEN  # a column each
    most_workers: int = 10  # of a recording that are used
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = 4  # settings that a rule tries in a round of tuning
    rounds: tuple[int, int] = (3, 8)
    steps: tuple[float, float] = (2.0**-6, 1.0)  # ends of the first grid, of six steps
    horizon: float = 200.0  # simulated time that every rule gets
    batch: int = 8  # rows of a gradient
    hidden: int = 16  # units of the network's hidden layer
    concentration: float = 0.3  # of the Dirichlet law of labels over workers; small is skewed
    levels: tuple[float, ...] = (0.8, 0.85, 0.9)  # test accuracies; the last is tuned for
    records: int = 80  # points of a curve, at least so many over the horizon
    methods: tuple[str, ...] = ()  # names of the rules that run; none: all
    commit: bool = False  # also write the numbers where committed ones are


@dataclass(frozen=True)
class Column:
    """Workers of one kind: recordings of which an instance draws one.

    Attributes:
        name: What tables call it.
        recordings: float64[n, k] each, of mean 1.
        n_workers: That an instance has.
    """

    name: str
    recordings: tuple[np.ndarray, ...]
    n_workers: int

    def clock(self, instance: Seeds) -> clocks.Clock:
        """The workers of an instance, in an order of its own, from a place of its own."""
        generator = np.random.default_rng(instance.clock)
        times = self.recordings[generator.integers(len(self.recordings))]
        rows = generator.permutation(len(times))[: self.n_workers]
        return clocks.recorded(np.roll(times[rows], -generator.integers(times.shape[1]), axis=1))


def columns(settings: Settings) -> list[Column]:
    """The kinds of recorded workers.

    Raises:
        ValueError: A recording is not known, or none is named.
    """
    named = {"even jobs": settings.even} if settings.even else {}
    named |= {Path(name).stem.replace("_", " "): (name,) for name in settings.uneven}
    if not named:
        raise ValueError("even or uneven must name a recording, got none")
    made = []
    for name, files in named.items():
        recordings = tuple(read_recordings(files))
        n = min(settings.most_workers, *map(len, recordings))
        made.append(Column(name, recordings, n))
    return made


def rules(settings: Settings, n_workers: int) -> list[Rule]:
    """The rules that run."""
    family = rules_of(n_workers)
    return [rule for rule in family if not settings.methods or rule.name in settings.methods]


@lru_cache(maxsize=4)
def _field(settings: Settings, n_workers: int) -> tuple[tuple[Seeds, ...], Field]:
    """All instances of workers of a number: those for tuning first, then set A, then set B."""
    counts = {TUNING: settings.tuning_instances, SET_A: settings.instances}
    counts[SET_B] = settings.instances
    every = tuple(
        one for role, n in counts.items() for one in protocol.seeds_of(settings.seed, role, n)
    )
    parts = [
        digits_problem(
            one,
            n_workers,
            batch=settings.batch,
            hidden=settings.hidden,
            concentration=settings.concentration,
        )
        for one in every
    ]
    return every, field_of(parts)


class Bench:
    """A column's instances, on which rules are tuned and run; what was computed is kept."""

    def __init__(self, settings: Settings, column: Column) -> None:
        """Draws the instances, reads what an earlier run left."""
        self.settings, self.column = settings, column
        self.instances, self.field = _field(replace(settings, methods=()), column.n_workers)
        self.clocks = [column.clock(instance) for instance in self.instances]
        self._path = settings.output / "cells" / f"{column.name}.json".replace(" ", "_")
        kept = storage.load_json(self._path) if self._path.exists() else {}
        alike = kept.get("settings") == identity(settings)
        self._known: dict[str, Any] = kept["known"] if alike else {}
        self._made: dict[str, list[traces.EventTrace]] = {}

    def numbers(self, role: str) -> list[int]:
        """Places of the instances of a role."""
        return [at for at, instance in enumerate(self.instances) if instance.role == role]

    def gradients(self) -> int:
        """Gradients that a trial may compute: those of workers who never wait."""
        rates = [1.0 / np.asarray(self.clocks[at].mean) for at in self.numbers(TUNING)]
        return round(self.settings.horizon * float(np.sum(rates)))

    def traces_of(
        self, rule: Rule, chosen: tuning.Settings, numbers: Sequence[int]
    ) -> list[traces.EventTrace]:
        """One trace an instance, lasting to the horizon; the same jobs last equally long for all.

        The steps and the size of local steps change nothing here, so traces are kept.
        """
        apart = ("step", "local step", "L", "strength")
        knobs = {name: value for name, value in chosen.items() if name not in apart}
        mark = json.dumps([rule.name, knobs, list(numbers)])
        if mark not in self._made:
            make = rule.trace(chosen)
            keys = [jax.random.key(self.instances[at].noise(0)) for at in numbers]
            self._made[mark] = traces.lasting(
                lambda n: [
                    make(self.clocks[at], n, key) for at, key in zip(numbers, keys, strict=True)
                ],
                self.settings.horizon,
                multiple_of=self.settings.records,
            )
        return self._made[mark]

    def run(self, rule: Rule, chosen: tuning.Settings, numbers: Sequence[int]) -> Ran:
        """Runs a rule with its knobs on as many instances as are tuned on: one compiled call."""
        factor, number = rule.numbers(chosen)
        lanes = [
            Lane(
                at,
                trace._replace(weight=trace.weight * np.float32(factor)),
                jax.random.key(self.instances[at].noise(1)),
            )
            for at, trace in zip(numbers, self.traces_of(rule, chosen, numbers), strict=True)
        ]
        field = self.field
        if rule.local:
            size = jnp.float32(chosen["local step"])
            joined = problems.local_steps(field.joined, n_steps=LOCAL_STEPS, step_size=size)
            field = replace(field, joined=joined)
        settings, n = self.settings, self.column.n_workers
        return replayed(
            field,
            lanes,
            rule.optimizer,
            number,
            records=settings.records,
            gradients=2.5 * n * settings.horizon,
        )

    def accuracies(self, numbers: Sequence[int], ran: Ran) -> np.ndarray:
        """Test accuracies float[K, R], NaN where a model is not finite or after the horizon."""
        judge = reaching.slim(self.field.parts[numbers[0]])  # the test rows are one for all
        found = np.array([reaching.accuracies(judge, jnp.asarray(own)) for own in ran.models])
        there = (ran.time <= self.settings.horizon) & np.isfinite(ran.models).all(-1)
        return np.where(there, found, np.nan)

    def score(self, rule: Rule, chosen: tuning.Settings) -> float:
        """The mean logarithm of the time to the last level on the tuning instances, cut."""
        mark = json.dumps([rule.name, chosen])
        if mark not in self._known:
            numbers, settings = self.numbers(TUNING), self.settings
            ran = self.run(rule, chosen, numbers)
            self._known[mark] = reaching.score(
                settings.levels[-1], settings.horizon, ran.time, self.accuracies(numbers, ran)
            )
        return self._known[mark]

    def tuned(self, family: Sequence[Rule], told: Callable[[str], None]) -> dict[str, tuning.Tuned]:
        """All rules, with the same number of trials."""
        settings, by_name = self.settings, {rule.name: rule for rule in family}
        step = tuning.log_range(*settings.steps, 6)
        done: dict[str, int] = {}

        def evaluate(name: str, trials: Sequence[tuning.Settings], _: int) -> list[float]:
            scores = [self.score(by_name[name], trial) for trial in trials]
            done[name] = done.get(name, 0) + len(scores)
            if name == family[-1].name:
                self.keep()
                told(f"{self.column.name}: {done[name]} trials of each rule")
            return scores

        return tuning.tune(
            {rule.name: {"step": step, **rule.knobs} for rule in family},
            evaluate,
            trials=settings.trials,
            gradients=self.gradients(),
            seed=settings.seed,
            rounds=settings.rounds,
        )

    def reported(self, rule: Rule, tuned: tuning.Tuned) -> dict[str, Any]:
        """A tuned rule on both sets of instances, as plain values."""
        mark = json.dumps([rule.name, tuned.best.settings, "reported"])
        if mark not in self._known:
            self._known[mark] = {
                "knobs": tuned.best.settings,
                "sets": {
                    letter: self._measured(rule, tuned.best.settings, self.numbers(role))
                    for letter, role in SETS.items()
                },
            }
        gradients = len(tuned.trials) * tuned.gradients
        spent = {"trials": len(tuned.trials), "tuning_gradients": gradients}
        return {**self._known[mark], **spent, "at_edge": list(tuned.edges)}

    def _measured(
        self, rule: Rule, chosen: tuning.Settings, numbers: Sequence[int]
    ) -> dict[str, Any]:
        settings, per_call = self.settings, self.settings.tuning_instances
        times: list[np.ndarray] = []
        last: list[float] = []
        used: list[Any] = []
        for begin in range(0, len(numbers), per_call):
            own = list(numbers[begin : begin + per_call])
            count = len(own)
            own += own[-1:] * (per_call - count)  # the same program
            ran = self.run(rule, chosen, own)
            found = self.accuracies(own, ran)
            reached = [reaching.times_to_target(a, ran.time, found) for a in settings.levels]
            times += list(np.stack(reached, axis=-1)[:count])
            last += reaching.last_within(settings.horizon, ran.time, found)[:count].tolist()
            used += [traces.summarize(one) for one in self.traces_of(rule, chosen, own)[:count]]
        return {
            "times": {
                f"{level:g}": [
                    float(t) if t <= settings.horizon else float("inf")
                    for t in np.array(times)[:, place]
                ]
                for place, level in enumerate(settings.levels)
            },
            "final_accuracy": last,
            "utilisation": [float(own.utilisation) for own in used],
            "thrown_away": [float(reaching.wasted(own)) for own in used],
            "delay_mean": [float(own.delay_mean) for own in used],
        }

    def keep(self) -> None:
        """Writes what is known, so that a run that is killed goes on from there."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        storage.save_json(self._path, {"settings": identity(self.settings), "known": self._known})


def run_column(
    settings: Settings, column: Column, told: Callable[[str], None] = print
) -> dict[str, Any]:
    """What all rules did on one kind of workers, as plain values."""
    bench, family = Bench(settings, column), rules(settings, column.n_workers)
    tuned = bench.tuned(family, told)
    found = {}
    for rule in family:
        found[rule.name] = bench.reported(rule, tuned[rule.name])
        bench.keep()
    told(f"{column.name}: {len(family)} rules on {2 * settings.instances} instances")
    return found


def as_rows(settings: Settings, columns: Mapping[str, Any]) -> Result:
    """A row a run that is shown, with times to all levels.

    Args:
        settings: What was run.
        columns: For each kind of workers what every rule did.
    """
    knobs = dict.fromkeys(
        n for family in columns.values() for one in family.values() for n in one["knobs"]
    )
    rows = [
        {"scene": column, "set": letter, "instance": instance, "method": rule}
        | {name: own["knobs"].get(name, np.nan) for name in knobs}
        | {f"time_{level}": times[instance] for level, times in ran["times"].items()}
        | {name: values[instance] for name, values in ran.items() if name != "times"}
        | {"horizon": settings.horizon, "trials": own["trials"]}
        | {"tuning_gradients": own["tuning_gradients"], "at_edge": bool(own["at_edge"])}
        for column, family in columns.items()
        for rule, own in family.items()
        for letter, ran in own["sets"].items()
        for instance in range(settings.instances)
    ]
    cut = tuple(f"time_{level:g}" for level in settings.levels)
    facts: dict[str, Any] = {n: getattr(settings, n) for n in ("instances", "tuning_instances")}
    facts |= {"recordings": [*settings.even, *settings.uneven], "knobs": list(knobs)}
    return Result(pd.DataFrame(rows), cut[-1], facts, settings.seed, cut)


def identity(settings: Settings) -> dict[str, Any]:
    """What a column depends on, as it comes back from JSON."""
    apart = ("output", "commit", "methods", "even", "uneven")
    facts = {name: value for name, value in asdict(settings).items() if name not in apart}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in facts.items()}
