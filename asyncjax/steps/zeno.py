r"""Filters: an arrival that does not look like a gradient becomes zero.

    Zeno++    g <- ||v|| / ||g|| g,  v = grad of a validation loss at x;
              passes if  <v, g> - rho ||g||^2 >= -epsilon

Zeno++ (Xie, Koyejo, Gupta 2020) asks whether a step along the arrival would lower a loss that the
server can compute itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.checks import function
from asyncjax.steps.arguments import number
from asyncjax.steps.scaling import scale_tree, wide_dtype
from asyncjax.steps.transformation import transformation


class PassDescentState(NamedTuple):
    """State of `zeno`."""

    dropped_gradients: jax.Array  # int32[], arrivals that did not pass so far


def zeno(
    validation_gradient: Callable[[optax.Params], optax.Updates],
    *,
    rho: ArrayLike = 0.0,
    epsilon: ArrayLike = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """Zeno++: scales arrivals to the norm of the server's own gradient, and drops those that climb.

    For `simulation.Update(..., gradient_transform=...)`. Every `update` needs `params`, at which
    the server takes its gradient.

    Args:
        validation_gradient: `params -> gradient` of a loss that the server can compute itself.
        rho: Weight of the squared norm, at least 0.
        epsilon: How much an accepted step may seem to climb, at least 0.

    Returns:
        A transformation whose state has the field `dropped_gradients`.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: A number is negative or not finite; if `update` gets no `params`.

    Note:
        Given from memory of the paper: its score is gamma <v, g> - rho ||g||^2 >= -gamma epsilon,
        here with gamma = 1, the step size left to the optimizer. The paper takes v lazily, at a
        model some updates old; here at the present one.

    Example:
        >>> rule = zeno(lambda x: x)
        >>> x = jnp.array([3.0, 4.0])
        >>> state = rule.init(x)
        >>> for grad in ([6.0, 8.0], [-6.0, -8.0]):
        ...     sent, state = rule.update(jnp.array(grad), state, x)
        ...     print(sent.tolist(), int(state.dropped_gradients))
        [3.0, 4.0] 0
        [0.0, 0.0] 1

    Reference:
        Xie, Koyejo, Gupta 2020, "Zeno++: robust fully asynchronous SGD", arXiv 1903.07020.
    """
    function("validation_gradient", validation_gradient, "a function of the parameters")
    number("rho", rho, least=0)
    number("epsilon", epsilon, least=0)

    def init(params: optax.Params) -> PassDescentState:
        return PassDescentState(jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: PassDescentState, *, params: optax.Params
    ) -> tuple[optax.Updates, PassDescentState]:
        dtype, own = wide_dtype(updates), validation_gradient(params)
        like("validation_gradient", own, updates, "the updates")
        length = jnp.sqrt(_dot(updates, updates, dtype))
        scale = jnp.sqrt(_dot(own, own, dtype)) / jnp.where(length > 0, length, 1)
        squared = (scale * length) ** 2
        score = scale * _dot(own, updates, dtype) - jnp.asarray(rho).astype(dtype) * squared
        passes = score >= -jnp.asarray(epsilon).astype(dtype)
        sent = scale_tree(updates, jnp.where(passes, scale, 0))
        dropped = state.dropped_gradients + jnp.where(passes, 0, 1).astype(jnp.int32)
        return sent, PassDescentState(dropped)

    return transformation(init, update)


def _dot(one: Any, other: Any, dtype: Any) -> jax.Array:
    """The inner product of two trees."""
    products = jax.tree.map(
        lambda a, b: jnp.sum(jnp.asarray(a).astype(dtype) * jnp.asarray(b).astype(dtype)),
        one,
        other,
    )
    return sum(jax.tree.leaves(products), start=jnp.zeros((), dtype))
