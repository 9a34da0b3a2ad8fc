"""Making any training loop stale: a queue of gradients.

    update k returns the gradient given at update k - delay, and zeros for k < delay

In front of an optimizer it turns an ordinary loop into one with a constant delay.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from asyncjax.buffers import static_count
from asyncjax.steps.arguments import check_count
from asyncjax.steps.transformation import transformation


class DelayGradientsState(NamedTuple):
    """State of `delay_gradients`."""

    queued_gradients: optax.Updates  # tree of [delay, ...], dtype of the parameters
    queue_row: jax.Array  # int32[], row of the oldest gradient, the next to leave


def delay_gradients(delay: int) -> optax.GradientTransformationExtraArgs:
    """Returns every gradient `delay` updates after it was given.

    The first `delay` updates are zeros: nothing has arrived yet. That is not the same as repeating
    the first gradient, and adam behind it counts the zeros in its bias correction. `delay=0` is the
    identity. No extra is needed; an extra `delay` is ignored.

    Args:
      delay: constant delay in updates, at least 0.

    Returns:
      A transformation; gradients wait in the dtypes of the parameters.

    Raises:
      TypeError: if `delay` is not an integer.
      ValueError: if `delay` is negative.

    Example:
      >>> import jax.numpy as jnp
      >>> late = delay_gradients(2)
      >>> state = late.init(jnp.float32(0.0))
      >>> for grad in (1.0, 2.0, 3.0, 4.0):
      ...     update, state = late.update(jnp.float32(grad), state)
      ...     print(float(update))
      0.0
      0.0
      1.0
      2.0
    """
    check_count(delay, "delay", minimum=0)

    def init(params: optax.Params) -> DelayGradientsState:
        length = static_count(delay, "delay", minimum=0)

        def queue(leaf: jax.typing.ArrayLike) -> jax.Array:
            leaf = jnp.asarray(leaf)
            return jnp.zeros((length, *leaf.shape), leaf.dtype)

        return DelayGradientsState(
            queued_gradients=jax.tree.map(queue, params), queue_row=jnp.zeros((), jnp.int32)
        )

    def update(
        updates: optax.Updates,
        state: DelayGradientsState,
        params: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[optax.Updates, DelayGradientsState]:
        del params, extra
        queues = jax.tree.leaves(state.queued_gradients)
        length = queues[0].shape[0] if queues else 0
        if not length:
            return updates, state
        row = state.queue_row
        leaving = jax.tree.map(
            lambda queue, leaf: queue[row].astype(jnp.result_type(leaf)),
            state.queued_gradients,
            updates,
        )
        queued = jax.tree.map(
            lambda queue, leaf: queue.at[row].set(jnp.asarray(leaf).astype(queue.dtype)),
            state.queued_gradients,
            updates,
        )
        return leaving, DelayGradientsState(queued_gradients=queued, queue_row=(row + 1) % length)

    return transformation(init, update)
