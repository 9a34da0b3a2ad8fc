"""Random orders: the first of every method, and every one of random reshuffling.

    o = permutation(key, n)          worker j: the key is fold_in(key, j)

Workers with fewer examples than others have -1 behind their own last example.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp


@partial(jax.jit, static_argnames="n")
def random_order(key: jax.Array, n: int) -> jax.Array:
    """Draws an order uniformly: `jax.random.permutation(key, n)`.

    Returns int32[n].

    Example:
        >>> sorted(random_order(jax.random.key(0), 4).tolist())
        [0, 1, 2, 3]
    """
    return jax.random.permutation(key, jnp.arange(n, dtype=jnp.int32))


@partial(jax.jit, static_argnames="counts")
def random_orders(key: jax.Array, counts: tuple[int, ...]) -> jax.Array:
    """Draws an order for each worker, independently.

    Returns int32[m, n] with n the largest count; -1 from entry `counts[j]` on.

    Example:
        >>> orders = random_orders(jax.random.key(0), (3, 1))
        >>> sorted(orders[0].tolist()), orders[1].tolist()
        ([0, 1, 2], [0, -1, -1])
    """
    n = max(counts)
    workers = jnp.arange(len(counts), dtype=jnp.int32)

    def draw(worker: jax.Array, count: jax.Array) -> jax.Array:
        order = random_order(jax.random.fold_in(key, worker), n)
        own = order < count
        own_first = jnp.argsort(~own, stable=True)
        return jnp.where(own, order, -1)[own_first]

    return jax.vmap(draw)(workers, jnp.asarray(counts, jnp.int32))
