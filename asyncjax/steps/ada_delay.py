r"""AdaDelay: diminishing steps that count the delay as time.

    gamma_t = 1 / (L + c sqrt(t + tau_t)),     t = 1, 2, ...  updates made, this one included

Sra, Yu, Li and Smola 2015 (arXiv 1508.05003): a late gradient gets the step of a later iteration.
For stochastic convex problems, where the steps must diminish anyway.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import is_traced
from asyncjax.steps.arguments import number
from asyncjax.steps.delays import late
from asyncjax.steps.scaling import scale_tree, wide_dtype
from asyncjax.steps.transformation import transformation


class AdaDelayState(NamedTuple):
    """State of `scale_by_ada_delay`."""

    updates_made: jax.Array  # int32[], saturating
    last_step_size: jax.Array  # float[], gamma_t of the last update
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def scale_by_ada_delay(
    smoothness: ArrayLike, growth: ArrayLike
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by 1 / (L + c sqrt(t + delay)).

    The sign is not flipped. Every `update` needs the extra `delay`.

    Args:
        smoothness: L, the Lipschitz constant of the gradient, at least 0; not both 0.
        growth: c, at least 0: about (noise of a gradient) / (distance to the optimum).

    Returns:
        A transformation whose state has the field `last_step_size`.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If an argument is negative, or both are 0; in `update`, if `delay` is negative.

    Note:
        The scalar form. The paper's practical form has a c of its own for every coordinate.

    Example:
        >>> rule = scale_by_ada_delay(1.0, 1.0)
        >>> state = rule.init(jnp.float32(0.0))
        >>> for delay in (0, 7):
        ...     update, state = rule.update(jnp.float32(1.0), state, delay=delay)
        ...     print(f"{update:.2f}")
        0.50
        0.25

    Reference:
        Sra, Yu, Li, Smola 2015, "AdaDelay: delay adaptive distributed stochastic convex
        optimization", arXiv 1508.05003.
    """
    number("smoothness", smoothness, least=0)
    number("growth", growth, least=0)
    known = not is_traced([smoothness, growth])
    if known and not (np.any(np.asarray(smoothness)) or np.any(np.asarray(growth))):
        raise ValueError("smoothness must be positive where growth is 0, got 0")

    def init(params: optax.Params) -> AdaDelayState:
        return AdaDelayState(jnp.zeros((), jnp.int32), jnp.zeros((), wide_dtype(params)))

    def update(
        updates: optax.Updates, state: AdaDelayState, *, delay: ArrayLike
    ) -> tuple[optax.Updates, AdaDelayState]:
        dtype = state.last_step_size.dtype
        count = jnp.asarray(optax.safe_increment(state.updates_made))
        root = jnp.sqrt(count.astype(dtype) + late(delay, dtype))
        step = 1 / (jnp.asarray(smoothness, dtype) + jnp.asarray(growth, dtype) * root)
        return scale_tree(updates, step), AdaDelayState(count, step)

    return transformation(init, update)
