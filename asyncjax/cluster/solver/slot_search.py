"""Which amount of a job to train in which slot: a dynamic programme over slots.

best[t, q] = min over j <= q of cost[t, j] + best[t - 1, q - j],     best[-1] = (0, inf, ...)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from asyncjax.cluster.solver.slot_arguments import array


def cheapest_by_slot(cost: Array) -> tuple[Array, Array]:
    """Finds the least cost of training q parts of a job by the end of slot t; pure, safe with inf.

    Formula: `best[t, q] = min over j of cost[t, j] + best[t - 1, q - j]`.

    Args:
        cost: float[T, Q + 1], cost of training j parts in slot t; column 0 is 0, inf where that
            cannot be done.

    Returns:
        Best: float[T, Q + 1], inf where it cannot be done.
        choice: int32[T, Q + 1], the j of slot t; the lowest of equal ones.

    Raises:
        TypeError: If `cost` is concrete and not made of numbers.
        ValueError: If it has another shape, an entry is negative or NaN, or column 0 is not 0;
            traced values are not looked at.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import cluster
        >>> inf = jnp.inf
        >>> cost = jnp.array([[0.0, 2.0, 3.0, 7.0], [0.0, 1.0, inf, inf], [0.0, 0.5, 4.0, 5.0]])
        >>> best, choice = cluster.cheapest_by_slot(cost)
        >>> best[2].tolist(), choice[2].tolist()
        ([0.0, 0.5, 1.5, 3.5], [0, 1, 1, 1])
    """
    cost = array("cost", cost, finite=False)
    if np.ndim(cost) != 2 or 0 in np.shape(cost):
        raise ValueError(f"cost must have the shape [slots, parts + 1], got {np.shape(cost)}")
    if not isinstance(cost, Tracer) and (np.asarray(cost)[:, 0] != 0).any():
        raise ValueError(
            f"cost must be 0 in column 0, where nothing is trained, got {np.max(cost[:, 0])}"
        )
    cost = jnp.asarray(cost)
    amount = jnp.arange(cost.shape[1])
    rest = amount[:, None] - amount  # [q, j]
    possible = rest >= 0

    def slot(before: Array, row: Array) -> tuple[Array, tuple[Array, Array]]:
        sums = jnp.where(possible, row + before[jnp.maximum(rest, 0)], jnp.inf)
        best = sums.min(-1)
        return best, (best, jnp.argmin(sums, axis=-1).astype(jnp.int32))

    nothing = jnp.where(amount == 0, 0, jnp.inf).astype(cost.dtype)
    return jax.lax.scan(slot, nothing, cost)[1]


def walk_back(choice: Array, end: Array) -> Array:
    """Reads from the choices how much to train in each slot, if all is to be done by slot `end`.

    `choice` int32[T, Q + 1]; returns int32[T], parts a slot, Q in all; 0 after `end`.

    Example:
        >>> import jax.numpy as jnp
        >>> walk_back(jnp.array([[0, 1, 2], [0, 0, 1], [0, 1, 1]]), 1)
        Array([1, 1, 0], dtype=int32)
    """
    n_slots, width = choice.shape

    def slot(left: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        index, row = at
        amount = jnp.where(index <= end, row[left], 0).astype(jnp.int32)
        return left - amount, amount

    everything = jnp.asarray(width - 1, jnp.int32)
    return jax.lax.scan(slot, everything, (jnp.arange(n_slots), choice), reverse=True)[1]
