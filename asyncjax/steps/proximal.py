r"""Proximal steps: an operator of a regularizer behind any optimizer that tells its step size.

    v = x + update;     x <- prox(v, gamma),     gamma = `last_step_size` of the inner state
    prox(x, t) = argmin_z t R(z) + ||z - x||^2 / 2

    l1            R = strength ||x||_1           sign(x) max(|x| - t strength, 0)
    l2            R = strength ||x||^2 / 2       x / (1 + t strength)
    elastic_net   R = both                       l1, then l2
    group         R = strength sum_g ||x_g||     x_g max(1 - t strength / ||x_g||, 0)
    box           R = 0 on [low, high]           clip(x, low, high)
    simplex       R = 0 where x >= 0, sum x = s  Euclidean projection (optax)

The backward half of proximal gradient methods needs the step size after the rule has chosen it, so
`proximal` is a wrapper; a chain has no other order to offer.

An operator is a function of (tree, step size t) that keeps dtypes; for t = 0 it leaves the tree
alone. What `l1`, `elastic_net` and `group` make small becomes exactly 0. All but `simplex` act on
entries or leaves, so they may follow steps on blocks of whole leaves; `l1`, `l2`, `elastic_net` and
`box` may follow steps on any block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import is_traced, like, number
from asyncjax.checks import within
from asyncjax.steps.transformation import Transformation, Updated, transformation
from asyncjax.steps.trees import wide

Prox = Callable[[Any, jax.Array], Any]


class ProximalState(NamedTuple):
    """State of `proximal`."""

    forward_state: optax.OptState  # of the inner transformation


def proximal(inner: optax.GradientTransformation, prox: Prox) -> Transformation:
    """Applies a proximal operator to what an optimizer makes of the parameters.

    The update is prox(params + u, gamma) - params, where u is the update of `inner` and gamma the
    field `last_step_size` of its state. Where gamma is 0 the update is u: a zero step leaves the
    parameters alone. Every `update` needs `params`. Updates have the dtypes of the parameters:
    adding them gives exactly 0 wherever the operator does. The sum of parameters and update may
    miss a bound of `box` by one rounding error.

    Args:
        inner: A complete optimizer (sign flipped) with one `last_step_size` in its state, such as
            `delay_adaptive_sgd(...)` or `optax.chain(worst_case(...), optax.scale(-1.0))`.
        prox: Function of (tree like the parameters, step size) that returns such a tree: `l1`,
            `l2`, `box`, or your own.

    Example:
        >>> from asyncjax.steps import delay_adaptive_sgd, l1
        >>> optimizer = proximal(delay_adaptive_sgd(1.0, alpha=1.0), l1(0.5))
        >>> params = jnp.array([1.0, 3.0])
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update(jnp.array([0.6, 1.0]), state, params, delay=0)
        >>> optax.apply_updates(params, updates).tolist()
        [0.0, 1.5]
    """
    wrapped = optax.with_extra_args_support(inner)

    def init(params: optax.Params) -> ProximalState:
        state = wrapped.init(params)
        count = len(optax.tree.get_all_with_path(state, "last_step_size"))
        if count != 1:
            raise ValueError(
                f"inner must have one field last_step_size in its state, got {count}; for a"
                " constant step size, chain worst_case(step_size, 0) and optax.scale(-1.0)"
            )
        return ProximalState(state)

    def total(leaf: ArrayLike, update: ArrayLike) -> jax.Array:
        dtype = jnp.promote_types(wide(leaf), wide(update))
        return jnp.asarray(leaf).astype(dtype) + jnp.asarray(update).astype(dtype)

    def update(
        updates: optax.Updates, state: ProximalState, *, params: optax.Params, **extra: Any
    ) -> Updated:
        updates, forward_state = wrapped.update(updates, state.forward_state, params, **extra)
        step_size = optax.tree.get(forward_state, "last_step_size")
        like("params", params, updates, "the updates")
        target = prox(jax.tree.map(total, params, updates), step_size)
        like("what prox returns", target, params, "the parameters")

        def moved(leaf: ArrayLike, update: ArrayLike, point: jax.Array) -> jax.Array:
            dtype = jnp.result_type(leaf)
            plain = jnp.asarray(update).astype(dtype)
            return jnp.where(step_size == 0, plain, (point - leaf).astype(dtype))

        return jax.tree.map(moved, params, updates, target), ProximalState(forward_state)

    return transformation(init, update)


def l1(strength: ArrayLike) -> Prox:
    """Returns soft thresholding: sign(x) max(|x| - t strength, 0), the prox of strength ||x||_1.

    Args:
        strength: Weight of the regularizer, at least 0.

    Example:
        >>> l1(2.0)(jnp.array([-3.0, 0.5, 1.5]), 0.5).tolist()
        [-2.0, 0.0, 0.5]
    """
    number("strength", strength, least=0)

    def shrink(leaf: jax.Array, step_size: ArrayLike) -> jax.Array:
        amount = _product(step_size, strength, leaf)
        return jnp.sign(leaf) * jnp.maximum(jnp.abs(leaf) - amount, 0)

    return _by_leaf(shrink)


def l2(strength: ArrayLike) -> Prox:
    """Returns shrinking: x / (1 + t strength), the prox of strength ||x||^2 / 2.

    Args:
        strength: Weight of the regularizer, at least 0.

    Example:
        >>> l2(2.0)(jnp.array([-3.0, 1.0]), 0.5).tolist()
        [-1.5, 0.5]
    """
    number("strength", strength, least=0)
    return _by_leaf(lambda leaf, step_size: leaf / (1 + _product(step_size, strength, leaf)))


def elastic_net(l1_strength: ArrayLike, l2_strength: ArrayLike) -> Prox:
    """Returns `l1`, then `l2`: the prox of l1_strength ||x||_1 + l2_strength ||x||^2 / 2.

    Source: Zou, Hastie 2005, "Regularization and variable selection via the elastic net".

    Args:
        l1_strength, l2_strength: Weights of the two regularizers, at least 0.

    Example:
        >>> elastic_net(2.0, 2.0)(jnp.array([-3.0, 0.5, 2.0]), 0.5).tolist()
        [-1.0, 0.0, 0.5]
    """
    number("l1_strength", l1_strength, least=0)
    number("l2_strength", l2_strength, least=0)
    threshold, shrink = l1(l1_strength), l2(l2_strength)
    return lambda tree, step_size: shrink(threshold(tree, step_size), step_size)


def group(strength: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Prox:
    """Returns the shrinking of groups together, the prox of strength sum_g ||x_g||: group lasso.

    Source: Yuan, Lin 2006, "Model selection and estimation in regression with grouped variables".

    Args:
        strength: Weight of the regularizer, at least 0.
        axis: The axes of a leaf that make up a group; None makes every leaf one group. With 0, the
            weights into each unit of a dense layer [inputs, units] vanish together.

    Example:
        >>> group(1.0, axis=0)(jnp.array([[3.0, 0.3], [4.0, 0.4]]), 2.5).tolist()
        [[1.5, 0.0], [2.0, 0.0]]
    """
    number("strength", strength, least=0)

    def shrink(leaf: jax.Array, step_size: ArrayLike) -> jax.Array:
        values = leaf.astype(wide(leaf))
        norm = jnp.sqrt(jnp.sum(jnp.square(values), axis=axis, keepdims=True))
        amount = _product(step_size, strength, values)
        factor = jnp.maximum(1 - amount / jnp.where(norm > 0, norm, 1), 0)
        return (factor * values).astype(leaf.dtype)

    return _by_leaf(shrink)


def simplex(total: ArrayLike = 1.0) -> Prox:
    """Returns the projection of the whole tree onto {x >= 0, sum of all entries = total}.

    Args:
        total: The sum, positive.

    Example:
        >>> simplex(1.0)(jnp.array([1.0, 0.5, -2.0]), 0.1).tolist()
        [0.75, 0.25, 0.0]
    """
    number("total", total, above=0)

    def prox(tree: Any, step_size: ArrayLike) -> Any:
        number("step_size", step_size, least=0)
        moves = jnp.asarray(step_size) > 0
        return jax.tree.map(
            lambda new, old: jnp.where(moves, new, old).astype(jnp.result_type(old)),
            optax.projections.projection_simplex(tree, total),
            tree,
        )

    return prox


def box(low: ArrayLike, high: ArrayLike) -> Prox:
    """Returns clipping to [low, high], the prox of the indicator of a box.

    Args:
        low: Lower bound of every entry, one or an array of them; may be -infinity.
        high: Upper bound of every entry, at least `low`; may be infinity.

    Example:
        >>> box(0.0, 1.0)(jnp.array([-3.0, 0.5, 2.0]), 0.1).tolist()
        [0.0, 0.5, 1.0]
    """
    within("low", low, finite=False)
    within("high", high, finite=False)
    if not is_traced([low, high]) and not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(f"low must be at most high, got low {low} and high {high}")

    def clip(leaf: jax.Array, step_size: ArrayLike) -> jax.Array:
        lower, upper = (jnp.asarray(bound).astype(leaf.dtype) for bound in (low, high))
        return jnp.where(jnp.asarray(step_size) > 0, jnp.clip(leaf, lower, upper), leaf)

    return _by_leaf(clip)


def _by_leaf(change: Callable[[jax.Array, ArrayLike], jax.Array]) -> Prox:
    """The operator that treats every leaf by `change(leaf, step_size)`."""

    def prox(tree: Any, step_size: ArrayLike) -> Any:
        number("step_size", step_size, least=0)
        return jax.tree.map(lambda leaf: change(jnp.asarray(leaf), step_size), tree)

    return prox


def _product(step_size: ArrayLike, strength: ArrayLike, leaf: jax.Array) -> jax.Array:
    return (jnp.asarray(step_size) * strength).astype(leaf.dtype)
