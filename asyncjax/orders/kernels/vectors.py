"""What an order or a kernel is handed: gradients with their steps, and rows of vectors.

Shapes and types are looked at on the host, and values where they are not traced: a gradient that is
NaN or infinite would decide all signs that follow it in its epoch.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import shown
from asyncjax.orders.kernels.arguments import array, check_finite, finite_rows
from asyncjax.orders.kernels.shards import visit_numbers


def check_observation(
    positions: Any,
    gradients: Any,
    *,
    dim: int,
    n: int,
    counts: tuple[int, ...] | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns the arguments of `observe` as arrays that share no memory with the caller's.

    `positions` integers[B]; `gradients` real[B, dim], with workers [n_workers, B, dim]; returns
    int32[B] and the gradients in their own dtype. Rows that are padding, and those of idle workers,
    may hold anything.

    Example:
        >>> check_observation([0, 1], np.zeros((2, 3)), dim=4, n=2)
        Traceback (most recent call last):
        ...
        ValueError: gradients must have shape [B, dim] = (2, 4), got (2, 3)
        >>> check_observation([0, 2], np.zeros((2, 4)), dim=4, n=3)
        Traceback (most recent call last):
        ...
        ValueError: positions must be steps of the epoch one after the other, got 2 after 0
    """
    steps = check_positions(positions, n)
    if gradients is None or isinstance(gradients, dict):
        raise TypeError(
            "gradients must be an array of real numbers, one row a step (ravel trees by"
            f" jax.flatten_util.ravel_pytree), got {shown(gradients)}"
        )
    rows = array("gradients", _own(gradients))
    wanted, words = (steps.shape[0], dim), "[B, dim]"
    if counts is not None:
        wanted, words = (len(counts), *wanted), "[n_workers, B, dim]"
    if rows.shape != wanted:
        raise ValueError(f"gradients must have shape {words} = {wanted}, got {rows.shape}")
    _check_rows(steps, rows, n, counts)
    return steps, rows


def check_positions(positions: Any, n: int) -> jax.Array:
    """Returns the steps int32[B] that are observed; those outside 0 .. n-1 are padding.

    Example:
        >>> check_positions([1, 2, -1], 3).tolist()
        [1, 2, -1]
    """
    given = array("positions", _own(positions), integers=True)
    if given.ndim != 1 or not given.shape[0]:
        raise ValueError(f"positions must be a vector of B >= 1 steps, got shape {given.shape}")
    if not isinstance(given, Tracer):
        steps = np.asarray(given)
        steps = steps[(steps >= 0) & (steps < n)].astype(np.int64)
        if (torn := np.diff(steps) != 1).any():
            at = int(np.argmax(torn))
            raise ValueError(
                "positions must be steps of the epoch one after the other, got"
                f" {steps[at + 1]} after {steps[at]}"
            )
    return given.astype(jnp.int32)


def _check_rows(steps: jax.Array, rows: jax.Array, n: int, counts: tuple[int, ...] | None) -> None:
    """Refuses NaN and infinity in the rows that count, where they are known."""
    finite = None if isinstance(steps, Tracer) else finite_rows(rows)
    if finite is None or finite.all():
        return
    there = np.asarray(steps)
    counted = (there >= 0) & (there < n)
    if counts is not None:
        counted = counted & (visit_numbers(counts)[:, there % n] >= 0)
    bad = np.argwhere(counted & ~finite)
    if len(bad):
        *worker, row = (int(i) for i in bad[0])
        whose = f" of worker {worker[0]}" if worker else ""
        entries = np.asarray(rows)[tuple(bad[0])]
        raise ValueError(
            "gradients must be finite, got"
            f" {entries[np.argmin(np.isfinite(entries))]} at step {int(there[row])}{whose}"
        )


def check_vectors(name: str, vectors: Any) -> jax.Array:
    """Returns a matrix of row vectors in float32 or wider.

    `vectors` real[K, d]; returns float[K, d], bfloat16 and integers cast to float32.

    Example:
        >>> check_vectors("vectors", np.zeros((2, 3), np.int8)).dtype
        dtype('float32')
    """
    vectors = array(name, vectors)
    if vectors.ndim != 2:
        raise ValueError(f"{name} must have shape [K, d], got {vectors.shape}")
    check_finite(name, vectors)
    return vectors.astype(jnp.promote_types(vectors.dtype, jnp.float32))


def _own(given: Any) -> Any:
    """What lies in a NumPy buffer is copied."""
    return np.array(given) if isinstance(given, np.ndarray) else given
