"""Workloads and what is computed from jobs alone, against known answers."""

import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import cluster


def test_the_counter_gives_the_known_numbers():
    unit = cluster.workloads.unit
    known = [0.13870941014555427, 0.9711020828012883, 0.2778328726049074]
    np.testing.assert_array_equal(unit(0, 0, np.arange(3)), known)
    assert unit(1, 8, 5) == 0.348133488210999
    assert unit(-1, 0, 0) == unit(2**64 - 1, 0, 0)


def test_balanced_gives_the_known_jobs():
    jobs, machines = cluster.workloads.balanced(0)
    np.testing.assert_array_equal(jobs.arrival[:6], [0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(jobs.samples[:3], [18553486, 8020003, 2203165])
    np.testing.assert_array_equal(jobs.batch[:3], [165, 151, 80])
    np.testing.assert_array_equal(jobs.workers_per_server[:3], [9, 8, 9])
    np.testing.assert_allclose(jobs.compute[0], 2.06854612e-5, rtol=1e-8)
    np.testing.assert_allclose(jobs.gradient[0], 133.77864299, rtol=1e-10)
    np.testing.assert_allclose(jobs.link_across[0], 1697608.01762542, rtol=1e-14)
    np.testing.assert_array_equal(jobs.worker[0], [3, 1, 32, 7])
    np.testing.assert_array_equal(jobs.server[0], [0, 8, 12, 7])
    np.testing.assert_allclose(jobs.utility[0], [22.63073789, 0.79124338, 7.08142575], rtol=1e-8)
    assert machines.capacity.shape == (100, 4)
    np.testing.assert_array_equal(machines.capacity, np.tile([36, 99, 306, 135], (100, 1)))
    across = cluster.sample_times(jobs).across
    np.testing.assert_allclose(across[0], 2.928228306616976e-5, rtol=1e-15)


def test_ranges_gives_the_known_jobs():
    jobs, _ = cluster.workloads.ranges(0)
    np.testing.assert_array_equal(jobs.samples[:3], [3210130, 31052592, 40121652])
    np.testing.assert_array_equal(jobs.batch[:3], [161, 146, 67])


def test_the_same_job_keeps_its_numbers_when_there_are_more():
    few, _ = cluster.workloads.balanced(3, n_jobs=5)
    many, _ = cluster.workloads.balanced(3, n_jobs=9)
    for name in set(few._fields) - {"arrival"}:
        np.testing.assert_array_equal(getattr(few, name), getattr(many, name)[:5])


def test_crews_of_known_jobs():
    jobs, _ = cluster.workloads.balanced(0)
    units = cluster.crew(jobs, parts=20)
    across = np.stack([units.workers_across, units.servers_across], -1)[:4, 4]
    inside = np.stack([units.workers_inside, units.servers_inside], -1)[:4, 4]
    np.testing.assert_array_equal(across, [[136, 16], [106, 14], [96, 11], [47, 12]])
    np.testing.assert_array_equal(inside, [[100, 12], [32, 4], [36, 4], [23, 6]])
    units = cluster.crew(cluster.workloads.local(0)[0], parts=20)
    across = np.stack([units.workers_across, units.servers_across], -1)[:4, 4]
    inside = np.stack([units.workers_inside, units.servers_inside], -1)[:4, 4]
    np.testing.assert_array_equal(across, [[12, 2], [10, 2], [10, 2], [4, 1]])
    np.testing.assert_array_equal(inside, [[2, 1], [1, 1], [1, 1], [1, 1]])
    assert all(numbers.dtype == np.int32 for numbers in units)


def test_crews_promise_no_more_than_they_train():
    jobs, _ = cluster.workloads.balanced(4)
    units = cluster.crew(jobs, parts=7)
    promised = np.arange(1, 8) / 7 * jobs.samples[:, None]
    # Two machines, so that all run at the rate across; one, so that they run inside.
    for workers, servers, place in ((*units[:2], 2), (*units[2:], 1)):
        spread = np.zeros((50, 7, place), np.int64)
        spread[..., 0] = workers
        helpers = np.zeros_like(spread)
        helpers[..., -1] = servers
        trained = cluster.samples_trained(spread, helpers, jobs)
        assert (trained >= promised * (1 - 1e-9)).all()
        assert (workers <= jobs.workers_per_server[:, None] * servers + 1e-9).all()


def test_crews_saturate():
    jobs, _ = cluster.workloads.tiny(0)
    units = cluster.crew(jobs._replace(samples=jobs.samples * 1e12), parts=2)
    assert units.workers_across.max() == 2**31 - 1
    assert (units.servers_across > 0).all()


def test_bounds_of_known_workloads():
    jobs, machines = cluster.workloads.balanced(0)
    bounds = cluster.price_bounds(jobs, machines, n_slots=20)
    np.testing.assert_allclose(
        bounds.high, [80.27444291, 80.27444291, 34.29167904, 19.80355425], rtol=1e-9
    )
    np.testing.assert_allclose(bounds.spread, 987.9931389, rtol=1e-9)
    np.testing.assert_allclose(bounds.low, 2.4018e-45, rtol=1e-4)
    delays = np.minimum(cluster.best_delays(jobs), 20 - jobs.arrival)
    low = cluster.price_bounds(jobs, machines, n_slots=20, delays=delays).low
    np.testing.assert_allclose(low, 6.192316e-13, rtol=1e-6)
    jobs, machines = cluster.workloads.ranges(0)
    delays = np.minimum(cluster.best_delays(jobs), 20 - jobs.arrival)
    bounds = cluster.price_bounds(jobs, machines, n_slots=20, delays=delays)
    np.testing.assert_allclose(bounds.spread, 277.3230621, rtol=1e-9)
    np.testing.assert_allclose(bounds.low, 5.306285e-30, rtol=1e-6)


def test_a_resource_that_nobody_asks_for_costs_the_least():
    jobs, machines = cluster.workloads.tiny(1)
    jobs = jobs._replace(worker=jobs.worker * [1, 0], server=jobs.server * [1, 0])
    bounds = cluster.price_bounds(jobs, machines, n_slots=4)
    assert bounds.high[1] == 0
    prices = cluster.price(machines.capacity, machines.capacity, bounds.low, bounds.high)
    np.testing.assert_allclose(prices[:, 1], bounds.low, rtol=1e-5)


def test_prices_rise_from_low_to_high(float64):
    capacity = jnp.array([[4.0, 8.0], [0.0, 2.0]])
    high = jnp.array([5.0, 300.0])
    at = lambda share: cluster.price(share * capacity, capacity, 1e-20, high)  # noqa: E731
    np.testing.assert_allclose(at(0.0), np.full((2, 2), 1e-20), rtol=1e-13)
    np.testing.assert_allclose(at(1.0)[0], high, rtol=1e-13)
    np.testing.assert_allclose(at(0.5)[0], np.sqrt(1e-20 * high), rtol=1e-13)
    assert at(1.0)[1, 0] == pytest.approx(1e-20)  # no capacity counts as no load
    rising = np.stack([at(share) for share in np.linspace(0, 1, 9)])
    assert (np.diff(rising[:, 0], axis=0) > 0).all()
    scaled = cluster.price(0.3 * capacity, capacity, 1e-14, 1e6 * high)
    np.testing.assert_allclose(scaled, 1e6 * at(0.3), rtol=1e-13)


def test_prices_in_single_precision_do_not_overflow():
    load, capacity = jnp.array([[0.0, 1.0]]), jnp.array([[1.0, 1.0]])
    prices = cluster.price(load, capacity, 1e-24, jnp.array([80.0, 80.0]))
    np.testing.assert_allclose(prices, [[1e-24, 80.0]], rtol=2e-5)
    literal = np.asarray(cluster.price(load, capacity, 2.4e-45, np.array([80.0, 80.0])))
    assert literal[0, 0] < 1e-37  # below single precision, and no NaN
    np.testing.assert_allclose(literal[0, 1], 80, rtol=2e-5)
