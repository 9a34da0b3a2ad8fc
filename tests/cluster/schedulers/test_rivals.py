"""FIFO, DRF, Dorm and OASiS: known answers, their own rules, refusals."""

from functools import partial

import numpy as np
import pytest

from asyncjax import cluster
from tests.oracles import cluster as oracle

KNOWN = {  # total utility of seeds 0, 1, ...
    ("tiny", "oasis"): [0, 0, 12.153090, 69.911544, 36.074461, 42.311491],
    ("tiny", "drf"): [0, 0, 14.668006, 33.012132, 36.074461, 60.058929],
    ("tiny", "dorm"): [0, 0, 14.668006, 33.012132, 36.074461, 35.908506],
    ("balanced", "oasis"): [312.008, 420.858, 239.264],
    ("balanced", "fifo"): [278.340, 56.613, 115.762],
    ("balanced", "drf"): [237.271, 349.906, 148.711],
    ("balanced", "dorm"): [238.493, 370.478, 113.292],
}
SIZES = {"tiny": {}, "balanced": {"n_jobs": 40, "n_slots": 16, "n_machines": 30}}


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "name"), KNOWN)
def test_workloads_give_the_known_utility(float64, preset, name):
    n_slots, parts, atol = {"tiny": (4, 8, 1e-6), "balanced": (16, 20, 6e-4)}[preset]
    for seed, expected in enumerate(KNOWN[preset, name]):
        jobs, machines = getattr(cluster.workloads, preset)(seed, **SIZES[preset])
        more = {"oasis": {"parts": parts}}.get(name, {})
        if name == "fifo":
            more = {"workers": cluster.workloads.fixed_workers(seed, jobs)}
        schedule = getattr(cluster, name)(jobs, machines, n_slots=n_slots, **more)
        assert cluster.check(schedule, jobs, machines) == []
        np.testing.assert_allclose(cluster.total_utility(schedule, jobs), expected, atol=atol)
        assert not np.asarray(schedule.payoff).any()
        got = (schedule.workers + schedule.servers).any((1, 2))
        np.testing.assert_array_equal(schedule.admitted, got)


def test_the_first_in_line_blocks():
    jobs, machines = cluster.workloads.tiny(0)
    jobs = jobs._replace(
        arrival=np.array([0, 0, 0, 3]),
        worker=np.array([[1.0, 1], [9, 1], [1, 1], [1, 1]]),  # the second never fits
        samples=np.full(4, 1e9),
    )
    schedule = cluster.fifo(jobs, machines, n_slots=5, workers=[2, 1, 1, 1])
    np.testing.assert_array_equal(schedule.admitted, [True, False, False, False])
    assert (schedule.workers[0].sum(-1) == min(2, jobs.batch[0])).all()


def recorded(path):
    """Three jobs of a table: 2 GPUs for 2 h, 1 for 1 h and 4 for 1 h, all in the first hour."""
    path.write_text("submit_s,duration_s,num_gpus,vc\n0,7200,2,a\n60,3600,1,a\n120,3600,4,a\n")
    table = cluster.read_philly(path)
    jobs = cluster.recorded_workload(table, n_slots=5)
    jobs = jobs._replace(workers_per_server=np.ones(3))  # whole servers: the recorded times exactly
    samples = table.gpus * table.duration / 3600 / cluster.sample_times(jobs).inside
    return jobs._replace(samples=samples), cluster.Machines([[4.0, 900.0, 900.0, 900.0]])


