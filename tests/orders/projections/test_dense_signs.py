"""Exact signs of dense networks: against explicit gradients, and what is not covered."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from asyncjax.orders.dense_signs import dense_layers, dense_signs
from asyncjax.orders.kernels import pair_signs

DRAWS = np.random.default_rng(0)
INPUTS, LABELS = DRAWS.standard_normal((80, 7)), DRAWS.integers(0, 4, 80)


def cross_entropy(scores, labels):
    return -jax.nn.log_softmax(scores)[jnp.arange(scores.shape[0]), labels]


class Residual(nn.Module):
    """Nested, with a skip, a layer without bias and a gate."""

    @nn.compact
    def __call__(self, inputs):
        values = nn.tanh(nn.Dense(6)(inputs))
        values = values + nn.Dense(6, use_bias=False, name="inner")(values)
        gate = nn.sigmoid(nn.Sequential([nn.Dense(3), nn.relu, nn.Dense(6)])(values))
        return nn.Dense(4)(values * gate)


class Convolved(nn.Module):
    @nn.compact
    def __call__(self, inputs):
        values = nn.Conv(2, (3,))(inputs[..., None]).reshape(inputs.shape[0], -1)
        return nn.Dense(4)(values)


class Twice(nn.Module):
    @nn.compact
    def __call__(self, inputs):
        layer = nn.Dense(7, name="shared")
        return nn.Dense(4)(layer(nn.tanh(layer(inputs))))


class OnPixels(nn.Module):
    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(4, name="pixels")(inputs[..., None]).sum(1)


def network(layers, inputs):
    first, second, last = layers
    return last(jnp.tanh(second(jax.nn.relu(first(inputs)))))


def plain_params(dtype=jnp.float64):
    keys = jax.random.split(jax.random.key(3), 3)
    kernels = [
        jax.random.normal(key, shape, dtype)
        for key, shape in zip(keys, [(7, 9), (9, 5), (5, 4)], strict=True)
    ]
    return [(kernels[0], jnp.zeros(9, dtype)), (kernels[1], None), (kernels[2], jnp.ones(4, dtype))]


def explicit(scores_of, params, inputs, labels, running_sum):
    """Signs, mean and running sum from the gradient of every example."""
    jacobian = jax.jacrev(lambda p: cross_entropy(scores_of(p, inputs), labels))(params)
    rows = jax.vmap(lambda tree: ravel_pytree(tree)[0])(jacobian)
    signs, total = pair_signs(rows[0::2] - rows[1::2], ravel_pytree(running_sum)[0])
    return signs, rows.mean(0), total


def agree(apply, scores_of, params, count, **options):
    inputs, labels = jnp.asarray(INPUTS[:count]), jnp.asarray(LABELS[:count])
    running_sum = jax.tree.map(lambda leaf: 0.2 * jnp.cos(leaf), params)
    call = partial(dense_signs, apply, loss_of_scores=partial(cross_entropy, labels=labels))
    compiled = jax.jit(lambda p, r: call(p, inputs, running_sum=r, **options))
    signs, mean, total = compiled(params, running_sum)
    wanted = jax.jit(partial(explicit, scores_of))(params, inputs, labels, running_sum)
    np.testing.assert_array_equal(signs, wanted[0])
    assert signs.dtype == jnp.int8
    assert jax.tree.structure(mean) == jax.tree.structure(params)
    np.testing.assert_allclose(ravel_pytree(mean)[0], wanted[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ravel_pytree(total)[0], wanted[2], rtol=1e-9, atol=1e-12)
    return np.asarray(signs)


MODELS = {
    "linear": nn.Dense(4),
    "two layers": nn.Sequential([nn.Dense(8), nn.relu, nn.Dense(4)]),
    "residual": Residual(),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "block"), [("linear", 12), ("two layers", None), ("residual", 12)]
)
def test_all_signs_of_a_module_are_those_of_pair_signs(float64, name, block):
    model = MODELS[name]
    params = jax.jit(model.init)(jax.random.key(1), jnp.asarray(INPUTS))["params"]
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)
    signs = agree(
        model, lambda p, x: model.apply({"params": p}, x), params, 80, pairs_per_block=block
    )
    assert 10 < np.sum(signs[0::2] < 0) < 30, "both signs occur"


@pytest.mark.slow
def test_all_signs_of_a_plain_network_are_those_of_pair_signs(float64):
    agree(network, lambda p, x: network(dense_layers(p), x), plain_params(), 16, pairs_per_block=3)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_narrow_parameters_keep_a_wide_running_sum(dtype):
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), plain_params(jnp.float32))
    inputs = jnp.asarray(INPUTS[:4], dtype)
    signs, mean, total = jax.eval_shape(
        lambda p: dense_signs(network, p, inputs, lambda scores: scores[:, 0] ** 2, p), params
    )
    assert signs.dtype == jnp.int8
    assert {leaf.dtype for leaf in jax.tree.leaves(mean)} == {jnp.dtype(jnp.bfloat16)}
    assert {leaf.dtype for leaf in jax.tree.leaves(total)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Convolved(), r"\['Conv_0'\]\['bias'\] belongs to no dense layer"),
        (Twice(), "layer shared is used twice"),
        (OnPixels(), "layer pixels is used on inputs of shape"),
        (nn.Sequential([nn.LayerNorm(), nn.Dense(4)]), r"\['layers_0'\].* no dense layer"),
    ],
)
def test_what_is_not_covered_is_named(model, words):
    inputs = jnp.asarray(INPUTS[:4], jnp.float32)
    params = jax.eval_shape(model.init, jax.random.key(0), inputs)["params"]
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), params)
    with pytest.raises(ValueError, match=words):
        dense_signs(model, params, inputs, lambda scores: scores[:, 0], params)


@pytest.mark.slow
def test_no_array_of_one_gradient_an_example_is_formed():
    params = plain_params(jnp.float32)
    inputs = jnp.asarray(np.tile(INPUTS, (2, 1))[:128], jnp.float32)
    labels = jnp.zeros(128, jnp.int32)
    program = jax.make_jaxpr(
        lambda p: dense_signs(network, p, inputs, partial(cross_entropy, labels=labels), p)
    )(params)
    n_params = sum(leaf.size for leaf in jax.tree.leaves(params))
    largest = max(
        var.aval.size
        for equation in program.jaxpr.eqns
        for var in equation.outvars
        if hasattr(var.aval, "size")
    )
    assert largest <= max(128 * 9, 64 * 128, n_params), "O(P + B (widths + pairs))"
