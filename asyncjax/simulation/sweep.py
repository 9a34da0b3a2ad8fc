"""Sweeps: one problem, many step sizes and seeds, in one compiled call.

A plan holds no values, so it is made once a trace; step sizes share it, and seeds with traces of
their own are stacked.

    runs [S, G]  over a mesh of D = a b devices:  device (i, j) has the i-th of a equal parts of the
                 seeds and the j-th of b parts of the step sizes, and nothing travels

What does not divide evenly is padded by repeats of the last seed or step size. Side by side is a
vmap, where every run waits for the longest. One after the other is a loop over the runs of a
device, at once each of them from beginning to end; in pieces all runs go through the same waves.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from asyncjax.checks import within
from asyncjax.problems import Problem
from asyncjax.problems.problem import Model
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Records, Run, Source
from asyncjax.simulation.arguments import (
    Execution,
    check_update,
    check_workers,
    execution_of,
)
from asyncjax.simulation.cpu_rewrites import convolves
from asyncjax.simulation.engine import (
    SMALL_ALONE,
    SMALL_IN_SWEEPS,
    Metrics,
    Replay,
    ReplayInputs,
    ReplayResult,
    flattened,
)
from asyncjax.simulation.hosts import peers_of, placed
from asyncjax.simulation.loop import Loop, Placed, Progress, progress_at, run
from asyncjax.simulation.memory import check_memory
from asyncjax.simulation.placement import everywhere_on, grid_parts, memory_of, mesh_of, padded
from asyncjax.simulation.plan import ReplayPlan, plan_alike
from asyncjax.simulation.program import (
    Program,
    Sizes,
    check_sizes,
    levelled,
    sizes_of,
    stack,
    stacked_axes,
    wave_program,
)
from asyncjax.simulation.replay import costs_of, records_of, without_scratch
from asyncjax.simulation.update import Update, update_of
from asyncjax.traces import EventTrace

_AXES = ("seeds", "steps")


@explicit
def sweep(
    problem: Problem[Model],
    traces: EventTrace | Sequence[EventTrace],
    update: Callable[[Any], Update | optax.GradientTransformation],
    step_sizes: Any,
    *,
    keys: jax.Array,
    record_every: int | Sequence[int] | None = None,
    width: int | None = None,
    sizes: Callable[[Sizes], Sizes] | None = None,
    together: bool | None = None,
    execution: Execution | None = None,
    mesh: Mesh | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run[Model, Records]:
    """Replays every seed with every step size, in one compiled call.

    Args:
        problem: What is optimised.
        traces: One trace for all seeds, or one a seed. They may differ in their number of updates,
            as those made with `until=` do. Every run is then what its own trace gives alone, to
            rounding; but side by side it takes as long as the longest of them, so traces of which
            one is several times longer than another are better swept with `together=False`, or
            each length in a call of its own.
            Gradients must serve in several updates in all of them or in none.
        update: Makes an optimizer, or an `Update`, from a step size (a traced scalar), such as
            `optax.sgd`.
        step_sizes: float[G], at least 0 and finite.
        keys: Typed keys [S], one a seed.
        record_every: As in `replay`, one for all traces or one a trace. None: by the number of
            updates of each trace.
        width: As in `replay`.
        sizes: Rounds the sizes of the compiled program up, so that sweeps over other traces share
            its compilation: given the sizes that these traces need, returns sizes that hold them.
            The same run, on longer arrays. None: as they are.
        together: True: all runs side by side, under one vmap, each as long as the longest. False:
            one after the other inside the same call, each as long as its own trace, in waves of
            one gradient where `width` is None; at once (without progress and checkpoint) with the
            memory of one run. The same result up to rounding. None: side by side, but on a CPU a
            model with convolutions goes one after the other, since a vmap over kernels makes
            grouped convolutions, which its library does not take: twelve runs of two layers of
            3 x 3 kernels took 1.9 (8 and 16 channels) and 5.6 times (16 and 32) as much of the
            processor side by side; one after the other as much as twelve replays.
        execution: As in `replay`; its limit on memory is for all runs together, on each device of a
            mesh for those that it has. Its progress is that of the replay that has made the
            smallest share of its updates. It has no specs, and tells no rows (`on_record`): these
            are of one run.
        mesh: Short form of the execution's: devices, however they are arranged, over which the runs
            are split: the D devices as a by b, so that a device has the fewest runs, and among
            equals with the largest a; seeds in a parts, step sizes in b. What does not divide is
            padded by repeats of the last seed or step size, which are dropped at the end. The
            problem and a trace common to all seeds are on every device whole, and nothing travels
            between devices. What a device has is, bit for bit, a sweep over its seeds and step
            sizes alone where the compiler makes one program of both. It is the same part of a sweep
            over all on one device, up to rounding, and to the same bits where the compiler adds in
            one order and takes functions such as logarithms in one form, whatever the number of
            runs side by side. It need not: noise of a normal law has been seen 2.4e-7 apart; and a
            network's samples, common to all runs, meet all their models in one product, as wide as
            there are runs, which on a CPU is summed in other blocks: 1e-7 to 1e-5 apart. None: one
            device; or the mesh on which `keys` lie, if they lie on one.
        progress: Short form of the execution's.
        checkpoint: Short form of the execution's.

    Returns:
        A run whose params, states, losses and metrics have leading axes [S, G]; the other
        columns of the records have shape [R] for one trace and [S, 1, R] for several. R is the
        largest number of records of a trace; a run with fewer repeats its own last one to the end,
        time and version included, so curves against time, times to a target and last losses need
        no care, while a mean over seeds at one place r would mix versions. How many are its own:
        `(np.diff(records.version, prepend=-1) > 0).sum(-1)`. With a mesh they stay where they were
        made; if it has devices of several processes, each process gets all of them, in NumPy.

    Example:
        >>> import jax, numpy as np, optax
        >>> from asyncjax import clocks, problems, simulation, traces
        >>> problem = problems.quadratic(np.ones((3, 2)), np.ones((3, 2)))
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=20)
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> run = simulation.sweep(problem, trace, optax.sgd, [0.1, 0.2, 0.4], keys=keys)
        >>> run.records.loss.shape
        (2, 3, 21)

        Traces of equal time, each with as many updates as it makes until then:

        >>> clock = clocks.exponential([1.0, 2.0, 3.0])
        >>> until = [traces.asynchronous(clock, until=10.0, key=key) for key in keys]
        >>> run = simulation.sweep(problem, until, optax.sgd, [0.1], keys=keys, record_every=5)
        >>> [trace.n_updates for trace in until], run.records.version[:, 0].tolist()
        ([15, 23], [[5, 10, 15, 15, 15], [5, 10, 15, 20, 23]])

        Sizes that hold slower and faster workers alike, so that the second sweep compiles nothing:

        >>> from dataclasses import replace
        >>> def common(sizes):
        ...     return replace(sizes, waves=max(sizes.waves, 40), slots=max(sizes.slots, 10))
        >>> for slow in (3.0, 9.0):
        ...     trace = traces.asynchronous(clocks.constant([1.0, 2.0, slow]), n_updates=20)
        ...     run = simulation.sweep(
        ...         problem, trace, optax.sgd, [0.1, 0.2], keys=keys, width=1, sizes=common)
    """
    short = {"mesh": mesh, "progress": progress, "checkpoint": checkpoint}
    execution = execution_of(execution, knows=("mesh", "memory_limit"), **short)
    steps = _step_sizes(step_sizes)
    given = [traces] if isinstance(traces, EventTrace) else traces
    if len(given) not in (1, len(keys)):
        raise ValueError(f"traces must be one trace or one a key ({len(keys)}), got {len(given)}")
    mesh, keys = mesh_of(execution.mesh, keys), peers_of(keys).gathered(keys)
    together = _are_together(problem, together, mesh)
    width = 1 if width is None and not together else width
    keeps = problem.worker_state_of is not None
    plans = plan_alike(given, width=width, record_every=record_every, worker_order=keeps)
    for trace in given:
        check_workers(problem, trace)
    first = update(steps[0])
    check_update(first, problem.params, given)
    common = sizes_of(plans, update_of(first))
    common = common if together else replace(common, masked=False)
    if sizes is not None:
        common = check_sizes(sizes(common), common)
    runs = len(keys) * len(steps)
    if mesh is not None:  # those that a device has, at most
        runs = math.prod(grid_parts(mesh.size, len(keys), len(steps))[1])
    if not together:
        runs = 1 if execution.is_at_once else runs + 1
    arrays = None if mesh is not None else (problem, keys, steps)
    check_memory(memory_of(problem, common, None), runs, execution.memory_limit, arrays)
    program = stack(plans, common) if len(plans) > 1 else wave_program(plans[0], common)
    inputs = SweepInputs(program, keys, steps)
    loop = _loop(plans, Sweep(update, together=together), inputs, mesh)
    done = run(loop, problem, execution.progress, execution.checkpoint)
    done = _unpadded(done, (len(keys), len(steps)))
    return Run(
        done.params,
        done.opt_state,
        _records_of(plans, done.measured, common),
        Source(tuple(each.trace for each in plans), tuple(costs_of(each) for each in plans)),
        arrival_state=done.arrival_state,
        worker_states=without_scratch(done.workers, 2),
        failed=done.failed,
    )


def _are_together(problem: Problem, together: bool | None, mesh: Mesh | None) -> bool:
    """Whether runs go side by side; what is faster, where nothing is said."""
    if together is not None:
        return together
    device = jax.default_backend() if mesh is None else mesh.devices.flat[0].platform
    return device != "cpu" or not convolves(problem)


def _records_of(plans: Sequence[ReplayPlan], measured: Metrics, sizes: Sizes) -> Records:
    """One table of all; a trace with fewer records than another repeats its last one."""
    start, rows = measured.finite.shape[-1] - sizes.records, []
    for plan in plans:
        finite = measured.finite[..., : start + len(plan.records)]
        rows.append(records_of(plan, measured._replace(finite=finite)))
    if len(rows) == 1:
        return rows[0]._replace(finite=measured.finite)

    def host(name: str) -> np.ndarray:
        return np.stack(levelled([getattr(row, name) for row in rows]))[:, None, :]

    return Records(
        **{name: host(name) for name in ("version", "time", "delay", "used", "computed")},
        loss=measured.loss,
        finite=measured.finite,
        metrics=measured.metrics,
    )


def _step_sizes(step_sizes: Any) -> jax.Array:
    """Step sizes float[G]."""
    steps = np.asarray(within("step_sizes", step_sizes, least=0.0))
    if steps.ndim != 1 or not steps.size:
        raise ValueError(f"step_sizes must be a non-empty list of numbers, got shape {steps.shape}")
    return jnp.asarray(steps, jnp.result_type(float))


# The compiled loop.


class SweepInputs(NamedTuple):
    """What a sweep is given."""

    program: Program  # of one trace, or stacked: of one a key
    keys: jax.Array  # [S]
    steps: jax.Array  # float[G]


def _loop(
    plans: Sequence[ReplayPlan], kind: Sweep, given: SweepInputs, mesh: Mesh | None = None
) -> Loop:
    """The sweep over some plans, on one device or over a mesh."""

    def progress(wave: int, _: Any) -> Progress:
        at = [(int(np.searchsorted(plan.waves.update_wave, wave)), plan) for plan in plans]
        # Among those that are equally far, at the end all of them, the longest.
        updates, plan = min(at, key=lambda one: (one[0] / one[1].n_updates, -one[1].n_updates))
        return progress_at(plan, updates)

    placed = None if mesh is None else _placed(kind, given, mesh)
    return Loop(kind, given, int(np.max(given.program.n_turns)), progress, placed)


def _placed(kind: Sweep, given: SweepInputs, mesh: Mesh) -> Placed:
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


def _unpadded(runs: Any, shape: tuple[int, int]) -> Any:
    """Arrays [S, G, ...] without the runs that a mesh was padded with."""

    def cut(leaf: jax.Array) -> jax.Array:
        return leaf if leaf.shape[:2] == shape else leaf[: shape[0], : shape[1]]

    return jax.tree.map(cut, runs)


def _specs(program: Program) -> Any:
    """How `SweepInputs` are split; a prefix of them."""
    of_program: Any = PartitionSpec()
    seeds: Any = PartitionSpec("seeds")
    steps: Any = PartitionSpec("steps")
    if _is_stacked(program):
        of_program = jax.tree.map(
            lambda axis: PartitionSpec() if axis is None else seeds,
            stacked_axes(program),
            is_leaf=lambda axis: axis is None,
        )
    return SweepInputs(of_program, seeds, steps)


def _is_stacked(program: Program) -> bool:
    """Whether every key has a plan of its own."""
    return np.ndim(program.gradients.worker) > 2


@dataclass(frozen=True)
class Sweep:
    """A sweep, whose turns are waves; states and outcomes have leading axes [S, G]."""

    optimizer: Callable[[Any], Any]  # of a step size, or an `Update`
    mesh: Mesh | None = None  # of axes "seeds" and "steps"; None: one device
    together: bool = True  # runs go side by side

    def init(self, problem: Problem, given: SweepInputs) -> Any:
        """The first states."""

        def one(kind: Replay, flat: Problem, inputs: ReplayInputs, _: Any) -> Any:
            return kind.init(flat, inputs)

        return self._over(one, problem, given)

    def step(self, problem: Problem, given: SweepInputs, state: Any, first: Any, last: Any) -> Any:
        """Runs waves."""

        def one(kind: Replay, flat: Problem, inputs: ReplayInputs, before: Any) -> Any:
            if last is None or self.together:
                return kind.step(flat, inputs, before, first, last)
            end = jnp.minimum(last, inputs.program.n_turns)
            return kind.step(flat, inputs, before, first, end)

        return self._over(one, problem, given, state, moves=True)

    def finalize(self, problem: Problem, given: SweepInputs, state: Any) -> ReplayResult:
        """Evaluates the recorded models."""
        return self._over(self._measured(problem), problem, given, state)

    def at_once(self, problem: Problem, given: SweepInputs, first: Any) -> ReplayResult:
        """The whole sweep; where runs go one after the other, the state of one at a time."""
        if self.together:
            state = self.step(problem, given, self.init(problem, given), first, None)
            return self.finalize(problem, given, state)
        measured = self._measured(problem)

        def one(kind: Replay, flat: Problem, inputs: ReplayInputs, _: Any) -> ReplayResult:
            state = kind.step(flat, inputs, kind.init(flat, inputs), first, None)
            return measured(kind, flat, inputs, state)

        return self._over(one, problem, given)

    def _measured(self, problem: Problem) -> Callable[..., ReplayResult]:
        """What evaluates one run; its params are the caller's tree."""
        restored = flattened(problem, Update(optax.identity()), self._small)[2]

        def one(kind: Replay, flat: Problem, inputs: ReplayInputs, done: Any) -> ReplayResult:
            replayed = kind.finalize(flat, inputs, done)
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
        given: SweepInputs,
        state: Any = None,
        *,
        moves: bool = False,
    ) -> Any:
        """Applies `one(kind, problem, inputs, state)` to every key and step size.

        `moves`: what it returns takes the place of the state.
        """

        def single(
            problem: Problem, program: Program, key: jax.Array, step: jax.Array, before: Any
        ) -> Any:
            flat, update, _ = flattened(problem, update_of(self.optimizer(step)), self._small)
            return one(Replay(update), flat, ReplayInputs(program, key), before)

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
        seed_program = at(program, seed) if stacked else program
        return single(problem, seed_program, keys[seed], steps[step], at(rows, number))

    def put(number: jax.Array, rows: Any) -> Any:
        moved = of(number, rows)
        return jax.tree.map(lambda leaf, new: leaf.at[number].set(new), rows, moved)

    count = math.prod(shape)
    if moves:
        rows = jax.lax.fori_loop(0, count, put, rows)
    else:
        rows = jax.lax.map(partial(of, rows=rows), jnp.arange(count))
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), rows)
