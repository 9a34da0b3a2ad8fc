"""Advantages: what a sample's reward is compared with.

Of rewards R float[B] and prompts q int32[B] (samples of one prompt bear one number):

    plain            A_i = R_i
    batch_mean       A_i = R_i - mean_j R_j
    leave_one_out    A_i = R_i - mean of the other R_j
    group_mean       A_i = R_i - mean of R_j with q_j = q_i                        (GRPO)
    group_others     A_i = R_i - mean of the other R_j with q_j = q_i              (RLOO)

A baseline that does not depend on the sample itself leaves the gradient unbiased; a mean that it is
part of shrinks it, by (m - 1) / m of m samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

Advantage = Callable[[jax.Array, jax.Array], jax.Array]  # (rewards[B], prompts[B]) -> float[B]
_TINY = 1e-6


def _plain(rewards: jax.Array, prompts: jax.Array) -> jax.Array:
    return rewards


@dataclass(frozen=True)
class _Compared:
    """With the mean of the batch or of the group, the sample itself among it or not."""

    in_group: bool
    leave_out: bool
    scaled: bool = False

    def __call__(self, rewards: jax.Array, prompts: jax.Array) -> jax.Array:
        if not self.in_group and not self.leave_out:
            return rewards - jnp.mean(rewards)
        peers = jnp.ones((rewards.size, rewards.size), bool)
        if self.in_group:
            peers = prompts[:, None] == prompts
        if self.leave_out:
            peers = peers & ~jnp.eye(rewards.size, dtype=bool)
        count = jnp.maximum(jnp.sum(peers, 1), 1).astype(rewards.dtype)
        apart = rewards - jnp.sum(jnp.where(peers, rewards, 0), 1) / count
        if not self.scaled:
            return apart
        spread = jnp.sqrt(jnp.sum(jnp.where(peers, apart**2, 0), 1) / count)
        return apart / (spread + _TINY)


def plain() -> Advantage:
    """The reward itself: unbiased, and of the largest variance.

    Example:
        >>> plain()(jnp.array([1.0, 3.0]), jnp.array([0, 1])).tolist()
        [1.0, 3.0]
    """
    return _plain


def batch_mean() -> Advantage:
    """What it is above the mean of the batch: the gradient is (B - 1) / B of the unbiased one.

    Example:
        >>> batch_mean()(jnp.array([1.0, 3.0]), jnp.array([0, 1])).tolist()
        [-1.0, 1.0]
    """
    return _Compared(in_group=False, leave_out=False)


def leave_one_out() -> Advantage:
    """What it is above the mean of the rest of the batch: unbiased, where samples are independent.

    A batch of one is compared with 0.

    Example:
        >>> leave_one_out()(jnp.array([1.0, 3.0]), jnp.array([0, 1])).tolist()
        [-2.0, 2.0]
    """
    return _Compared(in_group=False, leave_out=True)


def group_mean(*, scaled: bool = False) -> Advantage:
    """Returns what it is above the mean of the samples of its prompt in the batch.

    Args:
        scaled: Divided by their standard deviation (and 1e-6), which gives prompts that are nearly
            always or nearly never solved more weight than the expected reward does.

    Reference:
        Shao et al. 2024 (arXiv 2402.03300), GRPO, with `scaled=True`; recalled.

    Example:
        >>> rewards, prompts = jnp.array([1.0, 3.0, 9.0, 9.0]), jnp.array([0, 0, 1, 1])
        >>> group_mean()(rewards, prompts).tolist()
        [-1.0, 1.0, 0.0, 0.0]
    """
    return _Compared(in_group=True, leave_out=False, scaled=scaled)


def group_others() -> Advantage:
    """What it is above the mean of the other samples of its prompt that are in the batch.

    One that is alone there is compared with 0.

    Reference:
        Kool, van Hoof, Welling 2019; Ahmadian et al. 2024 (arXiv 2402.14740), RLOO; recalled.

    Example:
        >>> rewards, prompts = jnp.array([1.0, 3.0, 9.0, 9.0]), jnp.array([0, 0, 1, 1])
        >>> group_others()(rewards, prompts).tolist()
        [-2.0, 2.0, 0.0, 0.0]
    """
    return _Compared(in_group=True, leave_out=True)
