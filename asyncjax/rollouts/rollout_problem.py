r"""A rollout problem: a policy makes a sample of a prompt token by token, and the sample is scored.

In symbols: prompts :math:`q \sim D`, a policy :math:`\pi_x`, a reward r, and

.. math:: f(x) = -E_{q \sim D} E_{y \sim \pi_x(\cdot | q)} r(q, y), \qquad
          \log \pi_x(y | q) = \sum_{t < |y|} \log \pi_x(y_t | q, y_{<t})

.. math:: \nabla f(x) = -E \left( r(q, y) - b \right) \nabla \log \pi_x(y | q)

for every b that does not depend on y. What differs from a `Problem` is who makes the data: the
policy, and perhaps an old one. Samples are made piece by piece, by whichever version is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import whole, within
from asyncjax.problems import arrays
from asyncjax.problems.problem import Problem, PyTree, check_model

_STATIC = {"static": True}


class Draft(NamedTuple):
    """A sample as far as it is made; places from `length` on hold zeros.

    Attributes:
        tokens: int32[T].
        log_probs: float[T], of each token under the version that drew it.
        length: int32[], tokens so far, the end token included.
        ended: bool[], the end token is drawn, or all T tokens are.
    """

    tokens: jax.Array
    log_probs: jax.Array
    length: jax.Array
    ended: jax.Array


@dataclass(frozen=True)
class Bound:
    """A function with its first argument; compared by value, so equal ones share a compilation."""

    function: Callable[..., Any]
    first: Any

    def __call__(self, *rest: Any) -> Any:
        """Calls the function."""
        return self.function(self.first, *rest)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class RolloutProblem:
    """What is optimised where a policy makes the data, as a pytree: arrays are leaves.

    The functions are static and compared by value, so two problems of the same shapes and settings
    share one compilation. All are pure and traceable, of one prompt and one sample.

    Attributes:
        params: The initial policy, any pytree of floating-point arrays.
        data: The arrays that the functions read, any pytree.
        prompt_of: Static, `(data, key) -> prompt`, any pytree.
        extend_of: Static, `(data, params, prompt, draft, begin, end, key) -> draft`. It draws the
            tokens at begin <= t < end (int32 scalars, perhaps traced), given those before them,
            unless the draft has ended. Token t uses `fold_in(key, t)`.
        log_probs_of: Static, `(data, params, prompt, tokens, length) -> float[T]`: of each token,
            given those before it; 0 from `length` on.
        reward_of: Static, `(data, prompt, tokens, length) -> scalar`.
        objective_of: Static, `(data, params) -> scalar`, lower is better: minus the expected
            reward, or an estimate of it whose randomness is fixed; None where there is none.
        metrics_of: Static pairs of a name and `(data, params) -> scalar`, for the records.
        max_length: Static, T >= 1, the tokens that a sample has at most.

    Note:
        Drawing in pieces with the same `params` and key gives what drawing at once gives: the same
        bits within one compiled program; between two programs, log-probabilities up to rounding.
        With new `params`, keys and values of the tokens before are computed afresh; some frameworks
        that swap weights in flight go on with what the old weights left in their caches.

    Example:
        >>> import jax
        >>> from asyncjax import rollouts
        >>> problem = rollouts.contextual_bandit([[1.0, 0.0], [0.0, 1.0]])
        >>> prompt = problem.prompt(jax.random.key(0))
        >>> draft = problem.sample(problem.params, prompt, jax.random.key(1))
        >>> draft.tokens.shape, int(draft.length), round(float(draft.log_probs[0]), 3)
        ((1,), 1, -0.693)
        >>> float(problem.objective(problem.params))
        -0.5
    """

    params: PyTree
    data: PyTree
    prompt_of: Callable[..., PyTree] = field(metadata=_STATIC)
    extend_of: Callable[..., Draft] = field(metadata=_STATIC)
    log_probs_of: Callable[..., jax.Array] = field(metadata=_STATIC)
    reward_of: Callable[..., jax.Array] = field(metadata=_STATIC)
    objective_of: Callable[..., jax.Array] | None = field(default=None, metadata=_STATIC)
    metrics_of: tuple[tuple[str, Callable[..., Any]], ...] = field(default=(), metadata=_STATIC)
    max_length: int = field(default=1, metadata=_STATIC)

    def __post_init__(self) -> None:
        """Refuses a longest length that is no integer of at least 1."""
        whole("max_length", self.max_length)

    def prompt(self, key: jax.Array) -> PyTree:
        """Draws a prompt with a typed key; its shapes are the same for every key."""
        return self.prompt_of(self.data, key)

    def empty_draft(self) -> Draft:
        """Returns a sample without tokens; log-probabilities are of the policy's type."""
        return empty_draft(self.max_length, self.params)

    def extend(
        self, params: PyTree, prompt: PyTree, draft: Draft, begin: Any, end: Any, key: jax.Array
    ) -> Draft:
        """Draws the tokens at begin <= t < end, unless the sample has ended before.

        `draft` is the sample so far, of length `begin` or ended; `begin` and `end` are int32
        scalars of 0..T; `key` is the sample's, the same for all its pieces.
        """
        check_model(params, self.params)
        self._tokens(draft.tokens)
        within("begin", begin, least=0, most=self.max_length, integer=True)
        within("end", end, least=0, most=self.max_length, integer=True)
        return self.extend_of(self.data, params, prompt, draft, begin, end, key)

    def sample(self, params: PyTree, prompt: PyTree, key: jax.Array) -> Draft:
        """Draws a whole sample: `extend` of an empty draft from 0 to T."""
        return self.extend(params, prompt, self.empty_draft(), 0, self.max_length, key)

    def log_probs(self, params: PyTree, prompt: PyTree, tokens: Any, length: Any) -> jax.Array:
        """Returns the log-probability of each token, given those before it, float[T].

        `tokens` are a sample's, int32[T]; those from `length` on, an int32 scalar, have 0.
        Differentiable in `params`.
        """
        check_model(params, self.params)
        within("length", length, least=0, most=self.max_length, integer=True)
        return self.log_probs_of(self.data, params, prompt, self._tokens(tokens), length)

    def reward(self, prompt: PyTree, tokens: Any, length: Any) -> jax.Array:
        """Returns what a sample is worth, a scalar, higher is better; as in `log_probs`."""
        within("length", length, least=0, most=self.max_length, integer=True)
        return self.reward_of(self.data, prompt, self._tokens(tokens), length)

    objective = Problem.objective
    metrics = Problem.metrics

    def _tokens(self, tokens: Any) -> jax.Array:
        """Returns the tokens of one sample; refuses another shape."""
        tokens = arrays.integers("tokens", tokens)
        if tokens.shape != (self.max_length,):
            raise ValueError(
                f"tokens must have shape ({self.max_length},), one sample's, got {tokens.shape}"
            )
        return tokens


