"""Asynchronous block-coordinate descent (Async-BCD), replayed as its paper defines it.

Wu, Magnússon, Feyzmahdavian and Johansson 2022 (arXiv 2202.08550). Workers share a model of m
blocks; each in turn

    reads   xhat (perhaps torn, see `torn_reads`), with the write counter s when the read begins;
            draws a block j uniformly and takes grad_j f_i(xhat);
    writes  x_j <- prox_{gamma_k R}(x_j - gamma_k grad_j f_i(xhat)),
            gamma_k = rule(tau_0 .. tau_k),    tau_k = k - s.

The block x_j that is stepped from is the current one; only the gradient is old.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import jax
import optax

from asyncjax.checks import flag, real, whole
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
    plan_of,
    trace_of,
)
from asyncjax.simulation.loops.loop import Progress, run
from asyncjax.simulation.loops.torn_reads import block_versions, torn_loop
from asyncjax.simulation.plans.plan import ReplayPlan
from asyncjax.simulation.plans.single_arrivals import check_single
from asyncjax.simulation.replay import check_workers, replay, rows_of, run_of
from asyncjax.steps import descent, random_block
from asyncjax.steps.proximal import Prox
from asyncjax.traces import EventTrace

_OTHERWISE = (
    "make it with collect=traces.immediately(), or replay the trace as it is with"
    " steps.random_block"
)


@explicit
def replay_block_descent(
    problem: Problem,
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
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
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

    Raises:
        ValueError: An arrival is thrown away, makes no update of its own, is weighed or serves
            twice; `torn` is outside 0..1, or above 0 for a trace without `start`; `n_blocks` is out
            of range; or as in `replay`.
        TypeError: `n_blocks` is not an integer, or `torn` no number.
        MemoryError: The limit on memory would be exceeded.

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
    check_problem(problem)
    short = {"progress": progress, "checkpoint": checkpoint}
    execution = execution_of(execution, knows=("memory_limit", "on_record"), **short)
    check_optimizer("rule", rule)
    check_prox(prox, problem.params)
    n_blocks = whole("n_blocks", n_blocks)
    arrivals, key = trace_of(trace), key_of(key)
    if waves is not None:
        waves = flag("waves", waves)
    check_single(arrivals, "block descent", _OTHERWISE)
    optimizer = _optimizer(rule, n_blocks, prox)
    torn = real("torn", torn, least=0, most=1)
    if not torn:
        return replay(
            problem,
            trace,
            optimizer,
            record_every=record_every,
            key=key,
            waves=waves,
            execution=execution,
        )
    if arrivals.start is None:
        raise ValueError(
            f"trace must have start, the moment at which each job began, for torn={torn}; without"
            " it use torn=0"
        )
    planned = plan_of(trace, record_every=record_every)
    check_workers(problem, arrivals)
    loop = torn_loop(planned, block_versions(arrivals, n_blocks, torn), optimizer, key)
    rows = rows_of(execution, planned, problem)
    done = run_of(planned, run(loop, problem, execution.progress, execution.checkpoint, rows))
    costs = done.costs._replace(live_versions=int(arrivals.delay.max()) + 1)
    return replace(done, source=Source((arrivals,), (costs,)))


@lru_cache(maxsize=64, typed=True)
def _optimizer(
    rule: optax.GradientTransformation, n_blocks: int, prox: Prox | None
) -> optax.GradientTransformationExtraArgs:
    """One optimizer for equal arguments, so that a second call compiles nothing."""
    return random_block(descent(rule, prox=prox), n_blocks)
