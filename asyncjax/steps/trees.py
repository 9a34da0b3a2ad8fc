"""What a rule calculates with: delays, and trees of updates, under a mask or as rows of workers.

    u -> factor * u        (a factor of 0 gives exact zeros, also where u is nan or infinite)

Step sizes are kept in float32 or wider whatever the parameters are; only the product is cast back,
so dtypes neither drift nor lose the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike


def wide(leaf: Any) -> Any:
    """The dtype in which a leaf is calculated: its own, float32 at least."""
    return jnp.promote_types(jnp.result_type(leaf), jnp.float32)


def wide_dtype(tree: Any) -> Any:
    """Returns the dtype for step sizes beside `tree`: float32, or float64 if any leaf is."""
    dtype = jnp.dtype(jnp.float32)
    for leaf in jax.tree.leaves(tree):
        floating = jnp.result_type(leaf)
        floating = floating if jnp.issubdtype(floating, jnp.inexact) else jnp.float32
        dtype = jnp.promote_types(dtype, jnp.finfo(floating).dtype)
    return dtype


def in_dtype(dtype: Any, *values: Any) -> Iterator[Any]:
    """Numbers and trees as arrays of the dtype in which a rule calculates."""
    return (jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), tree) for tree in values)


def cast(tree: Any, model: Any) -> Any:
    """A tree in the dtypes of another."""
    return jax.tree.map(lambda new, old: jnp.asarray(new).astype(jnp.result_type(old)), tree, model)


def scalar(name: str, value: ArrayLike) -> jax.Array:
    """Returns an extra, such as `delay`, as an int32 scalar."""
    if np.ndim(value):
        wanted = "a scalar"
        if name == "delay":
            wanted += " (for several gradients in one step, the largest of theirs)"
        raise ValueError(f"{name} must be {wanted}, got shape {np.shape(value)}")
    return jnp.asarray(value).astype(jnp.int32)


def late(delay: ArrayLike, dtype: Any) -> jax.Array:
    """Returns the extra `delay` as a scalar of a float dtype that is not negative."""
    return jnp.maximum(0, scalar("delay", delay)).astype(dtype)


def leaf_delays(delay: Any, params: Any) -> Any:
    """Gives every leaf of the parameters its delay, of a prefix of their tree."""
    # optax.tree.map_params calls with a placeholder that has no leaves.
    return jax.tree.broadcast(delay, params) if jax.tree.leaves(params) else params


def scale_tree(updates: optax.Updates, factor: jax.Array) -> optax.Updates:
    """Multiplies every leaf by `factor` and keeps its dtype."""

    def scaled(leaf: ArrayLike) -> jax.Array:
        leaf = jnp.asarray(leaf)
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise TypeError(f"updates must be floating-point to be scaled, got {leaf.dtype}")
        return jnp.where(factor == 0, 0, factor * leaf).astype(leaf.dtype)

    return jax.tree.map(scaled, updates)


def map_unmasked(function: Callable[..., Any], tree: Any, *trees: Any) -> Any:
    """Maps over the leaves that `optax.masked` lets through; the other trees may be whole."""

    def is_masked(node: Any) -> bool:
        return isinstance(node, optax.MaskedNode)

    def on_leaf(leaf: Any, *others: Any) -> Any:
        return leaf if is_masked(leaf) else function(leaf, *others)

    return jax.tree.map(on_leaf, tree, *trees, is_leaf=is_masked)


def row_of(rows: Any, worker: jax.Array) -> Any:
    """The row of a worker; of the nearest one, where a traced worker is out of range."""
    return map_unmasked(
        lambda leaf: leaf.at[worker].get(mode="clip", wrap_negative_indices=False), rows
    )


def with_row(rows: Any, worker: jax.Array, row: Any) -> Any:
    """The rows with another one for a worker, where there is such a worker."""

    def put(leaf: jax.Array, new: ArrayLike) -> jax.Array:
        new = jnp.asarray(new).astype(leaf.dtype)
        return leaf.at[worker].set(new, mode="drop", wrap_negative_indices=False)

    return map_unmasked(put, rows, row)
