"""Proximal operators of simple regularizers, prox(x, t) = argmin_z t R(z) + ||z - x||^2 / 2.

    l1            R = strength ||x||_1           sign(x) max(|x| - t strength, 0)
    l2            R = strength ||x||^2 / 2       x / (1 + t strength)
    elastic_net   R = both                       l1, then l2
    group         R = strength sum_g ||x_g||     x_g max(1 - t strength / ||x_g||, 0)
    box           R = 0 on [low, high]           clip(x, low, high)
    simplex       R = 0 where x >= 0, sum x = s  Euclidean projection (optax)

For t = 0 every operator leaves x alone. All but `simplex` act on entries or leaves, so they may
follow steps on blocks of whole leaves; `l1`, `l2`, `elastic_net` and `box` may follow steps on any
block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import is_traced, numbers
from asyncjax.checks import whole, within
from asyncjax.steps.arguments import number
from asyncjax.steps.proximal import Prox

_MOST_AXES = 64  # of an array of NumPy


def l1(strength: ArrayLike) -> Prox:
    """Soft thresholding: sign(x) max(|x| - t strength, 0), the prox of strength ||x||_1.

    Args:
        strength: Weight of the regularizer, at least 0.

    Returns:
        A function of (tree, step size t); dtypes are kept, small entries become exactly 0.

    Raises:
        TypeError: If `strength` is not a number.
        ValueError: If `strength` is negative.

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
    """Shrinking: x / (1 + t strength), the prox of strength ||x||^2 / 2.

    Args:
        strength: Weight of the regularizer, at least 0.

    Returns:
        A function of (tree, step size t); dtypes are kept.

    Raises:
        TypeError: If `strength` is not a number.
        ValueError: If `strength` is negative.

    Example:
        >>> l2(2.0)(jnp.array([-3.0, 1.0]), 0.5).tolist()
        [-1.5, 0.5]
    """
    number("strength", strength, least=0)
    return _by_leaf(lambda leaf, step_size: leaf / (1 + _product(step_size, strength, leaf)))


def elastic_net(l1_strength: ArrayLike, l2_strength: ArrayLike) -> Prox:
    """Soft thresholding, then shrinking: the prox of l1_strength ||x||_1 + l2_strength ||x||^2 / 2.

    Args:
        l1_strength: Weight of the sum of absolute values, at least 0.
        l2_strength: Weight of half the sum of squares, at least 0.

    Returns:
        A function of (tree, step size t); dtypes are kept, small entries become exactly 0.

    Raises:
        TypeError: If a strength is not a number.
        ValueError: If a strength is negative.

    Example:
        >>> elastic_net(2.0, 2.0)(jnp.array([-3.0, 0.5, 2.0]), 0.5).tolist()
        [-1.0, 0.0, 0.5]

    Reference:
        Zou, Hastie 2005, "Regularization and variable selection via the elastic net".
    """
    number("l1_strength", l1_strength, least=0)
    number("l2_strength", l2_strength, least=0)
    threshold, shrink = l1(l1_strength), l2(l2_strength)
    return lambda tree, step_size: shrink(threshold(tree, step_size), step_size)


def group(strength: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Prox:
    """Shrinks groups of entries together: the prox of strength sum_g ||x_g||, the group lasso.

    Args:
        strength: Weight of the regularizer, at least 0.
        axis: The axes of a leaf that make up a group; None makes every leaf one group. With 0, the
            weights into each unit of a dense layer [inputs, units] vanish together.

    Returns:
        A function of (tree, step size t); dtypes are kept, small groups become exactly 0.

    Raises:
        TypeError: If `strength` is not a number, or `axis` is not an integer or a tuple of them.
        ValueError: If `strength` is negative; in use, if a leaf lacks an axis.

    Example:
        >>> group(1.0, axis=0)(jnp.array([[3.0, 0.3], [4.0, 0.4]]), 2.5).tolist()
        [[1.5, 0.0], [2.0, 0.0]]

    Reference:
        Yuan, Lin 2006, "Model selection and estimation in regression with grouped variables".
    """
    number("strength", strength, least=0)
    if axis is not None:
        known = axis if isinstance(axis, tuple) else (axis,)
        axis = tuple(whole("axis", one, -_MOST_AXES, _MOST_AXES) for one in known)

    def shrink(leaf: jax.Array, step_size: ArrayLike) -> jax.Array:
        if axis is not None and any(not -leaf.ndim <= one < leaf.ndim for one in axis):
            raise ValueError(f"axis must be one of a leaf of shape {leaf.shape}, got {axis}")
        wide = leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))
        norm = jnp.sqrt(jnp.sum(jnp.square(wide), axis=axis, keepdims=True))
        amount = _product(step_size, strength, wide)
        factor = jnp.maximum(1 - amount / jnp.where(norm > 0, norm, 1), 0)
        return (factor * wide).astype(leaf.dtype)

    return _by_leaf(shrink)


