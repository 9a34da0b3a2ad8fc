"""Arrays that a person hands to a problem, checked on the host before anything compiles.

Every function returns them in the form the rest of the room uses. Values are read once, on the
host, when a problem is made; a traced array is checked by shape and type only, since its values do
not exist yet.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_INT32 = np.iinfo(np.int32)


def is_traced(value: object) -> bool:
    """Says whether `value` is an abstract array inside a JAX transformation."""
    return isinstance(value, Tracer)


def as_array(value: Any) -> Any:
    """Returns `value` as an array of NumPy, or as that of JAX it is."""
    return value if isinstance(value, jax.Array) else np.asarray(value)


def floating(name: str, value: Any) -> jax.Array:
    """Returns `value` as a finite floating-point array; integers and booleans are converted."""
    value = as_array(value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        if not (jnp.issubdtype(value.dtype, jnp.integer) or value.dtype == np.bool_):
            raise TypeError(f"{name} must hold real numbers, got dtype {value.dtype}")
        value = jnp.asarray(value, dtype=float)
    with np.errstate(over="ignore"):  # told below
        array = jnp.asarray(value)
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    if not is_traced(array):
        _check_finite(name, np.asarray(array))
    return array


def _check_finite(name: str, values: np.ndarray) -> None:
    """Refuses NaN and infinity; the first such is named."""
    fits = np.isfinite(values)
    if not fits.all():
        first = np.unravel_index(np.argmin(fits), fits.shape)
        where = f" at index {', '.join(str(int(axis)) for axis in first)}" if first else ""
        raise ValueError(f"{name} must be finite in {values.dtype}, got {values[first]}{where}")


def rows(name: str, value: Any) -> jax.Array:
    """Returns `value` as a finite floating-point array of at least two axes, the first of rows."""
    array = floating(name, value)
    if array.ndim < 2:
        raise ValueError(f"{name} must have a row axis and at least one more, got {array.shape}")
    return array


def integers(name: str, value: Any) -> jax.Array:
    """Returns `value` as an int32 array."""
    value = as_array(value)
    if not jnp.issubdtype(value.dtype, jnp.integer):
        raise TypeError(f"{name} must be integers, got dtype {value.dtype}")
    if not is_traced(value) and value.size and value.dtype != np.int32:
        low, high = int(value.min()), int(value.max())
        if low < _INT32.min or high > _INT32.max:
            raise ValueError(f"{name} must be integers that int32 can hold, got {low} .. {high}")
    return jnp.asarray(value, jnp.int32)


def matrix(name: str, value: Any, axes: str) -> jax.Array:
    """Returns `value` as a finite floating-point array with two axes, named in `axes`."""
    array = floating(name, value)
    if array.ndim != 2:
        raise ValueError(f"{name} must be a 2-D array {axes}, got shape {array.shape}")
    return array


def same_rows(name: str, array: Any, n_rows: int) -> None:
    """Refuses an `array` that is not one value a row."""
    shape = as_array(array).shape
    if shape != (n_rows,):
        raise ValueError(
            f"{name} must have shape ({n_rows},), one value for each row of features, "
            f"got shape {shape}"
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
