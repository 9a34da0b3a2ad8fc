"""How the room reads what is no single number: arrays, texts, names, lists of things."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import real, shown

T = TypeVar("T")


def numbers(name: str, value: Any) -> np.ndarray:
    """Reads an array of real numbers as float64; NaN and infinity are numbers here.

    Example:
        >>> numbers("values", [[1, 2], [3]])
        Traceback (most recent call last):
        ...
        TypeError: values must be an array of real numbers, got [[1, 2], [3]]
    """
    if isinstance(value, Tracer):
        raise TypeError(f"{name} must be a concrete array of real numbers, got a traced value")
    wanted = f"{name} must be an array of real numbers"
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{wanted}, got {shown(value)}") from error
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise TypeError(f"{wanted}, got {shown(value)}")
    return array.astype(np.float64)


def whole_numbers(name: str, value: Any) -> np.ndarray:
    """Reads an array of integers, or of floats that are.

    Example:
        >>> whole_numbers("delays", [0.5])
        Traceback (most recent call last):
        ...
        TypeError: delays must be an array of integers, got [0.5]
    """
    array = numbers(name, value)
    if (np.isfinite(array) & (array == np.floor(array))).all():
        return np.asarray(value).astype(np.int64)
    raise TypeError(f"{name} must be an array of integers, got {shown(value)}")


def text(name: str, value: Any) -> str:
    """Reads a text.

    Example:
        >>> text("title", 3)
        Traceback (most recent call last):
        ...
        TypeError: title must be a text, got 3
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {shown(value)}")
    return value


def several(name: str, value: Any, kind: type[T], words: str) -> list[T]:
    """Reads a list of things of one kind, which `words` names.

    Example:
        >>> several("names", ["sgd", 1], str, "texts")
        Traceback (most recent call last):
        ...
        TypeError: names[1] must be one of the texts, got 1
    """
    no_list = isinstance(value, str | bytes | Mapping | set | frozenset)
    if no_list or not isinstance(value, Collection) or getattr(value, "shape", None) == ():
        raise TypeError(f"{name} must be a list of {words}, got {shown(value)}")
    for index, one in enumerate(value):
        if not isinstance(one, kind):
            raise TypeError(f"{name}[{index}] must be one of the {words}, got {shown(one)}")
    return list(value)


def by_name(name: str, value: Any, words: str) -> dict[str, Any]:
    """Reads a mapping from names of methods.

    Example:
        >>> by_name("delays", {1: [0, 2]}, "delays")
        Traceback (most recent call last):
        ...
        TypeError: delays must map texts to delays, got the name 1
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must map names to {words}, got {shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{name} must map texts to {words}, got the name {shown(key)}")
    return dict(value)


def span(name: str, value: Any) -> tuple[float, float] | None:
    """Reads a lowest and a highest value, or None.

    Example:
        >>> span("y_range", (2.0, 1.0))
        Traceback (most recent call last):
        ...
        ValueError: y_range must be (lowest, highest) with lowest < highest, got (2.0, 1.0)
    """
    if value is None:
        return None
    ends = numbers(name, value)
    if ends.shape != (2,) or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise ValueError(
            f"{name} must be (lowest, highest) with lowest < highest, got {shown(value)}"
        )
    return float(ends[0]), float(ends[1])


def goal(name: str, value: Any) -> float | None:
    """Reads a finite number, or None.

    Example:
        >>> goal("target", float("nan"))
        Traceback (most recent call last):
        ...
        ValueError: target must be finite, got nan
    """
    return None if value is None else real(name, value)
