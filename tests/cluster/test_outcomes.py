"""What a schedule achieves and which rules it breaks, on schedules written by hand."""

import numpy as np
import pytest

from asyncjax import cluster
from tests.oracles import cluster as oracle


def by_hand(n_slots=4):
    """Two jobs on two machines with round numbers: rho inside 1.2, across 3."""
    jobs = cluster.Jobs(
        arrival=np.array([0, 1]),
        samples=np.array([10.0, 4.0]),
        batch=np.array([4, 4]),
        workers_per_server=np.array([2.0, 2.0]),
        gradient=np.array([2.0, 2.0]),
        compute=np.array([1.0, 1.0]),
        link_across=np.array([1.0, 1.0]),
        link_inside=np.array([10.0, 10.0]),
        worker=np.array([[1.0, 2.0], [1.0, 2.0]]),
        server=np.array([[0.0, 1.0], [0.0, 1.0]]),
        utility=np.array([[8.0, 0.0, 0.0], [10.0, 2.0, 1.0]]),
    )
    machines = cluster.Machines(np.array([[4.0, 10.0], [4.0, 10.0]]))
    empty = np.zeros((2, n_slots, 2), np.int32)
    return jobs, machines, cluster.Schedule(empty, empty.copy(), np.ones(2, bool), np.zeros(2))


def test_progress_depends_on_the_place_and_on_the_servers():
    jobs, _, schedule = by_hand()
    schedule.workers[0, :, 0] = [2, 2, 2, 2]
    schedule.servers[0, 0, 0] = 1  # inside, nominal: 2 / 1.2
    schedule.servers[0, 1, 1] = 1  # across, nominal: 2 / 3
    schedule.servers[0, 2, 0] = 2  # inside, more servers: 2 / 1.1
    # slot 3: no server, no progress
    expected = np.cumsum([2 / 1.2, 2 / 3, 2 / 1.1, 0.0])
    np.testing.assert_allclose(cluster.progress(schedule, jobs)[0], expected, rtol=1e-12)
    np.testing.assert_array_equal(cluster.completion(schedule, jobs), [-1, -1])
    assert cluster.total_utility(schedule, jobs) == 0


def test_completion_utility_and_waste():
    jobs, machines, schedule = by_hand()
    schedule.workers[1, 1:, 0] = 3
    schedule.servers[1, 1:, 0] = 2  # 3 / (1 + 1.5 * 0.1) = 2.61 a slot: done in slot 2
    np.testing.assert_array_equal(cluster.completion(schedule, jobs), [-1, 2])
    assert cluster.total_utility(schedule, jobs) == pytest.approx(10 / (1 + np.exp(2 * (1 - 1))))
    found = cluster.outcome(schedule, jobs, machines)
    assert (found.completed, found.admitted) == (1, 2)
    assert (found.mean_slots, found.mean_slots_of_all, found.median_slots_of_all) == (2, 3, 3)
    assert found.wasted == pytest.approx(1 / 3)
    used = cluster.utilisation(schedule, jobs, machines)
    np.testing.assert_allclose(used, [[0, 0]] + [[3 / 8, 8 / 20]] * 3)
    np.testing.assert_allclose(found.utilisation, [9 / 32, 24 / 80])


def test_nothing_at_all():
    jobs, machines, schedule = by_hand()
    found = cluster.outcome(schedule, jobs, machines)
    assert np.isnan(found.mean_slots)
    assert (found.wasted, found.mean_slots_of_all) == (0, 4)
    assert cluster.check(schedule, jobs, machines) == []


def test_a_millionth_may_be_missing():
    jobs, _, schedule = by_hand()
    schedule.workers[1, 1, 0], schedule.servers[1, 1, 0] = 2, 1
    trained = 2 / 1.2
    for share, done in ((0.9e-6, 1), (1.1e-6, -1)):
        asked = jobs._replace(samples=np.array([10.0, trained / (1 - share)]))
        assert cluster.completion(schedule, asked)[1] == done


def test_each_violation_is_named():
    jobs, machines, schedule = by_hand()

    def lines(workers=(), servers=(), admitted=(True, True)):
        w, s = schedule.workers.copy(), schedule.servers.copy()
        for index, value in workers:
            w[index] = value
        for index, value in servers:
            s[index] = value
        return cluster.check(
            cluster.Schedule(w, s, np.array(admitted), np.zeros(2)), jobs, machines
        )

    assert lines([((0, 2, 1), 3)], [((0, 2, 0), 2)]) == []
    assert lines([((0, 2, 1), -1)]) == [
        "whole numbers: job 0 has -1 workers in slot 2 on machine 1"
    ]
    assert lines([((0, 2, 1), 4)], [((0, 2, 1), 3)]) == [
        "capacity: machine 1 exceeds resource 1 in slot 2 by 1"
    ]
    assert lines([((0, 2, 1), 3), ((0, 2, 0), 3)], [((0, 2, 1), 3)]) == [
        "batch: job 0 exceeds its batch in slot 2 by 2 workers"
    ]
    assert lines([((0, 2, 1), 3)], [((0, 2, 1), 1)]) == [
        "servers: job 0 has 1 workers too many for its servers in slot 2"
    ]
    assert lines([((1, 0, 1), 1)], [((1, 0, 1), 1)]) == [
        "before arrival: job 1 has 2 units in slot 0, and arrives in slot 1"
    ]
    assert lines([((1, 2, 1), 1)], [((1, 2, 1), 1)], admitted=(True, False)) == [
        "admission: job 1 has 2 units in slot 2, and is not admitted"
    ]
    fractions = schedule._replace(workers=np.full((2, 4, 2), 0.5))
    assert any("has 0.5 workers" in line for line in cluster.check(fractions, jobs, machines))
    short = schedule._replace(payoff=np.zeros(3))
    assert cluster.check(short, jobs, machines) == ["shape: payoff is (3,), and must be (2,)"]


def test_random_schedules_count_as_the_definition_says():
    rng = np.random.default_rng(0)
    jobs, _ = cluster.workloads.tiny(3)
    for _ in range(20):
        units = rng.integers(0, 2, (2, 4, 4, 2)).astype(np.int32)
        schedule = cluster.Schedule(units[0], units[1], np.ones(4, bool), np.zeros(4))
        expected = [
            [
                oracle.trained(jobs, i, schedule.workers[i, t], schedule.servers[i, t])
                for t in range(4)
            ]
            for i in range(4)
        ]
        np.testing.assert_allclose(
            cluster.progress(schedule, jobs), np.cumsum(expected, axis=1), rtol=1e-12
        )
