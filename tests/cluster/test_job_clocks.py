"""The clock of a scheduled job trains what the schedule is counted by."""

import numpy as np
import pytest

from asyncjax import cluster, traces

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scheduled():
    def made(seed):
        jobs, machines = cluster.workloads.tiny(seed)
        return cluster.pd_ors(jobs, machines, n_slots=4, parts=8), jobs

    return made


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_gradients_arrive_as_the_samples_are_trained(scheduled, seed):
    schedule, jobs = scheduled(seed)
    progress = cluster.progress(schedule, jobs)
    for job in np.flatnonzero(schedule.admitted):
        clock = cluster.clock_of(schedule, jobs, job, samples=0.25)
        n_updates = int(4 * progress[job, -1]) - 2 * clock.n_workers
        trace = traces.asynchronous(clock, n_updates=n_updates)
        for slot in range(int(jobs.arrival[job]), 4):
            arrived = 0.25 * (trace.time <= slot + 1 - jobs.arrival[job]).sum()
            expected = min(progress[job, slot], 0.25 * n_updates)
            assert abs(arrived - expected) <= 0.25 * (2 * clock.n_workers + 1)


def test_a_job_may_pause_and_grow(scheduled):
    schedule, jobs = scheduled(1)
    np.testing.assert_array_equal(schedule.workers[1].sum(-1), [2, 0, 3, 0])
    trace = traces.asynchronous(cluster.clock_of(schedule, jobs, 1), n_updates=45)
    assert not ((trace.time > 1) & (trace.time <= 2)).any()
    assert set(trace.worker[trace.time <= 1]) == {0, 1}
    assert set(trace.worker[trace.time > 2]) == {0, 1, 2}


def test_no_gradient_returns_after_the_last_slot(scheduled):
    schedule, jobs = scheduled(1)
    with pytest.raises(ValueError, match="cannot go on"):
        traces.asynchronous(cluster.clock_of(schedule, jobs, 1), n_updates=200)
