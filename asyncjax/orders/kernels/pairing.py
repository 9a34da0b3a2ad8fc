"""Finding the pairs of an epoch in its batches.

    pair k = the examples of steps 2k and 2k + 1,      z_k = g_{2k} - g_{2k+1}

A batch may begin or end in the middle of a pair, and some of its rows may be padding. The gradient
of a step that waits for its partner is kept from one batch to the next.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Pairs(NamedTuple):
    """The pairs that a batch completes, at most P = ceil(B / 2), and what is left over."""

    first: jax.Array  # int32[P], row of the even step; -1: the gradient that waited
    second: jax.Array  # int32[P], row of the odd step
    step: jax.Array  # int32[P], the even step; n where there is no pair
    last: jax.Array  # int32[], row of the last step of the batch
    last_step: jax.Array  # int32[], the last step; -1 if all rows are padding


def find_pairs(positions: jax.Array, waiting_step: jax.Array, n: int) -> Pairs:
    """Matches the rows of a batch in pairs.

    `positions` int32[B]; `waiting_step` int32[].

    Example:
        Step 2 waited; step 5 will:

        >>> pairs = find_pairs(jnp.array([3, 4, 5, 6, 99]), jnp.int32(2), 8)
        >>> pairs.first.tolist(), pairs.second.tolist(), pairs.step.tolist()
        ([-1, 1, 3], [0, 2, 0], [2, 4, 8])
        >>> int(pairs.last), int(pairs.last_step)
        (3, 6)
    """
    n_rows = positions.shape[0]
    number = jnp.arange(n_rows, dtype=jnp.int32)
    is_step = (positions >= 0) & (positions < n)
    rank = jnp.cumsum(is_step, dtype=jnp.int32) - 1
    n_seen = rank[-1] + 1
    # Rows that are steps move to the front, padding away.
    rows = jnp.zeros_like(number).at[jnp.where(is_step, rank, n_rows)].set(number, mode="drop")
    steps = jnp.where(number < n_seen, positions[rows], n)

    begins_odd = steps[0] % 2
    second = 2 * jnp.arange((n_rows + 1) // 2, dtype=jnp.int32) + 1 - begins_odd
    first = second - 1
    in_batch = jnp.minimum(second, n_rows - 1)
    first_step = jnp.where(first < 0, waiting_step, steps[jnp.maximum(first, 0)])
    is_pair = (second < n_seen) & (first_step >= 0) & (first_step + 1 == steps[in_batch])
    last = jnp.maximum(n_seen - 1, 0)
    return Pairs(
        first=jnp.where(first < 0, -1, rows[jnp.maximum(first, 0)]),
        second=jnp.where(second < n_seen, rows[in_batch], 0),
        step=jnp.where(is_pair, first_step, n),
        last=rows[last],
        last_step=jnp.where(n_seen > 0, steps[last], -1),
    )
