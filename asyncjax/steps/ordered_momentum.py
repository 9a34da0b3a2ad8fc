r"""Ordered momentum: a late gradient enters as if it had come with the others of its time.

    b(t) = ceil(t / K),   t = 0, 1, ...  updates made before this one,   s = t - delay

    if b(t) > b(t - 1):   x <- x - beta u,   u <- beta u                   (a new bucket begins)
    a = b(t) - b(s):      u <- u + beta^a eta g
                          x <- x - (1 + beta + ... + beta^a) eta g

OrMo (Shi, Yang and Li 2024, arXiv 2407.19234). Gradients lie in buckets by the version of the model
that they were taken at: the K of version 0, then those of versions 1..K, K + 1..2K and so on. With
K workers, each with one job at a time, a bucket is K gradients. Momentum ages once a bucket, and a
gradient that is a buckets late gets the share that it would have by now: so u and x are at any time
those of heavy-ball SGD that takes a bucket a step, with what has arrived of each.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.steps.arguments import number
from asyncjax.steps.delays import scalar_delay
from asyncjax.steps.scaling import wide_dtype
from asyncjax.steps.transformation import transformation


class OrderedMomentumState(NamedTuple):
    """State of `ordered_momentum`."""

    momentum: optax.Updates  # u, tree like the parameters
    updates_made: jax.Array  # int32[], t, saturating
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def ordered_momentum(
    learning_rate: ArrayLike, momentum: ArrayLike, n_workers: ArrayLike
) -> optax.GradientTransformationExtraArgs:
    """Asynchronous SGD whose momentum takes gradients in the order of the models they read.

    A complete optimizer: the sign is flipped. Every `update` needs the extra `delay` and takes one
    gradient. It is linear in the gradients, so any rule for step sizes may go in front of it, with
    a `learning_rate` of 1 behind a whole step size:
    `optax.chain(scale_by_concurrency_bound(eta, concurrency=2 * n, smoothness=L),
    ordered_momentum(1.0, beta, n))`.

    Args:
        learning_rate: eta, positive. As in heavy-ball SGD, a gradient moves the parameters by
            eta / (1 - beta) in the end.
        momentum: beta, in [0, 1); 0 is plain SGD.
        n_workers: K, the number of workers, at least 1: how many updates make a bucket.

    Returns:
        An optimizer whose state has the fields `momentum` and `updates_made`.

    Raises:
        TypeError: If `n_workers` is not an integer; in `update`, if `delay` is missing or is not.
        ValueError: If a number is out of range; in `update`, if `delay` is negative or the updates
            are not like the parameters.

    Note:
        The algorithm of the paper is given here from memory; the factors of a late gradient were
        derived again from what they are for. The learning rate of its delay-adaptive form, which
        the chain above has, is remembered as eta up to a delay of 2 K and min(eta, 1 / (4 L delay))
        beyond it. The delay is counted in updates of this optimizer: one that is skipped inside
        `drop_stale` or `picky_sgd` is not counted, so chain these in front instead.

    Example:
        Two workers; the second gradient read version 0 as the first did, and comes when the next
        bucket begins. The first moves the parameters by 1 and then by 1/2, the second by 1 + 1/2:

        >>> optimizer = ordered_momentum(1.0, 0.5, n_workers=2)
        >>> params = jnp.float32(0.0)
        >>> state = optimizer.init(params)
        >>> for delay in (0, 1, 0):
        ...     update, state = optimizer.update(jnp.float32(1.0), state, params, delay=delay)
        ...     print(float(update), float(state.momentum))
        -1.0 1.0
        -2.0 1.0
        -1.0 2.0

    Reference:
        Shi, Yang, Li 2024, "Ordered momentum for asynchronous SGD", arXiv 2407.19234.
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    number("n_workers", n_workers, least=1, integer=True)

    def init(params: optax.Params) -> OrderedMomentumState:
        return OrderedMomentumState(optax.tree.zeros_like(params), jnp.zeros((), jnp.int32))

    def bucket(version: jax.Array) -> jax.Array:
        return -(-version // jnp.asarray(n_workers, jnp.int32))

    def update(
        updates: optax.Updates, state: OrderedMomentumState, *, delay: ArrayLike
    ) -> tuple[optax.Updates, OrderedMomentumState]:
        like("updates", updates, state.momentum, "the parameters that init got")
        dtype, now = wide_dtype(updates), state.updates_made
        rate, decay = (jnp.asarray(one).astype(dtype) for one in (learning_rate, momentum))
        read = now - jnp.clip(scalar_delay(delay), 0, now)
        begins = bucket(now) > bucket(now - 1)
        share = decay ** (bucket(now) - bucket(read))
        reach = (1 - decay * share) / (1 - decay)  # 1 + beta + ... + beta^a

        def moved(old: jax.Array, grad: ArrayLike) -> jax.Array:
            drift = _times(jnp.where(begins, decay, 0), old)
            return (-drift - _times(rate * reach, grad)).astype(old.dtype)

        def aged(old: jax.Array, grad: ArrayLike) -> jax.Array:
            kept = _times(jnp.where(begins, decay, 1), old)
            return (kept + _times(rate * share, grad)).astype(old.dtype)

        count = jnp.asarray(optax.safe_increment(now))
        return (
            jax.tree.map(moved, state.momentum, updates),
            OrderedMomentumState(jax.tree.map(aged, state.momentum, updates), count),
        )

    return transformation(init, update)


def _times(factor: jax.Array, leaf: ArrayLike) -> jax.Array:
    """The product in the wider dtype; a factor of 0 gives 0, also of what is not finite."""
    return jnp.where(factor == 0, 0, factor * jnp.asarray(leaf))
