"""Plans of (k, load) on a bound whose constants are not those they were made from.

No data, no chance.

    e <- A + (1 - eta c)^u (e - A),    time <- time + u E T_(k)

with the true floor A, decay and completion times. A plan's stage ends after the planned updates, by
the clock, or when the true error has come down to where the plan ends it, with or without a stall
exit; the last stage never ends.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asyncjax import clocks, stragglers
from experiments.stragglers import bounds

NOWHERE = 0.0  # no target: the plan goes on as long as its menu does
RIGHT = "right constants"
CONSTANTS = {  # and their fields in a bound
    "strong convexity": "strong_convexity",
    "noise variance": "noise_variance",
    "smoothness": "smoothness",
    "initial error": "initial_error",
    "mean of communication": "",
    "mean of computation": "",
}


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/straggler_constants")
    commit: bool = False  # also write the numbers that are committed
    seed: int = 0
    n_workers: int = 50
    shard: int = 40  # samples of a worker
    loads: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40)
    samples: float = 1200.0  # of an update whose floor is the target, on the bound
    factors: tuple[float, ...] = (0.1, 0.25, 4.0, 10.0)  # of a constant, believed over true
    convexity_factors: tuple[float, ...] = (0.25, 0.5, 2.0, 4.0)  # of strong convexity
    patiences: tuple[float, ...] = (1.0, 1.5, 2.0, 4.0, math.inf)  # on the bound
    dim: int = 20
    noise: float = 3.0  # standard deviation of the linear targets
    signal: float = 7.0  # standard deviation of the linear weights: how far off the start is
    n_updates: int = 1000  # of a run of SGD
    most_updates: int = 3500  # where most seeds have not reached the target by then
    seeds: int = 5
    least_samples: int = 10  # of an update, in plans for SGD
    wrong_convexity: tuple[float, ...] = (0.25, 2.0, 4.0)  # factors, in SGD
    wrong_variance: tuple[float, ...] = (0.04, 0.25, 4.0)
    clock: bool = True  # whether plans switch by the clock in SGD too
    run_patiences: tuple[float, ...] = (1.5, 4.0, math.inf)
    pairs: tuple[tuple[int, int], ...] = ((10, 40), (30, 40), (45, 40), (10, 4), (40, 10))
    pilots: tuple[int, ...] = (30, 60, 180)  # updates before the plan is made anew


class Stage(NamedTuple):
    """A stage as it is planned, and what is true when it begins."""

    end_error: float  # planned
    updates: float  # planned
    span: float  # planned, time units
    error: float  # true, at its beginning
    floor: float  # true
    completion: float  # true time of an update
    decay: float  # true, an update


Switch = Callable[[Stage], float]  # updates until a stage is left


@dataclass(frozen=True, eq=False)
class Truth:
    """What a plan meets.

    Attributes:
        bound: With the true constants.
        times: True response times.
        completion: float64[B, n], time of an update by load and k.
        loads: float64[B], samples.
        target: Error to reach.
    """

    bound: stragglers.ErrorBound
    times: stragglers.Response
    completion: np.ndarray
    loads: np.ndarray
    target: float


def by_updates(stage: Stage) -> float:
    """Leaves a stage after the planned updates."""
    return stage.updates


def by_clock(stage: Stage) -> float:
    """Leaves a stage after the planned time."""
    return stage.span / stage.completion


def by_error(patience: float) -> Switch:
    """Leaves a stage when the true error is at its end, or `patience` times later than planned."""

    def switch(stage: Stage) -> float:
        falls = updates_until(stage.error, stage.end_error, stage.floor, stage.decay)
        return min(falls, patience * stage.updates)

    return switch


def updates_until(error: float, goal: float, floor: float, decay: float) -> float:
    """Counts the updates until the bound has fallen from an error to a goal, fractional.

    Inf if the floor is above it.
    """
    if error <= goal:
        return 0.0
    return math.log((error - floor) / (goal - floor)) / decay if goal > floor else math.inf


def walk(truth: Truth, plan: stragglers.Plan, switch: Switch) -> dict[str, float]:
    """Follows a plan's stages on the true bound until the target; the last stage never ends.

    Returns:
        Costs by name, as in `Plan`; all inf where the target is never reached.
    """
    error, decay, last = truth.bound.initial_error, truth.bound.decay, plan.k.size - 1
    updates = np.zeros(plan.k.size)
    floors = stragglers.error_floor(truth.bound, plan.k, plan.load)
    completions = truth.completion[np.searchsorted(truth.loads, plan.load), plan.k - 1]
    for place in range(plan.k.size):
        floor, completion = float(floors[place]), float(completions[place])
        span = float(plan.end_time[place] - plan.start_time[place])
        planned = float(plan.end_error[place]), float(plan.updates[place]), span
        lasts = switch(Stage(*planned, error, floor, completion, decay))
        needs = updates_until(error, truth.target, floor, decay)
        updates[place] = needs if place == last else min(lasts, needs)
        if math.isinf(updates[place]):
            break
        error = floor + (error - floor) * math.exp(-decay * updates[place])
        if needs <= updates[place]:
            break
    n = plan.n_workers
    per_update = (completions, n * plan.load, plan.k * plan.load, plan.k, np.full(last + 1, n))
    never = np.isinf(updates).any()
    sums = [math.inf if never else float(updates @ column) for column in per_update]
    return dict(zip(bounds.COSTS, sums, strict=True))


def switches_of(*patiences: float) -> dict[str, Switch]:
    """The switches on the bound, by name."""
    return {
        "by updates": by_updates,
        "by the clock": by_clock,
        **{f"by error, patience {patience:g}": by_error(patience) for patience in patiences},
    }


def truth_of(settings: Settings) -> Truth:
    """The true bound and times: those of the bound's own experiment."""
    own = bounds.Settings(n_workers=settings.n_workers, shard=settings.shard, loads=settings.loads)
    times, loads = response_of(settings), np.asarray(settings.loads, np.float64)
    return Truth(
        bounds.bound_of(own),
        times,
        stragglers.completion_table(times, loads),
        loads,
        bounds.target_of(own, settings.samples),
    )


