"""Losses with a name: least squares, logistic, classification, regression, language models."""

import flax.linen as nn
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import problems
from tests.oracles import problems as oracle

FEATURES, LABELS = oracle.logistic_data(6, 8, 5)
ROWS, FLAT = FEATURES.reshape(48, 5), LABELS.reshape(48)
KEY = jax.random.key(0)
UNEQUAL = problems.Shards(np.array([[0, 1, 2, 3], [4, 5, 4, 4], [6, 6, 6, 6]]), np.array([4, 2, 1]))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("batch", [None, 2, 3])
def test_logistic_is_its_twin(batch):
    rule = None if batch is None else problems.cyclic(batch)
    problem = problems.logistic(ROWS, FLAT, n_workers=6, nonconvex=0.1, batch=rule)
    np.testing.assert_array_equal(problem.params, np.zeros(5))
    gradient = jax.jit(problem.gradient)
    x = np.linspace(-2.0, 1.5, 5)
    for worker in range(6):
        for job in (0, 1, 5, 123):
            rows = oracle.logistic_rows(8, job, batch)
            loss, grads = gradient(jnp.asarray(x), worker, job, KEY)
            part = FEATURES[worker][rows], LABELS[worker][rows], x
            np.testing.assert_allclose(loss, oracle.logistic_loss(*part), rtol=0, atol=1e-12)
            np.testing.assert_allclose(grads, oracle.logistic_gradient(*part), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        problem.objective(x), oracle.logistic_objective(FEATURES, LABELS, x), rtol=0, atol=1e-12
    )


@pytest.mark.usefixtures("float64")
def test_logistic_known_values_of_the_page():
    problem = problems.logistic(ROWS, FLAT, n_workers=6, nonconvex=0.1)
    x = np.array([-0.042521, 0.074072, -0.034809, -0.187661, 0.114036])
    np.testing.assert_allclose(problem.objective(x), 0.684048, atol=1e-6)
    norm = jnp.linalg.norm(jax.grad(problem.objective)(x))
    np.testing.assert_allclose(norm, 0.017072, atol=2e-6)
    batches_of_two = np.array([-0.033941, 0.000640, -0.232426, -0.221072, -0.090515])
    np.testing.assert_allclose(problem.objective(batches_of_two), 0.701592, atol=1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "make",
    [
        lambda **shared: problems.least_squares(ROWS[:7], np.arange(7.0), **shared),
        lambda **shared: problems.logistic(
            ROWS[:7], FLAT[:7], l2=0.3, nonconvex=0.2, l1=0.7, **shared
        ),
    ],
    ids=["least_squares", "logistic"],
)
def test_finite_differences_and_unequal_shards(make):
    problem = make(n_workers=3, shards=UNEQUAL)
    gradient = jax.jit(problem.gradient)
    x = np.linspace(-1.0, 1.2, 5)
    losses, grads = [], []
    for worker in range(3):
        loss, grad = gradient(jnp.asarray(x), worker, 0, KEY)
        numerical = oracle.numerical_gradient(lambda y, w=worker: gradient(y, w, 0, KEY)[0], x)
        np.testing.assert_allclose(grad, numerical, rtol=1e-7, atol=1e-8)
        losses.append(loss)
        grads.append(grad)
    l1 = problem.objective_of.l1
    np.testing.assert_allclose(
        problem.objective(x), np.mean(losses) + l1 * np.abs(x).sum(), rtol=1e-13
    )
    smooth = jax.grad(problem.objective)(x) - l1 * np.sign(x)
    np.testing.assert_allclose(smooth, np.mean(grads, axis=0), rtol=1e-12)


def test_labels_of_zero_and_one_are_converted():
    signs = problems.logistic(ROWS, FLAT, n_workers=6)
    for labels in ((FLAT > 0), (FLAT > 0).astype(int), jnp.asarray(FLAT > 0, jnp.float32)):
        other = problems.logistic(ROWS, labels, n_workers=6)
        np.testing.assert_array_equal(signs.data.targets, other.data.targets)


@pytest.mark.slow
def test_logistic_does_not_overflow():
    problem = problems.logistic([[1e4], [1e4]], [0, 1], n_workers=2, start=[1.0])
    losses, grads = jax.vmap(lambda worker: problem.gradient(problem.params, worker, 0, KEY))(
        jnp.arange(2)
    )
    np.testing.assert_allclose(losses, [1e4, 0.0])
    np.testing.assert_allclose(grads[:, 0], [1e4, 0.0])


@pytest.mark.slow
def test_precision_follows_the_data():
    assert problems.logistic(ROWS, FLAT, n_workers=6).params.dtype == jnp.float32
    with jax.enable_x64(True):
        problem = problems.logistic(ROWS.astype(np.float32), FLAT, n_workers=6, l2=0.1)
        loss, grads = problem.gradient(problem.params, 0, 0, KEY)
        dtypes = {problem.data.weight.dtype, problem.data.targets.dtype, loss.dtype, grads.dtype}
        assert dtypes == {jnp.dtype("float32")}
        assert problems.least_squares(ROWS, FLAT, n_workers=6).params.dtype == jnp.float64
        assert problems.least_squares(ROWS > 0, FLAT > 0, n_workers=6).params.dtype == jnp.float64


