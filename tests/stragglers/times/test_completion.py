"""Completion times: known answers, exact rationals, SciPy, derivatives, and what is refused."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from asyncjax import clocks
from asyncjax.stragglers import completion_variance, expected_completion, response
from tests.oracles import stragglers as oracle

EXP, SHIFTED, CONSTANT = clocks.exponential, clocks.shifted_exponential, clocks.constant
ALL_10 = np.arange(1, 11)


def two(compute, communicate, n, scaling="scale"):
    return response(compute=compute, communicate=communicate, n_workers=n, scaling=scaling)


def alone(compute, n, scaling="scale"):
    return two(compute, None, n, scaling)


KNOWN = {  # response times, k, load, mean
    "exponential": (alone(EXP(0.2), 5), 2, 1.0, 0.09),
    "many": (alone(EXP(0.5), 256), 230, 1.0, 1.1349626233011176),
    "hypoexponential": (two(EXP(0.2), EXP(1.0), 10), 7, 1.0, 1.3157858673151475),
    "additive": (two(EXP(1 / 40), EXP(1.0), 50, "additive"), 40, 10.0, 1.8234151642039407),
    "constant": (two(EXP(0.25), CONSTANT(1.0), 10, "additive"), 9, 5.0, 2.8113180062692105),
    "shifts": (two(SHIFTED(0.1, 0.25), SHIFTED(0.25, 0.5), 8, "shift"), 5, 3.0, 1.2673458485958484),
    "shift": (alone(SHIFTED(0.1, 0.25), 8, "shift"), 5, 3.0, 0.5211309523809524),
    "own parts": (two(EXP([0.5, 0.5, 2.0]), EXP([1.0, 1.0, 0.25]), 3), 2, 1.0, 1.493424036281179),
}
VARIANCES = {"many": 0.008458185694212817, "shifts": 0.054818624466489774}


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.usefixtures("float64")
def test_known_answers(name):
    *given, mean = KNOWN[name]
    np.testing.assert_allclose(expected_completion(*given), mean, rtol=1e-11)
    if name in VARIANCES:
        np.testing.assert_allclose(completion_variance(*given), VARIANCES[name], rtol=1e-10)


@pytest.mark.parametrize("name", ["many", "hypoexponential"])
def test_single_precision_is_good_to_a_millionth(name):
    *given, mean = KNOWN[name]
    value = expected_completion(*given)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, mean, rtol=3e-6)


def test_a_thousand_workers_in_single_precision():
    times = alone(EXP(1.0), 1000)
    expected = [oracle.harmonic(1000) - oracle.harmonic(1000 - k) for k in (1, 500, 1000)]
    np.testing.assert_allclose(expected_completion(times, [1, 500, 1000]), expected, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_exponentials_and_fifty_workers_in_one_table():
    times = two(EXP(1 / 40), EXP(1.0), 50)
    table = expected_completion(times, np.arange(1, 51)[:, None], np.array([1.0, 40.0]))
    np.testing.assert_allclose(table[9, 1], 0.8108448188776235, rtol=1e-11)
    np.testing.assert_allclose(table[39, 0], 1.595554892345461, rtol=1e-11)
    # order statistics add up to the sum of the times
    np.testing.assert_allclose(table.sum(0), [50 * 1.025, 50 * 2.0], rtol=1e-11)
    single = alone(EXP(1.0), 50)
    expected = [oracle.harmonic(50) - oracle.harmonic(50 - k) for k in range(1, 51)]
    np.testing.assert_allclose(expected_completion(single, np.arange(1, 51)), expected, rtol=1e-11)
    np.testing.assert_allclose(expected_completion(single, 10), 0.2206622993930491, rtol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_sums_of_two_exponentials_are_the_exact_rationals():
    def means(communicate, compute, load=1.0):
        return expected_completion(two(EXP(compute), EXP(communicate), 10), ALL_10, load)

    exact = [float(oracle.two_exponentials(10, k, Fraction(1), Fraction(1, 5))) for k in ALL_10]
    np.testing.assert_allclose(means(1.0, 0.2), exact, rtol=1e-12)
    np.testing.assert_allclose(means(1.0, 0.2)[6], 1.3157858673151475, rtol=1e-12)
    np.testing.assert_allclose(means(0.2, 1.0), exact, rtol=1e-12)  # symmetric
    np.testing.assert_allclose(means(1.0, 1.0)[5], 1.890092136356248, rtol=1e-12)
    np.testing.assert_allclose(means(1.0, 0.25, 4.0), means(1.0, 1.0), rtol=1e-13)
    np.testing.assert_allclose(means(1.0, 1.0 + 1e-9), means(1.0, 1.0), rtol=1e-8)
    times = two(EXP(1.0), EXP(1.0), 10)
    np.testing.assert_allclose(completion_variance(times, 6), 0.28743230100235184, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_small_crews():
    three = two(EXP(0.5), EXP(1.0), 3)
    np.testing.assert_allclose(
        expected_completion(three, [1, 2, 3]), [7 / 10, 27 / 20, 49 / 20], rtol=1e-12
    )
    means = [Fraction(1), Fraction(1, 2), Fraction(1, 4)]
    exact = [float(oracle.unequal_exponentials(k, means)) for k in (1, 2, 3)]
    np.testing.assert_allclose(exact, [1 / 7, 29 / 70, 167 / 140], rtol=1e-14)
    unequal = alone(EXP([1.0, 0.5, 0.25]), 3)
    np.testing.assert_allclose(expected_completion(unequal, [1, 2, 3]), exact, rtol=1e-11)
    five = alone(EXP([2, 1, 2 / 3, 1 / 3, 1 / 4]), 5)
    np.testing.assert_allclose(
        expected_completion(five, [1, 3, 5]), [0.1, 0.485049719802, 2.450639273008], rtol=1e-11
    )


LAWS = {
    "gamma": (clocks.gamma(0.5, 1.0), stats.gamma(0.5, scale=2.0)),
    "lognormal": (clocks.lognormal(1.0, 0.8), stats.lognorm(0.8, scale=np.exp(-0.32))),
    "pareto": (clocks.pareto(1.0, 3.5), stats.pareto(3.5, scale=2.5 / 3.5)),
    "weibull": (
        clocks.weibull(1.7, 1.0),
        stats.weibull_min(1.7, scale=1 / special.gamma(1 + 1 / 1.7)),
    ),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.usefixtures("float64")
def test_other_laws_agree_with_scipy(name):
    clock, law = LAWS[name]
    times = alone(clock, 8)
    ends = [*(law.ppf([0.0, 1e-3, 0.1, 0.5, 0.9, 0.99, 1 - 1e-6])), np.inf]
    for k in (2, 7):
        mean, _ = oracle.moments(law.sf, 8, k, ends)
        np.testing.assert_allclose(expected_completion(times, k), mean, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_sums_with_other_laws_agree_with_scipy():
    clock, law = LAWS["lognormal"]
    late = np.vectorize(oracle.sum_survival(law, stats.expon(scale=0.5)))
    times = two(clock, EXP(0.5), 8)
    table = expected_completion(times, np.arange(1, 9))
    np.testing.assert_allclose(table.sum(), 8 * 1.5, rtol=1e-7)
    t, weight = np.polynomial.legendre.leggauss(60)
    t, weight = 4 * (t + 1), 4 * weight  # beyond 8, the fourth of eight is never seen
    expected = weight @ special.betainc(5, 4, np.clip(late(t), 0, 1))
    np.testing.assert_allclose(table[3], expected, rtol=1e-4)


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_shifts_of_their_own_break_the_integral():
    shifts = np.array([0.0, 1.0, 5.0])
    times = alone(SHIFTED(shifts, [1.0, 0.1, 2.0]), 3)
    laws = [stats.expon(loc=a, scale=s) for a, s in zip(shifts, (1.0, 0.1, 2.0), strict=True)]
    t = np.linspace(0, 80, 800001)
    q = [law.sf(t) for law in laws]
    p = [1 - still for still in q]
    none = q[0] * q[1] * q[2]
    one = p[0] * q[1] * q[2] + q[0] * p[1] * q[2] + q[0] * q[1] * p[2]
    late = (none, none + one, 1 - p[0] * p[1] * p[2])
    expected = [np.trapezoid(values, t) for values in late]
    np.testing.assert_allclose(expected_completion(times, [1, 2, 3]), expected, rtol=1e-6)
    np.testing.assert_allclose(expected_completion(times, [1, 2, 3]).sum(), 9.1, rtol=1e-11)


@pytest.mark.usefixtures("float64")
def test_heavy_tails_are_finite_where_they_should_be():
    times = alone(clocks.pareto(1.0, 1.5), 8)
    # T_(k) = x_m exp(E_(k) / tail): a product of independent means
    least = 0.5 / 1.5
    expected = [least * np.prod([(8 - i) / (8 - i - 1 / 1.5) for i in range(k)]) for k in (1, 4, 8)]
    np.testing.assert_allclose(expected_completion(times, [1, 4, 8]), expected, rtol=1e-7)
    variance = completion_variance(times, [7, 8])
    second = least**2 * np.prod([(8 - i) / (8 - i - 2 / 1.5) for i in range(7)])
    seventh = least * np.prod([(8 - i) / (8 - i - 1 / 1.5) for i in range(7)])
    np.testing.assert_allclose(variance[0], second - seventh**2, rtol=1e-6)
    assert variance[1] == np.inf


def test_recorded_times_are_averaged():
    rows = np.array([[1.0, 2.0, 6.0], [3.0, 1.0, 1.0]])
    times = two(clocks.recorded(rows), CONSTANT(1.0), 2)
    np.testing.assert_allclose(expected_completion(times, [1, 2], 2.0), [3.0, 25 / 3], rtol=1e-6)
    np.testing.assert_allclose(
        completion_variance(times, 2, 2.0), np.var([6.0, 4.0, 12.0]), rtol=1e-6
    )
    fixed = alone(CONSTANT([3.0, 1.0, 2.0]), 3)
    np.testing.assert_allclose(expected_completion(fixed, [1, 2, 3], 2.0), [2.0, 4.0, 6.0])
    np.testing.assert_allclose(completion_variance(fixed, 2), 0.0)


def test_a_clock_is_read_with_its_links_as_communication():
    clock = clocks.communicating(EXP(0.2), download=CONSTANT(0.5), upload=EXP(1.0))
    np.testing.assert_allclose(expected_completion(clock, 1, 2.0), 0.5 + 0.4 + 1.0, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_derivatives_in_the_means_and_the_load():
    def completion(point, k):
        communicate, compute, load = point
        return expected_completion(two(EXP(compute), EXP(communicate), 10), k, load)

    points = jnp.asarray([[1.0, 0.2, 1.0], [1.0, 1.0, 1.0], [1.0, 0.25, 4.0]])
    counts = jnp.asarray([7, 10, 3])
    slopes = jax.jit(jax.vmap(jax.grad(completion)))(points, counts)
    for point, k, slope in zip(np.asarray(points), counts, slopes, strict=True):
        for step, value in zip(1e-5 * np.eye(3), slope, strict=True):
            change = completion(point + step, k) - completion(point - step, k)
            np.testing.assert_allclose(value, change / 2e-5, rtol=1e-7)
    np.testing.assert_allclose(slopes[1, 0], slopes[1, 1], rtol=1e-10)  # equal means, k = n


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_derivatives_of_the_variance():
    @jax.jit
    def variance(point):
        communicate, compute, load = point
        return completion_variance(two(EXP(compute), EXP(communicate), 10), 7, load)

    point = jnp.asarray([1.0, 0.25, 3.0])
    slope = jax.grad(variance)(point)
    for step, value in zip(1e-4 * np.eye(3), slope, strict=True):
        change = variance(point + step) - variance(point - step)
        np.testing.assert_allclose(value, change / 2e-4, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_sums_of_many_samples_are_exact_and_differentiable():
    def completion(point):
        compute, communicate, load = point
        times = two(EXP(compute), EXP(communicate), 50, "additive")
        return expected_completion(times, np.arange(1, 51), load)

    @jax.jit
    def both(point):
        return completion(point), jax.jacfwd(completion)(point)

    point = jnp.asarray([1 / 40, 1.0, 35.0])
    edges = np.concatenate([np.linspace(0.0, 6.0, 90), np.linspace(6.5, 45.0, 30)])
    nodes, weights = np.polynomial.legendre.leggauss(40)
    t = ((nodes + 1) / 2 * np.diff(edges)[:, None] + edges[:-1, None]).ravel()
    weight = (weights / 2 * np.diff(edges)[:, None]).ravel()
    late = special.gammaincc(35, 40 * t)
    late += np.exp(-t - 35 * np.log1p(-1 / 40)) * special.gammainc(35, 39 * t)
    expected = [weight @ special.betainc(51 - k, k, np.clip(late, 0, 1)) for k in (3, 40)]
    means, slopes = both(point)
    np.testing.assert_allclose(means[np.array([2, 39])], expected, rtol=1e-12)
    for step, slope in zip(1e-5 * np.eye(3) * point, slopes.T, strict=True):
        change = both(point + step)[0] - both(point - step)[0]
        np.testing.assert_allclose(slope, change / (2 * step.sum()), rtol=1e-6)
    # a computation slower than the communication goes by quadrature
    slow, _ = both(jnp.asarray([1.0, 0.2, 3.0]))
    np.testing.assert_allclose(slow.sum(), 50 * 3.2, rtol=1e-8)
