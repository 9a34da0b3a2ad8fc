"""Rows: every leaf of a tree with a leading axis, in which the buffers of this room keep things.

rows[i] <- tree                 i outside the range, negative ones included: no write
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def empty_rows(tree: Any, n_rows: int) -> Any:
    """Returns zeros of shape [n_rows, ...] for every leaf, in its dtype."""

    def rows(leaf: ArrayLike) -> jax.Array:
        return jnp.zeros((n_rows, *jnp.shape(leaf)), jnp.asarray(leaf).dtype)

    return jax.tree.map(rows, tree)


def one_row(rows: Any) -> Any:
    """The shapes and dtypes of one row of every leaf.

    Example:
        >>> one_row(jnp.zeros((4, 3))).shape
        (3,)
    """
    return jax.tree.map(lambda kept: jax.ShapeDtypeStruct(kept.shape[1:], kept.dtype), rows)


def put_rows(rows: Any, index: ArrayLike, tree: Any) -> Any:
    """Overwrites one row, or m distinct ones for int[m] and leaves of shape [m, ...].

    Example:
        >>> put_rows(jnp.zeros(3), jnp.array([0, -1, 2]), jnp.array([3.0, 9.0, 6.0])).tolist()
        [3.0, 0.0, 6.0]
    """
    index = jnp.asarray(index)

    def put(kept: jax.Array, leaf: ArrayLike) -> jax.Array:
        place = jnp.where(index < 0, kept.shape[0], index)
        return kept.at[place].set(jnp.asarray(leaf).astype(kept.dtype), mode="drop")

    return jax.tree.map(put, rows, tree)


def take_rows(rows: Any, index: ArrayLike) -> Any:
    """Returns one row of every leaf, or m of them for int[m]; `index` must be in range."""
    return jax.tree.map(lambda kept: kept[index], rows)
