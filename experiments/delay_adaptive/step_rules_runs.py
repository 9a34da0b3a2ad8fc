"""Step-size rules on one problem and one law of delays.

A task says what is optimised, by which algorithm (aggregated gradients or block descent) and with
which delays. Every rule is run at its theory step and at the best of a grid of powers of two times
gamma' = h / L, the same for all, which is found on another task of the same kind: other rows, other
workers. Where a best step is at the end of the grid, the grid grows and all rules get more trials.
All runs of a call share one compilation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import problems, simulation, steps, traces
from experiments.common import tuning

Rule = optax.GradientTransformationExtraArgs
MAX_DELAY = 512
# The relative step of each rule from the room that the window leaves, and the delay.
RELATIVE: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "Adaptive 1": steps.adaptive_1_rule(0.9),
    "Adaptive 2": steps.adaptive_2_rule(),
    "c/(delay+1)": lambda room, delay: 1 / (delay + 1).astype(room.dtype),
    "constant": lambda room, delay: jnp.ones_like(room),
}
CONSTANT = "constant"
ADAPTIVE = tuple(name for name in RELATIVE if name != CONSTANT)
_FINE, _LOWEST, _CODES = 4096, 20, 40 * 4096  # of a step: codes an octave, octaves down, codes


def rule_of(name: str, step_size: Any) -> Rule:
    """A rule of `RELATIVE` as a transformation."""
    return steps.scale_by_window(RELATIVE[name], step_size, max_delay=MAX_DELAY)


# Made once, so that a prediction compiles once.
_PREDICTED = {name: rule_of(name, 1.0) for name in ("Adaptive 1", "Adaptive 2")}


@dataclass(frozen=True, eq=False)
class Task:
    """What is run.

    Attributes:
        data: Name of the data.
        law: Name of the law of delays.
        problem: What is optimised.
        traces: One a seed, S of them, with equally many updates.
        ages: The delays that the rules see, int[K] each.
        optimizer: Makes an optimizer of a rule.
        step_size: gamma' of the adaptive rules.
        fixed: Theory steps of the fixed rules by name, float[S]: each knows its own run's longest
            delay.
        start: Objective at the first model.
        optimum: Smallest objective.
    """

    data: str
    law: str
    problem: problems.Problem
    traces: tuple[traces.EventTrace, ...]
    ages: tuple[np.ndarray, ...]
    optimizer: Callable[[Rule], optax.GradientTransformation]
    step_size: float
    fixed: dict[str, np.ndarray]
    start: float
    optimum: float


@dataclass(frozen=True, eq=False)
class Curve:
    """What a rule did at one step, S seeds, R + 1 records, the first before any update."""

    update: np.ndarray  # int[R + 1]
    time: np.ndarray  # float[S, R + 1], time units
    gap: np.ndarray  # float[S, R + 1], P - P*
    multiple: float  # of gamma'
    at_edge: bool = False  # of the grid

    def reached(self, ratio: float, *, axis: str = "update") -> np.ndarray:
        """Updates (or time) from which the gap stays within `ratio` times the first, float[S].

        Infinity if it never does. A step that is too long may pass a gap by chance and leave it
        again; that does not count.
        """
        above = ~(self.gap <= ratio * self.gap[:, :1])
        last = above.shape[1] - 1 - np.argmax(above[:, ::-1], axis=1)  # the last record above
        after = np.where(above.any(axis=1), np.minimum(last + 1, above.shape[1] - 1), 0)
        grid = np.broadcast_to(getattr(self, axis), above.shape)
        found = np.take_along_axis(grid, after[:, None], axis=1)[:, 0].astype(float)
        return np.where(above[:, -1], np.inf, found)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What all rules did on a task."""

    task: Task
    theory: dict[str, Curve]
    tuned: dict[str, Curve]
    predicted: dict[str, np.ndarray]  # sum of the steps at the theory step, float[S]


