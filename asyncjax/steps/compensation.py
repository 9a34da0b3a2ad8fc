"""Correcting a late gradient by a cheap guess of the curvature between then and now.

    g + strength * g * g * (x - x_read)      (elementwise)

The constant form of delay-compensated asynchronous SGD, Zheng et al. 2017 (DC-ASGD): g * g stands for
the diagonal of the Hessian.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from asyncjax.steps.arguments import check_at_least
from asyncjax.steps.transformation import transformation


def compensate_delay(
    strength: jax.typing.ArrayLike = 0.04,
) -> optax.GradientTransformationExtraArgs:
    """Adds strength * g * g * (params - read_params) to the gradient g, elementwise.

    Every `update` needs `params` and the extra `read_params`, the parameters that the worker read
    (a tree like `params`). Goes first in a chain, in front of the optimizer.

    Args:
      strength: weight of the correction, at least 0; 0 is the identity.

    Returns:
      A transformation without state. Under `optax.masked`, `read_params` may be the full tree.

    Raises:
      TypeError: in `update`, if `read_params` is missing.
      ValueError: if `strength` is negative, or if `update` gets no `params`.

    Example:
      >>> import jax.numpy as jnp
      >>> rule = compensate_delay(0.5)
      >>> params, read = jnp.float32(3.0), jnp.float32(2.0)
      >>> update, _ = rule.update(jnp.float32(4.0), rule.init(params), params, read_params=read)
      >>> float(update)
      12.0

    Reference:
      Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation".
    """
    check_at_least(strength, "strength", 0)

    def init(params: optax.Params) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def correct(grad: Any, current: Any, read: Any) -> Any:
        if isinstance(grad, optax.MaskedNode):
            return grad
        grad = jnp.asarray(grad)
        wide = jnp.promote_types(grad.dtype, jnp.float32)
        slope = grad.astype(wide)
        drift = jnp.asarray(current).astype(wide) - jnp.asarray(read).astype(wide)
        weight = jnp.asarray(strength).astype(wide)
        return (slope + weight * slope * slope * drift).astype(grad.dtype)

    def update(
        updates: optax.Updates,
        state: optax.EmptyState,
        params: optax.Params | None = None,
        *,
        read_params: optax.Params,
        **extra: Any,
    ) -> tuple[optax.Updates, optax.EmptyState]:
        del extra
        if params is None:
            raise ValueError("params must be given to the update of compensate_delay, got None.")
        updates = jax.tree.map(
            correct,
            updates,
            params,
            read_params,
            is_leaf=lambda node: isinstance(node, optax.MaskedNode),
        )
        return updates, state

    return transformation(init, update)
