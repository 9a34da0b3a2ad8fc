"""The two algorithms of the delay-adaptive paper, replayed as it defines them.

Wu, Magnússon, Feyzmahdavian and Johansson 2022 (arXiv 2202.08550).

Proximal incremental aggregated gradient (PIAG): from a table g[i] = grad f_i(x_0), on each arrival,

    g[w] <- the gradient that arrived;      tau_k = age of the oldest row
    gamma_k = rule(tau_0 .. tau_k)
    x_{k+1} = prox_{gamma_k R}(x_k - gamma_k (1/n) sum_i g[i])

Asynchronous block-coordinate descent (Async-BCD): workers share a model of m blocks; each in turn

    reads   xhat, with the write counter s when the read begins;
            draws a block j uniformly and takes grad_j f_i(xhat);
    writes  x_j <- prox_{gamma_k R}(x_j - gamma_k grad_j f_i(xhat)),
            gamma_k = rule(tau_0 .. tau_k),    tau_k = k - s.

The block x_j that is stepped from is the current one; only the gradient is old. A read may be torn,
block after block while others write:

    xhat_i = block i of x_{v_i},     read_version <= v_i <= version,     i = 0 .. m - 1

so the model that a gradient is taken at may never have existed as a whole: it is the current one
minus some of the writes since the read began. That is a replay of events whose slots are a ring of
the last models, one row per version.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.checks import one_key, real, whole
from asyncjax.problems import Problem
from asyncjax.problems.problem import Model
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Records, Run, Source
from asyncjax.simulation.arguments import (
    Execution,
    check_workers,
    execution_of,
    first_equal,
    key_of,
)
from asyncjax.simulation.engine import Replay, ReplayInputs
from asyncjax.simulation.loop import Progress, run
from asyncjax.simulation.plan import ReplayPlan, plan_of, trace_of
from asyncjax.simulation.program import Program, event_program, sizes_of
from asyncjax.simulation.replay import replay, replay_loop, rows_of, run_of
from asyncjax.simulation.update import Update, job_key
from asyncjax.simulation.waves import ceil_to_grid
from asyncjax.steps import aggregated, descent, random_block
from asyncjax.steps.proximal import Prox
from asyncjax.traces import EventTrace
from asyncjax.traces.event_trace import worker_count

_NO_GROUPS = (
    "make it with collect=traces.immediately(), or replay the trace as it is with an optimizer of"
    " your choice: groups and tables of other kinds are in the trace itself"
)
_NO_BLOCKS = (
    "make it with collect=traces.immediately(), or replay the trace as it is with"
    " steps.random_block"
)


@explicit
def first_gradients(problem: Problem, n_workers: int | None = None, *, key: jax.Array) -> Any:
    """Gradients of all workers at the first model, in one vmapped call.

    g[i] = grad f_i(x_0; job 0), job 0 with its own key. Where jobs are random this is the sample
    that the worker's job 0 takes in a replay with the same key.

    Args:
        problem: What is optimised.
        n_workers: How many workers n; None: as many as the problem has shards.
        key: Typed key, as in `replay`.

    Returns:
        A tree like `problem.params`, leaves [n, ...].

    Example:
        >>> import jax, numpy as np
        >>> from asyncjax import problems, simulation
        >>> problem = problems.quadratic(np.ones((3, 2)), np.arange(6.0).reshape(3, 2))
        >>> simulation.first_gradients(problem, key=jax.random.key(0)).shape
        (3, 2)
    """
    one_key("key", key)
    shards = problem.n_workers
    count = shards if n_workers is None else n_workers
    if count is None:
        raise ValueError("n_workers must be given: the problem takes any number of workers")
    return _first_gradients(problem, whole("n_workers", count, most=shards), key)


@partial(jax.jit, static_argnames="count")
def _first_gradients(problem: Problem, count: int, key: jax.Array) -> Any:
    params = jax.tree.map(jnp.asarray, problem.params)

    def gradient(worker: jax.Array) -> Any:
        return problem.gradient(params, worker, jnp.int32(0), job_key(key, worker, 0))[1]

    return jax.vmap(gradient)(jnp.arange(count, dtype=jnp.int32))


@explicit
def replay_piag(
    problem: Problem[Model],
    trace: EventTrace | ReplayPlan,
    rule: optax.GradientTransformation,
    *,
    prox: Prox | None = None,
    full_start: bool = True,
    record_every: int | None = None,
    key: jax.Array | None = None,
    waves: bool | None = None,
    width: int | None = None,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run[Model, Records]:
    """Replays a trace as proximal incremental aggregated gradient.

    The table has a row for each worker of the trace, and the step of an update depends on the age
    of its oldest row, about twice the delay of the gradient that arrived; `steps.table_delays`
    gives these ages beforehand. A worker that never delivers again stops the training: watch
    `last_table_delay`.

    Pure and jitted as `replay` is, so it may be vmapped over step sizes; calls with the same rule
    share a compilation.

    Args:
        problem: What is optimised.
        trace: A trace in which every arrival makes an update, such as `traces.asynchronous(clock,
            n_updates=...)`, or a plan of it.
        rule: Multiplies by gamma_k, sign not flipped: `steps.scale_by_adaptive_1(step_size)`,
            `scale_by_adaptive_2`, `sun`, `worst_case`; with `prox` its state needs
            `last_step_size`. `step_size` is h / L with L the root mean square of the workers'
            Lipschitz constants; histories must hold the ages of rows (`max_delay`).
        prox: Proximal operator of the regularizer R, such as `steps.l1(1e-3)`.
        full_start: The table starts with the gradients at the first model, as in the paper; they
            are counted in the costs and in `records.used`, but their time is not: the trace begins
            when the table is full. False: with zeros.
        record_every: As in `replay`.
        key: As in `replay`.
        waves: As in `replay`.
        width: As in `replay`.
        execution: As in `replay`; a limit on memory does not count the table, one model a worker.
            It has no mesh.
        progress: Short form of the execution's.
        checkpoint: Short form of the execution's.

    Returns:
        The run; its optimizer state has `last_step_size`, `last_table_delay`, `row_ages` and the
        rule's own fields.

    Example:
        >>> import numpy as np
        >>> from asyncjax import clocks, problems, simulation, steps, traces
        >>> problem = problems.quadratic(np.ones((3, 2)), np.arange(6.0).reshape(3, 2))
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=200)
        >>> run = simulation.replay_piag(problem, trace, steps.scale_by_adaptive_1(0.99))
        >>> np.allclose(run.params, [2.0, 3.0]), run.costs.gradients_used
        (True, 203)

    Reference:
        Wu et al. 2022, "Delay-adaptive step-sizes for asynchronous learning", arXiv 2202.08550.
    """
    arrivals, execution, key = _read(problem, trace, "PIAG", execution, (key, progress, checkpoint))
    check_workers(problem, arrivals)
    n_workers, start = worker_count(arrivals), None
    if full_start:
        table = first_gradients(problem, n_workers, key=key)
        start = aggregated(rule, n_workers, initial=table, prox=prox).init(problem.params)
        if (told := execution.on_record) is not None:
            execution = replace(execution, on_record=lambda row: told(_counted(row, n_workers)))
    run = replay(
        problem,
        trace,
        aggregated(rule, n_workers, prox=prox),
        record_every=record_every,
        key=key,
        waves=waves,
        width=width,
        execution=execution,
        opt_state=start,
    )
    if not full_start:
        return run
    costs = run.costs._replace(
        gradients_used=run.costs.gradients_used + n_workers, uplinks=run.costs.uplinks + n_workers
    )
    source = Source(run.source.traces, (costs,))
    return replace(run, records=_counted(run.records, n_workers), source=source)


@explicit
def replay_block_descent(
    problem: Problem[Model],
    trace: EventTrace | ReplayPlan,
    rule: optax.GradientTransformation,
    *,
    n_blocks: int,
    prox: Prox | None = None,
    torn: float = 0.0,
    record_every: int | None = None,
    key: jax.Array | None = None,
    waves: bool | None = None,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run[Model, Records]:
    """Replays a trace as asynchronous block-coordinate descent.

    The block of a write is drawn from the key of its job, independently of the trace. With p busy
    workers the long-run mean delay is p - 1. In shared memory every worker sees all data: give a
    problem whose workers are alike (such as one shard that ignores `worker`) for that; with shards,
    a write uses the block gradient of the writer's own f_i.

    Pure and jitted as `replay` is, so it may be vmapped over step sizes; calls with the same rule
    share a compilation.

    Args:
        problem: What is optimised.
        trace: A trace in which every arrival makes an update, such as `traces.asynchronous(clock,
            n_updates=...)`, or a plan of it.
        rule: Multiplies by gamma_k, sign not flipped: `steps.scale_by_adaptive_1(step_size)`,
            `scale_by_adaptive_2`, `sun`, `worst_case`; with `prox` its state needs
            `last_step_size`. `step_size` is h / L; for convex f, L may be the largest norm of a
            diagonal block of the Hessian.
        n_blocks: Number of contiguous blocks m, as in `steps.block_labels`, 1 to the number of
            parameters.
        prox: Proximal operator of R, such as `steps.l1(1e-3)`; R a sum over entries.
        torn: Share of a job's duration that its worker spends on reading blocks one after another,
            0 to 1. Block i is read at start + torn (i / m) (time - start) and sees all updates made
            up to then, at least those before `read_version`. The rule gets the same delays, so its
            steps are the same. 0: consistent reads.
        record_every: As in `replay`.
        key: As in `replay`.
        waves: As in `replay`; torn reads go one event at a time in any case.
        execution: As in `replay`; with torn reads a limit on memory is not looked at. It has no
            mesh.
        progress: Short form of the execution's.
        checkpoint: Short form of the execution's.

    Returns:
        The run; its optimizer state has `last_block` and the rule's own fields. The gradient of a
        job is computed in full and cut to the block: a block alone is no cheaper by reverse mode.
        Memory is that of `replay`; with torn reads (largest delay + 1 + records) models and a table
        int32[updates, m].

    Example:
        >>> import jax, numpy as np
        >>> from asyncjax import clocks, problems, simulation, steps, traces
        >>> whole = problems.least_squares(np.eye(4), np.arange(4.0), n_workers=1)
        >>> problem = problems.from_gradient(
        ...     whole.params, lambda x, worker, job, key: whole.gradient(x, 0, job, key))
        >>> clock = clocks.exponential(np.ones(3))
        >>> trace = traces.asynchronous(clock, n_updates=300, key=jax.random.key(0))
        >>> rule = steps.scale_by_adaptive_1(0.99 * 4)
        >>> for torn in (0.0, 0.5):
        ...     run = simulation.replay_block_descent(problem, trace, rule, n_blocks=4, torn=torn)
        ...     print(run.params.round(2))
        [0. 1. 2. 3.]
        [0. 1. 2. 3.]

    Reference:
        Wu et al. 2022, "Delay-adaptive step-sizes for asynchronous learning", arXiv 2202.08550.
    """
    n_blocks, torn = whole("n_blocks", n_blocks), real("torn", torn, least=0, most=1)
    arrivals, execution, key = _read(
        problem, trace, "block descent", execution, (key, progress, checkpoint)
    )
    optimizer = first_equal(random_block(descent(rule, prox=prox), n_blocks))
    if not torn:
        options: Any = {"record_every": record_every, "key": key, "waves": waves}
        return replay(problem, trace, optimizer, execution=execution, **options)
    if arrivals.start is None:
        raise ValueError(
            f"trace must have start, the moment at which each job began, for torn={torn}; without"
            " it use torn=0"
        )
    plan = plan_of(trace, record_every=record_every)
    check_workers(problem, arrivals)
    program = torn_program(plan, block_versions(arrivals, n_blocks, torn))
    loop = replay_loop(plan, Replay(Update(optimizer)), ReplayInputs(program, key))
    rows = rows_of(execution, plan, problem)
    done = run_of(plan, run(loop, problem, execution.progress, execution.checkpoint, rows))
    costs = done.costs._replace(live_versions=int(arrivals.delay.max()) + 1)
    return replace(done, source=Source((arrivals,), (costs,)))


def _read(
    problem: Problem,
    trace: Any,
    method: str,
    execution: Execution | None,
    short: tuple[Any, Any, Any],
) -> tuple[EventTrace, Execution, jax.Array]:
    """The trace, execution and key of a run; refuses what the two algorithms do not take.

    `short` are the key, progress and checkpoint.
    """
    key, progress, checkpoint = short
    execution = execution_of(
        execution,
        knows=("memory_limit", "on_record"),
        progress=progress,
        checkpoint=checkpoint,
    )
    arrivals = trace_of(trace)
    check_single(arrivals, method, _NO_GROUPS if method == "PIAG" else _NO_BLOCKS)
    return arrivals, execution, key_of(key)


def check_single(trace: EventTrace, method: str, otherwise: str) -> None:
    """Refuses a trace in which an arrival is thrown away, waits, is weighed or serves twice.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.constant([1.0, 2.0])
        >>> check_single(traces.asynchronous(clock, n_updates=3), "piag", "other rules")
        >>> trace = traces.asynchronous(clock, n_updates=3, collect=traces.buffered(2))
        >>> check_single(trace, "piag", "use replay")
        Traceback (most recent call last):
        ...
        ValueError: trace must make one update with every arrival for piag, but arrival 0 makes
        none; use replay
    """
    needs = f"trace must make one update with every arrival for {method}, but"
    if trace.reuse is not None:
        raise ValueError(f"{needs} its gradients serve in several updates (reuse); {otherwise}")
    for good, fault in (
        (np.asarray(trace.used), "is thrown away"),
        (np.asarray(trace.steps), "makes none"),
        (np.asarray(trace.weight) == 1, "has a weight other than 1"),
    ):
        if not np.all(good):
            raise ValueError(f"{needs} arrival {int(np.argmin(good))} {fault}; {otherwise}")


def block_versions(trace: EventTrace, n_blocks: int, torn: float) -> np.ndarray:
    """The version that each job reads each block from.

    Block i is read at start + torn (i / m) (time - start), and sees the updates made up to that
    moment; never fewer than `read_version`, never more than `version`.

    Returns int32[E, m], on the host.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.5]), n_updates=4)
        >>> trace.worker.tolist(), trace.read_version.tolist()
        ([0, 0, 1, 0], [0, 1, 0, 2])
        >>> block_versions(trace, 2, 1.0).tolist()
        [[0, 0], [1, 1], [0, 1], [2, 3]]
    """
    start, time = np.asarray(trace.start, np.float64), np.asarray(trace.time, np.float64)
    read, version = np.asarray(trace.read_version), np.asarray(trace.version)
    seen = np.empty((len(time), n_blocks), np.int32)
    for block in range(n_blocks):
        moment = start + torn * (block / n_blocks) * (time - start)
        seen[:, block] = np.clip(np.searchsorted(time, moment, side="right"), read, version)
    return seen


def torn_program(plan: ReplayPlan, block_version: np.ndarray) -> Program:
    """A plan of one used arrival a step as events; every block is read from its own version.

    `block_version` int[E, m].
    """
    version = np.asarray(plan.trace.version, np.int32)
    n_rows = ceil_to_grid(int(np.max(version - block_version.min(axis=1))) + 1)
    program = event_program(plan, replace(sizes_of([plan]), slots=n_rows - 1))
    spare = len(program.gradients.worker) - len(version)

    def padded(column: np.ndarray) -> np.ndarray:
        return np.concatenate([column, np.zeros((spare, *column.shape[1:]), np.int32)])

    slots = padded((block_version % n_rows).astype(np.int32))
    updates = program.updates._replace(write_slot=padded((version + 1) % n_rows), oldest_slot=None)
    gradients = program.gradients._replace(read_slot=slots)
    return replace(program, gradients=gradients, updates=updates)


def _counted(records: Any, count: int) -> Any:
    """The records, or a row of them, with the gradients of the start counted."""
    return records._replace(used=records.used + count, computed=records.computed + count)
