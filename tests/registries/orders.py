"""Every order of the room by name, each as a small example that the contract tests run.

REGISTRY[name]()  ->  Order
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from asyncjax import orders

_N, _DIM, _WORKERS, _SHARDS = 7, 3, 3, (7, 4, 1)

REGISTRY: dict[str, Callable[[], orders.Order]] = {
    "reshuffled": lambda: orders.reshuffled(_N),
    "reshuffled_shards": lambda: orders.reshuffled(_SHARDS, _WORKERS),
    "shuffled_once": lambda: orders.shuffled_once(_N),
    "flip_flop": lambda: orders.flip_flop(_N),
    "block_reshuffled": lambda: orders.block_reshuffled(_N, 3),
    "block_reshuffled_shards": lambda: orders.block_reshuffled(_SHARDS, 2, _WORKERS, paired=True),
    "length_balanced": lambda: orders.length_balanced([3, 1, 4, 1, 5, 9, 2], 3),
    "herded": lambda: orders.herded(
        jnp.cos(jnp.arange(_N * _DIM, dtype="float32")).reshape(_N, _DIM)
    ),
    "grab": lambda: orders.grab(_N, _DIM),
    "recursive": lambda: orders.recursive(_N, _DIM, depth=1),
    "pair_balanced": lambda: orders.pair_balanced(_N, _DIM),
    "probabilistic": lambda: orders.probabilistic(_N, _DIM),
    "kernel_halving": lambda: orders.kernel_halving(_N, _DIM, epochs=3),
    "coordinated": lambda: orders.coordinated(_WORKERS, _N, _DIM),
    "coordinated_shards": lambda: orders.coordinated(_WORKERS, _SHARDS, _DIM),
    "independent_shards": lambda: orders.independent(_WORKERS, _SHARDS, _DIM),
}
