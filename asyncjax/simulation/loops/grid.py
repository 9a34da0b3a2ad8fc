"""The compiled loop of a sweep: all keys and step sizes go through the waves side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from asyncjax.problems import Problem
from asyncjax.simulation.loops.flat import flattened
from asyncjax.simulation.loops.loop import Loop, Progress, progress_at
from asyncjax.simulation.loops.server import Replayed
from asyncjax.simulation.loops.waves import ByWave, WaveInputs
from asyncjax.simulation.plans.plan import ReplayPlan
from asyncjax.simulation.plans.program import Program, stacked_axes


class GridInputs(NamedTuple):
    """What a sweep is given."""

    program: Program  # of one trace, or stacked: of one a key
    keys: jax.Array  # [S]
    steps: jax.Array  # float[G]


def grid_loop(plans: Sequence[ReplayPlan], kind: "ByGrid", given: GridInputs) -> Loop:
    """The sweep over some plans of equally many updates."""

    def progress(wave: int, _: Any) -> Progress:
        at = [(int(np.searchsorted(plan.waves.update_wave, wave)), plan) for plan in plans]
        updates, plan = min(at, key=lambda one: one[0])
        return progress_at(plan, updates)

    return Loop(kind, given, int(given.program.n_waves), progress)


@dataclass(frozen=True)
class ByGrid:
    """A sweep, whose turns are waves; states and outcomes have leading axes [S, G]."""

    optimizer: Callable[[Any], optax.GradientTransformation]  # of a step size

    def begin(self, problem: Problem, given: GridInputs) -> Any:
        """The first states."""

        def one(kind: ByWave, flat: Problem, own: WaveInputs, _: Any) -> Any:
            return kind.begin(flat, own)

        return self._over(one, problem, given)

    def advance(
        self, problem: Problem, given: GridInputs, state: Any, first: Any, last: Any
    ) -> Any:
        """Runs waves."""

        def one(kind: ByWave, flat: Problem, own: WaveInputs, before: Any) -> Any:
            return kind.advance(flat, own, before, first, last)

        return self._over(one, problem, given, state)

    def measure(self, problem: Problem, given: GridInputs, state: Any) -> Replayed:
        """Judges the recorded models."""
        restored = flattened(problem, optax.identity())[2]

        def one(kind: ByWave, flat: Problem, own: WaveInputs, done: Any) -> Replayed:
            replayed = kind.measure(flat, own, done)
            return replayed._replace(params=restored(replayed.params))

        return self._over(one, problem, given, state)

    def _over(
        self, one: Callable[..., Any], problem: Problem, given: GridInputs, state: Any = None
    ) -> Any:
        """Applies `one(kind, problem, inputs, state)` to every key and step size."""

        def single(program: Program, key: jax.Array, step: jax.Array, own: Any) -> Any:
            flat, rule, _ = flattened(problem, self.optimizer(step))
            return one(ByWave(rule), flat, WaveInputs(program, key, None), own)

        over_steps = jax.vmap(single, in_axes=(None, None, 0, 0))
        axes = stacked_axes(given.program) if given.program.sizes.masked else None
        over_keys = jax.vmap(over_steps, in_axes=(axes, 0, None, 0))
        return over_keys(given.program, given.keys, given.steps, state)
