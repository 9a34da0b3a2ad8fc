"""Arguments of the checks: what is tried, on which parameters, and what it is handed.

A check says with an AssertionError what is broken in the transformation. What is wrong with the
call of the check itself is a TypeError or a ValueError that names the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import function, shown, within


def transformation(name: str, value: Any) -> Any:
    """Reads an optax transformation.

    Example:
        >>> transformation("transform", 3)
        Traceback (most recent call last):
        ...
        TypeError: transform must be an optax transformation, such as optax.sgd(0.1), got 3
    """
    if not all(callable(getattr(value, part, None)) for part in ("init", "update")):
        hint = ", which is to be called first" if callable(value) else ""
        raise TypeError(
            f"{name} must be an optax transformation, such as optax.sgd(0.1), got"
            f" {shown(value)}{hint}"
        )
    return value


def parameters(name: str, value: Any) -> Any:
    """Reads a tree of floating-point arrays with at least one leaf; what is known of it is finite.

    Example:
        >>> parameters("params", {"w": [1.0]})
        Traceback (most recent call last):
        ...
        TypeError: params must be a tree of floating-point arrays, got 1.0
    """
    leaves = jax.tree.leaves(value)
    if not leaves:
        raise TypeError(f"{name} must be a tree of floating-point arrays, got {shown(value)}")
    for leaf in leaves:
        is_array = isinstance(leaf, jax.Array | np.ndarray | np.generic)
        if not is_array or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise TypeError(f"{name} must be a tree of floating-point arrays, got {shown(leaf)}")
        if not isinstance(leaf, Tracer) and not np.isfinite(np.asarray(leaf)).all():
            raise ValueError(f"{name} must be finite, got {shown(leaf)}")
    return value


def extras_of_one(name: str, value: Any, params: Any, step: Any) -> dict[str, Any]:
    """Reads the extras of one update, a mapping or a function of (params, step) that returns one.

    Example:
        >>> extras_of_one("extras", lambda params, step: {"worker": step % 3}, None, 4)
        {'worker': 1}
        >>> extras_of_one("extras", 3, None, 4)
        Traceback (most recent call last):
        ...
        TypeError: extras must be a mapping, or a function of (params, step), got 3
    """
    words = "a mapping, or a function of (params, step)"
    if not isinstance(value, Mapping):
        given = function(name, value, words)(params, step)
        if not isinstance(given, Mapping):
            raise TypeError(f"{name} must return a mapping, got {shown(given)}")
        value = given
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{name} must be a mapping from names of extras, got {shown(key)}")
    return dict(value)


def names(name: str, value: Any) -> Sequence[str]:
    """Reads a sequence of names.

    Example:
        >>> names("required", "delay")
        Traceback (most recent call last):
        ...
        TypeError: required must be a sequence of names, got 'delay'
    """
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_sequence or not all(isinstance(one, str) for one in value):
        raise TypeError(f"{name} must be a sequence of names, got {shown(value)}")
    return value


def floating_dtypes(name: str, value: Any) -> Sequence[str]:
    """Reads a sequence of names of floating-point dtypes, at least one.

    Example:
        >>> floating_dtypes("dtypes", ["int32"])
        Traceback (most recent call last):
        ...
        ValueError: dtypes must name floating-point dtypes, got 'int32'
    """
    if not names(name, value):
        raise ValueError(f"{name} must name at least one dtype, got {shown(value)}")
    for one in value:
        try:
            fits = jnp.issubdtype(jnp.dtype(one), jnp.floating)
        except TypeError:
            fits = False
        if not fits:
            raise ValueError(f"{name} must name floating-point dtypes, got {one!r}")
    return value


def update_number(name: str, value: Any) -> Any:
    """Reads the number of an update, an integer of at least 0 that may be traced.

    Example:
        >>> update_number("step", -1)
        Traceback (most recent call last):
        ...
        ValueError: step must be an integer of at least 0, got -1
    """
    within(name, value, least=0, integer=True)
    if np.ndim(value):
        raise ValueError(f"{name} must be one integer, got shape {np.shape(value)}")
    return value
