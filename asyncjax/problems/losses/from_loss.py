r"""A problem from a loss of one's own: a function, arrays of examples, and any model.

.. math:: f(x) \approx \sum_{r \in J} w_r \, \ell(x; a_r), \qquad
          g_i(x; \xi) = \nabla \frac{1}{|\xi|} \sum_{r \in \xi} \ell(x; a_r)

where J are the rows that are judged. The model is any pytree of parameters, or a flax nnx module,
which the loss gets whole: in training mode with fresh random streams for a job, in evaluation mode
where a model is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import function_of, instance, whole
from asyncjax.problems.batches import Batch, Whole, WithoutReplacement, check_batch
from asyncjax.problems.finite_sum import judged_rows, row_weights
from asyncjax.problems.held_out import CHUNK
from asyncjax.problems.problem import Problem, PyTree, floating_leaves
from asyncjax.problems.shards import Shards, check_shards, contiguous
from asyncjax.problems.transfers import explicit

_LOSS = " -> loss, a scalar or one a row"
_EXAMPLES = 2_048  # rows that are judged where nothing is said


class OwnRows(NamedTuple):
    """The examples, whose they are, and by which of them a model is judged."""

    arrays: PyTree  # [rows, ...]
    rows: jax.Array  # int32[n, m_max], row numbers of each worker, padded
    size: jax.Array  # int32[n], rows of each worker
    judged: jax.Array  # int32[k], row numbers
    weight: jax.Array  # float[k], sums to 1
    test: PyTree  # [test rows, ...], or None
    rest: PyTree  # what an nnx module holds beside its parameters, or None


@dataclass(frozen=True)
class Called:
    """A function of a model and a batch, called with parameters.

    Attributes:
        function: Of the model and a batch, and of a key while training.
        module: The graph of an nnx module; None where the model is its parameters.
    """

    function: Callable[..., jax.Array]
    module: Any = None

    def __call__(self, params: PyTree, rest: PyTree, batch: PyTree, *key: jax.Array) -> jax.Array:
        """Returns what the function returns, as an array."""
        return jnp.asarray(self.plainly(params, rest, batch, *key))

    def plainly(self, params: PyTree, rest: PyTree, batch: PyTree, *key: jax.Array) -> Any:
        """Returns what the function returns, whatever it is."""
        model = params if self.module is None else _module(self.module, params, rest, *key)
        return self.function(model, batch, *key)


@dataclass(frozen=True)
class OwnGradient:
    """The loss and gradient of a job."""

    loss: Called
    batch: Batch

    def __call__(
        self, data: OwnRows, params: PyTree, worker: Any, job: Any, key: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        """Returns the loss of the job's rows and its gradient; only those rows are gathered."""
        return jax.value_and_grad(self.loss_of_job, argnums=1)(data, params, worker, job, key)

    def loss_of_job(
        self, data: OwnRows, params: PyTree, worker: Any, job: Any, key: jax.Array
    ) -> jax.Array:
        """Returns the loss of the job's rows."""
        positions, valid = self.batch(data.size[worker], data.rows.shape[1], job, key)
        own = data.rows[worker, positions]
        batch = jax.tree.map(lambda values: values[own], data.arrays)
        loss = self.loss(params, data.rest, batch, jax.random.fold_in(key, 1))
        if not loss.ndim:
            return loss
        weight = valid.astype(loss.dtype)
        return jnp.sum(weight / jnp.sum(weight) * loss)


@dataclass(frozen=True)
class EvalMean:
    """The mean of a function of a model over the rows by which it is judged."""

    function: Called
    on_test: bool = False

    def __call__(self, data: OwnRows, params: PyTree) -> jax.Array:
        """Returns the scalar mean."""
        function = partial(self.function, params, data.rest)
        if self.on_test:
            arrays = data.test
            n_rows = jax.tree.leaves(arrays)[0].shape[0]
            weight = jnp.full(n_rows, 1.0 / n_rows, data.weight.dtype)
        else:
            arrays = jax.tree.map(lambda values: values[data.judged], data.arrays)
            n_rows, weight = data.judged.shape[0], data.weight
        two = jax.tree.map(lambda values: values[jnp.zeros(2, int)], arrays)
        if not jax.eval_shape(function, two).ndim:
            return function(arrays)
        total = jnp.zeros((), weight.dtype)
        for begin in range(0, n_rows, CHUNK):  # activations of so many rows are held at once
            part = jax.tree.map(lambda values, at=begin: values[at : at + CHUNK], arrays)
            total += jnp.sum(weight[begin : begin + CHUNK] * function(part))
        return total


