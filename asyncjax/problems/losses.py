r"""Losses with a name: linear scores and flax linen networks, as finite sums; and quadratics.

.. math:: f(x) = \frac1n \sum_i \frac{1}{|S_i|} \sum_{r \in S_i} \ell(x; a_r, b_r) + P(x)

With shards of unequal size the first term is not the mean over the rows: every worker counts the
same. A network's penalty is :math:`\frac{\lambda_2}{2} \|x\|^2` over all its parameters. Whole data
sets are evaluated a chunk of rows at a time, so that the activations of all are never held at once.

A separable quadratic is the smallest problem on which every bias of asynchrony shows exactly.

.. math:: f_i(x) = \sum_j \left( \tfrac12 a_{ij} x_j^2 - b_{ij} x_j \right), \qquad
          \nabla f_i(x)_j = a_{ij} x_j - b_{ij}

Every worker has its own minimum, so an order that favours fast workers ends at the wrong point,
and which one is known: with weights w the minimum is :math:`x_j = \sum_i w_i b_{ij} / \sum_i w_i
a_{ij}`.

Reference: Islamov, Safaryan, Alistarh, AsGrad (arXiv 2310.20452), whose heterogeneous setting
this is the smallest case of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import one_key, real, within
from asyncjax.problems import arrays
from asyncjax.problems.batches import Batch, Shards
from asyncjax.problems.finite_sum import CHUNK, Loss, Mean, Penalty, Samples, finite_sum
from asyncjax.problems.networks import initial
from asyncjax.problems.problem import Problem, PyTree
from asyncjax.problems.transfers import explicit

_SCORES = 2**23  # scores held at once when a whole data set is evaluated: 32 MB in float32
Pair = tuple[jax.Array, jax.Array]  # inputs and targets, a row each


@dataclass(frozen=True)
class SquaredError:
    """Half the squared residual of a row."""

    curvature = (1.0, 1.0)

    def __call__(self, params: jax.Array, examples: Pair) -> jax.Array:
        """Returns (a_r x - b_r)^2 / 2, float[rows]."""
        features, targets = examples
        return 0.5 * jnp.square(features @ params - targets)


@dataclass(frozen=True)
class LogisticError:
    """The logistic loss of a row."""

    curvature = (0.0, 0.25)  # of s (1 - s), s the logistic function of the score

    def __call__(self, params: jax.Array, examples: Pair) -> jax.Array:
        """Returns log(1 + exp(-y_r a_r x)), float[rows], without overflow."""
        features, targets = examples
        return jax.nn.softplus(-targets * (features @ params))


@dataclass(frozen=True)
class Network:
    """A linen network's answers, compared with what they should be."""

    model: nn.Module
    compare: Callable[[jax.Array, jax.Array], jax.Array]

    def __call__(self, params: PyTree, examples: Pair) -> jax.Array:
        """Returns one value per row, [rows]."""
        inputs, targets = examples
        return self.compare(jnp.asarray(self.model.apply({"params": params}, inputs)), targets)


@dataclass(frozen=True)
class Perplexity:
    """The exponential of a mean cross-entropy."""

    mean: Mean

    def __call__(self, data: Samples, params: PyTree) -> jax.Array:
        """Returns the scalar, at least 1."""
        return jnp.exp(self.mean(data, params))