def wide_type(params: PyTree) -> Any:
    """Returns the type of log-probabilities: the policy's own, float32 where it is narrower."""
    return jnp.result_type(jnp.float32, *jax.tree.leaves(params))


def empty_draft(max_length: int, params: PyTree) -> Draft:
    """Returns a sample without tokens; log-probabilities are of the policy's type."""
    return Draft(
        tokens=jnp.zeros(max_length, jnp.int32),
        log_probs=jnp.zeros(max_length, wide_type(params)),
        length=jnp.int32(0),
        ended=jnp.bool_(False),
    )


def placed(draft: Draft, t: Any, token: jax.Array, log_prob: jax.Array, drawn: Any) -> Draft:
    """Returns the draft with a token at place t, if `drawn`; who calls says whether it ends there.

    Example:
        >>> draft = empty_draft(2, jnp.ones(1))
        >>> placed(draft, 0, jnp.int32(7), jnp.float32(-1.0), True).tokens.tolist()
        [7, 0]
    """
    here = (jnp.arange(draft.tokens.size) == t) & drawn
    return draft._replace(
        tokens=jnp.where(here, token.astype(jnp.int32), draft.tokens),
        log_probs=jnp.where(here, log_prob.astype(draft.log_probs.dtype), draft.log_probs),
        length=jnp.where(drawn, jnp.int32(t) + 1, draft.length),
    )
