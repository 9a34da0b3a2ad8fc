r"""A contextual bandit with a softmax policy: the smallest rollout problem; all of it is known.

.. math:: \pi_x(a | c) = \frac{e^{z_{ca}}}{\sum_b e^{z_{cb}}}, \qquad
          z_c = x_c \ \text{(tabular)} \quad \text{or} \quad z_c = \phi_c^\top x
          \ \text{(linear in features)}

.. math:: f(x) = -\sum_c p_c \sum_a \pi_x(a | c) \, r_{ca} \ge -\sum_c p_c \max_a r_{ca}

A sample is one token, the action. The objective is the sum above, and no estimate: so a bias of the
gradients, from actions of old policies, shows in where a run ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import real
from asyncjax.problems import arrays
from asyncjax.problems.transfers import explicit
from asyncjax.rollouts.rollout_problem import Draft, RolloutProblem, placed


class BanditData(NamedTuple):
    """What is known of every context."""

    rewards: jax.Array  # float[C, A], r_ca, the mean reward of an action
    chances: jax.Array  # float[C], p_c, of a context; their sum is 1
    features: jax.Array | None  # float[C, d], phi_c; None: the policy is a table


class Context(NamedTuple):
    """A bandit's prompt."""

    context: jax.Array  # int32[], 0..C-1
    luck: jax.Array  # float[A], what every action brings here beside its mean; no policy reads it


@dataclass(frozen=True)
class BanditPrompt:
    """A context by its chance, with the noise of its rewards."""

    noise: float

    def __call__(self, data: BanditData, key: jax.Array) -> Context:
        """Returns the context and the luck of all actions."""
        which, luck = jax.random.split(key)
        context = jax.random.categorical(which, jnp.log(data.chances)).astype(jnp.int32)
        kind, shape = data.rewards.dtype, data.rewards.shape[1:]
        if not self.noise:
            return Context(context, jnp.zeros(shape, kind))
        return Context(context, self.noise * jax.random.normal(luck, shape, kind))


def bandit_policy(data: BanditData, params: jax.Array, context: Any = slice(None)) -> jax.Array:
    """Returns log pi(a | c), float[A] of one context, or float[C, A] of all."""
    scores = params[context] if data.features is None else data.features[context] @ params
    return jax.nn.log_softmax(scores)


def bandit_extend(
    data: BanditData,
    params: jax.Array,
    prompt: Context,
    draft: Draft,
    begin: Any,
    end: Any,
    key: jax.Array,
) -> Draft:
    """Draws the action, if begin <= 0 < end."""
    log_probs = bandit_policy(data, params, prompt.context)
    action = jax.random.categorical(jax.random.fold_in(key, 0), log_probs)
    drawn = (jnp.asarray(begin) <= 0) & (jnp.asarray(end) > 0) & ~draft.ended
    draft = placed(draft, 0, action, log_probs[action], drawn)
    return draft._replace(ended=draft.ended | drawn)


def bandit_log_probs(
    data: BanditData, params: jax.Array, prompt: Context, tokens: jax.Array, length: Any
) -> jax.Array:
    """Returns log pi(action | context), float[1]; 0 of a sample without tokens."""
    log_probs = bandit_policy(data, params, prompt.context)
    return jnp.where(jnp.arange(1) < length, log_probs[tokens], 0)


def bandit_reward(data: BanditData, prompt: Context, tokens: jax.Array, length: Any) -> jax.Array:
    """Returns r_ca and the luck of a; 0 of a sample without tokens."""
    action = tokens[0]
    reward = data.rewards[prompt.context, action] + prompt.luck[action]
    return jnp.where(jnp.asarray(length) > 0, reward, 0)


def bandit_objective(data: BanditData, params: jax.Array) -> jax.Array:
    """Returns minus the expected reward, summed over contexts and actions."""
    chosen = jnp.exp(bandit_policy(data, params))
    return -jnp.sum(data.chances[:, None] * chosen * data.rewards)


def bandit_regret(data: BanditData, params: jax.Array) -> jax.Array:
    """Returns by how much the best actions' expected reward exceeds the policy's."""
    best = jnp.sum(data.chances * jnp.max(data.rewards, 1))
    return best + bandit_objective(data, params)


@explicit
def contextual_bandit(
    rewards: Any,
    *,
    features: Any = None,
    chances: Any = None,
    noise: float = 0.0,
    start: Any = None,
) -> RolloutProblem:
    r"""Returns a contextual bandit with a softmax policy, a table or linear in features.

    .. math:: f(x) = -\sum_c p_c \sum_a \pi_x(a | c) \, r_{ca}, \qquad
              \pi_x(\cdot | c) = \mathrm{softmax}(x_c) \text{ or } \mathrm{softmax}(\phi_c^\top x)

    Args:
        rewards: float[C, A], r_ca, the mean reward of each action in each context.
        features: float[C, d], phi_c, and then the policy is float[d, A]; None: a table float[C, A].
        chances: float[C], how often each context comes, of any scale; None: all equally often.
        noise: Standard deviation of what is added to each action's reward, drawn with the prompt:
            samples of one prompt share it.
        start: The initial policy, scores; None: zeros, so all actions are equally likely.

    Returns:
        The problem, with T = 1, the exact objective, and the metric `regret`: how much expected
        reward the policy lacks. A softmax reaches 0 only in the limit; one linear in features
        perhaps not even then.

    Raises:
        TypeError: If entries are not real numbers, or `noise` is no concrete number.
        ValueError: If shapes do not fit, anything is empty or not finite, a chance is negative or
            all are 0, or `noise` is negative.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import rollouts
        >>> problem = rollouts.contextual_bandit([[1.0, 0.0], [0.0, 3.0]])
        >>> float(problem.metrics(problem.params)["regret"])
        1.0
        >>> float(problem.objective(jnp.array([[99.0, 0.0], [0.0, 99.0]])))
        -2.0
    """
    rewards = arrays.matrix("rewards", rewards, "[contexts, actions]")
    n_contexts, n_actions = rewards.shape
    rows = n_contexts
    if features is not None:
        features = arrays.matrix("features", features, "[contexts, features]")
        if features.shape[0] != n_contexts:
            raise ValueError(
                f"features must have a row for each of the {n_contexts} contexts of rewards, "
                f"got shape {features.shape}"
            )
        rows = features.shape[1]
    noise = real("noise", noise, least=0)
    start = arrays.starting_point(start, (rows, n_actions), 0.0, rewards.dtype)
    return RolloutProblem(
        params=start,
        data=BanditData(rewards, _shares(chances, n_contexts, rewards.dtype), features),
        prompt_of=BanditPrompt(noise),
        extend_of=bandit_extend,
        log_probs_of=bandit_log_probs,
        reward_of=bandit_reward,
        objective_of=bandit_objective,
        metrics_of=(("regret", bandit_regret),),
        max_length=1,
    )


def _shares(chances: Any, n_contexts: int, dtype: Any) -> jax.Array:
    """Returns how often each context comes, of sum 1."""
    if chances is None:
        return jnp.full(n_contexts, 1 / n_contexts, dtype)
    chances = arrays.floating("chances", chances).astype(dtype)
    if chances.shape != (n_contexts,):
        raise ValueError(
            f"chances must have shape ({n_contexts},), one for each context, got {chances.shape}"
        )
    if not arrays.is_traced(chances):
        least, total = float(np.min(chances)), float(np.sum(chances))
        if least < 0 or total <= 0:
            raise ValueError(
                f"chances must not be negative, and one must be positive, got {np.asarray(chances)}"
            )
    return chances / jnp.sum(chances)
