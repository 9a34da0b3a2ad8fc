"""Networks: against plain NumPy, under vmap, and what they refuse."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from tests.oracles import problems as oracle

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def random_params(model, row):
    """Returns float64 parameters of the model's shapes, all of them random."""
    shapes = jax.eval_shape(model.init, KEY, row)["params"]
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: 0.3 * rng.normal(size=leaf.shape), shapes)


def size(model, row):
    shapes = jax.eval_shape(model.init, KEY, row)["params"]
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))


@pytest.mark.usefixtures("float64")
def test_lenet_is_lenet():
    model = problems.LeNet(activation=nn.tanh)
    images = RNG.normal(size=(2, 32, 32, 3))
    params = random_params(model, images)
    got = jax.jit(model.apply)({"params": params}, images)
    assert got.dtype == jnp.float64
    for image, scores in zip(images, got, strict=True):
        np.testing.assert_allclose(scores, oracle.lenet(params, image), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_lenet_frames_small_images():
    model = problems.LeNet(classes=3, activation=nn.tanh)
    image = RNG.normal(size=(28, 28, 1))
    params = random_params(model, image[None])
    want = oracle.lenet(params, np.pad(image, ((2, 2), (2, 2), (0, 0))))
    got = model.apply({"params": params}, jnp.asarray(image[None]))
    np.testing.assert_allclose(got[0], want, rtol=1e-10, atol=1e-12)


def test_lenet_has_its_known_number_of_parameters():
    assert size(problems.LeNet(), np.zeros((1, 28, 28, 1), np.float32)) == 61706
    assert size(problems.LeNet(), np.zeros((1, 32, 32, 1), np.float32)) == 61706
    assert size(problems.LeNet(), np.zeros((1, 32, 32, 3), np.float32)) == 62006


@pytest.mark.slow
def test_classification_with_lenet_in_lanes():
    images = RNG.normal(size=(6, 28, 28, 1)).astype(np.float32)
    problem = problems.classification(
        problems.LeNet(),
        images,
        [0, 1, 2, 3, 4, 9],
        n_workers=2,
        key=KEY,
        batch=problems.cyclic(2),
    )
    models = jax.tree.map(lambda leaf: jnp.stack([leaf, 0 * leaf]), problem.params)
    losses, grads = jax.jit(jax.vmap(lambda m, w: problem.gradient(m, w, 1, KEY)))(
        models, jnp.arange(2)
    )
    np.testing.assert_allclose(losses[1], np.log(10), rtol=1e-5)
    assert 1.0 < float(losses[0]) < 6.0
    # rows 5 and 3: the scores of zeros are equal, so only the last biases have a gradient
    bias = grads["Dense_4"]["bias"][1]
    np.testing.assert_allclose(
        bias, np.full(10, 0.1) - np.isin(np.arange(10), [9, 3]) / 2, atol=1e-6
    )
    assert float(jnp.abs(grads["Dense_0"]["kernel"][0]).max()) > 0.0


def test_forecast_mlp():
    model = problems.ForecastMLP(widths=(2,))
    params = {
        "Dense_0": {"kernel": jnp.array([[1.0, -1.0], [2.0, 0.0]]), "bias": jnp.array([0.0, 1.0])},
        "Dense_1": {"kernel": jnp.array([[3.0], [10.0]]), "bias": jnp.array([0.5])},
    }
    got = model.apply({"params": params}, jnp.array([[1.0, 1.0], [-3.0, 1.0]]))
    assert got.tolist() == [3.0 * 3 + 0.5, 10.0 * 4 + 0.5]  # relu: (3, 0), (0, 4)
    assert size(problems.ForecastMLP(), np.zeros((1, 12), np.float32)) == 9217
    assert size(problems.ForecastMLP(widths=()), np.zeros((1, 12), np.float32)) == 13


@pytest.mark.usefixtures("float64")
def test_word_lstm_against_one_token_at_a_time():
    model = problems.WordLSTM(vocabulary=7, width=3)
    tokens = RNG.integers(0, 7, (2, 5))
    params = random_params(model, tokens)
    got = jax.jit(model.apply)({"params": params}, tokens)
    assert got.shape == (2, 5, 7)
    assert got.dtype == jnp.float64
    for row, scores in zip(tokens, got, strict=True):
        np.testing.assert_allclose(scores, oracle.lstm_scores(params, row), rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_tiny_gpt_against_one_position_at_a_time():
    model = problems.TinyGPT(vocabulary=7, width=6, depth=2, heads=3, length=6)
    tokens = RNG.integers(0, 7, (2, 5))
    params = random_params(model, tokens)
    got = jax.jit(model.apply)({"params": params}, tokens)
    assert got.dtype == jnp.float64
    for row, scores in zip(tokens, got, strict=True):
        want = oracle.transformer_scores(params, row, heads=3, depth=2)
        np.testing.assert_allclose(scores, want, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        problems.WordLSTM(vocabulary=9, width=4),
        problems.TinyGPT(vocabulary=9, width=8, depth=2, heads=2, length=8),
    ],
)
def test_scores_depend_on_the_past_alone(model):
    tokens = np.array([[1, 2, 3, 4, 5, 6, 7, 8]])
    others = np.repeat(tokens, 8, axis=0)
    for place in range(8):
        others[place, place] = 0  # row p differs from tokens at position p alone

    @jax.jit
    def scores(rows):
        return model.init_with_output(KEY, rows)[0]

    found = np.asarray(scores(np.concatenate([tokens, others])))
    plain, changed = found[0], found[1:]
    assert abs(oracle.token_loss(plain, tokens[0]) - np.log(9)) < 0.5  # first scores say little
    for place in range(8):
        np.testing.assert_allclose(changed[place, :place], plain[:place], rtol=0, atol=2e-6)
        assert (np.abs(changed[place, place:] - plain[place:]).max(-1) > 1e-5).all()


def test_networks_are_equal_by_value():
    for make in (
        problems.LeNet,
        problems.MLP,
        problems.ForecastMLP,
        lambda: problems.WordLSTM(5),
        lambda: problems.TinyGPT(5),
    ):
        assert make() == make()
        assert hash(make()) == hash(make())
    assert problems.WordLSTM(5) != problems.WordLSTM(6)


def test_mlp_shapes():
    def shapes(model, *shape):
        scores, variables = jax.eval_shape(model.init_with_output, KEY, jnp.zeros(shape))
        return scores.shape, [leaf.shape for leaf in jax.tree.leaves(variables)]

    want = (7, 4), [(6,), (64, 6), (5,), (6, 5), (4,), (5, 4)]
    model = problems.MLP(hidden=(6, 5), classes=4)
    assert shapes(model, 7, 64) == shapes(model, 7, 8, 8, 1) == want
    assert shapes(problems.MLP(hidden=(), classes=2), 5, 3) == ((5, 2), [(2,), (3, 2)])
