"""Completion times of laws given by a survival function, and of sampled rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from asyncjax import clocks
from asyncjax.stragglers import (
    ErrorBound,
    completion_of_survival,
    completion_variance,
    expected_completion,
    plan,
    response,
    sampled,
)
from tests.oracles import stragglers as oracle

ALL_5 = np.arange(1, 6)
HARMONIC = np.array([oracle.harmonic(5) - oracle.harmonic(5 - k) for k in ALL_5])
KEY = jax.random.key(4)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("typical", [0.7, 1e-4, 1e4])
def test_exponentials_from_any_typical_time(typical):
    means = completion_of_survival(lambda t: jnp.exp(-t), ALL_5, n_workers=5, typical=typical)
    np.testing.assert_allclose(means, HARMONIC, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_other_laws():
    def mean(survival, **options):
        return completion_of_survival(survival, ALL_5, n_workers=5, typical=0.7, **options)

    shifted = mean(lambda t: jnp.exp(-(t - 2.0)), start=2.0)
    np.testing.assert_allclose(shifted, 2 + HARMONIC, rtol=1e-12)
    hidden = mean(lambda t: jnp.exp(-jnp.maximum(t - 2.0, 0.0)))
    np.testing.assert_allclose(hidden, 2 + HARMONIC, rtol=1e-11)
    tail = mean(lambda t: jnp.maximum(t, 1.0) ** -1.2)
    left, power = 5 - ALL_5, 1 / 1.2
    exact = special.gammaln(6) - special.gammaln(left + 1)
    exact += special.gammaln(left + 1 - power) - special.gammaln(6 - power)
    np.testing.assert_allclose(tail, np.exp(exact), rtol=1e-11)
    two = completion_of_survival(
        lambda t: 1 - 0.5 * (t >= 1) - 0.5 * (t >= 3), [1, 2], n_workers=2, typical=1.0
    )
    np.testing.assert_allclose(two, [1.5, 2.5], rtol=1e-12)
    known = response(compute=clocks.weibull(0.6, 1.0), n_workers=5)
    scale = 1 / special.gamma(1 + 1 / 0.6)
    weibull = mean(lambda t: jnp.exp(-((t / scale) ** 0.6)))
    np.testing.assert_allclose(weibull, expected_completion(known, ALL_5), rtol=1e-9)


@pytest.mark.slow
def test_infinite_means_are_inf():
    heavy = completion_of_survival(lambda t: 1 / (1 + t), [1, 2], n_workers=2, typical=1.0)
    np.testing.assert_allclose(heavy, [1.0, np.inf], rtol=1e-5)
    lost = completion_of_survival(
        lambda t: 0.1 + 0.9 * jnp.exp(-t), [1, 2], n_workers=2, typical=1.0
    )
    assert np.isinf(lost).all()


def test_many_workers_in_single_precision_under_jit_and_differentiated():
    def completion(mean):
        return completion_of_survival(lambda t: jnp.exp(-t / mean), 230, n_workers=256, typical=1.0)

    value, slope = jax.jit(jax.value_and_grad(completion))(0.5)
    np.testing.assert_allclose(value, 1.1349626233011176, rtol=3e-6)
    np.testing.assert_allclose(slope, 2 * 1.1349626233011176, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["scale", "shift"])
def test_sampled_rounds_agree_with_the_exact_times(scaling):
    exact = response(
        compute=clocks.shifted_exponential(0.2, 0.5),
        communicate=clocks.exponential(1.0),
        scaling=scaling,
        n_workers=5,
    )
    rounds = sampled(exact, KEY, 20000)
    for load in (1.0, 3.0):
        variance = completion_variance(exact, ALL_5, load)
        error = np.abs(
            expected_completion(rounds, ALL_5, load) - expected_completion(exact, ALL_5, load)
        )
        assert (error < 5 * np.sqrt(variance / 20000)).all()
        drawn = exact.durations(KEY, 7, load=load)
        np.testing.assert_allclose(rounds.durations(None, 7, load=load), drawn, rtol=2e-6)


@pytest.mark.slow
def test_any_clock_can_be_sampled_and_planned():
    three = clocks.communicating(
        clocks.uniform([0.0] * 3, [2.0] * 3),
        download=clocks.exponential(0.2),
        upload=clocks.exponential(0.3),
    )
    rounds = sampled(three, KEY, 4000)
    drawn = np.sort(three.durations(KEY, 4000), axis=0).mean(1)
    np.testing.assert_allclose(expected_completion(rounds, [1, 2, 3]), drawn, rtol=1e-5)
    bound = ErrorBound(0.2, 1.0, 1.0, 40.0, 2.5)
    assert plan(rounds, bound, load=[1.0, 4.0], target=0.5).reachable
    constant = response(
        compute=clocks.constant(2.0),
        communicate=clocks.exponential(0.1),
        scaling="additive",
        n_workers=2,
    )
    np.testing.assert_allclose(
        expected_completion(sampled(constant, KEY, 4000), [1, 2], 3.0), [6.05, 6.15], atol=0.01
    )
