"""Which losses are known for those of a dense network, and what is known of their rows."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.orders.dense_signs import dense_form, dense_layers

B = 6
X = jax.random.normal(jax.random.key(1), (B, 3))
MODULE = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(2, use_bias=False)])
LAYERS = MODULE.init(jax.random.key(0), X)["params"]
PLAIN = [(jnp.full((3, 4), 0.3), jnp.ones(4)), (jnp.full((4, 2), -0.2), None)]


def of_module(params, x):
    return jnp.square(MODULE.apply({"params": params}, x)).sum(1)


def one_by_one(params, x):
    return jax.vmap(lambda row: of_module(params, row[None])[0])(x)


def of_vectors(params, x):
    return jax.vmap(lambda row: jnp.square(MODULE.apply({"params": params}, row)).sum())(x)


def of_layers(params, x):
    first, second = dense_layers(params)
    return jnp.square(second(jnp.tanh(first(x)))).sum(1)


def compiled(params, x):
    return jax.jit(of_layers)(params, x)


@pytest.mark.parametrize(
    ("losses", "params"),
    [
        (of_module, LAYERS),
        (one_by_one, LAYERS),
        (of_vectors, LAYERS),
        (of_layers, PLAIN),
        (compiled, PLAIN),
    ],
)
def test_rows_of_a_dense_network_make_its_gradients(float64, losses, params):
    params, x = jax.tree.map(lambda leaf: leaf.astype(float), (params, X))
    found = dense_form(losses, params, x)
    assert found is not None
    uses, rows = found
    made = [None] * len(jax.tree.leaves(params))
    for use, (inputs, deltas) in zip(uses, rows, strict=True):
        made[use.kernel] = np.einsum("bi,bo->bio", inputs, deltas)
        if use.bias is not None:
            made[use.bias] = deltas
    wanted = jax.tree.leaves(jax.jacrev(losses)(params, x))
    for ours, theirs in zip(made, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


KERNEL = jnp.ones((3, 3))


@pytest.mark.parametrize(
    ("losses", "params"),
    [
        (lambda p, x: (x @ p @ p).sum(1), KERNEL),  # used twice
        (lambda p, x: (x @ p).sum(1) + jnp.sum(p**2), KERNEL),  # a penalty
        (lambda p, x: (x @ p["a"]).sum(1), {"a": KERNEL, "b": jnp.ones(2)}),  # not used
        (lambda p, x: (x * p).sum(1), jnp.ones(3)),  # a scale
        (lambda p, x: (x + p).sum(1), jnp.ones(3)),  # a bias of no product
        (lambda p, x: (x @ p.T).sum(1), KERNEL),  # turned
        (lambda p, x: (jnp.stack([x, x], 1) @ p).sum((1, 2)), KERNEL),  # two rows an example
        (lambda p, x: (jnp.ones((B, 3)) @ p)[0] @ x.T, KERNEL),  # rows that are no examples
        (lambda p, x: (x.T @ p).sum(0) + x.sum(1), jnp.ones((B, B))),  # examples summed over
        (
            lambda p, x: jax.lax.fori_loop(0, 2, lambda _, y: jnp.tanh(y @ p), x).sum(1),
            KERNEL,  # within a loop
        ),
        (
            lambda p, x: (lambda y: (y + p["b"]).sum(1) + y[:, 0])(x @ p["w"]),
            {"b": jnp.ones(3), "w": KERNEL},  # a product that is read beside its bias
        ),
    ],
)
def test_any_other_use_of_a_parameter_is_seen(losses, params):
    assert dense_form(losses, params, X) is None
