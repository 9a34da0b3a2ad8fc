"""Placed jobs trained: traces on schedules, curves of several steps at once."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import problems, simulation, traces
from experiments.joint.arms import DRAWN, order_of
from experiments.joint.placed.arms import CREW, PURE, ROUNDS, TABLE, Arm, optimizer_of
from experiments.joint.placed.rounds import alike, rounds_of
from experiments.joint.placed.sites import SHARDS, Site, crew_shuffled
from experiments.joint.training import WORST, Curves
from experiments.joint.worlds import World


class Training:
    """All runs of some jobs, whose traces are made once and share programs.

    Args:
        arms: All that will ever be run.
        worlds: What each job trains.
        sites: Where, by scheduler.
        records: Points of a curve, about.
        lanes: Step sizes that are run side by side, whatever is asked for.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        worlds: Sequence[World],
        sites: Sequence[dict[str, Site]],
        records: int,
        lanes: int,
    ) -> None:
        self.schedulers: dict[str, list[str]] = {}
        for arm in arms:
            names = self.schedulers.setdefault(arm.asked, [])
            names += [arm.scheduler] * (arm.scheduler not in names)
        self.worlds, self.sites = tuple(worlds), tuple(sites)
        self.records, self.lanes = records, lanes
        self.length = lru_cache(maxsize=None)(self._length)
        self.plans = lru_cache(maxsize=None)(self._plans)
        self.rounds = lru_cache(maxsize=None)(self._rounds)
        self.shuffled = lru_cache(maxsize=None)(self._shuffled)
        self._kept: dict[tuple[Arm, int, int, int, float], np.ndarray] = {}

    def trace(
        self, asked: str, load: int, number: int, scheduler: str, n_updates: int
    ) -> traces.EventTrace:
        """The trace of job `number` without rounds, with so many updates."""
        site = self.sites[number][scheduler]
        key = jax.random.key(self.worlds[number].noise)
        rule = partial(traces.asynchronous, site.clock, load=float(load), key=key)
        if asked == TABLE:
            rule = partial(rule, collect=traces.table())
        elif asked == CREW:
            rule = partial(rule, dispatch=self.shuffled(number, scheduler))
        return rule(n_updates=n_updates)

    def _shuffled(self, number: int, scheduler: str) -> traces.Dispatch:
        """Shuffled dispatch of job `number` over its crews."""
        site = self.sites[number][scheduler]
        limit = 2 * self.length(PURE, 1) + SHARDS
        return crew_shuffled(site, self.worlds[number].noise, limit)

    def _length(self, asked: str, load: int) -> int:
        """The most updates within the budget, of all jobs and schedulers."""
        names = self.schedulers.get(asked, list(self.sites[0]))
        every = [(at, name) for at in range(len(self.sites)) for name in names]
        expected = max(self.sites[at][name].expected(load) for at, name in every)
        most = 0
        for at, name in every:
            made = self.trace(asked, load, at, name, n_updates=int(1.3 * expected))
            within = np.asarray(made.time) <= self.sites[at][name].budget
            most = max(most, int((np.asarray(made.steps) & within).sum()))
        return most

    def _plans(
        self, asked: str, k: int, load: int, scheduler: str
    ) -> tuple[simulation.ReplayPlan, ...]:
        """A plan for each job, with equally many updates, all beyond its budget."""
        if asked == ROUNDS:
            made = self.rounds(k, load)[scheduler]
            most = made[0].n_updates
        else:
            most = self.length(asked, load)
            made = [
                self.trace(asked, load, number, scheduler, n_updates=most + 1)
                for number in range(len(self.worlds))
            ]
        every = max(1, most // self.records)
        return tuple(simulation.plan(own, record_every=every, width=1) for own in made)

    def _rounds(self, k: int, load: int) -> dict[str, list[traces.EventTrace]]:
        """Traces of rounds by scheduler, all of one length."""
        names = self.schedulers[ROUNDS]
        made = alike(
            [
                rounds_of(sites[name], k, load, world.noise)
                for name in names
                for world, sites in zip(self.worlds, self.sites, strict=True)
            ]
        )
        count = len(self.worlds)
        return {name: made[at * count : (at + 1) * count] for at, name in enumerate(names)}

    def curves(
        self, arm: Arm, setting: tuple[int, int], number: int, step_sizes: Sequence[float]
    ) -> Curves:
        """What an arm does for job `number` with some step sizes; each is run once."""
        steps = [float(step) for step in step_sizes]
        known = (arm, number, *setting)
        new = [step for step in dict.fromkeys(steps) if (*known, step) not in self._kept]
        for first in range(0, len(new), self.lanes):
            part = new[first : first + self.lanes]
            filled = [*part, *part[-1:] * (self.lanes - len(part))]
            for step, gap in zip(part, self._run(arm, setting, number, filled), strict=False):
                self._kept[*known, step] = gap
        gap = np.stack([self._kept[*known, step] for step in steps])
        return Curves(self._times(arm, setting, number), gap)

    def _times(self, arm: Arm, setting: tuple[int, int], number: int) -> np.ndarray:
        plan = self.plans(arm.asked, *setting, arm.scheduler)[number]
        made = np.asarray(plan.trace.time)[np.flatnonzero(plan.trace.steps)[plan.records - 1]]
        return made[made <= self.sites[number][arm.scheduler].budget]

    def _run(
        self, arm: Arm, setting: tuple[int, int], number: int, step_sizes: Sequence[float]
    ) -> np.ndarray:
        """Shares of the way that are left, float64[G, R]."""
        load = setting[1]
        world, plan = self.worlds[number], self.plans(arm.asked, *setting, arm.scheduler)[number]
        batch = problems.uniform if arm.rows == DRAWN else problems.cyclic
        problem = world.made(batch(load))
        order = order_of(arm.rows, SHARDS, world.units // load, world.dim)
        optimizer = optimizer_of(arm.steps)
        first: Any = optimizer.init(problem.params)
        key = jax.random.key(world.noise)

        def losses(step_size: jax.Array) -> jax.Array:
            state = first._replace(hyperparams={"step_size": step_size})
            run = simulation.replay(
                problem, plan, optimizer, order=order, key=key, opt_state=state, waves=False
            )
            return run.records.loss

        loss = np.asarray(jax.vmap(losses)(jnp.asarray(step_sizes, jnp.float32)), float)
        loss = loss[:, : len(self._times(arm, setting, number))]
        gap = (loss - world.least) / (world.start - world.least)
        return np.where(np.isfinite(gap), np.minimum(gap, WORST), WORST)