def simplex(total: ArrayLike = 1.0) -> Prox:
    """Projection of the whole tree onto {x >= 0, sum of all entries = total}.

    Args:
        total: The sum, positive.

    Returns:
        A function of (tree, step size t); dtypes are kept. The set does not depend on t, except
        that t = 0 leaves the tree alone.

    Raises:
        TypeError: If `total` is not a number.
        ValueError: If `total` is not positive.

    Example:
        >>> simplex(1.0)(jnp.array([1.0, 0.5, -2.0]), 0.1).tolist()
        [0.75, 0.25, 0.0]
    """
    number("total", total, above=0)

    def prox(tree: Any, step_size: ArrayLike) -> Any:
        numbers("tree", tree)
        number("step_size", step_size, least=0)
        projected = optax.projections.projection_simplex(tree, total)
        moves = jnp.asarray(step_size) > 0
        return jax.tree.map(
            lambda new, old: jnp.where(moves, new, old).astype(jnp.result_type(old)),
            projected,
            tree,
        )

    return prox


def box(low: ArrayLike, high: ArrayLike) -> Prox:
    """Clipping to [low, high], the prox of the indicator of a box.

    Args:
        low: Lower bound of every entry, one or an array of them; may be -infinity.
        high: Upper bound of every entry, at least `low`; may be infinity.

    Returns:
        A function of (tree, step size t); dtypes are kept. The bound does not depend on t, except
        that t = 0 leaves the tree alone.

    Raises:
        TypeError: If a bound is not made of numbers.
        ValueError: If `low` is above `high`, or one is NaN; in use, if an array of bounds does not
            fit a leaf.

    Example:
        >>> box(0.0, 1.0)(jnp.array([-3.0, 0.5, 2.0]), 0.1).tolist()
        [0.0, 0.5, 1.0]
    """
    for name, bound in (("low", low), ("high", high)):
        within(name, bound, finite=False)
        if 0 in np.shape(bound):
            raise ValueError(f"{name} must be one number or an array of them, got none")
    if not is_traced([low, high]):
        try:
            ordered = np.all(np.asarray(low) <= np.asarray(high))
        except ValueError:  # shapes that do not go together
            shapes = f"shapes {np.shape(low)} and {np.shape(high)}"
            raise ValueError(f"low and high must fit each other, got {shapes}") from None
        if not ordered:
            raise ValueError(f"low must be at most high, got low {low} and high {high}")
    bounds = np.broadcast_shapes(np.shape(low), np.shape(high))

    def clip(leaf: jax.Array, step_size: ArrayLike) -> jax.Array:
        if len(bounds) > leaf.ndim or any(
            own not in (1, there)
            for own, there in zip(bounds[::-1], leaf.shape[::-1], strict=False)
        ):
            raise ValueError(f"low and high must fit leaves of shape {leaf.shape}, got {bounds}")
        lower, upper = (jnp.asarray(bound).astype(leaf.dtype) for bound in (low, high))
        return jnp.where(jnp.asarray(step_size) > 0, jnp.clip(leaf, lower, upper), leaf)

    return _by_leaf(clip)


def _by_leaf(change: Callable[[jax.Array, ArrayLike], jax.Array]) -> Prox:
    """The operator that treats every leaf by `change(leaf, step_size)`."""

    def prox(tree: Any, step_size: ArrayLike) -> Any:
        numbers("tree", tree)
        number("step_size", step_size, least=0)
        return jax.tree.map(lambda leaf: change(jnp.asarray(leaf), step_size), tree)

    return prox


def _product(step_size: ArrayLike, strength: ArrayLike, leaf: jax.Array) -> jax.Array:
    return (jnp.asarray(step_size) * strength).astype(leaf.dtype)
