r"""Delayed Nesterov: momentum that is renewed at every N-th arrival and spent in between.

    s <- s + g                                                       (every arrival)
    N-th:    m <- beta m + s / N,  s <- 0,   x <- x - eta (g / N + (1 - (N - 1) c) beta m)
    others:                                  x <- x - eta (g / N + c beta m)

Liu et al. 2024 (arXiv 2401.09135), for servers that step at every worker's pseudo-gradient:
momentum that ages with every arrival forgets in a moment what N workers send in turn, and N steps
of it in a row go far too far. So m ages once in N arrivals, as if these had come together, and its
step is taken once, in shares: c at each of the N - 1 arrivals to come, the rest at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import is_traced, like
from asyncjax.steps.arguments import number
from asyncjax.steps.scaling import wide_dtype
from asyncjax.steps.transformation import transformation


class DelayedNesterovState(NamedTuple):
    """State of `delayed_nesterov`."""

    momentum: optax.Updates  # m, tree like the parameters
    waiting: optax.Updates  # s, the sum of the gradients since m was renewed
    arrivals: jax.Array  # int32[], since m was renewed, below N


def delayed_nesterov(
    learning_rate: ArrayLike, momentum: ArrayLike = 0.9, *, every: ArrayLike, share: ArrayLike = 0.0
) -> optax.GradientTransformationExtraArgs:
    """Nesterov momentum for a server that takes one gradient, or pseudo-gradient, at a time.

    A complete optimizer: the sign is flipped. It needs no extra. A gradient moves the parameters by
    learning_rate / every at once, so `every` arrivals together go as far as a step on their mean.

    Args:
        learning_rate: eta, positive.
        momentum: beta, in [0, 1).
        every: N, at least 1: how many arrivals renew the momentum; usually the number of workers.
            1 is Nesterov momentum as `optax.sgd(learning_rate, momentum, nesterov=True)` has it.
        share: c, in [0, 1 / N]: the part of the momentum's step that each of the arrivals between
            takes. 0: all of it is taken with the N-th; 1 / N: in equal parts.

    Returns:
        An optimizer whose state has the fields `momentum`, `waiting` and `arrivals`: two trees like
        the parameters.

    Raises:
        TypeError: If `every` is not an integer.
        ValueError: If a number is out of range; in `update`, if the updates are not like the
            parameters.

    Note:
        The steps are those of the public code of HALoS (utnslab/halos, src/halos/opt.py), which
        names this paper as its source. The shares of a momentum sum to 1, N = 1 is Nesterov, and
        with c = 0 every N-th model is that of Nesterov on means of N gradients.

    Example:
        Two gradients of 1 renew the momentum to 1; half of beta times it goes with the second, the
        other half with the third:

        >>> optimizer = delayed_nesterov(1.0, 0.5, every=2, share=0.5)
        >>> params = jnp.float32(0.0)
        >>> state = optimizer.init(params)
        >>> for _ in range(3):
        ...     update, state = optimizer.update(jnp.float32(1.0), state, params)
        ...     print(float(update), float(state.momentum))
        -0.5 0.0
        -0.75 1.0
        -0.75 1.0

    Reference:
        Liu et al. 2024, "Asynchronous local-SGD training for language modeling", arXiv 2401.09135.
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    number("every", every, least=1, integer=True)
    number("share", share, least=0)
    _check_share(share, every)

    def init(params: optax.Params) -> DelayedNesterovState:
        zero = optax.tree.zeros_like(params)
        return DelayedNesterovState(zero, zero, jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: DelayedNesterovState
    ) -> tuple[optax.Updates, DelayedNesterovState]:
        like("updates", updates, state.momentum, "the parameters that init got")
        dtype, count = wide_dtype(updates), jnp.asarray(every, jnp.int32)
        rate, decay, later = (
            jnp.asarray(one).astype(dtype) for one in (learning_rate, momentum, share)
        )
        renews, n = state.arrivals + 1 >= count, count.astype(dtype)
        part = jnp.where(renews, 1 - (n - 1) * later, later)

        def summed(waiting: jax.Array, grad: ArrayLike) -> jax.Array:
            return waiting.astype(dtype) + jnp.asarray(grad).astype(dtype)

        sums = jax.tree.map(summed, state.waiting, updates)

        def renewed(old: jax.Array, total: jax.Array) -> jax.Array:
            return jnp.where(renews, decay * old.astype(dtype) + total / n, old.astype(dtype))

        moments = jax.tree.map(renewed, state.momentum, sums)

        def moved(old: jax.Array, moment: jax.Array, grad: ArrayLike) -> jax.Array:
            step = jnp.asarray(grad).astype(dtype) / n + part * decay * moment
            return (-rate * step).astype(old.dtype)

        moves = jax.tree.map(moved, state.momentum, moments, updates)
        kept = jax.tree.map(lambda old, new: new.astype(old.dtype), state.momentum, moments)
        waiting = jax.tree.map(
            lambda old, total: jnp.where(renews, 0, total).astype(old.dtype), state.waiting, sums
        )
        arrivals = jnp.where(renews, 0, state.arrivals + 1)
        return moves, DelayedNesterovState(kept, waiting, arrivals)

    return transformation(init, update)


def _check_share(share: ArrayLike, every: ArrayLike) -> None:
    """Refuses a share that is more than an equal part; traced ones pass."""
    if is_traced(share) or is_traced(every):
        return
    part, count = float(np.asarray(share)), int(np.asarray(every))
    if part * count > 1 + 1e-6:
        raise ValueError(f"share must be at most 1 / every, {1 / count:g}, got {part:g}")
