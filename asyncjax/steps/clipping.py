"""Clipping the norm of a gradient the harder the later it is.

    ||update|| <= max_norm * weight(delay)

A fresh gradient may be as long as usual, a stale one moves the parameters little however long it
is. The norm is that of the whole tree, as in `optax.clip_by_global_norm`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.steps.arguments import delay_weight, number
from asyncjax.steps.delay_functions import DelayWeight, polynomial_delay
from asyncjax.steps.delays import late
from asyncjax.steps.scaling import scale_tree, wide_dtype
from asyncjax.steps.transformation import stateless


def clip_by_delay(
    max_norm: ArrayLike, weight: DelayWeight | None = None
) -> optax.GradientTransformationExtraArgs:
    """Scales updates down to a global norm of at most max_norm * weight(delay).

    Every `update` needs the extra `delay`.

    Args:
        max_norm: Largest norm for a delay of 0, positive.
        weight: Function of the delay, such as `inverse_delay()`; None: (delay + 1)^-1/2.

    Returns:
        A transformation whose state only counts invalid delays.

    Raises:
        TypeError: If `max_norm` is not a number or `weight` not a function; in `update`, if `delay`
            is not an integer.
        ValueError: If `max_norm` is not positive, or `weight` does not return one number; in
            `update`, if `delay` is negative.

    Note:
        This library's combination of two usual remedies; it is not taken from a paper.

    Example:
        >>> rule = clip_by_delay(10.0)
        >>> grad = jnp.array([6.0, 8.0])
        >>> for delay in (0, 3):
        ...     print(rule.update(grad, rule.init(grad), delay=delay)[0].tolist())
        [6.0, 8.0]
        [3.0, 4.0]
    """
    number("max_norm", max_norm, above=0, finite=False)
    weight = polynomial_delay(0.5) if weight is None else delay_weight("weight", weight)

    def clipped(updates: optax.Updates, *, delay: ArrayLike) -> optax.Updates:
        dtype = wide_dtype(updates)
        bound = jnp.asarray(max_norm, dtype) * weight(late(delay, dtype))
        norm = optax.tree.norm(jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), updates))
        factor = jnp.where(norm > bound, bound / jnp.where(norm > 0, norm, 1), 1)
        return scale_tree(updates, factor.astype(dtype))

    return stateless(clipped)
