"""Networks and their training problem."""

import flax.linen as nn
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import problems
from asyncjax.problems.finite_sum import weighted_sum

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(14, 3))
TARGETS = RNG.integers(0, 3, 14)
MODEL = problems.MLP(hidden=(4,), classes=3, activation=nn.tanh)


def make(model=MODEL, features=FEATURES, labels=TARGETS, **arguments):
    return problems.classification(
        model, features, labels, **{"n_workers": 3, "key": KEY, **arguments}
    )


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_loss_objective_metrics_and_differences():
    problem = make(l2=0.2, test=(FEATURES[:5], TARGETS[:5]))
    flat, restore = jax.flatten_util.ravel_pytree(problem.params)
    assert flat.dtype == jnp.float64

    @jax.jit
    def evaluate(problem, shifts):
        def gradient(worker, shift):
            loss, grads = problem.gradient(restore(flat + shift), worker, 0, KEY)
            return loss, jax.flatten_util.ravel_pytree(grads)[0]

        scores = MODEL.apply({"params": problem.params}, FEATURES)
        rows = optax.softmax_cross_entropy_with_integer_labels(scores, jnp.asarray(TARGETS))
        return (
            jax.vmap(lambda worker: gradient(worker, 0.0))(jnp.arange(3)),
            jax.vmap(lambda shift: gradient(1, shift)[0])(shifts),
            (scores, rows),
            (problem.objective(problem.params), problem.metrics(problem.params)),
        )

    unit = 1e-5 * np.eye(flat.size)
    results = jax.device_get(evaluate(problem, np.concatenate([unit, -unit])))
    (losses, grads), shifted, (scores, rows), (objective, metrics) = results
    differences = (shifted[: flat.size] - shifted[flat.size :]) / 2e-5
    np.testing.assert_allclose(grads[1], differences, atol=1e-8)
    means = np.array([rows[shard].mean() for shard in np.array_split(np.arange(14), 3)])
    penalty = 0.1 * np.sum(np.asarray(flat) ** 2)
    np.testing.assert_allclose(losses, means + penalty, rtol=1e-13)
    np.testing.assert_allclose(objective, means.mean() + penalty, rtol=1e-13)
    np.testing.assert_allclose(metrics["test_loss"], rows[:5].mean(), rtol=1e-13)
    hits = np.argmax(scores[:5], -1) == TARGETS[:5]
    np.testing.assert_allclose(metrics["test_accuracy"], hits.mean(), rtol=1e-13)


@pytest.mark.parametrize("chunk", [1, 3, 4, 12, 13, None])
def test_sums_in_chunks_are_the_same(chunk):
    features = jnp.arange(24.0).reshape(12, 2)
    targets, weight = jnp.arange(12), jnp.linspace(0.0, 1.0, 12)
    total = weighted_sum(lambda a, b: a[:, 0] * b, features, targets, weight, chunk)
    want = np.sum(np.linspace(0.0, 1.0, 12) * np.arange(0, 24, 2) * np.arange(12))
    np.testing.assert_allclose(total, want, rtol=1e-6)


def test_without_test_rows_there_are_no_metrics():
    assert make().metrics_of == ()


@pytest.mark.slow
def test_training_learns():
    data = problems.digits()
    problem = make(
        problems.MLP(),
        data.train_features,
        data.train_labels,
        n_workers=4,
        batch=problems.cyclic(32),
        test=(data.test_features, data.test_labels),
    )

    @jax.jit
    def train(problem):
        def step(params, job):
            loss, grads = problem.gradient(params, job % 4, job // 4, KEY)
            return jax.tree.map(lambda x, g: x - 0.3 * g, params, grads), loss

        params, losses = jax.lax.scan(step, problem.params, jnp.arange(400))
        return losses, problem.metrics(params)

    losses, metrics = train(problem)
    assert float(losses[0]) > 2.0
    assert float(metrics["test_accuracy"]) > 0.9
    assert float(metrics["test_loss"]) < 0.4


def test_mlp_shapes():
    def shapes(model, *shape):
        scores, variables = jax.eval_shape(model.init_with_output, KEY, jnp.zeros(shape))
        return scores.shape, [leaf.shape for leaf in jax.tree.leaves(variables)]

    want = (7, 4), [(6,), (64, 6), (5,), (6, 5), (4,), (5, 4)]
    model = problems.MLP(hidden=(6, 5), classes=4)
    assert shapes(model, 7, 64) == shapes(model, 7, 8, 8, 1) == want
    assert shapes(problems.MLP(hidden=(), classes=2), 5, 3) == ((5, 2), [(2,), (3, 2)])


def test_networks_are_equal_by_value():
    assert problems.MLP(hidden=(3,)) == problems.MLP(hidden=(3,))
    assert hash(problems.MLP(hidden=(3,))) == hash(problems.MLP(hidden=(3,)))
    assert problems.MLP(hidden=(3,)) != problems.MLP(hidden=(4,))
    assert hash(problems.SmallCNN()) == hash(problems.SmallCNN())


def test_cnn_is_a_convolution():
    model = problems.SmallCNN(channels=(5,), classes=2)
    rng = np.random.default_rng(1)
    images = jnp.asarray(rng.normal(size=(3, 7, 6, 2)), jnp.float32)
    params = {
        "Dense_0": {"kernel": rng.normal(size=(18, 5)), "bias": rng.normal(size=5)},
        "Dense_1": {"kernel": rng.normal(size=(45, 2)), "bias": rng.normal(size=2)},
    }
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)

    @jax.jit
    def reference(params):
        kernel = params["Dense_0"]["kernel"].reshape(3, 3, 2, 5)
        values = jax.lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        values = nn.avg_pool(nn.relu(values + params["Dense_0"]["bias"]), (2, 2), (2, 2))
        assert values.shape == (3, 3, 3, 5)
        return values.reshape(3, -1) @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]

    got = jax.jit(model.apply)({"params": params}, images)
    np.testing.assert_allclose(got, reference(params), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_cnn_under_vmap_with_a_model_a_lane():
    images = np.random.default_rng(1).normal(size=(6, 4, 5, 1))
    problem = make(
        problems.SmallCNN(channels=(2,), classes=3),
        images,
        TARGETS[:6],
        batch=problems.cyclic(2),
    )
    models = jax.tree.map(lambda leaf: np.stack([leaf, 1.1 * leaf]), problem.params)
    losses, grads = jax.jit(jax.vmap(lambda m, w: problem.gradient(m, w, 1, KEY)))(
        models, jnp.array([0, 2])
    )
    model = jax.tree.map(lambda leaf: leaf[1], models)
    loss, grad = jax.jit(problem.gradient)(model, 2, 1, KEY)
    np.testing.assert_allclose(losses[1], loss, rtol=1e-5)
    for got, want in zip(jax.tree.leaves(grads), jax.tree.leaves(grad), strict=True):
        np.testing.assert_allclose(got[1], want, rtol=1e-4, atol=1e-6)


class Normed(nn.Module):
    @nn.compact
    def __call__(self, features):
        return nn.BatchNorm(use_running_average=False)(nn.Dense(3)(features))


class Wide(nn.Module):
    @nn.compact
    def __call__(self, features):
        return nn.Dense(3)(features)[:, None]


@pytest.mark.parametrize(
    ("model", "message"), [(Normed(), "parameters and nothing else"), (Wide(), "scores")]
)
def test_models_of_other_outputs_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        make(model=model)
