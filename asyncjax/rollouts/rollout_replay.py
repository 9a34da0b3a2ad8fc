"""Rollout runs: a policy is trained on samples that older versions of it made, as a trace says."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.checks import file_path, flag, function, function_of, instance, one_key, whole
from asyncjax.problems import RolloutProblem
from asyncjax.results.run import Array, Run, Source
from asyncjax.simulation.arguments import check_optimizer, forms
from asyncjax.simulation.loops.loop import Progress, run
from asyncjax.simulation.rollouts.advantages import Advantage, leave_one_out
from asyncjax.simulation.rollouts.corrections import Correction, none
from asyncjax.simulation.rollouts.learning import Learning
from asyncjax.simulation.rollouts.plan import (
    check_trace,
    plan_rollouts,
    used_and_made,
)
from asyncjax.simulation.rollouts.versions import Outcome, version_loop
from asyncjax.traces import RolloutTrace


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


def replay_rollouts(
    problem: RolloutProblem,
    trace: RolloutTrace,
    optimizer: optax.GradientTransformation,
    *,
    key: jax.Array,
    correction: Correction | None = None,
    advantage: Advantage | None = None,
    step_scale: Correction | None = None,
    epochs: int = 1,
    minibatches: int = 1,
    record_every: int | None = None,
    waves: bool = True,
    width: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    opt_state: Any = None,
) -> Run:
    """Replays a trace of rollouts: each sample is drawn by the versions that the trace says.

    The samples that begin under one version are drawn together once it is there, and wait until
    their step trains them, with the log-probabilities of their tokens; those that no step trains
    are not drawn. The trace decides when, the policy decides what: unless the lengths of the trace
    are the policy's own (`train_rollouts`), a sample may be shorter or longer than its time says.
    Where versions come in flight, one that comes when a share s of a sample's time has gone by
    draws from token s m on, with m its length in the trace, T at most; what is drawn before stays.

    The prompt of sample i is drawn with a key folded from `key` and i // group, the sample with one
    folded from `key` and i. So traces that are compared under one key deal the same prompts, and
    nothing depends on who is drawn beside whom.

    The optimizer is handed `delay` (the largest age in the step's batch), `time` (when it ends) and
    `key`. Gradients are fresh, only the data are old: there is no `read_params` and no `worker`.

    Pure in (problem, trace, optimizer, key), so it may be vmapped over keys, initial policies and
    states of the optimizer; the trace stays concrete.

    Args:
        problem: A policy, what it is asked, and what its answers are worth.
        trace: What `traces.rollouts` or `train_rollouts` made.
        optimizer: Any optax optimizer.
        key: Typed key.
        correction: The loss of a batch, `(new[B, T], behaviour[B, T], proximal[B, T],
            advantage[B], length[B]) -> scalar`, from log-probabilities of the tokens under the
            policy that is differentiated, under the versions that drew them, and under the policy
            as the step found it: one of `simulation.corrections`. None: `corrections.none()`.
        advantage: `(rewards[B], prompts[B]) -> float[B]` of a whole batch: one of
            `simulation.advantages`. None: `advantages.leave_one_out()`.
        step_scale: Factor of what the optimizer made, a function like a correction:
            `corrections.effective_sample_size()`. None: 1.
        epochs: How often a step goes over its batch.
        minibatches: Parts of a batch, in its order, each an update of its own; must divide it.
        record_every: Record every so many versions, and the last; None: at most 25 records, evenly,
            the last among them.
        waves: False: samples are drawn one at a time, to the same result up to rounding.
        width: Samples drawn together; None: the batch, or a half, a quarter, ... of it, where that
            is less to do.
        progress: As in `replay`.
        checkpoint: As in `replay`.
        opt_state: State that the optimizer begins with; None: `optimizer.init(params)`.

    Returns:
        The run: `records` as `RolloutRecords`, `trace` the one that was given, no `costs` (see
        `traces.summarize_rollouts`). Memory: no versions but one model, its gradient and the state
        of the optimizer; 8 T + 5 bytes for each draft that is made or waits at once (at most a
        quarter more slots), 16 bytes a segment and 8 a trained sample for the plan; and what
        the policy needs to draw `width` samples, and to differentiate a minibatch of them.

    Raises:
        TypeError: An argument is of the wrong kind.
        OSError: The checkpoint cannot be written; one that was written before is intact.
        ValueError: A number is out of range, `minibatches` does not divide the batch, the trace
            trains what is not there, or the checkpoint is of another run.

    Example:
        >>> import jax, optax
        >>> from asyncjax import problems, simulation, traces
        >>> problem = problems.contextual_bandit([[1.0, 0.0], [0.0, 1.0]])
        >>> trace = traces.rollouts([1.0], n_slots=24, batch=8, n_steps=60, training_time=1.0,
        ...     rule=traces.admission.budget(2))
        >>> run = simulation.replay_rollouts(
        ...     problem, trace, optax.sgd(1.0), key=jax.random.key(0), record_every=20,
        ...     correction=simulation.corrections.truncated_importance(4.0))
        >>> run.records.version.tolist(), bool(run.records.loss[-1] < run.records.loss[0] < -0.5)
        ([20, 40, 60], True)
    """
    check_problem(problem)
    check_trace(trace)
    if progress is not None:
        function("progress", progress, "a function of a Progress")
    if checkpoint is not None:
        file_path("checkpoint", checkpoint)
    key = one_key("key", key)
    learning = Learning(
        optimizer,
        none() if correction is None else correction,
        leave_one_out() if advantage is None else advantage,
        step_scale,
        whole("epochs", epochs),
        whole("minibatches", minibatches),
    )
    check_learning(problem, learning, trace.members.shape[1], opt_state)
    every = None if record_every is None else whole("record_every", record_every)
    width = None if width is None else whole("width", width)
    if not flag("waves", waves):
        width = 1
    plan = plan_rollouts(trace, problem.max_length, every, width)
    loop: Any = version_loop(plan, learning, key, opt_state)
    whole_problem: Any = problem
    return run_of_rollouts(trace, plan.records, run(loop, whole_problem, progress, checkpoint))


def check_problem(problem: object) -> None:
    """Refuses what is no policy."""
    words = "a RolloutProblem, such as problems.contextual_bandit makes"
    instance("problem", problem, RolloutProblem, words)


def check_learning(problem: RolloutProblem, learning: Learning, batch: int, opt_state: Any) -> None:
    """Refuses what no step can be made with."""
    check_optimizer("optimizer", learning.optimizer)
    _check_state(problem.params, learning.optimizer, opt_state)
    if batch % learning.minibatches:
        raise ValueError(
            f"minibatches must divide the batch of {batch} samples, got {learning.minibatches}"
        )
    real = jax.eval_shape(problem.empty_draft).log_probs.dtype
    part = batch // learning.minibatches
    tokens = jax.ShapeDtypeStruct((part, problem.max_length), real)
    many, length = (jax.ShapeDtypeStruct((part,), kind) for kind in (real, jnp.int32))
    for name, value in (("correction", learning.correction), ("step_scale", learning.step_scale)):
        if value is not None:
            function_of(name, value, "new", "behaviour", "proximal", "advantage", "length")
            made = jax.eval_shape(value, tokens, tokens, tokens, many, length)
            _check_made(name, made, (), "a scalar")
    function_of("advantage", learning.advantage, "rewards", "prompts")
    rewards, prompts = (jax.ShapeDtypeStruct((batch,), kind) for kind in (real, jnp.int32))
    made = jax.eval_shape(learning.advantage, rewards, prompts)
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
