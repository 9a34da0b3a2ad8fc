"""Response times as a clock: what a load does to them, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import clocks
from asyncjax.stragglers import response

KEY = jax.random.key(7)


def test_two_parts_are_the_draws_of_a_communicating_clock():
    compute, communicate = clocks.exponential([1.0, 2.0]), clocks.lognormal(0.5, 0.3)
    times = response(compute=compute, communicate=communicate, n_workers=2)
    clock = clocks.communicating(compute, download=communicate)
    drawn, expected = times.times(KEY, 4, load=3.0), clock.times(KEY, 4, load=3.0)
    for part in ("download", "compute", "upload"):
        np.testing.assert_array_equal(getattr(drawn, part), getattr(expected, part))
    np.testing.assert_allclose(times.mean, [1.5, 2.5])
    np.testing.assert_allclose(times.variance, clock.variance)


def test_a_load_only_transforms_the_draws():
    law = clocks.shifted_exponential(shift=0.5, mean=[1.0, 3.0])
    one = response(compute=law, n_workers=2).durations(KEY, 6)
    four = response(compute=law, n_workers=2).durations(KEY, 6, load=4.0)
    np.testing.assert_allclose(four, 4 * one, rtol=1e-6)
    shifted = response(compute=law, scaling="shift", n_workers=2).durations(KEY, 6, load=4.0)
    np.testing.assert_allclose(shifted, one + 1.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("law", "mean", "variance"),
    [(clocks.shifted_exponential(0.25, 0.5), 0.75, 0.25), (clocks.gamma(2.0, 0.5), 0.5, 0.125)],
)
def test_sums_of_units_have_their_moments(law, mean, variance):
    times, loads = response(compute=law, scaling="additive", n_workers=2), np.array([16.0, 0.5])
    drawn = np.asarray(times.durations(KEY, 4000, load=jnp.asarray(loads)[:, None]), np.float64)
    mean, variance = loads * mean, loads * variance
    assert (np.abs(drawn.mean(1) - mean) < 5 * np.sqrt(variance / 4000)).all()
    np.testing.assert_allclose(drawn.var(1), variance, rtol=0.25)


def test_sums_of_constants_are_multiples():
    constant = response(compute=clocks.constant(0.5), scaling="additive", n_workers=3)
    np.testing.assert_allclose(constant.durations(None, 2, load=7.0), 3.5)


@pytest.mark.parametrize("scaling", ["scale", "additive", "shift"])
def test_blocks_of_draws_fit_together(scaling):
    law = clocks.shifted_exponential(shift=0.5, mean=[1.0, 3.0])
    times = response(compute=law, communicate=clocks.exponential(1.0), scaling=scaling, n_workers=2)
    whole = times.durations(KEY, 8, load=3.0)
    later = times.durations(KEY, 8, first=5, load=3.0)
    np.testing.assert_array_equal(whole[:, 5:], later[:, :3])


def test_recorded_times_go_by_the_number_of_the_update():
    times = response(compute=clocks.recorded([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), n_workers=2)
    assert not times.is_random
    np.testing.assert_allclose(
        times.durations(None, 3, first=2, load=2.0), [[6.0, 2.0, 4.0], [12.0, 8.0, 10.0]]
    )


def test_it_is_a_pytree_with_traced_parameters_and_load():
    @jax.jit
    def total(times, mean, load):
        other = response(compute=clocks.constant(mean), n_workers=2)
        return times.durations(KEY, 3, load=load).sum() + other.durations(None, 3, load=load).sum()

    times = response(communicate=clocks.exponential(1.0), n_workers=2)
    value = total(times, jnp.asarray(0.5), jnp.asarray(4.0))
    np.testing.assert_allclose(value, times.durations(KEY, 3).sum() + 12.0, rtol=1e-6)


def test_equal_rows_are_kept_once():
    assert response(compute=clocks.exponential([2.0] * 5), n_workers=5).compute.n_workers == 1
    assert response(compute=clocks.exponential([2.0, 1.0]), n_workers=2).compute.n_workers == 2
