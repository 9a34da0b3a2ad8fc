r"""A flax linen module as the model of a problem: what it may be, and its initial parameters.

.. math:: z = \mathrm{model}(x, a), \qquad x_0 = \mathrm{init}(\mathrm{key})

A model must have parameters and nothing else (no batch statistics, no dropout): then the loss of a
row depends on that row and the parameters alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.errors import InvalidRngError

from asyncjax.checks import whole
from asyncjax.problems.problem import PyTree


def widths(name: str, value: Any) -> None:
    """Refuses widths of layers that are no integers of at least 1.

    A list of them is left to `check_module`, which asks for hashable models.
    """
    if not isinstance(value, tuple | list):
        raise TypeError(f"{name} must be a tuple of integers, such as (32,), got {value!r}")
    for width in value:
        whole(f"{name}, width by width,", width)


def a_nonlinearity(name: str, value: Any) -> None:
    """Refuses a nonlinearity that is no function."""
    if not callable(value):
        raise TypeError(f"{name} must be a function of an array, such as nn.relu, got {value!r}")


def check_module(model: Any) -> None:
    """Refuses what is no hashable linen module."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a flax linen module, got {type(model).__name__}; any other model, such"
            " as an nnx module, trains through problems.from_loss"
        )
    try:
        hash(model)
    except TypeError as error:
        raise TypeError(
            f"model must be hashable, so that compilations can be shared, got {model!r}"
        ) from error


def initial(model: nn.Module, key: jax.Array, inputs: jax.Array) -> tuple[PyTree, tuple[int, ...]]:
    """Returns the initial parameters, and the shape of the answer to one row of `inputs`."""
    row = jnp.zeros((1, *inputs.shape[1:]), inputs.dtype)
    try:
        answer, variables = jax.eval_shape(model.init_with_output, key, row)
        if set(variables) == {"params"}:
            jax.eval_shape(model.apply, variables, row)  # now without any random numbers
    except InvalidRngError as error:
        raise ValueError(
            "model must need no random numbers but for its parameters (no dropout), got one that"
            " does; problems.from_loss trains such a model, with the key of each job"
        ) from error
    if set(variables) != {"params"}:
        raise ValueError(
            f"model must have parameters and nothing else, got the collections {set(variables)}"
        )
    params = _initialise(model, key, row)["params"]
    if jnp.issubdtype(inputs.dtype, jnp.floating):
        params = jax.tree.map(
            lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, inputs.dtype)), params
        )
    return params, getattr(answer, "shape", ())


@partial(jax.jit, static_argnums=0)
def _initialise(model: nn.Module, key: jax.Array, row: jax.Array) -> Mapping[str, PyTree]:
    """Returns the model's variables; compiled once for all equal models."""
    variables = model.init(key, row)
    assert isinstance(variables, Mapping)
    return variables
