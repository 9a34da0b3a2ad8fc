"""Steps carried over: rules are tuned on every law of delays, and every step is run on every law.

An instance has rows, a start, workers and a run of its own. Three algorithms: PIAG on shards of the
rows; Async-BCD, whose workers hold all rows and write single blocks; plain asynchronous SGD with
small batches. All take the proximal step of l1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.problems.finite_sum import Objective
from asyncjax.problems.losses.least_squares import SquaredLoss
from asyncjax.study import search as tuning
from asyncjax.study.protocol import LEVELS, Seeds
from experiments.common.kept_rows import once
from experiments.delay_adaptive.step_rules_runs import (
    RELATIVE,
    SAFETY,
    SETS,
    Numbered,
    Relative,
    Rule,
    drawn,
    first_model,
    gap_left,
    losses_of,
    minimum,
    reached,
    rows_of,
    score,
    sparse_minimum,
)

N_WORKERS, N_BLOCKS, BATCH = 8, 10, 16
SHAPE = 30.0  # of the gamma law of a job's time: a deviation of 18 %
ALGORITHMS = ("PIAG", "Async-BCD", "SGD")
ROWS = {"breast cancer": 160, "digits": 320, "lasso": 160}  # of an instance
L1 = {"breast cancer": 1e-3, "digits": 1e-3, "lasso": 0.05}
L2 = 1e-2  # of the logistic losses

LAWS = ("even", "spread", "straggler", "exponential", "heavy tail", "bursts")
# Delays that change, and the law on which the step was chosen.
SCENES = {
    "even, then a straggler": "even",
    "straggler, then even": "straggler",
    "a worker stalls": "even",
}
CHANGE = 6.0  # time at which they change, in mean jobs of a fast worker
STALL = 40.0  # time for which a worker stalls

CONSTANT, SAFE = "constant", "safe constant"
RULES: dict[str, Relative] = {
    CONSTANT: RELATIVE[CONSTANT],
    SAFE: RELATIVE[CONSTANT],  # its step is divided by the longest delay of the run + 1/2
    "Adaptive 1": RELATIVE["Adaptive 1"],
    "Adaptive 2": RELATIVE["Adaptive 2"],
    "inverse": RELATIVE["c/(delay+1)"],
    "polynomial": lambda room, delay: steps.polynomial_delay(0.5)(delay.astype(room.dtype)),
    "hinge": lambda room, delay: steps.hinge_delay(10.0, 4)(delay.astype(room.dtype)),
}
# Where tuning begins, in units of gamma': the middle of each rule's first grid.
CENTRES = {
    CONSTANT: 1.0,
    SAFE: 8.0,
    "Adaptive 1": 4.0,
    "Adaptive 2": 8.0,
    "inverse": 8.0,
    "polynomial": 2.0,
    "hinge": 4.0,
}
OWN, THEORY = "own", "theory"  # steps: chosen on the law that is run on; gamma'


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/transfer")
    commit: bool = False  # also write experiments/rows/transfer.csv.gz
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
    level: float = LEVELS[-1]  # share of the way: the target of tuning, and what is shown
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


class Task(NamedTuple):
    """An algorithm's problem on one instance, with shards for PIAG, else with all rows for all.

    Attributes:
        problem: What is optimised.
        theory: gamma' = h / L of the algorithm.
        optimum: Smallest objective, by another solver.
    """

    problem: problems.Problem
    theory: float
    optimum: float


def task_of(algorithm: str, data: str, instance: Seeds) -> Task:
    """The problem of an instance: rows drawn from the data (lasso: made), a start near 0."""
    generator = np.random.default_rng(instance.data)
    share: dict[str, Any] = {"n_workers": N_WORKERS if algorithm == "PIAG" else 1}
    share["batch"] = problems.uniform(BATCH) if algorithm == "SGD" else None
    if data == "lasso":
        features, targets = _sparse_regression(generator)
        problem = problems.least_squares(features, targets, **share)
        problem = replace(problem, objective_of=Objective(SquaredLoss(), L1[data]))
        optimum = _lasso_minimum(features, targets, L1[data])
    else:
        features, labels = rows_of(data)
        rows = generator.permutation(len(features))[: ROWS[data]]
        features, labels = features[rows], labels[rows]
        problem = problems.logistic(features, labels, l1=L1[data], l2=L2, **share)
        signs = np.where(labels == 1, 1.0, -1.0)
        optimum = minimum(features.astype(np.float64), signs, L1[data], L2)[1]
    problem = first_model(problem, instance)
    return Task(problem, _theory(algorithm, problem), optimum)


def _theory(algorithm: str, problem: problems.Problem) -> float:
    if algorithm == "PIAG":
        return SAFETY / problems.smoothness(problem).root_mean_square
    if algorithm == "Async-BCD":
        return SAFETY / problems.block_smoothness(problem, N_BLOCKS).largest
    return SAFETY / problems.smoothness(problem).objective


def _sparse_regression(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows with neighbouring columns alike (0.5), 8 of 40 coefficients not 0, noise 0.5."""
    count, dimension = ROWS["lasso"], 40
    features = generator.normal(size=(count, dimension))
    for column in range(1, dimension):
        features[:, column] = 0.5 * features[:, column - 1] + 0.75**0.5 * features[:, column]
    truth = np.zeros(dimension)
    truth[generator.permutation(dimension)[:8]] = generator.normal(size=8)
    targets = features @ truth + 0.5 * generator.normal(size=count)
    return features.astype(np.float32), targets.astype(np.float32)


