"""A proximal step after any optimizer that tells its step size.

    v = x + update;     x <- prox(v, gamma),     gamma = `last_step_size` of the inner state

The backward half of proximal gradient methods. It needs the step size after the rule has chosen it,
so it is a wrapper; a chain has no other order to offer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.steps.arguments import optimizer, returning
from asyncjax.steps.transformation import transformation

Prox = Callable[[Any, jax.Array], Any]


class ProximalState(NamedTuple):
    """State of `proximal`."""

    forward_state: optax.OptState  # of the inner transformation


def proximal(
    inner: optax.GradientTransformation, prox: Prox
) -> optax.GradientTransformationExtraArgs:
    """Applies a proximal operator to what an optimizer makes of the parameters.

    The update is prox(params + u, gamma) - params, where u is the update of `inner` and gamma the
    field `last_step_size` of its state. Where gamma is 0 the update is u: a zero step leaves the
    parameters alone. Every `update` needs `params`.

    Args:
        inner: A complete optimizer (sign flipped) with one `last_step_size` in its state, such as
            `delay_adaptive_sgd(...)` or `optax.chain(worst_case(...), optax.scale(-1.0))`.
        prox: Function of (tree like the parameters, step size) that returns such a tree: `l1`,
            `l2`, `box`, or your own.

    Returns:
        A transformation whose updates have the dtypes of the parameters: adding them to the
        parameters gives exactly 0 wherever the operator does.

    Raises:
        TypeError: If `inner` is no transformation, or `prox` not a function of two arguments.
        ValueError: In `init`, if the state of `inner` has no or more than one `last_step_size`; in
            `update`, if `params` is missing or not like the updates, or `prox` returns another
            tree.

    Note:
        The sum of parameters and update may miss a bound of `box` by one rounding error.

    Example:
        >>> from asyncjax.steps import delay_adaptive_sgd, l1
        >>> optimizer = proximal(delay_adaptive_sgd(1.0, alpha=1.0), l1(0.5))
        >>> params = jnp.array([1.0, 3.0])
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update(jnp.array([0.6, 1.0]), state, params, delay=0)
        >>> optax.apply_updates(params, updates).tolist()
        [0.0, 1.5]
    """
    wrapped = optax.with_extra_args_support(optimizer("inner", inner))
    check_prox(prox)

    def init(params: optax.Params) -> ProximalState:
        state = wrapped.init(params)
        found = len(optax.tree.get_all_with_path(state, "last_step_size"))
        if found != 1:
            raise ValueError(
                f"inner must have one field last_step_size in its state, got {found}; for a"
                " constant step size, chain worst_case(step_size, 0) and optax.scale(-1.0)"
            )
        return ProximalState(forward_state=state)

    def update(
        updates: optax.Updates, state: ProximalState, *, params: optax.Params, **extra: Any
    ) -> tuple[optax.Updates, ProximalState]:
        updates, forward_state = wrapped.update(updates, state.forward_state, params, **extra)
        step_size = optax.tree.get(forward_state, "last_step_size")
        like("params", params, updates, "the updates")
        moved = jax.tree.map(_wide_sum, params, updates)
        target = like("what prox returns", prox(moved, step_size), params, "the parameters")
        updates = jax.tree.map(
            lambda leaf, update, point: jnp.where(
                step_size == 0,
                jnp.asarray(update).astype(jnp.result_type(leaf)),
                (point - leaf).astype(jnp.result_type(leaf)),
            ),
            params,
            updates,
            target,
        )
        return updates, ProximalState(forward_state=forward_state)

    return transformation(init, update)


def check_prox(prox: Any) -> None:
    """Refuses what cannot be a proximal operator.

    Example:
        >>> check_prox(3)
        Traceback (most recent call last):
        ...
        TypeError: prox must be a function of (tree, step size), got 3
    """
    returning("prox", prox, "a function of (tree, step size)", jnp.zeros(2), jnp.float32(1))


def _wide_sum(leaf: ArrayLike, update: ArrayLike) -> jax.Array:
    wide = jnp.promote_types(jnp.result_type(leaf, update), jnp.float32)
    return jnp.asarray(leaf).astype(wide) + jnp.asarray(update).astype(wide)
