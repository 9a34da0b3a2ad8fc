"""Step sizes that adapt to the delay that happens, without a bound on the delays.

Wu, Magnússon, Feyzmahdavian and Johansson, "Delay-adaptive step-sizes for asynchronous learning",
ICML 2022 (arXiv 2202.08550). With tau_k the delay of update k and gamma' = `step_size`,

    window_k = gamma_{k - tau_k} + ... + gamma_{k-1}            (0 when tau_k = 0)
    Adaptive 1:  gamma_k = alpha max(0, gamma' - window_k)
    Adaptive 2:  gamma_k = gamma' / (tau_k + 1) if that is <= max(0, gamma' - window_k), else 0

Both obey 0 <= gamma_k <= max(0, gamma' - window_k). They are not "1 / (1 + delay)" rules: the
window makes them safe for delays of any shape, at the price of steps that are sometimes exactly 0.

The history holds relative steps gamma_k / gamma'_k, so that gamma' may vary from update to update:
the principle then holds for the largest gamma' used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.step_window import StepWindowState, push_step, step_window, window_sum
from asyncjax.checks import whole
from asyncjax.steps.arguments import number
from asyncjax.steps.transformation import Transformation, Updated, transformation
from asyncjax.steps.trees import scalar, scale_tree, wide_dtype

Rule = Callable[[jax.Array, jax.Array], jax.Array]


class AdaptiveState(NamedTuple):
    """State of Adaptive 1 and 2, as transformations and as schedules."""

    step_history: StepWindowState  # relative steps, float[max_delay]; float32 or wider
    last_step_size: jax.Array  # float[], gamma_k of the last update
    delay_overflows: jax.Array  # int32[], delays above max_delay, each of which gave a step of 0
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def adaptive_1_rule(alpha: ArrayLike) -> Rule:
    """Returns the relative step of Adaptive 1: alpha times the room that the window leaves.

    Args:
        alpha: Share of the room that is taken, in (0, 1].

    Example:
        >>> float(adaptive_1_rule(0.5)(jnp.float32(0.5), jnp.int32(3)))
        0.25
    """
    number("alpha", alpha, above=0, most=1)
    return lambda room, delay: jnp.asarray(alpha, room.dtype) * room


def adaptive_2_rule() -> Rule:
    """Returns the relative step of Adaptive 2: 1 / (delay + 1) if the window leaves that much room.

    The comparison is an equality on constant delays. It has a slack of 1e-12 in float64 and of 5e-7
    in float32, as rounding would throw away a good part of the steps.

    Example:
        >>> rule = adaptive_2_rule()
        >>> [float(rule(jnp.float32(room), jnp.int32(3))) for room in (0.25, 0.2)]
        [0.25, 0.0]
    """

    def rule(room: jax.Array, delay: jax.Array) -> jax.Array:
        share = 1 / (delay.astype(room.dtype) + 1)
        slack = 1e-12 if room.dtype == jnp.float64 else 5e-7
        return jnp.where(share <= room + slack, share, 0)

    return rule


def scale_by_adaptive_1(
    step_size: ArrayLike, alpha: ArrayLike = 0.9, max_delay: int = 4096
) -> Transformation:
    r"""Multiplies updates by the delay-adaptive step size Adaptive 1.

    .. math:: \gamma_k = \alpha \max(0, \gamma' - \textstyle\sum_{t=k-\tau_k}^{k-1} \gamma_t)

    The sign is not flipped: end a chain with `optax.scale(-1.0)`, or use `delay_adaptive_sgd`.
    Every `update` needs the extra `delay`, the number of updates made since the gradient's
    parameters were read. The result is an absolute step, so this belongs at the end of a chain;
    behind a preconditioner such as adam `step_size` is a plain learning rate without a guarantee.

    Args:
        step_size: gamma' = h / L with h in (0, 1). For proximal incremental aggregated gradient L
            is the root mean square of the workers' Lipschitz constants; for asynchronous
            block-coordinate descent, the largest over pairs of blocks.
        alpha: Share of the free room that a step takes, in (0, 1].
        max_delay: Longest delay that is served, in updates. A longer one gives a step of exactly 0
            and is counted in the state field `delay_overflows`. Costs one float of state each.

    Note:
        `optax.inject_hyperparams` turns every number into a traced hyperparameter: pass it
        `static_args=("max_delay",)`, and `hyperparam_dtype=jnp.float32` with bfloat16 parameters.

    Example:
        >>> optimizer = optax.chain(scale_by_adaptive_1(0.5), optax.scale(-1.0))
        >>> params = jnp.array([1.0, 2.0])
        >>> state = optimizer.init(params)
        >>> for delay in (0, 1):
        ...     updates, state = optimizer.update(params, state, params, delay=delay)
        ...     print(f"{optax.tree.get(state, 'last_step_size'):.4f}")
        0.4500
        0.0450
    """
    return scale_by_window(adaptive_1_rule(alpha), step_size, max_delay)


def scale_by_adaptive_2(step_size: ArrayLike, max_delay: int = 4096) -> Transformation:
    r"""Multiplies updates by the delay-adaptive step size Adaptive 2.

    .. math:: \gamma_k = \gamma' / (\tau_k + 1) \text{ if this is at most }
              \max(0, \gamma' - \textstyle\sum_{t=k-\tau_k}^{k-1} \gamma_t), \text{ else } 0

    Use as `scale_by_adaptive_1`. Steps are even on constant delays, and 0 more often on others. The
    paper's "<=" is taken with a slack of 1e-12 gamma' (float64) or 5e-7 gamma' (float32).

    Args:
        step_size, max_delay: As for `scale_by_adaptive_1`.

    Example:
        >>> rule = scale_by_adaptive_2(1.0)
        >>> state = rule.init(jnp.float32(0.0))
        >>> for delay in (0, 1, 1):
        ...     update, state = rule.update(jnp.float32(1.0), state, delay=delay)
        ...     print(float(update))
        1.0
        0.0
        0.5
    """
    return scale_by_window(adaptive_2_rule(), step_size, max_delay)


def scale_by_window(rule: Rule, step_size: ArrayLike, max_delay: int = 4096) -> Transformation:
    """Multiplies updates by gamma' times any function of the room that the window leaves.

    What Adaptive 1 and 2 have in common, for rules of one's own. A rule keeps the principle if it
    returns at most the room. Every `update` needs the extra `delay`.

    Args:
        rule: Function of (room, delay), a float in [0, 1] and an int32 scalar, that returns the
            relative step gamma_k / gamma'; `room` is max(0, 1 - window_k / gamma').
        step_size, max_delay: As for `scale_by_adaptive_1`.

    Example:
        Half of the room, but never more than 1 / (delay + 1):

        >>> cautious = scale_by_window(
        ...     lambda room, delay: jnp.minimum(room / 2, 1 / (delay + 1)), 1.0, max_delay=8
        ... )
        >>> state = cautious.init(jnp.float32(0.0))
        >>> for delay in (0, 1):
        ...     update, state = cautious.update(jnp.float32(1.0), state, delay=delay)
        ...     print(float(update))
        0.5
        0.25
    """
    number("step_size", step_size, above=0)
    number("max_delay", max_delay, least=1, integer=True)

    def init(params: optax.Params) -> AdaptiveState:
        dtype, none = wide_dtype(params), jnp.zeros((), jnp.int32)
        history = step_window(whole("max_delay", max_delay), dtype).init()
        return AdaptiveState(history, jnp.zeros((), dtype), none)

    def update(updates: optax.Updates, state: AdaptiveState, *, delay: ArrayLike) -> Updated:
        history = state.step_history
        dtype = history.recent_steps.dtype
        clipped = jnp.clip(scalar("delay", delay), 0, history.steps_pushed)
        overflow = clipped > history.recent_steps.shape[0]
        room = jnp.maximum(0, 1 - window_sum(history, clipped))
        relative = jnp.where(overflow, 0, rule(room, clipped)).astype(dtype)
        step = (jnp.asarray(step_size).astype(dtype) * relative).astype(dtype)
        overflows = state.delay_overflows + overflow.astype(jnp.int32)
        new = AdaptiveState(push_step(history, relative), step, overflows)
        return scale_tree(updates, step), new

    return transformation(init, update)
