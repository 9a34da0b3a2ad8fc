"""Constants of an error bound measured on problems: known answers, a twin, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems, stragglers
from asyncjax.simulation import ErrorEstimate, estimate_error_bound
from tests.oracles import error_constants as oracle

KEY = jax.random.key(0)
CURVATURE = np.array([0.5, 4.0, 1.0])
LINEAR = np.array([[1.0, 0.0, 2.0], [3.0, 4.0, -2.0], [-1.0, 2.0, 0.0], [1.0, -6.0, 4.0]])


def quadratic(noise=0.0):
    """Workers that differ in their linear part alone: every constant is known."""
    return problems.quadratic(
        np.tile(CURVATURE, (4, 1)), LINEAR, start=[9.0, 9.0, 9.0], noise=noise
    )


def of_shards(n_rows=12, seed=0):
    """Logistic regression with shards of 2, 4 and 6 rows."""
    rng = np.random.default_rng(seed)
    features, labels = rng.standard_normal((n_rows, 3)), rng.choice([-1.0, 1.0], n_rows)
    rows = np.array([[0, 1, 0, 0, 0, 0], [2, 3, 4, 5, 0, 0], [6, 7, 8, 9, 10, 11]])
    shards = problems.Shards(rows, np.array([2, 4, 6]))
    parts = [r[:m] for r, m in zip(rows, (2, 4, 6), strict=True)]
    return features, labels, shards, parts


def test_a_quadratic_has_the_constants_that_it_was_made_with(float64):
    found = estimate_error_bound(quadratic(), step_size=0.1, key=KEY, n_samples=4000)
    assert isinstance(found, ErrorEstimate)
    assert isinstance(found.bound, stragglers.ErrorBound)
    best = LINEAR.mean(0) / CURVATURE
    np.testing.assert_allclose(found.optimum, best, rtol=1e-9)
    assert found.bound.smoothness == pytest.approx(4.0, rel=1e-12)
    assert found.bound.strong_convexity == pytest.approx(0.5, rel=1e-12)
    assert found.minimum == pytest.approx(-(CURVATURE * best**2).sum() / 2, rel=1e-12)
    start = CURVATURE @ (np.full(3, 9.0) - best) ** 2 / 2
    assert found.bound.initial_error == pytest.approx(start, rel=1e-12)
    assert 0 <= found.minimum_error < 1e-12 * start
    true = LINEAR.var(0).sum()  # a job's worker is drawn uniformly
    assert found.noise_error == pytest.approx(true / np.sqrt(4000), rel=0.9)
    assert abs(found.bound.noise_variance - true) < 4 * found.noise_error
    assert found.n_samples == 4000


@pytest.mark.slow
def test_the_standard_error_is_that_of_repetitions():
    true, found = LINEAR.var(0).sum() + 3 * 0.7**2, []
    for key in jax.random.split(KEY, 40):
        found.append(estimate_error_bound(quadratic(0.7), step_size=0.1, key=key, n_samples=200))
    variances = np.array([one.bound.noise_variance for one in found])
    errors = np.array([one.noise_error for one in found])
    assert variances.std() == pytest.approx(errors.mean(), rel=0.4)
    assert abs(variances.mean() - true) < 4 * errors.mean() / np.sqrt(40)
    assert (np.abs(variances - true) < 2 * errors).mean() > 0.8


@pytest.mark.parametrize("batch", [None, problems.uniform(2)])
def test_rows_of_uneven_shards_against_the_twin(float64, batch):
    features, labels, shards, parts = of_shards()
    kind = {} if batch is None else {"batch": batch}
    problem = problems.logistic(features, labels, n_workers=3, shards=shards, l2=0.1, **kind)
    found = estimate_error_bound(problem, step_size=0.1, key=KEY)
    minimum, most, least, variance = oracle.logistic(features, labels, parts, 0.1)
    assert found.minimum == pytest.approx(minimum, rel=1e-12)
    assert found.bound.smoothness == pytest.approx(most, rel=1e-12)
    assert found.bound.strong_convexity == pytest.approx(least, rel=1e-8)
    assert found.bound.noise_variance == pytest.approx(variance, rel=1e-8)
    assert found.bound.initial_error == pytest.approx(np.log(2) - minimum, rel=1e-10)
    assert (found.noise_error, found.n_samples) == (0.0, 12)  # every row, once
    few = estimate_error_bound(problem, step_size=0.1, key=KEY, n_samples=11)
    assert few.noise_error > 0
    assert abs(few.bound.noise_variance - variance) < 4 * few.noise_error


@pytest.mark.slow
def test_a_loss_of_ones_own_is_measured_where_nothing_is_stated():
    matrix = jnp.asarray([[3.0, 1.0], [1.0, 2.0]])

    def value(params):
        vector = jnp.stack([params["a"], params["b"]]) - 1.0
        return vector @ matrix @ vector / 2 + 5.0

    def gradient(params, worker, job, key):
        slope = jax.grad(value)(params)
        return value(params), {"a": slope["a"] + jax.random.normal(key), "b": slope["b"]}

    problem = problems.from_gradient({"a": 4.0, "b": 0.0}, gradient, objective=value)
    found = estimate_error_bound(problem, step_size=0.1, key=KEY, floor=lambda bound, k, load: 0.0)
    least, most = np.linalg.eigvalsh(np.asarray(matrix))
    assert found.bound.smoothness == pytest.approx(most, rel=1e-5)
    assert found.bound.strong_convexity == pytest.approx(least, rel=1e-5)
    assert found.minimum == pytest.approx(5.0, rel=1e-6)
    assert found.bound.initial_error == pytest.approx(float(value(problem.params)) - 5.0, rel=1e-5)
    assert abs(found.bound.noise_variance - 1.0) < 4 * found.noise_error
    assert found.noise_error == pytest.approx(np.sqrt(2 / 4096), rel=0.2)
    assert float(stragglers.error_floor(found.bound, 2)) == 0.0


def test_what_is_given_is_taken():
    best = LINEAR.mean(0) / CURVATURE
    found = estimate_error_bound(
        quadratic(), step_size=0.01, key=KEY, smoothness=9.0, strong_convexity=0.25, optimum=best
    )
    assert (found.bound.smoothness, found.bound.strong_convexity) == (9.0, 0.25)
    np.testing.assert_array_equal(found.optimum, best.astype(np.float32))


def test_few_products_estimate_from_inside():
    curvature = np.linspace(1.0, 3.0, 40)
    problem = problems.quadratic(curvature[None], np.ones((1, 40)))
    found = estimate_error_bound(problem, step_size=0.1, key=KEY, n_products=12)
    assert 1.0 < found.bound.strong_convexity < 1.05
    full = estimate_error_bound(problem, step_size=0.1, key=KEY)
    assert full.bound.strong_convexity == pytest.approx(1.0, rel=1e-5)
