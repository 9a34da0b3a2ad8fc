"""Convolutions on a CPU: whether there are any, and the form that its library takes.

    sum_{r, p} x[r, p + q, c] g[r, p, o]      the gradient of a kernel at [q, c, o]

is a convolution whose batch is c and whose channels are r. XLA's CPU backend (jaxlib 0.10) has a
library for convolutions with the batch first, the channels last and the kernel as [places, in,
out]. It turns others into that form where they are computed once, but not in the body of a loop,
where it goes by a plain loop nest that takes three times as long. So they are turned here. The
numbers that are multiplied and added are the same, the order of a sum may differ. A convolution
that is vmapped over its kernel becomes a grouped one, slow in every form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.problems import Problem

_NAME = "conv_general_dilated"
_LARGE = 8192  # parameters


def convolves(problem: Problem) -> bool:
    """Whether a job's gradient has a convolution in it; traced once, nothing is computed.

    Example:
        >>> from asyncjax import problems
        >>> def loss(kernel, images, key):
        ...     return jnp.mean(jax.lax.conv(images, kernel, (1, 1), "SAME") ** 2)
        >>> kernel, images = jnp.ones((1, 1, 3, 3)), jnp.ones((4, 1, 8, 8))
        >>> convolves(problems.from_loss(kernel, loss, images, n_workers=2))
        True
    """
    given = (problem.data, problem.params, problem.worker_state())
    leaves, structure = jax.tree.flatten(given)
    forms = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return _convolves(problem.gradient_of, problem.worker_state_of is not None, structure, forms)


def batching_loses(problem: Problem) -> bool:
    """Whether one event at a time is faster than waves.

    XLA's batched products are slow on a CPU for all but small models, its batched convolutions for
    all.
    """
    if jax.default_backend() != "cpu":
        return False
    size = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(problem.params))
    return size >= _LARGE or convolves(problem)


@lru_cache(maxsize=16)
def _convolves(
    gradient: Callable[..., Any], keeps: bool, structure: Any, forms: tuple[Any, ...]
) -> bool:
    leaves = [jax.ShapeDtypeStruct(*form) for form in forms]
    data, params, state = jax.tree.unflatten(structure, leaves)
    number, key = jax.ShapeDtypeStruct((), jnp.int32), jax.eval_shape(jax.random.key, 0)
    kept = (state,) if keeps else ()
    found = jax.make_jaxpr(gradient)(data, params, number, number, key, *kept)
    return any(equation.primitive.name == _NAME for equation in _equations(found.jaxpr))


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All operations, of inner functions too."""
    for equation in jaxpr.eqns:
        yield equation
        parts = list(equation.params.values())
        for part in jax.tree.leaves(parts, is_leaf=lambda one: hasattr(one, "eqns")):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def is_turned(equation: Any) -> bool:
    """Whether an operation is a convolution of one group whose axes lie in another order."""
    if equation.primitive.name != _NAME:
        return False
    params = equation.params
    groups = params["feature_group_count"], params["batch_group_count"]
    axes = params["dimension_numbers"]
    return groups == (1, 1) and axes != _plain(len(axes.lhs_spec))


def convolution(left: jax.Array, right: jax.Array, params: dict[str, Any]) -> jax.Array:
    """The convolution, on a CPU with its axes in the order that the library takes.

    Example:
        >>> left, right = jnp.ones((2, 4, 4, 8)), jnp.ones((4, 4, 8, 3))
        >>> own = ("NHWC", "HWIO", "HWNC")
        >>> axes = jax.lax.conv_dimension_numbers(left.shape, right.shape, own)
        >>> call = {"window_strides": (1, 1), "padding": "VALID", "dimension_numbers": axes}
        >>> convolution(left, right, call).shape
        (1, 1, 2, 3)
    """
    axes = params["dimension_numbers"]
    rest = {name: value for name, value in params.items() if name != "dimension_numbers"}

    def turned(left: jax.Array, right: jax.Array) -> jax.Array:
        batch, channels, *places = axes.lhs_spec
        left = jnp.transpose(left, (batch, *places, channels))
        out, into, *places = axes.rhs_spec
        right = jnp.transpose(right, (*places, into, out))
        made = jax.lax.conv_general_dilated(
            left, right, dimension_numbers=_plain(left.ndim), **rest
        )
        batch, channels, *places = axes.out_spec
        whence = {axis: place for place, axis in enumerate((batch, *places, channels))}
        return jnp.transpose(made, [whence[axis] for axis in range(left.ndim)])

    def plain(left: jax.Array, right: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(left, right, dimension_numbers=axes, **rest)

    return jax.lax.platform_dependent(left, right, cpu=turned, default=plain)


def _plain(rank: int) -> jax.lax.ConvDimensionNumbers:
    """Batch first, channels last; the kernel as [places, in, out]."""
    places = tuple(range(1, rank - 1))
    data = (0, rank - 1, *places)
    return jax.lax.ConvDimensionNumbers(data, (rank - 1, rank - 2, *range(rank - 2)), data)
