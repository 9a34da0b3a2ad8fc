"""Step-size rules on one problem and one law of delays: all steps of a grid, all seeds, in one compiled call a rule.

A case says what is optimised, by which algorithm (aggregated gradients or block descent) and with which delays. Every rule
is run at its theory step and at all steps of one grid, the same for all: powers of two times gamma' = h / L. A rule that is
a constant step shares its runs with all other such rules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax

from asyncjax import problems, results, simulation, steps, traces

Rule = optax.GradientTransformationExtraArgs
ADAPTIVE: dict[str, Callable[[Any], Rule]] = {
    "Adaptive 1": lambda step_size: steps.scale_by_adaptive_1(step_size, 0.9, max_delay=512),
    "Adaptive 2": lambda step_size: steps.scale_by_adaptive_2(step_size, max_delay=512),
    "c/(delay+1)": lambda step_size: steps.scale_by_delay(lambda late: 1 / (late + 1), step_size),
}
CONSTANT = "constant"


def constant(step_size: Any) -> Rule:
    """A constant step."""
    return steps.worst_case(step_size, 0)


@dataclass(frozen=True, eq=False)
class Case:
    """What is run.

    Attributes:
        data: Name of the data.
        law: Name of the law of delays.
        problem: What is optimised.
        traces: One a seed, S of them, with equally many updates.
        ages: The delays that the rules see, int[K] each.
        optimizer: Makes an optimizer of a rule.
        step_size: gamma' of the adaptive rules.
        fixed: Theory steps of the fixed rules by name, float[S]: each knows its own run's longest delay.
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
        """Updates (or time) from which the gap stays within ``ratio`` times the first one, float[S]; infinity if never.

        A step that is too long may pass a gap by chance and leave it again; that does not count.
        """
        above = ~(self.gap <= ratio * self.gap[:, :1])
        last = above.shape[1] - 1 - np.argmax(above[:, ::-1], axis=1)  # the last record above
        after = np.where(above.any(axis=1), np.minimum(last + 1, above.shape[1] - 1), 0)
        grid = np.broadcast_to(getattr(self, axis), above.shape)
        found = np.take_along_axis(grid, after[:, None], axis=1)[:, 0].astype(float)
        return np.where(above[:, -1], np.inf, found)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What all rules did on a case."""

    case: Case
    theory: dict[str, Curve]
    tuned: dict[str, Curve]
    predicted: dict[str, np.ndarray]  # sum of the steps at the theory step, float[S]


def run_case(
    case: Case,
    *,
    multiples: tuple[float, ...],
    ratio: float,
    keys: jax.Array,
    records: int,
) -> Outcome:
    """Runs all rules of a case.

    Args:
        case: What is run.
        multiples: Steps of the grid in units of gamma', the theory step of the adaptive rules; holds 1.
        ratio: Gap that tuning aims at, as a share of the first.
        keys: Typed keys [S].
        records: Points of a curve.

    Returns:
        Curves at the theory step and at the step of the grid that reaches the gap first (median over the seeds), and the
        sums of the steps that the traces alone predict.
    """
    grid = np.array(multiples)
    theory: dict[str, Curve] = {}
    tuned: dict[str, Curve] = {}
    for name, rule in ADAPTIVE.items():
        curves = _curves(case, rule, case.step_size * grid, grid, keys, records)
        theory[name] = curves[list(multiples).index(1.0)]
        tuned[name] = _best(curves, ratio)
    fixed, tuned[CONSTANT] = run_constant(case, multiples, ratio, keys, records)
    return Outcome(case, theory | fixed, tuned, _predicted(case))


def run_constant(
    case: Case, multiples: tuple[float, ...], ratio: float, keys: jax.Array, records: int
) -> tuple[dict[str, Curve], Curve]:
    """Runs all constant steps of a case in one call.

    Args:
        case: What is run.
        multiples: Of gamma'.
        ratio: Gap that tuning aims at, as a share of the first.
        keys: Typed keys [S].
        records: Points of a curve.

    Returns:
        The fixed rules at their own steps, by name, and the best multiple.
    """
    grid = np.array(multiples)
    own = np.concatenate(list(case.fixed.values()))
    every = np.concatenate([case.step_size * grid, own])
    curves = _curves(case, constant, every, every / case.step_size, keys, records)
    seeds, theory = len(case.traces), {}
    for place, name in enumerate(case.fixed):
        first = len(grid) + place * seeds
        gap = np.stack([curves[first + seed].gap[seed] for seed in range(seeds)])
        step = float(np.median(case.fixed[name]) / case.step_size)
        theory[name] = Curve(curves[0].update, curves[0].time, gap, step)
    return theory, _best(curves[: len(grid)], ratio)


def _curves(
    case: Case,
    rule: Callable[[Any], Rule],
    step_sizes: np.ndarray,
    multiples: np.ndarray,
    keys: jax.Array,
    records: int,
) -> list[Curve]:
    n_updates = case.traces[0].n_updates
    run = simulation.sweep(
        case.problem,
        list(case.traces),
        lambda step_size: case.optimizer(rule(step_size)),
        step_sizes,
        keys=keys,
        record_every=max(1, n_updates // records),
    )
    seeds = len(keys)
    gap = np.asarray(run.records.loss, np.float64) - case.optimum  # [S, G, R]
    gap = np.where(np.isfinite(gap), gap, np.inf)
    gap = np.concatenate([np.full((*gap.shape[:2], 1), case.start - case.optimum), gap], axis=2)
    time = np.asarray(run.records.time).reshape(-1, gap.shape[2] - 1)
    time = np.pad(np.broadcast_to(time, (seeds, time.shape[1])), ((0, 0), (1, 0)))
    update = np.ravel(np.asarray(run.records.version))[: gap.shape[2] - 1]
    update = np.pad(update, (1, 0))
    return [Curve(update, time, gap[:, g], float(m)) for g, m in enumerate(multiples)]


def _best(curves: list[Curve], ratio: float) -> Curve:
    """The curve that comes to stay within the gap first; where none does, the one that gets lowest."""
    scores = np.array([np.median(curve.reached(ratio)) for curve in curves])
    lowest = np.array([np.median(curve.gap.min(axis=1)) for curve in curves])
    place = int(np.argmin(scores)) if np.isfinite(scores).any() else int(np.argmin(lowest))
    edge = results.at_grid_edge(place, len(curves))
    chosen = curves[place]
    return Curve(chosen.update, chosen.time, chosen.gap, chosen.multiple, edge)


def _predicted(case: Case) -> dict[str, np.ndarray]:
    """Sums of the steps, from the delays alone."""
    sums = {
        name: np.array(
            [
                steps.predict_steps(ADAPTIVE[name](case.step_size), age).step_size.sum()
                for age in case.ages
            ]
        )
        for name in ("Adaptive 1", "Adaptive 2")
    }
    count = len(case.ages[0])
    return sums | {name: step * count for name, step in case.fixed.items()}
