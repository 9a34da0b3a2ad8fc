r"""Correcting a late gradient by how far the model has moved since it was read.

    compensate_delay   g + strength * g * g * (x - x_read)                       (elementwise)
    ... adaptively     the same with strength / sqrt(s + eps),  s <- decay s + (1 - decay) g * g
    gap_aware          g / (1 + |x - x_read| / c),              c = sqrt(s / (1 - decay^t)) + eps,
                       step = inner of that,                    s <- decay s + (1 - decay) step^2

The first two are DC-ASGD: g * g stands for the diagonal of the Hessian. For the third, what makes a
gradient stale is how far the updates in between went, in units of the usual step c. Where all of
`delay` steps went the same way the divisor is 1 + delay; where they cancelled it is 1. Error
feedback for a delay of one is not here: its sources contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import like, number
from asyncjax.steps.transformation import Transformation, Updated, stateless, transformation
from asyncjax.steps.trees import in_dtype, map_unmasked, wide


def compensate_delay(strength: ArrayLike = 0.04) -> Transformation:
    """Adds strength * g * g * (params - read_params) to the gradient g, elementwise.

    Every `update` needs `params` and the extra `read_params`, the parameters that the worker read
    (a tree like `params`). Goes first in a chain, in front of the optimizer. Source: Zheng et al.
    2017, "Asynchronous stochastic gradient descent with delay compensation".

    Args:
        strength: Weight of the correction, at least 0; 0 is the identity.

    Example:
        >>> rule = compensate_delay(0.5)
        >>> params, read = jnp.float32(3.0), jnp.float32(2.0)
        >>> update, _ = rule.update(jnp.float32(4.0), rule.init(params), params, read_params=read)
        >>> float(update)
        12.0
    """
    number("strength", strength, least=0)

    def correct(grad: ArrayLike, current: ArrayLike, read: ArrayLike) -> jax.Array:
        return _corrected(grad, current, read, jnp.asarray(strength).astype(wide(grad)))

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
) -> Transformation:
    """As `compensate_delay`, with a strength that falls where gradients are usually large.

    Adds strength / sqrt(s + epsilon) * g * g * (params - read_params) elementwise, where s is the
    moving average of g * g, this gradient's included.

    The average starts at 0, so the correction is at most `strength / sqrt(1 - decay) *
    abs(params - read_params)` times the gradient: 8.9 times with the defaults, the paper's numbers.
    Where a parameter moves by more than 0.11 within a delay a correction may then turn the gradient
    around, and the rule overflow. Source: Zheng et al. 2017 (DC-ASGD-a).

    Args:
        strength: Weight of the correction, at least 0; 0 is the identity.
        decay: Of the moving average, in [0, 1).
        epsilon: Added to the average, at least 0.

    Example:
        >>> rule = compensate_delay_adaptively(0.5, decay=0.0, epsilon=0.0)
        >>> params, read = jnp.float32(3.0), jnp.float32(2.0)
        >>> update, _ = rule.update(jnp.float32(4.0), rule.init(params), params, read_params=read)
        >>> float(update)
        6.0
    """
    number("strength", strength, least=0)
    number("decay", decay, least=0, below=1)
    number("epsilon", epsilon, least=0)

    def correct(
        grad: ArrayLike, square: jax.Array, current: ArrayLike, read: ArrayLike
    ) -> jax.Array:
        weight, small = in_dtype(square.dtype, strength, epsilon)
        weight = weight / jnp.sqrt(square + small)
        # A gradient that has always been 0 needs no correction, even with epsilon 0.
        weight = jnp.where(square + small > 0, weight, 0)
        return _corrected(grad, current, read, weight)

    def update(
        updates: Any, state: CompensateDelayState, *, params: Any, read_params: Any
    ) -> Updated:
        like("updates", updates, state.mean_square, "the parameters that init got")
        _fit(updates, params, read_params)
        squares = map_unmasked(_mean_square(decay), updates, state.mean_square)
        updates = map_unmasked(correct, updates, squares, params, read_params)
        return updates, CompensateDelayState(squares)

    return transformation(lambda params: CompensateDelayState(_wide_zeros(params)), update)


class GapAwareState(NamedTuple):
    """State of `gap_aware`."""

    mean_square_step: optax.Updates  # s, tree like the parameters, float32 or wider
    steps_averaged: jax.Array  # int32[], t, saturating
    gap_inner_state: optax.OptState  # of the inner optimizer


def gap_aware(
    inner: optax.GradientTransformation, *, decay: ArrayLike = 0.999, epsilon: ArrayLike = 1e-8
) -> Transformation:
    """Divides gradients by 1 + the distance from where they were taken, in usual steps of `inner`.

    Every `update` needs `params` and the extra `read_params`; all extras reach `inner`. Before the
    first step the divisor is 1. Source: Barkai, Hakimi, Schuster 2020, "Gap-aware
    mitigation of gradient staleness", arXiv 1909.10802.

    Args:
        inner: A complete optimizer: its updates are the steps that are averaged.
        decay: Of the average of squared steps, in [0, 1).
        epsilon: Added to the usual step, at least 0, in units of the parameters.

    Note:
        As in a public program that follows the paper, with two differences. The usual step is that
        of `inner`; there it is the largest learning rate so far times the average of momentum SGD's
        buffer. And only steps that were taken are averaged; there, without momentum, the gradient
        that arrives is, before it is divided.

    Example:
        Two gradients of 1 at the same model; by the second it is one usual step away:

        >>> optimizer = gap_aware(optax.sgd(0.5), epsilon=0.0)
        >>> params = read = jnp.float32(0.0)
        >>> state = optimizer.init(params)
        >>> for _ in range(2):
        ...     step, state = optimizer.update(jnp.float32(1.0), state, params, read_params=read)
        ...     params = params + step
        ...     print(float(step))
        -0.5
        -0.25
    """
    number("decay", decay, least=0, below=1)
    number("epsilon", epsilon, least=0)
    wrapped = optax.with_extra_args_support(inner)

    def init(params: optax.Params) -> GapAwareState:
        return GapAwareState(_wide_zeros(params), jnp.zeros((), jnp.int32), wrapped.init(params))

    def update(
        updates: Any, state: GapAwareState, *, params: Any, read_params: Any, **extra: Any
    ) -> Updated:
        like("updates", updates, state.mean_square_step, "the parameters that init got")
        _fit(updates, params, read_params)
        count = state.steps_averaged

        def divided(
            grad: ArrayLike, square: jax.Array, current: ArrayLike, read: ArrayLike
        ) -> jax.Array:
            dtype, grad = square.dtype, jnp.asarray(grad)
            keep, small, now, then = in_dtype(dtype, decay, epsilon, current, read)
            mean = square / (1 - keep ** jnp.maximum(1, count).astype(dtype))
            gap = jnp.abs(now - then)
            divisor = 1 + jnp.where((gap > 0) & (count > 0), gap / (jnp.sqrt(mean) + small), 0)
            return (grad.astype(dtype) / divisor).astype(grad.dtype)

        divided_grads = map_unmasked(divided, updates, state.mean_square_step, params, read_params)
        steps, inner_state = wrapped.update(
            divided_grads, state.gap_inner_state, params, read_params=read_params, **extra
        )
        average = _mean_square(decay)
        squares = map_unmasked(lambda old, step: average(step, old), state.mean_square_step, steps)
        return steps, GapAwareState(squares, jnp.asarray(optax.safe_increment(count)), inner_state)

    return transformation(init, update)


def _wide_zeros(params: optax.Params) -> optax.Updates:
    return map_unmasked(lambda leaf: jnp.zeros_like(leaf, wide(leaf)), params)


def _mean_square(decay: ArrayLike) -> Callable[[ArrayLike, jax.Array], jax.Array]:
    """The moving average of squares, `(new, old) -> average`."""

    def average(new: ArrayLike, old: jax.Array) -> jax.Array:
        keep, value = in_dtype(old.dtype, decay, new)
        return keep * old + (1 - keep) * jnp.square(value)

    return average


def _fit(updates: Any, params: Any, read_params: Any) -> None:
    """Refuses parameters that are not like the updates."""
    like("params", params, updates, "the updates")
    like("read_params", read_params, updates, "the updates")


def _corrected(
    grad: ArrayLike, current: ArrayLike, read: ArrayLike, weight: jax.Array
) -> jax.Array:
    slope, now, then = in_dtype(wide(grad), grad, current, read)
    return (slope + weight * slope * slope * (now - then)).astype(jnp.result_type(grad))
