"""Replay: a trace run against a problem and an optimizer.

    x_{v+1} = x_v + optimizer(sum of weight * grad f_worker(x_read_version; job)),

for every update of the trace, exactly as the asynchronous server would have made it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from asyncjax.checks import flag
from asyncjax.orders import Order
from asyncjax.problems import Problem
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Costs, Records, Run, Source
from asyncjax.simulation.arguments import (
    FIELDS,
    Execution,
    check_problem,
    checked_update,
    execution_of,
    forms,
    key_of,
    plan_of,
)
from asyncjax.simulation.cpu_rewrites import convolves
from asyncjax.simulation.example_orders import learned, ordered
from asyncjax.simulation.loops.events import ByEvent, event_loop, event_sizes, inputs_of
from asyncjax.simulation.loops.loop import Progress, run
from asyncjax.simulation.loops.placement import mesh_of
from asyncjax.simulation.loops.record_rows import RowTeller
from asyncjax.simulation.loops.server import Metrics, ReplayResult
from asyncjax.simulation.loops.shards import Shards, shards_of
from asyncjax.simulation.loops.waves import wave_loop
from asyncjax.simulation.plans.memory import check_memory, memory
from asyncjax.simulation.plans.plan import ReplayPlan, plan
from asyncjax.simulation.plans.program import Sizes, sizes_of, with_update
from asyncjax.simulation.plans.update import Update
from asyncjax.traces import EventTrace
from asyncjax.traces.event_trace import worker_count
from asyncjax.traces.summary import figures

_LARGE = 8192  # parameters


@explicit
def replay(
    problem: Problem,
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
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
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
            judged, one after the other.
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

    Raises:
        TypeError: An argument is of the wrong kind, such as an optimizer that was not called, or a
            mesh that is none.
        OSError: The checkpoint cannot be written; one that was written before is intact.
        ValueError: The checkpoint is of another run, or damaged; the trace is not valid, or names
            more workers than the problem has shards, or than `optimizer` or `arrival` has a table
            for; an argument is out of range, or belongs to the plan that was given; `opt_state` is
            not a state of the optimizer; or `order` does not fit the problem or the trace, or only
            learns from workers in step; `specs` do not fit the params or the mesh; or a mesh is
            given to a run one event at a time.
        MemoryError: `memory_limit` would be exceeded.

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
    check_problem(problem)
    execution = execution_of(execution, knows=FIELDS, progress=progress, checkpoint=checkpoint)
    mesh = execution.mesh
    is_plan, key = isinstance(trace, ReplayPlan), key_of(key)
    if waves is not None:
        waves = flag("waves", waves)
    planned = _planned(problem, trace, order, mesh, width=width, record_every=record_every)
    check_workers(problem, planned.trace)
    update = checked_update(update, problem.params, [planned])
    _check_state(problem, update.optimizer, opt_state)
    learner = None
    if isinstance(order, Order) and order.needs_gradients:
        arrivals = np.sort(planned.gradients.arrival)
        problem, learner = learned(problem, order, planned.trace, arrivals)
    elif order is not None:
        problem = ordered(problem, order, planned.trace, key)
    sizes = with_update(sizes_of([planned]), [planned], update)
    shards = shards_of(mesh_of(mesh), execution.specs, problem.params)
    if shards is not None:
        why = {
            "where arrivals are treated one by one (gradient_transform, aggregator)": (
                update.is_of_arrivals
            ),
            "where a run goes one event at a time: waves=False, or an order that learns from what"
            " arrives": learner is not None or waves is False,
        }
        _check_no_mesh(why)
    chosen = is_plan or width is not None or shards is not None
    one_by_one = learner is not None or waves is False
    one_by_one = one_by_one or (waves is None and not chosen and _one_by_one(problem))
    _check_memory(problem, sizes, shards, one_by_one, execution.memory_limit, (key, opt_state))
    if one_by_one:
        has_objective = problem.objective_of is not None
        own = event_sizes(sizes, problem, exact=execution.memory_limit is not None)
        given = inputs_of(planned, own, key, opt_state, has_objective=has_objective)
        kind = ByEvent(update, own, learner)
        loop = event_loop(planned, kind, given)
    else:
        loop = wave_loop(planned, sizes, update, key, opt_state, shards)
    rows = rows_of(execution, planned, problem)
    return run_of(planned, run(loop, problem, execution.progress, execution.checkpoint, rows))


def _check_memory(
    problem: Problem,
    sizes: Sizes,
    shards: Shards | None,
    one_by_one: bool,
    limit: float | None,
    given: Any,
) -> None:
    """Refuses a replay that keeps more than a limit on a device; `given` are its other arrays."""
    if shards is None:
        state = jax.eval_shape(problem.worker_state)
        stated = memory(problem.params, sizes, one_by_one=one_by_one, worker_state=state)
        check_memory(stated, 1, limit, (problem, given))
    else:
        check_memory(shards.memory(problem.params, shards.widened(sizes)), 1, limit)


def _check_no_mesh(reasons: dict[str, bool]) -> None:
    """Refuses a mesh for the first reason that holds."""
    for why, holds in reasons.items():
        if holds:
            raise ValueError(f"mesh must be None {why}")


def _planned(
    problem: Problem,
    trace: Any,
    order: Order | None,
    mesh: Mesh | None,
    *,
    width: Any,
    record_every: Any,
) -> ReplayPlan:
    """The plan of a trace; where workers keep a state, refuses what carries none."""
    if problem.worker_state_of is None:
        return plan_of(trace, width=width, record_every=record_every)
    if isinstance(order, Order) and order.needs_gradients:
        raise ValueError(
            "order must ignore gradients where workers keep a state (keep_state=True), which jobs"
            " move whose gradients are thrown away, too"
        )
    if mesh is not None:
        raise ValueError("mesh must be None where workers keep a state (keep_state=True)")
    if isinstance(trace, EventTrace):
        return plan(trace, width=width, record_every=record_every, worker_order=True)
    return plan_of(trace, width=width, record_every=record_every)


def _one_by_one(problem: Problem) -> bool:
    """Whether batching over models loses.

    XLA's batched products are slow on a CPU for all but small models, its batched convolutions for
    all.
    """
    if jax.default_backend() != "cpu":
        return False
    size = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(problem.params))
    return size >= _LARGE or convolves(problem)


def check_workers(problem: Problem, trace: EventTrace) -> None:
    """Refuses a trace with more workers than the problem has shards."""
    workers = worker_count(trace)
    if problem.n_workers is not None and workers > problem.n_workers:
        raise ValueError(
            f"trace has {workers} workers but problem has only {problem.n_workers} shards"
            " (n_workers)"
        )


def _check_state(problem: Problem, optimizer: optax.GradientTransformation, given: Any) -> None:
    """Refuses a state that has another structure, shapes or dtypes than the optimizer's own."""
    if given is None:
        return

    own = jax.eval_shape(
        lambda params: jax.tree.map(jnp.asarray, optimizer.init(params)), problem.params
    )
    try:
        fits = forms(jax.tree.map(jnp.asarray, given)) == forms(own)
    except TypeError:  # something that is no array
        fits = False
    if not fits:
        raise ValueError(
            "opt_state must have the structure, shapes and dtypes of optimizer.init(params): it is"
            " the state of another"
            " optimizer or of another model"
        )