@explicit
def from_loss(
    params: Any,
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
) -> Problem:
    r"""Returns the training of any model by a loss of one's own.

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
        evaluate: `(params, batch) -> loss`, how a model is judged; None: by `loss` with a fixed
            key. An nnx module is in evaluation mode in both, so dropout is off.
        eval_rows: Rows that the objective looks at, spread evenly over all; None: at most 2048. A
            loss a row is weighted as the shards say and taken 2048 rows at a time; a scalar loss
            gets all of them as one batch.
        test: Examples that no worker holds, like `arrays`: the metric `test_loss`.
        metrics: Further metrics by name, `(params, batch) -> scalar or one a row`, means over the
            test rows (over the judged rows where there is no test).

    Returns:
        The problem. Two of the same functions and shapes share a compilation; write functions once,
        outside of loops.

    Raises:
        TypeError: A function does not take its arguments, or the model or the arrays hold what they
            must not.
        ValueError: Arrays differ in their rows, a loss has another shape, a module keeps batch
            statistics, or a scalar loss meets batches of unequal size.

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
    function_of("loss", loss, "params", "batch", "key", reason=_LOSS)
    if evaluate is not None:
        function_of("evaluate", evaluate, "params", "batch", reason=_LOSS)
    named = _named(metrics)
    params, rest, module, judging = _parts(params)
    arrays, n_rows = _examples("arrays", arrays)
    n_workers = whole("n_workers", n_workers)
    shards = contiguous(n_rows, n_workers) if shards is None else shards
    shards = check_shards(shards, n_rows, n_workers)
    batch = Whole() if batch is None else batch
    check_batch(batch, shards)
    if test is not None:
        test = _like(_examples("test", test)[0], arrays)
    judged, weight = _judged(eval_rows, shards, n_rows)
    data = OwnRows(
        arrays=arrays,
        rows=jnp.asarray(shards.rows),
        size=jnp.asarray(shards.size),
        judged=jnp.asarray(judged),
        weight=jnp.asarray(weight, jnp.result_type(*jax.tree.leaves(params))),
        test=test,
        rest=rest,
    )
    trained = Called(loss, module)
    if not _shape_of("loss", trained, data, params, jax.eval_shape(jax.random.key, 0)):
        _check_equal(batch, shards)
    judges = Called(_WithFixedKey(loss) if evaluate is None else evaluate, judging)
    measured = {"test_loss": judges} if test is not None else {}
    measured |= {name: Called(metric, judging) for name, metric in named.items()}
    for name, one in ({"evaluate": judges} | measured).items():
        _shape_of(name, one, data, params)
    on_test = test is not None
    return Problem(
        params=params,
        data=data,
        gradient_of=OwnGradient(trained, batch),
        objective_of=EvalMean(judges),
        metrics_of=tuple((name, EvalMean(one, on_test)) for name, one in measured.items()),
        n_workers=n_workers,
    )


@dataclass(frozen=True)
class _WithFixedKey:
    """A loss whose key is always the same."""

    loss: Callable[..., Any]

    def __call__(self, model: Any, batch: PyTree) -> jax.Array:
        return self.loss(model, batch, jax.random.key(0))


def _of_nnx(model: Any) -> bool:
    """Whether a model's class is made of one of nnx; which is not imported for that."""
    return any(one.__module__.startswith("flax.nnx") for one in type(model).__mro__)


def _named(metrics: Any) -> dict[str, Callable[..., Any]]:
    """The metrics by name."""
    if metrics is None:
        return {}
    instance("metrics", metrics, Mapping, "a dictionary of functions by name, or None")
    for name, metric in metrics.items():
        instance("metrics, name by name,", name, str, "a text")
        function_of(f"metrics[{name!r}]", metric, "params", "batch", reason=_LOSS)
    return dict(metrics)


