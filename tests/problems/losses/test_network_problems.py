"""Regression and language modelling by networks: losses, gradients, metrics."""

import flax.linen as nn
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from tests.oracles import problems as oracle

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
FEATURES, TARGETS = RNG.normal(size=(10, 3)), RNG.normal(size=10)
TOKENS = RNG.integers(0, 6, (7, 4))
NEXT = RNG.integers(0, 6, (7, 4))
FORECAST = problems.ForecastMLP(widths=(4,), activation=nn.tanh)
LSTM = problems.WordLSTM(vocabulary=6, width=3)
BIGRAM = nn.Embed(6, 6)  # scores that depend on the last token alone
GPT = problems.TinyGPT(vocabulary=6, width=4, depth=1, heads=2, length=4)


def regression(model=FORECAST, features=FEATURES, targets=TARGETS, **arguments):
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
    model, targets = FORECAST, TARGETS
    if outputs:
        model = problems.MLP(hidden=(4,), classes=2, activation=nn.tanh)
        targets = np.stack([TARGETS, TARGETS**2], 1)
    problem = regression(model, targets=targets, l2=0.2, test=(FEATURES[:4], targets[:4]))

    def rows_of(params):
        return model.apply({"params": params}, FEATURES)

    loss, grad, differences, predictions, objective, metrics = evaluated(problem, rows_of, 1)
    rows = 0.5 * ((predictions - targets) ** 2).reshape(10, -1).mean(1)
    penalty = 0.1 * sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(problem.params))
    means = np.array([rows[shard].mean() for shard in np.array_split(np.arange(10), 3)])
    np.testing.assert_allclose(loss, means[1] + penalty, rtol=1e-13)
    np.testing.assert_allclose(grad, differences, atol=1e-8)
    np.testing.assert_allclose(objective, means.mean() + penalty, rtol=1e-13)
    assert list(metrics) == ["test_loss"]
    np.testing.assert_allclose(metrics["test_loss"], rows[:4].mean(), rtol=1e-13)


def test_linear_regression_is_least_squares():
    problem = regression(problems.ForecastMLP(widths=()), FEATURES, TARGETS)
    known = problems.least_squares(np.c_[FEATURES, np.ones(10)], TARGETS, n_workers=3)
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


def test_judging_in_chunks_is_the_same(monkeypatch):
    whole = language(BIGRAM, test=(TOKENS, NEXT))
    monkeypatch.setitem(problems.language_model.__wrapped__.__globals__, "_SCORES", 2 * 4 * 6)
    parts = language(BIGRAM, test=(TOKENS, NEXT))
    assert parts.objective_of.chunk == 2
    assert whole.objective_of.chunk > 7
    (objective, metrics), _ = judged(whole)
    (in_parts, metrics_in_parts), _ = judged(parts)
    np.testing.assert_allclose(in_parts, objective, rtol=1e-6)
    for name, value in metrics.items():
        np.testing.assert_allclose(metrics_in_parts[name], value, rtol=1e-6)


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
