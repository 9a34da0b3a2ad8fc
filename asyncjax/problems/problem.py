r"""A problem: the initial model, the gradient a worker computes, and how a model is evaluated.

In symbols: n workers, worker i holds :math:`f_i`, and the whole is

.. math:: f(x) = \frac{1}{n} \sum_{i=1}^{n} f_i(x).

A job of worker i returns :math:`(f_i(x; \xi), \nabla f_i(x; \xi))`, where the sample
:math:`\xi` is a function of the worker's job number and of a key. Who reads which model when is
none of a problem's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp

from asyncjax.checks import one_key, whole, within
from asyncjax.problems.transfers import explicit

PyTree = Any
Model = TypeVar("Model", bound=Any)
Graded = tuple[jax.Array, PyTree]  # the scalar loss of a job, and its gradient
_NO_STATE = (
    "problem keeps a state at every worker (keep_state=True), which only simulation.replay,"
    " simulation.sweep and live runs carry from job to job: state must be given, got None"
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Problem(Generic[Model]):
    """What is optimised, as a pytree: arrays are leaves, functions are static.

    The functions take the arrays as an argument, so large data are inputs of a compiled function
    and never constants in it; and they are compared by value, so two problems of the same shapes
    and settings share one compilation.

    Attributes:
        params: The initial model, any pytree of floating-point arrays.
        data: The arrays that the functions read, any pytree.
        gradient_of: Static, `(data, params, worker, job, key) -> (loss, grads)`.
        objective_of: Static, `(data, params) -> scalar`; None where there is none.
        metrics_of: Static pairs of a name and `(data, params) -> scalar`, for the records.
        n_workers: Static; None where any number of workers will do.
        worker_state_of: Static, `(data, params) -> state`, what every worker keeps before its first
            job; None where workers keep nothing from job to job. Where it is given, `gradient_of`
            takes a worker's state as its last argument and returns `(loss, grads, state)`.

    Example:
        >>> from asyncjax import problems
        >>> problem = problems.quadratic([[1.0], [3.0]], [[1.0], [1.0]])
        >>> problem.n_workers, float(problem.objective(problem.params))
        (2, 0.0)
    """

    params: Model
    data: PyTree
    gradient_of: Callable[..., Graded] = field(metadata={"static": True})
    objective_of: Callable[..., jax.Array] | None = field(default=None, metadata={"static": True})
    metrics_of: tuple[tuple[str, Callable[..., jax.Array]], ...] = field(
        default=(), metadata={"static": True}
    )
    n_workers: int | None = field(default=None, metadata={"static": True})
    worker_state_of: Callable[..., PyTree] | None = field(default=None, metadata={"static": True})

    def gradient(
        self, params: PyTree, worker: Any, job: Any, key: jax.Array, state: PyTree = None
    ) -> Any:
        """Returns the loss and the gradient of one job.

        Args:
            params: The model that the worker has read.
            worker: An int32 scalar, 0..n_workers-1.
            job: An int32 scalar, how many jobs this worker had started before.
            key: A typed key for this job's randomness.
            state: What the worker has kept from its jobs before, `worker_state()` before its first;
                None where workers keep nothing.

        Returns:
            The scalar loss of the job's sample, and its gradient, a pytree like `params`; then,
            where workers keep a state, the state after the job.
        """
        check_model(params, self.params)
        last = None if self.n_workers is None else self.n_workers - 1
        within("worker", worker, least=0, most=last, integer=True)
        within("job", job, least=0, integer=True)
        one_key("key", key)
        if self.worker_state_of is None:
            if state is not None:
                raise ValueError("state must be None: the workers of this problem keep none")
            return self.gradient_of(self.data, params, worker, job, key)
        if state is None:
            raise ValueError(_NO_STATE)
        return self.gradient_of(self.data, params, worker, job, key, state)

    def worker_state(self) -> PyTree:
        """Returns what a worker keeps before its first job; None where workers keep nothing."""
        if self.worker_state_of is None:
            return None
        return self.worker_state_of(self.data, self.params)

    @property
    def nbytes(self) -> int:
        """Bytes of a model in its own dtypes: what a message carries that is not compressed."""
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.params))

    @property
    def objective(self) -> Callable[[PyTree], jax.Array] | None:
        """The function `params -> scalar` that is minimised, or None.

        It is a `jax.tree_util.Partial`: a pytree, so a compiled function may take it as an
        argument. A model of other shapes is a ValueError.
        """
        if self.objective_of is None:
            return None
        checked = _OfModel(self.objective_of, _shapes(self.params))
        return jax.tree_util.Partial(checked, self.data)

    def metrics(self, params: PyTree) -> dict[str, jax.Array]:
        """Returns the further scalars of a model by name; empty where the problem has none.

        Args:
            params: The model, a pytree like the problem's.
        """
        check_model(params, self.params)
        return {name: metric(self.data, params) for name, metric in self.metrics_of}


@dataclass(frozen=True)
class _OfModel:
    """An objective that looks at the shapes of a model first; equal ones share a compilation."""

    objective_of: Callable[..., jax.Array]
    shapes: tuple[Any, ...]

    def __call__(self, data: PyTree, params: PyTree) -> jax.Array:
        _check_shapes(params, self.shapes)
        return self.objective_of(data, params)


@dataclass(frozen=True)
class _OwnFunction:
    """A person's own gradient or objective; equal to another of the same function."""

    function: Callable[..., Any]

    def __call__(self, data: PyTree, *arguments: Any) -> Any:
        return self.function(*arguments)


