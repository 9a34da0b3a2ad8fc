r"""FADAS: an adaptive server whose step shrinks when a delay is extraordinary.

    m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   h <- max(h, v)
    x <- x - eta_t m / (sqrt(h) + eps),   eta_t = eta if delay <= tau_c else min(eta, 1 / delay)

Wang, Wang, Lu and Chen 2024 (ICML, arXiv 2407.18365): AMSGrad without bias correction, fed with the
mean of the buffered pseudo-gradients of several workers; the delay is the largest of the buffer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.steps.arguments import number
from asyncjax.steps.delays import late
from asyncjax.steps.scaling import scale_tree, wide_dtype
from asyncjax.steps.transformation import transformation


class FadasState(NamedTuple):
    """State of `fadas`."""

    first_moment: optax.Updates  # tree like the parameters
    second_moment: optax.Updates  # tree like the parameters
    largest_second_moment: optax.Updates  # tree like the parameters
    last_step_size: jax.Array  # float[], eta_t of the last update
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def fadas(
    learning_rate: ArrayLike,
    delay_threshold: ArrayLike,
    *,
    b1: ArrayLike = 0.9,
    b2: ArrayLike = 0.99,
    epsilon: ArrayLike = 1e-8,
) -> optax.GradientTransformationExtraArgs:
    """Adaptive asynchronous server steps with a delay-adaptive learning rate.

    A complete optimizer: the sign is flipped. Every `update` needs the extra `delay`. Replay it on
    a trace with `collect=traces.buffered(M)` and `problems.local_steps` for the paper's setting.

    Args:
        learning_rate: eta, positive. The bound 1 / delay is absolute: it only bites for a large
            eta.
        delay_threshold: tau_c, longest delay with a full step, at least 0, in updates.
        b1: Decay of the first moment, in [0, 1).
        b2: Decay of the second moment, in [0, 1).
        epsilon: Added to the root of the second moment, at least 0.

    Returns:
        An optimizer whose state has the field `last_step_size`.

    Raises:
        TypeError: If an argument is not a number; in `update`, if `delay` is not an integer.
        ValueError: If an argument is out of range; in `update`, if `delay` is negative or the
            updates are not like the parameters.

    Example:
        >>> optimizer = fadas(0.5, delay_threshold=2, epsilon=0.0)
        >>> params = jnp.float32(1.0)
        >>> state = optimizer.init(params)
        >>> for delay in (2, 5):
        ...     update, state = optimizer.update(jnp.float32(4.0), state, params, delay=delay)
        ...     print(f"{update:.3f} {state.last_step_size:.1f}")
        -0.500 0.5
        -0.269 0.2

    Reference:
        Wang, Wang, Lu, Chen 2024, "FADAS: towards federated adaptive asynchronous optimization",
        arXiv 2407.18365.
    """
    number("learning_rate", learning_rate, above=0)
    number("delay_threshold", delay_threshold, least=0, finite=False)
    number("b1", b1, least=0, below=1)
    number("b2", b2, least=0, below=1)
    number("epsilon", epsilon, least=0)

    def init(params: optax.Params) -> FadasState:
        zeros = optax.tree.zeros_like(params)
        return FadasState(zeros, zeros, zeros, jnp.zeros((), wide_dtype(params)))

    def average(decay: ArrayLike) -> Any:
        def mean(old: jax.Array, new: jax.Array) -> jax.Array:
            kept = jnp.asarray(decay, wide_dtype(old))
            return (kept * old + (1 - kept) * new).astype(old.dtype)

        return mean

    def update(
        updates: optax.Updates, state: FadasState, *, delay: ArrayLike
    ) -> tuple[optax.Updates, FadasState]:
        like("updates", updates, state.first_moment, "the parameters that init got")
        dtype = state.last_step_size.dtype
        staleness, full = late(delay, dtype), jnp.asarray(learning_rate).astype(dtype)
        bounded = jnp.minimum(full, 1 / jnp.maximum(1, staleness))
        ordinary = staleness <= jnp.asarray(delay_threshold).astype(dtype)
        step = jnp.where(ordinary, full, bounded)
        first = jax.tree.map(average(b1), state.first_moment, updates)
        squares = jax.tree.map(jnp.square, updates)
        second = jax.tree.map(average(b2), state.second_moment, squares)
        largest = jax.tree.map(jnp.maximum, state.largest_second_moment, second)

        def direction(mean: jax.Array, square: jax.Array) -> jax.Array:
            return mean / (jnp.sqrt(square) + jnp.asarray(epsilon, square.dtype))

        moved = scale_tree(jax.tree.map(direction, first, largest), -step)
        return moved, FadasState(first, second, largest, step)

    return transformation(init, update)
