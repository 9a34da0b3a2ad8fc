"""Checks of arrays: one number, the number of a row, a tree that has the leaves it should have.

Of a traced value only shape and dtype are known, and these are checked; what becomes of its value
is said by the function that takes it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.typing import ArrayLike

from asyncjax.checks import within

_LARGEST = np.iinfo(np.int32).max


def is_traced(value: Any) -> bool:
    """Whether a value, or a part of it, is known only when the program runs."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


def number(name: str, value: Any, **bounds: Any) -> Any:
    """Reads one number that may be traced, within the bounds of `checks.within`.

    A JAX array may also lie on an open bound: an injected schedule that starts at 0 would otherwise
    pass under jit and fail outside.
    """
    open_bounds = [bounds[bound] for bound in ("above", "below") if bound in bounds]
    known_scalar = isinstance(value, jax.Array) and value.ndim == 0 and not is_traced(value)
    if known_scalar and value in open_bounds:
        return value
    within(name, value, **bounds)
    if np.ndim(value):
        raise ValueError(f"{name} must be one number, got shape {np.shape(value)}")
    return value


def integers(name: str, value: ArrayLike, least: int = 0, most: int | None = None) -> jax.Array:
    """Reads integers in `least .. most`, one or an array of them; traced ones of any value."""
    within(name, value, least=least, most=most, integer=True)
    if not is_traced(value) and np.max(np.asarray(value)) > _LARGEST:
        raise ValueError(f"{name} must be an integer of at most {_LARGEST}, got {value}")
    found = jnp.asarray(value)
    if not jnp.issubdtype(found.dtype, jnp.integer):  # a traced one
        raise TypeError(f"{name} must be made of integers, got values of {found.dtype}")
    return found


def rows_of(name: str, value: ArrayLike, n_rows: int, *, padding: bool) -> jax.Array:
    """Reads the number of one row, or m distinct ones; where `padding`, -1 stands for none."""
    index = integers(name, value, -1 if padding else 0, n_rows - 1)
    if index.ndim and padding and not is_traced(value):
        rows, times = np.unique(np.asarray(value), return_counts=True)
        for twice in rows[(times > 1) & (rows >= 0)]:
            raise ValueError(f"{name} must be distinct rows, got {twice} more than once")
    return index


def floating(name: str, value: Any) -> Any:
    """Reads a floating dtype of at least 32 bits that arrays can have."""
    dtype = jnp.dtype(value)
    wide = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize >= 4
    if not wide or jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ValueError(f"{name} must be float32, or float64 with x64 enabled, got {dtype.name}")
    return dtype


def like(name: str, tree: Any, model: Any, of: str, lead: tuple[int, ...] = ()) -> Any:
    """Reads a tree with the leaves of `model`, whose shapes may have `lead` in front.

    What `optax.masked` hides in `model` may be whole in the tree.

    Example:
        >>> like("grads", {"w": np.zeros(2)}, {"w": np.zeros(3)}, "the parameters")
        Traceback (most recent call last):
        ...
        ValueError: grads must be like the parameters, of shape (3,) at ['w'], got shape (2,)
    """

    def is_hidden(node: Any) -> bool:
        return isinstance(node, optax.MaskedNode)

    wanted = jax.tree_util.tree_leaves_with_path(model, is_leaf=is_hidden)
    try:
        leaves = jax.tree.structure(model, is_leaf=is_hidden).flatten_up_to(tree)
    except ValueError as error:
        raise ValueError(f"{name} must be like {of}: {str(error).rstrip('.')}") from error
    for (path, node), leaf in zip(wanted, leaves, strict=True):
        got = f"shape {np.shape(leaf)}" if jax.tree_util.all_leaves([leaf]) else "a tree"
        shape = (*lead, *np.shape(node))
        if not is_hidden(node) and got != f"shape {shape}":
            at = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise ValueError(f"{name} must be like {of}, of shape {shape}{at}, got {got}")
    return tree
