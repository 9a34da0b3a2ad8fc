"""What a turn is made of: samples are drawn, and a step is made of a batch of them.

    draw       y_i ~ pi_x(. | q_i)            with the keys of sample i and of its prompt
    improve    g = grad loss(log pi_x(y), what the drafts remember, A)
               x <- x + scale * optimizer(g)  once, or for minibatches and epochs

Every key is folded from the key of the run by what it is for and a number, so what a sample is does
not depend on who is drawn beside it, or when.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from asyncjax.checks import whole
from asyncjax.rollouts.advantages import Advantage, leave_one_out
from asyncjax.rollouts.corrections import Correction, effective_sample_size, none
from asyncjax.rollouts.rollout_problem import Draft, RolloutProblem
from asyncjax.simulation.arguments import check_update
from asyncjax.simulation.rows import read

Server = tuple[Any, Any]  # params, and the optimizer's state
_PROMPT, _SAMPLE, _STEP = range(3)


@dataclass(frozen=True)
class Learner:
    """What a step makes of its batch; an optimizer alone serves where a Learner does.

    Attributes:
        optimizer: Any optax optimizer.
        correction: The loss of a batch, `(new[B, T], behaviour[B, T], proximal[B, T],
            advantage[B], length[B]) -> scalar`, from log-probabilities of the tokens under the
            policy that is differentiated, under the versions that drew them, and under the policy
            as the step found it: one of `rollouts.corrections`.
        advantage: `(rewards[B], prompts[B]) -> float[B]` of a whole batch: one of
            `rollouts.advantages`.
        step_scale: Factor of what the optimizer made, a function like a correction:
            `corrections.effective_sample_size()`. None: 1.
        epochs: How often a step goes over its batch.
        minibatches: Parts of a batch, in its order, each an update of its own; must divide it.
        width: Samples drawn together, the same run up to rounding: more of them take more memory.
            None: the batch where the trace is made on the way (`rollouts.train`), and in a replay
            the batch, or a half, a quarter, ... of it, where that is less to do.

    Example:
        >>> import optax
        >>> from asyncjax import rollouts
        >>> learner = rollouts.Learner(
        ...     optax.sgd(0.1), correction=rollouts.corrections.ppo_clip(0.2), minibatches=2)
        >>> learner.passes, learner.advantage == rollouts.advantages.leave_one_out()
        (2, True)
    """

    optimizer: optax.GradientTransformation
    _: KW_ONLY
    correction: Correction = field(default_factory=none)  # also given as None
    advantage: Advantage = field(default_factory=leave_one_out)  # also given as None
    step_scale: Correction | None = None
    epochs: int = 1
    minibatches: int = 1
    width: int | None = None

    def __post_init__(self) -> None:
        for name, default in (("correction", none), ("advantage", leave_one_out)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default())
        for name in ("epochs", "minibatches", "width"):
            if name != "width" or self.width is not None:
                whole(name, getattr(self, name))

    @property
    def passes(self) -> int:
        """Updates of a step."""
        return self.epochs * self.minibatches


def learner_of(learner: Any, problem: RolloutProblem, batch: int) -> tuple[Learner, int | None]:
    """The learner of a run, also of an optimizer alone, and apart from it the width.

    So runs of two widths share what is compiled for a step. Refuses what no step can be made with.
    """
    learner = learner if isinstance(learner, Learner) else Learner(learner)
    check_update(learner.optimizer, problem.params)
    if batch % learner.minibatches:
        raise ValueError(
            f"minibatches must divide the batch of {batch} samples, got {learner.minibatches}"
        )
    return replace(learner, width=None), learner.width


class Lanes(NamedTuple):
    """Segments of samples that are drawn together; a lane that is idle has begin = end."""

    slot: Any  # int32[..., L], where the sample waits; the last row is scratch
    sample: Any  # int32[..., L]
    begin: Any  # int32[..., L], its first token
    end: Any  # int32[..., L], behind its last


class Step(NamedTuple):
    """What is known of a step beside its drafts; of all steps [T] before each."""

    number: Any  # int32[]
    members: Any  # int32[B], its samples
    group: Any  # int32[], samples of one prompt
    delay: Any  # int32[], the largest age among them
    time: Any  # float[], when it ends
    record: Any  # int32[], row of the records; R: none


class StepFigures(NamedTuple):
    """What is told of a step, scalars."""

    loss: jax.Array  # minus the mean reward of the batch
    length: jax.Array  # tokens, mean
    effective: jax.Array  # effective sample size, a share of B, as the step begins


def _folded(key: jax.Array, what: int, number: Any) -> jax.Array:
    """The key of a sample, a prompt or a step."""
    return jax.random.fold_in(jax.random.fold_in(key, what), number)


def draw(problem: Any, params: Any, key: Any, group: Any, lanes: Lanes, rows: Draft) -> Draft:
    """Draws a segment of each lane's sample; `rows` [L, ...] are the drafts as they are."""

    def segment(sample: Any, begin: Any, end: Any, draft: Draft) -> Draft:
        prompt = problem.prompt(_folded(key, _PROMPT, sample // group))
        empty = problem.empty_draft()
        draft = jax.tree.map(lambda new, old: jnp.where(begin == 0, new, old), empty, draft)
        return problem.extend(params, prompt, draft, begin, end, _folded(key, _SAMPLE, sample))

    return jax.vmap(segment)(lanes.sample, lanes.begin, lanes.end, rows)


def improve(
    problem: RolloutProblem, learner: Learner, server: Server, key: Any, step: Step, rows: Draft
) -> tuple[Server, StepFigures]:
    """One step, of the drafts of its samples, B rows."""
    numbers = step.members // step.group
    prompts = jax.vmap(lambda number: problem.prompt(_folded(key, _PROMPT, number)))(numbers)
    rewards = jax.vmap(problem.reward)(prompts, rows.tokens, rows.length)
    advantage = learner.advantage(rewards, numbers)
    batch = prompts, rows, advantage
    extras = {"delay": step.delay, "time": step.time, "key": _folded(key, _STEP, step.number)}
    if learner.passes == 1:
        server, new = _update(problem, learner, server, batch, None, extras)
    else:
        new = _log_probs(problem, server[0], batch)

        def update(number: jax.Array, server: Server) -> Server:
            part, proximal = _part((batch, new), number % learner.minibatches, learner.minibatches)
            part_key = jax.random.fold_in(extras["key"], number)
            return _update(problem, learner, server, part, proximal, extras | {"key": part_key})[0]

        server = jax.lax.fori_loop(0, learner.passes, update, server)
    effective = effective_sample_size()(new, rows.log_probs, new, advantage, rows.length)
    length = jnp.mean(rows.length.astype(rewards.dtype))
    return server, StepFigures(-jnp.mean(rewards), length, effective)


def _update(
    problem: Any, learner: Learner, server: Server, batch: Any, proximal: Any, extras: Any
) -> tuple[Server, jax.Array]:
    """One update, and the log-probabilities as it began; proximal is None where it is those.

    A batch is its prompts, drafts and advantages.
    """
    (params, opt_state), (_, rows, advantage) = server, batch

    def others(new: jax.Array) -> tuple[jax.Array, ...]:
        near = jax.lax.stop_gradient(new) if proximal is None else proximal
        return rows.log_probs, near, advantage, rows.length

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        new = _log_probs(problem, params, batch)
        return learner.correction(new, *others(new)), new

    grads, new = jax.grad(loss, has_aux=True)(params)
    optimizer = optax.with_extra_args_support(learner.optimizer)
    updates, opt_state = optimizer.update(grads, opt_state, params, **extras)
    if learner.step_scale is not None:
        scale = learner.step_scale(new, *others(new))
        updates = jax.tree.map(lambda leaf: (leaf * scale).astype(leaf.dtype), updates)
    return (optax.apply_updates(params, updates), opt_state), new


def _log_probs(problem: RolloutProblem, params: Any, batch: Any) -> jax.Array:
    """Log-probabilities of all tokens under some policy, float[B, T]."""
    prompts, rows, _ = batch
    return jax.vmap(partial(problem.log_probs, params))(prompts, rows.tokens, rows.length)


def _part(of: Any, number: jax.Array, parts: int) -> Any:
    """The minibatch of that number, in the order of the batch."""

    def cut(leaf: jax.Array) -> jax.Array:
        return read(leaf.reshape(parts, leaf.shape[0] // parts, *leaf.shape[1:]), number)

    return jax.tree.map(cut, of)