def cross_entropy(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns log sum_c exp(z_c) - z_target, float[...], of scores float[..., c].

    A sum over a mask picks the target's score, so that the gradient needs no scatter.
    """
    is_target = targets[..., None] == jnp.arange(scores.shape[-1], dtype=targets.dtype)
    return jax.nn.logsumexp(scores, -1) - jnp.sum(jnp.where(is_target, scores, 0.0), -1)


def token_cross_entropy(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns the mean cross-entropy of a row's tokens, float[rows]."""
    return jnp.mean(cross_entropy(scores, targets), -1)


def is_hit(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns whether the highest score of a row is that of its label, bool[rows]."""
    return jnp.argmax(scores, -1) == targets


def half_mean_square(predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns the half mean square of prediction minus target, float[rows]."""
    errors = (predictions - targets).reshape(targets.shape[0], -1)
    return 0.5 * jnp.mean(jnp.square(errors), -1)


@explicit
def least_squares(
    features: Any,
    targets: Any,
    *,
    n_workers: int,
    batch: Batch | None = None,
    shards: Shards | None = None,
) -> Problem[jax.Array]:
    r"""Returns linear regression: half the mean square of the residuals.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{2 |S_i|} \sum_{r \in S_i} (a_r \cdot x - b_r)^2

    Args:
        features: float[rows, d], finite (read once on the host, unless traced); add a column of
            ones for an intercept.
        targets: float[rows].
        n_workers: n, at least 1, at most the number of rows.
        batch: The rows of a job, such as `cyclic(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.

    Returns:
        The problem, which starts from zeros.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> problem = problems.least_squares([[1.0], [2.0]], [1.0, 4.0], n_workers=2)
        >>> loss, grads = problem.gradient(problem.params, 1, 0, jax.random.key(0))
        >>> float(loss), grads.tolist(), float(problem.objective(problem.params))
        (8.0, [-8.0], 4.25)
    """
    features = arrays.matrix("features", features, "[rows, columns]")
    arrays.same_rows("targets", targets, features.shape[0])
    examples = arrays.of_one_type(features, arrays.floating("targets", targets))
    start = jnp.zeros(features.shape[1], examples[0].dtype)
    sharing = {"n_workers": n_workers, "batch": batch, "shards": shards}
    return finite_sum(start, examples, Loss(SquaredError()), **sharing)


@explicit
def logistic(
    features: Any,
    labels: Any,
    *,
    n_workers: int,
    l2: float = 0.0,
    l1: float = 0.0,
    nonconvex: float = 0.0,
    batch: Batch | None = None,
    shards: Shards | None = None,
    start: Any = None,
) -> Problem[jax.Array]:
    r"""Returns logistic regression with penalties.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{|S_i|} \sum_{r \in S_i} \log(1 + e^{-y_r a_r \cdot x})
              + \frac{\lambda_2}{2} \|x\|^2 + \mu \sum_j \frac{x_j^2}{1 + x_j^2}
              + \lambda_1 \|x\|_1

    The gradient and the loss of a job leave the last term out: it is meant for a proximal step
    (`asyncjax.steps.proximal` with soft thresholding), and only the objective counts it.

    Args:
        features: float[rows, d], finite (read once on the host, unless traced); add a column of
            ones for an intercept (which is penalised too).
        labels: [rows], -1 and +1, or 0 and 1 (False and True) with 0 read as -1; both must be
            there. Traced labels are taken as -1 and +1.
        n_workers: n, at least 1, at most the number of rows.
        l2: lambda_2, not negative.
        l1: lambda_1, not negative; in the objective only.
        nonconvex: mu, not negative.
        batch: The rows of a job, such as `cyclic(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.
        start: float[d], the initial model; None: zeros.

    Returns:
        The problem.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> features, labels = [[1.0], [2.0], [-1.0], [0.0]], [1, 1, 0, 0]
        >>> problem = problems.logistic(features, labels, n_workers=2, l2=0.1)
        >>> loss, grads = problem.gradient(problem.params, 0, 0, jax.random.key(0))
        >>> round(float(loss), 4), grads.tolist()
        (0.6931, [-0.75])

    Reference:
        Islamov, Safaryan, Alistarh, AsGrad, arXiv 2310.20452 (nonconvex=0.1); Wu, Magnússon,
        Feyzmahdavian, Johansson, delay-adaptive step sizes, arXiv 2202.08550 (l1 and l2).
    """
    features = arrays.matrix("features", features, "[rows, columns]")
    arrays.same_rows("labels", labels, features.shape[0])
    l1 = real("l1", l1, least=0)
    penalty = Penalty(real("l2", l2, least=0), real("nonconvex", nonconvex, least=0))
    start = arrays.starting_point(start, features.shape[1:], 0.0, features.dtype)
    examples = features, _signs(labels).astype(features.dtype)
    sharing = {"n_workers": n_workers, "batch": batch, "shards": shards}
    return finite_sum(start, examples, Loss(LogisticError(), penalty), l1=l1, **sharing)


@explicit
def classification(
    model: nn.Module,
    features: Any,
    labels: Any,
    *,
    n_workers: int,
    key: jax.Array,
    batch: Batch | None = None,
    shards: Shards | None = None,
    test: tuple[Any, Any] | None = None,
    l2: float = 0.0,
    eval_rows: int | None = None,
) -> Problem[dict[str, Any]]:
    r"""Returns the training of a network by cross-entropy.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{|S_i|} \sum_{r \in S_i}
              \left( \log \sum_c e^{z_c(a_r; x)} - z_{y_r}(a_r; x) \right)
              + \frac{\lambda_2}{2} \|x\|^2

    Args:
        model: A flax linen module that maps float[rows, ...] to scores [rows, classes] and has
            parameters only (no batch statistics, no dropout), such as `MLP` or `LeNet`.
        features: float[rows, ...], of the shape the model takes, finite (read once on the host,
            unless traced).
        labels: int[rows], 0..classes-1.
        n_workers: n, at least 1, at most the number of rows.
        key: A typed key for the initial parameters.
        batch: The rows of a job, such as `uniform(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.
        test: Further (features, labels), for the metrics `test_accuracy` and `test_loss`.
        l2: lambda_2, not negative, on all parameters.
        eval_rows: Rows that the objective looks at, at most all, spread evenly over them, each
            weighted as in f; the loss of a record is then an estimate of f, always on the same
            rows. None: all, so it is f; with many rows most of the time of a run may go there,
            since a record costs as much as the gradients of about a third of them.

    Returns:
        The problem; its `params` are those of `model.init(key)`.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> features, labels = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
        >>> problem = problems.classification(
        ...     problems.MLP(hidden=(4,), classes=2), features, labels, n_workers=2,
        ...     batch=problems.uniform(1), test=(features, labels), key=jax.random.key(0))
        >>> loss, grads = problem.gradient(problem.params, 0, 0, jax.random.key(1))
        >>> grads["Dense_0"]["kernel"].shape, sorted(problem.metrics(problem.params))
        ((1, 4), ['test_accuracy', 'test_loss'])
    """

    def check(what: str, answer: tuple[int, ...], examples: Pair) -> None:
        if len(answer) != 2 or answer[0] != 1:
            raise ValueError(f"model must return scores [rows, classes], got {answer} for one row")
        within(f"{what}labels", examples[1], least=0, most=answer[1] - 1, integer=True)

    sharing = {"n_workers": n_workers, "batch": batch, "shards": shards, "eval_rows": eval_rows}
    network = Network(model, cross_entropy)
    problem = _training(
        network, _labelled, check, (features, labels), test, key=key, l2=l2, **sharing
    )
    if test is None:
        return problem
    accuracy = Mean(Loss(replace(network, compare=is_hit)), on_test=True)
    return replace(problem, metrics_of=(("test_accuracy", accuracy), *problem.metrics_of))


@explicit
def regression(
    model: nn.Module,
    features: Any,
    targets: Any,
    *,
    n_workers: int,
    key: jax.Array,
    batch: Batch | None = None,
    shards: Shards | None = None,
    test: tuple[Any, Any] | None = None,
    l2: float = 0.0,
) -> Problem[dict[str, Any]]:
    r"""Returns the training of a network by half the mean square of its errors.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{|S_i|} \sum_{r \in S_i}
              \frac{1}{2 o} \| z(a_r; x) - b_r \|^2 + \frac{\lambda_2}{2} \|x\|^2

    Args:
        model: A flax linen module that maps float[rows, ...] to predictions of the shape of
            `targets` and has parameters only, such as `ForecastMLP`.
        features: float[rows, ...], of the shape the model takes, finite (read once on the host,
            unless traced).
        targets: float[rows], or float[rows, o] for a model of o outputs.
        n_workers: n, at least 1, at most the number of rows.
        key: A typed key for the initial parameters.
        batch: The rows of a job, such as `uniform(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.
        test: Further (features, targets), for the metric `test_loss`, in the unit of the loss
            and without the penalty.
        l2: lambda_2, not negative, on all parameters.

    Returns:
        The problem; its `params` are those of `model.init(key)`.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> features, targets = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0]
        >>> problem = problems.regression(
        ...     problems.ForecastMLP(widths=(4,)), features, targets, n_workers=2,
        ...     test=(features, targets), key=jax.random.key(0))
        >>> loss, grads = problem.gradient(problem.params, 0, 0, jax.random.key(1))
        >>> grads["Dense_0"]["kernel"].shape, sorted(problem.metrics(problem.params))
        ((1, 4), ['test_loss'])
    """

    def check(what: str, answer: tuple[int, ...], examples: Pair) -> None:
        if answer != (1, *examples[1].shape[1:]):
            raise ValueError(
                f"model must return predictions {('rows', *examples[1].shape[1:])} like targets, "
                f"got {answer} for one row"
            )

    sharing = {"n_workers": n_workers, "batch": batch, "shards": shards}
    network = Network(model, half_mean_square)
    return _training(network, _valued, check, (features, targets), test, key=key, l2=l2, **sharing)


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
) -> Problem[dict[str, Any]]:
    r"""Returns the training of a network to predict the next token.

    .. math:: f(x) = \frac1n \sum_i \frac{1}{|S_i|} \sum_{r \in S_i} \frac1T \sum_{t=1}^{T}
              \left( \log \sum_v e^{z_{rtv}(x)} - z_{r t b_{rt}}(x) \right)
              + \frac{\lambda_2}{2} \|x\|^2

    A row's state starts afresh: nothing is carried from one window to the next. Whole data sets are
    evaluated as many rows at a time as make 2^23 scores.

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
        test: Further (inputs, targets), for the metrics `test_loss` and `test_perplexity`, the
            exponential of the mean over all test tokens.
        l2: lambda_2, not negative, on all parameters.

    Returns:
        The problem; its `params` are those of `model.init(key)`, in the model's own types.

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

    def check(what: str, answer: tuple[int, ...], examples: Pair) -> None:
        length = examples[0].shape[1]
        if len(answer) != 3 or answer[:2] != (1, length):
            raise ValueError(
                f"model must return scores [rows, {length}, vocabulary], got {answer} for one row"
            )
        for name, tokens in zip(("inputs", "targets"), examples, strict=True):
            within(f"{what}{name}", tokens, least=0, most=answer[2] - 1, integer=True)

    sharing = {"n_workers": n_workers, "batch": batch, "shards": shards}
    network = Network(model, token_cross_entropy)
    problem = _training(network, _tokens, check, (inputs, targets), test, key=key, l2=l2, **sharing)
    if test is None:
        return problem
    mean: Any = problem.metrics_of[0][1]
    metrics = (*problem.metrics_of, ("test_perplexity", Perplexity(mean)))
    return replace(problem, metrics_of=metrics)


def _training(
    network: Network,
    read: Callable[[str, Any, Any], dict[str, jax.Array]],
    check: Callable[[str, tuple[int, ...], Pair], None],
    pair: tuple[Any, Any],
    test: Any,
    *,
    key: jax.Array,
    l2: float,
    **sharing: Any,
) -> Problem[dict[str, Any]]:
    """Returns the training of a network; `read` refuses rows, `check` models and values."""
    named = read("", *pair)
    inputs, targets = named.values()
    loss = Loss(network, Penalty(real("l2", l2, least=0)))
    params, answer = initial(network.model, one_key("key", key), inputs)
    check("", answer, (inputs, targets))
    is_text = network.compare is token_cross_entropy
    chunk = max(1, _SCORES // (answer[1] * answer[2])) if is_text else CHUNK
    problem = finite_sum(params, (inputs, targets), loss, chunk=chunk, **sharing)
    if test is None:
        return problem
    rows = read("test ", *test)
    for name, like in named.items():
        if rows[name].shape[1:] != like.shape[1:]:
            raise ValueError(
                f"test {name} must have rows of shape {like.shape[1:]} like {name}, "
                f"got {rows[name].shape[1:]}"
            )
    first, second = (rows[name].astype(like.dtype) for name, like in named.items())
    check("test ", answer, (first, second))
    metrics = (("test_loss", Mean(loss, on_test=True, chunk=chunk)),)
    return replace(problem, data=problem.data._replace(test=(first, second)), metrics_of=metrics)


def _labelled(what: str, features: Any, labels: Any) -> dict[str, jax.Array]:
    """Returns rows and their labels as arrays."""
    features = arrays.floating(f"{what}features", features)
    arrays.same_rows(f"{what}labels", labels, len(features))
    return {"features": features, "labels": arrays.integers(f"{what}labels", labels)}


def _valued(what: str, features: Any, targets: Any) -> dict[str, jax.Array]:
    """Returns rows and their targets as arrays of one type."""
    features = arrays.floating(f"{what}features", features)
    targets = arrays.floating(f"{what}targets", targets)
    n_rows = len(features)
    if targets.ndim not in (1, 2) or len(targets) != n_rows:
        raise ValueError(
            f"{what}targets must have shape ({n_rows},) or ({n_rows}, outputs), a row for each row"
            f" of features, got {targets.shape}"
        )
    features, targets = arrays.of_one_type(features, targets)
    return {"features": features, "targets": targets}


def _tokens(what: str, inputs: Any, targets: Any) -> dict[str, jax.Array]:
    """Returns windows of tokens and what follows each token as arrays."""
    named = {"inputs": inputs, "targets": targets}
    named = {name: arrays.integers(f"{what}{name}", tokens) for name, tokens in named.items()}
    if named["inputs"].shape != named["targets"].shape:
        raise ValueError(
            f"{what}targets must have shape {named['inputs'].shape}, a token for each of "
            f"{what}inputs, got shape {named['targets'].shape}"
        )
    return named


def _signs(labels: Any) -> jax.Array:
    """Returns the labels as -1 and +1."""
    if arrays.is_traced(labels):
        return jnp.asarray(labels)
    classes = np.unique(labels)
    if set(classes.tolist()) not in ({-1, 1}, {0, 1}):
        shown = ", ".join(map(str, classes[:5]))
        raise ValueError(f"labels must be -1 and +1, or 0 and 1, both of them, got {shown}")
    return jnp.asarray(np.where(np.asarray(labels) == 1, 1, -1))


class QuadraticData(NamedTuple):
    """The coefficients of all workers."""

    curvature: jax.Array  # float[n, d], a_ij
    linear: jax.Array  # float[n, d], b_ij


@dataclass(frozen=True)
class QuadraticGradient:
    """The gradient a_i x - b_i, with Gaussian noise of standard deviation `noise` added."""

    noise: float = 0.0

    def __call__(
        self, data: QuadraticData, params: jax.Array, worker: Any, job: Any, key: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the exact loss of the worker and its noisy gradient."""
        curvature, linear = data.curvature[worker], data.linear[worker]
        loss = jnp.sum((0.5 * curvature * params - linear) * params)
        gradient = curvature * params - linear
        if self.noise:
            gradient += self.noise * jax.random.normal(key, gradient.shape, gradient.dtype)
        return loss, gradient


def quadratic_mean(data: QuadraticData, params: jax.Array) -> jax.Array:
    """Returns (1/n) sum_i f_i(params)."""
    curvature, linear = jnp.mean(data.curvature, 0), jnp.mean(data.linear, 0)
    return jnp.sum((0.5 * curvature * params - linear) * params)


@explicit
def quadratic(
    curvature: Any, linear: Any, *, start: Any = None, noise: float = 0.0
) -> Problem[jax.Array]:
    r"""Returns the problem of n separable quadratics, one a worker.

    .. math:: f_i(x) = \sum_j \left( \tfrac12 a_{ij} x_j^2 - b_{ij} x_j \right)

    Args:
        curvature: float[n, d], a_ij; may be negative (then f has no minimum in that coordinate).
        linear: float[n, d], b_ij.
        start: float[d], the initial model; None: ones.
        noise: Standard deviation of the Gaussian noise added to each coordinate of a job's
            gradient, drawn from the job's key; the loss of a job is exact.

    Returns:
        A problem with n workers, whose objective is the mean of the f_i.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> problem = problems.quadratic([[1.0, 2.0], [3.0, 4.0]], [[0.5, 0.0], [0.0, 1.0]])
        >>> loss, grads = problem.gradient(problem.params, 1, 0, jax.random.key(0))
        >>> float(loss), grads.tolist()
        (2.5, [3.0, 3.0])
    """
    curvature = arrays.matrix("curvature", curvature, "[workers, coordinates]")
    linear = arrays.matrix("linear", linear, "[workers, coordinates]")
    if curvature.shape != linear.shape:
        raise ValueError(
            f"curvature and linear must have the same shape, got {curvature.shape} and "
            f"{linear.shape}"
        )
    curvature, linear = arrays.of_one_type(curvature, linear)
    n_workers, size = curvature.shape
    return Problem(
        params=arrays.starting_point(start, (size,), 1.0, curvature.dtype),
        data=QuadraticData(curvature, linear),
        gradient_of=QuadraticGradient(real("noise", noise, least=0)),
        objective_of=quadratic_mean,
        n_workers=n_workers,
    )
