"""Greedy herding: a fixed order for vectors that are known beforehand.

    next = argmin over the unused i of | sum so far + (v_i - mean) |

(Welling 2009; the offline method that GraB, arXiv 2205.10733, replaces.) O(n^2 d) work, once, and
all n vectors in memory.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.orders.kernels.arguments import check_order_shape
from asyncjax.orders.kernels.vectors import check_vectors
from asyncjax.orders.order import Order


def herded(vectors: jax.typing.ArrayLike) -> Order:
    """Visits the examples in the greedy order of known vectors, in every epoch.

    At each step the unused example that makes the centred prefix sum shortest; ties: the lowest
    index.

    Args:
        vectors: float[n, d], a vector for each example, such as its gradient at one point.

    Returns:
        An `Order` that ignores the key and the gradients; its state is the order itself.

    Raises:
        TypeError: If the vectors are not real.
        ValueError: If they are no matrix with at least one row, hold NaN or infinity, or are so
            long that their squares overflow. If they are traced, such examples keep their places in
            what is left of the sequence: the order is a permutation whatever the vectors are.

    Example:
        >>> order = herded(jnp.array([[1.0], [2.0], [-2.0], [-1.0]]))
        >>> order.permutation(order.init(jax.random.key(0))).tolist()
        [0, 3, 1, 2]
    """
    vectors = check_vectors("vectors", vectors)
    if not vectors.shape[0]:
        raise ValueError(f"vectors must have at least one row, got shape {vectors.shape}")
    n = vectors.shape[0]
    if not isinstance(vectors, Tracer):
        _check_length(np.asarray(vectors))
    order = _herd(vectors)

    def same(state: Any) -> jax.Array:
        check_order_shape(state, (n,))
        return state

    return Order(
        init=lambda key: jnp.array(order, copy=True),  # the state may be donated
        permutation=same,
        observe=lambda state, positions, gradients: same(state),
        end_epoch=same,
        n=n,
        needs_gradients=False,
    )


def _check_length(vectors: np.ndarray) -> None:
    """Refuses vectors whose squares overflow once they are centred."""
    length = float(np.sqrt(np.sum(np.square(vectors, dtype=np.float64), axis=1)).max())
    most = float(np.sqrt(np.finfo(vectors.dtype).max)) / 4
    if not length <= most:
        raise ValueError(
            f"vectors must have rows of length at most {most:.3g}, whose squares {vectors.dtype}"
            f" holds, got {length:.3g}"
        )


@jax.jit
def _herd(vectors: jax.Array) -> jax.Array:
    n = vectors.shape[0]
    highest = jax.lax.Precision.HIGHEST
    mean = jnp.matmul(jnp.full(n, 1 / n, vectors.dtype), vectors, precision=highest)
    centred = vectors - mean
    squares = jnp.sum(centred**2, axis=1)
    largest = jnp.finfo(vectors.dtype).max

    def choose(
        carry: tuple[jax.Array, jax.Array], _: None
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        prefix, used = carry
        # |p + v|^2 - |p|^2
        growth = 2 * jnp.matmul(centred, prefix, precision=highest) + squares
        growth = jnp.minimum(growth, largest)  # an infinite one is still before those used
        chosen = jnp.argmin(jnp.where(used, jnp.inf, growth)).astype(jnp.int32)
        return (prefix + centred[chosen], used.at[chosen].set(True)), chosen

    start = (jnp.zeros_like(mean), jnp.zeros(n, bool))
    return jax.lax.scan(choose, start, None, length=n)[1]
