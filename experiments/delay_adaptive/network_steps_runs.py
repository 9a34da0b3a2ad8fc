"""Rules behind SGD, momentum and Adam: instances, tuning and runs."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import clocks, problems, simulation, storage, traces
from asyncjax.simulation.plans.program import Sizes
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import LEVELS, SET_A, SET_B, TUNING, Seeds
from experiments.delay_adaptive.network_steps_rules import (
    BASES,
    CONSTANT,
    FADAS,
    IN_FRONT,
    MAX_DELAY,
    RULES,
    Numbered,
    space_of,
    with_step,
)

SETS = {"A": SET_A, "B": SET_B}
SLOW, OUTAGES = "one slow", "outages"
LAWS = ("even", SLOW, OUTAGES)


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
    commit: bool = False  # also write experiments/numbers/network_steps.json


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


def without_delay(bench: Bench, base: str) -> dict[str, Any]:
    """The step that is best one job at a time, and the loss that it has after half of the updates.

    That loss is the reference of all targets of the base.
    """
    settings = bench.settings

    def evaluate(_: str, tried: Sequence[tuning.Settings], __: int) -> list[float]:
        return np.mean([lows(place, tried) for place in range(settings.tuning_instances)], 0)

    def lows(place: int, tried: Sequence[tuning.Settings]) -> np.ndarray:
        losses = bench.losses(base, "", place, [(CONSTANT, own) for own in tried])
        return np.minimum(losses[:, losses.shape[1] // 2 - 1], 1e6)

    [found] = _tuned(settings, {CONSTANT: space_of(base, CONSTANT)}, evaluate).values()
    return {"step": found.best.settings["step"], "loss": found.best.score, "tuning": _kept(found)}


def _tuned(settings: Settings, spaces: Any, evaluate: Any) -> dict[str, tuning.Tuned]:
    return tuning.tune(
        spaces,
        lambda *asked: list(evaluate(*asked)),
        trials=settings.trials,
        gradients=settings.tuning_instances * settings.n_updates,
        seed=settings.seed,
        rounds=settings.rounds,
    )


def _kept(found: tuning.Tuned) -> dict[str, Any]:
    count = len(found.trials)
    return {
        "chosen": found.best.settings,
        "trials": count,
        "gradients": count * found.gradients,
        "at_edge": list(found.edges),
    }


def cell(bench: Bench, base: str, law: str, reference: Mapping[str, Any]) -> dict[str, Any]:
    """Rules behind a base under a law: tuned, and with the step that was chosen without delay.

    Returns:
        `tuning` by rule; for each set and kind, "tuned" and "carried", the updates to each target
        by rule, an instance each; `longest` and `mean` delay by set.
    """
    settings, best = bench.settings, float(reference["loss"])
    rules = rules_of(settings, base)

    def evaluate(rule: str, tried: Sequence[tuning.Settings], _: int) -> np.ndarray:
        found = []
        for place in range(settings.tuning_instances):
            losses = bench.losses(base, law, place, [(rule, own) for own in tried])
            start = bench.starts[place]
            reached = updates_to(settings, losses, start, best)
            found.append(score(settings, reached, losses, start))
        return np.mean(found, axis=0)

    found = _tuned(settings, {rule: space_of(base, rule) for rule in rules}, evaluate)
    kinds = {
        "tuned": {rule: found[rule].best.settings for rule in rules},
        "carried": {rule: with_step(rule, reference["step"]) for rule in rules if rule != FADAS},
    }
    out: dict[str, Any] = {"tuning": {rule: _kept(own) for rule, own in found.items()}}
    first = settings.tuning_instances
    for letter in SETS:
        places = range(first, first + settings.instances)
        first += settings.instances
        delays = [np.asarray(bench.trace(law, place).delay) for place in places]
        out[letter] = {
            "longest": [int(own.max()) for own in delays],
            "mean": [float(own.mean()) for own in delays],
            **{kind: {rule: [] for rule in own} for kind, own in kinds.items()},
        }
        for place in places:
            named = [(kind, rule) for kind, own in kinds.items() for rule in own]
            named.sort(key=lambda pair: pair[1] == FADAS)  # which has a program of its own
            plain = [pair for pair in named if pair[1] != FADAS]
            for group in (plain, named[len(plain) :]):
                if not group:
                    continue
                pairs = [(rule, kinds[kind][rule]) for kind, rule in group]
                losses = bench.losses(base, law, place, pairs)
                reached = updates_to(settings, losses, bench.starts[place], best)
                for (kind, rule), own in zip(group, reached, strict=True):
                    out[letter][kind][rule].append(own.tolist())
    return out


def measured(settings: Settings) -> dict[str, Any]:
    """All cells by base and law; those that were done before are read from their files."""
    bench, mark, began = Bench(settings), _mark(settings), time.perf_counter()
    found: dict[str, Any] = {}
    for base in settings.bases:
        reference = _once(settings, mark, base, lambda base=base: without_delay(bench, base))
        cells = {}
        for law in settings.laws:
            name = f"{base}, {law}"
            cells[law] = _once(
                settings,
                mark,
                name,
                lambda base=base, law=law, own=reference: cell(bench, base, law, own),
            )
            print(f"  {name}: done after {time.perf_counter() - began:.0f} s", flush=True)
        found[base] = {"reference": reference, "laws": cells}
    return found


def _once(settings: Settings, mark: str, name: str, make: Any) -> dict[str, Any]:
    path = settings.output / "cells" / f"{name}.json"
    kept = storage.load_json(path) if path.exists() else {}
    if kept.get("mark") != mark:
        kept = {"mark": mark, "found": make()}
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.save_json(path, kept)
    return kept["found"]


def _mark(settings: Settings) -> str:
    """A digest of all that decides the numbers of a cell but its base and law."""
    own = {
        name: value
        for name, value in asdict(settings).items()
        if name not in ("output", "commit", "bases", "laws")
    }
    digest = hashlib.sha256(json.dumps([own, jax.__version__], sort_keys=True).encode())
    for name in ("network_steps_runs", "network_steps_rules"):
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]
