"""Constant steps that are safe for the longest delay, to compare with.

    worst case   gamma' / (max_delay + 1)
    sun          gamma' / (max_delay + 1/2)

They need to know the longest delay beforehand; taking it from a finished run flatters them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from asyncjax.steps.arguments import check_at_least
from asyncjax.steps.scaling import scale_tree, wide_dtype
from asyncjax.steps.transformation import transformation


class FixedStepState(NamedTuple):
    """State of a constant step."""

    last_step_size: jax.Array  # float[], the step; float32 or wider


def worst_case(
    step_size: jax.typing.ArrayLike, max_delay: jax.typing.ArrayLike
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by gamma' / (max_delay + 1), the largest safe constant.

    It is the largest constant that keeps gamma_k <= gamma' - window_k, the condition of
    `scale_by_adaptive_1`, when delays reach `max_delay`. The sign is not flipped. No extra is needed;
    `delay` is ignored. With `max_delay=0` it is a plain constant step that `proximal` can read.

    Args:
      step_size: gamma' = h / L with h in (0, 1).
      max_delay: longest delay of the run, at least 0, in updates.

    Returns:
      A transformation whose state has the field `last_step_size`.

    Raises:
      ValueError: if an argument is negative.

    Example:
      >>> rule = worst_case(1.0, max_delay=4)
      >>> update, state = rule.update(jnp.float32(10.0), rule.init(jnp.float32(0.0)), delay=2)
      >>> print(f"{update:.1f}")
      2.0
    """
    return _constant(step_size, max_delay, 1.0)


def sun(
    step_size: jax.typing.ArrayLike, max_delay: jax.typing.ArrayLike
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by gamma' / (max_delay + 1/2), the fixed rule that delay papers compare with.

    Slightly longer than `worst_case`. The sign is not flipped; `delay` is ignored.

    Args:
      step_size: gamma' = h / L with h in (0, 1).
      max_delay: longest delay of the run, at least 0, in updates.

    Returns:
      A transformation whose state has the field `last_step_size`.

    Raises:
      ValueError: if an argument is negative.

    Note:
      With `max_delay=0` this is 2 gamma', twice what `scale_by_adaptive_1` could ever take.

    Example:
      >>> rule = sun(1.0, max_delay=2)
      >>> update, state = rule.update(jnp.float32(10.0), rule.init(jnp.float32(0.0)))
      >>> print(f"{update:.1f}")
      4.0
    """
    return _constant(step_size, max_delay, 0.5)


def _constant(
    step_size: jax.typing.ArrayLike, max_delay: jax.typing.ArrayLike, offset: float
) -> optax.GradientTransformationExtraArgs:
    check_at_least(step_size, "step_size", 0)
    check_at_least(max_delay, "max_delay", 0)

    def step(dtype: Any) -> jax.Array:
        longest = jnp.asarray(max_delay).astype(dtype)
        return jnp.asarray(step_size).astype(dtype) / (longest + offset)

    def init(params: optax.Params) -> FixedStepState:
        return FixedStepState(last_step_size=step(wide_dtype(params)))

    def update(
        updates: optax.Updates,
        state: FixedStepState,
        params: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[optax.Updates, FixedStepState]:
        del params, extra
        state = FixedStepState(last_step_size=step(state.last_step_size.dtype))
        return scale_tree(updates, state.last_step_size), state

    return transformation(init, update)
