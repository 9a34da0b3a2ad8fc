"""What a rule by projections is handed: parameters, running sums, examples, a squared norm.

Trees, shapes and types are always looked at, values where they are known, as in the whole room.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import shown, within
from asyncjax.orders.kernels.arguments import check_finite, check_tree

PyTree = Any


def check_trees(params: PyTree, running_sum: PyTree) -> PyTree:
    """Returns the running sum in float32 or wider, if it fits the parameters.

    Example:
        >>> check_trees({"w": jnp.ones(2)}, {"w": jnp.ones(3)})
        Traceback (most recent call last):
        ...
        ValueError: running_sum['w'] must have the shape of params['w'], (2,), got (3,)
    """
    check_tree("params", params)
    check_tree("running_sum", running_sum)
    if jax.tree.structure(params) != jax.tree.structure(running_sum):
        raise ValueError(
            f"running_sum must be a tree like params, {shown(jax.tree.structure(params))}, "
            f"got {shown(jax.tree.structure(running_sum))}"
        )

    def widened(path: Any, leaf: Any, total: Any) -> jax.Array:
        name = jax.tree_util.keystr(path)
        leaf, total = jnp.asarray(leaf), jnp.asarray(total)
        if leaf.shape != total.shape:
            raise ValueError(
                f"running_sum{name} must have the shape of params{name}, {leaf.shape}, "
                f"got {total.shape}"
            )
        return total.astype(jnp.promote_types(total.dtype, jnp.float32))

    return jax.tree_util.tree_map_with_path(widened, params, running_sum)


def check_rows(name: str, tree: PyTree) -> int:
    """Returns the number of rows of a tree of finite arrays with one leading axis.

    Example:
        >>> check_rows("examples", {"x": jnp.ones((4, 2)), "y": jnp.ones(3)})
        Traceback (most recent call last):
        ...
        ValueError: examples['y'] must have a leading axis of 4 rows, as the other arrays, got (3,)
    """
    leaves, rows = jax.tree_util.tree_leaves_with_path(tree), None
    if not leaves:
        raise ValueError(f"{name} must have at least one array, got {shown(tree)}")
    for path, leaf in leaves:
        where = name + jax.tree_util.keystr(path)
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(f"{where} must be an array with a leading axis, got {shown(leaf)}")
        if not leaf.shape:
            raise ValueError(f"{where} must have a leading axis of examples, got shape ()")
        if rows not in (None, leaf.shape[0]):
            raise ValueError(
                f"{where} must have a leading axis of {rows} rows, as the other arrays, got"
                f" {tuple(leaf.shape)}"
            )
        rows = leaf.shape[0]
        check_finite(where, leaf)
    return int(rows or 0)


def check_squared_norm(squared_norm: Any) -> None:
    """Refuses what is no single number of at least 0.

    Example:
        >>> check_squared_norm(-1.0)
        Traceback (most recent call last):
        ...
        ValueError: squared_norm must be at least 0 and finite, got -1.0
    """
    within("squared_norm", squared_norm, least=0)
    if np.ndim(squared_norm) != 0:
        raise ValueError(f"squared_norm must be one number, got {shown(squared_norm)}")


def check_sum(old: PyTree, new: PyTree) -> None:
    """Refuses a running sum that is not like the one that an order began with.

    Example:
        >>> check_sum(jnp.zeros(2), jnp.zeros(3))
        Traceback (most recent call last):
        ...
        ValueError: running_sum must have the shape of that of init, (2,), got (3,)
    """
    check_tree("running_sum", new)
    if jax.tree.structure(old) != jax.tree.structure(new):
        raise ValueError(
            f"running_sum must be a tree like that of init, {shown(jax.tree.structure(old))},"
            f" got {shown(jax.tree.structure(new))}"
        )
    leaves = jax.tree_util.tree_leaves_with_path(new)
    for one, (path, other) in zip(jax.tree.leaves(old), leaves, strict=True):
        if one.shape != jnp.shape(other):
            raise ValueError(
                f"running_sum{jax.tree_util.keystr(path)} must have the shape of that of init,"
                f" {one.shape}, got {jnp.shape(other)}"
            )
