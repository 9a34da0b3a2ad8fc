"""The exact optimum, PD-ORS beside it, and why one case comes to 0.08 of it."""

import numpy as np
import pytest

from asyncjax import cluster
from asyncjax.study import protocol
from experiments import part
from experiments.cluster import optimum
from experiments.cluster.optimum import Settings
from tests.oracles import cluster as oracle

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    output = tmp_path_factory.mktemp("cluster_optimum")
    return optimum.study_of(Settings(output, instances=2, floors=(1e-6, 0.01, 0.3)))


@pytest.mark.parametrize("seed", [0, 2, 15, 17, 23])
def test_two_programmes_find_the_same_optimum(seed):
    jobs, machines = cluster.workloads.tiny(seed)
    expected = oracle.best_schedule(jobs, machines, 4)
    assert optimum.best_utility(jobs, machines, 4) == pytest.approx(expected, rel=1e-5)


def payoffs(job, load, low, parts):
    """Payoffs of a job of tiny(17) beside a load, by the plain twin, which shares no code."""
    jobs, machines = cluster.workloads.tiny(17)
    high = cluster.price_bounds(jobs, machines, n_slots=4).high
    prices = np.asarray(cluster.price(load, machines.capacity, low, high), float)
    return oracle.payoffs_with_servers(jobs, job, prices, machines.capacity - load, parts, (1,))


EMPTY = np.zeros((4, 2, 2))


def test_the_worst_case_is_what_the_price_of_the_paper_decides():
    """Job 0, worth 7.55, is admitted by the literal price alone, and blocks job 2, worth 65.

    The first job meets empty machines at the price L, gains all but 1e-4 of its worth, so the rule
    must take it. Job 2 then finds no slots.
    """
    jobs, machines = cluster.workloads.tiny(17)
    low = cluster.price_bounds(jobs, machines, n_slots=4).low
    assert low == pytest.approx(4.7e-7, rel=0.01)
    first = payoffs(0, EMPTY, low, 24)
    assert int(np.argmax(first)) == 2
    assert max(first) == pytest.approx(7.554, abs=1e-3)
    schedule = cluster.pd_ors(jobs, machines, n_slots=4, parts=24)
    assert schedule.admitted.tolist() == [True, True, False, False]
    assert schedule.payoff[0] == pytest.approx(max(first), rel=1e-4)
    load = EMPTY.copy()
    for job in (0, 1):
        load += schedule.workers[job][..., None] * jobs.worker[job]
        load += schedule.servers[job][..., None] * jobs.server[job]
    assert max(payoffs(2, load, low, 24)) <= 0
    assert max(payoffs(2, EMPTY, low, 24)) > 60
    share = cluster.total_utility(schedule, jobs) / optimum.best_utility(jobs, machines, 4)
    assert share == pytest.approx(0.0772, abs=1e-3)


def test_a_higher_floor_refuses_that_job_and_reaches_the_optimum(result):
    assert max(payoffs(0, EMPTY, 0.01, 24)) > 0  # in fine parts this is not enough
    assert max(payoffs(0, EMPTY, 0.01, 8)) < 0  # in coarse it is, by a promise that is too late
    assert max(payoffs(0, EMPTY, 0.3, 24)) < 0
    for parts, first in (("8", 2), ("24", 3)):
        found = result.facts["story"]["searches"][parts]
        assert [0 in admitted for admitted in found["admitted"]] == [at < first for at in range(4)]
        assert found["ratio"][0] == pytest.approx(0.0772, abs=1e-3)
        assert found["ratio"][first] == pytest.approx(1.0, abs=1e-5)


def test_the_story_says_what_blocks_whom(result):
    told = result.facts["story"]
    first, _, third, _ = told["jobs"]
    assert [job["admitted"] for job in told["jobs"]] == [True, True, False, False]
    assert (first["blocks"], first["end"]) == ([2], 2)
    assert third["best_worth"] > 8 * first["best_worth"]
    assert max(told["busy"][:3]) > 0.8


@pytest.mark.parametrize(("letter", "role"), [("A", protocol.SET_A), ("B", protocol.SET_B)])
def test_ratios_are_those_of_the_schedulers(result, letter, role):
    *_, instance = protocol.seeds_of(0, role, 2)
    jobs, machines = cluster.workloads.tiny(instance.data)
    rows = result.select(set=letter, instance=1).set_index("method")
    best = oracle.best_schedule(jobs, machines, 4)
    assert rows["optimum"].to_numpy() == pytest.approx(best, rel=1e-5)
    earned = cluster.total_utility(cluster.pd_ors(jobs, machines, n_slots=4, parts=8), jobs)
    assert rows["ratio"]["pd_ors"] == pytest.approx(earned / best, rel=1e-5)


def test_nothing_is_above_the_optimum():
    assert part.committed("cluster_optimum").rows["ratio"].max() <= 1 + 1e-5
