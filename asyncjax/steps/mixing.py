r"""Mixing a worker's model into the server's, the less the later it comes.

    x <- (1 - a_t) x + a_t x_worker,     a_t = mixing * weight(delay)

Asynchronous federated optimization (FedAsync: Xie, Koyejo and Gupta 2019, arXiv 1903.03934). It is
no rescaled gradient: what the server did meanwhile is mixed away too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.steps.arguments import delay_weight, number
from asyncjax.steps.delay_functions import DelayWeight
from asyncjax.steps.delays import late
from asyncjax.steps.scaling import map_unmasked, wide_dtype
from asyncjax.steps.transformation import StepSizeState, transformation


def mix_models(
    mixing: ArrayLike = 0.6,
    weight: DelayWeight | None = None,
    *,
    local_scale: ArrayLike | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Moves the parameters towards the worker's.

    Update = a (x_worker - x), a = mixing * weight(delay).

    A complete optimizer. Every `update` needs `params` and the extra `delay`; and either the extra
    `worker_params`, the model that the worker delivers, or `local_scale`, with which that model is
    found from what the worker read: x_worker = read_params - local_scale * updates.

    Args:
        mixing: a, in (0, 1].
        weight: Function of the delay: `polynomial_delay(0.5)`, `hinge_delay(10.0, 4)`; None:
            constant.
        local_scale: How far a pseudo-gradient moved its worker; for `problems.local_steps(...,
            n_steps=H, step_size=s)` it is H s. Then `read_params` is needed, which
            `simulation.replay` hands out, and `worker_params` is not.

    Returns:
        A transformation whose state has the field `last_step_size`, the a that was used.

    Raises:
        TypeError: If a number is none, or `weight` is not a function; in `update`, if `delay` is
            not an integer.
        ValueError: If `mixing` is outside (0, 1], `local_scale` is not positive, or `weight` does
            not return one number; if `update` gets no `params`, trees that are not like them, or a
            negative `delay`.

    Example:
        >>> from asyncjax.steps import polynomial_delay
        >>> rule = mix_models(0.5, polynomial_delay(0.5))
        >>> x, worker = jnp.float32(4.0), jnp.float32(0.0)
        >>> state = rule.init(x)
        >>> for delay in (0, 3):
        ...     update, state = rule.update(x, state, x, delay=delay, worker_params=worker)
        ...     print(float(x + update))
        2.0
        3.0

    Reference:
        Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", arXiv 1903.03934.
    """
    number("mixing", mixing, above=0, most=1)
    if weight is not None:
        delay_weight("weight", weight)
    if local_scale is not None:
        number("local_scale", local_scale, above=0)

    def init(params: optax.Params) -> StepSizeState:
        return StepSizeState(last_step_size=jnp.zeros((), wide_dtype(params)))

    def mix(
        params: optax.Params, delivered: Any, state: StepSizeState, delay: ArrayLike
    ) -> tuple[optax.Updates, StepSizeState]:
        dtype = state.last_step_size.dtype
        factor = 1 if weight is None else weight(late(delay, dtype))
        share = (jnp.asarray(mixing).astype(dtype) * factor).astype(dtype)
        updates = map_unmasked(partial(_towards, share), params, delivered)
        return updates, StepSizeState(last_step_size=share)

    def update_from_model(
        updates: optax.Updates,
        state: StepSizeState,
        *,
        params: optax.Params,
        delay: ArrayLike,
        worker_params: optax.Params,
    ) -> tuple[optax.Updates, StepSizeState]:
        del updates
        like("worker_params", worker_params, params, "params")
        return mix(params, worker_params, state, delay)

    def update_from_gradient(
        updates: optax.Updates,
        state: StepSizeState,
        *,
        params: optax.Params,
        delay: ArrayLike,
        read_params: optax.Params,
    ) -> tuple[optax.Updates, StepSizeState]:
        like("params", params, updates, "the updates")
        like("read_params", read_params, updates, "the updates")
        scale = jnp.asarray(local_scale).astype(state.last_step_size.dtype)
        model = map_unmasked(partial(_moved, scale), updates, read_params)
        return mix(params, model, state, delay)

    return transformation(init, update_from_model if local_scale is None else update_from_gradient)


def _towards(share: jax.Array, own: Any, theirs: Any) -> jax.Array:
    own = jnp.asarray(own)
    gap = jnp.asarray(theirs).astype(share.dtype) - own.astype(share.dtype)
    return (share * gap).astype(own.dtype)


def _moved(scale: jax.Array, grad: Any, read: Any) -> jax.Array:
    return jnp.asarray(read).astype(scale.dtype) - scale * jnp.asarray(grad).astype(scale.dtype)
