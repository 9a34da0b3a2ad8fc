"""Multiplying a tree of updates by one number, with dtypes that neither drift nor lose the number.

    u -> factor * u        (a factor of 0 gives exact zeros, also where u is nan or infinite)

Step sizes are kept in float32 or wider whatever the parameters are; only the product is cast back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike


def wide_dtype(tree: Any) -> Any:
    """Returns the dtype for step sizes beside `tree`: float32, or float64 if any leaf is.

    Example:
        >>> wide_dtype({"w": jnp.zeros(2, jnp.bfloat16)}).name
        'float32'
    """
    dtype = jnp.dtype(jnp.float32)
    for leaf in jax.tree.leaves(tree):
        dtype = jnp.promote_types(dtype, jnp.finfo(_floating(leaf)).dtype)
    return dtype


def scale_tree(updates: optax.Updates, factor: jax.Array) -> optax.Updates:
    """Multiplies every leaf by `factor` and keeps its dtype.

    Example:
        >>> scale_tree(jnp.array([1.0, jnp.inf]), jnp.float32(0.0)).tolist()
        [0.0, 0.0]
    """

    def scaled(leaf: ArrayLike) -> jax.Array:
        leaf = jnp.asarray(leaf)
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise TypeError(f"updates must be floating-point to be scaled, got {leaf.dtype}")
        return jnp.where(factor == 0, 0, factor * leaf).astype(leaf.dtype)

    return jax.tree.map(scaled, updates)


def map_unmasked(function: Callable[..., Any], tree: Any, *trees: Any) -> Any:
    """Maps over the leaves that `optax.masked` lets through; the other trees may be whole.

    Example:
        >>> map_unmasked(max, {"a": 1, "b": optax.MaskedNode()}, {"a": 2, "b": 5})
        {'a': 2, 'b': MaskedNode()}
    """

    def is_masked(node: Any) -> bool:
        return isinstance(node, optax.MaskedNode)

    def on_leaf(leaf: Any, *others: Any) -> Any:
        return leaf if is_masked(leaf) else function(leaf, *others)

    return jax.tree.map(on_leaf, tree, *trees, is_leaf=is_masked)


def _floating(leaf: ArrayLike) -> Any:
    dtype = jnp.result_type(leaf)
    return dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.float32
