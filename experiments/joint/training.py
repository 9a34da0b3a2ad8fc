"""Arms on worlds: curves of several steps at once, tuned for each target, run on two sets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks, problems, simulation, traces
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds, seeds_of, time_to
from asyncjax.study.search import Settings as Setting
from asyncjax.study.search import Tuned, tune
from experiments.common.kept_rows import once
from experiments.common.replays import losses_of, recorded
from experiments.joint.arms import DRAWN, SHUFFLED, STEP, SYNCHRONOUS, Arm, optimizer_of, order_of
from experiments.joint.worlds import World

TOGETHER = 5  # records whose mean must be at a target: one that dips is not there
LATE = 0.1  # share of the horizon, at its end, whose mean is the last gap
WORST = 1e6  # times the first gap: a run that diverged
END = "end"  # tuned for the last gap, and not for the time to a level
SETS = {"A": SET_A, "B": SET_B}


Plans = Callable[[str], tuple[simulation.ReplayPlan, ...]]  # by whom the server asks
Settings = Any  # of a part: `base` of seeds, counts `tuning`, `instances`, `trials`, `rounds`


def at_least(settings: Settings, **bounds: int) -> None:
    """Refuses counts that are too small.

    Raises:
        ValueError: One is below its bound.
    """
    for name, bound in bounds.items():
        if getattr(settings, name) < bound:
            raise ValueError(f"{name} must be at least {bound}, got {getattr(settings, name)}")


def in_turn(settings: Settings, made: Mapping[str, Callable[[], pd.DataFrame]]) -> pd.DataFrame:
    """The rows of all that is run, by its name; what was run before is read."""
    found = []
    for name, make in made.items():
        print(name, end=" ", flush=True)
        found.append(once(settings.output / "cells", make))
        print(flush=True)
    return pd.concat(found, ignore_index=True)


def drawn(settings: Settings) -> list[Seeds]:
    """All instances: those that are tuned on, then both sets."""
    counts = {TUNING: settings.tuning, SET_A: settings.instances, SET_B: settings.instances}
    return [one for role, count in counts.items() for one in seeds_of(settings.base, role, count)]


@dataclass(frozen=True, eq=False)
class Curves:
    """What an arm did in a world; G step sizes, R records."""

    time: np.ndarray  # float64[R], up to the horizon
    gap: np.ndarray  # float64[G, R], share of the way that is left: 1 at the start, 0 at the least

    @property
    def last(self) -> np.ndarray:
        """Mean over the last tenth of the horizon, float64[G]."""
        return self.gap[:, self.time > (1 - LATE) * self.time[-1]].mean(axis=1)

    def reached(self, level: float) -> np.ndarray:
        """First time at which the mean of some records has so much of the way behind, [G]."""
        return np.array([time_to(self.time, own, 1 - level) for own in self.steady])

    @property
    def steady(self) -> np.ndarray:
        """Mean of each record and those before it, float64[G, R]; inf where there are too few."""
        sums = np.cumsum(np.pad(self.gap, ((0, 0), (1, 0))), axis=1)
        mean = (sums[:, TOGETHER:] - sums[:, :-TOGETHER]) / TOGETHER
        return np.pad(mean, ((0, 0), (TOGETHER - 1, 0)), constant_values=np.inf)

    def scores(self, goal: str, horizon: float) -> np.ndarray:
        """What tuning makes small, float64[G].

        Formula: `log(min(T, H) / H) + max(0, log(lowest gap / target))`, T the time to a level; or,
        for the end, the log of the last gap.
        """
        if goal == END:
            return np.log(np.maximum(self.last, 1e-12))
        least = np.maximum(self.steady.min(axis=1), 1e-12)
        missed = np.maximum(np.log(least / (1 - float(goal))), 0.0)
        return np.log(np.minimum(self.reached(float(goal)), horizon) / horizon) + missed


@dataclass(frozen=True, eq=False)
class Training:
    """All runs of some worlds, each made once; runs of an arm share a program.

    Attributes:
        worlds: All that will ever be run.
        plan: `(arm, setting, number) -> plan` of world `number`; all of an arm's are alike.
        until: `(arm, number) -> time` that is watched.
        lanes: Step sizes that are run side by side, whatever is asked for.
    """

    worlds: Sequence[World]
    plan: Callable[[Arm, tuple[int, int], int], simulation.ReplayPlan]
    until: Callable[[Arm, int], float]
    lanes: int
    _kept: dict[Any, np.ndarray] = field(default_factory=dict, init=False)
    _problems: dict[Any, problems.Problem] = field(default_factory=dict, init=False)

    def curves(
        self, arm: Arm, setting: tuple[int, int], number: int, step_sizes: Sequence[float]
    ) -> Curves:
        """What an arm does in world `number` with some step sizes; each is run once."""
        steps, kept = [float(step) for step in step_sizes], self._kept
        known = (arm, setting, number)
        plan = self.plan(*known)
        time = recorded(plan)
        time = time[time <= self.until(arm, number)]
        new = [step for step in dict.fromkeys(steps) if (*known, step) not in kept]
        for first in range(0, len(new), self.lanes):
            part = new[first : first + self.lanes]
            filled = [*part, *part[-1:] * (self.lanes - len(part))]
            gaps = self._run(arm, setting[1], number, plan, filled)[:, : len(time)]
            kept.update({(*known, step): gap for step, gap in zip(part, gaps, strict=False)})
        return Curves(time, np.stack([kept[*known, step] for step in steps]))

    def _problem(self, number: int, drawn: bool, load: int) -> problems.Problem:
        known, world = (number, drawn, load), self.worlds[number]
        if known not in self._problems:
            batch = (problems.uniform if drawn else problems.cyclic)(world.batch * load)
            self._problems[known] = world.made(batch)
        return self._problems[known]

    def _run(
        self, arm: Arm, load: int, number: int, plan: simulation.ReplayPlan, steps: Sequence[float]
    ) -> np.ndarray:
        """Shares of the way that are left, float64[G, R]."""
        world, problem = self.worlds[number], self._problem(number, arm.rows == DRAWN, load)
        dim = sum(leaf.size for leaf in jax.tree.leaves(problem.params))
        loss = losses_of(
            problem,
            plan,
            optimizer_of(arm.steps, world.n_workers),
            steps,
            order=order_of(arm.rows, world.n_workers, world.units // load, dim),
            key=jax.random.key(world.noise),
            waves=False,
        )
        gap = (loss - world.least) / (world.start - world.least)
        return np.where(np.isfinite(gap), np.minimum(gap, WORST), WORST)


def watched(crews: Sequence[tuple[clocks.Clock, int]], horizon: float, records: int) -> Plans:
    """Makes plans by whom the server asks: one a crew, with equally many updates, all beyond.

    Args:
        crews: A clock, and the seed of all times.
        horizon: Beyond which all plans go.
        records: Points of a curve, about.
    """

    def trace(asked: str, clock: clocks.Clock, noise: int, **length: Any) -> traces.EventTrace:
        key = jax.random.key(noise)
        if asked == SYNCHRONOUS:
            return traces.synchronous(clock, k=clock.n_workers, key=key, **length)
        dispatch = traces.shuffled() if asked == SHUFFLED else traces.to_deliverer()
        return traces.asynchronous(clock, dispatch=dispatch, key=key, **length)

    @cache
    def plans(asked: str) -> tuple[simulation.ReplayPlan, ...]:
        most = max(trace(asked, *crew, until=horizon).n_updates for crew in crews)
        every = max(1, most // records)
        made = [trace(asked, *crew, n_updates=most + 1) for crew in crews]
        return tuple(simulation.plan(own, record_every=every, width=1) for own in made)

    return plans


def within(plans: Sequence[simulation.ReplayPlan], horizon: float) -> int:
    """The most gradients that a run computes within the horizon."""
    return max(int((np.asarray(plan.trace.time) <= horizon).sum()) for plan in plans)


def measured(
    training: Training,
    arms: Sequence[Arm],
    goals: Sequence[str],
    settings: Settings,
    horizon: float,
    gradients: Callable[[Arm], int],
) -> Iterator[tuple[Arm, int, dict[str, Any]]]:
    """Tunes all arms for each goal and runs them on both sets.

    Args:
        training: The first `settings.tuning` of its worlds are tuned on.
        arms: What is compared.
        goals: Levels, and `END`, each with settings of its own.
        settings: Of the part.
        horizon: Time that is watched, at which times are cut.
        gradients: Of a trial on an instance.

    Yields:
        The arm, the number of the world, and a row: the time to a level or the last gap.
    """
    found = tuned(training, arms, goals, settings, horizon, max(map(gradients, arms)))
    for arm in arms:
        best = {goal: found[f"{arm.name} | {goal}"].best.settings for goal in goals}
        for place in range(2 * settings.instances):
            number = settings.tuning + place
            for goal in goals:
                own = found[f"{arm.name} | {goal}"]
                yield (
                    arm,
                    number,
                    {
                        "set": list(SETS)[place // settings.instances],
                        "instance": place % settings.instances,
                        "method": arm.name,
                        "tuned_for": goal,
                        **best[goal],
                        "value": reached(training, arm, best, goal, number),
                        "horizon": np.inf if goal == END else horizon,
                        "trials": len(own.trials),
                        "tuning_gradients": gradients(arm) * settings.tuning * len(own.trials),
                        "at_edge": bool(own.edges),
                    },
                )


def reached(
    training: Training, arm: Arm, best: Mapping[str, Setting], goal: str, number: int
) -> float:
    """The time to a level, or the last gap, at the settings tuned for it."""
    setting = arm.setting(best[goal])
    same = [own[STEP] for own in best.values() if arm.setting(own) == setting]
    curves = training.curves(arm, setting, number, same)
    place = same.index(best[goal][STEP])
    return float(curves.last[place] if goal == END else curves.reached(float(goal))[place])


def tuned(
    training: Training,
    arms: Sequence[Arm],
    goals: Sequence[str],
    settings: Settings,
    horizon: float,
    gradients: int,
) -> dict[str, Tuned]:
    """Searches all knobs of each arm for each goal."""
    by_name = {arm.name: arm for arm in arms}
    spaces = {f"{arm.name} | {goal}": arm.space for goal in goals for arm in arms}

    def evaluate(name: str, tried: Sequence[Setting], gradients: int) -> list[float]:
        del gradients  # as many as there is time for
        arm, goal = by_name[name.split(" | ")[0]], name.split(" | ")[1]
        scores, asked = np.empty(len(tried)), [arm.setting(one) for one in tried]
        for setting in dict.fromkeys(asked):
            picked = [at for at, own in enumerate(asked) if own == setting]
            steps = [tried[at][STEP] for at in picked]
            found = [
                training.curves(arm, setting, number, steps).scores(goal, horizon)
                for number in range(settings.tuning)
            ]
            scores[picked] = np.mean(found, axis=0)
        print(".", end="", flush=True)
        return scores.tolist()

    return tune(
        spaces,
        evaluate,
        trials=settings.trials,
        gradients=gradients * settings.tuning,
        seed=settings.base,
        rounds=settings.rounds,
    )