def response_of(
    settings: Settings, communication: float = 1.0, computation: float = 1.0
) -> stragglers.Response:
    """Exponential times, means 1 to communicate and 1 to compute a shard, each times a factor."""
    return stragglers.response(
        compute=clocks.exponential(computation / settings.shard),
        communicate=clocks.exponential(communication),
        scaling="scale",
        n_workers=settings.n_workers,
    )


def believed(
    settings: Settings, truth: Truth, constant: str, factor: float, *, target: float = NOWHERE
) -> stragglers.Plan:
    """Makes the plan of someone who takes one constant for `factor` times what it is.

    Args:
        settings: What is run.
        truth: The true constants.
        constant: A name of `CONSTANTS`.
        factor: Believed over true.
        target: Where the plan stops; by default it goes on to the least floor.
    """
    bound, times, field = truth.bound, truth.times, CONSTANTS[constant]
    if field:
        bound = replace(bound, **{field: factor * getattr(bound, field)})
    else:
        factors = (factor, 1.0) if constant.endswith("communication") else (1.0, factor)
        times = response_of(settings, *factors)
    return bounds.plan_anyway(times, bound, load=settings.loads, target=target)


def on_bound(
    settings: Settings, truth: Truth
) -> dict[tuple[str, float], dict[str, dict[str, float]]]:
    """Costs of all plans on the true bound, by (constant, factor) and switch.

    Returns:
        First those with the right constants, under the factor 1. The switch "stops at its target"
        is a plan whose last stage is the one in which it believes to be at the target; all others
        go on to the least floor of the menu.
    """
    cases = [(RIGHT, 1.0)]
    for constant in CONSTANTS:
        own = constant == "strong convexity"
        cases += [
            (constant, factor)
            for factor in (settings.convexity_factors if own else settings.factors)
        ]
    found = {}
    for constant, factor in cases:
        name = "strong convexity" if constant == RIGHT else constant
        stops = believed(settings, truth, name, factor, target=truth.target)
        goes_on = believed(settings, truth, name, factor)
        found[constant, factor] = {
            "stops at its target": walk(truth, stops, by_updates),
            **{
                switch: walk(truth, goes_on, rule)
                for switch, rule in switches_of(*settings.patiences).items()
            },
        }
    return found


def sweep(
    settings: Settings, truth: Truth, factors: np.ndarray
) -> dict[str, dict[str, np.ndarray]]:
    """Times over the best for every believed factor, by switch and constant; float64[F] each."""
    same = ("smoothness", "mean of computation")  # as the variance, and nearly as communication
    names = [name for name in CONSTANTS if name not in same]
    plans = {
        name: [believed(settings, truth, name, float(factor)) for factor in factors]
        for name in names
    }
    best = believed(settings, truth, "strong convexity", 1.0)
    least = walk(truth, best, by_updates)["time"]
    return {
        switch: {
            name: np.array([walk(truth, plan, rule)["time"] / least for plan in several])
            for name, several in plans.items()
        }
        for switch, rule in switches_of(1.5, 4.0).items()
        if rule is not by_clock
    }
