r"""Complete optimizers from a step-size rule: plain, proximal, aggregated.

    descent      x <- prox_{gamma R}(x - gamma g)
    aggregated   g[w] <- gradient of worker w;    x <- prox_{gamma R}(x - gamma (1/n) sum_i g[i])

gamma is what the rule leaves in `last_step_size`. With Adaptive 1 these are `delay_adaptive_sgd`
and `piag`, proximal incremental aggregated gradient (Wu, Magnússon, Feyzmahdavian, Johansson 2022,
"Delay-adaptive step-sizes for asynchronous learning", arXiv 2202.08550). All flip the sign.
"""

from __future__ import annotations

import optax
from jax.typing import ArrayLike

from asyncjax.steps.adaptive import scale_by_adaptive_1
from asyncjax.steps.proximal import Prox, proximal
from asyncjax.steps.transformation import Transformation
from asyncjax.steps.worker_tables import average_workers, oldest_delay


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
