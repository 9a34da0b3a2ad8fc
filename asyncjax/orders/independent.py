"""ID-GraB: every worker balances its own sum.

    worker j:  z = g^j_{2k} - g^j_{2k+1}      s = +1 if <r_j, z> <= 0 else -1      r_j <- r_j + s z

The comparison that shows what coordination is worth (Cooper et al. 2023, arXiv 2302.00845): each
order is good by itself, their sum is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncjax.orders.order import Order
from asyncjax.orders.pair_order import GREEDY
from asyncjax.orders.worker_pairs import worker_pairs


def independent(n_workers: int, n: int | Sequence[int], dim: int) -> Order:
    """Orders the examples of m workers, each by `pair_balanced` on its own.

    Args:
        n_workers: Number of workers m.
        n: Examples of each worker; or m numbers, one a worker, as in `coordinated`.
        dim: Length d of a gradient (ravelled).

    Returns:
        An `Order` with the shapes of `coordinated`; it keeps 2 m vectors of length d.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is below 1, or `n` has another length than m; in `observe` if shapes
            do not fit, or a gradient of a worker that is not idle is not finite (traced, it does
            what it does in `pair_balanced`).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> order = independent(2, 4, 1)
        >>> state = order.init(jax.random.key(0))
        >>> state = order.observe(state, jnp.arange(4), jnp.ones((2, 4, 1)))
        >>> order.permutation(order.end_epoch(state)).shape
        (2, 4)

    Reference:
        Cooper et al. 2023, "Coordinating Distributed Example Orders for Provably Accelerated
        Training", arXiv 2302.00845.
    """
    return worker_pairs(GREEDY, n_workers, n, dim, own_balance=True)
