"""Tunes every rule on every law of delays and runs it with every such step on every law."""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import simulation, storage
from asyncjax.simulation.plans.program import Sizes
from asyncjax.study import search as tuning
from asyncjax.study.protocol import LEVELS, SET_A, SET_B, TUNING, Seeds, seeds_of
from experiments.delay_adaptive.transfer_tasks import (
    CENTRES,
    LAWS,
    RULES,
    SAFE,
    SCENES,
    Drawn,
    Numbered,
    ages_of,
    drawn,
    numbered,
    trace_of,
)

OWN, THEORY = -2, -1  # places among the steps: chosen on the law that is run on; gamma'


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/transfer")
    commit: bool = False  # also write the numbers that are committed
    seed: int = 0  # below 256
    aggregated: tuple[str, ...] = ("breast cancer", "digits", "lasso")  # PIAG
    blocks: tuple[str, ...] = ("breast cancer", "lasso")  # Async-BCD
    plain: tuple[str, ...] = ("breast cancer", "digits", "lasso")  # SGD
    laws: tuple[str, ...] = LAWS  # each is tuned on and run on
    scenes: tuple[str, ...] = tuple(SCENES)  # run on with the step of another law
    instances: int = 10  # of each set
    tuning_instances: int = 3
    trials: int = 7  # of a round of tuning
    rounds: tuple[int, int] = (2, 6)  # of tuning
    n_updates: int = 1200
    record_every: int = 5
    levels: tuple[float, ...] = LEVELS  # the last is the target of tuning, and shown
    # first steps tried, in units of the theory step of the tuning instances and of `CENTRES`
    multiples: tuple[float, ...] = tuple(2.0**power for power in range(-3, 5))

    @property
    def cases(self) -> list[tuple[str, str]]:
        """Algorithms and data."""
        named = {"PIAG": self.aggregated, "Async-BCD": self.blocks, "SGD": self.plain}
        return [(algorithm, data) for algorithm, all_data in named.items() for data in all_data]

    @property
    def runs_on(self) -> tuple[str, ...]:
        """All laws on which runs are made."""
        return (*self.laws, *self.scenes)