def test_traced_data_are_not_checked_by_value():
    @jax.jit
    def objectives(features, targets):
        square = problems.least_squares(features, targets, n_workers=2)
        logistic = problems.logistic(features, jnp.sign(targets), n_workers=2)
        return square.objective(square.params), logistic.objective(logistic.params)

    square, logistic = objectives(jnp.ones((2, 1)), jnp.array([1.0, -3.0]))
    np.testing.assert_allclose([square, logistic], [2.5, np.log(2.0)], rtol=1e-6)


RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(14, 3))
CLASSES = RNG.integers(0, 3, 14)
MODEL = problems.MLP(hidden=(4,), classes=3, activation=nn.tanh)


def make(model=MODEL, features=INPUTS, labels=CLASSES, **arguments):
    return problems.classification(
        model, features, labels, **{"n_workers": 3, "key": KEY, **arguments}
    )


def test_without_test_rows_there_are_no_metrics():
    assert make().metrics_of == ()


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


VALUES = np.random.default_rng(0).normal(size=14)
TOKENS = RNG.integers(0, 6, (7, 4))
NEXT = RNG.integers(0, 6, (7, 4))
FORECAST = problems.ForecastMLP(widths=(4,), activation=nn.tanh)
LSTM = problems.WordLSTM(vocabulary=6, width=3)
BIGRAM = nn.Embed(6, 6)  # scores that depend on the last token alone
GPT = problems.TinyGPT(vocabulary=6, width=4, depth=1, heads=2, length=4)


def regression(model=FORECAST, features=INPUTS[:10], targets=VALUES[:10], **arguments):
    return problems.regression(
        model, features, targets, **{"n_workers": 3, "key": KEY, **arguments}
    )


def language(model=LSTM, inputs=TOKENS, targets=NEXT, **arguments):
    return problems.language_model(
        model, inputs, targets, **{"n_workers": 2, "key": KEY, **arguments}
    )


def evaluated(problem, rows_of, worker):
    """Returns a job's loss and gradient with its differences, the rows' losses, f and metrics."""
    flat, restore = jax.flatten_util.ravel_pytree(problem.params)

    @jax.jit
    def evaluate(problem, shifts):
        def gradient(shift):
            loss, grads = problem.gradient(restore(flat + shift), worker, 0, KEY)
            return loss, jax.flatten_util.ravel_pytree(grads)[0]

        shifted = jax.vmap(lambda shift: gradient(shift)[0])(shifts)
        return (
            gradient(jnp.zeros_like(flat)),
            shifted,
            rows_of(problem.params),
            problem.objective(problem.params),
            problem.metrics(problem.params),
        )

    unit = 1e-5 * np.eye(flat.size)
    result = jax.device_get(evaluate(problem, np.concatenate([unit, -unit])))
    (loss, grad), shifted, rows, objective, metrics = result
    return (
        loss,
        grad,
        (shifted[: flat.size] - shifted[flat.size :]) / 2e-5,
        rows,
        objective,
        metrics,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("outputs", [None, 2])
def test_regression_loss_gradient_objective_and_metric(outputs):
    model, targets = FORECAST, VALUES[:10]
    if outputs:
        model = problems.MLP(hidden=(4,), classes=2, activation=nn.tanh)
        targets = np.stack([VALUES[:10], VALUES[:10] ** 2], 1)
    problem = regression(model, targets=targets, l2=0.2, test=(INPUTS[:10][:4], targets[:4]))

    def rows_of(params):
        return model.apply({"params": params}, INPUTS[:10])

    loss, grad, differences, predictions, objective, metrics = evaluated(problem, rows_of, 1)
    rows = 0.5 * ((predictions - targets) ** 2).reshape(10, -1).mean(1)
    penalty = 0.1 * sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(problem.params))
    means = np.array([rows[shard].mean() for shard in np.array_split(np.arange(10), 3)])
    np.testing.assert_allclose(loss, means[1] + penalty, rtol=1e-13)
    np.testing.assert_allclose(grad, differences, atol=1e-8)
    np.testing.assert_allclose(objective, means.mean() + penalty, rtol=1e-13)
    assert list(metrics) == ["test_loss"]
    np.testing.assert_allclose(metrics["test_loss"], rows[:4].mean(), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_classification_loss_gradient_objective_and_metrics():
    problem = make(l2=0.2, test=(INPUTS[:5], CLASSES[:5]))

    def rows_of(params):
        scores = MODEL.apply({"params": params}, INPUTS)
        return scores, optax.softmax_cross_entropy_with_integer_labels(scores, CLASSES)

    loss, grad, differences, (scores, rows), objective, metrics = evaluated(problem, rows_of, 1)
    penalty = 0.1 * sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(problem.params))
    means = np.array([rows[shard].mean() for shard in np.array_split(np.arange(14), 3)])
    np.testing.assert_allclose(grad, differences, atol=1e-8)
    np.testing.assert_allclose(loss, means[1] + penalty, rtol=1e-13)
    np.testing.assert_allclose(objective, means.mean() + penalty, rtol=1e-13)
    np.testing.assert_allclose(metrics["test_loss"], rows[:5].mean(), rtol=1e-13)
    hits = np.argmax(scores[:5], -1) == CLASSES[:5]
    np.testing.assert_allclose(metrics["test_accuracy"], hits.mean(), rtol=1e-13)


