"""What a turn is made of: samples are drawn, and a step is made of a batch of them.

    draw       y_i ~ pi_x(. | q_i)            with the keys of sample i and of its prompt
    improve    g = grad loss(log pi_x(y), what the drafts remember, A)
               x <- x + scale * optimizer(g)  once, or for minibatches and epochs

Every key is folded from the key of the run by what it is for and a number, so what a sample is does
not depend on who is drawn beside it, or when.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from asyncjax.checks import function_of, whole
from asyncjax.rollouts.advantages import Advantage, leave_one_out
from asyncjax.rollouts.corrections import Correction, effective_sample_size, none
from asyncjax.rollouts.replay_plan import Lanes
from asyncjax.rollouts.rollout_problem import Draft, RolloutProblem
from asyncjax.simulation.arguments import check_optimizer
from asyncjax.simulation.rows import read

_PROMPT, _SAMPLE, _STEP = range(3)


@dataclass(frozen=True)
class Learner:
    """What a step makes of its batch; an optimizer alone serves where a Learner does.

    Attributes:
        optimizer: Any optax optimizer.
        correction: The loss of a batch, `(new[B, T], behaviour[B, T], proximal[B, T],
            advantage[B], length[B]) -> scalar`, from log-probabilities of the tokens under the
            policy that is differentiated, under the versions that drew them, and under the policy
            as the step found it: one of `rollouts.corrections`. None: `corrections.none()`.
        advantage: `(rewards[B], prompts[B]) -> float[B]` of a whole batch: one of
            `rollouts.advantages`. None: `advantages.leave_one_out()`.
        step_scale: Factor of what the optimizer made, a function like a correction:
            `corrections.effective_sample_size()`. None: 1.
        epochs: How often a step goes over its batch.
        minibatches: Parts of a batch, in its order, each an update of its own; must divide it.
        width: Samples drawn together, the same run up to rounding: more of them take more memory.
            None: the batch where the trace is made on the way (`rollouts.train`), and in a replay
            the batch, or a half, a quarter, ... of it, where that is less to do.

    Raises:
        TypeError: A field is of the wrong kind.
        ValueError: `epochs`, `minibatches` or `width` is out of range.

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
    correction: Correction | None = None
    advantage: Advantage | None = None
    step_scale: Correction | None = None
    epochs: int = 1
    minibatches: int = 1
    width: int | None = None

    def __post_init__(self) -> None:
        check_optimizer("optimizer", self.optimizer)
        if self.correction is None:
            object.__setattr__(self, "correction", none())
        if self.advantage is None:
            object.__setattr__(self, "advantage", leave_one_out())
        for name in ("correction", "step_scale"):
            if getattr(self, name) is not None:
                words = "new", "behaviour", "proximal", "advantage", "length"
                function_of(name, getattr(self, name), *words)
        function_of("advantage", self.advantage, "rewards", "prompts")
        for name in ("epochs", "minibatches"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if self.width is not None:
            object.__setattr__(self, "width", whole("width", self.width))

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
    learner: Learner,
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
    compare: Any = learner.advantage
    advantage = compare(rewards, prompt_numbers)
    batch = Batch(prompts, rows.tokens, rows.log_probs, rows.length, advantage)
    handed = extras._asdict()
    handed["key"] = jax.random.fold_in(jax.random.fold_in(key, _STEP), step)
    if learner.passes == 1:
        server, new = _update(problem, learner, server, batch, None, handed)
    else:
        new = _log_probs(problem, server[0], batch)

        def update(number: jax.Array, server: tuple[Any, Any]) -> tuple[Any, Any]:
            part, proximal = _part((batch, new), number % learner.minibatches, learner)
            own = {**handed, "key": jax.random.fold_in(handed["key"], number)}
            return _update(problem, learner, server, part, proximal, own)[0]

        server = jax.lax.fori_loop(0, learner.passes, update, server)
    effective = effective_sample_size()(new, batch.behaviour, new, advantage, batch.length)
    length = jnp.mean(rows.length.astype(rewards.dtype))
    return server, StepFigures(-jnp.mean(rewards), length, effective)


def _update(
    problem: RolloutProblem,
    learner: Learner,
    server: tuple[Any, Any],
    batch: Batch,
    proximal: jax.Array | None,
    handed: dict[str, Any],
) -> tuple[tuple[Any, Any], jax.Array]:
    """One update, and the log-probabilities as it began; proximal is None where it is those."""
    params, opt_state = server
    correction: Any = learner.correction

    def others(new: jax.Array) -> tuple[jax.Array, ...]:
        near = jax.lax.stop_gradient(new) if proximal is None else proximal
        return batch.behaviour, near, batch.advantage, batch.length

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        new = _log_probs(problem, params, batch)
        return correction(new, *others(new)), new

    grads, new = jax.grad(loss, has_aux=True)(params)
    optimizer = optax.with_extra_args_support(learner.optimizer)
    updates, opt_state = optimizer.update(grads, opt_state, params, **handed)
    if learner.step_scale is not None:
        scale = learner.step_scale(new, *others(new))
        updates = jax.tree.map(lambda leaf: (leaf * scale).astype(leaf.dtype), updates)
    return (optax.apply_updates(params, updates), opt_state), new


def _log_probs(problem: RolloutProblem, params: Any, batch: Batch) -> jax.Array:
    """Log-probabilities of all tokens under some policy, float[B, T]."""

    def one(prompt: Any, tokens: jax.Array, length: jax.Array) -> jax.Array:
        return problem.log_probs(params, prompt, tokens, length)

    return jax.vmap(one)(batch.prompts, batch.tokens, batch.length)


def _part(of: Any, number: jax.Array, learner: Learner) -> Any:
    """The minibatch of that number, in the order of the batch."""

    def cut(leaf: jax.Array) -> jax.Array:
        shape = (learner.minibatches, leaf.shape[0] // learner.minibatches, *leaf.shape[1:])
        return read(leaf.reshape(shape), number)

    return jax.tree.map(cut, of)
