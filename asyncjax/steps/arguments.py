"""Arguments: how the rules of this room read what they are made of, and what an update is handed.

A concrete number out of range is refused. A traced one is known only when the program runs: so a
rule that reads a `delay`, `worker` or `time` has a state with the field `invalid_extras`, int32[]:
how many were out of range so far. What the rule then did is what it does for the nearest value in
range, except that a row that is not there is not written.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.buffers.arguments import integers, is_traced, rows_of
from asyncjax.checks import within

COUNTED = ("delay", "worker", "time")


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


def invalid(name: str, value: Any, n: int | None = None) -> int | jax.Array:
    """Refuses a concrete extra that is out of range, and counts how much of a traced one is.

    `n` is the number of workers or blocks, None where there is no bound. What is returned is 0, or
    int32[] for a traced value.
    """
    if name == "time":
        number(name, value, least=0)
    elif name == "delay" or n is None:
        integers(name, value)
    else:
        rows_of(name, value, n, padding=np.ndim(value) > 0)
    if not is_traced(value):
        return 0
    extra = jnp.asarray(value)
    if jnp.issubdtype(extra.dtype, jnp.inexact):
        wrong = jnp.logical_not((extra >= 0) & (extra < jnp.inf))  # NaN is not either
    else:
        wrong = extra < (-1 if name == "worker" and extra.ndim else 0)
    if n is not None and name != "delay":
        wrong |= extra >= n
    return jnp.sum(wrong, dtype=jnp.int32) if extra.ndim else wrong.astype(jnp.int32)
