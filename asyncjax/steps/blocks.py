r"""Steps that touch one block of the parameters.

    x_j <- x_j + optimizer(grad_j),     all other blocks stay        j = block of this update

With a gradient taken at old parameters, the current x_j and a delay-adaptive step this is
asynchronous block-coordinate descent (Wu et al. 2022, arXiv 2202.08550). The block is cut out of
the gradient before the inner optimizer and out of its result after it, since momentum, adam or a
proximal operator would move the other blocks too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.checks import whole
from asyncjax.steps.transformation import Transformation, Updated, check_extra, transformation
from asyncjax.steps.trees import scalar

_DRAW = 0x626C6F63  # sets the draw of a block apart from other uses of a job's key


def block_labels(params: Any, n_blocks: int | None = None) -> Any:
    """Returns the number of the block of every entry of the parameters.

    The tree is read leaf after leaf as one long vector and cut into `n_blocks` contiguous pieces;
    when they cannot be equal, the first ones are longer by one entry.

    Args:
        params: Tree of arrays with d entries in all.
        n_blocks: Number of blocks m, 1 to d; None makes every leaf a block.

    Returns:
        A tree like `params` of NumPy int32 arrays with values 0 .. m - 1.

    Example:
        >>> block_labels({"b": np.zeros(1), "w": np.zeros((2, 2))}, 2)["w"].tolist()
        [[0, 0], [1, 1]]
    """
    leaves, structure = jax.tree.flatten(params)
    shapes = [np.shape(leaf) for leaf in leaves]
    sizes = [int(np.prod(shape)) for shape in shapes]
    if n_blocks is None:
        owners = np.repeat(np.arange(len(leaves)), sizes)
    else:
        n_blocks = whole("n_blocks", n_blocks)
        if leaves and n_blocks > sum(sizes):
            raise ValueError(
                f"n_blocks must be at most the number of parameters in params, {sum(sizes)}, got"
                f" {n_blocks}"
            )
        pieces = [len(piece) for piece in np.array_split(np.arange(sum(sizes)), n_blocks)]
        owners = np.repeat(np.arange(n_blocks), pieces)
    cut = np.split(owners.astype(np.int32), np.cumsum(sizes)[:-1])
    labels = [part.reshape(shape) for part, shape in zip(cut, shapes, strict=False)]
    return jax.tree.unflatten(structure, labels)


def draw_block(key: jax.Array, n_blocks: int) -> jax.Array:
    """Draws a block, int32[] in 0 .. m - 1, from the key of a job; other draws stay independent."""
    return jax.random.randint(jax.random.fold_in(key, _DRAW), (), 0, n_blocks, jnp.int32)


class BlockState(NamedTuple):
    """State of `update_block` and `random_block`."""

    last_block: jax.Array  # int32[], the block of the last update; -1 before the first
    block_inner_state: optax.OptState  # of the inner transformation
    invalid_extras: jax.Array  # int32[], traced blocks out of range so far


def update_block(
    inner: optax.GradientTransformation, n_blocks: int | None = None
) -> Transformation:
    """Lets an optimizer see and move one block of the parameters at a time.

    Every `update` needs the extra `block`; all other extras reach `inner`. Updates are exact zeros
    outside the block. A traced block out of range moves nothing, and is counted in
    `invalid_extras`. The inner state is one for all blocks: moments of adam decay for blocks that
    are not touched.

    Args:
        inner: A complete optimizer, such as `delay_adaptive_sgd(...)`; with a proximal operator,
            one that acts on entries (or whole leaves, with a block a leaf).
        n_blocks: Number of contiguous blocks, as in `block_labels`; None makes every leaf a block.

    Example:
        >>> optimizer = update_block(optax.sgd(1.0), n_blocks=2)
        >>> params = jnp.ones(4)
        >>> state = optimizer.init(params)
        >>> optimizer.update(params, state, params, block=1)[0].tolist()
        [0.0, 0.0, -1.0, -1.0]
    """
    if n_blocks is not None:
        n_blocks = whole("n_blocks", n_blocks)
    wrapped = optax.with_extra_args_support(inner)

    def init(params: optax.Params) -> BlockState:
        block_labels(params, n_blocks)
        none, zero = jnp.full((), -1, jnp.int32), jnp.zeros((), jnp.int32)
        return BlockState(none, wrapped.init(params), zero)

    def update(
        updates: Any, state: BlockState, *, params: Any = None, block: ArrayLike, **extra: Any
    ) -> Updated:
        count = len(jax.tree.leaves(updates)) if n_blocks is None else n_blocks
        wrong = state.invalid_extras + check_extra("block", block, count or None)
        block, labels = scalar("block", block), block_labels(updates, n_blocks)
        alone, inner_state = _only(updates, labels, block), state.block_inner_state
        moved, inner_state = wrapped.update(alone, inner_state, params, block=block, **extra)
        return _only(moved, labels, block), BlockState(block, inner_state, wrong)

    return transformation(init, update)


def random_block(inner: optax.GradientTransformation, n_blocks: int) -> Transformation:
    """As `update_block`, with the block drawn uniformly from the extra `key` of every update.

    `simulation.replay` hands the key of the job: a replay with this wrapper is asynchronous
    block-coordinate descent with consistent reads.

    Args:
        inner: A complete optimizer.
        n_blocks: Number of contiguous blocks m, at least 1.

    Example:
        >>> optimizer = random_block(optax.sgd(1.0), n_blocks=4)
        >>> params = jnp.ones(4)
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update(params, state, params, key=jax.random.key(0))
        >>> float(updates.sum()), float(updates[state.last_block])
        (-1.0, -1.0)
    """
    n_blocks = whole("n_blocks", n_blocks)
    chosen = update_block(inner, n_blocks)

    def update(
        updates: Any, state: BlockState, *, params: Any = None, key: jax.Array, **extra: Any
    ) -> Updated:
        extra["block"] = draw_block(key, n_blocks)
        return chosen.update(updates, state, params, key=key, **extra)

    return transformation(chosen.init, update)


def _only(tree: Any, labels: Any, block: jax.Array) -> Any:
    def chosen(leaf: Any, label: Any) -> jax.Array:
        sharded = jnp.zeros_like(leaf, jnp.int32) + label  # as the leaf is
        return jnp.where(sharded == block, leaf, jnp.zeros_like(leaf))

    return jax.tree.map(chosen, tree, labels)