@dataclass(frozen=True, eq=False)
class Runs:
    """What G runs on one trace did, at most K updates each.

    Attributes:
        updates: float[G, levels], updates to each target; inf: never, or it was left for good.
        times: The same in time units.
        diverged: bool[G], it ended above its start, or not at a number.
        left: float[G], what is left of the gap at the end, as a share of the first.
    """

    updates: np.ndarray
    times: np.ndarray
    diverged: np.ndarray
    left: np.ndarray


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was measured of an algorithm on data.

    I reported instances (set A, then set B); L laws run on, the scenes last; S steps: those chosen
    on each of the laws without scenes, then at `OWN` and `THEORY`; R rules.

    Attributes:
        algorithm: Its name.
        data: Their name.
        steps: float[L, R], as chosen on each law and scene.
        updates: float[I, L, S, R, levels], to each target; inf: never.
        times: The same in time units.
        diverged: bool[I, L, S, R].
        horizon_time: float[I, L], time of the last update.
        longest: int[I, L], longest delay that the rules saw.
        tuning: Of each law the table of its trials: rows (rule, trials, gradients, edges).
    """

    algorithm: str
    data: str
    steps: np.ndarray
    updates: np.ndarray
    times: np.ndarray
    diverged: np.ndarray
    horizon_time: np.ndarray
    longest: np.ndarray
    tuning: dict[str, list[list[Any]]]


def runs_of(share: np.ndarray, time: np.ndarray, every: int, levels: Sequence[float]) -> Runs:
    """Reads curves.

    Args:
        share: float[G, records], what is left of the gap to the optimum, as a share of the first.
        time: float[records], of the records.
        every: Updates from record to record.
        levels: Shares of the way that are to be made.

    Example:
        >>> share = np.array([[0.5, 0.1, 0.1], [0.5, 0.1, 2.0]])
        >>> runs_of(share, np.array([1.0, 2.0, 3.0]), 5, [0.9]).updates.tolist()
        [[10.0], [inf]]
    """
    share = np.where(np.isfinite(share), share, np.inf)
    diverged = share[:, -1] > 1.0
    there = share[:, :, None] <= 1.0 + 1e-6 - np.asarray(levels)
    first = there.argmax(axis=1)
    never = ~there.any(axis=1) | diverged[:, None]
    updates = np.where(never, np.inf, every * (first + 1.0))
    return Runs(updates, np.where(never, np.inf, time[first]), diverged, share[:, -1])


@dataclass(frozen=True, eq=False)
class Case:
    """An algorithm on data, with all its instances.

    Attributes:
        settings: What is run.
        algorithm: Its name.
        data: Their name.
    """

    settings: Settings
    algorithm: str
    data: str

    @cached_property
    def instances(self) -> tuple[Seeds, ...]:
        """Those for tuning, then set A, then set B."""
        own = self.settings
        counts = {TUNING: own.tuning_instances, SET_A: own.instances, SET_B: own.instances}
        return tuple(
            one for role, count in counts.items() for one in seeds_of(own.seed, role, count)
        )

    @cached_property
    def made(self) -> tuple[Drawn, ...]:
        """Their problems."""
        return tuple(drawn(self.algorithm, self.data, one) for one in self.instances)

    @cached_property
    def optimizers(self) -> Numbered:
        """All rules with all steps."""
        return numbered(self.algorithm, self.data, self.made)

    @cached_property
    def unit(self) -> float:
        """The theory step of the tuning instances, their geometric mean."""
        own = [one.theory for one in self.made[: self.settings.tuning_instances]]
        return float(np.exp(np.mean(np.log(own))))

    def run(
        self, place: int, law: str, chosen: Sequence[tuple[str, float]]
    ) -> tuple[Runs, int, float]:
        """Runs rules with their steps on an instance's workers under a law.

        Args:
            place: Of the instance.
            law: Of its delays.
            chosen: Rules and steps. The safe constant's is divided by the longest delay + 1/2.

        Returns:
            What they did, the longest delay that they saw, and the time of the last update.
        """
        own, instance, one = self.settings, self.instances[place], self.made[place]
        trace = trace_of(self.algorithm, law, instance, own.n_updates)
        longest = int(ages_of(self.algorithm, trace).max())
        taken = [(rule, step / (longest + 0.5) if rule == SAFE else step) for rule, step in chosen]
        run = simulation.sweep(
            one.problem,
            trace,
            self.optimizers,
            np.array([self.optimizers.number(place, *pair) for pair in taken]),
            keys=jax.random.split(jax.random.key(instance.noise(1)), 1),
            record_every=own.record_every,
            width=1,
            sizes=_roomy,
        )
        share = (np.asarray(run.records.loss, np.float64)[0] - one.optimum) / (
            one.start - one.optimum
        )
        time_of = np.ravel(np.asarray(run.records.time))
        found = runs_of(share, time_of, own.record_every, own.levels)
        return found, longest, float(trace.time[-1])


def _roomy(own: Sizes) -> Sizes:
    """Sizes that the traces of all laws share; one that needs more compiles anew."""
    return replace(own, slots=max(own.slots, 2 * len(RULES)))


def score(runs: Runs, horizon: int) -> np.ndarray:
    """What tuning lowers, float[G]: the logarithm of the updates to the last target.

    Where it was not reached, that of the horizon, and more the more of the gap is left; inf where
    the run diverged.
    """
    updates = runs.updates[:, -1]
    there = np.log(np.where(np.isfinite(updates), updates, 1.0))
    short = np.log(horizon) + np.where(runs.diverged, np.inf, 1.0 + runs.left)
    return np.where(np.isfinite(updates), there, short)


def first_grid(case: Case, rule: str) -> tuple[float, ...]:
    """The steps that tuning a rule begins with."""
    return tuple(case.unit * CENTRES[rule] * many for many in case.settings.multiples)


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of steps on a law, mean over the tuning instances.

    One call runs all rules, each at as many steps as its first grid has; what was run is kept.
    """

    case: Case
    law: str
    known: dict[tuple[str, float], float]

    def __call__(self, rule: str, settings: Sequence[tuning.Settings], _: int) -> list[float]:
        """One score a setting, for `tuning.tune`."""
        asked = [float(one["step"]) for one in settings]
        while missing := [step for step in asked if (rule, step) not in self.known]:
            self._run(rule, missing)
        return [self.known[rule, step] for step in asked]

    def _run(self, asking: str, missing: Sequence[float]) -> None:
        own = self.case.settings
        chosen: list[tuple[str, float]] = []
        for rule in RULES:
            grid = first_grid(self.case, rule)
            between = [math.sqrt(low * high) for low, high in pairwise(grid)]
            likely = [step for step in (*grid, *between) if (rule, step) not in self.known]
            wanted = list(dict.fromkeys([*(missing if rule == asking else ()), *likely, grid[0]]))
            batch = wanted[: len(grid)]
            batch += batch[:1] * (len(grid) - len(batch))
            chosen += [(rule, step) for step in batch]
        found = [
            score(self.case.run(place, self.law, chosen)[0], own.n_updates)
            for place in range(own.tuning_instances)
        ]
        self.known.update(zip(chosen, np.mean(found, axis=0).tolist(), strict=True))


