"""Proximal incremental aggregated gradient (PIAG), replayed as its paper defines it.

Wu, Magnússon, Feyzmahdavian and Johansson 2022 (arXiv 2202.08550). From a table g[i] = grad
f_i(x_0), on every arrival,

    g[w] <- the gradient that arrived;      tau_k = age of the oldest row
    gamma_k = rule(tau_0 .. tau_k)
    x_{k+1} = prox_{gamma_k R}(x_k - gamma_k (1/n) sum_i g[i])
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from asyncjax.checks import flag, instance, one_key, whole
from asyncjax.problems import Problem
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Run, Source
from asyncjax.simulation.arguments import (
    Execution,
    check_optimizer,
    check_problem,
    check_prox,
    execution_of,
    key_of,
    trace_of,
)
from asyncjax.simulation.loops.loop import Progress
from asyncjax.simulation.plans.extras import job_key
from asyncjax.simulation.plans.plan import ReplayPlan
from asyncjax.simulation.plans.single_arrivals import check_single
from asyncjax.simulation.replay import check_workers, replay
from asyncjax.steps import aggregated
from asyncjax.steps.proximal import Prox
from asyncjax.traces import EventTrace
from asyncjax.traces.event_trace import worker_count

_OTHERWISE = (
    "make it with collect=traces.immediately(), or replay the trace as it is with an optimizer of"
    " your choice: groups and tables of other kinds are in the trace itself"
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

    Raises:
        TypeError: `n_workers` is no integer, or another argument of the wrong kind.
        ValueError: `n_workers` is below 1 or above the number of shards, or is None where the
            problem has none.

    Example:
        >>> import jax, numpy as np
        >>> from asyncjax import problems, simulation
        >>> problem = problems.quadratic(np.ones((3, 2)), np.arange(6.0).reshape(3, 2))
        >>> simulation.first_gradients(problem, key=jax.random.key(0)).shape
        (3, 2)
    """
    instance("problem", problem, Problem, "a Problem, as asyncjax.problems makes it")
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
    problem: Problem,
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
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
    """Replays a trace as proximal incremental aggregated gradient.

    The table has a row for each worker of the trace, and the step of an update depends on the age
    of its oldest row, about twice the delay of the gradient that arrived; `steps.table_delays`
    gives these ages beforehand. A worker that is never heard again stops the training: watch
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

    Raises:
        ValueError: An arrival is thrown away, makes no update of its own, is weighed or serves
            twice; or as in `replay`.
        MemoryError: As in `replay`.

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
    check_problem(problem)
    short = {"progress": progress, "checkpoint": checkpoint}
    execution = execution_of(execution, knows=("memory_limit", "on_record"), **short)
    check_optimizer("rule", rule)
    check_prox(prox, problem.params)
    arrivals = trace_of(trace)
    check_single(arrivals, "PIAG", _OTHERWISE)
    check_workers(problem, arrivals)
    n_workers, key = worker_count(arrivals), key_of(key)
    start = None
    if flag("full_start", full_start):
        table = first_gradients(problem, n_workers, key=key)
        start = aggregated(rule, n_workers, initial=table, prox=prox).init(problem.params)
        if (told := execution.on_record) is not None:
            execution = replace(execution, on_record=lambda row: told(_counted(row, n_workers)))
    run = replay(
        problem,
        trace,
        _optimizer(rule, n_workers, prox),
        record_every=record_every,
        key=key,
        waves=waves,
        width=width,
        execution=execution,
        opt_state=start,
    )
    return _with_first_gradients(run, n_workers) if full_start else run


@lru_cache(maxsize=64, typed=True)
def _optimizer(
    rule: optax.GradientTransformation, n_workers: int, prox: Prox | None
) -> optax.GradientTransformationExtraArgs:
    """One optimizer for equal arguments, so that a second call compiles nothing."""
    return aggregated(rule, n_workers, prox=prox)


def _with_first_gradients(run: Run, count: int) -> Run:
    """The run with the gradients of the start counted."""
    costs, records = run.costs, run.records
    costs = costs._replace(
        gradients_used=costs.gradients_used + count, uplinks=costs.uplinks + count
    )
    source = Source(run.source.traces, (costs,))
    return replace(run, records=_counted(records, count), source=source)


def _counted(records: Any, count: int) -> Any:
    """The records, or a row of them, with the gradients of the start counted."""
    return records._replace(used=records.used + count, computed=records.computed + count)
