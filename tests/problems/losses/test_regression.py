"""Least squares and logistic regression: known answers, differences, unequal shards."""

import jax
import jax.numpy as jnp
import numpy as np
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


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_unequal_shards_weigh_workers_and_not_rows():
    targets = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    problem = problems.least_squares(np.ones((5, 1)), targets, n_workers=2)
    loss = [problem.gradient(problem.params, worker, 0, KEY)[0] for worker in range(2)]
    np.testing.assert_allclose(loss, [(1 + 4 + 9) / 6, (16 + 25) / 4], rtol=1e-15)
    np.testing.assert_allclose(problem.objective(problem.params), np.mean(loss), rtol=1e-15)
    assert abs(float(problem.objective(problem.params)) - np.mean(targets**2) / 2) > 0.1


def test_overlapping_shards_are_allowed():
    shards = problems.Shards(np.array([[0, 1], [1, 1]]), np.array([2, 1]))
    problem = problems.least_squares(np.ones((3, 1)), [1.0, 2.0, 9.0], n_workers=2, shards=shards)
    np.testing.assert_allclose(problem.objective(problem.params), (2.5 / 2 + 4 / 2) / 2)


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
