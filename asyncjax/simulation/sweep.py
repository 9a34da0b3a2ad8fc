"""Sweeps: one problem, many step sizes and seeds, in one compiled call.

A plan holds no values, so it is made once a trace; step sizes share it, and seeds with traces of
their own are stacked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from asyncjax.checks import flag, function, shown, within
from asyncjax.problems import Problem
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Records, Run, Source
from asyncjax.simulation.arguments import (
    Execution,
    check_problem,
    checked_update,
    execution_of,
)
from asyncjax.simulation.cpu_rewrites import convolves
from asyncjax.simulation.hosts import peers_of
from asyncjax.simulation.loops.grid import (
    ByGrid,
    GridInputs,
    grid_loop,
    most_on_a_device,
    unpadded,
)
from asyncjax.simulation.loops.loop import Progress, run
from asyncjax.simulation.loops.placement import mesh_of
from asyncjax.simulation.loops.server import Metrics
from asyncjax.simulation.plans.memory import check_memory, memory
from asyncjax.simulation.plans.plan import ReplayPlan, plan_alike, several
from asyncjax.simulation.plans.program import (
    Sizes,
    assemble,
    check_sizes,
    levelled,
    sizes_of,
    stack,
    with_update,
)
from asyncjax.simulation.plans.update import Update
from asyncjax.simulation.replay import check_workers, costs_of, records_of, without_scratch
from asyncjax.traces import EventTrace


@explicit
def sweep(
    problem: Problem,
    traces: EventTrace | Sequence[EventTrace],
    update: Callable[[Any], Update | optax.GradientTransformation],
    step_sizes: Any,
    *,
    keys: jax.Array,
    record_every: int | None = None,
    width: int | None = None,
    sizes: Callable[[Sizes], Sizes] | None = None,
    together: bool | None = None,
    execution: Execution | None = None,
    mesh: Mesh | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
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
        record_every: As in `replay`; None leaves it to the number of updates of each trace.
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

    Raises:
        TypeError: `update` is an optimizer instead of what makes one, `mesh` is no mesh, or
            another argument is of the wrong kind.
        ValueError: `step_sizes` is empty, not one-dimensional, or holds what is negative or
            not finite; there is no key; the number of traces is neither one nor that of the keys;
            gradients serve in several updates in some traces only; `sizes` returns some that do not
            hold the traces; or as in `replay`.
        MemoryError: `memory_limit` would be exceeded.

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
        >>> def common(own):
        ...     return replace(own, waves=max(own.waves, 40), slots=max(own.slots, 10))
        >>> for slow in (3.0, 9.0):
        ...     trace = traces.asynchronous(clocks.constant([1.0, 2.0, slow]), n_updates=20)
        ...     run = simulation.sweep(
        ...         problem, trace, optax.sgd, [0.1, 0.2], keys=keys, width=1, sizes=common)
    """
    check_problem(problem)
    short = {"mesh": mesh, "progress": progress, "checkpoint": checkpoint}
    execution = execution_of(execution, knows=("mesh", "memory_limit"), **short)
    steps = _checked_steps(step_sizes)
    given = several("traces", [traces] if isinstance(traces, EventTrace) else traces)
    _check_maker(update, steps)
    _check_keys(keys)
    mesh, keys = mesh_of(execution.mesh, keys), peers_of(keys).gathered(keys)
    if sizes is not None:
        function("sizes", sizes, "a function of Sizes that returns Sizes")
    if len(given) not in (1, len(keys)):
        raise ValueError(f"traces must be one trace or one a key ({len(keys)}), got {len(given)}")
    keeps = problem.worker_state_of is not None
    together = _are_together(problem, together, mesh)
    width = 1 if width is None and not together else width
    plans = plan_alike(given, width=width, record_every=record_every, worker_order=keeps)
    for each in plans:
        check_workers(problem, each.trace)
    first = checked_update(update(steps[0]), problem.params, plans)
    common = _sizes_of(plans, first, together, sizes)
    runs = most_on_a_device(mesh, len(keys), len(steps))
    if not together:
        is_at_once = execution.progress is None and execution.checkpoint is None
        runs = 1 if is_at_once else runs + 1
    stated = memory(problem.params, common, worker_state=jax.eval_shape(problem.worker_state))
    arrays = None if mesh is not None else (problem, keys, steps)
    check_memory(stated, runs, execution.memory_limit, arrays)
    program = stack(plans, common) if len(plans) > 1 else assemble(plans[0], common)
    kind = ByGrid(update, together=together)
    loop = grid_loop(plans, kind, GridInputs(program, keys, steps), mesh)
    replayed = run(loop, problem, execution.progress, execution.checkpoint)
    done = unpadded(replayed, len(keys), len(steps))
    params, opt_state, measured, _, kept, workers, failed = done
    return Run(
        params,
        opt_state,
        _records_of(plans, measured, common),
        Source(tuple(each.trace for each in plans), tuple(costs_of(each) for each in plans)),
        arrival_state=kept,
        worker_states=without_scratch(workers, 2),
        failed=failed,
    )


def _are_together(problem: Problem, together: bool | None, mesh: Mesh | None) -> bool:
    """Whether runs go side by side; what is faster, where nothing is said."""
    if together is not None:
        return flag("together", together)
    device = jax.default_backend() if mesh is None else mesh.devices.flat[0].platform
    return device != "cpu" or not convolves(problem)


def _sizes_of(
    plans: Sequence[ReplayPlan],
    update: Update,
    together: bool,
    sizes: Callable[[Sizes], Sizes] | None,
) -> Sizes:
    """Sizes that hold all plans, rounded up by `sizes`."""
    own = with_update(sizes_of(plans), plans, update)
    own = own if together else replace(own, masked=False)
    return own if sizes is None else check_sizes(sizes(own), own)


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


def _checked_steps(step_sizes: Any) -> jax.Array:
    steps = np.asarray(within("step_sizes", step_sizes, least=0.0))
    if steps.ndim != 1 or not steps.size:
        raise ValueError(f"step_sizes must be a non-empty list of numbers, got shape {steps.shape}")
    return jnp.asarray(steps, jnp.result_type(float))


def _check_maker(update: Any, steps: jax.Array) -> None:
    words = "a function that makes an optax optimizer from a step size, such as optax.sgd"
    if isinstance(update, optax.GradientTransformation | Update):
        raise TypeError(f"update must be {words}, got an optimizer")
    function("update", update, words)
    result = update(steps[0])
    if not isinstance(result, optax.GradientTransformation | Update):
        raise TypeError(f"update must be {words}, but it returned {shown(result)}")


def _check_keys(keys: Any) -> None:
    is_typed = isinstance(keys, jax.Array) and jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    if not is_typed or keys.ndim != 1:
        raise TypeError(
            f"keys must be typed keys [S], as jax.random.split makes them, got {shown(keys)}"
        )
    if not len(keys):
        raise ValueError("keys must hold at least one key, got none")
