"""Gradient coding and deadlines.

Known answers, SciPy, drawn times, derivatives, what is refused.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from asyncjax import clocks
from asyncjax.stragglers import coded_completion, deadline_completion, expected_completion, response
from tests.oracles import stragglers as oracle

EXP = clocks.exponential
ALL_6 = np.arange(1, 7)


def six(compute, communicate=None, scaling="scale"):
    return response(compute=compute, communicate=communicate, scaling=scaling, n_workers=6)


BOTH = six(EXP(0.25), EXP(1.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scaling", "shift", "expected"),
    [
        ("scale", 0.0, [3.33, 4.42, 5.02]),
        ("additive", 0.0, [3.33, 3.83, 4.44]),
        ("shift", 0.1, [3.43, 2.53, 2.13]),
    ],
)
def test_redundancy_helps_where_the_load_hardly_matters(scaling, shift, expected):
    times = response(
        compute=clocks.shifted_exponential(shift, 1.0),
        communicate=EXP(0.2),
        scaling=scaling,
        n_workers=12,
    )
    coded = coded_completion(times, np.arange(3))
    np.testing.assert_allclose(coded, expected, atol=0.006)
    if scaling == "scale":
        traced = jax.jit(coded_completion)(times, jnp.arange(3), 2.0)
        plain = expected_completion(times, [12, 11, 10], [2.0, 4.0, 6.0])
        np.testing.assert_allclose(traced, plain, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_deadlines_agree_with_scipy():
    laws = {
        "scale": (BOTH, stats.expon(scale=1.0), stats.expon(scale=1.0)),
        "additive": (
            six(clocks.shifted_exponential(0.1, 0.25), clocks.gamma(2.0, 1.0), "additive"),
            stats.gamma(2.0, scale=0.5),
            stats.gamma(4.0, loc=0.4, scale=0.25),
        ),
    }
    deadline, nodes = 1.1, np.polynomial.legendre.leggauss(12)
    for times, communicate, compute in laws.values():
        survival = oracle.stopped_survival(communicate, compute, deadline)
        first = float(compute.ppf(0.0))
        panels = [0.0, first, 0.7, deadline, 1.6, 2.4, 4.0, 7.0, 14.0, 40.0]
        means = np.zeros(6)
        for a, b in pairwise(panels):
            t, weight = (nodes[0] + 1) / 2 * (b - a) + a, nodes[1] * (b - a) / 2
            late = np.clip([survival(x) for x in t], 0, 1)
            means += [weight @ special.betainc(6 - k + 1, k, late) for k in ALL_6]
        np.testing.assert_allclose(
            deadline_completion(times, ALL_6, deadline, 4.0), means, rtol=1e-6
        )


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_without_communication_the_integral_ends_at_the_deadline():
    times = six(clocks.gamma(0.5, 0.25))
    law = stats.gamma(0.5, scale=2.0)  # load 4
    for k in (1, 4, 6):
        mean, _ = integrate.quad(
            lambda t, k=k: special.betainc(7 - k, k, law.sf(t)), 0, 0.5, epsabs=1e-12
        )
        np.testing.assert_allclose(deadline_completion(times, k, 0.5, 4.0), mean, rtol=1e-7)


@pytest.mark.slow
def test_deadlines_agree_with_drawn_times_in_single_precision():
    times = six(clocks.lognormal(0.25, 0.7), clocks.shifted_exponential(0.2, 1.0))
    drawn = times.times(jax.random.key(3), 60000, load=4.0)
    rounds = np.sort(drawn.download + jnp.minimum(drawn.compute, 0.8), axis=0)
    error = rounds.std(1) / np.sqrt(60000)
    exact = deadline_completion(times, ALL_6, 0.8, 4.0)
    assert exact.dtype == jnp.float32
    assert (np.abs(exact - rounds.mean(1)) < 5 * error).all()


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_limits_of_the_deadline():
    table = deadline_completion(BOTH, ALL_6[:, None], np.array([1e-6, 0.5, 2.0, 200.0]), 4.0)
    assert (np.diff(table, axis=1) > 0).all()
    near, far = table[:, 0], table[:, 3]
    np.testing.assert_allclose(far, expected_completion(BOTH, ALL_6, 4.0), rtol=1e-11)
    harmonic = [oracle.harmonic(6) - oracle.harmonic(6 - k) for k in ALL_6]
    np.testing.assert_allclose(near, harmonic, atol=2e-6)
    shifted = six(clocks.shifted_exponential(0.5, 1.0))  # nobody is done before 2
    np.testing.assert_allclose(deadline_completion(shifted, ALL_6, 1.5, 4.0), 1.5, rtol=1e-12)
    constant = six(clocks.constant(1.0), EXP(1.0))
    expected = 2.5 + np.array(harmonic)
    np.testing.assert_allclose(deadline_completion(constant, ALL_6, 2.5, 4.0), expected, rtol=1e-11)


@pytest.mark.slow
def test_heavy_tails_of_communication():
    times = six(EXP(1.0), clocks.pareto(1.0, 1.5))
    means = deadline_completion(times, ALL_6, 0.01)
    least, left, power = 1 / 3, 6 - ALL_6, 1 / 1.5
    exact = special.gammaln(7) - special.gammaln(left + 1)
    exact += special.gammaln(left + 1 - power) - special.gammaln(7 - power)
    assert (means > least * np.exp(exact) * (1 + 1e-5)).all()
    np.testing.assert_allclose(means, least * np.exp(exact) + 0.01, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_derivatives_in_the_means_the_load_and_the_deadline():
    @jax.jit
    def completion(point):
        compute, communicate, deadline, load = point
        return deadline_completion(six(EXP(compute), EXP(communicate)), 4, deadline, load)

    point = jnp.asarray([0.25, 1.0, 1.1, 4.0])
    slope = jax.grad(completion)(point)
    for step, value in zip(1e-5 * np.eye(4), slope, strict=True):
        change = completion(point + step) - completion(point - step)
        np.testing.assert_allclose(value, change / 2e-5, rtol=1e-6)
