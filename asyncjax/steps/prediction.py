"""What a rule will do on given delays, before anything is trained.

    delays tau_0 .. tau_{K-1}  ->  step sizes gamma_0 .. gamma_{K-1}

Step sizes depend on delays alone, so a trace tells beforehand how far each rule will get: with S
the sum of the steps, rates are O(1/S) for smooth problems, and for aggregated gradients the ratio
of two sums predicts the ratio of the updates needed.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.buffers.arguments import floating
from asyncjax.checks import within
from asyncjax.steps.schedules import tells_step_size


class PredictedSteps(NamedTuple):
    """Step sizes of a rule on a sequence of delays, on the host."""

    step_size: np.ndarray  # float[K], gamma_k
    overflows: int  # delays above the rule's max_delay, each of which gave a step of 0


def predict_steps(
    rule: optax.GradientTransformationExtraArgs,
    delay: Any,
    *,
    dtype: jax.typing.DTypeLike | None = None,
) -> PredictedSteps:
    """Runs a step-size rule over a sequence of delays.

    Args:
        rule: A transformation with one field `last_step_size` in its state that needs no extra but
            `delay`.
        delay: int[K], delay of each update; for `piag` and `aggregated` the ages of `table_delays`.
        dtype: Of the history, as parameters of that dtype would make it; None: float32, or float64
            when x64 is enabled.

    Returns:
        The step sizes; their sum, and their ratio to another rule's, are the prediction.

    Raises:
        TypeError: If `rule` is no transformation or needs another extra than `delay`, or `dtype` is
            no dtype.
        ValueError: If `delay` is not a vector of integers that are not negative, `rule` does not
            tell its step size, or `dtype` is not float32 or wider.

    Example:
        Even delays of 4, Adaptive 2 against the constant that is safe for a longest delay of 9:

        >>> from asyncjax.steps import scale_by_adaptive_2, worst_case
        >>> delay = np.minimum(np.arange(1000), 4)
        >>> adaptive = predict_steps(scale_by_adaptive_2(1.0, max_delay=9), delay).step_size.sum()
        >>> fixed = predict_steps(worst_case(1.0, max_delay=9), delay).step_size.sum()
        >>> print(f"{adaptive / fixed:.2f}")
        2.00
    """
    tells_step_size("rule", rule)
    values = np.asarray(delay)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(
            f"delay must be a vector of integers, got shape {values.shape} of {values.dtype}"
        )
    within("delay", values, least=0, integer=True)
    kind = jnp.result_type(float) if dtype is None else floating("dtype", dtype)
    state, steps = _run(rule, jnp.asarray(values, jnp.int32), jnp.zeros((), kind))
    found = optax.tree.get_all_with_path(state, "delay_overflows")
    return PredictedSteps(np.asarray(steps), int(sum(int(value) for _, value in found)))


@partial(jax.jit, static_argnums=0)
def _run(
    rule: optax.GradientTransformationExtraArgs, delays: jax.Array, zero: jax.Array
) -> tuple[Any, jax.Array]:
    def step(state: Any, delay: jax.Array) -> tuple[Any, jax.Array]:
        _, state = rule.update(zero, state, None, delay=delay)
        return state, optax.tree.get(state, "last_step_size")

    return jax.lax.scan(step, rule.init(zero), delays)
