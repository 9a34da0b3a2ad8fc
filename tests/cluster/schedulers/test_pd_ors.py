"""PD-ORS: known answers, its promises, its options, and the pure episode under vmap."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import cluster
from asyncjax.cluster.schedulers import arrival_schedulers as by_arrival, pd_ors_settings, prepare
from tests.oracles import cluster as oracle

pytestmark = pytest.mark.slow

KNOWN = [28.665529, 89.419685, 151.507958, 79.867195, 49.010020, 66.461914]
tiny = partial(cluster.pd_ors, n_slots=4, parts=8)


def test_tiny_workloads_give_the_known_utility(float64):
    for seed, expected in enumerate(KNOWN):
        jobs, machines = cluster.workloads.tiny(seed)
        schedule = tiny(jobs, machines)
        assert cluster.check(schedule, jobs, machines) == []
        np.testing.assert_allclose(cluster.total_utility(schedule, jobs), expected, rtol=1e-6)


def test_one_program_serves_all_seeds_and_bounds():
    by_arrival.pd_ors_program.clear_cache()
    for seed in range(8):
        jobs, machines = cluster.workloads.tiny(seed)
        tiny(jobs, machines)
        tiny(jobs, machines, low=1e-3, high=30.0 + seed)
    assert by_arrival.pd_ors_program._cache_size() == 1


def test_admitted_jobs_complete_as_promised_and_keep_nothing_after():
    for seed in (*range(24), 27, 30, 32, 36):  # in 8 a job is done before its last slot
        jobs, machines = cluster.workloads.tiny(seed)
        schedule = tiny(jobs, machines)
        assert cluster.check(schedule, jobs, machines) == []
        ends = cluster.completion(schedule, jobs)
        np.testing.assert_array_equal(ends >= 0, schedule.admitted)
        assert not schedule.payoff[~schedule.admitted].any()
        bounds = cluster.price_bounds(jobs, machines, n_slots=4)
        load = np.zeros((4, 2, 2))  # what the next one meets
        for job in np.flatnonzero(schedule.admitted):
            workers, servers = schedule.workers[job], schedule.servers[job]
            end = oracle.real_end(jobs, job, workers, servers)
            assert end == ends[job]
            assert not (workers + servers)[end + 1 :].any()
            # It pays for what it keeps, and is worth what its real end is worth.
            prices = cluster.price(load, machines.capacity, max(bounds.low, 1e-24), bounds.high)
            use = workers[..., None] * jobs.worker[job] + servers[..., None] * jobs.server[job]
            worth = oracle.utility(jobs, job, end - jobs.arrival[job])
            paid = float((np.asarray(prices) * use).sum())
            assert schedule.payoff[job] > 0
            np.testing.assert_allclose(schedule.payoff[job], worth - paid, rtol=1e-3, atol=1e-4)
            load = load + use


@pytest.mark.parametrize("double", [False, True])
def test_units_are_taken_away_as_soon_as_all_is_trained_and_never_before(double):
    jobs, _ = cluster.workloads.tiny(3)
    generator = np.random.default_rng(0)
    cut = jax.jit(by_arrival.until_done)
    with jax.enable_x64(double):
        rows = prepare(jobs, cluster.workloads.tiny(3).machines, n_slots=4).jobs
        shorter = 0
        for turn in range(200):
            job = turn % 4
            row = jax.tree.map(lambda leaf, job=job: jnp.asarray(leaf[job]), rows)
            units = generator.integers(0, 4, (2, 6, 2)) * generator.integers(0, 2, (2, 6, 1))
            left = [np.asarray(one) for one in cut(*units.astype(np.int32), row)]
            end = oracle.real_end(jobs, job, *units)
            last = 5 if end < 0 else end
            np.testing.assert_array_equal(left[0], units[0] * (np.arange(6) <= last)[:, None])
            np.testing.assert_array_equal(left[1], units[1] * (np.arange(6) <= last)[:, None])
            shorter += units[:, last + 1 :].any()
    assert shorter > 20


def test_a_sum_that_rounding_leaves_open_is_not_cut():
    jobs, machines = cluster.workloads.tiny(3)
    row = jax.tree.map(
        lambda leaf: jnp.asarray(leaf[0]), prepare(jobs, machines, n_slots=4).jobs
    )._replace(pace=jnp.array([3.0, 0.0, 0.0]))  # three thirds are one, but for a rounding error
    one = jnp.array([[1, 0]] * 4, jnp.int32)
    assert by_arrival.until_done(one, one, row)[0].sum() >= 3
    much = row._replace(pace=jnp.array([3.0 - 1e-4, 0.0, 0.0]))
    assert by_arrival.until_done(one, one, much)[0].sum() == 3


def test_one_other_number_of_servers_is_a_job_that_names_it():
    for seed in (2, 5):
        jobs, machines = cluster.workloads.tiny(seed)
        for factor in (1.5, 2.0):
            bounds = {"low": 1e-6, "high": 60.0}
            told = jobs._replace(workers_per_server=jobs.workers_per_server / factor)
            expected = tiny(told, machines, **bounds)
            found = tiny(jobs, machines, **bounds, servers=[factor])
            assert found.admitted.any()
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("seeds", "servers", "bounds", "least"),
    # In the second case the choice of servers matters.
    [(range(6), (1,), {}, 8), ((4, 9, 12), (1, 2), {"low": 0.3, "high": 30.0}, 5)],
)
def test_decisions_follow_the_definition(float64, seeds, servers, bounds, least):
    admitted, more = 0, 0
    for seed in seeds:
        jobs, machines = cluster.workloads.tiny(seed)
        schedule = tiny(jobs, machines, servers=servers, **bounds)
        assert cluster.check(schedule, jobs, machines) == []
        low, high, _ = cluster.price_bounds(jobs, machines, n_slots=4)
        low, high = bounds.get("low", low), bounds.get("high", high)
        load = np.zeros((4, 2, 2))
        for job in range(4):
            prices = np.asarray(cluster.price(load, machines.capacity, low, high))
            room = machines.capacity - load
            relaxed = oracle.payoffs_with_servers(jobs, job, prices, room, 8, servers)
            best = max(relaxed)
            if len(servers) > 1:
                fewer = max(oracle.payoffs_with_servers(jobs, job, prices, room, 8, (1,)))
                more += best > fewer + 1e-9 * abs(fewer)
            workers, servers_held = schedule.workers[job], schedule.servers[job]
            if schedule.admitted[job]:
                # Whole units cost a little more, and the best end slot is not always the one.
                assert oracle.real_end(jobs, job, workers, servers_held) >= 0
                assert schedule.payoff[job] > 0
                assert schedule.payoff[job] >= sorted(relaxed)[-3] - 0.2 * abs(best)
                assert len(servers) > 1 or schedule.payoff[job] <= best + 1e-9 * abs(best)
                admitted += 1
            else:
                assert best <= 1e-9
            load = load + workers[..., None] * jobs.worker[job]
            load = load + servers_held[..., None] * jobs.server[job]
    assert least <= admitted <= 20
    assert len(servers) == 1 or more >= 2


def test_spreading_can_be_forbidden():
    for seed in (2, 5):
        jobs, machines = cluster.workloads.tiny(seed)
        together = tiny(jobs, machines, across=False)
        assert together.admitted.any()
        assert (((together.workers + together.servers) > 0).sum(-1) <= 1).all()
        assert cluster.check(together, jobs, machines) == []


def test_random_rounding_is_valid_and_depends_on_the_key_alone():
    draw = partial(tiny, inside=False, hull=False, draws=20, scale=1.1)
    utilities, differs = [], False
    for seed in range(6):
        jobs, machines = cluster.workloads.tiny(seed)
        found = [draw(jobs, machines, key=jax.random.key(number)) for number in range(4)]
        for schedule in found:
            assert cluster.check(schedule, jobs, machines) == []
            utilities.append(cluster.total_utility(schedule, jobs))
            differs |= not np.array_equal(schedule.servers, found[0].servers)
        again = draw(jobs, machines, key=jax.random.key(3))
        np.testing.assert_array_equal(again.servers, found[3].servers)
    assert differs
    assert np.mean(utilities) > 0.5 * np.mean(KNOWN)  # although nobody runs inside


def test_more_pieces_than_expected_start_the_search_again(monkeypatch):
    jobs, machines = cluster.workloads.tiny(2)
    expected = tiny(jobs, machines)
    monkeypatch.setattr(by_arrival, "_FEW_PIECES", 1)
    assert pd_ors_settings(jobs, machines, n_slots=4).pieces == 1
    found = tiny(jobs, machines)
    np.testing.assert_array_equal(found.workers, expected.workers)


def test_episodes_under_vmap_equal_episodes_alone():
    floors = [1e-9, 1e-2]
    episodes = [
        prepare(*cluster.workloads.tiny(seed), n_slots=4, parts=8, low=low)
        for seed in range(3)
        for low in floors
    ]
    settings = pd_ors_settings(*cluster.workloads.tiny(0), n_slots=4)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *episodes)
    together = by_arrival._together(stacked, settings)
    assert not together.overflow.any()
    for index in range(6):
        jobs, machines = cluster.workloads.tiny(index // 2)
        alone = tiny(jobs, machines, low=floors[index % 2])
        np.testing.assert_array_equal(together.workers[index], alone.workers)
        np.testing.assert_array_equal(together.servers[index], alone.servers)


def test_machines_without_room_and_jobs_that_cannot_run():
    jobs, machines = cluster.workloads.tiny(2)
    empty = cluster.Machines(machines.capacity * 0)
    schedule = tiny(jobs, empty)
    assert not schedule.admitted.any()
    large = jobs._replace(worker=jobs.worker * 100)
    assert not tiny(large, machines).admitted.any()
    unused = jobs._replace(worker=jobs.worker * [1, 0], server=jobs.server * [1, 0])
    schedule = tiny(unused, machines)
    assert schedule.admitted.any()
    assert cluster.check(schedule, unused, machines) == []
