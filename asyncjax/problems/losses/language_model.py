r"""Language modelling by a flax linen network, over shards: predict every next token.

.. math:: f_i(x) = \frac{1}{|S_i|} \sum_{r \in S_i} \frac1T \sum_{t=1}^{T}
          \left( \log \sum_v e^{z_v(a_{r, \le t}; x)} - z_{b_{rt}}(a_{r, \le t}; x) \right)
          + \frac{\lambda_2}{2} \|x\|^2

A row is a window of T tokens; its target is the same window one token later. The perplexity is the
exponential of the mean over all test tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.checks import within
from asyncjax.problems import arrays
from asyncjax.problems.batches import Batch
from asyncjax.problems.finite_sum import Samples, square_penalty
from asyncjax.problems.held_out import HeldOutLoss
from asyncjax.problems.losses.network import Metrics, NetworkTask, cross_entropy, network_problem
from asyncjax.problems.problem import Problem, PyTree
from asyncjax.problems.shards import Shards
from asyncjax.problems.transfers import explicit

_SCORES = 2**23  # scores held at once when a whole data set is judged: 32 MB in float32


@dataclass(frozen=True)
class TokenCrossEntropy:
    """The mean cross-entropy of a row's tokens, with a quadratic penalty on all parameters."""

    model: nn.Module
    l2: float = 0.0

    def of_rows(self, params: PyTree, features: jax.Array, targets: jax.Array) -> jax.Array:
        """Returns the mean over t of log sum_v exp(z_v) - z_target, float[rows]."""
        scores = jnp.asarray(self.model.apply({"params": params}, features))
        return jnp.mean(cross_entropy(scores, targets), -1)

    def penalty(self, params: PyTree) -> jax.Array | float:
        """Returns l2/2 times the sum of squares of all parameters."""
        return square_penalty(params, self.l2)


@dataclass(frozen=True)
class Perplexity:
    """The exponential of the mean cross-entropy over all test tokens."""

    mean: HeldOutLoss

    def __call__(self, data: Samples, params: PyTree) -> jax.Array:
        """Returns the scalar, at least 1; the vocabulary's size for a model that knows nothing."""
        return jnp.exp(self.mean(data, params))


@explicit
def language_model(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    *,
    n_workers: int,
    key: jax.Array,
    batch: Batch | None = None,
    shards: Shards | None = None,
    test: tuple[Any, Any] | None = None,
    l2: float = 0.0,
) -> Problem:
    r"""Returns the training of a network to predict the next token.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{|S_i|} \sum_{r \in S_i} \frac1T \sum_{t=1}^{T}
              \left( \log \sum_v e^{z_{rtv}(x)} - z_{r t b_{rt}}(x) \right)
              + \frac{\lambda_2}{2} \|x\|^2

    A row's state starts afresh: nothing is carried from one window to the next. With shards of
    unequal size every worker counts the same. Whole data sets are judged as many rows at a time as
    make 2^23 scores.

    Args:
        model: A flax linen module that maps int32[rows, T] to scores [rows, T, vocabulary] and has
            parameters only, such as `WordLSTM` or `TinyGPT`.
        inputs: int[rows, T], tokens 0..vocabulary-1, as `windows` cuts them (read once on the host,
            unless traced).
        targets: int[rows, T], the token that follows each.
        n_workers: n, at least 1, at most the number of rows.
        key: A typed key for the initial parameters.
        batch: The rows of a job, such as `uniform(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.
        test: Further (inputs, targets), for the metrics `test_loss` and `test_perplexity`.
        l2: lambda_2, not negative, on all parameters.

    Returns:
        The problem; its `params` are those of `model.init(key)`, in the model's own types.

    Raises:
        TypeError: If the model is no linen module or not hashable, tokens are no integers, or an
            argument is of another kind.
        ValueError: If data are empty or of shapes that do not fit, a token is outside the model's
            vocabulary, or there are more workers than rows.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> inputs, targets = problems.windows([0, 1, 2, 0, 1, 2, 0, 1, 2], 2)
        >>> problem = problems.language_model(
        ...     problems.WordLSTM(vocabulary=3, width=4), inputs, targets, n_workers=2,
        ...     test=(inputs, targets), key=jax.random.key(0))
        >>> inputs.shape, sorted(problem.metrics(problem.params))
        ((4, 2), ['test_loss', 'test_perplexity'])
    """
    sharing = {"n_workers": n_workers, "batch": batch, "shards": shards}
    return network_problem(_TASK, model, (inputs, targets), test, key=key, l2=l2, **sharing)


def _read(what: str, inputs: Any, targets: Any) -> tuple[jax.Array, jax.Array]:
    rows = arrays.integers(f"{what}inputs", inputs), arrays.integers(f"{what}targets", targets)
    for name, tokens in zip(("inputs", "targets"), rows, strict=True):
        if tokens.ndim != 2 or tokens.size == 0:
            raise ValueError(
                f"{what}{name} must be a 2-D array [rows, tokens] that is not empty, "
                f"got shape {tokens.shape}"
            )
    if rows[0].shape != rows[1].shape:
        raise ValueError(
            f"{what}targets must have shape {rows[0].shape}, a token for each of {what}inputs, "
            f"got shape {rows[1].shape}"
        )
    return rows


def _check(what: str, answer: tuple[int, ...], inputs: jax.Array, targets: jax.Array) -> None:
    if len(answer) != 3 or answer[:2] != (1, inputs.shape[1]):
        raise ValueError(
            f"model must return scores [rows, {inputs.shape[1]}, vocabulary], got {answer} for "
            "one row"
        )
    for name, tokens in (("inputs", inputs), ("targets", targets)):
        within(f"{what}{name}", tokens, least=0, most=answer[2] - 1, integer=True)


def _chunk(answer: tuple[int, ...]) -> int:
    return max(1, _SCORES // (answer[1] * answer[2]))


def _metrics(loss: TokenCrossEntropy, chunk: int) -> Metrics:
    mean = HeldOutLoss(loss, chunk)
    return ("test_loss", mean), ("test_perplexity", Perplexity(mean))


_TASK = NetworkTask(("inputs", "targets"), _read, _check, TokenCrossEntropy, _metrics, _chunk)
