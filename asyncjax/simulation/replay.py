"""Replay: a trace run against a problem and an optimizer.

    x_{v+1} = x_v + optimizer(sum of weight * grad f_worker(x_read_version; job)),

for every update of the trace, exactly as the asynchronous server would have made it. The desk reads
and checks what is asked for, the request becomes a program, an algorithm runs it, and a `Run` says
what came out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.orders import Order
from asyncjax.problems import Problem
from asyncjax.problems.problem import Model
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Costs, Records, Run, Source
from asyncjax.simulation.arguments import (
    FIELDS,
    Execution,
    check_update,
    check_workers,
    execution_of,
    first_equal,
    key_of,
)
from asyncjax.simulation.cpu_rewrites import batching_loses, convolves
from asyncjax.simulation.engine import Metrics, Replay, ReplayInputs, ReplayResult
from asyncjax.simulation.example_orders import in_order
from asyncjax.simulation.loop import Loop, Placed, Progress, RowTeller, progress_at, run
from asyncjax.simulation.memory import check_memory
from asyncjax.simulation.placement import everywhere_on, memory_of, mesh_of, shards_of
from asyncjax.simulation.plan import ReplayPlan, plan_of, trace_of
from asyncjax.simulation.program import event_program, sizes_of, wave_program
from asyncjax.simulation.update import Update, update_of
from asyncjax.traces import EventTrace
from asyncjax.traces.summary import figures


@explicit
def replay(
    problem: Problem[Model],
    trace: EventTrace | ReplayPlan,
    update: Update | optax.GradientTransformation,
    *,
    order: Order | None = None,
    record_every: int | None = None,
    key: jax.Array | None = None,
    waves: bool | None = None,
    width: int | None = None,
    opt_state: Any = None,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run[Model, Records]:
    """Replays a trace.

    The optimizer is handed `delay` (of the update: the largest of its gradients), `worker`, `job`
    and `time` (of the arrival that made it), `key` (that job's typed key) and `read_params` (the
    oldest model that entered). Gradients that the trace throws away are not computed, only counted;
    where workers keep a state from job to job (`problems.local_steps(..., keep_state=True)`) they
    are computed too, since they move it.

    Pure in (problem, trace, update, key), so it may be vmapped over step sizes, keys and initial
    models; the trace stays concrete. A second call with the same problem, optimizer and sizes
    compiles nothing, and optimizers of optax or `steps` that are made anew of equal numbers are the
    same. Another number in them compiles anew, as in a loop over `optax.sgd(s)`; for that `sweep`
    takes many step sizes at once, and `optax.inject_hyperparams` keeps the number in the state,
    which `opt_state` sets. One event at a time, traces of unlike length share a compilation.

    Args:
        problem: What is optimised.
        trace: A trace, or a plan of it made before, which has its own `record_every` and `width`,
            and was made with `worker_order=True` if workers keep a state.
        update: Any optax optimizer, or an `Update`.
        order: Job q of worker j takes unit o[j, q mod n_j] of that worker's own epoch q // n_j. An
            order that ignores gradients is known beforehand (see `ordered`). One that learns
            (`orders.coordinated`, `orders.independent`) is shown every gradient as it arrives, late
            as it is (see `learned_visits`); the run then goes one event at a time and has
            `order_state`. None: job q is job q of the problem.
        record_every: Record every so many versions, and the last. None: version 0, the start
            (where the problem has an objective), and at most 25 further, evenly, the last among
            them. A record after an update holds a model until the end of the run, where all are
            evaluated, one after the other.
        key: Typed key; the job j of worker i gets fold_in(fold_in(key, i), j). None:
            `jax.random.key(0)`.
        waves: True: in waves. False: one event at a time, the same result up to rounding. None: the
            problem and the device decide: in waves, but where neither a plan nor a width is given,
            a model with convolutions, or of 8192 parameters or more, on a CPU goes one event at a
            time, which is measured to be faster. An order that learns goes so in any case.
        width: Gradients computed together; None: as many as keep the lanes nearly always full.
        opt_state: State that the optimizer begins with, such as that of an earlier run; None:
            `optimizer.init(params)`.
        execution: Devices, a limit on memory, a checkpoint, progress, `on_record`. Over a mesh the
            lanes of a wave are split; their gradients are gathered once a wave, and every device
            makes every update. The run goes in waves then.
        progress: Short form of the execution's.
        checkpoint: Short form of the execution's.

    Returns:
        The run. Memory on the device: (live versions + unfinished directions + records + 2 * width)
        models, and (n + 1 + 2 * width) states where the n workers keep one (n of them stay, as its
        `worker_states`); over a mesh its part of the rows, 2 * its lanes of what it has of a model
        there, and the gathered gradients.

    Example:
        >>> import numpy as np, optax
        >>> from asyncjax import clocks, problems, simulation, traces
        >>> problem = problems.quadratic(np.ones((3, 2)), np.arange(6.0).reshape(3, 2))
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=50)
        >>> run = simulation.replay(problem, trace, optax.sgd(0.1), record_every=10)
        >>> run.records.version
        array([10, 20, 30, 40, 50], dtype=int32)
        >>> bool(run.records.loss[-1] < run.records.loss[0])
        True
    """
    execution = execution_of(execution, knows=FIELDS, progress=progress, checkpoint=checkpoint)
    key, mesh = key_of(key), mesh_of(execution.mesh)
    learns = isinstance(order, Order) and order.needs_gradients
    keeps, arrivals = problem.worker_state_of is not None, trace_of(trace)
    if keeps:
        _check_states(learns, mesh)
    check_workers(problem, arrivals)
    check_update(update, problem.params, [arrivals])
    server: Update = first_equal(update_of(update))
    is_open = waves is None and mesh is None and width is None and isinstance(trace, EventTrace)
    one_by_one = learns or waves is False or (is_open and batching_loses(problem))
    is_general = one_by_one and convolves(problem)  # an add then costs next to nothing
    plan, learner = plan_of(trace, width, record_every, worker_order=keeps), None
    if order is not None:
        problem, learner = in_order(problem, order, plan, key)
    sizes = sizes_of([plan], server)
    shards = shards_of(mesh, execution.specs, problem.params)
    if shards is not None:
        _check_mesh(server, one_by_one=one_by_one)
    stated = memory_of(problem, sizes, shards, one_by_one=one_by_one)
    given = (problem, key, opt_state) if shards is None else None
    check_memory(stated, 1, execution.memory_limit, given)
    placed = None
    if one_by_one:
        roomy = execution.memory_limit is None
        program = event_program(plan, sizes, problem, roomy=roomy, is_general=is_general)
    else:
        program = wave_program(plan, sizes)
        if shards is not None:
            split = wave_program(plan, shards.widened(sizes))
            split = everywhere_on(shards.mesh)(ReplayInputs(split, key, opt_state))
            placed = Placed(Replay(server, shards), split, shards.placed)
    inputs = ReplayInputs(program, key, opt_state)
    loop = replay_loop(plan, Replay(server, learner=learner), inputs, placed)
    rows = rows_of(execution, plan, problem)
    return run_of(plan, run(loop, problem, execution.progress, execution.checkpoint, rows))


def _check_states(learns: bool, mesh: Any) -> None:
    """Refuses what cannot carry a state of every worker."""
    if learns:
        raise ValueError(
            "order must ignore gradients where workers keep a state (keep_state=True), which jobs"
            " move whose gradients are thrown away, too"
        )
    if mesh is not None:
        raise ValueError("mesh must be None where workers keep a state (keep_state=True)")


def _check_mesh(update: Update, *, one_by_one: bool) -> None:
    """Refuses a mesh where a run cannot be split."""
    if update.is_of_arrivals:
        raise ValueError(
            "mesh must be None where arrivals are treated one by one (gradient_transform,"
            " aggregator)"
        )
    if one_by_one:
        raise ValueError(
            "mesh must be None where a run goes one event at a time: waves=False, or an order that"
            " learns from what arrives"
        )


def replay_loop(
    plan: ReplayPlan, kind: Replay, given: ReplayInputs, placed: Placed | None = None
) -> Loop:
    """The replay of a plan."""
    program = given.program
    n_turns = int(program.n_turns)
    if program.sizes.width:
        updates = np.asarray(program.first_update)
    else:
        updates = np.append(0, np.cumsum(program.gradients.steps[:n_turns]))
    return Loop(kind, given, n_turns, lambda turn, _: progress_at(plan, int(updates[turn])), placed)


# What a run is made of.


def run_of(plan: ReplayPlan, replayed: ReplayResult) -> Run:
    """The run of one replay."""
    return Run(
        replayed.params,
        replayed.opt_state,
        records_of(plan, replayed.measured),
        Source((plan.trace,), (costs_of(plan),)),
        replayed.order_state,
        arrival_state=replayed.arrival_state,
        worker_states=without_scratch(replayed.workers, 0),
        failed=replayed.failed,
    )


def rows_of(execution: Execution, plan: ReplayPlan, problem: Problem) -> RowTeller | None:
    """What tells the rows of a replay; None where nobody wants to know."""
    if execution.on_record is None:
        return None
    count = len(plan.records) + (plan.start and problem.objective is not None)
    later: Any = None
    columns = records_of(plan, Metrics(later, later, finite=jnp.empty(count)))
    return RowTeller(execution.on_record, columns.version, columns)


def without_scratch(workers: Any, axis: int) -> Any:
    """What the workers keep, [..., n, ...], of n + 1 rows along an axis; None of None.

    Example:
        >>> without_scratch(jnp.arange(6.0).reshape(2, 3), 1).shape
        (2, 2)
    """
    return jax.tree.map(lambda rows: rows[(slice(None),) * axis + (slice(-1),)], workers)


def records_of(plan: ReplayPlan, measured: Metrics) -> Records:
    """Joins what the trace decides with what was measured on the device.

    Where one more was measured than the plan records, the first is version 0.
    """
    trace, update = plan.trace, plan.records - 1
    enders = np.flatnonzero(np.asarray(trace.steps))[update]
    time = np.asarray(trace.update_time, np.float64)[update]
    stopped = np.zeros(len(update), np.int64)
    if trace.cancelled is not None:
        stopped = np.searchsorted(np.sort(trace.cancelled.time), time, side="right")
    start = measured.finite.shape[-1] - len(plan.records)

    def column(values: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros(start, values.dtype), values])

    return Records(
        version=column(plan.records.astype(np.int32)),
        time=column(time),
        delay=column(plan.update_delay[update].astype(np.int32)),
        used=column(np.cumsum(trace.used)[enders]),
        computed=column(enders + 1 + stopped),
        **measured._asdict(),
    )


def costs_of(plan: ReplayPlan) -> Costs:
    """Counts what a trace costs."""
    summary, open_jobs = figures(plan.trace), plan.trace.open_jobs
    arrivals, n_open = plan.trace.n_arrivals, 0 if open_jobs is None else len(open_jobs.worker)
    return Costs(
        gradients_used=summary.used,
        gradients_thrown_away=summary.thrown_away,
        gradients_cancelled=summary.cancelled,
        uplinks=arrivals,
        broadcasts=arrivals + summary.cancelled + n_open,
        utilisation=summary.utilisation,
        live_versions=plan.n_slots,
    )