def test_linear_regression_is_least_squares():
    problem = regression(problems.ForecastMLP(widths=()), INPUTS[:10], VALUES[:10])
    known = problems.least_squares(np.c_[INPUTS[:10], np.ones(10)], VALUES[:10], n_workers=3)
    vector = jnp.arange(4.0)
    params = {"Dense_0": {"kernel": vector[:3, None], "bias": vector[3:]}}
    loss, grads = jax.jit(problem.gradient)(params, 2, 0, KEY)
    want_loss, want = jax.jit(known.gradient)(vector, 2, 0, KEY)
    np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
    np.testing.assert_allclose(grads["Dense_0"]["kernel"][:, 0], want[:3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grads["Dense_0"]["bias"], want[3:], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("model", "name"), [(LSTM, "lstm"), (GPT, "gpt")])
def test_language_model_loss_and_gradient(model, name):
    problem = language(model, l2=0.1, n_workers=1)
    rng = np.random.default_rng(2)
    params = jax.tree.map(lambda leaf: 0.5 * rng.normal(size=leaf.shape), problem.params)
    flat, restore = jax.flatten_util.ravel_pytree(params)

    @jax.jit
    def evaluate(problem, shifts):
        _, grads = problem.gradient(params, 0, 0, KEY)
        values = jax.vmap(lambda shift: problem.objective(restore(flat + shift)))(shifts)
        return jax.flatten_util.ravel_pytree(grads)[0], values

    unit = 1e-5 * np.eye(flat.size)
    grad, values = evaluate(problem, np.concatenate([unit, -unit, 0 * unit[:1]]))
    differences = (values[: flat.size] - values[flat.size : -1]) / 2e-5
    # the rows' weights are of the type of the first parameters, float32: 7 of 1/7
    np.testing.assert_allclose(grad, differences, atol=1e-7)

    def scores(row):
        if name == "lstm":
            return oracle.lstm_scores(params, row)
        return oracle.transformer_scores(params, row, heads=2, depth=1)

    rows = [oracle.token_loss(scores(a), b) for a, b in zip(TOKENS, NEXT, strict=True)]
    penalty = 0.05 * sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(params))
    np.testing.assert_allclose(values[-1], np.mean(rows) + penalty, rtol=1e-7)


@pytest.mark.slow
def test_language_model_counts_workers_alike():
    problem = language(BIGRAM, test=(TOKENS[:3], NEXT[:3]))
    table = np.asarray(problem.params["embedding"])
    rows = np.array([oracle.token_loss(table[a], b) for a, b in zip(TOKENS, NEXT, strict=True)])
    (objective, metrics), _ = judged(problem)
    np.testing.assert_allclose(objective, (rows[:4].mean() + rows[4:].mean()) / 2, rtol=1e-5)
    np.testing.assert_allclose(metrics["test_loss"], rows[:3].mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["test_perplexity"], np.exp(rows[:3].mean()), rtol=1e-5)
    loss, _ = jax.jit(problem.gradient)(problem.params, 1, 0, KEY)
    np.testing.assert_allclose(loss, rows[4:].mean(), rtol=1e-5)


def judged(problem):
    params = jax.tree.map(jnp.zeros_like, problem.params)
    return jax.device_get(
        jax.jit(
            lambda problem: [
                (problem.objective(x), problem.metrics(x)) for x in (problem.params, params)
            ]
        )(problem)
    )


def test_perplexity_of_a_model_that_knows_nothing_is_the_vocabulary():
    problem = language(BIGRAM, test=(TOKENS, NEXT))
    _, (objective, metrics) = judged(problem)
    np.testing.assert_allclose(metrics["test_perplexity"], 6.0, rtol=1e-5)
    np.testing.assert_allclose(objective, np.log(6.0), rtol=1e-6)
    assert problem.data.weight.dtype == jnp.float32
    np.testing.assert_allclose(np.asarray(problem.data.weight).sum(), 1.0, rtol=1e-6)


def test_training_learns_a_cycle():
    inputs, targets = problems.windows(np.tile([0, 3, 1, 5, 2], 20), 4)
    problem = language(BIGRAM, inputs, targets, test=(inputs, targets))

    @jax.jit
    def train(problem):
        def step(params, job):
            _, grads = problem.gradient(params, job % 2, job // 2, KEY)
            return jax.tree.map(lambda x, g: x - 5.0 * g, params, grads), None

        params, _ = jax.lax.scan(step, problem.params, jnp.arange(100))
        return problem.metrics(params)

    assert float(train(problem)["test_perplexity"]) < 1.1
