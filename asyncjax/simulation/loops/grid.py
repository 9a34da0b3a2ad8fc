"""The compiled loop of a sweep: keys and step sizes side by side, or one after the other.

    runs [S, G]  over a mesh of D = a b devices:  device (i, j) has the i-th of a equal parts of the
                 seeds and the j-th of b parts of the step sizes, and nothing travels

What does not divide evenly is padded by repeats of the last seed or step size. Side by side is a
vmap, where every run waits for the longest. One after the other is a loop over the runs of a
device, at once each of them from beginning to end; in pieces all runs go through the same waves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from asyncjax.problems import Problem
from asyncjax.simulation.hosts import placed
from asyncjax.simulation.loops.flat import SMALL_ALONE, SMALL_IN_SWEEPS, flattened
from asyncjax.simulation.loops.loop import Loop, Placed, Progress, progress_at
from asyncjax.simulation.loops.placement import everywhere_on, grid_parts, padded
from asyncjax.simulation.loops.server import ReplayResult
from asyncjax.simulation.loops.waves import ByWave, WaveInputs
from asyncjax.simulation.plans.plan import ReplayPlan
from asyncjax.simulation.plans.program import Program, stacked_axes
from asyncjax.simulation.plans.update import update_of

_AXES = ("seeds", "steps")


class GridInputs(NamedTuple):
    """What a sweep is given."""

    program: Program  # of one trace, or stacked: of one a key
    keys: jax.Array  # [S]
    steps: jax.Array  # float[G]


def grid_loop(
    plans: Sequence[ReplayPlan], kind: ByGrid, given: GridInputs, mesh: Mesh | None = None
) -> Loop:
    """The sweep over some plans, on one device or over a mesh."""

    def progress(wave: int, _: Any) -> Progress:
        at = [(int(np.searchsorted(plan.waves.update_wave, wave)), plan) for plan in plans]
        # Among those that are equally far, at the end all of them, the longest.
        updates, plan = min(at, key=lambda one: (one[0] / one[1].n_updates, -one[1].n_updates))
        return progress_at(plan, updates)

    placed = None if mesh is None else _placed(kind, given, mesh)
    return Loop(kind, given, int(np.max(given.program.n_waves)), progress, placed)


def _placed(kind: ByGrid, given: GridInputs, mesh: Mesh) -> Placed:
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
    if _is_stacked(program):
        of_program = jax.tree.map(
            lambda axis: PartitionSpec() if axis is None else seeds,
            stacked_axes(program),
            is_leaf=lambda axis: axis is None,
        )
    return GridInputs(of_program, seeds, steps)


def _is_stacked(program: Program) -> bool:
    """Whether every key has a plan of its own."""
    return np.ndim(program.worker) > 2


@dataclass(frozen=True)
class ByGrid:
    """A sweep, whose turns are waves; states and outcomes have leading axes [S, G]."""

    optimizer: Callable[[Any], Any]  # of a step size, or an `Update`
    mesh: Mesh | None = None  # of axes "seeds" and "steps"; None: one device
    together: bool = True  # runs go side by side

    def init(self, problem: Problem, given: GridInputs) -> Any:
        """The first states."""

        def one(kind: ByWave, flat: Problem, own: WaveInputs, _: Any) -> Any:
            return kind.init(flat, own)

        return self._over(one, problem, given)

    def step(self, problem: Problem, given: GridInputs, state: Any, first: Any, last: Any) -> Any:
        """Runs waves."""

        def one(kind: ByWave, flat: Problem, own: WaveInputs, before: Any) -> Any:
            if last is None or self.together:
                return kind.step(flat, own, before, first, last)
            end = jnp.minimum(last, own.program.n_waves)
            return kind.step(flat, own, before, first, end)

        return self._over(one, problem, given, state, moves=True)

    def finalize(self, problem: Problem, given: GridInputs, state: Any) -> ReplayResult:
        """Judges the recorded models."""
        return self._over(self._measured(problem), problem, given, state)

    def at_once(self, problem: Problem, given: GridInputs, first: Any) -> ReplayResult:
        """The whole sweep; where runs go one after the other, the state of one at a time."""
        if self.together:
            state = self.step(problem, given, self.init(problem, given), first, None)
            return self.finalize(problem, given, state)
        measured = self._measured(problem)

        def one(kind: ByWave, flat: Problem, own: WaveInputs, _: Any) -> ReplayResult:
            state = kind.step(flat, own, kind.init(flat, own), first, None)
            return measured(kind, flat, own, state)

        return self._over(one, problem, given)

    def _measured(self, problem: Problem) -> Callable[..., ReplayResult]:
        """What judges one run; its params are the caller's tree."""
        restored = flattened(problem, optax.identity(), self._small)[2]

        def one(kind: ByWave, flat: Problem, own: WaveInputs, done: Any) -> ReplayResult:
            replayed = kind.finalize(flat, own, done)
            return replayed._replace(params=restored(replayed.params))

        return one

    @property
    def _small(self) -> int:
        """Parameters from which on a model is no flat vector."""
        return SMALL_IN_SWEEPS if self.together else SMALL_ALONE

    def _over(
        self,
        one: Callable[..., Any],
        problem: Problem,
        given: GridInputs,
        state: Any = None,
        *,
        moves: bool = False,
    ) -> Any:
        """Applies `one(kind, problem, inputs, state)` to every key and step size.

        `moves`: what it returns takes the place of the state.
        """

        def single(
            problem: Problem, program: Program, key: jax.Array, step: jax.Array, own: Any
        ) -> Any:
            update = update_of(self.optimizer(step))
            flat, rule, restored = flattened(problem, update.optimizer, self._small)
            if flat is not problem:
                update = update.flat(rule, restored)
            return one(ByWave(update), flat, WaveInputs(program, key, None), own)

        if self.together:
            over_steps = jax.vmap(single, in_axes=(None, None, None, 0, 0))
            axes = stacked_axes(given.program) if _is_stacked(given.program) else None
            over_all = jax.vmap(over_steps, in_axes=(None, axes, 0, None, 0))
        else:
            over_all = partial(_one_by_one, single, moves)
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


def _one_by_one(
    single: Callable[..., Any],
    moves: bool,
    problem: Problem,
    program: Program,
    keys: jax.Array,
    steps: jax.Array,
    state: Any,
) -> Any:
    """`single` of every run, one after the other; a state that moves is changed in place."""
    shape, stacked = (len(keys), len(steps)), _is_stacked(program)
    rows = jax.tree.map(lambda leaf: leaf.reshape(math.prod(shape), *leaf.shape[2:]), state)

    def at(tree: Any, number: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[number], tree)

    def of(number: jax.Array, rows: Any) -> Any:
        seed, step = number // shape[1], number % shape[1]
        own = at(program, seed) if stacked else program
        return single(problem, own, keys[seed], steps[step], at(rows, number))

    def put(number: jax.Array, rows: Any) -> Any:
        moved = of(number, rows)
        return jax.tree.map(lambda leaf, new: leaf.at[number].set(new), rows, moved)

    count = math.prod(shape)
    if moves:
        rows = jax.lax.fori_loop(0, count, put, rows)
    else:
        rows = jax.lax.map(partial(of, rows=rows), jnp.arange(count))
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), rows)
