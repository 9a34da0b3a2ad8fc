"""Laws from censored times: known answers, no bias, SciPy's maximum, drift followed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import clocks
from asyncjax.stragglers import (
    drifting,
    fit_exponential,
    fit_hypoexponential,
    fit_shifted_exponential,
    response,
)
from asyncjax.stragglers.times.censored import log_likelihood
from tests.oracles import censored as oracle

PAGE = [0.1, 0.25, 0.4]
KEY = jax.random.key(11)


def fastest(key, load, k, *, communicate=1.0, compute=0.25, n=20):
    """The k fastest of n response times in each round, the rest inf, float[R, n]; k may vary."""
    times = response(
        compute=clocks.exponential(compute),
        communicate=clocks.exponential(communicate),
        n_workers=n,
    )
    drawn = times.durations(key, load.size, load=load).T
    return jnp.where(jnp.argsort(jnp.argsort(drawn)) < k, drawn, jnp.inf)


def test_known_answers_in_any_order():
    for observed in (PAGE, PAGE[::-1], np.array([PAGE])):
        assert float(fit_exponential(observed, 5).mean) == pytest.approx(1.55 / 3)
        shifted = fit_shifted_exponential(observed, 5)
        assert float(shifted.shift) == pytest.approx(0.1)
        assert float(shifted.mean) == pytest.approx(1.05 / 2)
    assert float(fit_exponential(PAGE, 3).mean) == pytest.approx(0.25)


@pytest.mark.slow
def test_censored_means_are_unbiased_where_plain_ones_are_not():
    times = response(compute=clocks.shifted_exponential(0.5, 2.0), n_workers=10)
    drawn = jnp.sort(times.durations(KEY, 6000), axis=0)[:4].T
    rounds = drawn.reshape(2000, 3, 4)
    shifted = jax.vmap(lambda one: fit_shifted_exponential(one, 10).mean)(rounds)
    single = jax.vmap(lambda one: fit_shifted_exponential(one, 10).mean)(drawn)
    plain = jax.vmap(lambda one: fit_exponential(one - 0.5, 10).mean)(rounds)
    for estimates in (shifted, single, plain):
        error = estimates.std() / np.sqrt(estimates.size)
        assert abs(estimates.mean() - 2.0) < 4 * error
        assert error < 0.02
    assert drawn.mean() - 0.5 < 1.0


@pytest.mark.usefixtures("float64")
def test_the_likelihood_is_the_one_of_the_definition():
    observed, loads = np.array([[0.3, 0.9, 0.5], [2.0, 0.4, 1.1]]), np.array([1.0, 3.0])
    both = jax.jit(jax.value_and_grad(log_likelihood), static_argnums=3)
    for means in ((1.0, 0.25), (0.2, 1.3), (3.0, 0.01)):
        padded = np.hstack([observed, np.full((2, 2), np.inf)])
        value, _ = both(jnp.log(jnp.asarray(means)), padded, loads, 5)
        expected = oracle.log_likelihood(observed, loads, 5, *means)
        np.testing.assert_allclose(value, expected, rtol=1e-10)
    # equal means are nothing special
    near, here = (jnp.log(jnp.asarray([0.7, 0.7 + step])) for step in (1e-7, 0.0))
    slopes = [both(x, padded, np.ones(2), 5)[1] for x in (near, here)]
    np.testing.assert_allclose(*slopes, rtol=1e-5)
    assert float(both(here, np.full((2, 5), np.inf), loads, 5)[0]) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("means", [(1.0, 0.25), (0.25, 1.0), (1.0, 1.0)])
@pytest.mark.usefixtures("float64")
def test_two_means_from_two_loads(means):
    load = jnp.where(jnp.arange(200) < 100, 1.0, 6.0)
    seen = fastest(KEY, load, 8, communicate=means[0], compute=means[1])
    observed = np.sort(seen, axis=1)[:, :8]
    fit = fit_hypoexponential(observed, load, 20)
    np.testing.assert_allclose([fit.communicate_mean, fit.compute_mean], means, rtol=0.15)
    best, likelihood = oracle.greatest(observed, load, 20, np.array(means) * [1.1, 0.9])
    np.testing.assert_allclose([fit.communicate_mean, fit.compute_mean], best, rtol=1e-5)
    assert float(fit.log_likelihood) == pytest.approx(likelihood, rel=1e-9)
    assert float(fit.last_step) < 1e-6


@pytest.mark.slow
def test_single_precision_and_all_answers_seen():
    load = jnp.where(jnp.arange(200) < 100, 1.0, 6.0)
    observed = fastest(KEY, load, 20)
    fit = jax.jit(lambda times: fit_hypoexponential(times, load, 20))(observed)
    assert fit.compute_mean.dtype == jnp.float32
    np.testing.assert_allclose([fit.communicate_mean, fit.compute_mean], [1.0, 0.25], rtol=0.1)


ESTIMATOR = drifting(40, 20, (1.0, 0.25))
START = (1.0, 0.25)
ALTERNATING = jnp.where(jnp.arange(240) // 10 % 2, 1.0, 4.0)
DOUBLED = jnp.where(jnp.arange(240) < 120, 1.0, 2.0)


@jax.jit
def follow(seen, load, start):
    """Estimates after every update, float[R, 2]."""
    state = ESTIMATOR.init()._replace(log_means=jnp.log(jnp.asarray(start)))

    def step(state, update):
        state = ESTIMATOR.observe(state, *update)
        return state, jnp.stack(ESTIMATOR.estimate(state))

    return jax.lax.scan(step, state, (seen, load))[1]


@pytest.mark.slow
def test_drifting_means_are_followed():
    factor = DOUBLED[:, None]
    means = follow(fastest(KEY, ALTERNATING, 12) * factor, ALTERNATING, (0.5, 0.5))
    early, late = (np.asarray(means[part]) for part in (slice(80, 120), slice(200, 240)))
    np.testing.assert_allclose(early.mean(0), [1.0, 0.25], rtol=0.2)
    np.testing.assert_allclose(late.mean(0), [2.0, 0.5], rtol=0.2)
    total = means @ jnp.asarray([1.0, 4.0])
    np.testing.assert_allclose(total[119], 2.0, rtol=0.2)
    np.testing.assert_allclose(total[161], 4.0, rtol=0.2)  # the old ones are forgotten


@pytest.mark.slow
def test_one_load_moves_both_means_by_one_factor():
    seen = fastest(KEY, jnp.full(240, 4.0), 6) * DOUBLED[:, None]
    means = np.asarray(follow(seen, jnp.full(240, 4.0), START))
    np.testing.assert_allclose(means[:, 0] / means[:, 1], 4.0, rtol=1e-4)
    np.testing.assert_allclose(means[80:120].mean(0), [1.0, 0.25], rtol=0.15)
    np.testing.assert_allclose(means[170:].mean(0), [2.0, 0.5], rtol=0.15)


@pytest.mark.slow
def test_what_is_awaited_may_vary_and_may_be_nothing():
    k = jnp.where(jnp.arange(240) % 3 == 0, 0, 1 + jnp.arange(240) % 9)
    means = follow(fastest(KEY, ALTERNATING, k[:, None]), ALTERNATING, START)
    np.testing.assert_allclose(means[100:].mean(0), [1.0, 0.25], rtol=0.3)
    still = follow(jnp.full((240, 20), jnp.inf), ALTERNATING, START)
    np.testing.assert_allclose(still, np.tile([1.0, 0.25], (240, 1)), rtol=1e-6)
