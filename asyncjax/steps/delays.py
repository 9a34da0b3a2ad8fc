"""Delays as the rules read them: one of a whole update, or one of every leaf."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


def scalar_delay(delay: ArrayLike) -> jax.Array:
    """Returns the extra `delay` as an int32 scalar.

    Example:
        >>> int(scalar_delay(3))
        3
    """
    if np.ndim(delay):
        raise ValueError(
            f"delay must be a scalar (for several gradients in one step, the largest of theirs), "
            f"got shape {np.shape(delay)}"
        )
    return jnp.asarray(delay).astype(jnp.int32)


def scalar_integer(name: str, value: ArrayLike) -> jax.Array:
    """Returns another extra, such as `block`, as an int32 scalar.

    Example:
        >>> int(scalar_integer("block", 3))
        3
    """
    if np.ndim(value):
        raise ValueError(f"{name} must be a scalar, got shape {np.shape(value)}")
    return jnp.asarray(value).astype(jnp.int32)


def late(delay: ArrayLike, dtype: Any) -> jax.Array:
    """Returns the extra `delay` as a scalar of a float dtype that is not negative.

    Example:
        >>> float(late(jnp.int32(3), jnp.float32))
        3.0
    """
    return jnp.maximum(0, scalar_delay(delay)).astype(dtype)


def leaf_delays(delay: Any, params: Any) -> Any:
    """Gives every leaf of the parameters its delay.

    Example:
        >>> leaf_delays({"a": 1, "b": 2}, {"a": {"w": 0.5, "v": 1.5}, "b": 2.5})
        {'a': {'v': 1, 'w': 1}, 'b': 2}
    """
    if not jax.tree.leaves(params):  # optax.tree.map_params calls with a placeholder
        return params
    try:
        return jax.tree.broadcast(delay, params)
    except ValueError as error:
        raise ValueError(
            f"delays by leaf must be a prefix of the tree of parameters, "
            f"{jax.tree.structure(params)}, got {jax.tree.structure(delay)}"
        ) from error
