"""Correcting a late gradient by a cheap guess of the curvature between then and now.

    constant   g + strength * g * g * (x - x_read)                          (elementwise)
    adaptive   the same with strength / sqrt(s + eps),  s <- decay s + (1 - decay) g * g

The two forms of delay-compensated asynchronous SGD, Zheng et al. 2017 (DC-ASGD): g * g stands for
the diagonal of the Hessian.

Error feedback for a delay of one is not among them: the sources at hand give formulas for it that
contradict each other, and none could be derived, or checked against a program of its authors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.steps.arguments import number
from asyncjax.steps.scaling import map_unmasked
from asyncjax.steps.transformation import stateless, transformation


def compensate_delay(strength: ArrayLike = 0.04) -> optax.GradientTransformationExtraArgs:
    """Adds strength * g * g * (params - read_params) to the gradient g, elementwise.

    Every `update` needs `params` and the extra `read_params`, the parameters that the worker read
    (a tree like `params`). Goes first in a chain, in front of the optimizer.

    Args:
        strength: Weight of the correction, at least 0; 0 is the identity.

    Returns:
        A transformation without state. Under `optax.masked`, `read_params` may be the full tree.

    Raises:
        TypeError: If `strength` is not a number.
        ValueError: If `strength` is negative; if `update` gets no `params`, or trees that are not
            like the updates.

    Example:
        >>> rule = compensate_delay(0.5)
        >>> params, read = jnp.float32(3.0), jnp.float32(2.0)
        >>> update, _ = rule.update(jnp.float32(4.0), rule.init(params), params, read_params=read)
        >>> float(update)
        12.0

    Reference:
        Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation".
    """
    number("strength", strength, least=0)

    def correct(grad: ArrayLike, current: ArrayLike, read: ArrayLike) -> jax.Array:
        return _corrected(grad, current, read, jnp.asarray(strength).astype(_wide(grad)))

    def compensated(
        updates: optax.Updates, *, params: optax.Params, read_params: optax.Params
    ) -> optax.Updates:
        _fit(updates, params, read_params)
        return map_unmasked(correct, updates, params, read_params)

    return stateless(compensated)


class CompensateDelayState(NamedTuple):
    """State of `compensate_delay_adaptively`."""

    mean_square: optax.Updates  # tree like the parameters, float32 or wider


def compensate_delay_adaptively(
    strength: ArrayLike = 2.0, *, decay: ArrayLike = 0.95, epsilon: ArrayLike = 1e-7
) -> optax.GradientTransformationExtraArgs:
    """As `compensate_delay`, with a strength that falls where gradients are usually large.

    Adds strength / sqrt(s + epsilon) * g * g * (params - read_params) elementwise, where s is the
    moving average of g * g, this gradient's included.

    The average starts at 0, so s is at least (1 - decay) * g * g, and the correction at most
    strength / sqrt(1 - decay) * |params - read_params| times the gradient: 8.9 times with the
    paper's numbers, which are the defaults. Where that is above 1, that is where a parameter moves
    by more than 0.11 within a delay, a correction may turn the gradient around, and larger
    gradients are corrected more: the rule then overflows within some dozens of updates (on x^2 / 2
    from 2 by steps of 0.2, under a delay of 1). A smaller strength, a smaller decay or smaller
    steps keep it from that.

    Args:
        strength: Weight of the correction, at least 0; 0 is the identity.
        decay: Of the moving average, in [0, 1).
        epsilon: Added to the average, at least 0.

    Returns:
        A transformation whose state has the field `mean_square`.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If an argument is out of range; if `update` gets no `params`, or trees that are
            not like the parameters.

    Example:
        >>> rule = compensate_delay_adaptively(0.5, decay=0.0, epsilon=0.0)
        >>> params, read = jnp.float32(3.0), jnp.float32(2.0)
        >>> update, _ = rule.update(jnp.float32(4.0), rule.init(params), params, read_params=read)
        >>> float(update)
        6.0

    Reference:
        Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation"
        (DC-ASGD-a).
    """
    number("strength", strength, least=0)
    number("decay", decay, least=0, below=1)
    number("epsilon", epsilon, least=0)

    def init(params: optax.Params) -> CompensateDelayState:
        return CompensateDelayState(
            jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), _wide(leaf)), params)
        )

    def average(grad: ArrayLike, old: jax.Array) -> jax.Array:
        kept = jnp.asarray(decay).astype(old.dtype)
        return kept * old + (1 - kept) * jnp.square(jnp.asarray(grad).astype(old.dtype))

    def correct(
        grad: ArrayLike, square: jax.Array, current: ArrayLike, read: ArrayLike
    ) -> jax.Array:
        small = jnp.asarray(epsilon).astype(square.dtype)
        weight = jnp.asarray(strength).astype(square.dtype) / jnp.sqrt(square + small)
        # A gradient that has always been 0 needs no correction, even with epsilon 0.
        weight = jnp.where(square + small > 0, weight, 0)
        return _corrected(grad, current, read, weight)

    def update(
        updates: optax.Updates,
        state: CompensateDelayState,
        *,
        params: optax.Params,
        read_params: optax.Params,
    ) -> tuple[optax.Updates, CompensateDelayState]:
        like("updates", updates, state.mean_square, "the parameters that init got")
        _fit(updates, params, read_params)
        squares = map_unmasked(average, updates, state.mean_square)
        updates = map_unmasked(correct, updates, squares, params, read_params)
        return updates, CompensateDelayState(squares)

    return transformation(init, update)


def _fit(updates: Any, params: Any, read_params: Any) -> None:
    """Refuses parameters that are not like the updates."""
    like("params", params, updates, "the updates")
    like("read_params", read_params, updates, "the updates")


def _corrected(
    grad: ArrayLike, current: ArrayLike, read: ArrayLike, weight: jax.Array
) -> jax.Array:
    grad, wide = jnp.asarray(grad), _wide(grad)
    slope = grad.astype(wide)
    drift = jnp.asarray(current).astype(wide) - jnp.asarray(read).astype(wide)
    return (slope + weight * slope * slope * drift).astype(grad.dtype)


def _wide(leaf: Any) -> Any:
    return jnp.promote_types(jnp.result_type(leaf), jnp.float32)
