"""Separable quadratics against their plain twin and their known optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from tests.oracles import problems as oracle

CURVATURE, LINEAR = oracle.quadratic_data(6, 3)
KEY = jax.random.key(0)


@pytest.mark.usefixtures("float64")
def test_gradient_and_objective_are_those_of_the_twin():
    problem = problems.quadratic(CURVATURE, LINEAR)
    np.testing.assert_array_equal(problem.params, np.ones(3))
    assert problem.n_workers == 6
    x = np.array([0.3, -1.7, 2.9])
    for worker in range(6):
        loss, grads = problem.gradient(jnp.asarray(x), worker, 4, KEY)
        want = oracle.quadratic_gradient(CURVATURE, LINEAR, worker, x)
        np.testing.assert_allclose(grads, want, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            loss, oracle.quadratic_loss(CURVATURE, LINEAR, worker, x), rtol=0, atol=1e-12
        )
    np.testing.assert_allclose(
        problem.objective(x), oracle.quadratic_objective(CURVATURE, LINEAR, x), rtol=0, atol=1e-12
    )


@pytest.mark.usefixtures("float64")
def test_known_optima():
    problem = problems.quadratic(CURVATURE, LINEAR)
    optimum = oracle.quadratic_optimum(CURVATURE, LINEAR)
    np.testing.assert_allclose(optimum, [0.058824, -0.111111, 0.105263], atol=5e-7)
    np.testing.assert_allclose(jax.grad(problem.objective)(optimum), np.zeros(3), atol=1e-15)
    weighted = oracle.quadratic_optimum(CURVATURE, LINEAR, weights=1 / np.arange(1, 7))
    np.testing.assert_allclose(weighted, [-0.265985, -0.063455, 0.343147], atol=5e-7)


def test_noise_has_the_mean_and_deviation_asked_for():
    problem = problems.quadratic(CURVATURE, LINEAR, noise=0.5)
    keys = jax.random.split(KEY, 4000)
    losses, grads = jax.jit(jax.vmap(lambda key: problem.gradient(problem.params, 1, 0, key)))(keys)
    exact = problems.quadratic(CURVATURE, LINEAR).gradient(problem.params, 1, 0, KEY)
    np.testing.assert_array_equal(losses, np.full(4000, exact[0]))
    np.testing.assert_allclose(grads.mean(0), exact[1], atol=5 * 0.5 / 4000**0.5)
    np.testing.assert_allclose(grads.std(0), 0.5, rtol=0.06)


def test_start_and_precision():
    problem = problems.quadratic(CURVATURE, LINEAR, start=[1, 2, 3])
    assert problem.params.dtype == jnp.float32
    assert problem.data.curvature.dtype == jnp.float32
    np.testing.assert_array_equal(problem.params, [1.0, 2.0, 3.0])
