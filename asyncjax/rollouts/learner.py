"""What a turn is made of: samples are drawn, and a step is made of a batch of them.

    draw       y_i ~ pi_x(. | q_i)            with the keys of sample i and of its prompt
    improve    g = grad loss(log pi_x(y), what the drafts remember, A)
               x <- x + scale * optimizer(g)  once, or for minibatches and epochs

Every key is folded from the key of the run by what it is for and a number, so what a sample is does
not depend on who is drawn beside it, or when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from asyncjax.problems.policies.rollout_problem import Draft, RolloutProblem
from asyncjax.simulation.plans.rows import read
from asyncjax.simulation.rollouts.advantages import Advantage
from asyncjax.simulation.rollouts.corrections import Correction, effective_sample_size
from asyncjax.simulation.rollouts.plan import Lanes

_PROMPT, _SAMPLE, _STEP = range(3)


@dataclass(frozen=True)
class Learning:
    """What a step does with its batch; static."""

    optimizer: optax.GradientTransformation
    correction: Correction
    advantage: Advantage
    step_scale: Correction | None
    epochs: int
    minibatches: int

    @property
    def passes(self) -> int:
        """Updates of a step."""
        return self.epochs * self.minibatches


class Batch(NamedTuple):
    """What a step is made of, B samples."""

    prompts: Any
    tokens: jax.Array  # int32[B, T]
    behaviour: jax.Array  # float[B, T], log-probabilities under the versions that drew them
    length: jax.Array  # int32[B]
    advantage: jax.Array  # float[B]


class StepFigures(NamedTuple):
    """What is told of a step, scalars."""

    loss: jax.Array  # minus the mean reward of the batch
    length: jax.Array  # tokens, mean
    effective: jax.Array  # effective sample size, a share of B, as the step begins


class StepExtras(NamedTuple):
    """What the optimizer is told of a step."""

    delay: Any  # int32[], the largest age in it
    time: Any  # float[], when it ends


def sample_key(key: jax.Array, sample: Any) -> jax.Array:
    """The key of a sample."""
    return jax.random.fold_in(jax.random.fold_in(key, _SAMPLE), sample)


def prompt_key(key: jax.Array, prompt: Any) -> jax.Array:
    """The key of a prompt."""
    return jax.random.fold_in(jax.random.fold_in(key, _PROMPT), prompt)


def empty_rows(problem: RolloutProblem, count: int) -> Draft:
    """Drafts without tokens, `count` rows."""
    empty = problem.empty_draft()
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), empty)


def draw(
    problem: RolloutProblem, params: Any, key: jax.Array, group: Any, lanes: Lanes, rows: Draft
) -> Draft:
    """Draws a segment of each lane's sample; `rows` [L, ...] are the drafts as they are."""

    def one(sample: Any, begin: Any, end: Any, draft: Draft) -> Draft:
        prompt = problem.prompt(prompt_key(key, sample // group))
        empty = problem.empty_draft()
        draft = jax.tree.map(lambda new, old: jnp.where(begin == 0, new, old), empty, draft)
        return problem.extend(params, prompt, draft, begin, end, sample_key(key, sample))

    return jax.vmap(one)(lanes.sample, lanes.begin, lanes.end, rows)


def improve(
    problem: RolloutProblem,
    learning: Learning,
    server: tuple[Any, Any],
    key: jax.Array,
    numbers: tuple[Any, Any, Any],
    rows: Draft,
    extras: StepExtras,
) -> tuple[tuple[Any, Any], StepFigures]:
    """One step of (params, optimizer state).

    `numbers`: the step, its samples int32[B], and how many samples a prompt has; `rows`: their
    drafts.
    """
    step, samples, group = numbers
    prompt_numbers = samples // group
    prompts = jax.vmap(lambda number: problem.prompt(prompt_key(key, number)))(prompt_numbers)
    rewards = jax.vmap(problem.reward)(prompts, rows.tokens, rows.length)
    advantage = learning.advantage(rewards, prompt_numbers)
    batch = Batch(prompts, rows.tokens, rows.log_probs, rows.length, advantage)
    handed = extras._asdict()
    handed["key"] = jax.random.fold_in(jax.random.fold_in(key, _STEP), step)
    if learning.passes == 1:
        server, new = _update(problem, learning, server, batch, None, handed)
    else:
        new = _log_probs(problem, server[0], batch)

        def update(number: jax.Array, server: tuple[Any, Any]) -> tuple[Any, Any]:
            part, proximal = _part((batch, new), number % learning.minibatches, learning)
            own = {**handed, "key": jax.random.fold_in(handed["key"], number)}
            return _update(problem, learning, server, part, proximal, own)[0]

        server = jax.lax.fori_loop(0, learning.passes, update, server)
    effective = effective_sample_size()(new, batch.behaviour, new, advantage, batch.length)
    length = jnp.mean(rows.length.astype(rewards.dtype))
    return server, StepFigures(-jnp.mean(rewards), length, effective)


def _update(
    problem: RolloutProblem,
    learning: Learning,
    server: tuple[Any, Any],
    batch: Batch,
    proximal: jax.Array | None,
    handed: dict[str, Any],
) -> tuple[tuple[Any, Any], jax.Array]:
    """One update, and the log-probabilities as it began; proximal is None where it is those."""
    params, opt_state = server

    def others(new: jax.Array) -> tuple[jax.Array, ...]:
        near = jax.lax.stop_gradient(new) if proximal is None else proximal
        return batch.behaviour, near, batch.advantage, batch.length

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        new = _log_probs(problem, params, batch)
        return learning.correction(new, *others(new)), new

    grads, new = jax.grad(loss, has_aux=True)(params)
    optimizer = optax.with_extra_args_support(learning.optimizer)
    updates, opt_state = optimizer.update(grads, opt_state, params, **handed)
    if learning.step_scale is not None:
        scale = learning.step_scale(new, *others(new))
        updates = jax.tree.map(lambda leaf: (leaf * scale).astype(leaf.dtype), updates)
    return (optax.apply_updates(params, updates), opt_state), new


def _log_probs(problem: RolloutProblem, params: Any, batch: Batch) -> jax.Array:
    """Log-probabilities of all tokens under some policy, float[B, T]."""

    def one(prompt: Any, tokens: jax.Array, length: jax.Array) -> jax.Array:
        return problem.log_probs(params, prompt, tokens, length)

    return jax.vmap(one)(batch.prompts, batch.tokens, batch.length)


def _part(of: Any, number: jax.Array, learning: Learning) -> Any:
    """The minibatch of that number, in the order of the batch."""

    def cut(leaf: jax.Array) -> jax.Array:
        shape = (learning.minibatches, leaf.shape[0] // learning.minibatches, *leaf.shape[1:])
        return read(leaf.reshape(shape), number)

    return jax.tree.map(cut, of)
