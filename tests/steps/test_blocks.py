"""Updates of single blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from asyncjax.steps.blocks import draw_block


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_blocks_partition_and_only_one_moves():
    params = {"a": jnp.ones((2, 3)), "b": jnp.ones(4)}
    labels = steps.block_labels(params, 4)
    flat = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(labels)])
    np.testing.assert_array_equal(flat, np.repeat(np.arange(4), [3, 3, 2, 2]))
    by_leaf = steps.block_labels(params)
    assert (by_leaf["a"] == 0).all()
    assert (by_leaf["b"] == 1).all()
    # Momentum, adam and a proximal operator would move the other blocks too.
    for inner in (
        optax.adam(0.1),
        optax.sgd(0.1, momentum=0.9),
        steps.descent(steps.worst_case(0.1, 0), prox=steps.l1(1.0)),
    ):
        optimizer = steps.update_block(inner, 4)
        state = optimizer.init(params)
        for block in (2, 0):
            updates, state = optimizer.update(params, state, params, block=block)
            moved = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(updates)])
            np.testing.assert_array_equal(moved != 0, flat == block)


@pytest.mark.slow
def test_random_blocks_are_even_and_apart_from_other_uses_of_the_key():
    keys = jax.random.split(jax.random.key(0), 4000)
    blocks = jax.vmap(lambda key: draw_block(key, 5))(keys)
    np.testing.assert_allclose(np.bincount(blocks) / 4000, 0.2, atol=0.02)
    others = jax.vmap(lambda key: jax.random.randint(key, (), 0, 5))(keys)
    assert abs(np.corrcoef(blocks, others)[0, 1]) < 0.05
