"""CD-GraB: m workers balance one common sum.

    for k = 0 .. n/2 - 1:  for j = 0 .. m-1:
        z = g^j_{2k} - g^j_{2k+1}      s = +1 if <r, z> <= 0 else -1      r <- r + s z
        worker j: its pair k goes to places k and n - 1 - k of its own next order

Only the sum over the workers has to be balanced, since the server steps with their mean (Cooper et
al. 2023, arXiv 2302.00845). It is `pair_balanced` on one stream in which the workers' k-th pairs
alternate. Examples never move between workers.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncjax.checks import whole
from asyncjax.orders.order import Order
from asyncjax.orders.pair_order import greedy_in_blocks
from asyncjax.orders.worker_pairs import worker_pairs


def coordinated(n_workers: int, n: int | Sequence[int], dim: int, *, block: int = 1) -> Order:
    """Orders the examples of m workers by balancing one sum common to all.

    Args:
        n_workers: Number of workers m.
        n: Examples of each worker; or m numbers, one a worker.
        dim: Length d of a gradient (ravelled).
        block: Pairs decided from one Gram matrix, such as m: the same signs up to rounding. 1
            decides one pair after the other.

    Returns:
        An `Order` with `permutation` int32[m, n] in local indices and gradients float[m, B, d] at
        steps common to all workers; it keeps m + 1 vectors of length d. The first orders are random
        and differ between workers.

        Workers with unequal numbers of examples: an epoch has as many steps as the largest shard,
        and smaller ones are spread evenly over it: worker j visits its i-th example at step
        floor((2 i + 1) n / (2 n_j)). At the other steps it is idle: its entry of `permutation` is
        -1 and its gradient is ignored, whatever it is. No example is dropped; an odd last example
        takes the middle of its own worker's order. A pair is decided at the step of its second
        example.

    Raises:
        TypeError: If a number is not a static integer.
        ValueError: If a number is below 1, or `n` has another length than m; in `observe` if shapes
            do not fit, or a gradient of a worker that is not idle is not finite (traced, it does
            what it does in `pair_balanced`).

    Note:
        On several devices: place the gradients split along d, and in the state `balance` and
        `waiting_gradient` too; they stay so. No device then holds more than d / devices of any
        vector, and what travels are inner products: those of a block of pairs at once, or one
        number for each pair.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> order = coordinated(2, (4, 3), 1)
        >>> state = order.init(jax.random.key(0))
        >>> state = order.observe(state, jnp.arange(4), jnp.ones((2, 4, 1)))
        >>> order.permutation(order.end_epoch(state)).shape
        (2, 4)

    Reference:
        Cooper et al. 2023, "Coordinating Distributed Example Orders for Provably Accelerated
        Training", arXiv 2302.00845.
    """
    rule = greedy_in_blocks(whole("block", block))
    return worker_pairs(rule, n_workers, n, dim, own_balance=False)