@explicit
def from_gradient(
    params: Model,
    gradient: Callable[..., Graded],
    *,
    objective: Callable[[PyTree], jax.Array] | None = None,
    n_workers: int | None = None,
) -> Problem[Model]:
    r"""Returns the minimal problem: a model and a function that computes a job's gradient.

    .. math:: (\ell, g) = \mathrm{gradient}(x, i, j, \mathrm{key})

    Local steps need nothing else: let `gradient` run H steps and return (x - y) / (step H).

    Args:
        params: The initial model, any pytree of finite floating-point arrays.
        gradient: `(params, worker, job, key) -> (loss, grads)`: pure and traceable; `worker` and
            `job` are int32 scalars, `key` is a typed key, `loss` is a real scalar, `grads` is like
            `params`: the same tree, shapes and types.
        objective: `params -> scalar`, real and traceable, or None.
        n_workers: The number of workers, or None for any.

    Returns:
        The problem. Arrays that the functions close over become constants of a compiled function.

    Note:
        Both functions are traced once here, to check their shapes and types; nothing is computed.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> def gradient(params, worker, job, key):
        ...     return jax.value_and_grad(lambda x: (x - worker) ** 2)(params)
        >>> problem = problems.from_gradient(2.0, gradient, objective=lambda x: x**2)
        >>> loss, grads = problem.gradient(problem.params, 1, 0, jax.random.key(0))
        >>> float(loss), float(grads), problem.objective(3.0)
        (1.0, 2.0, 9.0)
    """
    if n_workers is not None:
        n_workers = whole("n_workers", n_workers)
    params = floating_leaves(params)
    _check_gradient(gradient, params)
    if objective is not None:
        value = jax.eval_shape(objective, params)
        if value.shape:
            raise ValueError(f"objective must return a scalar, got shape {value.shape}")
    return Problem(
        params=params,
        data=(),
        gradient_of=_OwnFunction(gradient),
        objective_of=None if objective is None else _OwnFunction(objective),
        n_workers=n_workers,
    )


def floating_leaves(params: PyTree) -> PyTree:
    """Returns the model with every leaf a finite floating-point array."""
    params = jax.tree.map(jnp.asarray, params)
    for leaf in jax.tree.leaves(params):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"params must hold floating-point arrays, got a leaf of dtype {leaf.dtype}"
            )
        within("params", leaf)
    return params


def check_model(params: PyTree, like: PyTree) -> None:
    """Refuses a model of other shapes than a problem's own.

    Example:
        >>> check_model(jnp.ones(2), jnp.ones(3))
        Traceback (most recent call last):
        ...
        ValueError: params must have the shapes of the problem's params, ((3,),), got ((2,),)
    """
    _check_shapes(params, _shapes(like))


def _check_shapes(params: PyTree, shapes: tuple[Any, ...]) -> None:
    """Refuses a model of other shapes."""
    if _shapes(params) != shapes:
        raise ValueError(
            f"params must have the shapes of the problem's params, {shapes}, got {_shapes(params)}"
        )


def _shapes(params: PyTree) -> tuple[Any, ...]:
    """Returns the shapes of all leaves."""
    return tuple(jnp.shape(leaf) for leaf in jax.tree.leaves(params))


def _check_gradient(gradient: Callable[..., Any], params: PyTree) -> None:
    """Refuses a gradient whose shapes do not fit `params`; nothing is computed."""
    index = jax.ShapeDtypeStruct((), jnp.int32)
    key = jax.eval_shape(jax.random.key, 0)
    loss, grads = jax.eval_shape(gradient, params, index, index, key)
    wanted, got = ([(x.shape, x.dtype.name) for x in jax.tree.leaves(t)] for t in (params, grads))
    if loss.shape or jax.tree.structure(grads) != jax.tree.structure(params) or got != wanted:
        raise ValueError(
            "gradient must return a scalar loss, and grads of the same tree, shapes and types as"
            f" params: {wanted}, got a loss of shape {loss.shape} and grads {got}"
        )
