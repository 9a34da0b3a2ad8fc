"""The step sizes of a rule, seen from outside: as a schedule of optax, or before anything is run.

    inject_hyperparams(optax.sgd)(learning_rate=as_schedule(rule))
    predict_steps(rule, delays):    tau_0 .. tau_{K-1}  ->  gamma_0 .. gamma_{K-1}

A schedule runs the transformation that it is made of on nothing, and returns the step size that
this one keeps in its state. Step sizes depend on delays alone, so a trace tells beforehand how far
each rule will get: with S the sum of the steps, rates are O(1/S) for smooth problems, and for
aggregated gradients the ratio of two sums predicts the ratio of the updates needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike, DTypeLike

from asyncjax.buffers.arguments import floating
from asyncjax.checks import within
from asyncjax.steps.adaptive import scale_by_adaptive_1, scale_by_adaptive_2
from asyncjax.steps.transformation import Transformation


@dataclass(frozen=True)
class StepSchedule:
    """A stateful optax schedule; see `as_schedule`."""

    rule: Transformation
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
        """Returns the state after update k; what the rule requires is required here."""
        last = optax.tree.get(state, "last_step_size")
        return self.rule.update(jnp.zeros((), last.dtype), state, None, **extra)[1]


def as_schedule(rule: Transformation, *, dtype: DTypeLike | None = None) -> StepSchedule:
    """Turns a transformation that multiplies by a step size into a schedule of that step size.

    Every `update` of the optimizer that it is given to then needs the extras that the rule needs.

    Args:
        rule: A transformation with one field `last_step_size` in its state that needs no `params`,
            such as `scale_by_adaptive_1(0.5)` or `scale_by_delay(inverse_delay(), 0.1)`.
        dtype: Dtype of the value and of the rule's history, float32 or wider; by default float32,
            or float64 when x64 is enabled.

    Returns:
        An `optax.schedules.StatefulSchedule`: `init()`, `__call__(state, **extra)` and
        `update(state, **extra)`. The value has the dtype of the history, so with bfloat16
        parameters optax's optimizers return float32 updates, which `optax.apply_updates` casts.

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
    _check_step_size(rule)
    return StepSchedule(rule, None if dtype is None else floating("dtype", dtype))


def _check_step_size(rule: Any) -> None:
    """Refuses a transformation that does not tell its step size."""
    state = jax.eval_shape(rule.init, jnp.zeros(()))
    count = len(optax.tree.get_all_with_path(state, "last_step_size"))
    if count != 1:
        raise ValueError(f"rule must have one field last_step_size in its state, got {count}")


def adaptive_1_schedule(
    step_size: ArrayLike,
    alpha: ArrayLike = 0.9,
    max_delay: int = 4096,
    *,
    dtype: DTypeLike | None = None,
) -> StepSchedule:
    """Returns `scale_by_adaptive_1` as a schedule; every `update` then needs the extra `delay`.

    Args:
        step_size, alpha, max_delay: As for `scale_by_adaptive_1`.
        dtype: As for `as_schedule`.

    Example:
        >>> schedule = adaptive_1_schedule(0.5, max_delay=64)
        >>> optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=schedule)
        >>> params = jnp.float32(1.0)
        >>> state = optimizer.init(params)
        >>> print(f"{optimizer.update(params, state, params, delay=0)[0]:.2f}")
        -0.45
    """
    return as_schedule(scale_by_adaptive_1(step_size, alpha, max_delay), dtype=dtype)


def adaptive_2_schedule(
    step_size: ArrayLike, max_delay: int = 4096, *, dtype: DTypeLike | None = None
) -> StepSchedule:
    """Returns `scale_by_adaptive_2` as a schedule; every `update` then needs the extra `delay`.

    Args:
        step_size, max_delay: As for `scale_by_adaptive_2`.
        dtype: As for `as_schedule`.

    Example:
        >>> schedule = adaptive_2_schedule(1.0, max_delay=64)
        >>> float(schedule(schedule.init(), delay=0))
        1.0
    """
    return as_schedule(scale_by_adaptive_2(step_size, max_delay), dtype=dtype)


class PredictedSteps(NamedTuple):
    """Step sizes of a rule on a sequence of delays, on the host."""

    step_size: np.ndarray  # float[K], gamma_k
    overflows: int  # delays above the rule's max_delay, each of which gave a step of 0


def predict_steps(
    rule: Transformation, delay: Any, *, dtype: DTypeLike | None = None
) -> PredictedSteps:
    """Runs a step-size rule over a sequence of delays, before anything is trained.

    Args:
        rule: A transformation with one field `last_step_size` in its state that needs no extra but
            `delay`.
        delay: int[K], delay of each update; for `piag` and `aggregated` the ages of `table_delays`.
        dtype: Of the history, as parameters of that dtype would make it; as for `as_schedule`.

    Returns:
        The step sizes; their sum, and their ratio to another rule's, are the prediction.

    Example:
        Even delays of 4, Adaptive 2 against the constant that is safe for a longest delay of 9:

        >>> from asyncjax.steps import scale_by_adaptive_2, worst_case
        >>> delay = np.minimum(np.arange(1000), 4)
        >>> adaptive = predict_steps(scale_by_adaptive_2(1.0, max_delay=9), delay).step_size.sum()
        >>> fixed = predict_steps(worst_case(1.0, max_delay=9), delay).step_size.sum()
        >>> print(f"{adaptive / fixed:.2f}")
        2.00
    """
    _check_step_size(rule)
    within("delay", delay, least=0, integer=True)
    kind = jnp.result_type(float) if dtype is None else floating("dtype", dtype)
    state, steps = _run(rule, jnp.asarray(delay, jnp.int32), jnp.zeros((), kind))
    overflows = optax.tree.get_all_with_path(state, "delay_overflows")
    return PredictedSteps(np.asarray(steps), int(sum(int(value) for _, value in overflows)))


@partial(jax.jit, static_argnums=0)
def _run(rule: Transformation, delays: jax.Array, zero: jax.Array) -> tuple[Any, jax.Array]:
    def step(state: Any, delay: jax.Array) -> tuple[Any, jax.Array]:
        _, state = rule.update(zero, state, None, delay=delay)
        return state, optax.tree.get(state, "last_step_size")

    return jax.lax.scan(step, rule.init(zero), delays)
