"""Every law against its definition: moments, distribution functions, gradients in the parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from asyncjax import clocks
from asyncjax.clocks.unit_gamma import unit_gamma
from tests.oracles import clocks as oracle

N_JOBS = 20_000

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
}


@pytest.fixture(scope="module", params=sorted(LAWS))
def law(request):
    factory, parameters, reference = LAWS[request.param]
    clock = factory(**parameters)
    rows = [dict(zip(parameters, values, strict=True)) for values in zip(*parameters.values())]
    laws = [reference(**row) for row in rows]
    draws = np.asarray(clock.durations(jax.random.key(1), N_JOBS), np.float64)
    return clock, laws, draws


def test_stated_moments_are_those_of_the_law(law):
    clock, laws, _ = law
    np.testing.assert_allclose(clock.mean, [reference.mean() for reference in laws], rtol=1e-12)
    np.testing.assert_allclose(clock.variance, [reference.var() for reference in laws], rtol=1e-12)


def test_samples_have_the_stated_moments(law):
    clock, laws, draws = law
    for i, reference in enumerate(laws):
        if not np.isfinite(clock.variance[i]):
            continue
        error = np.sqrt(clock.variance[i] / N_JOBS)
        assert abs(draws[i].mean() - clock.mean[i]) < 4.5 * error
        kurtosis = reference.stats("k")
        if np.isfinite(kurtosis):
            error = clock.variance[i] * np.sqrt((kurtosis + 2) / N_JOBS)
            assert abs(draws[i].var() - clock.variance[i]) < 4.5 * error


def test_samples_follow_the_distribution_function(law):
    _, laws, draws = law
    for row, reference in zip(draws, laws, strict=True):
        assert stats.kstest(row, reference.cdf).pvalue > 1e-3


def test_jobs_and_workers_are_uncorrelated(law):
    _, laws, draws = law
    ranks = stats.rankdata(draws, axis=1)
    table = np.corrcoef(np.concatenate([ranks[:, :-1], ranks[:, 1:]]))
    assert np.abs(table - np.eye(len(table))).max() < 5 / np.sqrt(N_JOBS)


@pytest.mark.parametrize("name", ["exponential", "shifted_exponential", "lognormal", "pareto"])
def test_gradient_in_every_parameter_is_that_of_the_draw(name, float64):
    factory, parameters, _ = LAWS[name]
    key = jax.random.key(2)

    def total(parameters):
        return (factory(**parameters).durations(key, 5) ** 2).sum()

    point = {name: jnp.asarray(value) for name, value in parameters.items()}
    slopes = jax.grad(total)(point)
    step = 1e-6
    for parameter, value in point.items():
        for worker in range(3):
            move = jnp.zeros(3).at[worker].set(step * value[worker] + step * 1e-3)
            up = total({**point, parameter: value + move})
            down = total({**point, parameter: value - move})
            expected = (up - down) / (2 * move[worker])
            np.testing.assert_allclose(slopes[parameter][worker], expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [0.5, 1.0, 6.0])
def test_gradient_of_gamma_in_mean_and_shape(shape, float64):
    key, n_jobs, mean = jax.random.key(3), 20_000, 2.0

    def moments(shape, mean):
        draws = clocks.gamma(shape, mean).durations(key, n_jobs)
        return jnp.stack([draws.mean(), (draws**2).mean()])

    in_shape, in_mean = jax.jacobian(moments, (0, 1))(shape, mean)
    np.testing.assert_allclose(in_mean[0], moments(shape, mean)[0] / mean, rtol=1e-10)
    # E T = mean and E T^2 = mean^2 (1 + 1/shape): slopes 0 and -mean^2/shape^2.
    assert abs(in_shape[0]) < 0.1 / shape
    np.testing.assert_allclose(in_shape[1], -(mean**2) / shape**2, rtol=0.15)


def test_gradient_of_one_gamma_draw_is_implicit(float64):
    shape, step = 2.5, 1e-5
    unit, slope = jax.value_and_grad(lambda a: unit_gamma(jax.random.key(4), a))(shape)
    in_shape = stats.gamma.cdf(unit, shape + step) - stats.gamma.cdf(unit, shape - step)
    expected = -in_shape / (2 * step) / stats.gamma.pdf(unit, shape)
    np.testing.assert_allclose(slope, expected, rtol=1e-5)


def test_tiny_gamma_shapes_stay_positive_and_differentiable():
    def mean(shape):
        return clocks.gamma(shape, 1.0).durations(jax.random.key(5), 400).mean()

    draws = clocks.gamma(0.01, 1.0).durations(jax.random.key(5), 400)
    assert bool((draws > 0).all())
    assert bool(jnp.isfinite(jax.grad(mean)(0.01)))


def test_unknown_values_end_in_nan_and_not_in_a_loop():
    draws = clocks.gamma(jnp.asarray(jnp.nan), 1.0).durations(jax.random.key(0), 3)
    assert bool(jnp.isnan(draws).all())


def test_smallest_and_largest_uniforms_give_positive_finite_times(monkeypatch):
    edges = jnp.asarray([0.0, 1.0 - 2.0**-23], jnp.float32)

    def grid(key, shape, dtype):
        return jnp.broadcast_to(edges[jax.random.key_data(key)[-1] % 2], shape)

    monkeypatch.setattr(jax.random, "uniform", grid)
    for clock in (clocks.exponential(3e-38), clocks.exponential(1e38), clocks.pareto(1.0, 1.01)):
        draws = np.asarray(clock.durations(jax.random.key(6), 37))
        assert (draws >= np.finfo(np.float32).tiny).all()
        assert np.isfinite(draws).all()
        assert len(np.unique(draws)) == 2
    jax.clear_caches()
