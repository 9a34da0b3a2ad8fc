"""How the room reads its arguments: a name means the same in every function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import flag, real, shown

_TEXTS = (
    *("name", "title", "heading", "caption", "alt", "text", "verdict", "summary", "command"),
    *("document", "unit", "x_label", "y_label", "colour"),
)
_FLAGS = ("right", "log_x", "log_y", "doubling", "smaller_is_better")
_MAPPINGS = dict(delays="delays", scores="scores", styles="styles", chosen="places of step sizes")


def numbers(name: str, value: Any, *, integer: bool = False) -> np.ndarray:
    """Reads an array of real numbers as float64, NaN and infinity too, or of integers as int64."""
    kind = "integers" if integer else "real numbers"
    if isinstance(value, Tracer):
        raise TypeError(f"{name} must be a concrete array of {kind}, got a traced value")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # ragged
        array = np.array(None)
    fits = any(jnp.issubdtype(array.dtype, allowed) for allowed in (jnp.integer, jnp.floating))
    if fits and integer:
        fits = bool((np.isfinite(array) & (array == np.floor(array))).all())
    if not fits:
        raise TypeError(f"{name} must be an array of {kind}, got {shown(value)}")
    return array.astype(np.int64 if integer else np.float64)


def door(arguments: Mapping[str, Any], **lists: tuple[type, str]) -> None:
    """Refuses arguments of the wrong kind; `lists`: of what class the entries are, in words."""
    lists = {"names": (str, "texts"), **lists}
    for name, value in arguments.items():
        if name in _TEXTS and not isinstance(value, str):
            raise TypeError(f"{name} must be a text, got {shown(value)}")
        if name in _FLAGS:
            flag(name, value)
        elif name in lists:
            _several(name, value, *lists[name])
        elif name in _MAPPINGS and (value is not None or name in ("delays", "scores")):
            _by_name(name, value, _MAPPINGS[name])
        elif name == "y_range" and value is not None:
            ends = numbers(name, value)
            if ends.shape != (2,) or not np.isfinite(ends).all() or not ends[0] < ends[1]:
                allowed = "(lowest, highest) with lowest < highest"
                raise ValueError(f"{name} must be {allowed}, got {shown(value)}")
        elif name == "target" and value is not None:
            real(name, value)
    for name in ("y_range", "target"):
        value = arguments.get(name)
        if value is not None and arguments["log_y"] and np.min(value) <= 0:
            raise ValueError(f"{name} must be positive where log_y is True, got {value}")


def _several(name: str, value: Any, kind: type, words: str) -> None:
    """Refuses what is no list of things of one kind."""
    no_list = isinstance(value, str | bytes | Mapping | set | frozenset)
    if no_list or not isinstance(value, Collection) or getattr(value, "shape", None) == ():
        raise TypeError(f"{name} must be a list of {words}, got {shown(value)}")
    for index, entry in enumerate(value):
        if not isinstance(entry, kind):
            raise TypeError(f"{name}[{index}] must be one of the {words}, got {shown(entry)}")


def _by_name(name: str, value: Any, words: str) -> None:
    """Refuses what is no mapping from names of methods."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must map names to {words}, got {shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{name} must map texts to {words}, got the name {shown(key)}")
