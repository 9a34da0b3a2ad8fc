"""The delay-adaptive step sizes as optax schedules with a state.

    inject_hyperparams(optax.sgd)(learning_rate=adaptive_1_schedule(gamma'))

gamma_k is the value of the schedule; the rules and the kernel are those of `adaptive`
(Wu et al. 2022, arXiv 2202.08550).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from asyncjax.steps.adaptive import (
    AdaptiveState,
    Rule,
    adaptive_1_rule,
    adaptive_2_rule,
    advance_adaptive,
    start_adaptive,
)
from asyncjax.steps.arguments import check_at_least, check_count, check_fraction


@dataclass(frozen=True)
class AdaptiveSchedule:
    """A stateful optax schedule; see `adaptive_1_schedule`."""

    step_size: jax.typing.ArrayLike  # gamma'
    max_delay: int
    rule: Rule
    dtype: Any  # of the history; None: the default float dtype when `init` is called

    def init(self) -> AdaptiveState:
        """Returns the state before the first update."""
        dtype = jnp.result_type(float) if self.dtype is None else self.dtype
        return start_adaptive(self.max_delay, dtype)

    def __call__(
        self, state: AdaptiveState, *, delay: jax.typing.ArrayLike = 0, **extra: Any
    ) -> jax.Array:
        """Returns gamma_k. optax asks for a value in `init`, without extras: hence the default."""
        del extra
        return advance_adaptive(state, delay, self.step_size, self.rule).last_step_size

    def update(
        self, state: AdaptiveState, *, delay: jax.typing.ArrayLike, **extra: Any
    ) -> AdaptiveState:
        """Returns the state after update k; `delay` is required."""
        del extra
        return advance_adaptive(state, delay, self.step_size, self.rule)


def adaptive_1_schedule(
    step_size: jax.typing.ArrayLike,
    alpha: jax.typing.ArrayLike = 0.9,
    max_delay: int = 4096,
    *,
    dtype: Any = None,
) -> AdaptiveSchedule:
    """Adaptive 1 as a schedule: gamma_k = alpha max(0, gamma' - window_k).

    Gives an optimizer of optax the learning rates of `scale_by_adaptive_1`; every `update` of the
    optimizer then needs the extra `delay`.

    Args:
      step_size: gamma', as for `scale_by_adaptive_1`.
      alpha: share of the free room that a step takes, in (0, 1].
      max_delay: longest delay that is served, in updates.
      dtype: dtype of the history and of the value, float32 or wider; by default float32, or float64
        when x64 is enabled.

    Returns:
      An object with `init()`, `__call__(state, **extra)` and `update(state, **extra)`.

    Raises:
      TypeError: in `update`, if `delay` is missing.
      ValueError: if `step_size` is negative, `alpha` outside (0, 1] or `max_delay` below 1.

    Note:
      The value has the dtype of the history, so with bfloat16 parameters optax's optimizers return
      float32 updates; `optax.apply_updates` casts them back. `scale_by_adaptive_1` keeps dtypes.

    Example:
      >>> import optax
      >>> schedule = adaptive_1_schedule(0.5, max_delay=64)
      >>> optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=schedule)
      >>> params = jnp.float32(1.0)
      >>> state = optimizer.init(params)
      >>> for delay in (0, 1, 1):
      ...     update, state = optimizer.update(params, state, params, delay=delay)
      ...     print(f"{-update:.4f}")
      0.4500
      0.0450
      0.4095

    Reference:
      Wu et al. 2022, "Delay-adaptive step-sizes for asynchronous learning", arXiv 2202.08550.
    """
    check_at_least(step_size, "step_size", 0)
    check_fraction(alpha, "alpha")
    check_count(max_delay, "max_delay")
    return AdaptiveSchedule(step_size, max_delay, adaptive_1_rule(alpha), dtype)


def adaptive_2_schedule(
    step_size: jax.typing.ArrayLike, max_delay: int = 4096, *, dtype: Any = None
) -> AdaptiveSchedule:
    """Adaptive 2 as a schedule: gamma'/(delay + 1) where the window leaves that room, else 0.

    Args:
      step_size: gamma', as for `scale_by_adaptive_1`.
      max_delay: longest delay that is served, in updates.
      dtype: dtype of the history and of the value, as for `adaptive_1_schedule`.

    Returns:
      An object with `init()`, `__call__(state, **extra)` and `update(state, **extra)`.

    Raises:
      TypeError: in `update`, if `delay` is missing.
      ValueError: if `step_size` is negative or `max_delay` below 1.

    Example:
      >>> schedule = adaptive_2_schedule(1.0, max_delay=64)
      >>> state = schedule.init()
      >>> for delay in (0, 1, 1):
      ...     print(float(schedule(state, delay=delay)))
      ...     state = schedule.update(state, delay=delay)
      1.0
      0.0
      0.5

    Reference:
      Wu et al. 2022, "Delay-adaptive step-sizes for asynchronous learning", arXiv 2202.08550.
    """
    check_at_least(step_size, "step_size", 0)
    check_count(max_delay, "max_delay")
    return AdaptiveSchedule(step_size, max_delay, adaptive_2_rule(), dtype)
