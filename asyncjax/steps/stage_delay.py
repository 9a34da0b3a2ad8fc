r"""Step sizes for pipelines: every stage of a network has a delay of its own.

    factor(leaf, k) = max(1, tau_leaf)^-(1 - min(k / K, 1))

PipeMare (Yang, Zhang, Li, Ré, Aberger and De Sa 2019, arXiv 1910.05124): early in training a stage
with delay tau takes steps tau times shorter; over K updates the factor grows to 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.steps.arguments import number
from asyncjax.steps.delays import leaf_delays
from asyncjax.steps.scaling import scale_tree, wide_dtype
from asyncjax.steps.transformation import transformation


class StageDelayState(NamedTuple):
    """State of `scale_by_stage_delay`."""

    annealing_updates: jax.Array  # int32[], updates made, saturating


def scale_by_stage_delay(
    stage_delay: Any, anneal_updates: ArrayLike
) -> optax.GradientTransformationExtraArgs:
    """Multiplies every leaf by max(1, its delay)^-(1 - min(k / K, 1)).

    The rescaling of PipeMare (its technique 1). No extra is needed; goes in front of or behind the
    optimizer, as `scale_by_staleness`.

    Args:
        stage_delay: Delays in updates, at least 0: one number, or a tree of numbers that is a
            prefix of the tree of parameters.
        anneal_updates: K, updates until the factor is 1, at least 1.

    Returns:
        A transformation whose state counts the updates.

    Raises:
        TypeError: If `anneal_updates` is not an integer, or a delay not a number.
        ValueError: If a number is out of range; in `init`, if `stage_delay` is not a prefix of the
            parameters.

    Note:
        PipeMare also predicts the weights of the backward pass, which needs a hook in front of the
        gradient; a transformation cannot do that.

    Example:
        >>> rule = scale_by_stage_delay({"first": 4, "last": 0}, anneal_updates=2)
        >>> grads = {"first": jnp.float32(8.0), "last": jnp.float32(8.0)}
        >>> state = rule.init(grads)
        >>> for _ in range(3):
        ...     updates, state = rule.update(grads, state)
        ...     print(float(updates["first"]), float(updates["last"]))
        2.0 8.0
        4.0 8.0
        8.0 8.0

    Reference:
        Yang et al. 2019, "PipeMare: asynchronous pipeline parallel DNN training", arXiv 1910.05124.
    """
    if not jax.tree.leaves(stage_delay):
        raise ValueError(f"stage_delay must be a number or a tree of numbers, got {stage_delay!r}")
    for delay in jax.tree.leaves(stage_delay):
        number("stage_delay", delay, least=0)
    number("anneal_updates", anneal_updates, least=1, integer=True)

    def init(params: optax.Params) -> StageDelayState:
        leaf_delays(stage_delay, params)
        return StageDelayState(annealing_updates=jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: StageDelayState
    ) -> tuple[optax.Updates, StageDelayState]:
        dtype = wide_dtype(updates)
        made = state.annealing_updates.astype(dtype)
        power = 1 - jnp.minimum(made / jnp.asarray(anneal_updates).astype(dtype), 1)

        def scaled(leaf: Any, delay: Any) -> Any:
            return scale_tree(leaf, jnp.maximum(1, jnp.asarray(delay, dtype)) ** -power)

        updates = jax.tree.map(scaled, updates, leaf_delays(stage_delay, updates))
        count = jnp.asarray(optax.safe_increment(state.annealing_updates))
        return updates, StageDelayState(annealing_updates=count)

    return transformation(init, update)
