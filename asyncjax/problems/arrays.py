"""Arrays that a person hands to a problem: read once, on the host, before anything compiles.

Every function returns them in the form the rest of the room uses. Of a traced array only shape and
type are known.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import within

MOST_ROWS = 2**31 - 1  # numbers of rows, labels and tokens are int32


def is_traced(value: object) -> bool:
    """Says whether `value` is an abstract array inside a JAX transformation."""
    return isinstance(value, Tracer)


def floating(name: str, value: Any) -> jax.Array:
    """Returns `value` as a finite floating-point array; integers and booleans are converted."""
    value = value if isinstance(value, jax.Array) else np.asarray(value)
    if not value.size:
        raise ValueError(f"{name} must not be empty, got shape {value.shape}")
    is_whole = jnp.issubdtype(value.dtype, jnp.integer) or value.dtype == np.bool_
    with np.errstate(over="ignore"):  # told by `within`
        return within(name, jnp.asarray(value, float if is_whole else None))


def integers(name: str, value: Any) -> jax.Array:
    """Returns `value` as an int32 array."""
    return jnp.asarray(within(name, value, most=MOST_ROWS, integer=True), jnp.int32)


def matrix(name: str, value: Any, axes: str) -> jax.Array:
    """Returns `value` as a finite floating-point array with two axes, named in `axes`."""
    array = floating(name, value)
    if array.ndim != 2:
        raise ValueError(f"{name} must be a 2-D array {axes}, got shape {array.shape}")
    return array


def same_rows(name: str, array: Any, n_rows: int) -> None:
    """Refuses an `array` that is not one value a row."""
    if np.shape(array) != (n_rows,):
        raise ValueError(
            f"{name} must have shape ({n_rows},), one value for each row of features, "
            f"got shape {np.shape(array)}"
        )


def starting_point(value: Any, shape: tuple[int, ...], fill: float, dtype: Any) -> jax.Array:
    """Returns the initial model: `value`, or an array filled with `fill` where it is None."""
    if value is None:
        return jnp.full(shape, fill, dtype)
    start = floating("start", value)
    if start.shape != shape:
        raise ValueError(f"start must have shape {shape}, got shape {start.shape}")
    return start.astype(jnp.promote_types(start.dtype, dtype))


def of_one_type(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns both arrays in the type that holds them."""
    dtype = jnp.promote_types(first.dtype, second.dtype)
    return first.astype(dtype), second.astype(dtype)
