"""Rules behind SGD, momentum and Adam: instances, tuning and runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks, problems, simulation, traces
from asyncjax.simulation.plans.program import Sizes
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import LEVELS, SET_A, SET_B, TUNING, Seeds
from asyncjax.study.result import Result
from experiments.common import numbers
from experiments.common.kept_rows import once
from experiments.delay_adaptive.network_steps_rules import (
    BASES,
    CONSTANT,
    FADAS,
    IN_FRONT,
    KNOBS,
    MAX_DELAY,
    RULES,
    Numbered,
    space_of,
    with_step,
)

SETS = {"A": SET_A, "B": SET_B}
SLOW, OUTAGES = "one slow", "outages"
LAWS = ("even", SLOW, OUTAGES)
TUNED, CARRIED = "tuned", "carried"  # learning rates
KNOB_NAMES = tuple(dict.fromkeys(knob for knob, *_ in KNOBS.values()))
DIGITS = 5  # of numbers in rows


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/network_steps")
    seed: int = 0  # of all instances, below 256
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 2
    trials: int = 6  # settings that a rule tries in a round of tuning
    rounds: tuple[int, int] = (2, 5)  # of tuning
    laws: tuple[str, ...] = LAWS
    bases: tuple[str, ...] = tuple(BASES)
    rules: tuple[str, ...] = RULES
    n_workers: int = 8
    slow: float = 10.0  # times slower is the slow worker of the law "one slow"
    up: float = 60.0  # mean time between two outages of a worker
    down: float = 20.0  # mean length of an outage; a job takes about 1
    hidden: int = 24  # width of the network's one hidden layer
    rows: int = 800  # of an instance
    batch: int = 8  # rows of a gradient
    judged: int = 200  # training rows whose loss is recorded
    n_updates: int = 800  # of every run
    records: int = 80  # points of a run
    levels: tuple[float, ...] = LEVELS  # shares of the way; the last is what tuning aims at
    commit: bool = False  # also write experiments/rows/network_steps.csv.gz


def rules_of(settings: Settings, base: str) -> list[str]:
    """The rules that are run with a base."""
    left_out = {IN_FRONT} if base != "momentum" else set()
    left_out |= {FADAS} if base != "Adam" else set()
    return [rule for rule in RULES if rule in settings.rules and rule not in left_out]


def workers(settings: Settings, law: str, instance: Seeds) -> clocks.Clock:
    """Gamma times of deviation 1/4, means of 0.9 to 1.1; one drawn slow, or all with outages."""
    generator = np.random.default_rng(instance.clock)
    times = generator.uniform(0.9, 1.1, settings.n_workers)
    if law == SLOW:
        times[generator.integers(settings.n_workers)] *= settings.slow
    clock = clocks.gamma(16.0, times)
    if law != OUTAGES:
        return clock
    up, down = (
        clocks.exponential(np.full(settings.n_workers, mean))
        for mean in (settings.up, settings.down)
    )
    return clocks.on_off(clock, up=up, down=down)


def problem_of(settings: Settings, instance: Seeds) -> problems.Problem:
    """Handwritten digits by a small network; rows, shards and first model of an instance."""
    data = problems.digits()
    generator = np.random.default_rng(instance.data)
    rows = generator.permutation(len(data.train_labels))[: settings.rows]
    return problems.classification(
        problems.MLP(hidden=(settings.hidden,), classes=10),
        data.train_features[rows],
        data.train_labels[rows],
        n_workers=settings.n_workers,
        shards=problems.contiguous(len(rows), settings.n_workers),
        batch=problems.uniform(settings.batch),
        eval_rows=settings.judged,
        key=jax.random.key(instance.model),
    )


class Bench:
    """All instances, those for tuning first, then set A, then set B; and what is run on them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        counts = {TUNING: settings.tuning_instances}
        counts |= {role: settings.instances for role in SETS.values()}
        self.instances = tuple(
            one
            for role, count in counts.items()
            for one in protocol.seeds_of(settings.seed, role, count)
        )
        self._traces: dict[tuple[str, int], traces.EventTrace] = {}

    @cached_property
    def parts(self) -> list[problems.Problem]:
        """The problem of each instance."""
        return [problem_of(self.settings, one) for one in self.instances]

    @cached_property
    def starts(self) -> list[float]:
        """Loss of each first model."""
        objectives: list[Any] = [part.objective for part in self.parts]
        pairs = zip(objectives, self.parts, strict=True)
        return [float(objective(part.params)) for objective, part in pairs]

    def trace(self, law: str, place: int) -> traces.EventTrace:
        """The run of an instance's workers under a law; of law "", one job at a time."""
        if (law, place) not in self._traces:
            settings, instance = self.settings, self.instances[place]
            alone: dict[str, Any] = {"dispatch": traces.uniformly(), "concurrency": 1}
            made = traces.asynchronous(
                workers(settings, law, instance),
                n_updates=settings.n_updates,
                key=jax.random.key(instance.noise()),
                **({} if law else alone),
            )
            assert int(np.max(made.delay)) <= MAX_DELAY, "a longer delay than is served"
            self._traces[law, place] = made
        return self._traces[law, place]

    def losses(
        self, base: str, law: str, place: int, pairs: Sequence[tuple[str, Mapping[str, float]]]
    ) -> np.ndarray:
        """Losses of rules with their settings on an instance, float64[G, records].

        Infinity where a run is not at a number, and from then on.
        """
        settings, found = self.settings, []
        for begin in range(0, len(pairs), settings.trials):
            some = list(pairs[begin : begin + settings.trials])
            kinds = FADAS if some[0][0] == FADAS else base
            made = Numbered(kinds, settings.n_workers)
            padded = some + some[-1:] * (settings.trials - len(some))
            records = simulation.sweep(
                self.parts[place],
                self.trace(law, place),
                made,
                np.array([made.number(*one) for one in padded]),
                keys=jax.random.split(jax.random.key(self.instances[place].noise(1)), 1),
                record_every=max(1, settings.n_updates // settings.records),
                width=1,
                sizes=_roomy,
            ).records
            found.append(np.asarray(records.loss, np.float64)[0, : len(some)])
        losses = np.concatenate(found)
        return np.where(np.isfinite(losses), losses, np.inf)


@cache
def bench_of(settings: Settings) -> Bench:
    """The instances of some settings, made once."""
    return Bench(settings)


def _roomy(own: Sizes) -> Sizes:
    """Sizes that the traces of all laws share."""
    return replace(own, slots=max(own.slots, 16))


def updates_to(settings: Settings, losses: np.ndarray, start: float, best: float) -> np.ndarray:
    """Updates to each target, float64[G, levels]; inf: never, or the run ends above its start."""
    when = np.arange(1, losses.shape[1] + 1) * (settings.n_updates / losses.shape[1])
    goals = protocol.targets(start, best, settings.levels)
    found = np.array([[protocol.time_to(when, own, goal) for goal in goals] for own in losses])
    return np.where(losses[:, -1:] > start, np.inf, found)


def score(settings: Settings, updates: np.ndarray, losses: np.ndarray, start: float) -> np.ndarray:
    """What tuning lowers, float64[G]: the logarithm of the updates to the last target.

    Where it was not reached, that of the horizon, and more the higher the last loss.
    """
    left = np.minimum(losses[:, -1] / start, 10.0)
    there = np.log(np.where(np.isfinite(updates[:, -1]), updates[:, -1], 1.0))
    return np.where(np.isfinite(updates[:, -1]), there, np.log(settings.n_updates) + 1.0 + left)


def without_delay(settings: Settings, base: str) -> pd.DataFrame:
    """The learning rate that is best one job at a time, and its loss after half of the updates.

    That loss is the reference of all targets of the base.
    """
    bench = bench_of(settings)

    def evaluate(_: str, tried: Sequence[tuning.Settings], __: int) -> list[float]:
        return np.mean([lows(place, tried) for place in range(settings.tuning_instances)], 0)

    def lows(place: int, tried: Sequence[tuning.Settings]) -> np.ndarray:
        losses = bench.losses(base, "", place, [(CONSTANT, own) for own in tried])
        return np.minimum(losses[:, losses.shape[1] // 2 - 1], 1e6)

    [found] = _tuned(settings, {CONSTANT: space_of(base, CONSTANT)}, evaluate).values()
    return pd.DataFrame([{"step": found.best.settings["step"], "loss": found.best.score}])


def _tuned(settings: Settings, spaces: Any, evaluate: Any) -> dict[str, tuning.Tuned]:
    return tuning.tune(
        spaces,
        lambda *asked: list(evaluate(*asked)),
        trials=settings.trials,
        gradients=settings.tuning_instances * settings.n_updates,
        seed=settings.seed,
        rounds=settings.rounds,
    )


def tuned_rules(settings: Settings, base: str, law: str, best: float) -> dict[str, tuning.Tuned]:
    """The learning rate and knob of every rule behind a base under a law."""
    bench = bench_of(settings)

    def evaluate(rule: str, tried: Sequence[tuning.Settings], _: int) -> np.ndarray:
        found = []
        for place in range(settings.tuning_instances):
            losses = bench.losses(base, law, place, [(rule, own) for own in tried])
            start = bench.starts[place]
            reached = updates_to(settings, losses, start, best)
            found.append(score(settings, reached, losses, start))
        return np.mean(found, axis=0)

    return _tuned(
        settings, {rule: space_of(base, rule) for rule in rules_of(settings, base)}, evaluate
    )


def measured(settings: Settings, base: str, law: str, step: float, best: float) -> pd.DataFrame:
    """Rows of the rules behind a base under a law: tuned, and with the step chosen without delay.

    Args:
        settings: What is run.
        base: Of `BASES`.
        law: Of `LAWS`.
        step: The learning rate that was chosen without delay.
        best: The loss to which targets are shares of the way.
    """
    bench, found = bench_of(settings), tuned_rules(settings, base, law, best)
    asked = [(TUNED, rule, one.best.settings) for rule, one in found.items()]
    asked += [(CARRIED, rule, with_step(rule, step)) for rule in found if rule != FADAS]
    head = {"scene": f"{base}, {law}", "base": base, "law": law}
    letters, rows = {role: letter for letter, role in SETS.items()}, []
    for place, one in enumerate(bench.instances):
        if one.role not in letters:
            continue
        reached: dict[tuple[str, str], np.ndarray] = {}
        for alone in (False, True):  # FADAS has a program of its own
            group = [own for own in asked if (own[1] == FADAS) == alone]
            if group:
                losses = bench.losses(base, law, place, [own[1:] for own in group])
                updates = updates_to(settings, losses, bench.starts[place], best)
                reached |= {own[:2]: row for own, row in zip(group, updates, strict=True)}
        delay = np.asarray(bench.trace(law, place).delay)
        delays = {"longest": int(delay.max()), "mean_delay": float(delay.mean())}
        for kind, rule, chosen in asked:
            count = len(found[rule].trials) if kind == TUNED else np.nan
            tuned = {"trials": count, "gradients": count * found[rule].gradients}
            tuned["at_edge"] = kind == TUNED and bool(found[rule].edges)
            knobs = {name: chosen.get(name, np.nan) for name in ("step", *KNOB_NAMES)}
            for to, updates in zip(settings.levels, reached[kind, rule], strict=True):
                named = {"set": letters[one.role], "instance": one.number, "method": rule}
                counted = {"tuned_for": kind, "to": to, "updates": float(updates)}
                counted["horizon"] = float(settings.n_updates)
                rows.append({**head, **named, **counted, **knobs, **tuned, **delays})
    return pd.DataFrame(numbers.rounded(rows, DIGITS))


def result_of(settings: Settings) -> Result:
    """All cells; those that were done before are read from their files."""
    default, folder = Settings(), settings.output / "cells"
    same = {name: getattr(default, name) for name in ("output", "commit", "laws", "bases")}
    core, rows, references = replace(settings, **same), [], {}
    for base in settings.bases:
        [reference] = once(folder, partial(without_delay, core, base)).to_dict("records")
        references[base] = numbers.rounded(reference, DIGITS)
        for law in settings.laws:
            chosen = float(reference["step"]), float(reference["loss"])
            rows.append(once(folder, partial(measured, core, base, law, *chosen)))
            print(f"  {base}, {law}", flush=True)
    facts = {"without delay": references}
    return Result(pd.concat(rows, ignore_index=True), "updates", facts, cut=("updates",))
