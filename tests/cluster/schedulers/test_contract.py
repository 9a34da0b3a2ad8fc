"""The contract of every registered scheduler.

A valid schedule on every preset, from the past alone.
"""

import inspect

import numpy as np
import pytest

from asyncjax import cluster
from asyncjax.cluster.schedulers import SCHEDULERS as REGISTRY, time_saved

pytestmark = pytest.mark.slow

FULL = {"n_jobs": 40, "n_slots": 16, "n_machines": 30}  # the shape of other tests
SHAPE = {"n_jobs": 12, "n_slots": 8, "n_machines": 6}
PRESETS = ("ranges", "balanced", "local")


@pytest.mark.parametrize("preset", [*PRESETS, "tiny"])
@pytest.mark.parametrize("name", REGISTRY)
def test_every_schedule_is_valid_on_every_preset(name, preset):
    sizes = {} if preset == "tiny" else FULL
    n_slots = 4 if preset == "tiny" else 16
    for seed in range(20 if preset == "tiny" else 1):
        jobs, machines = getattr(cluster.workloads, preset)(seed, **sizes)
        schedule = REGISTRY[name](jobs, machines, n_slots=n_slots)
        assert cluster.check(schedule, jobs, machines) == []
        assert schedule.workers.dtype == schedule.servers.dtype == np.int32
        assert schedule.admitted.dtype == bool
        ends = cluster.completion(schedule, jobs)
        assert ((ends < 0) | schedule.admitted).all()
        assert (ends[ends >= 0] >= jobs.arrival[ends >= 0]).all()
        found = cluster.outcome(schedule, jobs, machines)
        assert 0 <= found.wasted <= 1
        assert (found.utilisation <= 1 + 1e-9).all()


@pytest.mark.parametrize("name", REGISTRY)
def test_servers_are_enough_where_one_serves_no_whole_number_of_workers(name):
    jobs, machines = cluster.workloads.tiny(2)
    machines = cluster.Machines(4 * machines.capacity)
    for ratio in (0.4, 0.5, 1.5, 2.5):
        changed = jobs._replace(workers_per_server=np.full(4, ratio))
        schedule = REGISTRY[name](changed, machines, n_slots=4)
        assert cluster.check(schedule, changed, machines) == []
        assert (schedule.workers > 0).any()


@pytest.mark.parametrize("name", REGISTRY)
def test_earlier_slots_do_not_depend_on_later_jobs(name):
    jobs, machines = cluster.workloads.tiny(5)
    late = jobs._replace(arrival=np.array([0, 0, 1, 3]))
    other = late._replace(samples=late.samples * [1, 1, 1, 2], batch=late.batch + np.arange(4) // 3)
    scheduler = REGISTRY[name]
    # Bounds of prices come from all jobs, unless they are given.
    priced = "low" in inspect.signature(scheduler).parameters
    bounds = {"low": 1e-3, "high": 60.0} if priced else {}
    one, two = (scheduler(x, machines, n_slots=4, **bounds) for x in (late, other))
    np.testing.assert_array_equal(one.workers[:, :3], two.workers[:, :3])
    np.testing.assert_array_equal(one.servers[:, :3], two.servers[:, :3])


def test_a_job_served_enough_steps_back():
    jobs, machines = cluster.workloads.balanced(0, **SHAPE)
    jobs = jobs._replace(arrival=np.arange(12) // 6, samples=np.full(12, 1e12))
    small = cluster.Machines(machines.capacity[:1])
    schedule = cluster.least_attained(jobs, small, n_slots=8, thresholds=[1.0])
    held = schedule.workers.sum(-1)
    assert held[0, 0] > 0
    assert held[0, 1] == 0  # it has passed the threshold, and the others have not
    in_order = cluster.least_attained(jobs, small, n_slots=8, thresholds=[])
    assert (in_order.workers.sum(-1)[0] > 0).all()
    asked = cluster.least_attained(jobs, small, n_slots=8, workers=np.full(12, 2))
    totals = asked.workers.sum(-1)
    assert set(np.unique(totals)) <= {0, 2}


def test_units_go_where_they_help_most():
    jobs, machines = cluster.workloads.balanced(1, n_jobs=2, n_slots=1, n_machines=1)
    alike = [np.repeat(np.asarray(field)[:1], 2, axis=0) for field in jobs]
    jobs = cluster.Jobs(*alike)._replace(samples=np.array([1e6, 4e6]), batch=np.array([99, 99]))
    speed = cluster.marginal_goodput(jobs, machines, n_slots=1).workers.sum((1, 2))
    time = cluster.marginal_goodput(jobs, machines, n_slots=1, gain=time_saved)
    time = time.workers.sum((1, 2))
    assert (speed > 0).all()
    assert speed[0] > speed[1]
    assert time[0] < time[1]