def tuned(case: Case, law: str) -> dict[str, tuning.Tuned]:
    """The step of every rule on a law, with as many trials each."""
    own = case.settings
    return tuning.tune(
        {rule: {"step": tuning.Knob(first_grid(case, rule))} for rule in RULES},
        Scores(case, law, {}),
        trials=own.trials,
        gradients=own.tuning_instances * own.n_updates,
        seed=own.seed,
        rounds=own.rounds,
    )


def measured(settings: Settings, algorithm: str, data: str) -> Outcome:
    """Tunes on every law, then runs all steps on all laws on the instances that are reported."""
    case = Case(settings, algorithm, data)
    laws = settings.runs_on
    began = time.perf_counter()
    found = {law: tuned(case, law) for law in laws}
    print(f"  {algorithm}, {data}: tuned after {time.perf_counter() - began:.0f} s", flush=True)
    table = {
        law: [
            [rule, len(own.trials), len(own.trials) * own.gradients, list(own.edges)]
            for rule, own in of_law.items()
        ]
        for law, of_law in found.items()
    }
    chosen = np.array(
        [[found[law][rule].best.settings["step"] for rule in RULES] for law in laws], float
    )
    parts: list[list[tuple[Runs, int, float]]] = []
    for place in range(settings.tuning_instances, len(case.instances)):
        theory = np.full(len(RULES), case.made[place].theory)
        parts.append([])
        for law, own in zip(laws, chosen, strict=True):
            taken = np.array([*chosen[: len(settings.laws)], own, theory])
            pairs = [
                (rule, float(one)) for row in taken for rule, one in zip(RULES, row, strict=True)
            ]
            parts[-1].append(case.run(place, law, pairs))

    def gathered(name: str) -> np.ndarray:
        rows = np.array([[getattr(runs, name) for runs, _, _ in own] for own in parts])
        return rows.reshape(*rows.shape[:2], -1, len(RULES), *rows.shape[3:])

    return Outcome(
        algorithm,
        data,
        chosen,
        gathered("updates"),
        gathered("times"),
        gathered("diverged"),
        np.array([[last for *_, last in own] for own in parts]),
        np.array([[longest for _, longest, _ in own] for own in parts]),
        table,
    )


_ARRAYS = ("steps", "updates", "times", "diverged", "horizon_time", "longest")


def outcomes(settings: Settings) -> list[Outcome]:
    """All cases; one that was measured before with the same settings and code is read from file."""
    found: list[Outcome] = []
    began = time.perf_counter()
    for algorithm, data in settings.cases:
        path = settings.output / "cases" / f"{algorithm}, {data}.json"
        mark = _fingerprint(settings)
        outcome = _loaded(path, mark)
        if outcome is None:
            outcome = measured(settings, algorithm, data)
            path.parent.mkdir(parents=True, exist_ok=True)
            plain = {name: getattr(outcome, name).tolist() for name in _ARRAYS}
            names = {"algorithm": algorithm, "data": data, "tuning": outcome.tuning}
            storage.save_json(path, {"fingerprint": mark, **names, **plain})
        found.append(outcome)
        print(
            f"[{len(found)}/{len(settings.cases)}] {algorithm}, {data}: done after"
            f" {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    return found


def _fingerprint(settings: Settings) -> str:
    """A digest of all that decides the numbers of a case."""
    facts: Mapping[str, Any] = {
        name: value
        for name, value in asdict(settings).items()
        if name not in ("output", "commit", "aggregated", "blocks", "plain")
    }
    digest = hashlib.sha256(json.dumps([facts, jax.__version__], sort_keys=True).encode())
    for name in ("transfer_runs", "transfer_tasks", "regularized"):
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


def _loaded(path: Path, mark: str) -> Outcome | None:
    try:
        kept = storage.load_json(path)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(kept, dict) or kept.get("fingerprint") != mark:
        return None
    arrays = {name: np.asarray(kept[name]) for name in _ARRAYS}
    return Outcome(kept["algorithm"], kept["data"], tuning=kept["tuning"], **arrays)
