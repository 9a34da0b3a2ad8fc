r"""Gap-aware steps: a gradient counts less, entry by entry, the further its parameter has moved.

    g' = g / (1 + |x - x_read| / c),      c = sqrt(s / (1 - decay^t)) + eps
    step = inner(g'),                     s <- decay s + (1 - decay) step^2

Barkai, Hakimi and Schuster 2020 (arXiv 1909.10802): what makes a gradient stale is not how many
updates came in between but how far they went, in units of the usual step c. Where all of `delay`
steps went the same way the divisor is 1 + delay; where they cancelled it is 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.steps.arguments import number, optimizer
from asyncjax.steps.scaling import map_unmasked
from asyncjax.steps.transformation import transformation


class GapAwareState(NamedTuple):
    """State of `gap_aware`."""

    mean_square_step: optax.Updates  # s, tree like the parameters, float32 or wider
    steps_averaged: jax.Array  # int32[], t, saturating
    gap_inner_state: optax.OptState  # of the inner optimizer


def gap_aware(
    inner: optax.GradientTransformation, *, decay: ArrayLike = 0.999, epsilon: ArrayLike = 1e-8
) -> optax.GradientTransformationExtraArgs:
    """Divides gradients by 1 + the distance from where they were taken, in usual steps of `inner`.

    Every `update` needs `params` and the extra `read_params`, the parameters that the worker read.
    All extras reach `inner`. The divisor is one of each parameter; before the first step, and where
    the parameter is what it was, it is 1.

    Args:
        inner: A complete optimizer: its updates are the steps that are averaged.
        decay: Of the average of squared steps, in [0, 1).
        epsilon: Added to the usual step, at least 0, in units of the parameters.

    Returns:
        An optimizer whose state has the fields `mean_square_step`, a tree like the parameters, and
        `steps_averaged`.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If a number is out of range; if `update` gets no `params`, or trees that are not
            like the parameters.

    Note:
        The definition is that of a public program that follows the paper, with two differences. The
        usual step is that of `inner`, whatever that is; there it is the largest learning rate so
        far times the average of momentum SGD's buffer, so that under a falling learning rate gaps
        count less and less. And only steps that were taken are averaged; there, without momentum,
        the gradient that arrives is, before it is divided.

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

    Reference:
        Barkai, Hakimi, Schuster 2020, "Gap-aware mitigation of gradient staleness", arXiv
        1909.10802.
    """
    number("decay", decay, least=0, below=1)
    number("epsilon", epsilon, least=0)
    wrapped = optax.with_extra_args_support(optimizer("inner", inner))

    def init(params: optax.Params) -> GapAwareState:
        zeros = map_unmasked(lambda leaf: jnp.zeros(jnp.shape(leaf), _wide(leaf)), params)
        return GapAwareState(zeros, jnp.zeros((), jnp.int32), wrapped.init(params))

    def average(old: jax.Array, step: ArrayLike) -> jax.Array:
        kept = jnp.asarray(decay).astype(old.dtype)
        return kept * old + (1 - kept) * jnp.square(jnp.asarray(step).astype(old.dtype))

    def update(
        updates: optax.Updates,
        state: GapAwareState,
        *,
        params: optax.Params,
        read_params: optax.Params,
        **extra: Any,
    ) -> tuple[optax.Updates, GapAwareState]:
        like("updates", updates, state.mean_square_step, "the parameters that init got")
        like("params", params, updates, "the updates")
        like("read_params", read_params, updates, "the updates")
        count = state.steps_averaged

        def divided(
            grad: ArrayLike, square: jax.Array, current: ArrayLike, read: ArrayLike
        ) -> jax.Array:
            grad, wide = jnp.asarray(grad), square.dtype
            made = jnp.maximum(1, count).astype(wide)
            mean = square / (1 - jnp.asarray(decay).astype(wide) ** made)
            usual = jnp.sqrt(mean) + jnp.asarray(epsilon).astype(wide)
            gap = jnp.abs(jnp.asarray(current).astype(wide) - jnp.asarray(read).astype(wide))
            divisor = 1 + jnp.where((gap > 0) & (count > 0), gap / usual, 0)
            return (grad.astype(wide) / divisor).astype(grad.dtype)

        divided_grads = map_unmasked(divided, updates, state.mean_square_step, params, read_params)
        steps, inner_state = wrapped.update(
            divided_grads, state.gap_inner_state, params, read_params=read_params, **extra
        )
        squares = map_unmasked(average, state.mean_square_step, steps)
        made = jnp.asarray(optax.safe_increment(count))
        return steps, GapAwareState(squares, made, inner_state)

    return transformation(init, update)


def _wide(leaf: Any) -> Any:
    return jnp.promote_types(jnp.result_type(leaf), jnp.float32)
