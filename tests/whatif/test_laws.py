"""Laws are recovered from what they made, and their fit is told rightly."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy import stats

from asyncjax import clocks, traces
from asyncjax.whatif.laws import FAMILIES, fits_of, two_speeds
from tests.oracles import describing as oracle

N = 12  # workers
MEANS = np.linspace(0.5, 4.0, N)
MADE = {
    "exponential": (clocks.exponential(MEANS), {"mean": MEANS}),
    "shifted_exponential": (
        clocks.shifted_exponential(MEANS, 0.5 * MEANS),
        {"shift": MEANS, "mean": 0.5 * MEANS},
    ),
    "gamma": (clocks.gamma(4.0 * np.ones(N), MEANS), {"shape": 4.0 * np.ones(N), "mean": MEANS}),
    "lognormal": (
        clocks.lognormal(MEANS, 0.5 * np.ones(N)),
        {"mean": MEANS, "sigma": 0.5 * np.ones(N)},
    ),
    "weibull": (
        clocks.weibull(2.0 * np.ones(N), MEANS),
        {"shape": 2.0 * np.ones(N), "mean": MEANS},
    ),
}


def durations(clock, count=400, seed=0):
    return np.asarray(clock.durations(jax.random.key(seed), count), np.float64)


@pytest.mark.parametrize("name", MADE)
def test_a_known_law_is_recovered_within_its_errors(name):
    clock, true = MADE[name]
    best = fits_of(traces.read_log(durations(clock)), np.random.default_rng(0))[0]
    assert best.name == name
    assert best.p_value > 0.01
    assert best.is_good
    for parameter, values in true.items():
        away = (best.parameters[parameter] - values) / best.errors[parameter]
        assert np.abs(away).max() < 4.5, (parameter, away)
        assert 0.4 < np.sqrt(np.mean(away**2)) < 1.8, (parameter, away)
        assert (best.errors[parameter] < 0.2 * values).all()
    np.testing.assert_allclose(best.clock.mean, clock.mean, rtol=0.2)


def test_two_speeds_are_recovered():
    clock = clocks.markov(MEANS, 5.0 * MEANS, 0.1 * np.ones(N), 0.3 * np.ones(N))
    best = fits_of(traces.read_log(durations(clock)), np.random.default_rng(0))[0]
    assert best.name == "markov"
    np.testing.assert_allclose(best.parameters["fast"], MEANS, rtol=1e-6)
    np.testing.assert_allclose(best.parameters["slow"], 5.0 * MEANS, rtol=1e-6)
    for parameter, value in (("to_slow", 0.1), ("to_fast", 0.3)):
        away = (best.parameters[parameter] - value) / best.errors[parameter]
        assert np.abs(away).max() < 4.5
        assert 0.4 < np.sqrt(np.mean(away**2)) < 1.8


def test_constant_durations_are_constant():
    (only,) = fits_of(traces.read_log([[1.0] * 50, [10.0] * 40]), np.random.default_rng(0))
    assert only.name == "constant"
    assert only.clock.mean.tolist() == [1.0, 10.0]
    assert only.distance.tolist() == [0.0, 0.0]


def test_few_jobs_are_only_a_mean():
    (only,) = fits_of(traces.read_log({"a": [1.0, 9.0, 4.0]}), np.random.default_rng(0))
    assert (only.name, float(only.parameters["compute"][0])) == ("constant", 14.0 / 3.0)


@pytest.mark.parametrize("name", ["gamma", "lognormal", "weibull"])
def test_parameters_are_those_of_largest_likelihood(name):
    """SciPy finds them by search."""
    family = FAMILIES[name]
    row = np.random.default_rng(3).gamma(2.5, 0.7, 300)
    fitted = family.fit(row)
    theirs = family.law.fit(row, floc=0)
    ours = family.arguments(**fitted)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)
    assert family.log_density(row, fitted).sum() >= family.law.logpdf(row, *theirs).sum() - 1e-6
    assert family.law(*ours).mean() == pytest.approx(float(fitted["mean"]))


@pytest.mark.parametrize("name", FAMILIES)
def test_samples_of_a_law_are_of_the_law(name):
    """What p-values are sampled with has the fitted distribution."""
    family = FAMILIES[name]
    row = np.random.default_rng(4).gamma(3.0, 1.0, 200)
    fitted = family.fit(row)
    drawn = family.draw(np.random.default_rng(5), (4000,), fitted)
    assert stats.kstest(drawn, lambda x: family.cdf(x, fitted)).pvalue > 1e-3


def test_distances_are_those_of_the_definition():
    rng = np.random.default_rng(2)
    rows = [rng.gamma(2.0, 1.0, 40), np.round(rng.gamma(2.0, 3.0, 25)) + 1.0]  # the second has ties
    for fit in fits_of(traces.read_log({"a": rows[0], "b": rows[1]}), rng):
        if fit.name not in FAMILIES:
            continue
        family = FAMILIES[fit.name]
        for worker, row in enumerate(rows):
            parameters = {name: values[worker] for name, values in fit.parameters.items()}
            far = oracle.kolmogorov(row.tolist(), partial(family.cdf, parameters=parameters))
            np.testing.assert_allclose(fit.distance[worker], far, atol=1e-12)


@pytest.mark.slow
def test_p_values_are_even_under_the_law():
    """Of a right law one in twenty p-values is below 0.05, and the wrong one is rejected."""
    right, wrong = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        fits = fits_of(traces.read_log(rng.lognormal(0.0, 0.6, (2, 80))), rng)
        by_name = {fit.name: fit.p_value for fit in fits}
        right.append(by_name["lognormal"])
        wrong.append(by_name["exponential"])
    assert stats.kstest(right, "uniform").pvalue > 1e-3
    assert np.mean(np.array(right) < 0.05) < 0.15
    assert np.median(wrong) < 0.01


def test_one_speed_has_no_second():
    parameters, _, share = two_speeds(np.array([2.0, 2.0, 2.0]))
    assert share == 0.0
    assert parameters["fast"] == parameters["slow"] == 2.0
