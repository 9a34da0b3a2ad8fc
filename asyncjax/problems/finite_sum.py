r"""Finite sums: a loss of examples, which are divided among the workers.

.. math:: f(x) = \frac{1}{n} \sum_{i=1}^{n} f_i(x), \qquad
          f_i(x) = \frac{1}{|S_i|} \sum_{r \in S_i} \ell(x; a_r) + P(x)

With shards of unequal size f is not the mean over the rows: every worker counts the same, so a
row of a small shard counts more. A job's gradient is that of the mean over its batch of rows, plus
that of the penalty P. Where only some rows J are evaluated, f is estimated by their weighted mean.

`from_loss` is the general one: the model is any pytree of parameters, or a flax nnx module, which
the loss gets whole: in training mode with fresh random streams for a job, in evaluation mode where
a model is evaluated. `losses` has those with a loss of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import whole
from asyncjax.problems.batches import (
    Batch,
    Shards,
    Whole,
    WithoutReplacement,
    check_batch,
    check_shards,
    contiguous,
)
from asyncjax.problems.problem import Model, Problem, PyTree, floating_leaves
from asyncjax.problems.transfers import explicit

CHUNK = 2_048  # rows whose activations are held at once when a whole data set is evaluated
_JUDGED = 2_048  # rows by which `from_loss` evaluates a model where nothing is said


class Samples(NamedTuple):
    """The examples, whose they are, and by which of them a model is evaluated."""

    examples: PyTree  # [rows, ...]; (features, targets) where a loss has its own name
    rows: jax.Array  # int32[n, m_max], row numbers of each worker, padded
    size: jax.Array  # int32[n], rows of each worker
    weight: jax.Array  # float[rows], or float[k] of those evaluated; in f; sums to 1
    judged: jax.Array | None = None  # int32[k], rows that the objective looks at; None: all
    test: PyTree = None  # [test rows, ...], like the examples
    rest: PyTree = None  # what an nnx module holds beside its parameters

    @property
    def features(self) -> jax.Array:
        """The first part of the examples."""
        return self.examples[0]

    @property
    def targets(self) -> jax.Array:
        """The second part of the examples."""
        return self.examples[1]


@dataclass(frozen=True)
class Penalty:
    r"""A penalty of all parameters, :math:`\frac{\lambda_2}{2} x^2 + \mu x^2 / (1 + x^2)` each."""

    l2: float = 0.0
    nonconvex: float = 0.0

    def __call__(self, params: PyTree) -> jax.Array | float:
        """Returns the scalar."""
        total: jax.Array | float = 0.0
        squares = [jnp.square(leaf) for leaf in jax.tree.leaves(params)]
        if self.l2:
            total += 0.5 * self.l2 * sum(jnp.sum(square) for square in squares)
        if self.nonconvex:
            total += self.nonconvex * sum(jnp.sum(square / (1.0 + square)) for square in squares)
        return total

    @property
    def curvature(self) -> tuple[float, float]:
        """The range of l2 + nonconvex (2 - 6 x^2) / (1 + x^2)^3: from x = 1 to x = 0."""
        return self.l2 - 0.5 * self.nonconvex, self.l2 + 2.0 * self.nonconvex


@dataclass(frozen=True)
class Loss:
    """A loss of examples, and a penalty of the model; equal ones share a compilation.

    Attributes:
        function: `(model, examples) -> loss`, a scalar or one a row; hashable. Where a loss is a
            function of one linear score a row, its `curvature` is the least and the largest second
            derivative, which `smoothness` asks for.
        penalty: `params -> scalar`, with its `curvature` a coordinate.
        module: The graph of an nnx module; None where the model is its parameters.
        keyed: Whether the function takes a key too: that of the job, else always the same.
    """

    function: Callable[..., Any]
    penalty: Callable[[PyTree], Any] = Penalty()
    module: Any = None
    keyed: bool = False

    def of_rows(self, params: PyTree, features: jax.Array, targets: jax.Array) -> jax.Array:
        """Returns float[rows], the loss of each row."""
        return self.function(params, (features, targets))

    def __call__(
        self, params: PyTree, rest: PyTree, examples: PyTree, key: jax.Array | None = None
    ) -> Any:
        """Returns what the function returns, without the penalty."""
        seed = jax.random.fold_in(key, 1) if self.keyed and key is not None else None
        model = params if self.module is None else _module(self.module, params, rest, seed)
        if not self.keyed:
            return self.function(model, examples)
        return self.function(model, examples, jax.random.key(0) if seed is None else seed)


@dataclass(frozen=True)
class BatchGradient:
    """The loss and gradient of the mean over a job's batch."""

    loss: Loss
    batch: Batch

    def __call__(
        self, data: Samples, params: PyTree, worker: Any, job: Any, key: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        """Returns the loss of the job's rows and its gradient; only those rows are gathered."""
        return jax.value_and_grad(self.loss_of_job, argnums=1)(data, params, worker, job, key)

    def loss_of_job(
        self, data: Samples, params: PyTree, worker: Any, job: Any, key: jax.Array
    ) -> jax.Array:
        """Returns the mean loss of the job's rows, penalty included."""
        positions, valid = self.batch(data.size[worker], data.rows.shape[1], job, key)
        rows = data.rows[worker, positions]
        examples = jax.tree.map(lambda values: values[rows], data.examples)
        losses = jnp.asarray(self.loss(params, data.rest, examples, key))
        if losses.ndim:
            weight = valid.astype(losses.dtype)
            losses = jnp.sum(weight / jnp.sum(weight) * losses)
        return losses + self.loss.penalty(params)


@dataclass(frozen=True)
class Mean:
    """The mean of a loss, without its penalty, over the evaluated rows or over the test rows."""

    loss: Loss
    on_test: bool = False
    chunk: int | None = CHUNK  # rows at a time; None: all

    def __call__(self, data: Samples, params: PyTree) -> jax.Array:
        """Returns the scalar mean."""
        examples, weight = data.examples, data.weight
        if self.on_test:
            examples = data.test
            n_rows = jax.tree.leaves(examples)[0].shape[0]
            weight = jnp.full(n_rows, 1.0 / n_rows, data.weight.dtype)
        elif data.judged is not None:
            examples = jax.tree.map(lambda values: values[data.judged], examples)
        return weighted_sum(
            lambda rows: self.loss(params, data.rest, rows), examples, weight, self.chunk
        )


@dataclass(frozen=True)
class Objective:
    """The objective f, with `l1` times the sum of absolute values added."""

    loss: Loss
    l1: float = 0.0
    chunk: int | None = None

    def __call__(self, data: Samples, params: PyTree) -> jax.Array:
        """Returns f(params)."""
        total = Mean(self.loss, chunk=self.chunk)(data, params) + self.loss.penalty(params)
        if self.l1:
            total += self.l1 * sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(params))
        return total


