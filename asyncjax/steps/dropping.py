"""Dropping gradients that are too old.

    keep the update iff delay < threshold

The rule of Ringmaster asynchronous SGD (arXiv 2501.16168), as a filter in a chain or as a wrapper that
leaves the inner optimizer as if the gradient had never come.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from asyncjax.steps.arguments import check_at_least, scalar_delay
from asyncjax.steps.transformation import transformation


class DropStaleState(NamedTuple):
    """State of `drop_stale`."""

    dropped_gradients: jax.Array  # int32[], gradients dropped so far
    kept_state: optax.OptState  # of the inner transformation; empty for the filter


def drop_stale(
    threshold: jax.typing.ArrayLike, inner: optax.GradientTransformation | None = None
) -> optax.GradientTransformationExtraArgs:
    """Drops every gradient whose delay is not below a threshold.

    Alone, it is a filter for a chain: a dropped gradient becomes exact zeros, nan and infinite
    entries included. The transformations behind a filter still run: in front of adam, zeros decay
    the moments and advance the bias correction. With `inner`, it is a wrapper: on a dropped gradient
    the update is zero and the state of `inner` is bitwise unchanged; `delay` and all other extras
    reach `inner`.

    Args:
      threshold: smallest delay that is dropped, at least 1, in updates.
      inner: transformation that sees only the gradients that are kept.

    Returns:
      A transformation whose state has the field `dropped_gradients`.

    Raises:
      TypeError: in `update`, if `delay` is missing.
      ValueError: if `threshold` is below 1, which would drop everything.

    Note:
      Some systems keep a gradient iff delay <= bound; their bound is `threshold - 1`. Around an
      adaptive rule, a dropped gradient is no update for its history; if the version counter behind
      `delay` counts it, windows are too long, never too short. Put `proximal` inside the wrapper,
      not around it: around it, a dropped gradient would still move the parameters by the proximal
      operator.

    Example:
      >>> import jax.numpy as jnp
      >>> optimizer = drop_stale(4, optax.sgd(0.5))
      >>> params = jnp.float32(1.0)
      >>> state = optimizer.init(params)
      >>> for delay in (3, 4):
      ...     update, state = optimizer.update(jnp.float32(2.0), state, params, delay=delay)
      ...     print(float(update), int(state.dropped_gradients))
      -1.0 0
      0.0 1

    Reference:
      Maranjyan, Tyurin, Richtárik 2025, "Ringmaster ASGD", arXiv 2501.16168.
    """
    check_at_least(threshold, "threshold", 1)
    wrapped = optax.with_extra_args_support(optax.identity() if inner is None else inner)

    def init(params: optax.Params) -> DropStaleState:
        return DropStaleState(
            dropped_gradients=jnp.zeros((), jnp.int32), kept_state=wrapped.init(params)
        )

    def update(
        updates: optax.Updates,
        state: DropStaleState,
        params: optax.Params | None = None,
        *,
        delay: jax.typing.ArrayLike,
        **extra: Any,
    ) -> tuple[optax.Updates, DropStaleState]:
        keep = scalar_delay(delay) < threshold
        updates, kept_state = wrapped.update(
            updates, state.kept_state, params, delay=delay, **extra
        )
        updates = jax.tree.map(lambda leaf: jnp.where(keep, leaf, jnp.zeros_like(leaf)), updates)
        kept_state = jax.tree.map(
            lambda new, old: jnp.where(keep, new, old), kept_state, state.kept_state
        )
        dropped = state.dropped_gradients + jnp.logical_not(keep).astype(jnp.int32)
        return updates, DropStaleState(dropped_gradients=dropped, kept_state=kept_state)

    return transformation(init, update)
