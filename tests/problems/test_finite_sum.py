"""Finite sums from a loss of one's own: any model, any arrays; the rows that judge a model."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from asyncjax import clocks, problems, simulation, traces
from asyncjax.problems.finite_sum import weighted_sum

X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
Y = np.arange(12.0, dtype=np.float32)
KEY = jax.random.key(7)


def a_row(params, batch, key):
    return 0.5 * (batch["x"] @ params - batch["y"]) ** 2


def a_batch(params, batch, key):
    return jnp.mean(a_row(params, batch, key))


def made(loss=a_row, **more):
    more = {"n_workers": 3, "batch": problems.cyclic(2)} | more
    return problems.from_loss(jnp.zeros(3), loss, {"x": X, "y": Y}, **more)


@pytest.mark.slow
def test_a_loss_a_row_is_least_squares():
    shards = problems.Shards(
        np.array([[0, 1, 2, 3, 4], [5, 6, 7, 5, 5], [8, 9, 10, 11, 8]], np.int32),
        np.array([5, 3, 4], np.int32),
    )
    problem = made(shards=shards, batch=None)
    other = problems.least_squares(X, Y, n_workers=3, shards=shards)
    point = jnp.array([0.3, -1.0, 2.0])
    for worker in range(3):
        mine, theirs = (p.gradient(point, worker, 0, KEY) for p in (problem, other))
        np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-5)
        np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-5)
    np.testing.assert_allclose(problem.objective(point), other.objective(point), rtol=1e-5)


@pytest.mark.slow
def test_a_scalar_loss_is_the_mean_of_its_batch():
    point = jnp.array([0.3, -1.0, 2.0])
    rows, scalar = made(), made(a_batch)
    for worker, job in ((0, 0), (2, 1)):
        one, other = (p.gradient(point, worker, job, KEY) for p in (rows, scalar))
        np.testing.assert_allclose(one[1], other[1], rtol=1e-5)
    np.testing.assert_allclose(rows.objective(point), scalar.objective(point), rtol=1e-5)


def test_few_rows_judge_and_test_rows_are_metrics():
    def largest(params, batch):
        return jnp.max(batch["y"])

    test = {"x": X[:2], "y": Y[:2]}
    problem = made(eval_rows=4, test=test, metrics={"largest": largest})
    np.testing.assert_array_equal(problem.data.judged, [0, 3, 6, 9])
    expected = 0.5 * np.mean(Y[[0, 3, 6, 9]] ** 2)
    np.testing.assert_allclose(problem.objective(problem.params), expected, rtol=1e-6)
    found = problem.metrics(problem.params)
    assert float(found["largest"]) == 1.0
    np.testing.assert_allclose(found["test_loss"], 0.25, rtol=1e-6)


class Net(nnx.Module):
    def __init__(self, rate, rngs, norm=nnx.LayerNorm):
        self.first = nnx.Linear(3, 4, rngs=rngs)
        self.norm = norm(4, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=rngs)
        self.last = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))[:, 0]


def of_module(model, batch, key):
    return (model(batch[0]) - batch[1]) ** 2


def of_parameters(params, batch, key):
    model = Net(0.0, nnx.Rngs(0))
    nnx.update(model, params)
    return of_module(model, batch, key)


@pytest.mark.slow
def test_an_nnx_module_trains_and_is_loaded_again():
    model = Net(0.0, nnx.Rngs(0))
    problem = problems.from_loss(model, of_module, (X, Y), n_workers=3, batch=problems.cyclic(2))
    trace = traces.asynchronous(clocks.constant([1.0, 1.5, 2.0]), n_updates=30)
    run = simulation.replay(problem, trace, optax.sgd(0.01), key=KEY)
    params = nnx.state(model, nnx.Param)
    same = problems.from_loss(params, of_parameters, (X, Y), n_workers=3, batch=problems.cyclic(2))
    again = simulation.replay(same, trace, optax.sgd(0.01), key=KEY)
    for one, other in zip(jax.tree.leaves(run.params), jax.tree.leaves(again.params), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    nnx.update(model, run.params)
    np.testing.assert_allclose(
        jnp.mean((model(X) - Y) ** 2), problem.objective(run.params), rtol=1e-5
    )
    assert problem.objective(run.params) < problem.objective(problem.params)


@pytest.mark.slow
def test_dropout_is_of_the_job_and_off_in_judging():
    model = Net(0.5, nnx.Rngs(0))
    problem = problems.from_loss(model, of_module, (X, Y), n_workers=3, batch=problems.cyclic(4))
    losses = {float(problem.gradient(problem.params, 0, 0, jax.random.key(k))[0]) for k in range(6)}
    assert len(losses) > 1
    one, other = (problem.gradient(problem.params, 0, 0, KEY)[0] for _ in range(2))
    assert float(one) == float(other)
    calm = Net(0.0, nnx.Rngs(0))
    np.testing.assert_allclose(
        problem.objective(problem.params), jnp.mean((calm(X) - Y) ** 2), rtol=1e-5
    )


@pytest.mark.slow
def test_equal_problems_share_a_compilation():
    counted = []

    def loss(params, batch, key):
        counted.append(1)
        return a_row(params, batch, key)

    trace = traces.asynchronous(clocks.constant([1.0, 1.5, 2.0]), n_updates=9)
    optimizer = optax.sgd(0.01)
    simulation.replay(made(loss), trace, optimizer, key=KEY)
    before = len(counted)
    problem = made(loss)  # its shapes are checked once
    checks = len(counted) - before
    simulation.replay(problem, trace, optimizer, key=KEY)
    assert len(counted) - before == checks


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: made(lambda p, b, k: b["x"]), r"one a row, got shape \(2, 3\) for 2 rows"),
        (lambda: made(a_batch, batch=None, n_workers=5), "shards of 2 to 3 rows; got a scalar"),
        (lambda: made(eval_rows=13), "eval_rows must be .* 1 .. 12, got 13"),
        (lambda: made(test={"x": X}), "test must be like arrays"),
        (
            lambda: problems.from_loss(jnp.zeros(3), a_row, {"x": X, "y": Y[:5]}, n_workers=2),
            r"arrays must be .* got shapes \[\(12, 3\), \(5,\)\]",
        ),
        (
            lambda: problems.from_loss(
                Net(0.0, nnx.Rngs(0), nnx.BatchNorm), of_module, (X, Y), n_workers=2
            ),
            "model must keep no batch statistics",
        ),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("chunk", [1, 3, 4, 12, 13, None])
def test_sums_in_chunks_are_the_same(chunk):
    features = jnp.arange(24.0).reshape(12, 2)
    targets, weight = jnp.arange(12), jnp.linspace(0.0, 1.0, 12)
    total = weighted_sum(lambda rows: rows[0][:, 0] * rows[1], (features, targets), weight, chunk)
    want = np.sum(np.linspace(0.0, 1.0, 12) * np.arange(0, 24, 2) * np.arange(12))
    np.testing.assert_allclose(total, want, rtol=1e-6)


def classified(judge, l2=0.0):
    """Nine rows, of which worker 0 holds two and worker 1 seven."""
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((9, 3)), np.arange(9) % 2
    shards = problems.Shards(
        np.array([[3, 5, 0, 0, 0, 0, 0], [0, 1, 2, 4, 6, 7, 8]]), np.array([2, 7])
    )
    model = problems.MLP(hidden=(4,), classes=2)
    sharing = {"n_workers": 2, "shards": shards, "batch": problems.cyclic(2)}
    return problems.classification(
        model, features, labels, key=KEY, eval_rows=judge, l2=l2, **sharing
    ), (model, features, labels, shards)


def at(problem, params):
    assert problem.objective is not None
    return float(problem.objective(params))


@pytest.mark.parametrize("judge", [1, 4, 9])
def test_the_loss_is_the_mean_over_the_rows_weighted_as_the_workers_weigh_them(judge, float64):
    problem, (model, features, labels, shards) = classified(judge, l2=0.1)
    counts = np.zeros(9)
    for rows, size in zip(np.asarray(shards.rows), np.asarray(shards.size), strict=True):
        counts[rows[:size]] = 1 / (2 * size)
    rows = [number * 9 // judge for number in range(judge)]
    scores = np.asarray(model.apply({"params": problem.params}, features[rows]))
    losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(judge), labels[rows]]
    squares = sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(problem.params))
    expected = losses @ counts[rows] / counts[rows].sum() + 0.05 * squares
    assert at(problem, problem.params) == pytest.approx(expected, rel=1e-6)
