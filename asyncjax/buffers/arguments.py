"""Arguments: which row is meant, and whether a tree has the leaves it should have.

A concrete value that is wrong is refused. Of a traced one only shape and dtype are known, and these
are checked; what becomes of its value is said by the function that takes it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.typing import ArrayLike

from asyncjax.checks import shown, within

_LARGEST = np.iinfo(np.int32).max


def is_traced(value: Any) -> bool:
    """Whether a value, or a part of it, is known only when the program runs."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


def integers(name: str, value: ArrayLike, least: int = 0, most: int | None = None) -> jax.Array:
    """Reads integers in `least .. most`, one or an array of them; traced ones of any value."""
    if not is_traced(value):
        within(name, value, least=least, most=most, integer=True)
        if np.max(np.asarray(value)) > _LARGEST:
            raise ValueError(f"{name} must be an integer of at most {_LARGEST}, got {value}")
        return jnp.asarray(value)
    given = jnp.asarray(value)
    if not jnp.issubdtype(given.dtype, jnp.integer):
        raise TypeError(f"{name} must be made of integers, got values of {given.dtype}")
    return given


def rows_of(name: str, value: ArrayLike, n_rows: int, *, padding: bool) -> jax.Array:
    """Reads the number of one row, or m distinct ones; where `padding`, -1 stands for none."""
    index = integers(name, value, -1 if padding else 0, n_rows - 1)
    if index.ndim > 1:
        raise ValueError(f"{name} must be one integer or a vector, got shape {index.shape}")
    if index.ndim and padding and not is_traced(value):
        chosen, times = np.unique(np.asarray(value), return_counts=True)
        twice = chosen[(times > 1) & (chosen >= 0)]
        if twice.size:
            raise ValueError(f"{name} must be distinct rows, got {twice[0]} more than once")
    return index


def floating(name: str, value: Any) -> Any:
    """Reads a floating dtype of at least 32 bits that arrays can have."""
    allowed = "float32, or float64 with x64 enabled"
    try:
        dtype = None if value is None or shape_of(value) is not None else jnp.dtype(value)
    except TypeError:
        dtype = None
    if dtype is None:
        raise TypeError(f"{name} must be a dtype, {allowed}, got {shown(value)}")
    wide = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize >= 4
    if not wide or jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ValueError(f"{name} must be {allowed}, got {dtype.name}")
    return dtype


def of_kind(name: str, value: Any, kind: type | tuple[type, ...]) -> Any:
    """Reads a state, which is of a class of its own."""
    if not isinstance(value, kind):
        first, got = kind[0] if isinstance(kind, tuple) else kind, type(value).__name__
        raise TypeError(f"{name} must be the {first.__name__} that init returned, got {got}")
    return value


def numbers(name: str, tree: Any) -> Any:
    """Reads a tree of arrays of numbers; a bool is no number."""
    if tree is not None and all(shape_of(leaf) is not None for leaf in jax.tree.leaves(tree)):
        return tree
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if shape_of(leaf) is None:
            at = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise TypeError(f"{name} must be a tree of arrays of numbers, got {shown(leaf)}{at}")
    raise TypeError(f"{name} must be a tree of arrays of numbers, got None")


def shape_of(leaf: Any) -> tuple[int, ...] | None:
    """The shape of an array or a number; None if it is neither."""
    if not isinstance(leaf, type) and hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return None if leaf.dtype == np.dtype(bool) else tuple(leaf.shape)
    is_number = isinstance(leaf, int | float | complex) and not isinstance(leaf, bool)
    return () if is_number else None


def like(name: str, tree: Any, model: Any, of: str, lead: tuple[int, ...] = ()) -> Any:
    """Reads a tree with the leaves of `model`, whose shapes may have `lead` in front.

    What `optax.masked` hides in `model` may be whole in the tree.

    Example:
        >>> like("grads", {"w": np.zeros(2)}, {"w": np.zeros(3)}, "the parameters")
        Traceback (most recent call last):
        ...
        ValueError: grads must be like the parameters, of shape (3,) at ['w'], got shape (2,)
    """
    if jax.tree.structure(tree) == jax.tree.structure(model):
        pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(model), strict=True)
        if all(shape_of(leaf) == (*lead, *jnp.shape(expected)) for leaf, expected in pairs):
            return tree
    given, wanted = _by_path(tree), _by_path(model)
    hidden = tuple(
        path for path, expected in wanted.items() if isinstance(expected, optax.MaskedNode)
    )
    for path, expected in wanted.items():
        if path in hidden:
            continue
        at, shape = f" at {path}" if path else "", (*lead, *jnp.shape(expected))
        if path not in given:
            raise ValueError(f"{name} must be like {of}, with an array{at}, got {_words(tree)}")
        if shape_of(given[path]) != shape:
            raise ValueError(
                f"{name} must be like {of}, of shape {shape}{at}, got {_words(given[path])}"
            )
    for path in given:
        if path not in wanted and not (hidden and path.startswith(hidden)):
            raise ValueError(f"{name} must be like {of}, without anything at {path}, got more")
    return tree


def _by_path(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by where they stand; a masked node is one."""
    pairs = jax.tree_util.tree_leaves_with_path(
        tree, is_leaf=lambda node: isinstance(node, optax.MaskedNode)
    )
    return {jax.tree_util.keystr(path): leaf for path, leaf in pairs}


def _words(value: Any) -> str:
    """What was given, in a few words: its shape, or its class if it holds arrays."""
    shape = shape_of(value)
    if shape is not None:
        return f"shape {shape}"
    is_leaf = value is None or jax.tree_util.all_leaves([value])
    return shown(value) if is_leaf else f"a {type(value).__name__}"
