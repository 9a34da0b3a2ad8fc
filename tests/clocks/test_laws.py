"""Every law against its definition.

Moments, distribution functions, gradients in the parameters.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from asyncjax import clocks
from asyncjax.clocks.rng import unit_gamma
from tests.oracles import clocks as oracle

N_JOBS = 20_000
QUICKLY = {"xla_backend_optimization_level": 0}  # compiles without optimising

# factory, its parameters a worker, the law by the oracle
LAWS = {
    "exponential": (clocks.exponential, {"mean": (1.0, 0.02, 40.0)}, oracle.exponential),
    "shifted_exponential": (
        clocks.shifted_exponential,
        {"shift": (0.0, 0.5, 7.0), "mean": (1.0, 2.0, 0.1)},
        oracle.shifted_exponential,
    ),
    "gamma": (clocks.gamma, {"shape": (0.3, 1.0, 12.0), "mean": (1.0, 2.0, 30.0)}, oracle.gamma),
    "lognormal": (
        clocks.lognormal,
        {"mean": (1.0, 2.0, 30.0), "sigma": (0.1, 0.5, 1.0)},
        oracle.lognormal,
    ),
    "pareto": (clocks.pareto, {"mean": (1.0, 2.0, 30.0), "tail": (1.5, 5.0, 9.0)}, oracle.pareto),
    "weibull": (
        clocks.weibull,
        {"shape": (0.7, 1.0, 9.0), "mean": (1.0, 2.0, 30.0)},
        oracle.weibull,
    ),
    "uniform": (
        clocks.uniform,
        {"low": (0.0, 1.0, 30.0), "high": (1.0, 4.0, 31.0)},
        oracle.uniform,
    ),
    "folded_normal": (
        clocks.folded_normal,
        {"location": (0.0, -3.0, 30.0), "scale": (1.0, 2.0, 0.5), "shift": (0.0, 1.0, 2.0)},
        oracle.folded_normal,
    ),
}
SMOOTH = sorted(set(LAWS) - {"gamma"})


@pytest.fixture(scope="module", params=sorted(LAWS))
def law(request):
    factory, parameters, reference = LAWS[request.param]
    clock = factory(**parameters)
    table = zip(*parameters.values(), strict=True)
    rows = [dict(zip(parameters, values, strict=True)) for values in table]
    laws = [reference(**row) for row in rows]
    draws = np.asarray(clock.durations(jax.random.key(1), N_JOBS), np.float64)
    return clock, laws, draws


def test_stated_moments_are_those_of_the_law(law):
    clock, laws, _ = law
    np.testing.assert_allclose(clock.mean, [reference.mean() for reference in laws], rtol=1e-12)
    np.testing.assert_allclose(clock.variance, [reference.var() for reference in laws], rtol=1e-12)


def test_samples_follow_the_distribution_function(law):
    _, laws, draws = law
    for row, reference in zip(draws, laws, strict=True):
        assert stats.kstest(row, reference.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient_in_every_parameter_is_that_of_the_draw(name, float64):
    factory, parameters, _ = LAWS[name]
    key = jax.random.key(2)

    @partial(jax.jit, compiler_options=QUICKLY)
    @partial(jax.grad, has_aux=True)
    def slopes_and_squares(parameters):
        squares = (factory(**parameters).durations(key, 5) ** 2).sum(1)
        return squares.sum(), squares

    point = {name: jnp.asarray(value) for name, value in parameters.items()}
    slopes, _ = slopes_and_squares(point)
    for parameter, value in point.items():
        move = 1e-6 * value + 1e-9
        _, up = slopes_and_squares({**point, parameter: value + move})
        _, down = slopes_and_squares({**point, parameter: value - move})
        np.testing.assert_allclose(slopes[parameter], (up - down) / (2 * move), rtol=1e-5)


@pytest.mark.slow
def test_gradient_of_gamma_in_mean_and_shape():
    shape, mean = jnp.array([0.5, 1.0, 6.0, 0.01]), jnp.full(4, 2.0)

    def squares(shape, mean):
        draws = clocks.gamma(shape, mean).durations(jax.random.key(3), N_JOBS)
        return (draws**2).mean(1).sum(), draws

    slopes, draws = jax.jit(jax.grad(squares, (0, 1), has_aux=True))(shape, mean)
    in_shape, in_mean = (slope[:3] for slope in slopes)
    shape, mean = shape[:3], mean[:3]
    # E T^2 = mean^2 (1 + 1/shape); the slopes' own spread allows a few per cent.
    np.testing.assert_allclose(in_shape, -(mean**2) / shape**2, rtol=0.1)
    np.testing.assert_allclose(in_mean, 2 * mean * (1 + 1 / shape), rtol=0.1)
    # The last shape is so small that most draws are zero in single precision, but for the clip.
    np.testing.assert_allclose(draws.min(), np.finfo(np.float32).tiny * (2.0 / 0.01), rtol=1e-6)
    assert np.isfinite(slopes).all()


@pytest.mark.slow
def test_gradient_of_one_gamma_draw_is_implicit(float64):
    shape, step = 2.5, 1e-5
    unit, slope = jax.value_and_grad(lambda a: unit_gamma(jax.random.key(4), a))(jnp.asarray(shape))
    in_shape = stats.gamma.cdf(unit, shape + step) - stats.gamma.cdf(unit, shape - step)
    expected = -in_shape / (2 * step) / stats.gamma.pdf(unit, shape)
    np.testing.assert_allclose(slope, expected, rtol=1e-5)


def test_unknown_values_end_in_nan_and_not_in_a_loop():
    draw = jax.jit(lambda shape: clocks.gamma(shape, 1.0).durations(jax.random.key(0), 3))
    assert bool(jnp.isnan(draw(jnp.nan)).all())


def test_smallest_and_largest_uniforms_give_positive_finite_times(monkeypatch):
    edges = jnp.asarray([0.0, 1.0 - 2.0**-23], jnp.float32)

    def grid(key, shape, dtype):
        return jnp.broadcast_to(edges[jax.random.key_data(key)[-1] % 2], shape)

    monkeypatch.setattr(jax.random, "uniform", grid)
    for clock in (clocks.exponential(3e-38), clocks.exponential(1e38), clocks.pareto(1.0, 1.01)):
        draws = np.asarray(clock.durations(jax.random.key(6), 37))  # 37: compiled here alone
        assert (draws >= np.finfo(np.float32).tiny).all()
        assert np.isfinite(draws).all()
        assert len(np.unique(draws)) == 2


def test_variances_of_nearly_constant_times_do_not_cancel():
    shape = np.array([19.999999, 20.000001, 1e4, 1e8])
    relative = clocks.weibull(shape, 3.0).variance / 9.0
    np.testing.assert_allclose(relative[0], relative[1], rtol=2e-7)
    # pi^2 / (6 shape^2) (1 - 1.2 ... / shape + ...)
    np.testing.assert_allclose(relative[2:] * shape[2:] ** 2, np.pi**2 / 6, rtol=5e-4)
    np.testing.assert_allclose(relative[3] * 1e16, np.pi**2 / 6, rtol=1e-7)
    far = clocks.folded_normal(1e8, [0.5, 2.0])
    np.testing.assert_array_equal(far.variance, [0.25, 4.0])
    np.testing.assert_array_equal(far.mean, [1e8, 1e8])


@pytest.mark.parametrize("name", ["weibull", "uniform", "folded_normal"])
def test_moments_of_traced_parameters_are_the_same(name, float64):
    factory, parameters, _ = LAWS[name]
    clock = factory(**{name: jnp.asarray(value) for name, value in parameters.items()})
    mean, variance = jax.jit(lambda clock: (clock.mean, clock.variance))(clock)
    np.testing.assert_allclose(mean, factory(**parameters).mean, rtol=1e-12)
    np.testing.assert_allclose(variance, factory(**parameters).variance, rtol=1e-11)


def test_jobs_and_workers_are_uncorrelated(law):
    _, _, draws = law
    ranks = stats.rankdata(draws, axis=1)
    table = np.corrcoef(np.concatenate([ranks[:, :-1], ranks[:, 1:]]))
    assert np.abs(table - np.eye(len(table))).max() < 5 / np.sqrt(N_JOBS)
