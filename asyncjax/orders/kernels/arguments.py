"""How the room reads arrays, trees and states.

Shapes and types are always looked at, values only where they are known: a traced value passes. What
is looked at costs one pass over the array on the host, or on its device where it lies on one, and
never a part of a compiled program.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import shown

LARGEST = 2**31 - 1  # of int32, in which examples and steps are counted


def array(name: str, value: Any, *, integers: bool = False) -> jax.Array:
    """Reads an array of real numbers, or of integers.

    Integers that int32 does not hold are refused where they would be cut.

    Example:
        >>> array("signs", "+-", integers=True)
        Traceback (most recent call last):
        ...
        TypeError: signs must be integers, got '+-'
    """
    kind = "integers" if integers else "real numbers"
    is_array = isinstance(value, jax.Array | np.ndarray | np.generic)
    try:
        given = value if is_array else np.asarray(value)
        if not is_array and given.dtype == object:  # such as a list of traced numbers
            given = jnp.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must be {kind}, got {shown(value)}") from error
    dtype = given.dtype
    if not any(jnp.issubdtype(dtype, one) for one in (jnp.integer, jnp.floating)):
        got = dtype if is_array or np.ndim(value) else shown(value)
        raise TypeError(f"{name} must be {kind}, got {got}")
    if integers and jnp.issubdtype(dtype, jnp.floating) and given.size:
        raise TypeError(f"{name} must be integers, got {dtype}")
    if jnp.issubdtype(dtype, jnp.integer) and dtype.itemsize > 3 and dtype != jnp.int32:
        _check_integers(name, given)
    return jnp.asarray(value)


def _check_integers(name: str, given: Any) -> None:
    """Refuses integers that int32 would cut."""
    if isinstance(given, Tracer) or not given.size:
        return
    host = np.asarray(given)
    for one in (host.min(), host.max()):
        if not -LARGEST - 1 <= int(one) <= LARGEST:
            raise ValueError(f"{name} must hold integers of at most {LARGEST:,} in size, got {one}")


def check_finite(name: str, values: Any) -> None:
    """Refuses a concrete array with NaN or infinity.

    Example:
        >>> check_finite("vectors", np.array([[0.0, np.nan]]))
        Traceback (most recent call last):
        ...
        ValueError: vectors must be finite, got nan at index 0, 1
    """
    rows = finite_rows(values)
    if rows is not None and not rows.all():
        host = np.asarray(values)
        first = np.unravel_index(int(np.argmin(np.isfinite(host))), host.shape)
        where = f" at index {', '.join(str(int(i)) for i in first)}" if first else ""
        raise ValueError(f"{name} must be finite, got {host[first]}{where}")


def finite_rows(values: Any) -> np.ndarray | None:
    """Says of every row along the last axis whether it is finite; None where that is not known.

    Returns bool[...].

    Example:
        >>> finite_rows(np.array([[0.0, 1.0], [np.inf, 2.0]])).tolist()
        [True, False]
    """
    if isinstance(values, Tracer):
        return None
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return np.ones(values.shape[:-1], bool)
    axis = -1 if values.ndim else None
    if isinstance(values, jax.Array) and any(one.platform != "cpu" for one in values.devices()):
        with jax.ensure_compile_time_eval():  # what travels is one truth value a row
            return np.asarray(jnp.all(jnp.isfinite(values), axis=axis))
    return np.asarray(np.isfinite(np.asarray(values)).all(axis=axis))


def check_tree(name: str, tree: Any, *, finite: bool = True) -> None:
    """Refuses a tree without leaves, or with a leaf that is no floating array.

    With `finite` a leaf of concrete values must be finite too; else leaves may be shapes.

    Example:
        >>> check_tree("params", {"w": jnp.ones(2), "b": jnp.array([jnp.nan])})
        Traceback (most recent call last):
        ...
        ValueError: params['b'] must be finite, got nan at index 0
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    if not leaves:
        raise ValueError(f"{name} must be a tree with at least one array, got {shown(tree)}")
    for path, leaf in leaves:
        where = name + jax.tree_util.keystr(path)
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(f"{where} must be a floating array, got {shown(leaf)}")
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(f"{where} must be floating, got {leaf.dtype}")
        if finite:
            check_finite(where, leaf)


def check_state(state: Any, kind: type[tuple[Any, ...]], shape: tuple[int, ...]) -> None:
    """Refuses what is no state of an order: a `kind` whose field `order` has this shape.

    Example:
        >>> from asyncjax import orders
        >>> order = orders.grab(4, 2)
        >>> order.end_epoch(orders.grab(5, 2).init(jax.random.key(0)))
        Traceback (most recent call last):
        ...
        ValueError: state must be of this order, of shape (4,), got one of shape (5,)
    """
    if not isinstance(state, kind):
        raise TypeError(
            f"state must be a {kind.__name__}, as init of this order makes it, got {shown(state)}"
        )
    check_order_shape(getattr(state, "order"), shape)  # noqa: B009


def check_order_shape(order: Any, shape: tuple[int, ...]) -> None:
    """Refuses the order in a state that has another shape.

    Example:
        >>> check_order_shape(3, (4,))
        Traceback (most recent call last):
        ...
        TypeError: state must be of this order, an array of shape (4,), got 3
    """
    if not hasattr(order, "shape"):
        raise TypeError(
            f"state must be of this order, an array of shape {shape}, got {shown(order)}"
        )
    if tuple(order.shape) != shape:
        raise ValueError(
            f"state must be of this order, of shape {shape}, got one of shape {tuple(order.shape)}"
        )
