"""Proximal operators of simple regularizers, prox(x, t) = argmin_z t R(z) + ||z - x||^2 / 2.

    l1    R = strength ||x||_1        sign(x) max(|x| - t strength, 0)
    l2    R = strength ||x||^2 / 2    x / (1 + t strength)
    box   R = 0 on [low, high]        clip(x, low, high)

For t = 0 every operator leaves x alone.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.steps.arguments import check_at_least, is_plain
from asyncjax.steps.proximal import Prox


def l1(strength: jax.typing.ArrayLike) -> Prox:
    """Soft thresholding: sign(x) max(|x| - t strength, 0), the prox of strength ||x||_1.

    Args:
      strength: weight of the regularizer, at least 0.

    Returns:
      A function of (tree, step size t); dtypes are kept, small entries become exactly 0.

    Raises:
      ValueError: if `strength` is negative.

    Example:
      >>> l1(2.0)(jnp.array([-3.0, 0.5, 1.5]), 0.5).tolist()
      [-2.0, 0.0, 0.5]
    """
    check_at_least(strength, "strength", 0)

    def prox(tree: Any, step_size: jax.typing.ArrayLike) -> Any:
        def shrink(leaf: jax.Array) -> jax.Array:
            amount = _product(step_size, strength, leaf)
            return jnp.sign(leaf) * jnp.maximum(jnp.abs(leaf) - amount, 0)

        return _each_leaf(shrink, tree)

    return prox


def l2(strength: jax.typing.ArrayLike) -> Prox:
    """Shrinking: x / (1 + t strength), the prox of strength ||x||^2 / 2.

    Args:
      strength: weight of the regularizer, at least 0.

    Returns:
      A function of (tree, step size t); dtypes are kept.

    Raises:
      ValueError: if `strength` is negative.

    Example:
      >>> l2(2.0)(jnp.array([-3.0, 1.0]), 0.5).tolist()
      [-1.5, 0.5]
    """
    check_at_least(strength, "strength", 0)

    def prox(tree: Any, step_size: jax.typing.ArrayLike) -> Any:
        return _each_leaf(lambda leaf: leaf / (1 + _product(step_size, strength, leaf)), tree)

    return prox


def box(low: jax.typing.ArrayLike, high: jax.typing.ArrayLike) -> Prox:
    """Clipping to [low, high], the prox of the indicator of a box.

    Args:
      low: lower bound of every entry; may be -infinity.
      high: upper bound of every entry, at least `low`; may be infinity.

    Returns:
      A function of (tree, step size t); dtypes are kept. The bound does not depend on t, except that
      t = 0 leaves the tree alone.

    Raises:
      ValueError: if `low` is above `high`.

    Example:
      >>> box(0.0, 1.0)(jnp.array([-3.0, 0.5, 2.0]), 0.1).tolist()
      [0.0, 0.5, 1.0]
    """
    if is_plain(low) and is_plain(high) and not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(f"low must be at most high, got low {low} and high {high}.")

    def prox(tree: Any, step_size: jax.typing.ArrayLike) -> Any:
        def clip(leaf: jax.Array) -> jax.Array:
            lower, upper = (jnp.asarray(bound).astype(leaf.dtype) for bound in (low, high))
            return jnp.where(jnp.asarray(step_size) > 0, jnp.clip(leaf, lower, upper), leaf)

        return _each_leaf(clip, tree)

    return prox


def _product(
    step_size: jax.typing.ArrayLike, strength: jax.typing.ArrayLike, leaf: jax.Array
) -> jax.Array:
    return (jnp.asarray(step_size) * strength).astype(leaf.dtype)


def _each_leaf(function: Any, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: function(jnp.asarray(leaf)), tree)
