"""The Poisson clock: its counts against the probabilities, its moments against plain sums."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from asyncjax import clocks
from tests.oracles import clocks as oracle

N_JOBS = 20_000
RATES, LEAST = (0.02, 1.0, 3.5, 40.0, 900.0), (1e-3, 0.5, 0.25, 0.25, 0.25)


@pytest.fixture(scope="module")
def counts():
    draws = clocks.poisson(RATES, LEAST).durations(jax.random.key(5), N_JOBS)
    return np.floor(np.asarray(draws, np.float64))  # zeros are clipped to less than 1


@pytest.mark.slow
def test_counts_have_the_poisson_probabilities(counts):
    for row, rate in zip(counts, RATES, strict=True):
        law = stats.poisson(rate)
        edges = np.unique(law.ppf(np.linspace(0.02, 0.98, 25)))
        found = np.bincount(np.searchsorted(edges, row), minlength=len(edges) + 1)
        expected = N_JOBS * np.diff([0.0, *law.cdf(edges), 1.0])
        assert stats.chisquare(found, expected).pvalue > 1e-3
        assert abs(row.mean() - rate) < 4.5 * np.sqrt(rate / N_JOBS)
        assert row.max() <= law.isf(1e-9)


def test_shorter_times_become_the_least_one():
    key = jax.random.key(5)
    low, high = (np.asarray(clocks.poisson(2.0, least).durations(key, 200)) for least in (0.5, 3.5))
    assert set(low[0]) >= {0.5, 1.0, 2.0, 3.0}
    np.testing.assert_array_equal(high, np.maximum(low, 3.5))


@pytest.mark.slow
def test_moments_are_those_of_the_clipped_law(float64):
    table = itertools.product([0.02, 1.0, 3.5, 40.0], [1.0, 0.25, 2.5, 3.0, 11.0])
    rate, least = np.array(list(table)).T
    expected = [oracle.clipped_poisson_moments(*row, 200) for row in zip(rate, least, strict=True)]
    mean, variance = np.array(expected).T
    clock = clocks.poisson(rate, least)
    np.testing.assert_allclose(clock.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(clock.variance, variance, rtol=1e-12)
    traced = clocks.poisson(jnp.asarray(rate), jnp.asarray(least))
    moments = jax.jit(lambda clock: (clock.mean, clock.variance))(traced)
    np.testing.assert_allclose(moments[0], mean, rtol=1e-12)
    np.testing.assert_allclose(moments[1], variance, rtol=1e-12, atol=1e-12)


def test_unknown_rates_end_in_nan_and_not_in_a_loop():
    draw = jax.jit(lambda rate: clocks.poisson(rate).durations(jax.random.key(0), 3))
    assert bool(jnp.isnan(draw(jnp.nan)).all())
