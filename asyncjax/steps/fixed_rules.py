"""Constant steps that are safe for the longest delay, to compare with.

    worst case   gamma' / (max_delay + 1)
    sun          gamma' / (max_delay + 1/2)
    davis        h / (L_block + 2 L_across max_delay / sqrt(m))             m blocks

They need to know the longest delay beforehand; taking it from a finished run flatters them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.steps.arguments import number
from asyncjax.steps.transformation import scaled_by


def worst_case(step_size: ArrayLike, max_delay: ArrayLike) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by gamma' / (max_delay + 1), the largest safe constant.

    It is the largest constant that keeps gamma_k <= gamma' - window_k, the condition of
    `scale_by_adaptive_1`, when delays reach `max_delay`. The sign is not flipped. No extra is
    needed; `delay` is ignored. With `max_delay=0` it is a plain constant step that `proximal` can
    read.

    Args:
        step_size: gamma' = h / L with h in (0, 1).
        max_delay: Longest delay of the run, at least 0, in updates.

    Returns:
        A transformation whose state has the field `last_step_size`.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If `step_size` is not positive or `max_delay` negative.

    Example:
        >>> rule = worst_case(1.0, max_delay=4)
        >>> update, state = rule.update(jnp.float32(10.0), rule.init(jnp.float32(0.0)), delay=2)
        >>> print(f"{update:.1f}")
        2.0
    """
    return _offset(step_size, max_delay, 1.0)


def sun(step_size: ArrayLike, max_delay: ArrayLike) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by gamma' / (max_delay + 1/2), with which papers on delays compare.

    Slightly longer than `worst_case`. The sign is not flipped; `delay` is ignored.

    Args:
        step_size: gamma' = h / L with h in (0, 1).
        max_delay: Longest delay of the run, at least 0, in updates.

    Returns:
        A transformation whose state has the field `last_step_size`.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If `step_size` is not positive or `max_delay` negative.

    Note:
        With `max_delay=0` this is 2 gamma', twice what `scale_by_adaptive_1` could ever take.

    Example:
        >>> rule = sun(1.0, max_delay=2)
        >>> update, state = rule.update(jnp.float32(10.0), rule.init(jnp.float32(0.0)))
        >>> print(f"{update:.1f}")
        4.0
    """
    return _offset(step_size, max_delay, 0.5)


def davis(
    block_smoothness: ArrayLike,
    across_smoothness: ArrayLike,
    *,
    n_blocks: ArrayLike,
    max_delay: ArrayLike,
    safety: ArrayLike = 0.99,
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by h / (L_block + 2 L_across max_delay / sqrt(m)), for block descent.

    A fixed rule in the line of Davis 2016 that counts on random blocks: two writes seldom meet in
    one block, so that the delay counts only by its share of sqrt(m). The sign is not flipped;
    `delay` is ignored.

    Args:
        block_smoothness: L_block, the largest Lipschitz constant of one block's gradient along it,
            positive.
        across_smoothness: L_across, of the whole gradient along one block, at least 0.
        n_blocks: m, at least 1.
        max_delay: Longest delay of the run, at least 0, in updates.
        safety: The share h, in (0, 1].

    Returns:
        A transformation whose state has the field `last_step_size`.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If an argument is out of range.

    Note:
        The formula was reconstructed from memory of the literature, not from the paper's text; here
        it serves as a rival only.

    Example:
        >>> rule = davis(1.0, 2.0, n_blocks=16, max_delay=4, safety=1.0)
        >>> update, state = rule.update(jnp.float32(10.0), rule.init(jnp.float32(0.0)))
        >>> print(f"{update:.1f}")
        2.0
    """
    number("block_smoothness", block_smoothness, above=0)
    number("across_smoothness", across_smoothness, least=0)
    number("n_blocks", n_blocks, least=1)
    number("max_delay", max_delay, least=0)
    number("safety", safety, above=0, most=1)

    def step(dtype: Any) -> jax.Array:
        own, across, blocks, longest, share = (
            jnp.asarray(value).astype(dtype)
            for value in (block_smoothness, across_smoothness, n_blocks, max_delay, safety)
        )
        return share / (own + 2 * across * longest / jnp.sqrt(blocks))

    return scaled_by(step)


def _offset(
    step_size: ArrayLike, max_delay: ArrayLike, offset: float
) -> optax.GradientTransformationExtraArgs:
    number("step_size", step_size, above=0)
    number("max_delay", max_delay, least=0)

    def step(dtype: Any) -> jax.Array:
        longest = jnp.asarray(max_delay).astype(dtype)
        return jnp.asarray(step_size).astype(dtype) / (longest + offset)

    return scaled_by(step)
