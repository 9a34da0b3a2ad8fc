"""Step sizes that adapt to the delay that happens, and optimizers and schedules made of them.

Wu, Magnússon, Feyzmahdavian and Johansson, "Delay-adaptive step-sizes for asynchronous learning",
ICML 2022 (arXiv 2202.08550). With tau_k the delay of update k and gamma' = `step_size`,

    window_k = gamma_{k - tau_k} + ... + gamma_{k-1}            (0 when tau_k = 0)
    Adaptive 1:  gamma_k = alpha max(0, gamma' - window_k)
    Adaptive 2:  gamma_k = gamma' / (tau_k + 1) if that is <= max(0, gamma' - window_k), else 0

Both obey 0 <= gamma_k <= max(0, gamma' - window_k). They are not "1 / (1 + delay)" rules: the
window makes them safe for delays of any shape, at the price of steps that are sometimes exactly 0.

The history holds relative steps gamma_k / gamma'_k, so that gamma' may vary from update to update:
the principle then holds for the largest gamma' used.

Complete optimizers from such a rule, or another that keeps its step size in `last_step_size`:

    descent      x <- prox_{gamma R}(x - gamma g)
    aggregated   g[w] <- gradient of worker w;    x <- prox_{gamma R}(x - gamma (1/n) sum_i g[i])

With Adaptive 1 these are `delay_adaptive_sgd` and `piag`, proximal incremental aggregated gradient.
All flip the sign. The step sizes of a rule can also be seen from outside:

    inject_hyperparams(optax.sgd)(learning_rate=as_schedule(rule))
    predict_steps(rule, delays):    tau_0 .. tau_{K-1}  ->  gamma_0 .. gamma_{K-1}

A schedule runs the transformation that it is made of on nothing. Step sizes depend on delays alone,
so a trace tells beforehand how far each rule will get: with S the sum of the steps, rates are
O(1/S) for smooth problems, and for aggregated gradients the ratio of two sums predicts the ratio of
the updates needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike, DTypeLike

from asyncjax.array_checks import floating, number
from asyncjax.buffers.step_window import StepWindowState, push_step, step_window, window_sum
from asyncjax.checks import whole, within
from asyncjax.steps.proximal import Prox, proximal
from asyncjax.steps.transformation import Transformation, Updated, transformation
from asyncjax.steps.trees import scalar, scale_tree, wide_dtype
from asyncjax.steps.worker_tables import average_workers, oldest_delay

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


def descent(rule: optax.GradientTransformation, *, prox: Prox | None = None) -> Transformation:
    """Gradient descent, or proximal gradient descent, with the step sizes of a rule.

    Args:
        rule: A transformation that only rescales, such as `scale_by_adaptive_2(0.5)`; with `prox`,
            one with the field `last_step_size` in its state.
        prox: Proximal operator of a regularizer, such as `l1(1e-3)`; it needs `params` in `update`.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax.steps import box, sun
        >>> optimizer = descent(sun(1.0, max_delay=2), prox=box(0.0, 1.0))
        >>> params = jnp.array([0.5, 0.5])
        >>> updates, _ = optimizer.update(4.0 * params, optimizer.init(params), params)
        >>> (params + updates).tolist()
        [0.0, 0.0]
    """
    step = optax.with_extra_args_support(optax.chain(rule, optax.scale(-1.0)))
    return step if prox is None else proximal(step, prox)


def aggregated(
    rule: optax.GradientTransformation,
    n_workers: int,
    *,
    initial: optax.Updates | None = None,
    prox: Prox | None = None,
) -> Transformation:
    """Proximal incremental aggregated gradient with the step sizes of any rule.

    Every `update` needs the extras `delay` and `worker` of the gradient that arrived; the rule gets
    the age of the oldest row of the table as its `delay`.

    Args:
        rule: As for `descent`.
        n_workers: Number of workers n, at least 1.
        initial: First rows of the table, with a leading axis n; zeros by default.
        prox: As for `descent`.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax.steps import scale_by_adaptive_2
        >>> optimizer = aggregated(scale_by_adaptive_2(1.0, max_delay=8), n_workers=2)
        >>> params = jnp.float32(1.0)
        >>> state = optimizer.init(params)
        >>> update, state = optimizer.update(jnp.float32(4.0), state, params, delay=0, worker=1)
        >>> float(update), int(state.last_table_delay)
        (-2.0, 0)
    """
    step = optax.chain(average_workers(n_workers, initial), rule, optax.scale(-1.0))
    return oldest_delay(step if prox is None else proximal(step, prox), n_workers)


def delay_adaptive_sgd(
    step_size: ArrayLike, alpha: ArrayLike = 0.9, max_delay: int = 4096, *, prox: Prox | None = None
) -> Transformation:
    """Gradient descent with the step sizes Adaptive 1, for gradients that come late.

    Every `update` needs the extra `delay`. For other rules see `descent`.

    Args:
        step_size, alpha, max_delay: As for `scale_by_adaptive_1`.
        prox: As for `descent`.

    Example:
        >>> import jax.numpy as jnp
        >>> optimizer = delay_adaptive_sgd(0.5)
        >>> params = jnp.float32(1.0)
        >>> state = optimizer.init(params)
        >>> update, state = optimizer.update(params, state, params, delay=0)
        >>> print(f"{update:.2f}")
        -0.45
    """
    return descent(scale_by_adaptive_1(step_size, alpha, max_delay), prox=prox)


def piag(
    step_size: ArrayLike,
    n_workers: int,
    *,
    alpha: ArrayLike = 0.9,
    max_delay: int = 4096,
    initial: optax.Updates | None = None,
    prox: Prox | None = None,
) -> Transformation:
    """Proximal incremental aggregated gradient with the step sizes Adaptive 1.

    Every `update` needs the extras `delay` and `worker`. For other rules see `aggregated`.

    Args:
        step_size: gamma' = h / L with h in (0, 1) and L the root mean square of the workers'
            Lipschitz constants.
        alpha: Share of the free room that a step takes, in (0, 1].
        max_delay: Longest age of a row that is served, in updates; about twice the longest delay.
        n_workers, initial, prox: As for `aggregated`; the paper starts from the gradients at the
            first parameters.

    Example:
        >>> import jax.numpy as jnp
        >>> optimizer = piag(1.0, n_workers=2, alpha=0.5, max_delay=16)
        >>> state = optimizer.init(jnp.float32(0.0))
        >>> float(optimizer.update(jnp.float32(4.0), state, delay=0, worker=1)[0])
        -1.0
    """
    rule = scale_by_adaptive_1(step_size, alpha, max_delay)
    return aggregated(rule, n_workers, initial=initial, prox=prox)


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
