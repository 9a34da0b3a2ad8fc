"""Reruns: a trace once more by the very pieces that a live run is made of, to the same bits.

    on each arrival that is used:  its gradient, at the version that it read    (jobs.gradient_of)
    on each step:                  the gradients that enter it, added, applied  (model.add, .step)

(where workers keep a state, on each arrival: it moves that of its worker, also if it is not used)

`simulation.replay` fuses these into one program, whose rounding may differ; nothing is fused here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.live import jobs
from asyncjax.live.server_state import Held, ServerState
from asyncjax.problems import Problem
from asyncjax.problems.problem import Model
from asyncjax.results.run import Records, Run
from asyncjax.simulation.arguments import check_update, check_workers, first_equal, key_of
from asyncjax.simulation.engine import ReplayResult, measure
from asyncjax.simulation.plan import ReplayPlan, plan
from asyncjax.simulation.program import gradients_behind
from asyncjax.simulation.replay import run_of
from asyncjax.simulation.update import Update, update_of
from asyncjax.traces import EventTrace
from asyncjax.traces.collection import Entries, exact_weights
from asyncjax.traces.event_trace import worker_count


def rerun(
    problem: Problem[Model] | Callable[..., Problem[Model]],
    trace: EventTrace,
    update: Update | optax.GradientTransformation,
    *,
    key: jax.Array | None = None,
    record_every: int | None = None,
) -> Run[Model, Records]:
    """Computes the model of a live run again from its trace, bit for bit.

    It calls the compiled pieces of the live run in the order that the trace tells, whatever the
    rule and the optimizer.

    Args:
        problem: As in `train`.
        trace: `run.trace` of a live run, or any other trace.
        update: As in `train`.
        key: That of the live run.
        record_every: As in `train`.

    Returns:
        The run. Its parameters are those of the live run where the workers computed on the same
        kind of device as this process, with the same software and flags of the compiler. Where
        workers keep a state from job to job, what was thrown away is computed too.

    Example:
        >>> import optax
        >>> from asyncjax import live, problems
        >>> problem = problems.quadratic([[1.0], [1.0]], [[0.0], [1.0]])
        >>> with live.threads(2) as workers:
        ...     run = live.train(problem, workers, optax.adam(0.1), n_updates=30)
        >>> again = live.rerun(problem, run.trace, optax.adam(0.1))
        >>> bool((again.params == run.params).all())
        True
    """
    server_problem, key = jobs.make_problem(problem, None), key_of(key)
    planned = plan(trace, width=1, record_every=record_every)
    check_update(update, server_problem.params, [trace])
    check_workers(server_problem, trace)
    problem_of = cache(lambda worker: jobs.make_problem(problem, worker))
    server_update: Update = first_equal(update_of(update))
    model = ServerState(server_problem, server_update, key, once=trace.reuse is None)
    entries = _entries(trace)
    records, losses, states = {*planned.records.tolist()}, [], dict[int, Any]()
    enters = np.zeros(trace.n_arrivals, bool)
    enters[planned.gradients.arrival] = True
    columns = (trace.worker, trace.job, trace.read_version, enters, trace.steps, trace.time)
    reads = Counter(np.asarray(trace.read_version).tolist())
    update_times = iter(np.asarray(trace.update_time).tolist())
    for arrival, (worker, job, read, enter, steps, time) in enumerate(
        zip(*(np.asarray(column).tolist() for column in columns), strict=True)
    ):
        if enter or (model.keeps and model.version < trace.n_updates):
            its, state = problem_of(worker), states.get(worker)
            if model.keeps and worker not in states:
                state = jobs.first_state(its)
            loss, gradient, states[worker] = jobs.evaluate(
                its, model.sent(read), worker, job, model.key, state
            )
            if enter:
                losses.append(loss)
                model.hold(arrival, Held(read, gradient, loss, worker, job, time))
        if steps:
            record, made_at = model.version + 1 in records, next(update_times)
            model.step(entries[model.version], worker, job, made_at, record=record)
        reads[read] -= 1
        model.keep(version for version in model.versions if reads[version] > 0)
    states_now = jobs.stacked(server_problem, states, worker_count(trace)) if model.keeps else None
    return replace(judged(model, planned, losses), worker_states=states_now)


def _entries(trace: EventTrace) -> list[Entries]:
    """Which gradients enter each step, by arrival, and with which weight."""
    steps: list[Entries] = [[] for _ in range(trace.n_updates)]
    if trace.reuse is not None:
        arrival, first, last, weight = (np.asarray(column) for column in trace.reuse)
        rows = zip(arrival.tolist(), exact_weights(weight).tolist(), strict=True)
        for row, begin, end in zip(rows, first.tolist(), last.tolist(), strict=True):
            for step in range(begin, end + 1):
                steps[step].append(row)
        return steps
    version, weight = np.asarray(trace.version), exact_weights(np.asarray(trace.weight))
    for arrival in np.flatnonzero(np.asarray(trace.used) & (version < len(steps))).tolist():
        steps[version[arrival]].append((arrival, float(weight[arrival])))
    return steps


def judged(model: ServerState, planned: ReplayPlan, losses: Sequence[np.ndarray]) -> Run:
    """The run of a trace whose steps are made, its recorded models evaluated; losses float[G]."""
    recorded = [model.recorded[int(version)] for version in planned.records]
    rows = jax.tree.map(lambda *leaves: jnp.stack([*leaves, leaves[-1]]), *recorded)
    measured = jax.jit(measure)(
        model.problem, *gradients_behind(planned), rows, jnp.asarray(np.stack(losses))
    )
    left = {"arrival_state": model.arrival_state, "failed": model.failed}
    return run_of(planned, ReplayResult(model.params, model.opt_state, measured, **left))
