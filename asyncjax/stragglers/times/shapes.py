"""Shapes: counts, loads and limits that are numbers or arrays, and must fit each other."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

MOST_WORKERS = 10_000  # of one law, for a quadrature: it holds a number a worker at every node
MOST_OWN_LAWS = 2_000  # of laws of their own, where every worker adds panels too


def as_array(value: Any) -> Any:
    """A JAX array as it is, anything else as a NumPy array."""
    return value if isinstance(value, jax.Array) else np.asarray(value)


def common_shape(**values: Any) -> tuple[int, ...]:
    """The shape that arguments broadcast to (ValueError if they do not, or if one is empty).

    Example:
        >>> common_shape(k=[[1], [2]], load=[1.0, 2.0, 4.0])
        (2, 3)
        >>> common_shape(k=[1, 2], load=[1.0, 2.0, 4.0])
        Traceback (most recent call last):
        ...
        ValueError: k and load must broadcast, got shapes (2,) and (3,)
    """
    shapes = [np.shape(value) for value in values.values()]
    for name, shape in zip(values, shapes, strict=True):
        if 0 in shape:
            raise ValueError(f"{name} must hold at least one number, got an array of shape {shape}")
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        *names, last = values
        *first, other = map(str, shapes)
        raise ValueError(
            f"{', '.join(names)} and {last} must broadcast, got shapes {', '.join(first)} and "
            f"{other}"
        ) from error
