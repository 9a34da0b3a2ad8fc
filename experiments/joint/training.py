"""Arms on worlds: curves of all step sizes at once, times to targets, scores for tuning."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import simulation
from asyncjax.study.protocol import time_to
from experiments.joint.arms import DRAWN, Arm, optimizer_of, order_of
from experiments.joint.worlds import World

TOGETHER = 5  # records whose mean must be at a target: one that dips is not there
LATE = 0.1  # share of the horizon, at its end, whose mean is the last gap
WORST = 1e6  # times the first gap: a run that diverged


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

    def scores(self, level: float | None, horizon: float) -> np.ndarray:
        """What tuning makes small, float64[G].

        Formula: `log(min(T, H) / H) + max(0, log(lowest gap / target))`, T the time to a level; or,
        with no level, the log of the last gap.
        """
        if level is None:
            return np.log(np.maximum(self.last, 1e-12))
        least = np.maximum(self.steady.min(axis=1), 1e-12)
        missed = np.maximum(np.log(least / (1 - level)), 0.0)
        return np.log(np.minimum(self.reached(level), horizon) / horizon) + missed


class Training:
    """All runs of some worlds of one scene, whose traces are made once and share programs.

    Args:
        worlds: All that will ever be run.
        horizon: Time that is watched.
        records: Points of a curve, about.
        lanes: Step sizes that are run side by side; whatever is asked for, so that all runs of an
            arm share a program.
        like: Of worlds with the same clocks and noise, whose plans are taken; None: made here.
    """

    def __init__(
        self,
        worlds: Sequence[World],
        horizon: float,
        records: int,
        lanes: int,
        like: "Training | None" = None,
    ) -> None:
        self.worlds, self.horizon = tuple(worlds), horizon
        self.records, self.lanes = records, lanes
        self.plans = lru_cache(maxsize=None)(self._plans) if like is None else like.plans
        self._kept: dict[tuple[Arm, int, float], np.ndarray] = {}

    def _plans(self, asked: str) -> tuple[simulation.ReplayPlan, ...]:
        """A plan for each world, with equally many updates, all beyond the horizon."""
        arm = Arm(asked, DRAWN)
        keys = [jax.random.key(world.noise) for world in self.worlds]
        pairs = list(zip(self.worlds, keys, strict=True))
        most = max(
            arm.trace(world.clock, key, until=self.horizon, n_updates=None).n_updates
            for world, key in pairs
        )
        every = max(1, most // self.records)
        made = [arm.trace(world.clock, key, until=None, n_updates=most + 1) for world, key in pairs]
        return tuple(simulation.plan(trace, record_every=every, width=1) for trace in made)

    def gradients(self, arm: Arm) -> int:
        """The most that a run of an arm computes within the horizon."""
        plans = self.plans(arm.asked)
        return max(int((np.asarray(own.trace.time) <= self.horizon).sum()) for own in plans)

    def curves(self, arm: Arm, number: int, step_sizes: Sequence[float]) -> Curves:
        """What an arm does in world `number` with some step sizes; each is run once."""
        steps = [float(step) for step in step_sizes]
        new = [step for step in dict.fromkeys(steps) if (arm, number, step) not in self._kept]
        for first in range(0, len(new), self.lanes):
            part = new[first : first + self.lanes]
            gaps = self._run(arm, number, [*part, *part[-1:] * (self.lanes - len(part))])
            for step, gap in zip(part, gaps, strict=False):
                self._kept[arm, number, step] = gap
        gap = np.stack([self._kept[arm, number, step] for step in steps])
        return Curves(self._times(arm, number), gap)

    def _times(self, arm: Arm, number: int) -> np.ndarray:
        plan = self.plans(arm.asked)[number]
        made = np.asarray(plan.trace.time)[np.flatnonzero(plan.trace.steps)[plan.records - 1]]
        return made[made <= self.horizon]

    def _run(self, arm: Arm, number: int, step_sizes: Sequence[float]) -> np.ndarray:
        """Shares of the way that are left, float64[G, R]."""
        world, plan = self.worlds[number], self.plans(arm.asked)[number]
        problem = world.drawn if arm.rows == DRAWN else world.in_units
        order = order_of(arm.rows, world.n_workers, world.units, world.dim)
        optimizer = optimizer_of(arm, world.n_workers)
        first: Any = optimizer.init(problem.params)
        key = jax.random.key(world.noise)

        def losses(step_size: jax.Array) -> jax.Array:
            state = first._replace(hyperparams={"step_size": step_size})
            run = simulation.replay(
                problem, plan, optimizer, order=order, key=key, opt_state=state, waves=False
            )
            return run.records.loss

        loss = np.asarray(jax.vmap(losses)(jnp.asarray(step_sizes, jnp.float32)), float)
        loss = loss[:, : len(self._times(arm, number))]
        gap = (loss - world.least) / (world.start - world.least)
        return np.where(np.isfinite(gap), np.minimum(gap, WORST), WORST)
