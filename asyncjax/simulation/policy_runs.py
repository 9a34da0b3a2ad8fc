"""Running a policy.

SGD whose server decides before every update how many workers to wait for and what to ask of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import optax

from asyncjax.checks import instance, one_key, whole
from asyncjax.clocks import Clock
from asyncjax.problems import Problem
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Run, Source
from asyncjax.simulation.arguments import (
    Execution,
    check_problem,
    execution_of,
    plain_optimizer,
)
from asyncjax.simulation.loop import Progress, RowTeller, run
from asyncjax.simulation.loops.loads import load_rule
from asyncjax.simulation.loops.policy import PolicyInputs, PolicySizes, policy_loop
from asyncjax.simulation.update import Update
from asyncjax.stragglers import Policy, Response, fixed
from asyncjax.stragglers.policies.policy import check_policy
from asyncjax.traces import Synchronous


@explicit
def run_policy(
    problem: Problem,
    times: Response | Clock,
    policy: Policy | Synchronous,
    update: Update | optax.GradientTransformation,
    *,
    n_updates: int,
    record_every: int = 1,
    key: jax.Array,
    rows_at_once: int | None = None,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
    """Trains with the k fastest of n workers, each computing `load` samples: a policy decides both.

    x_{j+1} = x_j + optimizer((1/k) sum over the k fastest of the mean gradient of `load` rows of
    their shard). The others are cancelled, and all begin the next update together.

    The time of update j at worker i and the rows it draws are functions of (key, i, j): policies
    compared under one key face the same workers, and a larger load adds rows to those of a smaller
    one. Under x64 the times are those of `traces.synchronous(clock, k=k, key=key)`; in single
    precision random laws draw other numbers than traces, which are made in double. The optimizer is
    handed what `replay` hands it (`delay` 0, `worker` the k-th to answer, `job` the update, `time`,
    `key`, `read_params`).

    Pure in (problem, times, policy, key): jit it, or vmap it over keys, step sizes and stages. k
    and the load are traced, so all policies of one kind share one compiled loop. Memory: that of
    the rows of one backward pass (see `rows_at_once`), and 12 bytes for each worker and update for
    the trace.

    Args:
        problem: What is optimised: made with the default batch, the whole shard, from which loads
            are drawn without replacement; or without samples (`problems.from_gradient`,
            `quadratic`), for policies of a constant load.
        times: How long a worker takes for a load: a response, or a clock without losses and powers
            (read as "scale").
        policy: Decides (k, load); see `stragglers`. Or `traces.Synchronous`, of a policy or of
            numbers, which are those of `stragglers.fixed(k, load)`.
        update: Any optax optimizer; an `Update` may be nothing more here.
        n_updates: At least 1.
        record_every: Record a row after every so many updates and at the end. A policy sees the
            loss where a row is recorded.
        key: Typed key.
        rows_at_once: None: one backward pass over the `policy.max_load` rows of all n workers,
            those that do not count masked; under vmap over step sizes and stages the drawn rows are
            shared. A number: only rows that count are taken, so many in a pass: less work where k
            or loads are small, and a bound on memory.
        execution: A checkpoint, progress and `on_record`, as in `replay`.
        progress: Short form of the execution's; the run is then cut into pieces, to the same bits.
        checkpoint: Short form of the execution's.

    Returns:
        The run: `records` as `PolicyRecords` (costs are sums from the start, `samples_done` counts
        cancelled jobs by the share of their computing that was done, computing coming after
        communicating), `trace`, `costs`, and `policy_state`. Inside compiled code the trace has the
        static capacity of n_updates times n arrivals.

    Note:
        Fastest-k steps are biased towards the shards of workers that are fast on average: deal data
        at random.

    Raises:
        TypeError: `times`, `policy` or a number is of another kind.
        ValueError: A number is below 1; the clock loses jobs or changes power; workers and shards
            do not fit; the load is larger than a shard, or varies where the problem has no samples.

    Example:
        >>> import jax, numpy as np, optax
        >>> from asyncjax import clocks, problems, simulation, stragglers
        >>> features = np.random.default_rng(0).standard_normal((80, 3))
        >>> problem = problems.least_squares(features, features @ np.ones(3), n_workers=8)
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.1), communicate=clocks.exponential(1.0), n_workers=8)
        >>> policy = stragglers.staged(k=[1, 4], load=[2, 10], updates=[50, 50])
        >>> run = simulation.run_policy(
        ...     problem, times, policy, optax.sgd(0.1), n_updates=100, key=jax.random.key(0))
        >>> int(run.records.uplinks[-1]), float(run.records.samples_assigned[-1])
        (250, 4800.0)

    Reference:
        After Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589.
    """
    check_problem(problem)
    short = {"progress": progress, "checkpoint": checkpoint}
    execution = execution_of(execution, knows=("on_record",), **short)
    optimizer = plain_optimizer(update, "a run of a policy")
    one_key("key", key)
    instance("times", times, (Response, Clock), "a response or a clock")
    if not times.is_plain:
        raise ValueError("times must be without losses and powers, got a clock that has some")
    n = times.n_workers
    policy = _policy_of(policy, n)
    check_policy(policy, n)
    total, every = whole("n_updates", n_updates), whole("record_every", record_every)
    if total * n >= 2**31:
        raise ValueError(f"n_updates must make fewer than 2**31 jobs of {n} workers, got {total}")
    if rows_at_once is not None:
        rows_at_once = whole("rows_at_once", rows_at_once)
    sizes = PolicySizes(total, min(every, total), n, load_rule(problem, policy, n, rows_at_once))
    loop = policy_loop(sizes, optimizer, PolicyInputs(times, policy, key))
    told = execution.on_record
    rows = None if told is None else RowTeller(told, sizes.records)
    state = run(loop, problem, execution.progress, execution.checkpoint, rows)
    return Run(
        state.params,
        state.opt_state,
        state.records,
        Source((), ()),
        rounds=state.rounds,
        policy_state=state.policy_state,
    )


def _policy_of(policy: Any, n_workers: int) -> Policy:
    """The policy itself, also that of synchronous rounds."""
    if not isinstance(policy, Synchronous):
        return policy
    if isinstance(policy.k, Policy):
        return policy.k
    return fixed(whole("k", policy.k, 1, n_workers), policy.load)