def test_recorded_jobs_run_with_the_gpus_they_asked_for(tmp_path):
    jobs, machines = recorded(tmp_path / "mine.csv")
    assert jobs.asked.tolist() == [2, 1, 4]
    by_hand = [[2, 2, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 4, 0, 0]]  # the third waits for the first
    for rule in (cluster.SCHEDULERS["fifo"], cluster.fifo):
        schedule = rule(jobs, machines, n_slots=5)
        np.testing.assert_array_equal(schedule.workers.sum(-1), by_hand)
        np.testing.assert_array_equal(schedule.servers.sum(-1), by_hand)
        assert cluster.check(schedule, jobs, machines) == []
    np.testing.assert_array_equal(cluster.completion(schedule, jobs), [1, 0, 2])
    asked = cluster.least_attained(jobs, machines, n_slots=5, workers=jobs.asked)
    assert {*np.unique(asked.workers[0].sum(-1))} == {0, 2}
    # By design: the first in line takes all 4 GPUs, and is done in half the time.
    grown = cluster.least_attained(jobs, machines, n_slots=5, thresholds=[])
    np.testing.assert_array_equal(grown.workers[0].sum(-1), [4, 0, 0, 0, 0])


def test_what_is_not_known_is_drawn_by_the_registry_alone(tmp_path):
    jobs, machines = recorded(tmp_path / "mine.csv")
    some = jobs._replace(asked=np.array([0, 3, 0]))
    drawn = cluster.workloads.fixed_workers(0, jobs)
    expected = cluster.fifo(jobs, machines, n_slots=5, workers=[drawn[0], 3, drawn[2]])
    found = cluster.SCHEDULERS["fifo"](some, machines, n_slots=5)
    np.testing.assert_array_equal(found.workers, expected.workers)
    for unknown in (some, jobs._replace(asked=None)):
        with pytest.raises(ValueError, match=r"workers must be given .* nothing known of job 0"):
            cluster.fifo(unknown, machines, n_slots=5)


def test_a_job_keeps_its_units_until_the_end_of_its_last_slot():
    jobs, machines = cluster.workloads.tiny(2)
    schedule = cluster.fifo(jobs, machines, n_slots=30, workers=[9, 9, 9, 9])
    ends = cluster.completion(schedule, jobs)
    assert (ends >= 0).any()
    for job, end in enumerate(ends):
        if end >= 0:
            held = schedule.workers[job].sum(-1)
            assert held[end] > 0
            assert not held[end + 1 :].any()


@pytest.mark.slow
def test_oasis_keeps_nothing_after_the_real_end():
    for seed in (12, 13, 17):  # a job is done before the last slot that the search gave it
        jobs, machines = cluster.workloads.tiny(seed)
        schedule = cluster.oasis(jobs, machines, n_slots=4, parts=8)
        assert schedule.admitted.any()
        for job in np.flatnonzero(schedule.admitted):
            units = schedule.workers[job], schedule.servers[job]
            end = oracle.real_end(jobs, job, *units)
            assert end >= 0
            assert not (units[0] + units[1])[end + 1 :].any()


@pytest.mark.slow
def test_the_split_says_which_machines_of_oasis_hold_servers():
    jobs, machines = cluster.workloads.balanced(0, n_jobs=12, n_slots=6, n_machines=10)
    play = partial(cluster.oasis, jobs, machines, n_slots=6)
    half = play()
    np.testing.assert_array_equal(half.workers, play(split=0.5).workers)
    for split, hosts in ((0.1, 1), (0.3, 3), (0.79, 7)):
        schedule = play(split=split)
        assert cluster.check(schedule, jobs, machines) == []
        assert schedule.workers.any()
        assert not schedule.workers[..., :hosts].any()
        assert not schedule.servers[..., hosts:].any()
        assert schedule.servers[..., :hosts].any()
    for split in (0.0, 0.05, 1.0):  # no machine for one of the two
        assert not play(split=split).admitted.any()


def test_resizing_none_keeps_all_allocations():
    jobs, machines = cluster.workloads.balanced(0, n_jobs=12, n_slots=6, n_machines=4)
    few = cluster.dorm(jobs, machines, n_slots=6)
    many = cluster.dorm(jobs, machines, n_slots=6, resize=1.0)

    def changes(schedule):
        held = schedule.workers.sum(-1)
        return int(((np.diff(held, axis=1) != 0) & (held[:, 1:] > 0) & (held[:, :-1] > 0)).sum())

    assert changes(few) < changes(many)
    assert cluster.check(many, jobs, machines) == []
