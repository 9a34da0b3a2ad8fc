r"""Closed-loop momentum: what asynchrony adds to the momentum is measured and taken off again.

    v_t = mu_t v_{t-1} - eta g_t,    x_{t+1} = x_t + v_t,    g_t taken at x_r,   r = t - delay

    measured = median over entries of (v_r + eta g_t) / v_{r-1}
    mu_{t+1} = clip(mu_t + gain (momentum - measured), least, momentum)

A gradient that comes late goes along steps that were meant long ago, which acts like momentum
(Mitliagkas, Zhang, Hadjis and Ré 2016, arXiv 1605.09774: with n even workers about 1 - 1/n). The
steps that the server took from x_r tell how much there is in all: with a total momentum m they are
v_r = m v_{r-1} - eta g, where g is the gradient at x_r. So mu is lowered, below 0 if need be, until
what is measured is the momentum that was asked for: the loop of YellowFin (Zhang and Mitliagkas
2019, arXiv 1706.03471), for a given momentum and step size.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.buffers.rows import empty_rows, one_row, put_rows, take_rows
from asyncjax.checks import whole
from asyncjax.steps.arguments import number
from asyncjax.steps.delays import scalar_delay
from asyncjax.steps.scaling import wide_dtype
from asyncjax.steps.transformation import transformation


class ClosedLoopState(NamedTuple):
    """State of `closed_loop_momentum`."""

    past_steps: optax.Updates  # tree of [max_delay + 2, ...], v; row t % (max_delay + 2) is v_t
    steps_made: jax.Array  # int32[], t, saturating
    own_momentum: jax.Array  # float[], mu, of the next step
    measured_momentum: jax.Array  # float[], as it was found last; `momentum` before
    delay_overflows: jax.Array  # int32[], delays above max_delay, which measured nothing
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def closed_loop_momentum(
    learning_rate: ArrayLike,
    momentum: ArrayLike = 0.9,
    *,
    max_delay: int,
    gain: ArrayLike = 0.01,
    least: ArrayLike = -0.9,
) -> optax.GradientTransformationExtraArgs:
    """Heavy-ball SGD whose momentum is lowered until, with that of asynchrony, it is as asked for.

    A complete optimizer: the sign is flipped. Every `update` needs the extra `delay` and takes one
    gradient.

    Args:
        learning_rate: eta, positive.
        momentum: What the momentum is to be in all, in [0, 1).
        max_delay: Longest delay at which something is measured, at least 0, static: max_delay + 2
            steps are kept, each as large as the parameters.
        gain: How much of the difference is corrected at an update, in [0, 1]; 0 is heavy-ball SGD,
            `optax.sgd(learning_rate, momentum)`.
        least: Lowest momentum of its own, in (-1, 0].

    Returns:
        An optimizer whose state has the fields `own_momentum` and `measured_momentum`.

    Raises:
        TypeError: If `max_delay` is not a static integer; in `update`, if `delay` is missing or no
            integer.
        ValueError: If a number is out of range; in `update`, if `delay` is negative or the updates
            are not like the parameters.

    Note:
        The estimator and the loop are given from memory of YellowFin, and were derived again as
        above. Entries that did not move at step r - 1 do not vote. Without delays what is measured
        is the momentum itself, whatever the noise, and nothing changes. The median sorts all
        parameters once an update.

    Example:
        Without a delay nothing is corrected:

        >>> optimizer = closed_loop_momentum(0.5, 0.5, max_delay=4, gain=1.0)
        >>> params = jnp.float32(0.0)
        >>> state = optimizer.init(params)
        >>> for delay in (0, 0, 2):
        ...     update, state = optimizer.update(jnp.float32(1.0), state, params, delay=delay)
        ...     print(float(update), float(state.own_momentum))
        -0.5 0.5
        -0.75 0.5
        -0.875 0.5

    Reference:
        Zhang, Mitliagkas 2019, "YellowFin and the art of momentum tuning", arXiv 1706.03471.
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    rows = whole("max_delay", max_delay, 0) + 2
    number("gain", gain, least=0, most=1)
    number("least", least, above=-1, most=0)

    def init(params: optax.Params) -> ClosedLoopState:
        asked = jnp.asarray(momentum).astype(wide_dtype(params))
        zero = jnp.zeros((), jnp.int32)
        return ClosedLoopState(empty_rows(params, rows), zero, asked, asked, zero)

    def update(
        updates: optax.Updates, state: ClosedLoopState, *, delay: ArrayLike
    ) -> tuple[optax.Updates, ClosedLoopState]:
        like("updates", updates, one_row(state.past_steps), "the parameters that init got")
        dtype, now, late = state.own_momentum.dtype, state.steps_made, scalar_delay(delay)
        rate, asked, part, lowest = (
            jnp.asarray(one).astype(dtype) for one in (learning_rate, momentum, gain, least)
        )

        def step(last: jax.Array, grad: ArrayLike) -> jax.Array:
            goes_on = state.own_momentum * last.astype(dtype)
            return (goes_on - rate * jnp.asarray(grad).astype(dtype)).astype(last.dtype)

        steps = jax.tree.map(step, take_rows(state.past_steps, (now - 1) % rows), updates)
        past = put_rows(state.past_steps, now % rows, steps)
        read = now - jnp.maximum(0, late)
        after, before = (take_rows(past, (read - back) % rows) for back in (0, 1))

        def ratio(grad: ArrayLike, after: jax.Array, before: jax.Array) -> jax.Array:
            total = after.astype(dtype) + rate * jnp.asarray(grad).astype(dtype)
            moved = before.astype(dtype)
            return jnp.ravel(
                jnp.where(moved != 0, total / jnp.where(moved != 0, moved, 1), jnp.nan)
            )

        ratios = jax.tree.leaves(jax.tree.map(ratio, updates, after, before))
        found = jnp.nanmedian(jnp.concatenate(ratios)) if ratios else jnp.asarray(jnp.nan, dtype)
        is_known = (late <= rows - 2) & (read >= 1) & jnp.isfinite(found)
        measured = jnp.where(is_known, found, state.measured_momentum)
        lowered = jnp.clip(state.own_momentum + part * (asked - measured), lowest, asked)
        return steps, ClosedLoopState(
            past_steps=past,
            steps_made=jnp.asarray(optax.safe_increment(now)),
            own_momentum=jnp.where(is_known, lowered, state.own_momentum),
            measured_momentum=measured,
            delay_overflows=state.delay_overflows + (late > rows - 2).astype(jnp.int32),
        )

    return transformation(init, update)