def _lasso_minimum(features: np.ndarray, targets: np.ndarray, l1: float) -> float:
    matrix, aim = features.astype(np.float64), targets.astype(np.float64)

    def smooth(x: np.ndarray) -> tuple[float, np.ndarray]:
        residual = matrix @ x - aim
        return float(0.5 * np.mean(residual**2)), matrix.T @ residual / len(aim)

    return sparse_minimum(smooth, matrix.shape[1], l1)[1]


def clock_of(law: str, instance: Seeds, n_jobs: int) -> clocks.Clock:
    """The workers of an instance under a law; of each at least `n_jobs` jobs are known."""
    generator = np.random.default_rng(instance.clock)
    ones = np.ones(N_WORKERS)
    spread = np.exp(generator.uniform(0.0, np.log(8.0), N_WORKERS))
    slow = np.r_[ones[1:], np.exp(generator.uniform(np.log(5.0), np.log(20.0)))]
    steady = {
        "even": clocks.gamma(SHAPE, ones),
        "spread": clocks.gamma(SHAPE, spread),
        "straggler": clocks.gamma(SHAPE, slow),
        "exponential": clocks.exponential(ones),
        "heavy tail": clocks.pareto(ones, 1.5),
        "bursts": clocks.markov(ones, 10 * ones, 0.02, 0.2),
    }
    if law in steady:
        return steady[law]
    one, other = jax.random.split(jax.random.key(instance.noise()))
    times = np.array(steady[SCENES[law]].durations(one, n_jobs))
    if law == "a worker stalls":
        times[-1, np.searchsorted(np.cumsum(times[-1]), CHANGE)] += STALL
        return clocks.recorded(times)
    to = "even" if law.endswith("even") else "straggler"
    for row, later in zip(times, np.array(steady[to].durations(other, n_jobs)), strict=True):
        place = 1 + int(np.searchsorted(np.cumsum(row), CHANGE))
        row[place:] = later[: n_jobs - place]
    return clocks.recorded(times)


def trace_of(algorithm: str, law: str, instance: Seeds, n_updates: int) -> traces.EventTrace:
    """A run of an instance's workers; those of Async-BCD and SGD all hold all rows."""
    clock = clock_of(law, instance, n_updates)
    key = jax.random.key(instance.noise())
    made = traces.asynchronous(clock, n_updates=n_updates, key=key)
    return made if algorithm == "PIAG" else traces.from_delays(made.delay, time=made.time)


def ages_of(algorithm: str, trace: traces.EventTrace) -> np.ndarray:
    """The delays that the rules see, int[K]."""
    if algorithm == "PIAG":
        return steps.table_delays(trace.worker, trace.delay, N_WORKERS)
    return np.asarray(trace.delay)


class Runs(NamedTuple):
    """What G runs on one trace did.

    Attributes:
        updates: float[G], to the target; inf: never, or it was left for good.
        times: The same in time units.
        diverged: bool[G], it ended above its start, or not at a number.
        left: float[G], what is left of the gap at the end, as a share of the first.
    """

    updates: np.ndarray
    times: np.ndarray
    diverged: np.ndarray
    left: np.ndarray


def runs_of(share: np.ndarray, update: np.ndarray, time: np.ndarray, level: float) -> Runs:
    """Reads curves.

    Args:
        share: float[G, records], what is left of the gap to the optimum, as a share of the first.
        update: [records], updates at each record.
        time: float[records], of the records.
        level: Share of the way that is to be made.

    Example:
        >>> share = np.array([[0.5, 0.1, 0.1], [0.5, 0.1, 2.0]])
        >>> runs_of(share, np.array([5, 10, 15]), np.array([1.0, 2.0, 3.0]), 0.9).updates.tolist()
        [10.0, inf]
    """
    diverged = ~(share[:, -1] <= 1.0)
    updates, times = (
        np.where(diverged, np.inf, reached(axis, share, [level])[:, 0]) for axis in (update, time)
    )
    return Runs(updates, times, diverged, share[:, -1])


