"""From signs to the next order.

    +1 examples to the front, in sequence;  0 in the middle, in sequence;  -1 at the back, reversed

The rule of herding by balancing: if all signed and all plain prefix sums of the old order are
small, those of the new order are small too, max |new| <= (max |old| + max |signed|) / 2 for centred
vectors.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.orders.kernels.arguments import array


def reorder(order: jax.typing.ArrayLike, signs: jax.typing.ArrayLike) -> jax.Array:
    """Places the examples of an order by their signs.

    The k-th +1 goes to place k, the k-th -1 to place n - 1 - k, and those with sign 0 (not seen)
    between them in their sequence.

    Args:
        order: int32[n], the example of each step, each of 0 .. n-1 once.
        signs: int8[n], the sign of the example of each step: -1, 0 or +1.

    Returns:
        int32[n], the next order.

    Raises:
        TypeError: If `order` is not made of integers, or `signs` of numbers.
        ValueError: If the two are not vectors of one length, `order` is no permutation or `signs`
            holds other numbers. Traced, any `order` is placed as it is, and what is positive or
            negative is a sign.

    Example:
        >>> reorder(jnp.array([4, 3, 2, 1, 0]), jnp.array([-1, 1, 0, -1, 1])).tolist()
        [3, 0, 2, 1, 4]

    Reference:
        Lu, Guo, De Sa 2022, "GraB: Finding Provably Better Data Permutations than Random
        Reshuffling", arXiv 2205.10733.
    """
    order, signs = array("order", order, integers=True), array("signs", signs)
    if order.ndim != 1 or signs.shape != order.shape:
        raise ValueError(
            f"order and signs must be vectors of one length, got {order.shape} and {signs.shape}"
        )
    if not isinstance(order, Tracer):
        check_permutation("order", np.asarray(order))
    check_signs(signs)
    return reorder_shard(order, signs, jnp.asarray(order.shape[0], jnp.int32))


def check_signs(signs: jax.Array) -> None:
    """Refuses signs that are known and none.

    `signs` number[...].

    Example:
        >>> check_signs(jnp.array([1, -1, 2]))
        Traceback (most recent call last):
        ...
        ValueError: signs must be -1, 0 or +1, got 2 at index 2
    """
    if isinstance(signs, Tracer):
        return
    host = np.asarray(signs)
    wrong = ~np.isin(host, (-1, 0, 1))
    if wrong.any():
        first = np.unravel_index(int(np.argmax(wrong)), host.shape)
        where = ", ".join(str(int(i)) for i in first)
        raise ValueError(f"signs must be -1, 0 or +1, got {host[first]} at index {where}")


def check_permutation(name: str, order: np.ndarray) -> None:
    """Refuses integers that are not each of 0 .. n-1 once.

    `order` int[n].

    Example:
        >>> check_permutation("order", np.array([0, 2, 2]))
        Traceback (most recent call last):
        ...
        ValueError: order must have each of 0 .. 2 once, got 2 twice
    """
    check_distinct(name, order, order.shape[0])


def check_distinct(name: str, visited: np.ndarray, n: int) -> None:
    """Refuses visits that are none of n examples, or that come twice.

    `visited` int[k].

    Example:
        >>> check_distinct("order", np.array([2, 0]), 3)
    """
    outside = (visited < 0) | (visited >= n)
    if outside.any():
        got = visited[np.argmax(outside)]
        raise ValueError(f"{name} must have each of 0 .. {n - 1} once, got {got}")
    twice = np.bincount(visited, minlength=n) > 1
    if twice.any():
        raise ValueError(
            f"{name} must have each of 0 .. {n - 1} once, got {np.argmax(twice)} twice"
        )


@jax.jit
def reorder_shard(order: jax.Array, signs: jax.Array, count: jax.Array) -> jax.Array:
    """Places the first `count` examples by their signs and leaves the rest where it is.

    `order` int32[n]; `signs` int8[n]; `count` int32[]; returns int32[n].

    Example:
        >>> order, signs = jnp.array([2, 1, 0, -1]), jnp.array([-1, 1, 1, 0])
        >>> reorder_shard(order, signs, jnp.int32(3)).tolist()
        [1, 0, 2, -1]
    """
    front, back = signs > 0, signs < 0
    step = jnp.arange(order.shape[0], dtype=jnp.int32)
    at_front = jnp.cumsum(front, dtype=jnp.int32) - 1
    at_back = count - jnp.cumsum(back, dtype=jnp.int32)
    between = jnp.sum(front, dtype=jnp.int32) + jnp.cumsum(signs == 0, dtype=jnp.int32) - 1
    place = jnp.where(front, at_front, jnp.where(back, at_back, between))
    place = jnp.where(step < count, place, step)
    return jnp.zeros_like(order).at[place].set(order, unique_indices=True)
