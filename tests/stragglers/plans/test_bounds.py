"""The error bound: its recursion, its three floors, and what is refused."""

import math
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.stragglers import ErrorBound, error_floor, finite_population_floor, quadratic_floor
from tests.oracles import stragglers as oracle

CONSTANTS = {
    "step_size": 0.1,
    "smoothness": 2.0,
    "strong_convexity": 0.5,
    "noise_variance": 8.0,
    "initial_error": 10.0,
}


def test_the_closed_form_is_the_recursion():
    bound = ErrorBound(**CONSTANTS)
    floor = float(error_floor(bound, 3, 4.0))
    assert floor == pytest.approx(0.1 * 2 * 8 / (2 * 0.5 * 12), rel=1e-15)
    errors = oracle.run_bound([3], [4.0], [math.inf], 50, CONSTANTS)
    closed = [floor + math.exp(-bound.decay * j) * (10.0 - floor) for j in range(1, 51)]
    np.testing.assert_allclose(errors, closed, rtol=1e-12)


def test_counts_and_loads_broadcast_and_may_be_traced():
    bound = ErrorBound(**CONSTANTS)
    table = error_floor(bound, np.arange(1, 4)[:, None], [1.0, 2.0])
    np.testing.assert_allclose(table, 1.6 / np.array([[1, 2], [2, 4], [3, 6]]))
    np.testing.assert_allclose(error_floor(bound, jnp.asarray([1, 2]), 2.0), [0.8, 0.4])


def test_floors_know_how_many_samples_there_are():
    plain = ErrorBound(**CONSTANTS)
    finite = ErrorBound(**CONSTANTS, floor=finite_population_floor(5, 8))
    square = ErrorBound(**CONSTANTS, floor=quadratic_floor(5, 8))
    for k, load in ((1, 1.0), (2, 8.0), (5, 8.0)):
        left = (40 - k * load) / 39
        expected = float(error_floor(plain, k, load)) * left
        assert float(error_floor(finite, k, load)) == pytest.approx(expected, rel=1e-14)
        small = 0.1 * 8 / (4 * k * load) * left
        assert float(error_floor(square, k, load)) == pytest.approx(small, rel=1e-14)
    custom = ErrorBound(**CONSTANTS, floor=lambda bound, k, load: bound.noise_variance / k)
    assert float(error_floor(custom, 4)) == 2.0


def test_the_quadratic_floor_is_where_a_quadratic_stops():
    # w <- w - eta (w - x + noise), the mean of b of m values drawn without replacement
    rng = np.random.default_rng(0)
    m, size, eta = 12, 4, 0.05
    values = rng.normal(size=m)
    values -= values.mean()
    w, total, n_steps = 0.0, 0.0, 40000
    for _ in range(n_steps):
        w -= eta * (w - rng.choice(values, size, replace=False).mean())
        total += w * w / 2
    bound = ErrorBound(eta, 1.0, 1.0, float(values.var()), 1.0, quadratic_floor(3, 4))
    assert total / n_steps == pytest.approx(float(error_floor(bound, 1, size)), rel=0.15)


def test_a_tiny_step_keeps_its_decay():
    bound = ErrorBound(1e-12, 1.0, 1e-3, 1.0, 1.0)
    assert bound.decay == pytest.approx(1e-15, rel=1e-12)


def test_a_large_step_is_warned_about():
    with pytest.warns(UserWarning, match="step_size should be at most 1 / smoothness = 0.5"):
        ErrorBound(**{**CONSTANTS, "step_size": 0.6})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ErrorBound(**{**CONSTANTS, "step_size": 0.5})