def weighted_sum(
    values: Callable[[PyTree], Any], examples: PyTree, weight: jax.Array, chunk: int | None = None
) -> jax.Array:
    """Returns the weighted sum of the rows' values, `chunk` rows at a time; a scalar stays one."""
    n_rows = weight.shape[0]
    if chunk is None or n_rows <= chunk or not _of_two_rows(values, examples).ndim:
        total = jnp.asarray(values(examples))
        return jnp.sum(weight * total) if total.ndim else total
    cut = n_rows // chunk * chunk

    def add(total: jax.Array, number: jax.Array) -> tuple[jax.Array, None]:
        part, counts = jax.tree.map(
            lambda array: jax.lax.dynamic_slice_in_dim(array, number * chunk, chunk),
            (examples, weight),
        )
        return total + jnp.sum(counts * values(part)), None

    zero = jnp.zeros((), jnp.result_type(_of_two_rows(values, examples), weight))
    total, _ = jax.lax.scan(add, zero, jnp.arange(n_rows // chunk))
    if cut == n_rows:
        return total
    return total + jnp.sum(weight[cut:] * values(jax.tree.map(lambda array: array[cut:], examples)))


def _of_two_rows(values: Callable[..., Any], examples: PyTree, *more: Any) -> Any:
    """Returns the shape and type of a function of two of the examples; nothing is computed."""
    two = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct((2, *array.shape[1:]), array.dtype), examples
    )
    return jax.eval_shape(values, two, *more)


def finite_sum(
    params: Model,
    examples: PyTree,
    loss: Loss,
    *,
    n_workers: int,
    batch: Batch | None = None,
    shards: Shards | None = None,
    eval_rows: int | None = None,
    judged_at_most: int | None = None,
    l1: float = 0.0,
    chunk: int | None = None,
) -> Problem[Model]:
    """Returns the problem of a loss over checked examples, evaluated by that loss.

    `judged_at_most` is how many rows are evaluated where `eval_rows` is None; None: all.
    """
    n_workers = whole("n_workers", n_workers)
    n_rows = jax.tree.leaves(examples)[0].shape[0]
    shards = contiguous(n_rows, n_workers) if shards is None else shards
    shards = check_shards(shards, n_rows, n_workers)
    batch = Whole() if batch is None else batch
    check_batch(batch, shards)
    weight, judged = row_weights(shards, n_rows), None
    if eval_rows is None and judged_at_most is not None:
        eval_rows = min(int(np.count_nonzero(weight)), judged_at_most)
    if eval_rows is not None:
        judged, weight = judged_rows(eval_rows, weight)
        judged = jnp.asarray(judged)
    data = Samples(
        examples,
        rows=jnp.asarray(shards.rows),
        size=jnp.asarray(shards.size),
        weight=jnp.asarray(weight, jnp.result_type(*jax.tree.leaves(params))),
        judged=judged,
    )
    return Problem(
        params, data, BatchGradient(loss, batch), Objective(loss, l1, chunk), n_workers=n_workers
    )


def row_weights(shards: Shards, n_rows: int) -> np.ndarray:
    """Returns what each row counts in f: the sum over its holders i of 1 / (n size_i)."""
    weight = np.zeros(n_rows)
    for rows, size in zip(shards.rows, shards.size, strict=True):
        np.add.at(weight, rows[:size], 1.0 / (len(shards.size) * size))
    return weight


def judged_rows(eval_rows: Any, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns `eval_rows` of the rows that count, int32[k], spread evenly, and their weights.

    Example:
        >>> rows, weight = judged_rows(2, np.array([0.25, 0.25, 0.0, 0.25, 0.25]))
        >>> rows.tolist(), weight.tolist()
        ([0, 3], [0.5, 0.5])
    """
    held = np.flatnonzero(weight)
    count = whole("eval_rows", eval_rows, most=len(held))
    rows = held[np.arange(count) * len(held) // count]
    return rows.astype(np.int32), weight[rows] / weight[rows].sum()


@explicit
def from_loss(
    params: Model,
    loss: Callable[..., Any],
    arrays: PyTree,
    *,
    n_workers: int,
    batch: Batch | None = None,
    shards: Shards | None = None,
    evaluate: Callable[..., Any] | None = None,
    eval_rows: int | None = None,
    test: PyTree = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
) -> Problem[Model]:
    r"""Returns the training of any model by a loss of one's own.

    .. math:: f(x) \approx \sum_{r \in J} w_r \, \ell(x; a_r), \qquad
              g_i(x; \xi) = \nabla \frac{1}{|\xi|} \sum_{r \in \xi} \ell(x; a_r)

    Args:
        params: The initial model, any pytree of floating-point arrays; or a flax nnx module, whose
            `nnx.Param` are trained. Load the result with `nnx.update(module, run.params)`.
        loss: `(params, batch, key) -> loss`, pure and traceable: of the model, the module where one
            was given; `batch` is like `arrays`, with the rows of a job; the loss is a scalar, the
            mean over the batch, or float[rows], one a row. The key is the job's own; a module's
            random streams (dropout) are seeded by it.
        arrays: The examples, a pytree of arrays [rows, ...], such as a pair or a dictionary.
        n_workers: n, at least 1, at most the number of rows.
        batch: The rows of a job, such as `uniform(16)`; None: the whole shard.
        shards: The rows of each worker; None: `contiguous`.
        evaluate: `(params, batch) -> loss`, how a model is evaluated; None: by `loss` with a fixed
            key. An nnx module is in evaluation mode in both, so dropout is off.
        eval_rows: Rows that the objective looks at, spread evenly over all; None: at most 2048. A
            loss a row is weighted as the shards say and taken 2048 rows at a time; a scalar loss
            gets all of them as one batch.
        test: Examples that no worker holds, like `arrays`: the metric `test_loss`.
        metrics: Further metrics by name, `(params, batch) -> scalar or one a row`, means over the
            test rows (over the evaluated rows where there is no test).

    Returns:
        The problem. Two of the same functions and shapes share a compilation; write functions once,
        outside of loops.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import problems
        >>> def loss(params, batch, key):
        ...     x, y = batch
        ...     return (x @ params - y) ** 2
        >>> x, y = jnp.eye(4), jnp.arange(4.0)
        >>> problem = problems.from_loss(jnp.zeros(4), loss, (x, y), n_workers=2)
        >>> value, grads = problem.gradient(problem.params, 1, 0, jax.random.key(0))
        >>> float(value), grads.tolist(), float(problem.objective(problem.params))
        (6.5, [-0.0, -0.0, -2.0, -3.0], 3.5)
    """
    params, rest, module, judging = _parts(params)
    trained = Loss(loss, module=module, keyed=True)
    sharing = {"n_workers": n_workers, "batch": batch, "shards": shards, "eval_rows": eval_rows}
    examples = _examples("arrays", arrays)
    problem = finite_sum(params, examples, trained, judged_at_most=_JUDGED, **sharing)
    if test is not None:
        test = _examples("test", test)
        got, want = map(_form, (test, examples))
        if got != want:
            raise ValueError(f"test must be like arrays, {want}, got {got}")
    data = problem.data._replace(test=test, rest=rest)
    if not _shape_of("loss", trained, data, params, jax.eval_shape(jax.random.key, 0)):
        rule: Any = problem.gradient_of
        _check_equal(rule.batch, np.asarray(data.size))
    judges = Loss(evaluate or loss, module=judging, keyed=evaluate is None)
    measured = {"test_loss": judges} if test is not None else {}
    measured |= {name: Loss(metric, module=judging) for name, metric in (metrics or {}).items()}
    for name, judge in ({"evaluate": judges} | measured).items():
        _shape_of(name, judge, data, params)
    means = tuple((name, Mean(judge, test is not None)) for name, judge in measured.items())
    return replace(
        problem, data=data, objective_of=Objective(judges, chunk=CHUNK), metrics_of=means
    )


def _parts(model: Any) -> tuple[PyTree, PyTree, Any, Any]:
    """Returns parameters, the rest, and the graphs of a module for training and for evaluating."""
    bases = type(model).__mro__
    if ("flax.nnx.module", "Module") not in [(base.__module__, base.__name__) for base in bases]:
        return floating_leaves(model), None, None, None
    from flax import nnx  # not imported for other models

    module, params, statistics, rest = nnx.split(model, nnx.Param, nnx.BatchStat, ...)
    if jax.tree.leaves(statistics):
        raise ValueError(
            "model must keep no batch statistics (nnx.BatchNorm), which no worker could send with"
            " a gradient: use nnx.LayerNorm or nnx.GroupNorm"
        )
    calm = nnx.clone(model)
    calm.eval()
    return floating_leaves(params), rest, module, nnx.graphdef(calm)


def _module(module: Any, params: PyTree, rest: PyTree, key: jax.Array | None) -> Any:
    """Returns the nnx module of parameters; its random streams begin with the key."""
    from flax import nnx

    leaves, tree = jax.tree.flatten(rest)
    if key is not None:
        leaves = [
            jax.random.fold_in(key, number)
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf
            for number, leaf in enumerate(leaves)
        ]
    return nnx.merge(module, params, jax.tree.unflatten(tree, leaves), copy=True)


def _examples(name: str, arrays: PyTree) -> PyTree:
    """Returns the arrays, all of the same number of rows."""
    arrays = jax.tree.map(jnp.asarray, arrays)
    shapes = [leaf.shape for leaf in jax.tree.leaves(arrays)]
    if len({shape[:1] for shape in shapes}) != 1 or not shapes[0][:1] or not shapes[0][0]:
        raise ValueError(
            f"{name} must be arrays with the same number of rows, at least one, got shapes {shapes}"
        )
    return arrays


def _form(examples: PyTree) -> tuple[Any, list[tuple[int, ...]]]:
    """Returns the tree of examples, and the shapes of their rows."""
    return jax.tree.structure(examples), [leaf.shape[1:] for leaf in jax.tree.leaves(examples)]


def _shape_of(name: str, loss: Loss, data: Samples, params: PyTree, *key: Any) -> tuple[int, ...]:
    """Returns the shape of a loss of two rows, () or (2,); refuses others."""
    answer = _of_two_rows(lambda two, *key: loss(params, data.rest, two, *key), data.examples, *key)
    if answer.shape not in ((), (2,)):
        raise ValueError(
            f"{name} must return a scalar or one a row, got shape {answer.shape} for 2 rows"
        )
    return answer.shape


def _check_equal(batch: Any, size: np.ndarray) -> None:
    """Refuses batches with padding where the loss is a scalar."""
    least, most = int(size.min()), int(size.max())
    padded = isinstance(batch, Whole) and least < most
    if padded or (isinstance(batch, WithoutReplacement) and batch.size > least):
        raise ValueError(
            f"loss must return one a row where a worker's batch may be smaller, with {batch} over"
            f" shards of {least} to {most} rows; got a scalar"
        )