def _parts(model: Any) -> tuple[PyTree, PyTree, Any, Any]:
    """Parameters, the rest, and the graphs of a module for training and for judging."""
    if not _of_nnx(model):
        return floating_leaves(model), None, None, None
    from flax import nnx

    if not isinstance(model, nnx.Module):
        return floating_leaves(model), None, None, None
    module, params, statistics, rest = nnx.split(model, nnx.Param, nnx.BatchStat, ...)
    if jax.tree.leaves(statistics):
        raise ValueError(
            "model must keep no batch statistics (nnx.BatchNorm), which no worker could send with"
            " a gradient: use nnx.LayerNorm or nnx.GroupNorm"
        )
    calm = nnx.clone(model)
    calm.eval()
    return floating_leaves(params), rest, module, nnx.graphdef(calm)


def _module(module: Any, params: PyTree, rest: PyTree, *key: jax.Array) -> Any:
    """The nnx module of parameters; its random streams begin with the key."""
    from flax import nnx

    leaves, tree = jax.tree.flatten(rest)
    if key:
        leaves = [
            jax.random.fold_in(key[0], place)
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf
            for place, leaf in enumerate(leaves)
        ]
    return nnx.merge(module, params, jax.tree.unflatten(tree, leaves), copy=True)


def _examples(name: str, arrays: PyTree) -> tuple[PyTree, int]:
    """The arrays, and how many rows they have."""
    try:
        arrays = jax.tree.map(jnp.asarray, arrays)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a pytree of arrays, got {str(arrays)[:80]!r}") from error
    shapes = [leaf.shape for leaf in jax.tree.leaves(arrays)]
    if not shapes or () in shapes or len({shape[0] for shape in shapes}) != 1 or not shapes[0][0]:
        raise ValueError(
            f"{name} must be arrays with the same number of rows, at least one, got shapes {shapes}"
        )
    return arrays, shapes[0][0]


def _like(test: PyTree, arrays: PyTree) -> PyTree:
    """The test rows, which must be like the examples."""

    def kind(tree: PyTree) -> Any:
        return jax.tree.structure(tree), [leaf.shape[1:] for leaf in jax.tree.leaves(tree)]

    if kind(test) != kind(arrays):
        raise ValueError(f"test must be like arrays, {kind(arrays)}, got {kind(test)}")
    return test


def _judged(eval_rows: int | None, shards: Shards, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows by which a model is judged, int32[k], and their weights, float[k]."""
    weight = row_weights(shards, n_rows)
    most = min(np.count_nonzero(weight), _EXAMPLES)
    return judged_rows(most if eval_rows is None else eval_rows, weight)


def _shape_of(
    name: str, called: Called, data: OwnRows, params: PyTree, *key: Any
) -> tuple[int, ...]:
    """The shape of a loss of two rows, () or (2,); refuses others; nothing is computed."""
    batch = jax.tree.map(
        lambda values: jax.ShapeDtypeStruct((2, *values.shape[1:]), values.dtype), data.arrays
    )
    found = jax.eval_shape(called.plainly, params, data.rest, batch, *key)
    shape = getattr(found, "shape", None)
    if shape not in ((), (2,)):
        got = f"shape {shape} for 2 rows" if shape is not None else repr(found)[:80]
        raise ValueError(f"{name} must return a scalar or one a row, got {got}")
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise TypeError(f"{name} must return a floating-point type, got {found.dtype}")
    return shape


def _check_equal(batch: Any, shards: Shards) -> None:
    """Refuses batches with padding where the loss is a scalar."""
    least, most = int(shards.size.min()), int(shards.size.max())
    padded = isinstance(batch, Whole) and least < most
    if padded or (isinstance(batch, WithoutReplacement) and batch.size > least):
        raise ValueError(
            f"loss must return one a row where a worker's batch may be smaller, with {batch} over"
            f" shards of {least} to {most} rows; got a scalar"
        )
