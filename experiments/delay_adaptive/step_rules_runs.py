"""Step-size rules on one problem and one law of delays, over instances: what is run.

A case says what is optimised, by which algorithm (aggregated gradients or block descent) and with
which delays; an instance of it has rows, workers, a first model and a run of its own. Every rule is
run at its theory step size and at the best multiple of gamma' = h / L, which is searched on the
tuning instances, with as many trials for each rule. Where a best multiple is at the end of the
grid, the grid grows and all rules get another round. All runs of a data set share one compilation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import problems, simulation, steps, traces
from asyncjax.simulation.plans.program import Sizes
from asyncjax.study import search as tuning
from asyncjax.study.protocol import LEVELS, SET_A, SET_B, TUNING, Seeds, seeds_of
from asyncjax.study.result import Result
from experiments.common import numbers
from experiments.common.kept_rows import once

Rule = optax.GradientTransformationExtraArgs
MAX_DELAY = 512
# The relative step of each rule from the room that the window leaves, and the delay.
RELATIVE: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "Adaptive 1": steps.adaptive_1_rule(0.9),
    "Adaptive 2": steps.adaptive_2_rule(),
    "c/(delay+1)": lambda room, delay: 1 / (delay + 1).astype(room.dtype),
    "constant": lambda room, delay: jnp.ones_like(room),
}
CONSTANT, SYNCHRONOUS = "constant", "synchronous"
ADAPTIVE = tuple(name for name in RELATIVE if name != CONSTANT)
THEORY, TUNED = "theory", "tuned"  # step sizes
UPDATES, TIME = "updates", "time"  # what is counted
SETS = {"A": SET_A, "B": SET_B}
START = 0.1  # deviation of the first model's coordinates
DIGITS = 5  # of numbers in rows
_LANES = 9  # runs of one call
_FINE, _LOWEST, _CODES = 1024, -24, 40 * 1024  # of a step: codes an octave, first octave, codes


def rule_of(name: str, step_size: Any) -> Rule:
    """A rule of `RELATIVE` as a transformation."""
    return steps.scale_by_window(RELATIVE[name], step_size, max_delay=MAX_DELAY)


# Made once, so that a prediction compiles once.
_PREDICTED = {name: rule_of(name, 1.0) for name in ("Adaptive 1", "Adaptive 2")}


@dataclass(frozen=True)
class Study:
    """How much is run of each case."""

    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 2
    n_updates: int = 4000  # the synchronous server makes as many gradients
    record_every: int = 5  # updates; of the synchronous server a fifth of it
    trials: int = 5  # multiples that a rule tries in a round of tuning
    rounds: tuple[int, int] = (2, 6)  # of tuning
    # multiples of gamma' that tuning begins with
    multiples: tuple[float, ...] = tuple(2.0**power for power in range(-3, 6))
    levels: tuple[float, ...] = LEVELS  # shares of the way; the last is what tuning aims at


@dataclass(frozen=True, eq=False)
class Task:
    """What is run on one instance.

    Attributes:
        problem: What is optimised, with its first model.
        trace: Who delivers when.
        ages: The delays that the rules see, int[K].
        step_size: gamma' of the adaptive rules.
        fixed: Theory steps of the fixed rules by name, each told the longest delay of the run.
        optimum: Smallest objective.
    """

    problem: problems.Problem
    trace: traces.EventTrace
    ages: np.ndarray
    step_size: float
    fixed: Mapping[str, float]
    optimum: float

    @property
    def start(self) -> float:
        """Objective at the first model."""
        objective: Any = self.problem.objective
        return float(objective(self.problem.params))

    def step_sums(self) -> dict[str, float]:
        """Sums of the steps of the theory rules, from the delays alone."""
        sums = {
            name: self.step_size * float(steps.predict_steps(rule, self.ages).step_size.sum())
            for name, rule in _PREDICTED.items()
        }
        return sums | {name: step * len(self.ages) for name, step in self.fixed.items()}


@dataclass(frozen=True, eq=False)
class Numbered:
    """Optimizers by a number that stands for an instance, a rule and a step.

    A sweep varies one number only, and compiles anew for every function that makes optimizers. Here
    one serves all; a step is rounded to a 1/1024 of an octave.

    Attributes:
        optimizer: Makes an optimizer of a rule and the place of an instance, int32[].
    """

    optimizer: Callable[[Rule, jax.Array], optax.GradientTransformation]
    relative: Mapping[str, Callable[[jax.Array, jax.Array], jax.Array]] = field(
        default_factory=lambda: RELATIVE
    )

    def number(self, place: int, rule: str, step: float) -> float:
        """The number of an instance's place, a rule and a step."""
        code = round(_FINE * (np.log2(step) - _LOWEST))
        number = (place * len(self.relative) + list(self.relative).index(rule)) * _CODES + code
        assert 0 <= code < _CODES, f"a step of {step}"
        assert number < 2**24, "float32 holds no such number"
        return float(number)

    def __call__(self, number: Any) -> optax.GradientTransformation:
        """The optimizer of a number, which may be traced."""
        whole = jnp.round(number).astype(jnp.int32)
        code, which = whole % _CODES, whole // _CODES
        step = jnp.exp2(_LOWEST + code.astype(jnp.float32) / _FINE)

        def relative(room: jax.Array, delay: jax.Array) -> jax.Array:
            factors = jnp.stack([rule(room, delay) for rule in self.relative.values()])
            return factors[which % len(self.relative)]

        rule: Rule = steps.scale_by_window(relative, step, max_delay=MAX_DELAY)
        return self.optimizer(rule, which // len(self.relative))


@dataclass(frozen=True, eq=False)
class Arm:
    """A way of running a case: a task an instance (in the order of `drawn`), one optimizer."""

    tasks: tuple[Task, ...]
    optimizers: Numbered
    every: int  # updates between records


@dataclass(frozen=True, eq=False)
class Case:
    """A data set and a law of delays.

    Attributes:
        instances: As `drawn` gives them.
        own: How the rules are run.
        synchronous: The server that waits for all, where there are workers.
    """

    instances: tuple[Seeds, ...]
    own: Arm
    synchronous: Arm | None = None


def drawn(study: Study, seed: int) -> tuple[Seeds, ...]:
    """Instances for tuning, then those of set A, then those of set B."""
    counts = {TUNING: study.tuning_instances, SET_A: study.instances, SET_B: study.instances}
    return tuple(one for role, count in counts.items() for one in seeds_of(seed, role, count))


def first_model(problem: problems.Problem, instance: Seeds) -> problems.Problem:
    """The problem with the instance's first model, near 0."""
    size = np.shape(problem.params)
    start = np.random.default_rng(instance.model).normal(0.0, START, size)
    return replace(problem, params=jnp.asarray(start, jnp.asarray(problem.params).dtype))


def stays(share: np.ndarray, level: float) -> np.ndarray:
    """The place from which a run stays on the other side of a level, int[G]; -1: it does not.

    A step that is too long may pass a level by chance and leave it again; that does not count.

    Args:
        share: float[G, R], what is left of the gap to the optimum, as a share of the first.
        level: Share of the way that is to be made.

    Example:
        >>> stays(np.array([[1.0, 0.5, 0.1, 0.01], [1.0, 0.05, 0.8, 0.7]]), 0.9).tolist()
        [2, -1]
    """
    above = ~(share <= 1.0 + 1e-6 - level)
    last = above.shape[1] - 1 - np.argmax(above[:, ::-1], axis=1)  # the last record above
    return np.where(above[:, -1], -1, np.where(above.any(axis=1), last + 1, 0))


@dataclass(frozen=True, eq=False)
class Runs:
    """What G runs on one instance did.

    Attributes:
        updates: float[G, levels], from which each level is kept; inf: never.
        times: The same in time units.
        left: float[G], what is left of the gap at the end, as a share of the first.
    """

    updates: np.ndarray
    times: np.ndarray
    left: np.ndarray


def run(
    arm: Arm, case: Case, place: int, chosen: Sequence[tuple[str, float]], levels: Sequence[float]
) -> Runs:
    """Runs rules with their steps on one instance, in calls of one compilation."""
    task, parts, records = arm.tasks[place], [], None
    for begin in range(0, len(chosen), _LANES):
        some = list(chosen[begin : begin + _LANES])
        padded = some + some[-1:] * (_LANES - len(some))
        records = simulation.sweep(
            task.problem,
            task.trace,
            arm.optimizers,
            np.array([arm.optimizers.number(place, *pair) for pair in padded]),
            keys=jax.random.split(jax.random.key(case.instances[place].noise(1)), 1),
            record_every=arm.every,
            width=1,
            sizes=_roomy,
        ).records
        parts.append(np.asarray(records.loss, np.float64)[0, : len(some)])
    assert records is not None, "no runs"
    share = (np.concatenate(parts) - task.optimum) / (task.start - task.optimum)
    share = np.where(np.isfinite(share), share, np.inf)
    share = np.concatenate([np.ones((len(share), 1)), share], axis=1)
    update = np.concatenate([[0], np.ravel(np.asarray(records.version))])
    time_of = np.concatenate([[0.0], np.ravel(np.asarray(records.time))])
    places = np.stack([stays(share, level) for level in levels], axis=1)
    return Runs(
        np.where(places < 0, np.inf, update[places].astype(float)),
        np.where(places < 0, np.inf, time_of[places]),
        share[:, -1],
    )


def _roomy(own: Sizes) -> Sizes:
    """Sizes that the traces of many laws share."""
    return replace(own, slots=max(16, 2 ** int(np.ceil(np.log2(own.slots)))))


def score(runs: Runs, horizon: int) -> np.ndarray:
    """What tuning lowers, float[G]: the logarithm of the updates to the last level.

    Where it was not kept, that of the horizon, and more the more of the gap is left.
    """
    updates = runs.updates[:, -1]
    there = np.log(np.maximum(np.where(np.isfinite(updates), updates, 1.0), 1.0))
    return np.where(np.isfinite(updates), there, np.log(horizon) + 1.0 + runs.left)


def tuned(case: Case, study: Study, seed: int) -> dict[str, tuning.Tuned]:
    """The multiple of gamma' of every rule, with as many trials each, on the tuning instances."""
    arms = {rule: case.own for rule in RELATIVE}
    if case.synchronous is not None:
        arms[SYNCHRONOUS] = case.synchronous

    def evaluate(method: str, settings: Sequence[tuning.Settings], _: int) -> list[float]:
        arm, rule = arms[method], CONSTANT if method == SYNCHRONOUS else method
        found = []
        for place in range(study.tuning_instances):
            task = arm.tasks[place]
            chosen = [(rule, one["multiple"] * task.step_size) for one in settings]
            runs = run(arm, case, place, chosen, study.levels)
            found.append(score(runs, task.trace.n_updates))
        return np.mean(found, axis=0).tolist()

    return tuning.tune(
        {method: {"multiple": tuning.Knob(study.multiples)} for method in arms},
        evaluate,
        trials=study.trials,
        gradients=study.tuning_instances * study.n_updates,
        seed=seed,
        rounds=study.rounds,
    )


def measured(
    study: Study, seed: int, make: Callable[[Study, int, str, str], Case], data: str, law: str
) -> pd.DataFrame:
    """The rows of a case: all rules are tuned and run on both sets."""
    case = make(study, seed, data, law)
    found = tuned(case, study, seed)
    head = {"scene": f"{data}, {law}", "data": data, "delays": law}
    letters = {role: letter for letter, role in SETS.items()}
    rows = [
        {**head, "set": letters[one.role], "instance": one.number, **row}
        for place, one in enumerate(case.instances)
        if one.role in letters
        for row in _rows(case, study, place, found)
    ]
    return pd.DataFrame(numbers.rounded(rows, DIGITS))


def _rows(
    case: Case, study: Study, place: int, found: Mapping[str, tuning.Tuned]
) -> Iterator[dict[str, Any]]:
    """A row a way of choosing the step, method, count and level, of one instance."""
    task, other = case.own.tasks[place], case.synchronous
    multiples = {method: one.best.settings["multiple"] for method, one in found.items()}
    asked = [(THEORY, rule, rule, task.step_size) for rule in ADAPTIVE]
    asked += [(THEORY, name, CONSTANT, step) for name, step in task.fixed.items()]
    asked += [(TUNED, rule, rule, multiples[rule] * task.step_size) for rule in RELATIVE]
    arms = [(case.own, asked)]
    if other is not None:
        step = other.tasks[place].step_size
        both = ((THEORY, step), (TUNED, multiples[SYNCHRONOUS] * step))
        arms.append((other, [(kind, SYNCHRONOUS, CONSTANT, one) for kind, one in both]))
    ages = {"longest": int(task.ages.max()), "mean_delay": float(task.ages.mean())}
    ends = {UPDATES: float(study.n_updates), TIME: float(task.trace.time[-1])}
    sums = task.step_sums()
    for arm, asked in arms:
        runs = run(arm, case, place, [(rule, step) for *_, rule, step in asked], study.levels)
        for at, (kind, method, _, _) in enumerate(asked):
            facts: dict[str, Any] = {"multiple": np.nan, "trials": np.nan, "gradients": np.nan}
            if kind == TUNED:
                count = len(found[method].trials)
                facts = {"multiple": multiples[method], "trials": count}
                facts["gradients"] = count * found[method].gradients
            facts["at_edge"] = kind == TUNED and bool(found[method].edges)
            facts["step_sum"] = sums.get(method, np.nan) if kind == THEORY else np.nan
            for axis, end in ends.items():
                needed = (runs.updates if axis == UPDATES else runs.times)[at]
                for to, value in zip(study.levels, needed, strict=True):
                    counted = {"axis": axis, "to": to, "needed": float(value), "horizon": end}
                    yield {"method": method, "tuned_for": kind, **counted, **facts, **ages}


def result_of(
    plans: Sequence[tuple[str, str]],
    make: Callable[[Study, int, str, str], Case],
    study: Study,
    seed: int,
    folder: Path,
) -> Result:
    """Runs cases; one that was run before is read from its file.

    Args:
        plans: Data and law of each.
        make: The case of a data set and a law.
        study: How much is run.
        seed: Of the experiment.
        folder: Where cases are kept.
    """
    rows = []
    for data, law in plans:
        rows.append(once(folder, partial(measured, study, seed, make, data, law)))
        print(f"  [{len(rows)}/{len(plans)}] {data}, {law}", flush=True)
    return Result(pd.concat(rows, ignore_index=True), "needed")
