"""Step-size rules as optax schedules with a state.

    inject_hyperparams(optax.sgd)(learning_rate=as_schedule(rule))

A schedule runs the very transformation that it is made of, on nothing, and returns the step size
that this one keeps in its state: a rule is written once. Whatever optimizer takes a learning rate
then takes gamma_k of Adaptive 1 and 2 (Wu et al. 2022, arXiv 2202.08550) or of any other rule of
this room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import floating
from asyncjax.steps.adaptive import scale_by_adaptive_1, scale_by_adaptive_2
from asyncjax.steps.arguments import optimizer


@dataclass(frozen=True)
class StepSchedule:
    """A stateful optax schedule; see `as_schedule`."""

    rule: optax.GradientTransformationExtraArgs
    dtype: Any  # of the value; None: the default float dtype when `init` is called

    def init(self) -> Any:
        """Returns the state of the rule before the first update."""
        dtype = jnp.result_type(float) if self.dtype is None else self.dtype
        return self.rule.init(jnp.zeros((), dtype))

    def __call__(self, state: Any, *, delay: ArrayLike = 0, **extra: Any) -> ArrayLike:
        """Returns gamma_k. optax asks for a value in `init`, without extras: hence the default."""
        state = self.update(state, delay=delay, **extra)
        return optax.tree.get(state, "last_step_size")

    def update(self, state: Any, **extra: Any) -> Any:
        """Returns the state after update k.

        What the rule requires, `delay` as a rule, is required.

        Raises:
            TypeError: If `state` has no `last_step_size`.
        """
        last = optax.tree.get(state, "last_step_size")
        if last is None:
            got = type(state).__name__
            raise TypeError(f"state must be what init of the schedule returned, got {got}")
        dtype = last.dtype
        return self.rule.update(jnp.zeros((), dtype), state, None, **extra)[1]


def as_schedule(
    rule: optax.GradientTransformationExtraArgs, *, dtype: jax.typing.DTypeLike | None = None
) -> StepSchedule:
    """Turns a transformation that multiplies by a step size into a schedule of that step size.

    Every `update` of the optimizer that it is given to then needs the extras that the rule needs.

    Args:
        rule: A transformation with one field `last_step_size` in its state that needs no `params`,
            such as `scale_by_adaptive_1(0.5)`, `sun(0.5, 20)` or `scale_by_delay(inverse_delay(),
            0.1)`.
        dtype: Dtype of the value and of the rule's history, float32 or wider; by default float32,
            or float64 when x64 is enabled.

    Returns:
        An object with `init()`, `__call__(state, **extra)` and `update(state, **extra)`, the
        protocol of `optax.schedules.StatefulSchedule`.

    Raises:
        TypeError: If `rule` is no transformation, or `dtype` no dtype.
        ValueError: If the state of `rule` has no or more than one `last_step_size`, or `dtype` is
            not float32 or wider.

    Note:
        The value has the dtype of the history, so with bfloat16 parameters optax's optimizers
        return float32 updates; `optax.apply_updates` casts them back. The transformation keeps
        dtypes.

    Example:
        Koloskova's rule as the learning rate of adam:

        >>> from asyncjax.steps import scale_by_concurrency_bound
        >>> rule = scale_by_concurrency_bound(0.5, concurrency=2, smoothness=1.0)
        >>> optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=as_schedule(rule))
        >>> params = jnp.float32(1.0)
        >>> state = optimizer.init(params)
        >>> for delay in (2, 5):
        ...     _, state = optimizer.update(params, state, params, delay=delay)
        ...     print(f"{state.hyperparams['learning_rate']:.2f}")
        0.50
        0.05
    """
    tells_step_size("rule", rule)
    return StepSchedule(rule, None if dtype is None else floating("dtype", dtype))


def tells_step_size(name: str, rule: Any) -> None:
    """Refuses a transformation that does not tell its step size.

    Example:
        >>> tells_step_size("rule", optax.sgd(0.1))
        Traceback (most recent call last):
        ...
        ValueError: rule must have one field last_step_size in its state, got 0
    """
    state = jax.eval_shape(optimizer(name, rule).init, jnp.zeros(()))
    found = len(optax.tree.get_all_with_path(state, "last_step_size"))
    if found != 1:
        raise ValueError(f"{name} must have one field last_step_size in its state, got {found}")


def adaptive_1_schedule(
    step_size: ArrayLike,
    alpha: ArrayLike = 0.9,
    max_delay: int = 4096,
    *,
    dtype: jax.typing.DTypeLike | None = None,
) -> StepSchedule:
    """Adaptive 1 as a schedule: gamma_k = alpha max(0, gamma' - window_k).

    Gives an optimizer of optax the learning rates of `scale_by_adaptive_1`; every `update` of the
    optimizer then needs the extra `delay`.

    Args:
        step_size: gamma', as for `scale_by_adaptive_1`.
        alpha: Share of the free room that a step takes, in (0, 1].
        max_delay: Longest delay that is served, in updates.
        dtype: As for `as_schedule`.

    Returns:
        An object with `init()`, `__call__(state, **extra)` and `update(state, **extra)`.

    Raises:
        TypeError: If an argument is not a number, or `dtype` no dtype.
        ValueError: If `step_size` is not positive, `alpha` outside (0, 1], `max_delay` below 1, or
            `dtype` not float32 or wider.

    Example:
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
    return as_schedule(scale_by_adaptive_1(step_size, alpha, max_delay), dtype=dtype)


def adaptive_2_schedule(
    step_size: ArrayLike, max_delay: int = 4096, *, dtype: jax.typing.DTypeLike | None = None
) -> StepSchedule:
    """Adaptive 2 as a schedule: gamma'/(delay + 1) where the window leaves that room, else 0.

    Args:
        step_size: gamma', as for `scale_by_adaptive_1`.
        max_delay: Longest delay that is served, in updates.
        dtype: As for `as_schedule`.

    Returns:
        An object with `init()`, `__call__(state, **extra)` and `update(state, **extra)`.

    Raises:
        TypeError: If an argument is not a number, or `dtype` no dtype.
        ValueError: If `step_size` is not positive, `max_delay` below 1, or `dtype` not float32 or
            wider.

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
    return as_schedule(scale_by_adaptive_2(step_size, max_delay), dtype=dtype)
