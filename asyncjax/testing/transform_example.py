"""The small problem on which transformations are checked: parameters, gradients and extras.

loss(x) = ||x - 1||^2 / 2,     gradients of the checks: cos(1), cos(2), ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.testing.arguments import (
    extras_of_one,
    parameters,
    transformation,
    update_number,
)

Extras = Mapping[str, Any] | Callable[[Any, Any], Mapping[str, Any]]

NO_EXTRAS: Mapping[str, Any] = MappingProxyType({})


def example_extras(params: optax.Params, step: Any) -> dict[str, Any]:
    """Returns every extra that a loop of this library hands to an optimizer, for one update.

    Three workers in turn; delays 0, 1, 2 in turn; parameters read a tenth away from now.

    Args:
        params: The current parameters.
        step: Number of the update, an int or an int32 scalar.

    Returns:
        A dictionary with `delay`, `worker`, `block`, `time`, `place`, `key`, `read_params` and
        `worker_params`.

    Raises:
        TypeError: If `params` is not a tree of floating-point arrays, or `step` not an integer.
        ValueError: If `params` is not finite, or `step` negative.

    Example:
        >>> extras = example_extras(jnp.float32(2.0), 4)
        >>> extras["delay"], extras["time"], float(extras["worker_params"])
        (1, 5.0, 1.5)
    """
    parameters("params", params)
    update_number("step", step)
    return {
        "delay": step % 3,
        "worker": step % 3,
        "block": step % 3,
        "time": 1.0 + step,
        "place": step % 2,
        "key": jax.random.fold_in(jax.random.key(0), step),
        "read_params": jax.tree.map(lambda leaf: leaf * jnp.asarray(0.9, leaf.dtype), params),
        "worker_params": jax.tree.map(lambda leaf: (leaf + 1) / 2, params),
    }


def started(
    transform: optax.GradientTransformation, params: Any
) -> tuple[optax.GradientTransformationExtraArgs, Any]:
    """Returns the transformation with extras allowed, and the parameters to start from."""
    if params is None:
        params = {"bias": jnp.float32(0.5), "weight": jnp.array([-1.0, 2.0, 0.25], jnp.float32)}
    transformation("transform", transform)
    return optax.with_extra_args_support(transform), parameters("params", params)


def example_gradients(params: optax.Params, step: int = 0) -> optax.Updates:
    """Returns gradients like `params`: fixed numbers in [-1, 1] that differ from step to step.

    Example:
        >>> print(f"{example_gradients(jnp.float32(0.0), step=1):.4f}")
        -0.4161
    """

    def gradient(leaf: ArrayLike) -> jax.Array:
        leaf = jnp.asarray(leaf)
        numbers = np.cos(np.arange(1, leaf.size + 1) + step).reshape(leaf.shape)
        return jnp.asarray(numbers, leaf.dtype)

    return jax.tree.map(gradient, params)


def given_extras(extras: Extras, params: optax.Params, step: Any) -> dict[str, Any]:
    """Returns the extras of one update, from a mapping or a function of (params, step).

    Example:
        >>> given_extras(lambda params, step: {"worker": step % 3}, None, 4)
        {'worker': 1}
    """
    return extras_of_one("extras", extras, params, step)


def apply_in_loop(
    transform: optax.GradientTransformation, extras: Extras, params: Any, n_steps: int
) -> tuple[list[optax.Updates], optax.OptState]:
    """Returns the updates for `n_steps` example gradients, one compiled call each; the last state.

    Example:
        >>> updates, _ = apply_in_loop(optax.scale(2.0), {}, jnp.float32(0.0), 4)
        >>> len(updates), updates[0].dtype.name
        (4, 'float32')
    """
    step = _compiled(optax.with_extra_args_support(transform))
    state, outputs = transform.init(params), []
    for k in range(n_steps):
        extra = given_extras(extras, params, k)
        updates, state = step(example_gradients(params, k), state, params, extra)
        outputs.append(updates)
    return outputs, state


@lru_cache(maxsize=8)
def _compiled(
    transform: optax.GradientTransformationExtraArgs,
) -> Callable[[Any, Any, Any, dict[str, Any]], Any]:
    """The jitted `update`, one for all checks of a transformation."""

    @jax.jit
    def update(grads: Any, state: Any, params: Any, extra: dict[str, Any]) -> Any:
        return transform.update(grads, state, params, **extra)

    return update


def assert_same(actual: Any, expected: Any, what: str) -> None:
    """Compares two trees of numbers, to six digits; `what` is for the message.

    Example:
        >>> assert_same(jnp.ones(2), jnp.ones(2), "ones")
    """
    chex.assert_trees_all_close(
        *jax.tree.map(_numbers, (actual, expected)), rtol=2e-6, atol=1e-6, custom_message=what
    )


def _numbers(leaf: Any) -> Any:
    """The leaf itself, of typed keys their numbers."""
    is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
