"""The door of orders that learn from gradients: what they are handed is looked at here, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from asyncjax.checks import one_key
from asyncjax.orders.arguments import check_observation, check_state
from asyncjax.orders.order import ArrivalOrder, Order
from asyncjax.orders.shards import spread


def gradient_order(
    kind: type[tuple[Any, ...]],
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
    """Makes the order of a state `kind`, in whose field `order` are the examples of a worker.

    Its functions refuse a key, a state, steps and gradients of another order; the three that are
    given do not.
    """
    shape = (n,) if counts is None else (len(counts), n)

    def begin(key: jax.Array) -> Any:
        return init(one_key("key", key))

    def permutation(state: Any) -> jax.Array:
        check_state(state, kind, shape)
        return state.order if counts is None else spread(state.order, counts)

    def learn(state: Any, positions: Any, gradients: Any) -> Any:
        check_state(state, kind, shape)
        if gradients is None and not needs_gradients:
            return state
        return observe(state, *check_observation(positions, gradients, dim=dim, n=n, counts=counts))

    def turn(state: Any) -> Any:
        check_state(state, kind, shape)
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
