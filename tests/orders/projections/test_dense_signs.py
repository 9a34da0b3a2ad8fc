"""Exact signs of dense networks: against explicit gradients, what is covered, and what is not."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from asyncjax.orders.dense_signs import dense_form, dense_layers, dense_signs
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
    gradients = [None] * len(jax.tree.leaves(params))
    for use, (inputs, deltas) in zip(uses, rows, strict=True):
        gradients[use.kernel] = np.einsum("bi,bo->bio", inputs, deltas)
        if use.bias is not None:
            gradients[use.bias] = deltas
    wanted = jax.tree.leaves(jax.jacrev(losses)(params, x))
    for ours, theirs in zip(gradients, wanted, strict=True):
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
