"""The whole contract of an example order in one call.

Run it on an order of your own: what passes goes through `jit`, `scan` and `vmap` over keys, and can
be saved at any step.
"""

from __future__ import annotations

import jax

from asyncjax.checks import whole
from asyncjax.orders import Order
from asyncjax.testing.order_contract import (
    check_order_compiled,
    check_order_epochs,
    check_order_state,
)


def check_order(
    order: Order, *, key: jax.Array | None = None, n_epochs: int = 3, dim: int = 3
) -> None:
    """Checks an order: its permutations, its state, and that it can be compiled.

    Runs `check_order_state`, `check_order_epochs` and `check_order_compiled`; each can be run
    alone. How an order learns in asynchronous runs (`Order.on_arrival`) is not looked at.

    Args:
        order: The order.
        key: Typed key that it begins with; None for `jax.random.key(0)`.
        n_epochs: Number of epochs.
        dim: Length of the example gradients, for an order that does not state its own.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: Saying which part of the contract is broken.

    Example:
        An order that draws with replacement:

        >>> import jax
        >>> from asyncjax.orders import Order
        >>> order = Order(
        ...     init=lambda key: key,
        ...     permutation=lambda key: jax.random.randint(key, (4,), 0, 4),
        ...     observe=lambda key, positions, gradients: key,
        ...     end_epoch=lambda key: jax.random.fold_in(key, 1),
        ... )
        >>> check_order(order)
        Traceback (most recent call last):
        ...
        AssertionError: permutation of the order must have each of 0 .. 3 once, got [1, 0, \
0, 1] in epoch 0
    """
    whole("n_epochs", n_epochs)
    check_order_state(order, key=key, dim=dim)
    check_order_epochs(order, key=key, n_epochs=n_epochs, dim=dim)
    check_order_compiled(order, key=key, n_epochs=n_epochs, dim=dim)
