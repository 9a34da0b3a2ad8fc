"""The door of orders that learn from gradients: what they are handed is looked at here, once.

Of a traced array only the shape is known. NumPy arrays are copied, so that a buffer may be used
again at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import one_key, within
from asyncjax.orders.kernels import copied
from asyncjax.orders.order import ArrivalOrder, Order
from asyncjax.orders.shards import spread, visit_numbers


def gradient_order(
    init: Callable[[jax.Array], Any],
    observe: Callable[[Any, jax.Array, jax.Array], Any],
    end_epoch: Callable[[Any], Any],
    *,
    n: int,
    dim: int,
    counts: tuple[int, ...] | None = None,
    needs_gradients: bool = True,
    on_arrival: ArrivalOrder | None = None,
) -> Order:
    """Makes the order of a state in whose field `order` are the examples of a worker."""

    def begin(key: jax.Array) -> Any:
        return init(one_key("key", key))

    def permutation(state: Any) -> jax.Array:
        return state.order if counts is None else spread(state.order, counts)

    def learn(state: Any, positions: Any, gradients: Any) -> Any:
        if gradients is None and not needs_gradients:
            return state
        steps = read_positions(positions, n)
        return observe(state, steps, _read_gradients(gradients, steps, n, dim, counts))

    def turn(state: Any) -> Any:
        return end_epoch(state)

    return Order(
        begin,
        permutation,
        learn,
        turn,
        n=n,
        n_workers=None if counts is None else len(counts),
        counts=counts,
        dim=dim,
        needs_gradients=needs_gradients,
        on_arrival=on_arrival,
    )


def read_positions(positions: Any, n: int) -> jax.Array:
    """Reads the steps int32[B] that are observed; those outside 0 .. n-1 are padding."""
    given = within("positions", positions, integer=True)
    if np.ndim(given) != 1 or not np.size(given):
        raise ValueError(f"positions must be a vector of B >= 1 steps, got shape {np.shape(given)}")
    if not isinstance(given, Tracer):
        given = np.asarray(given)
        given = np.where((given >= 0) & (given < n), given, -1).astype(np.int32)
        steps = given[given >= 0]
        if (torn := np.diff(steps) != 1).any():
            at = int(np.argmax(torn))
            raise ValueError(
                "positions must be steps of the epoch one after the other, got"
                f" {steps[at + 1]} after {steps[at]}"
            )
    return copied(given).astype(jnp.int32)


def _read_gradients(
    gradients: Any, steps: jax.Array, n: int, dim: int, counts: tuple[int, ...] | None
) -> jax.Array:
    """Reads real[B, dim], or [n_workers, B, dim]; rows of padding and of idle workers may be NaN.

    A gradient that is NaN or infinite would decide all signs that follow it in its epoch.
    """
    rows = copied(gradients)
    wanted, words = (steps.shape[0], dim), "[B, dim]"
    if counts is not None:
        wanted, words = (len(counts), *wanted), "[n_workers, B, dim]"
    if rows.shape != wanted:
        raise ValueError(f"gradients must have shape {words} = {wanted}, got {rows.shape}")
    if isinstance(steps, Tracer) or isinstance(rows, Tracer):
        return rows
    there = np.asarray(steps)
    counted = (there >= 0) & (there < n)
    if counts is not None:
        counted = counted & (visit_numbers(counts)[:, there % n] >= 0)
    within("gradients", np.where(counted[..., None], np.asarray(rows), 0))
    return rows
