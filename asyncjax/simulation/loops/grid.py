"""The compiled loop of a sweep: all keys and step sizes go through the waves side by side.

    runs [S, G]  over a mesh of D = a b devices:  device (i, j) has the i-th of a equal parts of the
                 seeds and the j-th of b parts of the step sizes, and nothing travels

What does not divide evenly is padded by repeats of the last seed or step size.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from asyncjax.problems import Problem
from asyncjax.simulation.loops.flat import flattened
from asyncjax.simulation.loops.hosts import placed
from asyncjax.simulation.loops.loop import Loop, Placed, Progress, progress_at
from asyncjax.simulation.loops.placement import everywhere_on, grid_parts, padded
from asyncjax.simulation.loops.server import Replayed
from asyncjax.simulation.loops.waves import ByWave, WaveInputs
from asyncjax.simulation.plans.plan import ReplayPlan
from asyncjax.simulation.plans.program import Program, stacked_axes
from asyncjax.simulation.plans.treatment import UNTREATED, Treatment

_AXES = ("seeds", "steps")


class GridInputs(NamedTuple):
    """What a sweep is given."""

    program: Program  # of one trace, or stacked: of one a key
    keys: jax.Array  # [S]
    steps: jax.Array  # float[G]


def grid_loop(
    plans: Sequence[ReplayPlan], kind: "ByGrid", given: GridInputs, mesh: Mesh | None = None
) -> Loop:
    """The sweep over some plans, on one device or over a mesh."""

    def progress(wave: int, _: Any) -> Progress:
        at = [(int(np.searchsorted(plan.waves.update_wave, wave)), plan) for plan in plans]
        # Among those that are equally far, at the end all of them, the longest.
        updates, plan = min(at, key=lambda one: (one[0] / one[1].n_updates, -one[1].n_updates))
        return progress_at(plan, updates)

    placed = None if mesh is None else _placed(kind, given, mesh)
    return Loop(kind, given, int(given.program.n_waves), progress, placed)


def _placed(kind: "ByGrid", given: GridInputs, mesh: Mesh) -> Placed:
    """The sweep over a mesh, its runs padded and split."""
    parts, shares = grid_parts(mesh.size, len(given.keys), len(given.steps))
    split = Mesh(mesh.devices.reshape(parts), _AXES)
    specs = _specs(given.program)
    lengths = dict(zip(_AXES, np.multiply(parts, shares).tolist(), strict=True))

    def filled(spec: PartitionSpec, array: Any) -> Any:
        return array if spec == PartitionSpec() else padded(array, lengths[spec[0]])

    given = jax.tree.map(filled, specs, given)
    places = jax.tree.map(partial(NamedSharding, split), specs)
    given = jax.tree.map(lambda place, part: placed(part, place), places, given)
    return Placed(replace(kind, mesh=split), given, everywhere_on(split))


def most_on_a_device(mesh: Mesh | None, seeds: int, steps: int) -> int:
    """Runs that a device has, at most.

    Example:
        >>> most_on_a_device(None, 3, 5)
        15
    """
    if mesh is None:
        return seeds * steps
    return math.prod(grid_parts(mesh.size, seeds, steps)[1])


def unpadded(runs: Any, seeds: int, steps: int) -> Any:
    """Arrays [S, G, ...] without the runs that a mesh was padded with."""

    def own(leaf: jax.Array) -> jax.Array:
        return leaf if leaf.shape[:2] == (seeds, steps) else leaf[:seeds, :steps]

    return jax.tree.map(own, runs)


def _specs(program: Program) -> Any:
    """How `GridInputs` are split; a prefix of them."""
    of_program: Any = PartitionSpec()
    seeds: Any = PartitionSpec("seeds")
    steps: Any = PartitionSpec("steps")
    if program.sizes.masked:
        of_program = jax.tree.map(
            lambda axis: PartitionSpec() if axis is None else seeds,
            stacked_axes(program),
            is_leaf=lambda axis: axis is None,
        )
    return GridInputs(of_program, seeds, steps)


@dataclass(frozen=True)
class ByGrid:
    """A sweep, whose turns are waves; states and outcomes have leading axes [S, G]."""

    optimizer: Callable[[Any], optax.GradientTransformation]  # of a step size
    mesh: Mesh | None = None  # of axes "seeds" and "steps"; None: one device
    treatment: Treatment = UNTREATED

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

        def single(
            problem: Problem, program: Program, key: jax.Array, step: jax.Array, own: Any
        ) -> Any:
            flat, rule, restored = flattened(problem, self.optimizer(step))
            treatment = self.treatment if flat is problem else self.treatment.flat(restored)
            return one(ByWave(rule, None, treatment), flat, WaveInputs(program, key, None), own)

        over_steps = jax.vmap(single, in_axes=(None, None, None, 0, 0))
        axes = stacked_axes(given.program) if given.program.sizes.masked else None
        over_all = jax.vmap(over_steps, in_axes=(None, axes, 0, None, 0))
        if self.mesh is not None:
            runs = PartitionSpec(*_AXES)
            over_all = jax.shard_map(
                over_all,
                mesh=self.mesh,
                in_specs=(PartitionSpec(), *_specs(given.program), runs),
                out_specs=runs,
                check_vma=False,
            )
        return over_all(problem, *given, state)
