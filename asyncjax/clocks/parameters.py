"""Parameters of clocks: checked on the host, then aligned to one value a worker.

A parameter is a number or one number a worker. What the caller gives as numbers or NumPy arrays is
kept as NumPy float64, so that a simulation on the host loses nothing; jax narrows it when the clock
enters compiled code without double precision. JAX arrays are passed on, traced ones unchecked.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

Parameter = jax.Array | np.ndarray


def as_floats(value: Any) -> Parameter:
    """Turns numbers, checked before, into a floating point array.

    Example:
        >>> as_floats([1, 2])
        array([1., 2.])
    """
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value)):
        array = jnp.asarray(value)
        return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)
    return np.array(value, dtype=np.float64)


def check_order(**pair: Parameter) -> None:
    """Refuses the first worker whose second parameter is not larger; traced ones pass."""
    (low, first), (high, last) = pair.items()
    if isinstance(first, Tracer) or isinstance(last, Tracer):
        return
    allowed = np.asarray(last) > np.asarray(first)
    if not allowed.all():
        worker = int(np.argmin(allowed))
        raise ValueError(
            f"{high} must be larger than {low}, got {last[worker]} for {low} {first[worker]} at"
            f" index {worker}"
        )


def align(**parameters: Any) -> dict[str, Parameter]:
    """Broadcasts numbers, or one a worker, to one value a worker each."""
    rows = {name: as_floats(value) for name, value in parameters.items()}
    for name, value in rows.items():
        if value.ndim > 1 or value.size == 0:
            raise ValueError(
                f"{name} must be a number or one number a worker, got an array of shape"
                f" {value.shape}"
            )
    lengths = {name: value.size for name, value in rows.items()}
    n_workers = max(lengths.values())
    if any(length not in (1, n_workers) for length in lengths.values()):
        given = " and ".join(f"{name} with {length}" for name, length in lengths.items())
        raise ValueError(f"parameters must agree on the number of workers, got {given} values")
    return {name: spread(value.reshape(-1), n_workers) for name, value in rows.items()}


def spread(value: Parameter, n_workers: int) -> Parameter:
    """Repeats the one row of `value` for every worker."""
    shape = (n_workers, *value.shape[1:])
    if isinstance(value, jax.Array):
        return jnp.broadcast_to(value, shape)
    return np.broadcast_to(value, shape)


def namespace(*arrays: Parameter) -> ModuleType:
    """Module to compute moments in: `jax.numpy` if any array is a JAX array, else `numpy`."""
    return jnp if any(isinstance(array, jax.Array) for array in arrays) else np


def unshared(tree: Any) -> Any:
    """Copies the NumPy arrays of a tree, to be used in another precision than before.

    JAX remembers, by identity, what it made of an array that a compiled function closed over, and
    gives it to later programs too: single precision where double was asked for, which they refuse.

    Example:
        >>> rates = np.ones(2)
        >>> unshared({"rates": rates})["rates"] is rates
        False
    """
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)
