"""Every order of the room by name, each as a small example that the contract tests run.

REGISTRY[name]()  ->  Order
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from asyncjax.orders.coordinated import coordinated
from asyncjax.orders.grab import grab
from asyncjax.orders.herded import herded
from asyncjax.orders.independent import independent
from asyncjax.orders.kernel_halving import kernel_halving
from asyncjax.orders.order import Order
from asyncjax.orders.pair_order import pair_balanced
from asyncjax.orders.probabilistic import probabilistic
from asyncjax.orders.recursive import recursive
from asyncjax.orders.reshuffled import (
    block_reshuffled,
    flip_flop,
    length_balanced,
    reshuffled,
    shuffled_once,
)

_N, _DIM, _WORKERS, _SHARDS = 7, 3, 3, (7, 4, 1)

REGISTRY: dict[str, Callable[[], Order]] = {
    "reshuffled": lambda: reshuffled(_N),
    "reshuffled_shards": lambda: reshuffled(_SHARDS, _WORKERS),
    "shuffled_once": lambda: shuffled_once(_N),
    "flip_flop": lambda: flip_flop(_N),
    "block_reshuffled": lambda: block_reshuffled(_N, 3),
    "block_reshuffled_shards": lambda: block_reshuffled(_SHARDS, 2, _WORKERS, paired=True),
    "length_balanced": lambda: length_balanced([3, 1, 4, 1, 5, 9, 2], 3),
    "herded": lambda: herded(jnp.cos(jnp.arange(_N * _DIM, dtype="float32")).reshape(_N, _DIM)),
    "grab": lambda: grab(_N, _DIM),
    "recursive": lambda: recursive(_N, _DIM, depth=1),
    "pair_balanced": lambda: pair_balanced(_N, _DIM),
    "probabilistic": lambda: probabilistic(_N, _DIM),
    "kernel_halving": lambda: kernel_halving(_N, _DIM, epochs=3),
    "coordinated": lambda: coordinated(_WORKERS, _N, _DIM),
    "coordinated_shards": lambda: coordinated(_WORKERS, _SHARDS, _DIM),
    "independent_shards": lambda: independent(_WORKERS, _SHARDS, _DIM),
}
