"""Limits of policies: numbers that are checked where they are known, and may be traced."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from asyncjax.checks import real, whole

NEVER = np.iinfo(np.int32).max


def counted(name: str, value: Any, least: int) -> Array:
    """Reads an integer as int32[], the largest of which stands for all above."""
    if not isinstance(value, Tracer):
        value = min(whole(name, value, least), NEVER)
    return jnp.asarray(value, jnp.int32)


def patience_of(patience: Any) -> Array:
    """Reads after how many updates a stage is left whatever is seen, None for never; int32[]."""
    return counted("patience", NEVER if patience is None else patience, 1)


def number(name: str, value: Any, **limits: Any) -> Array:
    """Reads a real number as float[], within the limits of `checks.real`.

    Example:
        >>> number("ratio", 1, above=1)
        Traceback (most recent call last):
        ...
        ValueError: ratio must be larger than 1 and finite, got 1.0
    """
    if not isinstance(value, Tracer):
        value = real(name, value, **limits)
    return jnp.asarray(value, jnp.result_type(float))