def run_task(
    task: Task,
    tuned_on: Task,
    *,
    multiples: tuple[float, ...],
    rounds: tuple[int, int],
    ratio: float,
    keys: tuple[jax.Array, jax.Array],
    records: int,
) -> Outcome:
    """Runs all rules of a task.

    Args:
        task: What is run.
        tuned_on: The same on other rows and with other delays.
        multiples: First steps of the grid in units of gamma', the theory step of the adaptive
            rules.
        rounds: Of tuning, the least and the most; each has as many trials a rule.
        ratio: Gap that tuning aims at, as a share of the first.
        keys: Typed keys [S] of the task, and those of the one that is tuned on.
        records: Points of a curve.

    Returns:
        Curves at the theory step and at the step of the grid that reaches the gap first on the
        other task (mean logarithm of the updates), and the sums of the steps that the traces alone
        predict.
    """
    own, others = keys
    optimizers = _Optimizers(tuned_on)

    def evaluate(rule: str, settings: Sequence[tuning.Settings], _: int) -> list[float]:
        chosen = [(rule, one["multiple"] * tuned_on.step_size) for one in settings]
        return [_score(curve, ratio) for curve in _curves(optimizers, chosen, others, records)]

    found = tuning.tune(
        {rule: {"multiple": tuning.Knob(multiples)} for rule in RELATIVE},
        evaluate,
        trials=len(multiples),
        gradients=sum(trace.n_updates for trace in tuned_on.traces),
        rounds=rounds,
    )
    chosen = [(rule, task.step_size) for rule in ADAPTIVE]
    chosen += [(rule, found[rule].best.settings["multiple"] * task.step_size) for rule in RELATIVE]
    chosen += [(CONSTANT, step) for steps_of in task.fixed.values() for step in steps_of]
    curves = _curves(_Optimizers(task), chosen, own, records)
    theory = dict(zip(ADAPTIVE, curves, strict=False))
    tuned = {
        rule: replace(curve, at_edge=bool(found[rule].edges))
        for rule, curve in zip(RELATIVE, curves[len(ADAPTIVE) :], strict=False)
    }
    # Each fixed rule has a step of its own for each seed.
    of_seed = curves[len(ADAPTIVE) + len(RELATIVE) :]
    for place, name in enumerate(task.fixed):
        fixed = of_seed[place * len(own) : (place + 1) * len(own)]
        gap = np.stack([curve.gap[seed] for seed, curve in enumerate(fixed)])
        step = float(np.median(task.fixed[name]) / task.step_size)
        theory[name] = Curve(fixed[0].update, fixed[0].time, gap, step)
    return Outcome(task, theory, tuned, _predicted(task))


@dataclass(frozen=True, eq=False)
class _Optimizers:
    """Optimizers of a task by a number, rule and step in one, so that calls share a compilation."""

    task: Task

    def number(self, rule: str, step: float) -> float:
        """The number of a rule and a step, which is rounded to 1/4096 of an octave."""
        code = round(_FINE * (np.log2(step / self.task.step_size) + _LOWEST))
        assert 0 <= code < _CODES, f"a step of {step}"
        return float(list(RELATIVE).index(rule) * _CODES + code)

    def __call__(self, number: Any) -> optax.GradientTransformation:
        """The optimizer of a number, which may be traced."""
        whole = jnp.round(number).astype(jnp.int32)
        octaves = (whole % _CODES).astype(jnp.float32) / _FINE - _LOWEST

        def relative(room: jax.Array, delay: jax.Array) -> jax.Array:
            factors = [rule(room, delay) for rule in RELATIVE.values()]
            return jnp.stack(factors)[whole // _CODES]

        step = self.task.step_size * jnp.exp2(octaves)
        return self.task.optimizer(steps.scale_by_window(relative, step, MAX_DELAY))


def _curves(
    optimizers: _Optimizers, chosen: Sequence[tuple[str, float]], keys: jax.Array, records: int
) -> list[Curve]:
    """Curves of rules with their steps, all in one compiled call."""
    task = optimizers.task
    longest = max(int(age.max()) for age in task.ages)
    assert longest <= MAX_DELAY, f"delays reach {longest}"
    run = simulation.sweep(
        task.problem,
        list(task.traces),
        optimizers,
        np.array([optimizers.number(*one) for one in chosen]),
        keys=keys,
        record_every=max(1, task.traces[0].n_updates // records),
    )
    seeds = len(keys)
    gap = np.asarray(run.records.loss, np.float64) - task.optimum  # [S, N, R]
    gap = np.where(np.isfinite(gap), gap, np.inf)
    gap = np.concatenate([np.full((*gap.shape[:2], 1), task.start - task.optimum), gap], axis=2)
    time = np.asarray(run.records.time).reshape(-1, gap.shape[2] - 1)
    time = np.pad(np.broadcast_to(time, (seeds, time.shape[1])), ((0, 0), (1, 0)))
    update = np.ravel(np.asarray(run.records.version))[: gap.shape[2] - 1]
    update = np.pad(update, (1, 0))
    return [
        Curve(update, time, gap[:, place], step / task.step_size)
        for place, (_, step) in enumerate(chosen)
    ]


def _score(curve: Curve, ratio: float) -> float:
    """What tuning lowers: the mean logarithm of the updates from which the gap stays within ratio.

    A run that never does counts as the horizon, and more the more of the gap is left.
    """
    reached, horizon = curve.reached(ratio), float(curve.update[-1])
    left = curve.gap[:, -1] / curve.gap[:, 0]
    there = np.log(np.maximum(np.where(np.isfinite(reached), reached, 1.0), 1.0))
    return float(np.mean(np.where(np.isfinite(reached), there, np.log(horizon) + 1.0 + left)))


def _predicted(task: Task) -> dict[str, np.ndarray]:
    """Sums of the steps, from the delays alone."""
    sums = {
        name: np.array([steps.predict_steps(rule, age).step_size.sum() for age in task.ages])
        for name, rule in _PREDICTED.items()
    }
    sums = {name: task.step_size * values for name, values in sums.items()}
    count = len(task.ages[0])
    return sums | {name: step * count for name, step in task.fixed.items()}
