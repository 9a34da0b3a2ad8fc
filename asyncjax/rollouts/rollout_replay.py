"""Rollout runs: a policy is trained on samples that older versions of it made, as a trace says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.checks import flag, instance, one_key, whole
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Array, Run, Source
from asyncjax.rollouts.learner import Learner
from asyncjax.rollouts.replay_plan import (
    check_trace,
    plan_rollouts,
    used_and_made,
)
from asyncjax.rollouts.rollout_problem import RolloutProblem
from asyncjax.rollouts.rollout_trace import RolloutTrace
from asyncjax.rollouts.versions import Outcome, version_loop
from asyncjax.simulation.arguments import Execution, check_optimizer, execution_of, forms
from asyncjax.simulation.loop import Progress, run


class RolloutRecords(NamedTuple):
    """State after some of the steps, R records; device columns may have further leading axes.

    Attributes:
        version: int32[R], steps made.
        time: float64[R], time units, when that step ended.
        delay: int32[R], the largest age in its batch.
        used: int64[R], samples trained so far.
        computed: int64[R], samples trained or thrown away so far.
        loss: float[R], the objective; without one, minus `reward`.
        finite: bool[R], every parameter is finite.
        metrics: float[R] each.
        age: float64[R], mean age in the batch.
        reward: float[R], mean reward of the batch.
        length: float[R], tokens, mean length of its samples.
        effective_sample_size: float[R], of the samples' weights as the step began, a share of the
            batch.
    """

    version: Array  # int32[R], steps made
    time: Array  # float64[R], time units, when that step ended
    delay: Array  # int32[R], the largest age in its batch
    used: Array  # int64[R], samples trained so far
    computed: Array  # int64[R], samples trained or thrown away so far
    loss: jax.Array  # float[R], the objective; without one, minus `reward`
    finite: jax.Array  # bool[R], every parameter is finite
    metrics: dict[str, jax.Array]  # float[R] each
    age: Array  # float64[R], mean age in the batch
    reward: jax.Array  # float[R], mean reward of the batch
    length: jax.Array  # float[R], tokens, mean length of its samples
    # float[R], of the samples' weights as the step began, a share of the batch
    effective_sample_size: jax.Array


@explicit
def replay(
    problem: RolloutProblem,
    trace: RolloutTrace,
    learner: Learner | optax.GradientTransformation,
    *,
    key: jax.Array,
    record_every: int | None = None,
    waves: bool = True,
    width: int | None = None,
    opt_state: Any = None,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
    """Replays a trace of rollouts: each sample is drawn by the versions that the trace says.

    The samples that begin under one version are drawn together once it is there, and wait until
    their step trains them, with the log-probabilities of their tokens; those that no step trains
    are not drawn. The trace decides when, the policy decides what: unless the lengths of the trace
    are the policy's own (`rollouts.train`), a sample may be shorter or longer than its time says.
    Where versions come in flight, one that comes when a share s of a sample's time has gone by
    draws from token s m on, with m its length in the trace, T at most; what is drawn before stays.

    The prompt of sample i is drawn with a key folded from `key` and i // group, the sample with one
    folded from `key` and i. So traces that are compared under one key deal the same prompts, and
    nothing depends on who is drawn beside whom.

    The optimizer is handed `delay` (the largest age in the step's batch), `time` (when it ends) and
    `key`. Gradients are fresh, only the data are old: there is no `read_params` and no `worker`.

    Pure in (problem, trace, learner, key), so it may be vmapped over keys, initial policies and
    states of the optimizer; the trace stays concrete.

    Args:
        problem: A policy, what it is asked, and what its answers are worth.
        trace: What `rollouts.trace` or `rollouts.train` made.
        learner: What a step makes of its batch; an optax optimizer alone is a `Learner` of it.
        key: Typed key.
        record_every: Record every so many versions, and the last; None: at most 25 records, evenly,
            the last among them.
        waves: False: samples are drawn one at a time, to the same result up to rounding.
        width: Short form of the learner's.
        opt_state: State that the optimizer begins with; None: `optimizer.init(params)`.
        execution: How the run is watched; its `mesh`, `specs`, `memory_limit` and `on_record` must
            be None.
        progress: Short for that of `execution`.
        checkpoint: Short for that of `execution`.

    Returns:
        The run: `records` as `RolloutRecords`, `trace` the one that was given, no `costs` (see
        `rollouts.summarize`). Memory: no versions but one model, its gradient and the state of the
        optimizer; 8 T + 5 bytes for each draft that is made or waits at once (at most a quarter
        more slots), 16 bytes a segment and 8 a trained sample for the plan; and what the policy
        needs to draw `width` samples, and to differentiate a minibatch of them.

    Raises:
        TypeError: An argument is of the wrong kind.
        OSError: The checkpoint cannot be written; one that was written before is intact.
        ValueError: A number is out of range, `minibatches` does not divide the batch, the trace
            trains what is not there, or the checkpoint is of another run.

    Example:
        >>> import jax, optax
        >>> from asyncjax import rollouts
        >>> problem = rollouts.contextual_bandit([[1.0, 0.0], [0.0, 1.0]])
        >>> engine, rule = rollouts.Engine(24, 1.0), rollouts.admission.budget(2)
        >>> trace = rollouts.trace([1.0], engine, rule, batch=8, n_steps=60)
        >>> learner = rollouts.Learner(
        ...     optax.sgd(1.0), correction=rollouts.corrections.truncated_importance(4.0))
        >>> run = rollouts.replay(problem, trace, learner, key=jax.random.key(0), record_every=20)
        >>> run.records.version.tolist(), bool(run.records.loss[-1] < run.records.loss[0] < -0.5)
        ([20, 40, 60], True)
    """
    check_problem(problem)
    check_trace(trace)
    execution = execution_of(execution, progress=progress, checkpoint=checkpoint)
    key = one_key("key", key)
    learner, width = learner_of(learner, width)
    check_learner(problem, learner, trace.members.shape[1], opt_state)
    every = None if record_every is None else whole("record_every", record_every)
    if not flag("waves", waves):
        width = 1
    plan = plan_rollouts(trace, problem.max_length, every, width)
    loop: Any = version_loop(plan, learner, key, opt_state)
    whole_problem: Any = problem
    outcome = run(loop, whole_problem, execution.progress, execution.checkpoint)
    return run_of_rollouts(trace, plan.records, outcome)


def check_problem(problem: object) -> None:
    """Refuses what is no policy."""
    words = "a RolloutProblem, such as rollouts.contextual_bandit makes"
    instance("problem", problem, RolloutProblem, words)


def learner_of(
    learner: Learner | optax.GradientTransformation, width: int | None = None
) -> tuple[Learner, int | None]:
    """The learner of a run, also of an optimizer alone, and apart from it the width.

    So runs of two widths share what is compiled for a step.
    """
    if not isinstance(learner, Learner):
        check_optimizer("learner", learner)
        learner = Learner(learner)
    if width is not None and learner.width is not None:
        raise ValueError(
            f"width must be None where the learner has one ({learner.width}), got {width!r}"
        )
    width = learner.width if width is None else whole("width", width)
    return replace(learner, width=None), width


def check_learner(problem: RolloutProblem, learner: Learner, batch: int, opt_state: Any) -> None:
    """Refuses what no step can be made with."""
    _check_state(problem.params, learner.optimizer, opt_state)
    if batch % learner.minibatches:
        raise ValueError(
            f"minibatches must divide the batch of {batch} samples, got {learner.minibatches}"
        )
    real = jax.eval_shape(problem.empty_draft).log_probs.dtype
    part = batch // learner.minibatches
    tokens = jax.ShapeDtypeStruct((part, problem.max_length), real)
    many, length = (jax.ShapeDtypeStruct((part,), kind) for kind in (real, jnp.int32))
    for name, value in (("correction", learner.correction), ("step_scale", learner.step_scale)):
        if value is not None:
            made = jax.eval_shape(value, tokens, tokens, tokens, many, length)
            _check_made(name, made, (), "a scalar")
    rewards, prompts = (jax.ShapeDtypeStruct((batch,), kind) for kind in (real, jnp.int32))
    value: Any = learner.advantage
    made = jax.eval_shape(value, rewards, prompts)
    _check_made("advantage", made, (batch,), f"{batch} numbers, one for each sample,")


def _check_state(params: Any, optimizer: optax.GradientTransformation, given: Any) -> None:
    """Refuses a state of another optimizer or model; None is its own."""
    if given is None:
        return
    own = jax.eval_shape(lambda model: jax.tree.map(jnp.asarray, optimizer.init(model)), params)
    try:
        fits = forms(jax.tree.map(jnp.asarray, given)) == forms(own)
    except TypeError:  # something that is no array
        fits = False
    if not fits:
        raise ValueError(
            "opt_state must have the structure, shapes and dtypes of optimizer.init(params): it is"
            " the state of another optimizer or of another model"
        )


def _check_made(name: str, made: Any, shape: tuple[int, ...], words: str) -> None:
    """Refuses a function that makes something else."""
    if getattr(made, "shape", None) != shape or not jnp.issubdtype(made.dtype, jnp.floating):
        raise ValueError(f"{name} must return {words} of a floating-point type, got {made}")


def run_of_rollouts(trace: RolloutTrace, recorded: np.ndarray, outcome: Outcome) -> Run:
    """The run of a trace, recorded at these versions int64[R]."""
    used, computed = used_and_made(trace, recorded)
    notes, ages = outcome.notes, trace.age.reshape(trace.members.shape)[recorded - 1]
    records = RolloutRecords(
        version=recorded.astype(np.int32),
        time=trace.step_end[recorded - 1],
        delay=ages.max(1).astype(np.int32),
        used=used,
        computed=computed,
        loss=notes.loss,
        finite=notes.finite,
        metrics=notes.metrics,
        age=ages.mean(1),
        reward=notes.reward,
        length=notes.length,
        effective_sample_size=notes.effective,
    )
    own: Any = trace
    return Run(outcome.params, outcome.opt_state, records, Source((own,), ()))
