"""How a model lies in a buffer: as one flat row, or leaf by leaf.

A small model is moved fastest as one row (few operations), a large one leaf by leaf (no copies). Either way the optimizer
sees the caller's own pytree, and the values are the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

FLAT_BELOW = 8192  # parameters


@dataclass(frozen=True)
class Layout:
    """A pair of inverse functions between a model and a row.

    Attributes:
        pack: model -> row; a row is a pytree of arrays.
        unpack: row -> model, dtypes restored.
    """

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def layout_of(params: Any) -> Layout:
    """The layout for a model: flat below 8192 parameters of one dtype, else leaf by leaf."""
    leaves = jax.tree.leaves(params)
    flat, unravel = ravel_pytree(params)
    if len({leaf.dtype for leaf in leaves}) == 1 and flat.size < FLAT_BELOW:
        return Layout(lambda model: ravel_pytree(model)[0], unravel)

    def pack(model: Any) -> Any:
        return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), model, params)

    return Layout(pack, lambda row: row)


def repeat(row: Any, count: int) -> Any:
    """A buffer of ``count`` equal rows."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), row)


def blank(row: Any, count: int) -> Any:
    """A buffer of ``count`` rows of zeros."""
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), row)


def read(buffer: Any, index: Any) -> Any:
    """The rows at an index or at several."""
    return jax.tree.map(lambda leaf: leaf[index], buffer)


def write(buffer: Any, index: Any, row: Any) -> Any:
    """The buffer with a row put at an index, or several at several."""
    return jax.tree.map(lambda leaf, new: leaf.at[index].set(new), buffer, row)