@dataclass(frozen=True, eq=False)
class Case:
    """An algorithm on data, with all its instances: those for tuning, then set A, then set B."""

    settings: Settings
    algorithm: str
    data: str

    @cached_property
    def instances(self) -> tuple[Seeds, ...]:
        """Their seeds."""
        return drawn(self.settings, self.settings.seed)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """Their problems."""
        return tuple(task_of(self.algorithm, self.data, one) for one in self.instances)

    @cached_property
    def optimizers(self) -> Numbered:
        """All rules with all steps."""
        algorithm, prox, key = self.algorithm, steps.l1(L1[self.data]), jax.random.key(0)
        tables = np.zeros(0)
        if algorithm == "PIAG":  # jobs take whole shards, so nothing is drawn
            first = [simulation.first_gradients(one.problem, key=key) for one in self.tasks]
            tables = np.stack([np.asarray(table) for table in first])

        def optimizer(rule: Rule, place: jax.Array) -> optax.GradientTransformation:
            if algorithm == "PIAG":
                table = jnp.asarray(tables)[place]
                return steps.aggregated(rule, N_WORKERS, initial=table, prox=prox)
            step_of = steps.descent(rule, prox=prox)
            return steps.random_block(step_of, N_BLOCKS) if algorithm == "Async-BCD" else step_of

        return Numbered(optimizer, RULES)

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
        settings, instance, task = self.settings, self.instances[place], self.tasks[place]
        trace = trace_of(self.algorithm, law, instance, settings.n_updates)
        longest = int(ages_of(self.algorithm, trace).max())
        taken = [(rule, step / (longest + 0.5) if rule == SAFE else step) for rule, step in chosen]
        losses, update, time = losses_of(
            task.problem,
            trace,
            self.optimizers,
            [self.optimizers.number(place, *pair) for pair in taken],
            instance,
            every=settings.record_every,
            lanes=len(taken),
        )
        share = gap_left(losses, task.problem, task.optimum)
        return runs_of(share, update, time, settings.level), longest, float(trace.time[-1])


def tuned(case: Case, law: str) -> dict[str, tuning.Tuned]:
    """The step of every rule on a law, with as many trials each."""
    settings = case.settings
    theory = [one.theory for one in case.tasks[: settings.tuning_instances]]
    unit = float(np.exp(np.mean(np.log(theory))))

    def evaluate(rule: str, tried: Sequence[tuning.Settings], _: int) -> list[float]:
        found = []
        for place in range(settings.tuning_instances):
            runs = case.run(place, law, [(rule, one["step"]) for one in tried])[0]
            left = np.where(runs.diverged, np.inf, runs.left)
            found.append(score(runs.updates[:, None], left, settings.n_updates))
        return np.mean(found, axis=0).tolist()

    return tuning.tune(
        {
            rule: {"step": tuning.Knob(tuple(unit * CENTRES[rule] * m for m in settings.multiples))}
            for rule in RULES
        },
        evaluate,
        trials=settings.trials,
        gradients=settings.tuning_instances * settings.n_updates,
        seed=settings.seed,
        rounds=settings.rounds,
    )


def measured(settings: Settings, algorithm: str, data: str) -> pd.DataFrame:
    """Tunes on every law, then runs all steps on all laws on the instances that are reported.

    Returns:
        A row a run: `law` that it met, `chosen`, the law of its step (or `OWN`, `THEORY`), what it
        did, and how the rule was tuned on the law that it met.
    """
    case, rows = Case(settings, algorithm, data), []
    found = {law: tuned(case, law) for law in settings.runs_on}
    best = {
        law: {rule: one.best.settings["step"] for rule, one in by_rule.items()}
        for law, by_rule in found.items()
    }
    for place, instance in enumerate(case.instances):
        for law in settings.runs_on if instance.role in SETS else ():
            theory = dict.fromkeys(RULES, case.tasks[place].theory)
            steps_of = {one: best[one] for one in settings.laws} | {OWN: best[law], THEORY: theory}
            asked = [(one, rule) for one in steps_of for rule in RULES]
            runs, _, end = case.run(
                place, law, [(rule, steps_of[one][rule]) for one, rule in asked]
            )
            head = {"algorithm": algorithm, "data": data, "law": law}
            head |= {"set": SETS[instance.role], "instance": instance.number, "end": end}
            rows += [
                {**head, "chosen": one, "method": rule, **dict(zip(Runs._fields, did, strict=True))}
                | {"trials": len(found[law][rule].trials), "at_edge": bool(found[law][rule].edges)}
                for (one, rule), *did in zip(asked, *runs, strict=True)
            ]
    return pd.DataFrame(rows)


def all_runs(settings: Settings) -> pd.DataFrame:
    """All cases; one that was measured before with the same settings and code is read from file."""
    default, found = Settings(), []
    same = ("output", "commit", "aggregated", "blocks", "plain")
    core = replace(settings, **{name: getattr(default, name) for name in same})
    for case in settings.cases:
        found.append(once(settings.output / "cases", partial(measured, core, *case)))
        print(f"[{len(found)}/{len(settings.cases)}] {', '.join(case)}", flush=True)
    return pd.concat(found, ignore_index=True)