def run_of(plan: ReplayPlan, replayed: ReplayResult) -> Run:
    """The run of one replay."""
    params, opt_state, measured, order_state, arrival_state, workers, failed = replayed
    source, records = Source((plan.trace,), (costs_of(plan),)), records_of(plan, measured)
    kept = {"arrival_state": arrival_state, "worker_states": without_scratch(workers, 0)}
    kept["failed"] = failed
    return Run(params, opt_state, records, source, order_state, **kept)


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
    arrivals, used = enders + 1, np.cumsum(trace.used)[enders]
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
        used=column(used),
        computed=column(arrivals + stopped),
        loss=measured.loss,
        finite=measured.finite,
        metrics=measured.metrics,
    )


def costs_of(plan: ReplayPlan) -> Costs:
    """Counts what a trace costs."""
    summary, open_jobs = figures(plan.trace), plan.trace.open_jobs
    arrivals = plan.trace.n_arrivals
    return Costs(
        gradients_used=summary.used,
        gradients_thrown_away=summary.thrown_away,
        gradients_cancelled=summary.cancelled,
        uplinks=arrivals,
        broadcasts=arrivals
        + summary.cancelled
        + (0 if open_jobs is None else len(open_jobs.worker)),
        utilisation=summary.utilisation,
        live_versions=plan.n_slots,
    )
